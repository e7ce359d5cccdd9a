"""Tests whether a public language model may have read the test rows before anybody here did.

A model of the open web may have met a published test set, and then its texts or answers score too well. Two signs
are measured, beside held-out public texts of the same lengths: how likely the model finds a text, and how many of the
text's word n-grams are in the public text. Neither proves it: a text of a plainer kind is likelier, too. A test set
that nobody published cannot have been read.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from palimpsest.audit.ngrams import WordIds, shared_ngrams
from palimpsest.audit.statistics import Bootstrap, Estimate, bootstrap_ratio
from palimpsest.errors import DataError
from palimpsest.plain import Plain, PlainFile

if TYPE_CHECKING:  # with a heavy library, which pages do without
    from palimpsest.audit.finetune import Reading

ORDERS = (5, 8, 13)  # words; a shared 13-gram is what GPT-3's authors called contamination
MOST = 500  # texts that are read of each side


@dataclass(frozen=True)
class Sight(Plain):
    """How well the model and the public text know some texts."""

    bits: Estimate  # per character, by the model
    guessed: Estimate  # share of the tokens that the model finds likeliest
    shared: dict[str, Estimate]  # n -> share of the texts' word n-grams that the public text has; none without n-grams


@dataclass(frozen=True)
class Familiarity(PlainFile):
    """Private zone: the test rows beside public text."""

    test: Sight
    public: Sight  # as many held-out public texts; the longer one of a pair is cut to the other's length


def familiarity(
    read: "Callable[[Sequence[str]], Reading]",
    test: Sequence[str],
    heldout: Sequence[str],
    public: Sequence[str],
    bootstrap: Bootstrap,
) -> Familiarity:
    """Let an untouched public model read test rows and as many public texts, each once, at most `MOST` of either.

    Args:
        read: texts -> the model's reading of them.
        heldout: public texts to compare the test rows with.
        public: other public texts, in which n-grams are looked up.
        bootstrap: its seed also chooses the texts; intervals are over texts.

    Raises:
        DataError: there are no test rows or no held-out texts.
    """
    if not test or not heldout:
        raise DataError("There are no texts to read.", "Name a public file with texts, or enlarge the test share.")
    draws = np.random.default_rng(bootstrap.seed)
    count = min(len(test), len(heldout), MOST)
    rows, beside = cut_alike(
        *([texts[index] for index in draws.permutation(len(texts))[:count]] for texts in (test, heldout))
    )
    vocabulary = dict[str, int]()
    corpus = WordIds.read(public, vocabulary)

    def sight(texts: Sequence[str]) -> Sight:
        overlap = measure_overlap(WordIds.read(texts, vocabulary), corpus, bootstrap)
        return summarise_reading(texts, read(texts), overlap, bootstrap)

    return Familiarity(sight(rows), sight(beside))


def cut_alike(one: Sequence[str], other: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return as many texts of either kind, cut to equal lengths in characters: paired by rank, to the shorter.

    >>> cut_alike(["abcd", "ef"], ["g", "hijklm"])
    (['e', 'abcd'], ['g', 'hijk'])
    """
    pairs = list(zip(sorted(one, key=len), sorted(other, key=len), strict=True))
    sizes = [min(map(len, pair)) for pair in pairs]
    first, second = ([pair[side][:size] for pair, size in zip(pairs, sizes, strict=True)] for side in range(2))
    return first, second


def measure_overlap(texts: WordIds, corpus: WordIds, bootstrap: Bootstrap) -> dict[str, Estimate]:
    """Return n -> share of the texts' n-grams that the corpus has, for each of `ORDERS` that the texts have."""
    found = {order: np.zeros(texts.rows) for order in ORDERS}
    for one in shared_ngrams(texts, corpus):
        if one.order in found:
            found[one.order] = np.bincount(one.first.row, minlength=texts.rows).astype(float)
        if one.order == ORDERS[-1]:
            break
    every = {order: texts.ngrams_per_row(order) for order in ORDERS}
    return {str(order): _share(found[order], every[order], bootstrap) for order in ORDERS if every[order].any()}


def summarise_reading(
    texts: Sequence[str], reading: "Reading", overlap: dict[str, Estimate], bootstrap: Bootstrap
) -> Sight:
    """Sum up a reading of texts, per character and per token."""
    characters = np.array(list(map(len, texts)), dtype=float)
    return Sight(
        bits=_share(reading.losses / math.log(2), characters, bootstrap),
        guessed=_share(reading.right, reading.tokens, bootstrap),
        shared=overlap,
    )


def _share(part: np.ndarray, whole: np.ndarray, bootstrap: Bootstrap) -> Estimate:
    return Estimate(float(part.sum() / whole.sum()), *bootstrap_ratio(part, whole, bootstrap))
