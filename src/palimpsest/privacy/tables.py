"""Noisy tables of fields beside a text, and noisy sums of the texts' embeddings for each value of a field.

Both rest on `means.class_steps`: whatever a unit adds, over all tables or sums together, has a length of at most 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from dp_accounting.dp_event import DpEvent, GaussianDpEvent, NonPrivateDpEvent

from palimpsest import validate
from palimpsest.privacy.means import GRID, Encode, class_steps, embed_texts, encode_ahead
from palimpsest.privacy.query import Stored, bounds_persons, mark_of, register_query
from palimpsest.privacy.rows import PrivateRow, group_by_person
from palimpsest.records.fields import decode_cells

if TYPE_CHECKING:
    from palimpsest.privacy.entropy import NoiseSource  # heavy, and a plan needs none of it

Axes: TypeAlias = tuple[int, ...]  # of a table: indices of axes, ascending

MOST_CELLS = 2**20  # of all tables together
_MOST_SIGMA = 2.0**20  # up to here noise in steps fits into 64 bits
_AT_ONCE = 4096  # texts that are encoded, or rows that are counted, together


@bounds_persons
@register_query
@dataclass(frozen=True)
class FieldTables(Stored):
    """Tables of how many rows have each combination of values of some axes: the label, where there is one, and fields.

    Guarantee: for adding or removing one unit, a record or a person with all their rows, this is one Gaussian mechanism
    of L2 sensitivity 1 and standard deviation `sigma`, all tables together (Dwork and Roth 2014, Theorem A.1; exact
    delta: Balle and Wang 2018, Theorem 8). A row adds 1 to one cell of each of the M tables. A unit's additions, one
    vector over all tables, are shortened to length 1 where it is longer, in whole steps of 1 / GRID and rounded towards
    zero (`means.class_steps`), so one row adds 1 / sqrt(M) to each of its M cells. Which cells a row adds to is a
    function of that row and of public words alone. Noise is rounded to the same steps, which is rounding the noisy sum
    (post-processing). Counts are the answer times sqrt(M). With sigma 0 the answer is exact and not private: for
    reference runs. Running time is not covered.

    A person's shortened additions are in proportion to the mean of their rows' and never fewer than those of one row.

    Attributes:
        labels: the public ones, the first axis; rows of another label add nothing. Empty where the task has none, and
            no axis is of labels then.
        sizes: the number of cells of each field, the one for values without a cell included.
        tables: the axes of each table.
        sigma: standard deviation of the noise, in units of what one unit can change.
    """

    labels: tuple[str, ...]
    sizes: tuple[int, ...]
    tables: tuple[Axes, ...]
    sigma: float
    name: str = "field_tables"

    def __post_init__(self) -> None:
        """Refuse numbers that the arithmetic does not hold for, and a table or a label that would count twice."""
        validate.require_in_range(0.0, _MOST_SIGMA, sigma=self.sigma)
        validate.require_in_range(1, MOST_CELLS, cells=self.cells)
        for names in (self.labels, self.tables, *self.tables):
            if len(set(names)) < len(names):
                raise ValueError("labels, tables and the axes of a table must differ from each other")

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of cells of each axis."""
        return shape_of(self.labels, self.sizes)

    @property
    def cells(self) -> int:
        """The number of cells of all tables."""
        return sum(self._sizes())

    @property
    def subject(self) -> object:
        """The cells of the tables."""
        return self.labels, self.sizes, self.tables

    @property
    def std(self) -> float:
        """The standard deviation of the noise on each count, sqrt(M) sigma."""
        return math.sqrt(len(self.tables)) * self.sigma

    def event(self) -> DpEvent:
        return GaussianDpEvent(self.sigma) if self.sigma > 0 else NonPrivateDpEvent()

    def run(self, rows: Sequence[PrivateRow], noise: "NoiseSource") -> list[list[float]]:
        """Return noisy counts, a list for each table, the last axis running fastest; lists can be stored."""
        steps = np.zeros((self.cells, 1), dtype=np.int64)
        units = group_by_person(rows)
        for start in range(0, len(units), _AT_ONCE):
            some = units[start : start + _AT_ONCE]
            places, owners = _find_places([row for own in some for row in own], self.labels, self.sizes, _owners(some))
            flat = np.concatenate([self._flatten(places), np.empty((0, len(self.tables)), dtype=np.int64)])
            ones = np.ones((flat.size, 1))
            steps += class_steps(ones, flat.reshape(-1), self.cells, np.repeat(owners, len(self.tables)))
        noisy = steps[:, 0] + noise.whole_normal(self.cells, self.sigma * GRID)
        counts = noisy / GRID * math.sqrt(len(self.tables))
        return [table.tolist() for table in np.split(counts, np.cumsum(self._sizes())[:-1])]

    def _sizes(self) -> list[int]:
        return [math.prod(self.shape[axis] for axis in axes) for axes in self.tables]

    def _flatten(self, places: np.ndarray) -> np.ndarray:
        """Return the cell of each row in each table, numbered over all tables: int64 (n, tables)."""
        starts = np.cumsum([0, *self._sizes()[:-1]])
        own = [
            np.ravel_multi_index(tuple(places[:, list(axes)].T), [self.shape[axis] for axis in axes])
            for axes in self.tables
        ]
        return np.stack(own, axis=1) + starts


@bounds_persons
@register_query
@dataclass(frozen=True)
class FieldMeans(Stored):
    """The sum of the embeddings of rows that have a value, for each value of each axis: the label, and fields.

    Guarantee: as `FieldTables`, one Gaussian mechanism of L2 sensitivity 1 and standard deviation `sigma`. A row adds
    its embedding, brought to length 1, to one sum for each of the A axes; a unit's additions, over all sums together,
    are shortened to length 1 (`means.class_steps`), so one row adds its embedding / sqrt(A). The answer is multiplied
    by sqrt(A). It rests on `encode` as `ClassMeans` does.

    Attributes:
        labels, sizes, sigma: as `FieldTables` has them.
        encode: a public encoder, n texts -> (n, dimensions). A vector that is zero or not finite contributes nothing.
        dimensions: length d of an embedding.
    """

    labels: tuple[str, ...]
    sizes: tuple[int, ...]
    encode: Encode
    dimensions: int
    sigma: float
    name: str = "field_means"

    def __post_init__(self) -> None:
        """Refuse numbers that the arithmetic does not hold for, and a label named twice."""
        validate.require_in_range(0.0, _MOST_SIGMA, sigma=self.sigma)
        validate.require_in_range(1, MOST_CELLS, dimensions=self.dimensions)
        if len(set(self.labels)) < len(self.labels):
            raise ValueError("labels must differ from each other")

    @property
    def subject(self) -> object:
        """The sums, and the space that they lie in."""
        return self.labels, self.sizes, self.dimensions, mark_of(self.encode)

    @property
    def std(self) -> float:
        """The standard deviation of the noise on each coordinate of a sum, sqrt(A) sigma."""
        return math.sqrt(len(shape_of(self.labels, self.sizes))) * self.sigma

    def event(self) -> DpEvent:
        return GaussianDpEvent(self.sigma) if self.sigma > 0 else NonPrivateDpEvent()

    def prepare(self, rows: Sequence[PrivateRow]) -> None:
        """Encode the rows, for an encoder that keeps what it encoded."""
        encode_ahead(self.encode, [row.text for row in rows])

    def run(self, rows: Sequence[PrivateRow], noise: "NoiseSource") -> list[list[float]]:
        """Return noisy sums, d numbers for each cell of each axis, axis by axis; lists can be stored.

        Raises:
            ModelError: the encoder fails, or does not return one vector of d numbers per text.
        """
        shape = shape_of(self.labels, self.sizes)
        steps = np.zeros((sum(shape), self.dimensions), dtype=np.int64)
        starts = np.cumsum([0, *shape[:-1]])
        units = group_by_person(rows)
        for start in range(0, len(units), _AT_ONCE // 8):
            some = units[start : start + _AT_ONCE // 8]
            part = [row for own in some for row in own]
            vectors = embed_texts(self.encode, [row.text for row in part], self.dimensions)
            places, owners = _find_places(part, self.labels, self.sizes, _owners(some))
            kept = vectors[_known_rows(part, self.labels, self.sizes)]
            each = np.repeat(kept, len(shape), axis=0)
            steps += class_steps(each, (places + starts).reshape(-1), sum(shape), np.repeat(owners, len(shape)))
        drawn = noise.whole_normal(steps.size, self.sigma * GRID).reshape(steps.shape)
        return ((steps + drawn) / GRID * math.sqrt(len(shape))).tolist()


def shape_of(labels: Sequence[str], sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the number of cells of each axis: of the label, where there are labels, and of each field."""
    return (*([len(labels)] if labels else []), *sizes)


def _known_rows(rows: Sequence[PrivateRow], labels: Sequence[str], sizes: Sequence[int]) -> np.ndarray:
    """Return which rows have a public label and a cell of every field: bool (n,)."""
    return np.array([_place_row(row, labels, sizes) is not None for row in rows], dtype=bool)


def _find_places(
    rows: Sequence[PrivateRow], labels: Sequence[str], sizes: Sequence[int], owners: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the cells of each row that has one on every axis, int64 (kept, axes), and the unit of each, int64 (kept,).

    Guarantee: what a row's cells are, and whether it is kept, is a function of that row and of public words alone.
    """
    pairs = ((_place_row(row, labels, sizes), owner) for row, owner in zip(rows, owners, strict=True))
    found = [(place, owner) for place, owner in pairs if place is not None]
    places = np.array([place for place, _ in found], dtype=np.int64).reshape(len(found), len(shape_of(labels, sizes)))
    return places, np.array([owner for _, owner in found], dtype=np.int64)


def _place_row(row: PrivateRow, labels: Sequence[str], sizes: Sequence[int]) -> tuple[int, ...] | None:
    cells = decode_cells(row.fields)
    within = len(cells) == len(sizes) and all(0 <= cell < size for cell, size in zip(cells, sizes, strict=True))
    if not within or (labels and row.label not in labels):
        return None
    return (*([labels.index(str(row.label))] if labels else []), *cells)


def _owners(units: Sequence[Sequence[PrivateRow]]) -> list[int]:
    return [index for index, own in enumerate(units) for _ in own]
