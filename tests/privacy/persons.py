"""All small data sets of persons, and the neighbours that lack one of them."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, combinations_with_replacement, product, zip_longest
from typing import TypeAlias

import numpy as np

from palimpsest.privacy.rows import PrivateRow

Kind: TypeAlias = tuple[str, str | None]  # text and label of a row
Data: TypeAlias = tuple[tuple[Kind, ...], ...]  # the rows of each person; () for one who is not there

IDS = tuple(f"{number:02x}" * 32 for number in (0x3A, 0xC5, 0x71))


def people(kinds: Sequence[Kind], most: int) -> list[tuple[Kind, ...]]:
    """Everyone there can be with at most so many rows of these kinds, nobody among them."""
    return list(chain(*(combinations_with_replacement(kinds, size) for size in range(most + 1))))


def data_sets(kinds: Sequence[Kind], most: int, persons: int = len(IDS)) -> Iterator[Data]:
    """Every data set of at most so many persons with at most so many rows each."""
    return product(people(kinds, most), repeat=persons)


def neighbours(data: Data) -> Iterator[Data]:
    """Those without one person who is there, all of that person's rows gone."""
    return ((*data[:place], (), *data[place + 1 :]) for place, own in enumerate(data) if own)


def rows_in(data: Data, backwards: bool = False) -> list[PrivateRow]:
    """The rows, those of different persons mixed."""
    named = [[PrivateRow(text, label, person) for text, label in own] for person, own in zip(IDS, data, strict=False)]
    mixed = [row for turn in zip_longest(*named) for row in turn if row is not None]
    return mixed[::-1] if backwards else mixed


def records_in(data: Data) -> list[PrivateRow]:
    """The same rows, each a unit of its own."""
    return [PrivateRow(row.text, row.label) for row in rows_in(data)]


def pairs(every: Iterable[Data]) -> Iterator[tuple[list[PrivateRow], list[PrivateRow]]]:
    """Neighbours: persons with all their rows, and single records."""
    for data in every:
        for less in neighbours(data):
            yield rows_in(data), rows_in(less)
        records = records_in(data)
        for place in range(len(records)):
            yield records, [*records[:place], *records[place + 1 :]]


class Noted:
    """Noise whose standard deviation is noted, and that is always the same number."""

    def __init__(self, always: int = 0) -> None:
        self.always = always
        self.drawn: list[tuple[int, float]] = []

    def whole_normal(self, size: int, std: float) -> np.ndarray:
        self.drawn.append((size, std))
        return np.full(size, self.always, dtype=np.int64)
