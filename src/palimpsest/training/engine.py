"""The types that DP-SGD and the engine that clips each example's gradient exchange."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

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
        norms: (examples,) float64, at least the L2 norm of each example's whole gradient before clipping; not finite
            where a gradient is not: such an example counts as zero.
    """

    gradients: Gradients
    norms: torch.Tensor
