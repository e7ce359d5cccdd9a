"""Keys and values of unfinished texts, with spare room for the tokens that are read next.

The library's cache copies the whole past for every token that is read. Here the tensor of a past is the beginning of a
wider buffer, and a new column is written after it: the columns of the past do not change, so gradients can still be
taken through them. A past without room is copied once into a buffer that has some.
"""

from collections.abc import Sequence

import torch
from torch.autograd.function import once_differentiable
from transformers import Cache
from transformers.cache_utils import DynamicLayer

Past = tuple[tuple[torch.Tensor, torch.Tensor], ...]  # per layer: keys and values, (batch, heads, time, head width)

_ROOM = 64  # columns that a buffer has more than it needs


class _Roomy(DynamicLayer):
    """One layer's keys and values."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()
        self.lazy_initialization(keys, values)
        self.keys, self.values = keys, values

    def update(  # type: ignore[override]
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: object, **_kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new columns after the present ones."""
        self.keys, self.values = _Behind.apply(self.keys, key_states), _Behind.apply(self.values, value_states)
        return self.keys, self.values


class _Behind(torch.autograd.Function):
    """Appends new columns to a past in the same memory. Autograd sees no write: no column that it has seen changes."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, past: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        ctx.time = past.shape[2]  # type: ignore[attr-defined]
        columns = past.shape[2] + new.shape[2]
        if columns > _columns(past):
            past = roomy(past, new.shape[2] + _ROOM).copy_(past)
        wide = past.data.as_strided((*past.shape[:2], columns, past.shape[3]), past.stride())
        wide[:, :, past.shape[2] :] = new
        return wide

    @staticmethod
    @once_differentiable
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: torch.Tensor) -> Sequence[torch.Tensor]:
        time: int = ctx.time  # type: ignore[attr-defined]
        return gradient[:, :, :time], gradient[:, :, time:]


def _columns(past: torch.Tensor) -> int:
    """Count the columns of the past's buffer; 0 where the layout is not that of a buffer."""
    _, heads, _, width = past.shape
    buffer = past.stride() == (heads * past.stride(1), past.stride(1), width, 1)
    return past.stride(1) // width if buffer else 0


def roomy(past: torch.Tensor, room: int = _ROOM) -> torch.Tensor:
    """Return an uninitialised tensor of the past's shape, with room for so many more columns."""
    rows, heads, time, width = past.shape
    return past.new_empty(rows, heads, time + room, width)[:, :, :time]


def cache_of(past: Past) -> Cache:
    """Return a cache that continues a past and uses its room: one cache at a time."""
    return Cache(layers=[_Roomy(keys, values) for keys, values in past])


def past_of(cache: Cache) -> Past:
    """The keys and values of a cache."""
    return tuple((layer.keys, layer.values) for layer in cache.layers)  # type: ignore[misc, union-attr]


def select(past: Past, rows: torch.Tensor) -> Past:
    """The past of the texts at these indices."""
    return tuple((keys[rows], values[rows]) for keys, values in past)
