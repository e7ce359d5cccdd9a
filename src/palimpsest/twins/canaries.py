"""Invented texts, each with a fair coin that says whether a run reads it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from palimpsest.privacy.entropy import NoiseSource
from palimpsest.records.record import Record

_HEADS, _TAILS = ("ba", "do", "fe", "gi", "ku", "lo", "ma", "ni", "po", "ra", "se", "tu"), ("lan", "mer", "sok", "tiv")


@dataclass(frozen=True, eq=False)
class Canaries:
    """Records that exist only in a test of the privacy code: one for each coin, all different."""

    records: tuple[Record, ...]

    def __len__(self) -> int:
        return len(self.records)

    def flip(self) -> np.ndarray:
        """Flip an independent fair coin for each, bool (canaries,), by the operating system's entropy: True is in."""
        return NoiseSource().bernoulli(len(self), 0.5)

    def members(self, coins: np.ndarray) -> list[Record]:
        """The records whose coin says in."""
        return [record for record, inside in zip(self.records, coins, strict=True) if inside]


def invented_words(count: int, seed: int) -> list[str]:
    """Return so many different meaningless words, in an order that depends on the seed.

    >>> invented_words(3, 0)
    ['fetusok', 'logimer', 'dopomer']
    """
    every = ["".join(parts) for parts in product(_HEADS, _HEADS, _TAILS)]
    if len(every) < count:
        raise ValueError(f"there are {len(every)} invented words, got {count} to make")
    return np.random.default_rng(seed).permutation(every)[:count].tolist()


def of_own_words(words: Sequence[str], labels: Sequence[str], shared: Sequence[Sequence[str]]) -> Canaries:
    """Make canaries of a word of their own, three times, followed by the words that they share with others."""
    texts = (" ".join([word] * 3 + list(own)) for word, own in zip(words, shared, strict=True))
    return Canaries(tuple(Record(*pair) for pair in zip(texts, labels, strict=True)))


def of_drawn_words(words: Sequence[str], labels: Sequence[str], length: int, seed: int) -> Canaries:
    """Canaries of `length` words drawn at random, one for each label that is given."""
    rng = np.random.default_rng(seed)
    texts = (" ".join(rng.choice(words, length).tolist()) for _ in labels)
    return Canaries(tuple(Record(*pair) for pair in zip(texts, labels, strict=True)))


def counterpart(text: str) -> str:
    """Return a public text of the same words in reverse order: equal for an encoder that sees only words.

    >>> counterpart("one one two")
    'two one one'
    """
    return " ".join(reversed(text.split()))
