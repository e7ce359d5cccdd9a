"""A small world of sentences, and an encoder that hears which words stand where."""

import itertools
import zlib
from collections.abc import Sequence

import numpy as np

DIMENSION = 48
THINGS = ("lamp", "kettle", "radio", "clock", "mirror", "carpet")
VERBS = ("hums", "leaks", "shines", "breaks", "waits")
PLACES = ("hall", "kitchen", "garden", "office", "cellar", "attic")


def sentences() -> tuple[list[str], list[str]]:
    """Sentences to train on, and others of the same words."""
    every = [f"The {thing} {verb} in the {place}." for thing, verb, place in itertools.product(THINGS, VERBS, PLACES)]
    order = np.random.default_rng(3).permutation(len(every))
    return [every[index] for index in order[24:]], [every[index] for index in order[:24]]


def encode(texts: Sequence[str]) -> np.ndarray:
    """Unit vectors, float32 (n, 48): words, and a little of their order."""
    found = np.zeros((len(texts), DIMENSION))
    for row, text in enumerate(texts):
        words = text.lower().strip(".").split()
        found[row] += _direction("") * 0.1  # no text is zero
        for word, after in zip(words, [*words[1:], "."], strict=False):
            found[row] += _direction(word) + 0.3 * _direction(f"{word} {after}")
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def _direction(word: str) -> np.ndarray:
    return np.random.default_rng(zlib.crc32(word.encode())).standard_normal(DIMENSION)
