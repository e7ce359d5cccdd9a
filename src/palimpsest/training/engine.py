"""What DP-SGD asks of a gradient engine: the sum of per-example gradients, each clipped first."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from palimpsest.errors import PalimpsestError


class EngineError(PalimpsestError):
    """A model or a loss that per-example clipping cannot treat exactly."""


@dataclass(frozen=True)
class ClippedSum:
    """A sum of clipped per-example gradients. All of it is private until noise is added; none of it may be logged.

    Attributes:
        gradients: parameter name -> sum over the examples, in the parameter's shape; every trainable parameter.
        norms: (B,) L2 norm of each example's whole gradient before clipping; not finite for a dropped example.
        dropped: how many examples had a gradient that is not finite and count as zero.
    """

    gradients: dict[str, torch.Tensor]
    norms: torch.Tensor
    dropped: int


class GradientEngine(Protocol):
    """Computes clipped sums for one model, attached when the engine is built."""

    def clipped_sum(self, losses: Callable[[], torch.Tensor], batch_size: int, clipping_norm: float) -> ClippedSum:
        """The sum over examples of `gradient * min(1, clipping_norm / |gradient|)`.

        Guarantee: adding or removing one example changes the returned sum by at most `clipping_norm` in L2 norm over
        all trainable parameters together, provided that example i's loss depends on example i alone.

        Args:
            losses: runs the model and returns one loss per example, shape (batch_size,).
            batch_size: the number of examples, at least 1.
            clipping_norm: C > 0; infinity leaves every finite gradient as it is.

        Raises:
            EngineError: the loss or the model cannot be treated exactly.
        """
        ...
