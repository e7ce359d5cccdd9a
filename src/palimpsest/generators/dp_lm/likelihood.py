"""How likely a model finds records, serialised as they were trained on: what membership attacks score by."""

from collections.abc import Sequence

import numpy as np
import torch

from palimpsest.generators.dp_lm.losses import lm_loss
from palimpsest.generators.dp_lm.model import ConditionalLm
from palimpsest.generators.dp_lm.serialise import Row, Serialiser
from palimpsest.progress import track


@torch.no_grad()
def record_losses(model: ConditionalLm, rows: Serialiser, records: Sequence[Row], batch: int) -> np.ndarray:
    """Mean token loss in nats of each record given its label, float64 of shape (records,).

    Args:
        model: the fitted model, or the public one it started from.
        rows: the serialiser of the training.
        records: what to score.
        batch: records at once; without effect on the result but for rounding.
    """
    found = np.zeros(len(records))
    order = sorted(range(len(records)), key=lambda index: len(records[index].text))
    starts = range(0, len(order), batch)
    for start in track(starts, name="losses", total=len(starts), unit="batch"):
        chosen = order[start : start + batch]
        found[chosen] = lm_loss(model, rows.batch([records[index] for index in chosen])).double().numpy()
    return found
