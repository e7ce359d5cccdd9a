"""Who wrote the tickets: customers with a name, a town and details of their own, most with few tickets, some with many.

They are there to audit what is promised to a person. A customer's tickets are about any product and any team, but they
quote the same details, so that what a release gives away of one of them, it gives away of a person with several rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from palimpsest.records.world.details import DETAIL_KINDS, Mint
from palimpsest.records.world.draw import Draw
from palimpsest.records.world.grammar import RULES


@dataclass(frozen=True)
class Customer:
    """One customer.

    Attributes:
        id: what the column `CUSTOMER` holds.
        slots: rules of the grammar that are always expanded alike: first and last name, and town.
        details: kind -> the customer's own value, which no other customer has.
    """

    id: str
    slots: Mapping[str, str]
    details: Mapping[str, str]


def dealt_authors(stream: str, count: int, rows: int, seed: int, mint: Mint) -> list[Customer]:
    """The author of each of `rows` tickets: each has one at least, the others follow Zipf's law.

    Args:
        stream: which tickets; authors of one stream wrote nothing in another.
        count: number of authors, at most `rows`.
        rows: number of tickets.
        seed: of the world.
        mint: gives details that nobody else has.
    """
    draw = Draw(seed, f"{stream} authors")
    others = apportioned([1.0 / rank for rank in range(1, count + 1)], rows - count)
    invented = [_author(f"{stream} {number:05d}", draw, mint) for number in range(count)]
    return draw.shuffled([author for author, more in zip(invented, others, strict=True) for _ in range(1 + more)])


def apportioned(weights: Sequence[float], total: int) -> list[int]:
    """Whole numbers that add up to `total`, as near to the weights' proportions as running sums allow."""
    edges = [0, *(round(total * edge / sum(weights)) for edge in accumulate(weights))]
    return [high - low for low, high in pairwise(edges)]


def _author(name: str, draw: Draw, mint: Mint) -> Customer:
    slots = {rule: draw.pick(RULES[rule]) for rule in ("first", "last", "town")}
    return Customer(name, slots, {kind.name: mint.value(kind, draw) for kind in DETAIL_KINDS})
