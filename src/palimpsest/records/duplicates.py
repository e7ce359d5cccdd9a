"""Records that occur twice, or nearly: the membership audit may not guess about them."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import compress

import numpy as np

from palimpsest import validate
from palimpsest.progress import track
from palimpsest.records.segment import wording

SHINGLE = 3  # words of a shingle; a shorter text is one shingle
Shingle = tuple[str, ...]
Wording = frozenset[Shingle]  # of a text: two that differ only in case or punctuation have the same


def marks(texts: Iterable[str]) -> set[int]:
    """Return a number for each wording among the texts, valid only in this process; none for a text without a word."""
    return {hash(said) for said in map(wording, texts) if said}


def find_guessable(
    texts: Sequence[str],
    persons: Sequence[str] | np.ndarray | None = None,
    asked: np.ndarray | None = None,
    *,
    similarity: float,
    shingle: int,
) -> np.ndarray:
    """Return which records the membership audit may guess about: those of units unlike every other unit's records.

    A record leaves the guess set if its wording occurs twice, whatever the labels, or if it has a near-duplicate: a
    twin would carry its words into the training set, whatever its own coin says. Records that share a coin of the
    split have one wording, so no two guesses depend on one coin. Where persons are the unit, all records of a person
    share a coin: then only the words of *another* person count, and they exclude all records of both.

    Guarantee: of a record that is asked about the answer is a function of all private texts and of nothing else: never
    of a coin, a label or the order of the rows, and never of how often a person says the same. It changes for other
    units when one is added, so it may select only what the *audit* guesses about, never which rows train: the split is
    drawn without it.

    Args:
        texts: every private text, members and holdout together, N of them.
        persons: the person behind each text, (N,); None where each text is a unit of its own.
        asked: bool (N,), whole units; about others the answer is False. None asks about all. Only the words of texts
            that are asked about are kept; each other text is just compared with them.
        similarity: smallest Jaccard similarity of two near-duplicates, in (0, 1].
        shingle: words per shingle; a shorter text is one shingle.

    Returns:
        Booleans of shape (N,).
    """
    validate.require_positive(similarity=similarity, shingle=shingle)
    validate.require_in_range(0, 1, similarity=similarity)
    wanted = np.ones(len(texts), dtype=bool) if asked is None else np.asarray(asked, dtype=bool)
    units: Iterable[str | bytes | int] = range(len(texts)) if persons is None else persons
    owners: defaultdict[Wording, set[str | bytes | int]] = defaultdict(set)
    for text, unit in compress(zip(texts, units, strict=True), wanted):
        owners[_shingle_text(text, shingle)].add(unit)
    watched, of_each, shared = Watched(list(owners), similarity), list(owners.values()), set()
    for text, unit in zip(track(texts, name="near-duplicates", total=len(texts), private=True), units, strict=True):
        for place in watched.find_near(_shingle_text(text, shingle)):
            shared |= of_each[place] - {unit}
    return wanted & np.fromiter((unit not in shared for unit in units), dtype=bool)


def _shingle_text(text: str, size: int) -> Wording:
    return shingles_of(wording(text).split(" "), size)


class Watched:
    """Sets that others are compared with, exactly and without hashing.

    Source: prefix filtering (Chaudhuri, Ganti and Kaushik 2006; Bayardo, Ma and Srikant 2007). With the elements in
    one order, rarest first, two sets of similarity t share one of the first |s| - ceil(t |s|) + 1 elements of each,
    so only sets that share such a prefix element are compared. Elements that no watched set has come first.
    """

    def __init__(self, sets: Sequence[Wording], similarity: float) -> None:
        """Watch sets, none of them empty; `similarity` is the smallest Jaccard similarity that counts."""
        self._sets, self._similarity = sets, similarity
        self._rarity = Counter(element for members in sets for element in members)
        self._index: dict[Shingle, list[int]] = defaultdict(list)
        for place, members in enumerate(sets):
            for element in self._pick_rarest(members, _prefix(len(members), similarity)):
                self._index[element].append(place)

    def find_near(self, members: Wording) -> list[int]:
        """Return the indices of all watched sets whose similarity to this one is large enough."""
        known = [element for element in members if element in self._rarity]
        first = self._pick_rarest(known, _prefix(len(members), self._similarity) - (len(members) - len(known)))
        candidates = {other for element in first for other in self._index.get(element, ())}
        return [other for other in candidates if jaccard(self._sets[other], members) >= self._similarity]

    def _pick_rarest(self, members: Iterable[Shingle], count: int) -> list[Shingle]:
        if count < 1:
            return []
        return sorted(members, key=lambda element: (self._rarity[element], element))[:count]


def _prefix(size: int, similarity: float) -> int:
    return size - math.ceil(similarity * size - 1e-9) + 1


def jaccard(left: frozenset[Shingle], right: frozenset[Shingle]) -> float:
    """Return the share of all shingles of two texts that both have."""
    shared = len(left & right)
    return shared / (len(left) + len(right) - shared)


def shingles_of(tokens: Sequence[str], size: int) -> frozenset[Shingle]:
    """Return the runs of `size` words of a text; a shorter text is one shingle."""
    last = max(1, len(tokens) - size + 1)
    return frozenset(tuple(tokens[start : start + size]) for start in range(last))
