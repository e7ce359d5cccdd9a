"""How likely a finished text carries each label, by the discriminator of a fitted model."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from palimpsest.errors import ModelError
from palimpsest.methods.dp_lm.losses import prefix_weights
from palimpsest.methods.dp_lm.model import ENCODER, ConditionalLm, DiscriminatorHead
from palimpsest.methods.dp_lm.serialise import Serialiser
from palimpsest.records.record import Record

Encode = Callable[[list[str]], np.ndarray]  # a few texts -> unit vectors (texts, d), each text alone
Judge = Callable[[Sequence[str]], np.ndarray]  # texts -> probabilities of the labels (texts, labels)

_WHOLE = 1 << 30  # no prefix is this long, so the only one that is classified is the text itself


def judge_of(model: ConditionalLm, rows: Serialiser, encode: Encode | None) -> Judge:
    """The judge that a head needs: of the model's own states, or of a sentence encoder's embeddings.

    Raises:
        ModelError: the head reads a sentence encoder, and there is none.
    """
    if model.head.shape.reads != ENCODER:
        return lambda texts: state_probabilities(model, rows, texts)
    if encode is None:
        raise ModelError("The discriminator reads a sentence encoder.", "Name the one it was fitted with.")
    return lambda texts: encoder_probabilities(model.head, encode, texts)


@torch.no_grad()
def state_probabilities(model: ConditionalLm, rows: Serialiser, texts: Sequence[str]) -> np.ndarray:
    """Probabilities of the labels, (texts, labels), from the texts behind a prompt that names no label."""
    names = list(rows.prompts)
    blind = replace(rows, entropy=bytes)  # always the same token in the label's place
    batch = blind.batch([Record(text, names[0] or None) for text in texts]).to(model.embedding.device)
    whole = prefix_weights(batch.text, _WHOLE).argmax(dim=1)
    means = model.prefix_means(batch.blinded, batch.text)[torch.arange(len(texts)), whole]
    return model.head(means).softmax(dim=-1).double().cpu().numpy()


@torch.no_grad()
def encoder_probabilities(head: DiscriminatorHead, encode: Encode, texts: Sequence[str]) -> np.ndarray:
    """Probabilities of the labels, (texts, labels), from embeddings of the texts."""
    device = next(head.parameters()).device
    features = torch.from_numpy(encoder_features(encode, texts)).to(device)
    return head(features).softmax(dim=-1).double().cpu().numpy()


def encoder_features(encode: Encode, texts: Sequence[str]) -> np.ndarray:
    """Embeddings of root mean square 1, float32 (texts, d): the size of what other heads read."""
    embeddings = np.asarray(encode(list(texts)), dtype=np.float32)
    return embeddings * np.float32(np.sqrt(embeddings.shape[1]))
