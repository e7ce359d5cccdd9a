"""What DP-SGD asks of a gradient engine: the sum of per-example gradients, each clipped first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch

from palimpsest.errors import PalimpsestError

Gradients: TypeAlias = dict[str, torch.Tensor]  # parameter name -> gradient; a missing one is zero
Losses: TypeAlias = Callable[[], Sequence[torch.Tensor]]


class EngineError(PalimpsestError):
    """A model or a loss that per-example clipping cannot treat exactly."""


@dataclass(frozen=True)
class ClippedSum:
    """A sum of clipped per-example gradients. All of it is private until noise is added; none of it may be logged.

    Attributes:
        gradients: parameter name -> float64 sum over the examples, in the parameter's shape; a parameter that no
            example used is missing.
        norms: (examples,) float64, at least the L2 norm of each example's whole gradient before clipping; not finite for a dropped example.
        dropped: how many examples had a gradient that is not finite and count as zero.
    """

    gradients: Gradients
    norms: torch.Tensor
    dropped: int


class GradientEngine(Protocol):
    """Computes clipped sums for one model, attached when the engine is built."""

    def clipped_sums(
        self,
        losses: Losses,
        batch_size: int,
        clipping_norm: float,
        totals: Sequence[Gradients] | None = None,
        group: int = 1,
        weights: torch.Tensor | None = None,
    ) -> list[ClippedSum]:
        """For each loss, the sum over examples of `weight * gradient * min(1, clipping_norm / |gradient|)`.

        An example is `group` rows side by side; its gradient is that of the sum of their losses.

        Guarantee: adding or removing one example changes each returned sum by at most `weight * clipping_norm` in L2
        norm over all trainable parameters together, provided that the losses of a row depend on that row alone.

        Args:
            losses: runs the model once and returns one tensor for each loss, (batch_size,) values, one for each row.
            batch_size: the number of rows, at least 1, a multiple of `group`.
            clipping_norm: C > 0; infinity leaves every finite gradient as it is.
            totals: one for each loss, what earlier micro-batches summed; the sums are added to them in place.
            group: rows of an example.
            weights: (batch_size / group,) float64 between 0 and 1; none means 1. An example of weight 0 adds nothing,
                whatever its gradient.

        Raises:
            EngineError: the losses or the model cannot be treated exactly.
        """
        ...
