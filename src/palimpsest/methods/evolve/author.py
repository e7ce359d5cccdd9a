"""The interface of candidate writers: RANDOM_API and VARIATION_API of private evolution."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from palimpsest.records.record import Record

UNLABELLED = ""  # the one label of a task without labels


class Author(Protocol):
    """Writes texts from public prompts and synthetic texts, and sees nothing else.

    Both calls are functions of their arguments and of the author's public seed, so a stopped run writes the same again.
    """

    def random(self, counts: Mapping[str, int]) -> list[Record]:
        """RANDOM_API: new texts, at most so many for each label; fewer where some could not be written.

        Raises:
            BackendError: the model cannot be reached, or its budget of tokens or money would be passed.
        """

    def vary(self, records: Sequence[Record], times: int, turn: int) -> list[list[Record]]:
        """VARIATION_API: up to `times` variations of each record, with its label; fewer where some could not be
        written.

        `turn` tells apart calls with equal records, so that each gets variations of its own.

        Raises:
            BackendError: as for `random`.
        """


def occurrences(records: Sequence[Record]) -> list[int]:
    """Return how often each record occurs before it in the list, so that equal records get different coins."""
    seen: Counter[Record] = Counter()
    before = []
    for record in records:
        before.append(seen[record])
        seen[record] += 1
    return before
