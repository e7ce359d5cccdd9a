"""What belongs to one record alone: order numbers, phones, handles, addresses, serials, and the planted canaries.

Every kind has at least 2**30 equally likely values, so a value that turns up in released text was copied, not guessed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from palimpsest.records.world.draw import Draw
from palimpsest.records.world.grammar import RULES

_DIGITS = "0123456789"
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
_STREETS = ("Mill", "Orchard", "Station", "Harbour", "Chapel", "Market", "Garden", "Bridge", "School", "Church")
_WAYS = ("Road", "Lane", "Street", "Square", "Close")
_CODE_WORDS = (
    "amber", "basket", "candle", "desert", "ember", "falcon", "ginger", "hammer", "island", "jacket", "kitten",
    "ladder", "marble", "needle", "orange", "pepper", "quartz", "ribbon", "saddle", "tiger", "umbrella", "velvet",
    "walnut", "yellow", "zebra", "anchor", "bottle", "copper", "dragon", "engine", "forest", "guitar", "4", "7", "9",
    "12", "18", "26", "31", "45", "58", "63", "74", "86",
)  # fmt: skip


@dataclass(frozen=True)
class DetailKind:
    """One kind of personal detail.

    Attributes:
        name: what it is called in facts.json.
        slots: what each place of `pattern` is drawn from, independently.
        pattern: the value, with one pair of braces per slot.
        phrases: sentences that state it, `{value}` being the value.
    """

    name: str
    slots: tuple[Sequence[str], ...]
    pattern: str
    phrases: tuple[str, ...]

    @property
    def space(self) -> int:
        """The number of equally likely values."""
        return prod(len(slot) for slot in self.slots)

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
    "canary", (_CODE_WORDS,) * 7, " ".join(["{}"] * 7), ("the recovery code is {value}", "my recovery code is {value}")
)


class Mint:
    """Draws values that were never drawn before; how letters are written makes no difference."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def value(self, kind: DetailKind, draw: Draw) -> str:
        """A fresh value of the kind."""
        while (value := kind.value(draw)).lower() in self._used:
            pass
        self._used.add(value.lower())
        return value
