"""Layers that only scale: output = weight * n(x) + c(x), coordinate by coordinate, as every RMSNorm does.

Model families bring RMSNorm classes of their own (Llama's multiplies by w, Gemma's by 1 + w). Rather than know them by
name, a layer is tried once on public random numbers: if its output is such a function of its one weight vector, the
slope n(x) is the layer with weight one minus the layer with weight zero, and the gradient of the weight follows.

They also bring tables of their own, whose rows are multiplied by a constant on output (Gemma's by the root of its
width). With all weights set to one, such a table returns its constant.
"""

import copy
from dataclasses import dataclass

import torch
from torch import nn

_TRIAL_ROWS = 6


@dataclass(frozen=True)
class Scaling:
    """The layer with its weight at one and, where its output is then not zero, at zero."""

    at_one: nn.Module
    at_zero: nn.Module | None

    def slope(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return n(x), in the shape of the layer's output."""
        if self.at_zero is None:
            return self.at_one(inputs)
        return self.at_one(inputs) - self.at_zero(inputs)


def scaling_of(layer: nn.Module) -> Scaling | None:
    """Return the layer as a scaling, or None where trials do not show it affine in its weight, example by example."""
    own = dict(layer.named_parameters())
    if list(own) != ["weight"] or own["weight"].dim() != 1 or len(own["weight"]) < 2 or list(layer.children()):
        return None
    generator = torch.Generator().manual_seed(0)
    width, like = len(own["weight"]), own["weight"]
    inputs = torch.randn(2, 3, width, generator=generator).to(like)
    weight = torch.randn(width, generator=generator).to(like)
    with torch.no_grad():
        try:
            return _try_affine(layer, inputs, weight)
        except (RuntimeError, TypeError, ValueError, IndexError):  # it takes something else than (B, T, width)
            return None


def table_scale(table: nn.Embedding) -> float | None:
    """Return the constant that a table multiplies its rows by, to the last bit, or None where it does something else.

    A table of a few public random rows is tried in its place: the real one may fill much of the memory.
    """
    like, generator = table.weight, torch.Generator().manual_seed(0)
    rows = torch.randn(_TRIAL_ROWS, like.size(1), generator=generator).to(like)
    ids = torch.arange(_TRIAL_ROWS, device=like.device).view(2, -1)
    with torch.no_grad():
        try:
            scale, output = _table(table, torch.ones_like(rows))(ids), _table(table, rows)(ids)
        except (RuntimeError, TypeError, ValueError, IndexError):  # it takes something else than ids
            return None
    first = scale.flatten()[0]
    constant = scale.shape == output.shape == (*ids.shape, like.size(1)) and bool((scale == first).all())
    return float(first) if constant and torch.equal(output, rows[ids] * first) else None


def _table(table: nn.Embedding, rows: torch.Tensor) -> nn.Module:
    """Copy the table with these few rows, frozen."""
    few = copy.deepcopy(table, {id(table.weight): nn.Parameter(rows, requires_grad=False)})
    few.padding_idx = None  # it says which row does not train, and may lie beyond these
    return few


def _try_affine(layer: nn.Module, inputs: torch.Tensor, weight: torch.Tensor) -> Scaling | None:
    at_one, at_zero = _replace_weight(layer, torch.ones_like(weight)), _replace_weight(layer, torch.zeros_like(weight))
    rest = at_zero(inputs)
    slope = at_one(inputs) - rest
    affine = torch.allclose(_replace_weight(layer, weight)(inputs), rest + weight * slope, rtol=1e-4, atol=1e-5)
    alone = torch.allclose(at_one(inputs[:1]), at_one(inputs)[:1], rtol=1e-4, atol=1e-5)
    if slope.shape != inputs.shape or not affine or not alone:
        return None
    return Scaling(at_one, at_zero if bool(rest.any()) else None)


def _replace_weight(layer: nn.Module, weight: torch.Tensor) -> nn.Module:
    """Copy the layer with that weight, frozen."""
    changed = copy.deepcopy(layer).requires_grad_(False)
    changed.weight = nn.Parameter(weight, requires_grad=False)
    return changed
