"""Numbers and the unit of privacy, for readers.

The unit is one record, or one person with all of their rows. Every shown sentence about it takes its words from here.
Where a row is meant, it says row.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any

from palimpsest.workspace import PUBLIC_LM, PUBLIC_ONLY

MISSING = "–"
_SURE = Context(prec=10)  # digits beyond which two machines may differ
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
JSON_ROW = "all of its JSON object"
_NOT_COVERED = {
    "mentioned": "People who are mentioned in the rows of others: a row counts to the person whom the column names.",
    "two-values": "One human under two values of the column: each value is protected as a person of its own.",
    "two-assets": "The same person in two data sets: each has a ledger and a promise of its own.",
}


def number(value: Any, digits: int = 3) -> str:
    """Format a value for a table cell: significant digits for floats, thousands separators for counts.

    >>> number(2.98123), number(12345), number(None), number("dp3"), number(2.35e-5)
    ('2.98', '12,345', '–', 'dp3', '2.35 × 10⁻⁵')
    """
    if value is None:
        return MISSING
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    mantissa, _, exponent = f"{value:.{digits}g}".partition("e")
    if exponent:
        return f"{mantissa} × 10{str(int(exponent)).translate(_RAISED)}"
    return mantissa.replace("inf", "∞").replace("-", "−")


def at_most(value: Any, digits: int = 3) -> str:
    """Format like `number`, rounded up: what is proved of a value also holds for the one that is shown.

    >>> at_most(2.9801), at_most(2.98), at_most(2.006231, 4), at_most(2.3506e-5), at_most(None)
    ('2.99', '2.98', '2.007', '2.36 × 10⁻⁵', '–')
    """
    return number(_towards(ROUND_CEILING, value, digits), digits)


def at_least(value: Any, digits: int = 3) -> str:
    """Format like `number`, rounded down.

    >>> at_least(2.9899), at_least(0.0)
    ('2.98', '0')
    """
    return number(_towards(ROUND_FLOOR, value, digits), digits)


def _towards(side: str, value: Any, digits: int) -> Any:
    """Round a finite float to so many significant digits to that side; return anything else as it is."""
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    return float(Context(prec=digits, rounding=side).plus(_SURE.create_decimal_from_float(value))) + 0.0


def percent(value: float | None, digits: int = 1) -> str:
    """Format a share in percent.

    >>> percent(0.8534), percent(None)
    ('85.3%', '–')
    """
    return MISSING if value is None else f"{100 * value:.{digits}f}%"


def per_word(epsilon: float, unit: str) -> str:
    """Format the epsilon of a method that protects single words, with its unit: it must not be read as the others.

    >>> per_word(3.0, "record")
    '3 per word (not per record)'
    """
    return f"{at_most(float(epsilon))} per word (not per {unit})"


def shown_epsilon(proved: float | None, per_word: float | None, role: str) -> str:
    """Format the epsilon of a row of the final table; by the row's role where none is proved.

    >>> shown_epsilon(2.98123, None, "release"), shown_epsilon(None, None, "reference")
    ('2.982', '∞')
    """
    if proved is not None:
        return at_most(proved, 4)
    if per_word is not None:
        return f"{at_most(per_word)} a\nword"  # another unit: never shown beside the others without its name
    return {PUBLIC_ONLY: "0", PUBLIC_LM: "0", "reference": "∞"}.get(role, MISSING)


def points(value: float | None, digits: int = 2) -> str:
    """Format a difference of shares in percentage points, with its sign.

    >>> points(0.0042), points(-0.001)
    ('+0.42', '−0.10')
    >>> points(-0.00001)
    '0.00'
    """
    if value is None:
        return MISSING
    text = f"{round(100 * value, digits):+.{digits}f}"
    return text.lstrip("+-") if float(text) == 0 else text.replace("-", "−")


@dataclass(frozen=True)
class Unit:
    """The unit of privacy, and the words for it."""

    name: str  # "record" or "person"
    row: str  # the parts of one row
    # the column whose exact value names the person; None, as are the rest, where the unit is one record
    column: str | None = None
    n_persons: int | None = None  # the declared, public, approximate number of persons
    max_rows_per_person: int | None = None  # the public cap

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "Unit":
        """Return the unit of a data set, from its public schema as a mapping."""
        row = _row(facts)
        if facts["unit_column"] is None:
            return cls("record", row)
        return cls("person", row, facts["unit_column"], facts["n_persons"], facts["max_rows_per_unit"])

    @classmethod
    def from_statement(cls, statement: Mapping[str, Any]) -> "Unit":
        """Return the unit that a statement names."""
        said = statement["unit"]
        return cls(*(said[name] for name in ("name", "row", "column", "n_persons", "max_rows_per_person")))

    def to_json(self) -> dict[str, Any]:
        """Return the unit's section of a statement."""
        return asdict(self) | {"description": self.description, "note": self.note}

    @property
    def persons(self) -> bool:
        """True if the unit is the person."""
        return self.name == "person"

    @property
    def many(self) -> str:
        """The plural of the unit: "records" or "persons"."""
        return plural_of(self.name)

    @property
    def whole(self) -> str:
        """Everything that belongs to one unit."""
        return "all rows of one person" if self.persons else "one whole record"

    @property
    def step(self) -> str:
        """The difference between neighbouring data sets."""
        return "one person with all of their rows" if self.persons else "one record"

    @property
    def groups(self) -> str:
        """The groups that the epsilons of groups are for."""
        return "several persons together" if self.persons else "a person with several rows"

    @property
    def counted(self) -> str:
        """The unit in which a group's size is counted: persons or rows."""
        return "persons" if self.persons else "rows"

    def group(self, size: int) -> str:
        """Name one group.

        >>> Unit("person", "its text").group(2), Unit("record", "its text").group(1)
        ('2 persons', 'A person with 1 row')
        """
        number = f"{size} {self.counted if size > 1 else self.counted[:-1]}"
        return number if self.persons else f"A person with {number}"

    def fill_sentence(self, sentence: str) -> str:
        """Fill in {unit}, {units} and {step} of a sentence."""
        return sentence.format(unit=self.name, units=self.many, step=self.step)

    @property
    def description(self) -> str:
        """The protected unit, in a sentence."""
        persons = "One person: all of their rows in this data set, and of each row"
        return f"{persons if self.persons else 'One record:'} {self.row}."

    @property
    def note(self) -> str:
        """Who counts as a person, and the bound on their rows."""
        if not self.persons:
            return "Nothing bounds the rows of one person: read the line for as many rows as a person may have."
        return (
            f"A person is one exact value of column {self.column!r}; about {self.n_persons:,} were declared. At most "
            f"{self.max_rows_per_person} rows of each are kept; preprocessing drops the rest."
        )

    @property
    def not_covered(self) -> dict[str, str]:
        """The parts that the promise leaves out because of the unit: id -> sentence."""
        return _NOT_COVERED if self.persons else {}

    @property
    def assumption(self) -> tuple[str, str]:
        """The assumption behind the unit, which no program can check: id and sentence."""
        same = "Rows with the same value of the unit column are one person's; no other rows are theirs."
        return (
            ("one-value", same) if self.persons else ("one-row", "A person has one row: nothing bounds their number.")
        )

    def describe_changed_row(self, bound: str) -> str:
        """State the cost of a change within one unit; `bound` is the proven one, in words."""
        costs = f"so it costs at most what a group of two {self.name}s does: {bound}."
        if self.persons:
            return (
                f"Changing, adding or removing rows of a person who stays in the data is one person less and one more, "
                f"{costs} The ε of one person does not imply the same ε for one row."
            )
        return f"Replacing one record is one less and one more, {costs}"


def plural_of(unit: str) -> str:
    """Return the plural of a unit's name.

    >>> plural_of("person")
    'persons'
    """
    return f"{unit}s"


def _row(facts: Mapping[str, Any]) -> str:
    """Name the parts of one row: a label too, whether it is one of a public list or free text."""
    if facts["task"] == "json":
        return JSON_ROW
    if facts["label"] is None and not facts["labels"]:
        return "its text"
    free = "" if facts["labels"] else ", which is free text and protected like it"
    return f"its text and its label{free}"
