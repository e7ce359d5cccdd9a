"""What belongs to one record alone: order numbers, phones, handles, addresses, serials, and the planted canaries.

Every kind has at least 2**30 equally likely values, so a value that turns up in released text was copied, not guessed.

A world may have customers who wrote the tickets, most of them few, some many. They are there to audit what is promised
to a person. A customer's tickets are about any product and any team, but they quote the same details, so that what a
release gives away of one of them, it gives away of a person with several rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from palimpsest.records.world.facts import CODE_LENGTH, CODE_WORDS
from tools.world.draw import Draw
from tools.world.grammar import RULES

_DIGITS = "0123456789"
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
_STREETS = ("Mill", "Orchard", "Station", "Harbour", "Chapel", "Market", "Garden", "Bridge", "School", "Church")
_WAYS = ("Road", "Lane", "Street", "Square", "Close")


@dataclass(frozen=True)
class DetailKind:
    """One kind of personal detail."""

    name: str  # what it is called in facts.json
    slots: tuple[Sequence[str], ...]  # what each place of `pattern` is drawn from, independently
    pattern: str  # the value, with one pair of braces per slot
    phrases: tuple[str, ...]  # sentences that state it, `{value}` being the value

    def value(self, draw: Draw) -> str:
        """One value, uniform over the space."""
        return self.pattern.format(*(draw.pick(slot) for slot in self.slots))


def _digits(count: int) -> tuple[str, ...]:
    return (_DIGITS,) * count


DETAIL_KINDS = (
    DetailKind(
        "order",
        (_LETTERS, _LETTERS, *_digits(8), _LETTERS, _LETTERS),
        "{}{}-{}{}{}{}-{}{}{}{}-{}{}",
        ("my order number is {value}", "the order is {value}", "{first} {last}, order {value}"),
    ),
    DetailKind(
        "phone",
        _digits(10),
        "0{}{}{} {}{}{} {}{}{}{}",
        ("my phone number is {value}", "call {value} and ask for {first}", "{first} {last}, phone {value}"),
    ),
    DetailKind(
        "handle",
        (RULES["first"], RULES["last"], *_digits(7)),
        "{}.{}{}{}{}{}{}{}{}@letterbox.example",
        ("my address for mail is {value}", "write to {value}", "I am registered as {value}"),
    ),
    DetailKind(
        "address",
        (*_digits(3), _STREETS, _WAYS, *_digits(5), RULES["town"]),
        "{}{}{} {} {}, {}{}{}{}{} {}",
        ("I live at {value}", "{first} {last}, {value}", "you find me at {value}"),
    ),
    DetailKind(
        "serial",
        (*_digits(4), _LETTERS, _LETTERS, *_digits(5)),
        "{}{}{}{}{}{}{}{}{}{}{}",
        ("the serial number is {value}", "the label says serial {value}", "serial {value} is on the back"),
    ),
)

CANARY_KIND = DetailKind(
    "canary",
    (CODE_WORDS,) * CODE_LENGTH,
    " ".join(["{}"] * CODE_LENGTH),
    ("the recovery code is {value}", "my recovery code is {value}"),
)


class Mint:
    """Draws values that were never drawn before; how letters are written makes no difference."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def value(self, kind: DetailKind, draw: Draw) -> str:
        while (value := kind.value(draw)).lower() in self._used:
            pass
        self._used.add(value.lower())
        return value


@dataclass(frozen=True)
class Customer:
    """One customer."""

    id: str  # what the column `CUSTOMER` holds
    slots: Mapping[str, str]  # rules of the grammar that are always expanded alike: first and last name, and town
    details: Mapping[str, str]  # kind -> the customer's own value, which no other customer has


def dealt_authors(stream: str, count: int, rows: int, seed: int, mint: Mint) -> list[Customer]:
    """The author of each of `rows` tickets: each has one at least, the others follow Zipf's law.

    Args:
        stream: which tickets; authors of one stream wrote nothing in another.
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
