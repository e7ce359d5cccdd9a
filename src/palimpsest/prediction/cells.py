"""Which batch a record is in: a keyed hash of the record alone, so no record moves another."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from palimpsest import validate
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.keyed import digest

SCHEME = "keyed batches"


def part(first: int, last: int) -> tuple[str, str]:
    """(scheme, cell) of the batches `first` up to `last`."""
    return SCHEME, f"{first} to {last}"


@dataclass(frozen=True)
class Cells:
    """Public numbers of batches per label, and the key that spreads records over them.

    Guarantee: the batch of a record is a function of that record, the key and public numbers. Adding or removing it
    changes the content of one batch by that record and of no other (parallel composition; McSherry 2009, Theorem 4).
    This holds for every key; that it is secret keeps others from choosing their batch.

    Attributes:
        counts: label -> number of batches that its records are spread over; "" where the task has no labels.
        used: label -> how many of these, the first ones, are written from.
        key: 32 secret bytes.
    """

    counts: Mapping[str, int]
    used: Mapping[str, int]
    key: bytes

    def __post_init__(self) -> None:
        """Refuse numbers that name no batch."""
        for label, count in self.counts.items():
            validate.in_range(1, count, used=self.used[label])

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of each batch that is written from."""
        return tuple(label for label in self.counts for _ in range(self.used[label]))

    def of(self, row: PrivateRow) -> int | None:
        """The record's batch; None where it is in none that is written from, or has no public label."""
        label = "" if tuple(self.counts) == ("",) else row.label
        if label is None or label not in self.counts:
            return None
        words = digest(self.key, "predict", label, row.text, row.label, size=16)
        place = int.from_bytes(words, "big") % self.counts[label]
        if place >= self.used[label]:
            return None
        starts = dict(zip(self.counts, accumulate(self.used[name] for name in self.counts), strict=True))
        return starts[label] - self.used[label] + place
