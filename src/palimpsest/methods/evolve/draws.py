"""Public randomness of authors: each text has coins of its own, whatever is written beside it."""

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from palimpsest.records.record import Record


def coins(*parts: object) -> np.random.Generator:
    """A stream of draws that is a function of these numbers and texts alone.

    >>> coins(1, "a", "b").random() == coins(1, "a", "b").random()
    True
    >>> coins(1, "a", "b").random() == coins(1, "ab").random()
    False
    """
    digest = blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))


def occurrences(records: Sequence[Record]) -> list[int]:
    """How often each record stood before it among the others."""
    seen: Counter[Record] = Counter()
    found = []
    for record in records:
        found.append(seen[record])
        seen[record] += 1
    return found
