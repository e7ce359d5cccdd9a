"""Digests that depend on one record and a secret key, and on nothing else in the data set.

Every decision about a record is drawn from such a digest, so adding or removing one record moves no other. To anyone
without the key the digests are independent uniform bits (BLAKE2b with a key is a pseudo-random function, RFC 7693).
The key is 32 bytes of the operating system's entropy, kept in the private zone.
"""

import hashlib
import unicodedata
from collections.abc import Iterable
from typing import Protocol

import numpy as np

_KEY_BYTES = 32
BEGINNING = 100  # characters of a text; the longest text kept may differ between two readings


class KeyedRow(Protocol):
    """A row of the data set, split or behind the meter."""

    @property
    def text(self) -> str: ...
    @property
    def label(self) -> str | None: ...
    @property
    def person(self) -> str | None: ...
    @property
    def fields(self) -> str: ...


def normalise(text: str) -> str:
    """Normalise what a reader would not tell apart: compatibility forms, case and white space.

    >>> normalise("  Ｔhe\\tCAFÉ ")
    'the café'
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).split())


def digest(key: bytes, purpose: str, *parts: str | bytes | None, size: int = 32) -> bytes:
    """Return a keyed hash of the parts, `size` bytes; different purposes give unrelated digests under one key.

    Args:
        key: 32 secret bytes.
        purpose: at most 16 ASCII characters.
        parts: each is framed by its length, so ("ab", "c") and ("a", "bc") differ, and so do None and "".
        size: bytes, at most 64.

    Raises:
        ValueError: the key does not have 32 bytes.
    """
    if len(key) != _KEY_BYTES:
        raise ValueError(f"key must have {_KEY_BYTES} bytes, got {len(key)}")
    state = hashlib.blake2b(digest_size=size, key=key, person=purpose.encode())
    for part in parts:
        state.update(_frame_part(part))
    return state.digest()


def _frame_part(part: str | bytes | None) -> bytes:
    if part is None:
        return b"\0"
    data = part.encode() if isinstance(part, str) else part
    return b"\1" + len(data).to_bytes(8, "big") + data


class _WithFields(Protocol):
    """A row that may have fields."""

    @property
    def fields(self) -> str: ...


def told_fields(row: _WithFields) -> tuple[str, ...]:
    """Return the last part of a row's digest: its cells, where it has any. Rows without are hashed as ever."""
    return (row.fields,) if row.fields else ()


def fingerprint(rows: Iterable[KeyedRow], key: bytes) -> str:
    """Return a keyed hash of texts, labels, persons and fields as a multiset of rows: 64 hexadecimal digits, in any
    order.

    Without the key it tells nothing; with it, equal fingerprints mean equal rows.
    """
    digests = (digest(key, "row", row.text, row.label, row.person, *told_fields(row)) for row in rows)
    return digest(key, "data set", sorted_digests(digests)).hex()


def likeness(texts: Iterable[str], key: bytes) -> str:
    """Return a keyed hash by which two readings of the same texts are recognised: 64 hexadecimal digits.

    It hashes the normalised beginnings of all texts as a multiset: labels, persons and the order do not matter. One
    text more or less gives an unrelated hash, so data sets that merely overlap are not found, and it reveals no single
    text. Without the key it is an unrelated random word.
    """
    digests = (digest(key, "like a row", normalise(text[:BEGINNING])) for text in texts)
    return digest(key, "like a data set", sorted_digests(digests)).hex()


def sorted_digests(digests: Iterable[bytes]) -> bytes:
    """Sort digests of 32 bytes and join them; few objects are made, for there may be tens of millions."""
    return np.sort(np.fromiter(digests, dtype="S32")).tobytes()
