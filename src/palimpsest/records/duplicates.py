"""Which records occur twice, or nearly: they may not be guessed about in the membership audit."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from palimpsest import validate
from palimpsest.progress import track
from palimpsest.records.keyed import normalise

_WORD = re.compile(r"\w+")

Shingle = tuple[str, ...]


def words(text: str) -> list[str]:
    """The words of the normalised text: runs of letters and digits; punctuation is dropped.

    In a script without spaces a whole run of characters is one word.

    >>> words("It's  LATE, again!")
    ['it', 's', 'late', 'again']
    """
    return _WORD.findall(normalise(text))


def wording(text: str) -> str:
    """One spelling for all texts that differ only in case, punctuation or spacing."""
    return " ".join(words(text))


def guessable(
    texts: Sequence[str], persons: Sequence[str] | None = None, *, similarity: float, shingle: int
) -> np.ndarray:
    """Which records the membership audit may guess about: those of units unlike every other unit's records.

    A record leaves the guess set if its wording occurs twice, whatever the labels, or if it has a near-duplicate: a
    twin would carry its words into the training set, whatever its own coin says. Records that share a coin of the
    split have one wording, so no two guesses hang on one coin. Where persons are the unit, all records of a person
    share a coin: then only the words of *another* person count, and they put out all records of both.

    Guarantee: the answer is a function of all private texts and of nothing else: never of a coin, a label or the
    order of the rows, and never of how often a person says the same. It changes for other units when one is added, so
    it may select only what the *audit* guesses about, never which rows train: the split is drawn without it.

    Args:
        texts: every private text, members and holdout together, N of them.
        persons: who is behind each text, (N,); None where each text is a unit of its own.
        similarity: smallest Jaccard similarity of two near-duplicates, in (0, 1].
        shingle: words per shingle; a shorter text is one shingle.

    Returns:
        Booleans of shape (N,).
    """
    validate.positive(similarity=similarity, shingle=shingle)
    validate.in_range(0, 1, similarity=similarity)
    wordings = [wording(text) for text in texts]
    units: Sequence[str | int] = range(len(texts)) if persons is None else persons
    owners: defaultdict[str, set[str | int]] = defaultdict(set)
    for text, unit in zip(wordings, units, strict=True):
        owners[text].add(unit)
    distinct = list(owners)
    shared = {unit for own in owners.values() if len(own) > 1 for unit in own}
    for left, right in near_duplicates([shingles_of(text.split(" "), shingle) for text in distinct], similarity):
        both = owners[distinct[left]] | owners[distinct[right]]
        shared |= both if len(both) > 1 else set()
    return np.array([unit not in shared for unit in units], dtype=bool)


def near_duplicates(sets: Sequence[frozenset[Shingle]], similarity: float) -> Iterator[tuple[int, int]]:
    """All pairs of sets whose Jaccard similarity is at least `similarity`: exact, no hashing.

    Source: prefix filtering (Chaudhuri, Ganti and Kaushik 2006; Bayardo, Ma and Srikant 2007). With the elements in
    one order, rarest first, two sets of similarity t share one of the first |s| - ceil(t |s|) + 1 elements of each,
    so only sets that meet in such a prefix are compared.
    """
    rarity = Counter(element for members in sets for element in members)
    index: dict[Shingle, list[int]] = defaultdict(list)
    for current, members in enumerate(track(sets, name="near-duplicates", total=len(sets), private=True)):
        prefix = sorted(members, key=lambda element: (rarity[element], element))[: _prefix(len(members), similarity)]
        candidates = {other for element in prefix for other in index[element]}
        yield from ((other, current) for other in candidates if jaccard(sets[other], members) >= similarity)
        for element in prefix:
            index[element].append(current)


def _prefix(size: int, similarity: float) -> int:
    return size - math.ceil(similarity * size - 1e-9) + 1


def jaccard(left: frozenset[Shingle], right: frozenset[Shingle]) -> float:
    """The share of all shingles of two texts that both have."""
    shared = len(left & right)
    return shared / (len(left) + len(right) - shared)


def shingles_of(tokens: Sequence[str], size: int) -> frozenset[Shingle]:
    """The runs of `size` words of a text; a shorter text is one shingle."""
    last = max(1, len(tokens) - size + 1)
    return frozenset(tuple(tokens[start : start + size]) for start in range(last))
