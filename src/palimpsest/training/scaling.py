"""Layers that only scale: output = weight * n(x) + c(x), coordinate by coordinate, as every RMSNorm does.

Model families bring RMSNorm classes of their own (Llama's multiplies by w, Gemma's by 1 + w). Rather than know them by
name, a layer is tried on public random numbers once: if its output is such a function of its one weight vector, the
slope n(x) is the layer with weight one minus the layer with weight zero, and the gradient of the weight follows.
"""

import copy
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Scaling:
    """The layer with its weight at one and, where that is not nothing, at zero."""

    at_one: nn.Module
    at_zero: nn.Module | None

    def slope(self, inputs: torch.Tensor) -> torch.Tensor:
        """n(x), in the shape of the layer's output."""
        if self.at_zero is None:
            return self.at_one(inputs)
        return self.at_one(inputs) - self.at_zero(inputs)


def scaling_of(layer: nn.Module) -> Scaling | None:
    """The layer as a scaling, or None where it is none: it was seen to be affine in its weight, example by example."""
    own = dict(layer.named_parameters())
    if list(own) != ["weight"] or own["weight"].dim() != 1 or len(own["weight"]) < 2 or list(layer.children()):
        return None
    generator = torch.Generator().manual_seed(0)
    width, like = len(own["weight"]), own["weight"]
    inputs = torch.randn(2, 3, width, generator=generator).to(like)
    weight = torch.randn(width, generator=generator).to(like)
    with torch.no_grad():
        try:
            return _tried(layer, inputs, weight)
        except (RuntimeError, TypeError, ValueError, IndexError):  # it takes something else than (B, T, width)
            return None


def _tried(layer: nn.Module, inputs: torch.Tensor, weight: torch.Tensor) -> Scaling | None:
    at_one, at_zero = _with(layer, torch.ones_like(weight)), _with(layer, torch.zeros_like(weight))
    rest = at_zero(inputs)
    slope = at_one(inputs) - rest
    affine = torch.allclose(_with(layer, weight)(inputs), rest + weight * slope, rtol=1e-4, atol=1e-5)
    alone = torch.allclose(at_one(inputs[:1]), at_one(inputs)[:1], rtol=1e-4, atol=1e-5)
    if slope.shape != inputs.shape or not affine or not alone:
        return None
    return Scaling(at_one, at_zero if bool(rest.any()) else None)


def _with(layer: nn.Module, weight: torch.Tensor) -> nn.Module:
    """A copy of the layer with that weight, frozen."""
    changed = copy.deepcopy(layer).requires_grad_(False)
    changed.weight = nn.Parameter(weight, requires_grad=False)
    return changed
