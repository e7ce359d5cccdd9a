"""The batch that a unit of privacy is in: a keyed hash of that unit only, so no unit moves another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from palimpsest import validate
from palimpsest.privacy.rows import PrivateRow, select_one_each
from palimpsest.records.keyed import digest

SCHEME = "keyed batches"


def part(first: int, last: int) -> tuple[str, str]:
    """Return (scheme, cell) of the batches `first` up to `last`."""
    return SCHEME, f"{first} to {last}"


@dataclass(frozen=True)
class Cells:
    """Public numbers of batches per label, and the key that spreads records or persons over them.

    Guarantee: label, batch and contexts of a unit of privacy (a record, or a person with all their rows) are functions
    of that unit, the key and public numbers. Adding or removing it changes the content of one batch by its contexts and
    of no other, whatever labels a person's rows have (parallel composition; McSherry 2009, Theorem 4). This holds for
    every key; that it is secret keeps others from choosing their batch.

    Attributes:
        counts: label -> number of batches that its units are spread over; "" where the task has no labels.
        used: label -> how many of these, the first ones, are written from.
        key: 32 secret bytes.
    """

    counts: Mapping[str, int]
    used: Mapping[str, int]
    key: bytes

    def __post_init__(self) -> None:
        for label, count in self.counts.items():
            validate.require_in_range(1, count, used=self.used[label])

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of each batch that is written from."""
        return tuple(label for label in self.counts for _ in range(self.used[label]))

    def of(self, own: Sequence[PrivateRow]) -> tuple[int, list[PrivateRow]] | None:
        """Return the batch of one unit of privacy and its contexts there, from all rows of the unit (at least one).

        A record stands for itself. A person is represented by one of their rows, chosen by a keyed hash: its label is
        the person's label, the batch follows from the person's id, and the contexts are the person's rows of that
        label. None where the unit is in no batch that is written from, or has no public label.
        """
        (standing,) = select_one_each(own)
        label = self._label(standing)
        if label is None or label not in self.counts:
            return None
        whose = (standing.text, standing.label) if standing.person is None else (standing.person,)
        words = digest(self.key, "predict", label, *whose, size=16)
        place = int.from_bytes(words, "big") % self.counts[label]
        if place >= self.used[label]:
            return None
        starts = dict(zip(self.counts, accumulate(self.used[name] for name in self.counts), strict=True))
        return starts[label] - self.used[label] + place, [row for row in own if self._label(row) == label]

    def _label(self, row: PrivateRow) -> str | None:
        return "" if tuple(self.counts) == ("",) else row.label
