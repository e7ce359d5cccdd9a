"""Fields beside a text: categories, numbers and dates, each read into one of a public list of cells.

A field is declared by public words: a list of categories, `number(0..120, 5)` for bounds and the width of a cell, or
`date(2024-01..2026-12, month)`. What a record says is never part of a declaration. `read(angry|calm)` is no column of
the file: a reader answers it from each text (`models.reader`).
"""

import math
import re
from calendar import monthrange
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np

Declared: TypeAlias = str | Sequence[str]  # as in params.yaml: words for a number or a date, a list for a category
Value: TypeAlias = str | int | float

MOST_CELLS = 10_000  # of one field
MOST_READ = 10  # fields that a reader answers
_NUMBER = re.compile(r"number\(\s*(\S+?)\s*\.\.\s*([^\s,]+)\s*,\s*(\S+?)\s*\)")
_DATE = re.compile(r"date\(\s*([\d-]+)\s*\.\.\s*([\d-]+)\s*,\s*(day|week|month|year)\s*\)")
_CATEGORY = re.compile(r"category\((.*)\)", re.DOTALL)
_READ = re.compile(r"read\((.*)\)", re.DOTALL)
_ONE = re.compile(r"\s*([^:,()]+?)\s*:\s*(\w+\((?:[^()]|\([^()]*\))*\))\s*(?:,|$)")
FORMS = "category(low|high), number(0..120, 5), date(2024-01..2026-12, month) or read(angry|calm)"


@dataclass(frozen=True)
class Categories:
    """One of a public list of words."""

    values: tuple[str, ...]

    @property
    def size(self) -> int:
        """The number of cells."""
        return len(self.values)

    def place(self, value: Any) -> int | None:
        """Return the index of the cell of a value; None for one that is not listed."""
        written = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        return self.values.index(written) if written in self.values else None

    def holds(self, value: Any) -> bool:
        """Whether `draw` may have returned the value."""
        return isinstance(value, str) and value in self.values

    def draw(self, cell: int, _rng: np.random.Generator) -> Value:
        """Return a value of the cell."""
        return self.values[cell]

    def describe(self, cell: int) -> str:
        """Return the cell in words."""
        return self.values[cell]


@dataclass(frozen=True)
class Read(Categories):
    """One of a public list of words: that which a reader finds most like the text. No column of the file has it."""


@dataclass(frozen=True)
class Numbers:
    """A number between public bounds, in cells of equal width; one beyond a bound counts as the bound."""

    low: float
    high: float
    step: float

    @property
    def size(self) -> int:
        """The number of cells; the last one may be narrower, and holds the upper bound."""
        return max(1, math.ceil((self.high - self.low) / self.step - 1e-9))

    @property
    def whole(self) -> bool:
        """Whether bounds and width are whole numbers: values then are, too."""
        return all(float(one).is_integer() for one in (self.low, self.high, self.step))

    def place(self, value: Any) -> int | None:
        """Return the index of the cell of a number, or of the text of one; None for anything else."""
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
            return None
        try:
            number = float(value)
        except (ValueError, OverflowError):
            return None
        if math.isnan(number):
            return None
        clipped = min(max(number, self.low), self.high)
        return min(int((clipped - self.low) / self.step), self.size - 1)

    def holds(self, value: Any) -> bool:
        """Whether `draw` may have returned the value."""
        number = isinstance(value, int if self.whole else float) and not isinstance(value, bool)
        return number and self.low <= value <= self.high

    def draw(self, cell: int, rng: np.random.Generator) -> Value:
        """Draw a value of the cell, each equally likely: a whole number where bounds and width are whole."""
        low, high = self._bounds(cell)
        if self.whole:
            last = cell == self.size - 1
            return int(rng.integers(int(low), int(high) + last, endpoint=False))
        digits = max(0, 2 - math.floor(math.log10(self.step)))
        return min(max(round(float(rng.uniform(low, high)), digits), low), high)

    def describe(self, cell: int) -> str:
        """Return the cell in words."""
        low, high = self._bounds(cell)
        return f"{low:g} to {high:g}"

    def _bounds(self, cell: int) -> tuple[float, float]:
        return self.low + cell * self.step, min(self.low + (cell + 1) * self.step, self.high)


@dataclass(frozen=True)
class _Dates:
    """A day between public bounds, in cells of a day, week, month or year; one beyond a bound counts as the bound.

    Attributes:
        starts: the first day of each cell.
        last: the last day of all.
        unit: day, week, month or year.
    """

    starts: tuple[date, ...]
    last: date
    unit: str

    @property
    def size(self) -> int:
        """The number of cells."""
        return len(self.starts)

    def place(self, value: Any) -> int | None:
        """Return the index of the cell of a date, or of a text that begins with one; None for anything else."""
        day = _day_of(value)
        if day is None:
            return None
        return max(
            0, int(np.searchsorted(np.array(self.starts, dtype="datetime64[D]"), np.datetime64(day), "right")) - 1
        )

    def holds(self, value: Any) -> bool:
        """Whether `draw` may have returned the value."""
        day = _day_of(value)
        return day is not None and day.isoformat() == value and self.starts[0] <= day <= self.last

    def draw(self, cell: int, rng: np.random.Generator) -> Value:
        """Draw a day of the cell, each equally likely, as YYYY-MM-DD."""
        after = self.starts[cell + 1] if cell + 1 < self.size else self.last + timedelta(days=1)
        return (self.starts[cell] + timedelta(days=int(rng.integers((after - self.starts[cell]).days)))).isoformat()

    def describe(self, cell: int) -> str:
        """Return the cell in words."""
        written = self.starts[cell].isoformat()
        return {"month": written[:7], "year": written[:4]}.get(self.unit, written)


Domain: TypeAlias = Categories | Numbers | _Dates


def parse_domain(name: str, declared: Declared) -> Domain:
    """Return the cells of a field.

    Raises:
        ValueError: the words are none of the four forms, or bounds and width do not fit.

    >>> parse_domain("age", "number(0..120, 5)").size, parse_domain("sent", "date(2024-01..2024-12, month)").size
    (24, 12)
    >>> parse_domain("priority", "category(low|high)").place("high")
    1
    """
    if not isinstance(declared, str):
        return _categories(name, declared)
    if found := _CATEGORY.fullmatch(declared.strip()):
        return _categories(name, [word.strip() for word in found[1].split("|")])
    if found := _READ.fullmatch(declared.strip()):
        return Read(_categories(name, [word.strip() for word in found[1].split("|")]).values)
    if found := _NUMBER.fullmatch(declared.strip()):
        return _numbers(name, *found.groups())
    if found := _DATE.fullmatch(declared.strip()):
        return _dates(name, *found.groups())
    raise ValueError(f"field {name!r} is {declared!r}; write {FORMS}: lists and bounds are public")


def parse_fields(words: str) -> dict[str, Declared]:
    """Return name -> declaration of the fields in one line, as the command line takes them.

    Raises:
        ValueError: a part is no field.

    >>> parse_fields("priority:category(low|high), age:number(0..120,5)")
    {'priority': ('low', 'high'), 'age': 'number(0..120,5)'}
    """
    found: dict[str, Declared] = {}
    place = 0
    while place < len(words):
        one = _ONE.match(words, place)
        if one is None:
            raise ValueError(f"{words[place:]!r} is no field; write name:{FORMS}, with commas between fields")
        if one[1] in found:
            raise ValueError(f"field {one[1]!r} is named twice")
        domain = parse_domain(one[1], one[2])
        found[one[1]], place = domain.values if type(domain) is Categories else one[2], one.end()
    return found


def domains_of(fields: Mapping[str, Declared]) -> tuple[Domain, ...]:
    """Return the cells of each field, in their order.

    Raises:
        ValueError: a declaration is none, or more than ten fields are read from the text.
    """
    domains = tuple(parse_domain(name, declared) for name, declared in fields.items())
    if sum(isinstance(domain, Read) for domain in domains) > MOST_READ:
        raise ValueError(f"more than {MOST_READ} fields are read from the text; keep those that matter most")
    return domains


def columns_of(fields: Mapping[str, Declared]) -> list[str]:
    """Return the fields that are columns of the file: all but those that a reader answers."""
    read = list_read(fields)
    return [name for name in fields if name not in read]


def list_read(fields: Mapping[str, Declared]) -> dict[str, Read]:
    """Return name -> values of the fields that a reader answers."""
    named = zip(fields, domains_of(fields), strict=True)
    return {name: domain for name, domain in named if isinstance(domain, Read)}


def describe_field(name: str, declared: Declared) -> str:
    """Return what a column of synthetic values holds, in words.

    >>> describe_field("age", "number(0..120, 5)")
    'A number of 0 to 120, drawn within one of 24 public cells of width 5, each value of a cell equally often. Empty: \
no value, or none of a cell.'
    """
    domain = parse_domain(name, declared)
    if isinstance(domain, Read):
        return f"One of a public list: {', '.join(domain.values)}. In private rows an encoder read it from the text."
    if isinstance(domain, Categories):
        return f"One of a public list: {', '.join(domain.values)}. Empty: no value of the list."
    if isinstance(domain, Numbers):
        drawn, cells = f"A number of {domain.low:g} to {domain.high:g}", f"cells of width {domain.step:g}"
    else:
        drawn, cells = f"A date of {domain.starts[0]} to {domain.last}", f"cells, each a {domain.unit}"
    within = f"drawn within one of {domain.size} public {cells}, each value of a cell equally often"
    return f"{drawn}, {within}. Empty: no value, or none of a cell."


def encode_cells(values: Sequence[Any], domains: Sequence[Domain]) -> str:
    """Return a record's cells as one text: their indices, with the number of cells for a value that has none.

    Guarantee: a function of these values and of public words.

    >>> encode_cells(["high", "lots", 17], domains_of({"p": ["low", "high"], "q": ["a"], "age": "number(0..120, 5)"}))
    '1,1,3'
    """
    places = [domain.place(value) for value, domain in zip(values, domains, strict=True)]
    return ",".join(str(domain.size if at is None else at) for at, domain in zip(places, domains, strict=True))


def describe_cells(cells: str, fields: Mapping[str, Declared]) -> str:
    """Return the cells in a text of `encode_cells` in words; one for values that have none is left out.

    >>> describe_cells("1,1,3", {"p": ["low", "high"], "q": ["a"], "age": "number(0..120, 5)"})
    'p: high, age: 15 to 20'
    """
    own = zip(fields, domains_of(fields), decode_cells(cells), strict=True) if cells else ()
    return ", ".join(f"{name}: {domain.describe(at)}" for name, domain, at in own if at < domain.size)


def decode_cells(cells: str) -> tuple[int, ...]:
    """Return the indices in a text of `encode_cells`; none where a record has no fields."""
    return tuple(map(int, cells.split(","))) if cells else ()


def _categories(name: str, values: Sequence[str]) -> Categories:
    if not values or "" in values or len(set(values)) < len(values):
        raise ValueError(f"field {name!r} needs a public list of different words, none of them empty")
    return Categories(tuple(values))


def _numbers(name: str, low: str, high: str, step: str) -> Numbers:
    try:
        found = Numbers(float(low), float(high), float(step))
    except ValueError:
        raise ValueError(f"field {name!r} has bounds or a width that are no numbers") from None
    finite = all(map(math.isfinite, (found.low, found.high, found.step)))
    if not finite or found.low >= found.high or found.step <= 0 or found.size > MOST_CELLS:
        raise ValueError(f"field {name!r} needs finite bounds, the lower one first, and at most {MOST_CELLS} cells")
    return found


def _dates(name: str, first: str, last: str, unit: str) -> _Dates:
    bounds = _first_day(first), _last_day(last)
    if bounds[0] is None or bounds[1] is None or bounds[0] > bounds[1]:
        raise ValueError(f"field {name!r} needs bounds as 2024, 2024-01 or 2024-01-31, the earlier one first")
    starts = tuple(_starts(bounds[0], bounds[1], unit))
    if len(starts) > MOST_CELLS:
        raise ValueError(f"field {name!r} has more than {MOST_CELLS} cells; take months or years")
    return _Dates(starts, bounds[1], unit)


def _starts(day: date, last: date, unit: str) -> Iterator[date]:
    while day <= last:
        yield day
        if unit == "month":
            day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
        elif unit == "year":
            day = date(day.year + 1, 1, 1)
        else:
            day += timedelta(days=7 if unit == "week" else 1)


def _first_day(words: str) -> date | None:
    return _day_of(words + {4: "-01-01", 7: "-01"}.get(len(words), ""))


def _last_day(words: str) -> date | None:
    if len(words) == 4:
        return _day_of(words + "-12-31")
    first = _first_day(words)
    if len(words) != 7 or first is None:
        return first
    return first.replace(day=monthrange(first.year, first.month)[1])


def _day_of(value: Any) -> date | None:
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(value[:10]) if isinstance(value, str) else None
    except ValueError:
        return None
