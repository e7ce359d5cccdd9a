"""An encoder as methods are handed one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from palimpsest.methods.shared.method import Encode


@dataclass(frozen=True)
class Encoding:
    """One for private and one for other texts; the same unless a test tells them apart."""

    rows: Encode
    others: Encode
    dimension: int
    fingerprint: str = "public"

    @property
    def fresh(self) -> Encode:
        return self.others


class Apart:
    """Notes which texts are read as private ones and which as others."""

    def __init__(self) -> None:
        self.private: set[str] = set()
        self.others: set[str] = set()

    def encoding(self, encode: Encode, dimension: int) -> Encoding:
        """As `encoding`."""
        return Encoding(_noted(encode, self.private), _noted(encode, self.others), dimension)

    def holds(self, texts: Iterable[str]) -> bool:
        """Whether these, which are private, were read as private ones, and nothing else was."""
        return self.private == set(texts) and not self.private & self.others


def _noted(encode: Encode, seen: set[str]) -> Encode:
    def noted(texts: Sequence[str]) -> np.ndarray:
        seen.update(texts)
        return encode(texts)

    return noted


def encoding(encode: Encode, dimension: int, rows: Encode | None = None) -> Encoding:
    return Encoding(rows or encode, encode, dimension)
