"""Scores of records by a model, serialised as in training, and label probabilities by its discriminator.

Membership attacks score records by their likelihood; the separation of labels is measured on the model's hidden states.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from palimpsest.errors import ModelError
from palimpsest.methods.dp_lm.losses import WHOLE, lm_loss, prefix_weights
from palimpsest.methods.dp_lm.model import ENCODER, ConditionalLm, DiscriminatorHead
from palimpsest.methods.dp_lm.serialise import Serialisable, Serialiser
from palimpsest.progress import track
from palimpsest.records.record import Record

Encode = Callable[[list[str]], np.ndarray]  # a few texts -> unit vectors (texts, d), each text alone
Judge = Callable[[Sequence[str]], np.ndarray]  # texts -> probabilities of the labels (texts, labels)


@torch.no_grad()
def record_losses(model: ConditionalLm, rows: Serialiser, records: Sequence[Serialisable], batch: int) -> np.ndarray:
    """Mean token loss in nats of each record given its label, float64 of shape (records,).

    `batch`, the number of records read at once, has no effect except for rounding.
    """
    losses = np.zeros(len(records))
    for chosen in _batches(records, batch, "losses"):
        inputs = rows.batch([records[index] for index in chosen]).to(model.embedding.device)
        losses[chosen] = lm_loss(model, inputs, True).cpu().double().numpy()
    return losses


@torch.no_grad()
def mean_states(model: ConditionalLm, rows: Serialiser, records: Sequence[Serialisable], batch: int) -> np.ndarray:
    """Mean last hidden state over each record's text tokens, float32 of shape (records, width).

    One fixed token stands in place of every label, and the labels themselves are never read: the states differ between
    labels only by what the model sees in the texts. A record without a text token has zeros.
    """
    blind = replace(rows, entropy=bytes)  # zero bytes draw the same stand-in every time
    known = next(iter(rows.prompts))  # a row whose label is not public would have no text
    states = np.zeros((len(records), model.embedding.shape[1]), dtype=np.float32)
    for chosen in _batches(records, batch, "states"):
        inputs = blind.batch([Record(records[index].text, known) for index in chosen])
        inputs = inputs.to(model.embedding.device)
        states[chosen] = _mean(model.hidden(inputs.blinded), inputs.text).cpu().numpy()
    return states


def _mean(hidden: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
    """Mean of hidden states (B, S, width) where `text`, bool (B, S), is true; (B, width), zeros where it nowhere is."""
    kept = text.unsqueeze(-1).to(hidden.dtype)
    return (hidden * kept).sum(dim=1) / kept.sum(dim=1).clamp_min(1.0)


def _batches(records: Sequence[Serialisable], batch: int, name: str) -> Iterator[list[int]]:
    """Yield indices of the records, grouped by similar length so that batches hold little padding."""
    order = sorted(range(len(records)), key=lambda index: len(records[index].text))
    starts = range(0, len(order), batch)
    for start in track(starts, name=name, total=len(starts), private=True):
        yield order[start : start + batch]


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
    """Probabilities of the labels, (texts, labels), from the texts after a prompt that names no label."""
    names = list(rows.prompts)
    blind = replace(rows, entropy=bytes)  # always the same token in the label's place
    batch = blind.batch([Record(text, names[0] or None) for text in texts]).to(model.embedding.device)
    whole = prefix_weights(batch.text, WHOLE).argmax(dim=1)
    read = model.prefix_features(batch.blinded, batch.text)[torch.arange(len(texts), device=whole.device), whole]
    return model.head(read).softmax(dim=-1).cpu().double().numpy()


@torch.no_grad()
def encoder_probabilities(head: DiscriminatorHead, encode: Encode, texts: Sequence[str]) -> np.ndarray:
    """Probabilities of the labels, (texts, labels), from embeddings of the texts."""
    device = next(head.parameters()).device
    features = torch.from_numpy(encoder_features(encode, texts)).to(device)
    return head(features).softmax(dim=-1).cpu().double().numpy()


def encoder_features(encode: Encode, texts: Sequence[str]) -> np.ndarray:
    """Embeddings of root mean square 1, float32 (texts, d): the size of what other heads read."""
    embeddings = np.asarray(encode(list(texts)), dtype=np.float32)
    return embeddings * np.float32(np.sqrt(embeddings.shape[1]))
