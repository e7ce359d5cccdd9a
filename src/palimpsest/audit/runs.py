"""The longest runs that two corpora share, in a time that grows with their words and hardly with the runs' length.

Two texts share a run of n + k - 1 words where k n-grams in a row are shared, each with the next one. So the runs are
looked for among places of shared n-grams alone: sorted by what follows (a suffix array by prefix doubling, Manber and
Myers 1993), each place has its longest match beside it (lengths by Kasai et al. 2001).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numba import njit

_KEY_BITS = 32
_kernel = njit(cache=True, nogil=True)


@dataclass(frozen=True, eq=False)
class Places:
    """Where n-grams begin, n at least 2: those of the last words of a text are no n-grams, so texts are apart."""

    position: np.ndarray  # int64 (places,), ascending
    gram: np.ndarray  # the number of the n-gram there, below 2^31; int64 (places,)

    @classmethod
    def sort(cls, position: np.ndarray, gram: np.ndarray) -> Self:
        """Sort places by where they are."""
        order = np.argsort(position)
        return cls(position[order], gram[order].astype(np.int64))

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Join the places of disjoint sets of n-grams, of which each is numbered from 0."""
        firsts = np.cumsum([0, *(part.gram.max(initial=-1) + 1 for part in parts[:-1])])
        grams = [part.gram + first for part, first in zip(parts, firsts, strict=True)]
        return cls.sort(np.concatenate([part.position for part in parts]), np.concatenate(grams))

    def select(self, wanted: np.ndarray) -> "Places":
        """Return the wanted places, bool (places,)."""
        return Places(self.position[wanted], self.gram[wanted])


def match_lengths(first: Places, second: Places) -> np.ndarray:
    """Return how many n-grams in a row, from each place of the first corpus on, the second has too: int32 (places,)."""
    symbols = np.concatenate([first.gram, second.gram])
    left = np.concatenate([_count_left(first.position), _count_left(second.position)])
    order = _sort_suffixes(symbols, left)
    return _match_sides(order, _common_prefixes(symbols, left, order), len(first.position))


def _count_left(position: np.ndarray) -> np.ndarray:
    """Return how many places follow each other from each one on, itself included; int32 (places,)."""
    if not len(position):
        return np.zeros(0, dtype=np.int32)
    last = np.flatnonzero(np.append(np.diff(position) != 1, True))
    return (np.repeat(last, np.diff(np.append(-1, last))) - np.arange(len(position)) + 1).astype(np.int32)


def _sort_suffixes(symbols: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Return the places in the order of what follows them within their run; a run that ends comes first."""
    rank, places = np.unique(symbols, return_inverse=True)[1], np.arange(len(symbols))
    size, longest, order = 1, int(left.max(initial=0)), np.argsort(rank, kind="stable")
    while size < longest:
        inside = left > size
        after = np.zeros(len(symbols), dtype=np.int64)
        after[inside] = rank[places[inside] + size] + 1
        keys = (rank.astype(np.int64) << _KEY_BITS) | after
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        rank[order] = np.cumsum(np.append(False, ordered[1:] != ordered[:-1]))
        size *= 2
    return order


@_kernel
def _common_prefixes(symbols, left, order):  # type: ignore[no-untyped-def]
    """Return how many symbols each sorted place has in common with the one before it; int32 (places,)."""
    count = len(order)
    place_of, common = np.empty(count, np.int64), np.zeros(count, np.int32)
    for place in range(count):
        place_of[order[place]] = place
    known = 0
    for here in range(count):
        if here and left[here] != left[here - 1] - 1:
            known = 0  # another run begins
        place = place_of[here]
        if place == 0:
            known = 0
            continue
        before = order[place - 1]
        most = min(left[here], left[before])
        while known < most and symbols[here + known] == symbols[before + known]:
            known += 1
        common[place] = known
        known = max(0, known - 1)
    return common


@_kernel
def _match_sides(order, common, size):  # type: ignore[no-untyped-def]
    """Return the longest match of each of the first `size` places with a later one: that of a neighbour, either way."""
    longest = np.zeros(size, np.int32)
    for step in (1, -1):
        shared = 0
        for number in range(len(order)):
            place = number if step == 1 else len(order) - 1 - number
            if step == 1:
                shared = min(shared, common[place])
            here = order[place]
            if here >= size:
                shared = np.iinfo(np.int32).max
            elif shared > longest[here]:
                longest[here] = shared
            if step == -1:
                shared = min(shared, common[place])
    return longest
