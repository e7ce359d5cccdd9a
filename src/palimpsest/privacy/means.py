"""Sums of embeddings per class, in one release: they show what private rows are about and how their classes differ."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from dp_accounting.dp_event import DpEvent, GaussianDpEvent, NonPrivateDpEvent

from palimpsest import validate
from palimpsest.errors import ModelError
from palimpsest.privacy.query import Stored, bounds_persons, mark_of, register_query
from palimpsest.privacy.rows import PrivateRow, group_by_person
from palimpsest.progress import track

if TYPE_CHECKING:
    from palimpsest.privacy.entropy import NoiseSource  # heavy, and a plan needs none of it

Encode: TypeAlias = Callable[[Sequence[str]], np.ndarray]

GRID = 2**30  # steps per unit length: sums of whole steps are exact, in every order
_MOST_DIMENSIONS = 2**20  # up to here a norm's rounding is far below one step in GRID
_MOST_SIGMA = 2.0**20  # up to here noise in steps fits into 64 bits
_PARTS_AHEAD, _LEAST_AHEAD = 32, 64  # parts that texts are encoded in ahead, and texts of a part


@bounds_persons
@register_query
@dataclass(frozen=True)
class ClassMeans(Stored):
    """The sum of the units' embeddings per class, each at most of length 1 over all classes, with Gaussian noise.

    These are sums, not means: for means, divide by a public number.

    Guarantee: for adding or removing one unit, a record or a person with all their rows, this is one Gaussian mechanism
    of L2 sensitivity 1 and standard deviation `sigma` (Dwork and Roth 2014, Theorem A.1; exact delta: Balle and Wang
    2018, Theorem 8), all classes together. Whatever `encode` returns for a row, its vector is brought to length 1 in
    float64 and rounded towards zero to whole steps of 1 / GRID. A unit's rows are added class by class, and these sums,
    one vector over all classes, are shortened to length 1 where it is longer and rounded towards zero again
    (`class_steps`): one row is always short enough. Whole numbers are added: neither the order of the rows nor the
    rounding of other sums shows. The noise is rounded to the same steps, which is the same as rounding the noisy sum
    (post-processing), so no low bit of a float tells the sum. `sigma` 0 answers exactly and is not private: for
    reference runs.

    A person's shortened sum points where the mean over their rows points and is never shorter than it, so it says at
    least as much under the same noise.

    This rests on `encode` giving a text its vector whatever other texts come with it. An encoder that pads a batch does
    so only up to the rounding of its floats, and one record then moves the vectors of others by that much; one that
    reads each text by itself (`models.vectors.KeptVectors` with batch 1) does not. Running time and memory are not
    covered.

    Attributes:
        labels: the public ones; rows with another label contribute nothing.
        encode: a public encoder, n texts -> (n, dimensions). A vector that is zero or not finite contributes nothing.
        dimensions: length d of an embedding.
        sigma: standard deviation of the noise on each coordinate, in units of one embedding's length.
        batch: how many texts `encode` gets at once, with texts of similar length together; it may cut them into batches
            of its own.
    """

    labels: tuple[str, ...]
    encode: Encode
    dimensions: int
    sigma: float
    batch: int = 4096
    name: str = "class_means"

    def __post_init__(self) -> None:
        """Refuse numbers that the arithmetic does not hold for, and a label named twice: a record would count twice."""
        validate.require_in_range(1, _MOST_DIMENSIONS, dimensions=self.dimensions)
        validate.require_in_range(0.0, _MOST_SIGMA, sigma=self.sigma)
        validate.require_positive(batch=self.batch)
        if len(set(self.labels)) < len(self.labels):
            raise ValueError("labels must differ from each other")

    @property
    def subject(self) -> object:
        """The labels, and the space that the sums lie in."""
        return self.labels, self.dimensions, mark_of(self.encode)

    def event(self) -> DpEvent:
        return GaussianDpEvent(self.sigma) if self.sigma > 0 else NonPrivateDpEvent()

    def prepare(self, rows: Sequence[PrivateRow]) -> None:
        """Encode the rows, for an encoder that keeps what it encoded."""
        encode_ahead(self.encode, [row.text for row in rows if row.label in self.labels])

    def run(self, rows: Sequence[PrivateRow], noise: "NoiseSource") -> list[list[float]]:
        """Return noisy sums, one list of d numbers per label in the order of `labels`; lists can be stored.

        Raises:
            ModelError: the encoder fails, or does not return one vector of d numbers per text.
        """
        position: dict[str | None, int] = {label: index for index, label in enumerate(self.labels)}
        units = group_by_person([row for row in rows if row.label in position])
        steps = np.zeros((len(self.labels), self.dimensions), dtype=np.int64)
        for some in _pack_units(sorted(units, key=lambda own: max(len(row.text) for row in own)), self.batch):
            part = [row for own in some for row in own]
            owners = [index for index, own in enumerate(some) for _ in own]
            steps += class_steps(self._embed(part), [position[row.label] for row in part], len(self.labels), owners)
        drawn = noise.whole_normal(steps.size, self.sigma * GRID).reshape(steps.shape)
        return ((steps + drawn) / GRID).tolist()

    def _embed(self, rows: Sequence[PrivateRow]) -> np.ndarray:
        texts = [row.text for row in rows]
        parts = (texts[start : start + self.batch] for start in range(0, len(texts), self.batch))
        return np.concatenate([embed_texts(self.encode, part, self.dimensions) for part in parts])


def _pack_units(units: Sequence[list[PrivateRow]], most: int) -> Iterator[list[list[PrivateRow]]]:
    """Yield the units in order, in groups of whole units with at most `most` rows; a larger unit comes by itself."""
    held: list[list[PrivateRow]] = []
    size = 0
    for own in units:
        if held and size + len(own) > most:
            yield held
            held, size = [], 0
        held.append(own)
        size += len(own)
    if held:
        yield held


def encode_ahead(encode: Encode, texts: Sequence[str]) -> None:
    """Let an encoder that keeps vectors (`models.vectors.KeptVectors`) encode private texts, in a few parts.

    Each part is kept as it is done, so a stopped run goes on from there. Only the share that is done is reported.

    Raises:
        ModelError: see `embed_texts`.
    """
    in_order = sorted(texts, key=len)
    size = max(_LEAST_AHEAD, math.ceil(len(in_order) / _PARTS_AHEAD))
    starts = range(0, len(in_order), size)
    for start in track(starts, name="encode", total=len(starts), private=True):
        embed_texts(encode, in_order[start : start + size])


def embed_texts(encode: Encode, texts: Sequence[str], dimensions: int | None = None) -> np.ndarray:
    """Return the vectors of private texts, (n, d) floats, where d is `dimensions` if that is given.

    Raises:
        ModelError: the encoder fails, or does not return one such vector per text; the message quotes none.
    """
    try:
        vectors = np.asarray(encode(texts))
        vectors = vectors if vectors.dtype.kind == "f" else vectors.astype(np.float64)
    except OSError:  # of the disk, which the caller can mend
        raise
    except Exception as error:  # of any kind: its message may quote a row
        raise ModelError(
            f"The encoder failed on a batch of rows ({type(error).__name__}).",
            "Try it on public texts: empty ones, very long ones and ones in other scripts.",
        ) from None
    if vectors.ndim != 2 or len(vectors) != len(texts) or dimensions not in (None, vectors.shape[1]):
        size = "" if dimensions is None else f" of {dimensions} numbers"
        raise ModelError(
            f"The encoder does not return one vector{size} per text.",
            "Name the encoder that embedded the public texts.",
        )
    return vectors


def class_steps(
    vectors: np.ndarray,
    classes: Sequence[int] | np.ndarray,
    count: int,
    units: Sequence[int] | np.ndarray | None = None,
) -> np.ndarray:
    """Return the sums over units of what each contributes, in whole steps of 1 / GRID: int64 (count, d).

    A vector is brought to length 1; a unit contributes the sum of its vectors per class, shortened to length 1 over all
    classes together where it is longer. Everything is rounded towards zero, which never lengthens.

    Guarantee: adding one unit moves the result by at most GRID in L2, over all classes together, and by what its own
    vectors say alone. A unit of one vector is not shortened.

    Args:
        vectors: shape (n, d); one that is zero or not finite contributes nothing.
        classes: the class of each, in [0, count).
        units: which unit each belongs to, numbered from 0; None where each is a unit of its own.
    """
    # One step less than GRID makes room for the rounding of the norm, which follows memory row by row: no row's bits
    # depend on how many there are.
    whole = np.trunc(unit_rows(np.ascontiguousarray(vectors)) * (GRID - 1)).astype(np.int64)  # (n, d)
    owners = np.arange(len(whole)) if units is None else np.asarray(units, dtype=np.int64)
    kinds, places = np.unique(owners * count + np.asarray(classes, dtype=np.int64), return_inverse=True)
    sums = np.zeros((len(kinds), vectors.shape[1]), dtype=np.int64)  # of each unit and class that occur together
    np.add.at(sums, places, whole)
    steps = np.zeros((count, vectors.shape[1]), dtype=np.int64)
    np.add.at(steps, kinds % count, _clip_lengths(sums, kinds // count))
    return steps


def _clip_lengths(sums: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Return each unit's sums, (its classes, d), shortened unless their length over all its classes is at most GRID."""
    squares = np.square(sums.astype(np.float64)).sum(axis=1)
    lengths = np.sqrt(np.bincount(units, weights=squares))
    # Half a step is room for the rounding of the length: what is kept is not longer than GRID, and one vector is kept.
    factors = np.where(lengths > GRID - 0.5, (GRID - 1) / np.maximum(lengths, 1.0), 1.0)
    return np.trunc(sums * factors[units][:, None]).astype(np.int64)


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Return each row divided by its L2 norm, float64 (n, d); a row that is zero or not finite becomes zero.

    >>> unit_rows(np.array([[3e300, 4e300], [0.0, 0.0], [np.inf, 1.0]])).round(6).tolist()
    [[0.6, 0.8], [0.0, 0.0], [0.0, 0.0]]
    """
    values = np.asarray(vectors, dtype=np.float64)
    largest = np.abs(values).max(axis=1, keepdims=True)  # (n, 1)
    usable = np.isfinite(largest) & (largest > 0)
    scaled = np.where(usable, values, 0.0) / np.where(usable, largest, 1.0)  # no square overflows or vanishes
    norms = np.sqrt(np.square(scaled).sum(axis=1, keepdims=True))
    return scaled / np.maximum(norms, 1.0)  # a usable row has a coordinate of 1 by now
