"""A public map of words to their neighbours, made only of public texts. Free."""

from collections import Counter
from collections.abc import Iterable

import numpy as np

from palimpsest import validate
from palimpsest.errors import DataError
from palimpsest.privacy.means import Encode, unit_rows
from palimpsest.privacy.words import WordSets, words_of


def word_map(texts: Iterable[str], encode: Encode, neighbours: int, vocabulary: int) -> WordSets:
    """The most frequent words of public texts in disjoint sets of neighbours (Chen et al. 2023, customised outputs).

    Each word is embedded by itself. The most frequent word that has no set yet makes one with the words nearest to it
    that have none, by cosine; ties go to the more frequent. So the sets of frequent words hold near neighbours, and the
    last ones what is left over. A similarity is the cosine of two words, rescaled in each set so that the least is 0
    and the greatest is 1; all are 1 where they are equal. Words left over that do not fill a set are not in the map.

    Args:
        encode: a public encoder, n words -> (n, d).
        vocabulary: the most words to take; words with digits or _ do not count.

    Raises:
        DataError: the texts hold too few words for one set.
    """
    validate.require_in_range(neighbours, 2**31, vocabulary=vocabulary)
    words = frequent_words(texts, vocabulary)
    words = words[: len(words) // neighbours * neighbours]
    if not words:
        raise DataError(
            f"The public texts have fewer than {neighbours} different words.",
            "Name a public file with more texts, or lower the neighbours.",
        )
    vectors = unit_rows(encode(words))
    sets = _sets(vectors, neighbours)
    return WordSets(tuple(tuple(words[place] for place in own) for own in sets.tolist()), _similarity(vectors[sets]))


def frequent_words(texts: Iterable[str], most: int) -> list[str]:
    """The `most` most frequent words without digits or _, those used most first, equally frequent ones by alphabet.

    >>> frequent_words(["A dog, a cat: 2 dogs.", "The cat"], 3)
    ['a', 'cat', 'dog']
    """
    counts = Counter(word for text in texts for word in words_of(text) if word.replace("'", "").isalpha())
    return sorted(counts, key=lambda word: (-counts[word], word))[:most]


def _sets(vectors: np.ndarray, size: int) -> np.ndarray:
    """Places of the words of each set, the one that made it first: int64 (n / size, size)."""
    free = np.ones(len(vectors), dtype=bool)
    sets = np.empty((len(vectors) // size, size), dtype=np.int64)
    for own in sets:
        places = np.flatnonzero(free)
        cosines = vectors[places] @ vectors[places[0]]
        cosines[0] = np.inf  # a word is nearest to itself, whatever rounding says
        own[:] = places[np.argsort(-cosines, kind="stable")[:size]]
        free[own] = False
    return sets


def _similarity(vectors: np.ndarray) -> np.ndarray:
    """Cosines within each set, rescaled to [0, 1]: (sets, k, k), from unit vectors (sets, k, d)."""
    cosines = vectors @ vectors.transpose(0, 2, 1)
    low, high = (bound(cosines, axis=(1, 2), keepdims=True) for bound in (np.min, np.max))
    return np.where(high > low, (cosines - low) / np.where(high > low, high - low, 1.0), 1.0)
