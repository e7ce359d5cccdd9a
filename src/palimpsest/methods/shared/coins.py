"""Public randomness for steps that touch no private row."""

from hashlib import blake2b

import numpy as np


def coins(*parts: object) -> np.random.Generator:
    """Public randomness: a stream of draws that is a function only of these numbers and texts.

    >>> coins(1, "a", "b").random() == coins(1, "a", "b").random()
    True
    >>> coins(1, "a", "b").random() == coins(1, "ab").random()
    False
    """
    digest = blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))
