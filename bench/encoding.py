"""An encoder as methods are handed one."""

from dataclasses import dataclass

from palimpsest.methods.shared.tools import Encode


@dataclass(frozen=True)
class Encoding:
    """One for private and one for other texts, without a memory on disk."""

    rows: Encode
    others: Encode
    dimension: int
    fingerprint: str = "bench"
