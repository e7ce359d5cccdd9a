"""What a model makes of records, serialised as in training: how likely it finds them, and the states it reads them in.

Membership attacks score by the first, the separation of labels is measured on the second.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from palimpsest.methods.dp_lm.losses import lm_loss
from palimpsest.methods.dp_lm.model import ConditionalLm
from palimpsest.methods.dp_lm.serialise import Serialisable, Serialiser
from palimpsest.progress import track
from palimpsest.records.record import Record


@torch.no_grad()
def record_losses(model: ConditionalLm, rows: Serialiser, records: Sequence[Serialisable], batch: int) -> np.ndarray:
    """Mean token loss in nats of each record given its label, float64 of shape (records,).

    Args:
        model: the fitted model, or the public one it started from.
        rows: the serialiser of the training.
        records: what to score.
        batch: records at once; without effect on the result but for rounding.
    """
    found = np.zeros(len(records))
    for chosen in _batches(records, batch, "losses"):
        found[chosen] = lm_loss(model, rows.batch([records[index] for index in chosen])).double().numpy()
    return found


@torch.no_grad()
def mean_states(model: ConditionalLm, rows: Serialiser, records: Sequence[Serialisable], batch: int) -> np.ndarray:
    """Mean last hidden state over each record's text tokens, float32 of shape (records, width).

    The text stands behind one and the same token in place of its label, and the labels themselves are never read: what
    tells labels apart in the states is what the model sees in the texts. A record without a text token has zeros.

    Args:
        model: the fitted model, or the public one it started from.
        rows: the serialiser of the training.
        records: what to read.
        batch: records at once; without effect on the result but for rounding.
    """
    blind = replace(rows, entropy=bytes)  # zero bytes draw the same stand-in every time
    known = next(iter(rows.prompts))  # a row whose label is not public would have no text
    found = np.zeros((len(records), model.embedding.shape[1]), dtype=np.float32)
    for chosen in _batches(records, batch, "states"):
        inputs = blind.batch([Record(records[index].text, known) for index in chosen])
        found[chosen] = _mean(model.hidden(inputs.blinded), inputs.text).numpy()
    return found


def _mean(hidden: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
    """Mean of hidden states (B, S, width) where `text`, bool (B, S), is true; (B, width), zeros where it nowhere is."""
    kept = text.unsqueeze(-1).to(hidden.dtype)
    return (hidden * kept).sum(dim=1) / kept.sum(dim=1).clamp_min(1.0)


def _batches(records: Sequence[Serialisable], batch: int, name: str) -> Iterator[list[int]]:
    """Indices of the records, those of like length together, so that little of a batch is padding."""
    order = sorted(range(len(records)), key=lambda index: len(records[index].text))
    starts = range(0, len(order), batch)
    for start in track(starts, name=name, total=len(starts), private=True):
        yield order[start : start + batch]
