"""Numbers in texts of any script, in groups of digits as they are written."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from palimpsest.records.keyed import normalise

_MOST_DIGITS = 19  # of a number that means something to one person: a card


class _Signs(dict[int, str | None]):
    """Code point -> its meaning in a number: an ASCII digit, a hyphen, a dot, or nothing for an unseen mark."""

    def __missing__(self, code: int) -> str | None:
        self[code] = _sign(chr(code))
        return self[code]


def _sign(character: str) -> str | None:
    match unicodedata.category(character):
        case "Nd":
            return str(unicodedata.decimal(character))
        case "Pd":
            return "-"
        case "Mn" | "Mc" | "Me" | "Cf":  # vowel signs, and marks of direction that a copied number brings along
            return None
        case _:
            return character


_SIGNS = _Signs({ord(sign): "-" for sign in "−⁃ー"} | {ord(sign): "." for sign in "·・•"})


def plain(text: str) -> str:
    """Write the numbers of a text in ASCII: digits of any script, hyphens, dots and spaces of one kind, lower case.

    >>> plain("Tel．：０９０ー１２３４ー٥٦٧٨")
    'tel.:090-1234-5678'
    """
    folded = normalise(text)
    return folded if folded.isascii() else " ".join(folded.translate(_SIGNS).split())


@dataclass(frozen=True)
class Grouped:
    """A number in two groups of digits or more.

    Attributes:
        groups: its digits, group by group.
        joints: the signs between each two groups.
        code: whether a Latin letter is in front of it, as in "AB-200-300-4000".
    """

    groups: tuple[str, ...]
    joints: tuple[str, ...]
    code: bool

    @cached_property
    def digits(self) -> str:
        """All of its digits."""
        return "".join(self.groups)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of digits in each group."""
        return tuple(map(len, self.groups))

    @cached_property
    def kinds(self) -> frozenset[str]:
        """Its distinct joints, without spaces around a sign."""
        return frozenset(map(_kind, self.joints))

    @property
    def turns(self) -> int:
        """How often the kind of joint changes; the joint after an area code, and brackets, do not count."""
        kinds = [kind for kind in map(_kind, self.joints[1:]) if not {"(", ")"} & set(kind)]
        return sum(kind != after for kind, after in pairwise(kinds))

    @property
    def day(self) -> bool:
        """Whether it begins like a date: day, month and year in any order, month and year, or a year and a month."""
        first, second, third = (*self.groups, "", "")[:3]
        if len(first) <= 2 and is_year(second):
            return self.sizes != (2, 4, 4) or self.joints[0] in "./"  # a telephone number of Tokyo or Taipei
        if len(second) > 2:
            return False
        return (len(first) <= 2 and is_year(third)) or (is_year(first) and len(third) <= 2)

    @property
    def ordinary(self) -> bool:
        """Whether it is a number of ordinary sentences: years, a date in one piece, a machine's address (IPv4)."""
        if self.kinds == {"."} and len(self.groups) == 4 and all(int(group) < 256 for group in self.groups):
            return True
        return all(map(is_year, self.groups)) or _DAY.match(self.groups[0]) is not None


_DAY = re.compile(r"(?:19|20)\d\d(?:0[1-9]|1[0-2])[0-3]\d$")


def is_year(group: str) -> bool:
    """Return whether a group of digits could be a year from 1800 to 2199."""
    return len(group) == 4 and group[:2] in ("18", "19", "20", "21")


def _kind(joint: str) -> str:
    return joint.strip() or " "


_RUN = re.compile(r"\d+(?:(?!\. )[ ./()-]{1,3}\d+)+")
_CODE = re.compile(r"[a-z][./-]?$")


def grouped(text: str) -> Iterator[Grouped]:
    """Yield every number of 8 to 19 digits that could be read in a `plain` text, in two groups or more.

    A number ends where another joint begins: "2019 03-1234-5678" has one in the middle of a run of digits, and
    "1998 2019 03 1234" has none, for nothing tells where it would begin. A hyphen or a dot never ends one.
    """
    for run in _RUN.finditer(text):
        groups, joints = re.findall(r"\d+", run[0]), re.findall(r"\D+", run[0])
        code = _CODE.search(text, max(0, run.start() - 2), run.start()) is not None
        for start, end in _spans(groups, joints):
            yield Grouped(tuple(groups[start:end]), tuple(joints[start : end - 1]), code and start == 0)


def _spans(groups: list[str], joints: list[str]) -> Iterator[tuple[int, int]]:
    """Yield where numbers could begin and end in a run."""
    for start in range(len(groups) - 1):
        size = len(groups[start])
        for end in range(start + 2, len(groups) + 1):
            size += len(groups[end - 1])
            if size > _MOST_DIGITS:
                break
            inner = {_kind(joint) for joint in joints[start : end - 1]}
            outer = [*joints[max(0, start - 1) : start], *joints[end - 1 : end]]
            if size >= 8 and all(_parts(joint, inner) for joint in outer):
                yield start, end


def _parts(joint: str, inner: set[str]) -> bool:
    """Return whether a joint ends a number that has the `inner` joints."""
    return (" " in joint or "/" in joint) and _kind(joint) not in inner
