"""An encoder as methods are handed one."""

from dataclasses import dataclass

from palimpsest.methods.shared.tools import Encode


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


def encoding(encode: Encode, dimension: int, rows: Encode | None = None) -> Encoding:
    return Encoding(rows or encode, encode, dimension)
