"""Sequences of rows that hold no row objects: each object is made when it is looked at.

For ten million rows, memory then holds the texts, a dozen bytes beside each, and no copy.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import compress, islice
from typing import Any, Generic, TypeVar, cast, overload

import numpy as np
import pyarrow as pa

Row = TypeVar("Row")
Other = TypeVar("Other")
_AT_ONCE = 1 << 14  # rows that are turned into arrays, or back, together


class _Made(Sequence[Row]):
    """A sequence whose items are made anew each time; it equals any sequence of equal items."""

    def _get_row(self, place: int) -> Row:
        raise NotImplementedError

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> list[Row]: ...
    def __getitem__(self, place: int | slice) -> Row | list[Row]:
        if isinstance(place, slice):
            return [self._get_row(each) for each in range(len(self))[place]]
        return self._get_row(range(len(self))[place])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(ours == theirs for ours, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]


class Packed(_Made[Row], Generic[Row]):
    """Rows in Arrow arrays, which nothing can change."""

    def __init__(self, kind: Callable[..., Row], table: pa.Table) -> None:
        """Make rows `kind(*values)` of the table's columns, in their order."""
        self._kind, self._table = kind, table

    @classmethod
    def of(cls, kind: type[Row], rows: Iterable[Row]) -> "Packed[Row]":
        """Pack rows of a dataclass of strings and booleans as they come."""
        types = {each.name: pa.bool_() if each.type is bool else pa.string() for each in fields(cast(Any, kind))}
        return cls(kind, make_table(pa.schema(types), rows))

    def convert(self, kind: type[Other]) -> "Packed[Other]":
        """Return the same rows as another dataclass, whose attributes these have too, but perhaps its last ones."""
        stored = set(self._table.column_names)
        return Packed(kind, self._table.select([one.name for one in fields(cast(Any, kind)) if one.name in stored]))

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[Row]:
        for batch in self._table.to_batches(_AT_ONCE):
            yield from map(self._kind, *(column.to_pylist() for column in batch.columns))

    def _get_row(self, place: int) -> Row:
        return self._kind(*(column[place].as_py() for column in self._table.columns))


class Chosen(_Made[Row]):
    """The rows of a sequence that a mask chooses, bool (len(rows),)."""

    def __init__(self, rows: Sequence[Row], mask: np.ndarray) -> None:
        self._rows, self._mask, self._count = rows, mask, int(np.count_nonzero(mask))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        return compress(self._rows, self._mask)

    def _get_row(self, place: int) -> Row:
        return self._rows[int(np.flatnonzero(self._mask)[place])]


class Mapped(_Made[Row]):
    """The results of a function on the items of sequences of one length."""

    def __init__(self, make: Callable[..., Row], *sequences: Sequence[Any]) -> None:
        self._make, self._sequences = make, sequences

    def __len__(self) -> int:
        return len(self._sequences[0])

    def __iter__(self) -> Iterator[Row]:
        return map(self._make, *self._sequences)

    def _get_row(self, place: int) -> Row:
        return self._make(*(each[place] for each in self._sequences))


def draw_mask(rows: int, most: int, seed: int) -> np.ndarray:
    """Draw a mask of `most` of so many rows, without replacement; all where there are no more: bool (rows,)."""
    mask = np.zeros(rows, dtype=bool)
    mask[np.random.default_rng(seed).permutation(rows)[:most]] = True
    return mask


def make_table(schema: pa.Schema, rows: Iterable[Any]) -> pa.Table:
    """Make a table of the attributes of rows that a schema names, some rows at a time."""
    remaining, parts = iter(rows), [schema.empty_table()]
    while some := list(islice(remaining, _AT_ONCE)):
        columns = [pa.array([getattr(row, field.name) for row in some], field.type) for field in schema]
        parts.append(pa.Table.from_arrays(columns, schema=schema))
    return pa.concat_tables(parts)
