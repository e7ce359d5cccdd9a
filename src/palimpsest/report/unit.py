"""Words for the unit of privacy: one record, or one person with all of their rows.

Every shown sentence about the unit takes its words from here. Where a row is meant, it says row.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

JSON_ROW = "all of its JSON object"
_NOT_COVERED = {
    "mentioned": "People who are mentioned in the rows of others: a row counts to the person whom the column names.",
    "two-values": "One human under two values of the column: each value is protected as a person of its own.",
    "two-assets": "The same person in two data sets: each has a ledger and a promise of its own.",
}


@dataclass(frozen=True)
class Unit:
    """The unit of privacy, and the words for it.

    Attributes:
        name: "record" or "person".
        row: the parts of one row.
        column: the column whose exact value names the person; None, as are the rest, where the unit is one record.
        n_persons: the declared, public, approximate number of persons.
        max_rows_per_person: the public cap.
    """

    name: str
    row: str
    column: str | None = None
    n_persons: int | None = None
    max_rows_per_person: int | None = None

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
