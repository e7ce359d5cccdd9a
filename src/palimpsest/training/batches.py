"""Micro-batches of fixed shapes, filled with whole units of privacy.

What a unit gives to a sum must not depend on which other units are in the batch, to the last bit. The shape of a
micro-batch decides how its matrix products are rounded. So every shape is a public function of only the unit: how many
rows a unit is padded to, how wide its rows are, and how many rows a micro-batch has. A place without a row repeats one
that is there and has no weight.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from zlib import crc32

import torch

from palimpsest.privacy.rows import PrivateRow

Widths: TypeAlias = Callable[[Sequence[PrivateRow]], Sequence[int]]  # rows -> the width of each, from that row only


def bucket(length: int, longest: int) -> int:
    """Return the least of 8, 16, 24, 32, 48, 64, 96, 128, ... that holds `length`, at most max(length, longest).

    Matrix products on multiples of eight run up to twice as fast, and few widths leave few micro-batches half empty.
    """
    power = max(8, 1 << (length - 1).bit_length())
    between = power // 4 * 3
    width = between if length <= between and power > 16 else power
    return max(length, min(width, longest))


@dataclass(frozen=True)
class MicroBatch:
    """Rows that go through the model together, with the rows of one clipping side by side.

    Attributes:
        rows: `clippings * group` rows.
        group: rows whose gradients are added up before they are clipped.
        shares: (clippings, group) float64, the factors of the rows' losses before clipping; each clipping's sum to 1.
        weights: (clippings,) float64, the factors of the clipped gradients; 0 for an empty place.
    """

    rows: tuple[PrivateRow, ...]
    group: int
    shares: torch.Tensor
    weights: torch.Tensor

    def seeds(self, step: int) -> torch.Tensor:
        """Return (clippings,) int32 for rounding without bias, each a function of the step and of its rows' texts."""
        clippings = (self.rows[at : at + self.group] for at in range(0, len(self.rows), self.group))
        found = [crc32("\0".join(row.text for row in own).encode("utf-8", "replace"), step) for own in clippings]
        return torch.tensor(found, dtype=torch.int64).to(torch.int32)


@dataclass(frozen=True)
class _Clipping:
    """Rows whose joint gradient is clipped once, with the share of each and the weight of the whole."""

    rows: tuple[PrivateRow, ...]
    shares: tuple[float, ...]
    weight: float


def micro_batches(
    units: Sequence[Sequence[PrivateRow]], size: int, person: str, widths: Widths
) -> Iterator[MicroBatch]:
    """Yield all rows of the units in micro-batches, each of one shape.

    Guarantee: a unit's clippings, their shares, their weights and the shape of their micro-batches depend on that unit
    alone. The weights of a unit's clippings sum to at most 1 (up to a rounding of float64), so if each clipped gradient
    is at most C, what the unit adds to a sum is at most C.

    Args:
        size: rows of a micro-batch; only a unit that is clipped as one may have more.
        person: "joint": a unit's mean loss has one gradient, which is clipped once. "rows": each row's gradient is
            clipped, and the unit adds their mean. A unit of one row is the same in both.
        widths: rows -> the padded width of each, a function of only that row.
    """
    rows = [row for unit in units for row in unit]
    width_of = iter(widths(rows))
    shaped: dict[tuple[int, int], list[_Clipping]] = defaultdict(list)
    for unit in units:
        own = [next(width_of) for _ in unit]
        if person == "joint":
            clipping = _join_unit(unit)
            shaped[len(clipping.rows), max(own)].append(clipping)
        else:
            for row, width in zip(unit, own, strict=True):
                shaped[1, width].append(_Clipping((row,), (1.0,), 1.0 / len(unit)))
    for group, width in sorted(shaped):
        yield from _fill_batches(shaped[group, width], group, places(size, group))


def places(size: int, group: int) -> int:
    """Return how many clippings of `group` rows fit in a micro-batch of about `size` rows."""
    return max(1, size // group)


def groups(most_rows: int, person: str) -> tuple[int, ...]:
    """Return the padded numbers of rows that a clipping may have, where a unit has at most `most_rows`."""
    most = most_rows if person == "joint" else 1
    return tuple(1 << power for power in range((most - 1).bit_length() + 1))


def _join_unit(unit: Sequence[PrivateRow]) -> _Clipping:
    """Return the unit's rows as one clipping, filled up to a power of two so that there are few shapes."""
    count = len(unit)
    empty = (1 << (count - 1).bit_length()) - count
    return _Clipping((*unit, *[unit[0]] * empty), (*[1.0 / count] * count, *[0.0] * empty), 1.0)


def _fill_batches(clippings: Sequence[_Clipping], group: int, places: int) -> Iterator[MicroBatch]:
    for start in range(0, len(clippings), places):
        here = clippings[start : start + places]
        empty = places - len(here)
        filled = [*here, *[here[0]] * empty]
        yield MicroBatch(
            rows=tuple(row for clipping in filled for row in clipping.rows),
            group=group,
            shares=torch.tensor([clipping.shares for clipping in filled], dtype=torch.float64),
            weights=torch.tensor([clipping.weight for clipping in here] + [0.0] * empty, dtype=torch.float64),
        )
