"""Losses of the multitask model, and scores of records made of them.

A loss has one value per record, so that a gradient can be clipped per record. Scores read records serialised as in
training: membership attacks score by likelihood, and the discriminator gives label probabilities. The separation of
labels is measured on the model's hidden states.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch.nn import functional

from palimpsest.errors import ModelError
from palimpsest.methods.dp_lm.model import ENCODER, ConditionalLm, DiscriminatorHead
from palimpsest.methods.dp_lm.serialise import Batch, Serialisable, Serialiser
from palimpsest.models.attention import cap_of
from palimpsest.progress import track
from palimpsest.records.record import Record
from palimpsest.training.losses import lm_head_loss

Encode = Callable[[list[str]], np.ndarray]  # a few texts -> unit vectors (texts, d), each text alone
Judge = Callable[[Sequence[str]], np.ndarray]  # texts -> probabilities of the labels (texts, labels)
WHOLE = 1 << 30  # a prefix step that no text reaches: the only prefix that is classified is the text itself


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


def lm_loss(model: ConditionalLm, batch: Batch, frozen_head: bool = False) -> torch.Tensor:
    """Mean cross entropy in nats of each record's counted tokens given its prompt, shape (B,).

    With `frozen_head` the language model's head does not train, and not all of its logits need be in memory at once.
    """
    # All positions run, though the last one predicts nothing: a width that is a multiple of eight is much faster.
    targets, counted = batch.prompted.roll(-1, 1), batch.counted.roll(-1, 1)
    counted[:, -1:] = False
    head, hidden = model.lm.get_output_embeddings(), model.hidden(batch.prompted)
    return lm_head_loss(head, hidden, targets, counted, cap_of(model.lm), frozen_head)


def discriminator_loss(model: ConditionalLm, batch: Batch, prefix_step: int) -> torch.Tensor:
    """Mean cross entropy in nats of each record's label given prefixes of its text, shape (B,).

    The text follows a random token in place of the label. Prefixes end at every `prefix_step`-th text token and
    weigh in proportion to their length (section 5.1.3 of the paper). A text shorter than `prefix_step` is classified
    once, whole, so that each record with a text has a loss.
    """
    logits = model.head(model.prefix_features(batch.blinded, batch.text))  # (B, S, labels)
    return weighted_loss(logits, batch.labels, prefix_weights(batch.text, prefix_step))


def weighted_loss(logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Each example's weighted mean cross entropy over its prefixes, shape (B,); 0 where all weights are 0.

    `logits` has shape (B, prefixes, labels), `labels` the right label of each example (B,), `weights` (B, prefixes).
    """
    each = functional.cross_entropy(logits.transpose(1, 2), labels[:, None].expand(logits.shape[:2]), reduction="none")
    weights = weights.to(each.dtype)
    return (each * weights).sum(dim=1) / weights.sum(dim=1).clamp_min(1.0)


def prefix_weights(text: torch.Tensor, prefix_step: int) -> torch.Tensor:
    """Length of the prefix that ends at each position where it is classified, 0 elsewhere; int64 (B, S)."""
    length = text.cumsum(dim=1)
    total = length[:, -1:]
    ends = (length % prefix_step == 0) | ((total < prefix_step) & (length == total))
    return length * (ends & text)


def joint_losses(
    model: ConditionalLm, batch: Batch, weight: float, prefix_step: int, frozen_head: bool = False
) -> tuple[torch.Tensor]:
    """One loss per record, `lm + weight * discriminator`: its gradient is clipped once, over all parameters."""
    loss = lm_loss(model, batch, frozen_head)
    return (loss + weight * discriminator_loss(model, batch, prefix_step) if weight else loss,)


def separate_losses(
    model: ConditionalLm, batch: Batch, weight: float, prefix_step: int, frozen_head: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Two losses per record, each clipped on its own: together a sensitivity of sqrt(2) C."""
    return lm_loss(model, batch, frozen_head), weight * discriminator_loss(model, batch, prefix_step)
