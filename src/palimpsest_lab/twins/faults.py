"""Planted faults: test equipment that breaks the privacy code for the length of one run on invented rows.

Guarantee: no key of params.yaml, no variable of the environment and no stage that reads a user's data leads here. A
fault is a context manager that replaces named attributes of this process and puts them back. While it holds,
`PrivateView` opens only for the asset of the invented workspaces, and only on rows that were invented for the run; any
other asset or row is an error before a query is answered. Other processes are not touched, and in this one a stage runs
at a time.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch

from palimpsest.errors import LedgerError
from palimpsest.prediction import decoding
from palimpsest.prediction.mechanism import FixedClipping
from palimpsest.privacy import depth
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.view import PrivateView
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema
from palimpsest.training import dpsgd
from palimpsest.training.bookkeeping import BookkeepingEngine
from palimpsest.training.engine import ClippedSum, Losses
from palimpsest.training.plan import TrainingPlan
from palimpsest_lab.twins.settings import ASSET, CLIPPING_NORM

NO_NOISE, NO_CLIPPING, SHRUNK = "no noise", "no clipping", "noise divided by the batch size"

_Replacement = tuple[Any, str, Callable[..., Any]]


@contextmanager
def plant_fault(fault: str | None, invented: Collection[Record]) -> Iterator[None]:
    """Run a block with one fault, or without any where `fault` is None.

    Args:
        fault: a key of `FAULTS`.
        invented: the only records that a private view may hold meanwhile.
    """
    with ExitStack() as stack:
        if fault is not None:
            stack.enter_context(mock.patch.object(PrivateView, "__init__", _restrict_view(invented)))
            for owner, name, wrong in FAULTS[fault]:
                stack.enter_context(mock.patch.object(owner, name, wrong))
        yield


def _restrict_view(invented: Collection[Record]) -> Callable[..., None]:
    """Return the constructor of a view that holds invented records of the invented asset, and nothing else."""
    known, opened = {(record.text, record.label) for record in invented}, PrivateView.__init__

    def opens(self: PrivateView, rows: Sequence[PrivateRow], schema: PublicSchema, *rest: Any) -> None:
        if schema.asset != ASSET or not {(row.text, row.label) for row in rows} <= known:
            raise LedgerError(
                "A planted fault would have met rows that were not invented for it.",
                "Run `palimpsest twins` by itself: it breaks the code for rows of its own alone.",
            )
        opened(self, rows, schema, *rest)

    return opens


def _draw_zeros(_self: NoiseSource, size: int, _std: float) -> np.ndarray:
    return np.zeros(size, dtype=np.int64)


def _add_nothing(_self: NoiseSource, _tensor: torch.Tensor, _std: float) -> None:
    """Add no noise to a tensor."""


def _pick_deepest(scores: Sequence[int], k: int, _scale: float) -> list[int]:
    return np.argsort(-np.asarray(scores), kind="stable")[:k].tolist()


def _pick_likeliest(scores: torch.Tensor, _source: NoiseSource) -> int:
    return int(scores.argmax())


def _keep_raw(_self: FixedClipping, private: torch.Tensor, _public: torch.Tensor) -> torch.Tensor:
    return private


def _sum_unclipped(
    self: BookkeepingEngine, losses: Losses, batch_size: int, clipping_norm: float, *rest: Any, **named: Any
) -> list[ClippedSum]:
    """Clip only in the checks before a training, which try other norms or name their weights: they stop an engine that
    never clips."""
    bound = math.inf if clipping_norm == CLIPPING_NORM and not named else clipping_norm
    return _CLIPPED(self, losses, batch_size, bound, *rest, **named)


def _shrink_noise(sums: Sequence[torch.Tensor], plan: TrainingPlan, noise: NoiseSource) -> None:
    std = plan.noise_std(sum(values.numel() for values in sums))
    for values in sums:
        noise.add_gaussian(values, std / plan.divisor)
        values.div_(plan.divisor)


_CLIPPED = BookkeepingEngine.clipped_sums

FAULTS: Mapping[str, tuple[_Replacement, ...]] = {
    NO_NOISE: (
        (NoiseSource, "whole_normal", _draw_zeros),
        (NoiseSource, "add_gaussian", _add_nothing),
        (depth, "gumbel_top_k", _pick_deepest),
        (decoding, "draw", _pick_likeliest),
    ),
    NO_CLIPPING: ((BookkeepingEngine, "clipped_sums", _sum_unclipped), (FixedClipping, "contributions", _keep_raw)),
    SHRUNK: ((dpsgd, "privatise", _shrink_noise),),
}
