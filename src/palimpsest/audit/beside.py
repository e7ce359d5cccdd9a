"""Shows each synthetic row beside its nearest private row, to readers who may see both. Private zone.

Nothing is concluded here. The audits, which have controls, test whether rows are nearer to the rows that were read than
chance explains; this shows single rows to a reader.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from palimpsest import validate
from palimpsest.audit.ngrams import WordIds, shared_ngrams
from palimpsest.audit.runs import match_lengths
from palimpsest.devices import exact_device
from palimpsest.privacy.means import unit_rows
from palimpsest.privacy.nearest import find_nearest
from palimpsest.records.duplicates import shingles_of
from palimpsest.records.segment import find_words, words

_PAIR = 2  # words of the shared n-grams that longer runs are put together from


@dataclass(frozen=True, eq=False)
class Nearest:
    """The nearest candidate of each row."""

    places: np.ndarray  # index of the nearest candidate; -1 where there is none. int64 (n,)
    cosines: np.ndarray  # cosine of the two vectors; NaN where there is none. float64 (n,)


def pair_nearest(rows: np.ndarray, candidates: np.ndarray) -> Nearest:
    """The candidate with the largest cosine to each row, exactly; see `privacy.nearest`.

    Args:
        rows: vectors of any length, (n, d). One that is zero or not finite has no neighbour.
        candidates: vectors of any length, (m, d), with the same rule.
    """
    if not len(candidates):
        return Nearest(np.full(len(rows), -1, dtype=np.int64), np.full(len(rows), np.nan))
    places = find_nearest(rows, candidates, device=exact_device())[:, 0]
    cosines = np.einsum("nd,nd->n", unit_rows(rows), unit_rows(candidates[places]))
    return Nearest(places, np.where(places < 0, np.nan, cosines))


def longest_runs(texts: Sequence[str], others: Sequence[str]) -> np.ndarray:
    """The longest run of words that each text shares with any one of `others`, in words: int64 (texts,)."""
    vocabulary: dict[str, int] = {}
    own, theirs = WordIds.read(texts, vocabulary), WordIds.read(others, vocabulary)
    longest = np.zeros(len(texts), dtype=np.int64)
    for shared in islice(shared_ngrams(own, theirs), _PAIR):
        longest[shared.first.row] = shared.order
        if shared.order == _PAIR:
            first, second = shared.places
            np.maximum.at(longest, own.row[first.position], match_lengths(first, second) + _PAIR - 1)
    return longest


def mark_runs(text: str, other: str, size: int) -> tuple[str, ...]:
    """Split the text into pieces, of which every second one is in runs of `size` words or more that `other` has too.

    Case and punctuation do not count, and an `other` of fewer words counts as a whole. The pieces joined are the text.

    >>> mark_runs("Sadly, the lid was broken again.", "The LID was broken: I cried", 3)
    ('Sadly, ', 'the lid was broken', ' again.')
    """
    validate.require_positive(size=size)
    found, theirs = find_words(text), words(other)
    own = [" ".join(words(text[start:stop])) for start, stop in found]
    pieces, end = [], 0
    for first, last in _runs(own, theirs, min(size, len(theirs))):
        start, stop = found[first][0], found[last][1]
        pieces += [text[end:start], text[start:stop]]
        end = stop
    return (*pieces, text[end:])


def _runs(own: Sequence[str], theirs: Sequence[str], size: int) -> list[tuple[int, int]]:
    """First and last word of each run of `size` words that is among theirs, too; overlapping runs are merged."""
    known = shingles_of(theirs, size) if size else frozenset()
    runs: list[tuple[int, int]] = []
    for start in range(len(own) - size + 1 if size else 0):
        if tuple(own[start : start + size]) in known:
            first = runs.pop()[0] if runs and start <= runs[-1][1] else start
            runs.append((first, start + size - 1))
    return runs
