"""One pass through a file of records: every fault and where it is, without a value."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from palimpsest.records.faults import NOTES, Kind, RecordError
from palimpsest.records.read import ColumnNames, iter_rows


class Found(NamedTuple):
    """A fault: its kind, the record's number, the line that it begins on, and the column."""

    kind: Kind
    row: int
    line: int | None
    column: str | None


@dataclass(frozen=True)
class Checked:
    """What a pass through a file found. All of it follows from the rows, so it is for their owner alone.

    Attributes:
        faults: in the order of the file, to its end or to a broken quote.
        rows: how many can be read.
        persons: how many different ones these name.
        labels: those that these have.
    """

    faults: tuple[Found, ...]
    rows: int
    persons: int
    labels: frozenset[str]


def check(path: Path, columns: ColumnNames, max_length: int, labels: Sequence[str] | None) -> Checked:
    """Read a file as a run would, past every fault that leaves the rest readable.

    Raises:
        DataError: the file as a whole cannot be read, or has no row.
    """
    faults: list[Found] = []
    rows = 0
    persons: set[str | None] = set()
    seen: set[str | None] = set()

    def bad(fault: RecordError) -> bool:
        faults.append(Found(fault.kind, fault.place.row, fault.place.line, fault.column))
        return fault.kind not in NOTES

    try:
        for row in iter_rows(path, columns, max_length, labels, bad):
            rows += 1
            persons.add(row.unit)
            seen.add(row.label)
    except RecordError as broken:  # what follows a broken quote is no record any more
        bad(broken)
    return Checked(tuple(faults), rows, len(persons - {None}), frozenset(filter(None, seen)))
