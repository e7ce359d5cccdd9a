"""A pass through a file of records that finds every fault and its place, without a value."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from palimpsest.records.duplicates import marks
from palimpsest.records.faults import NOTES, Kind, RecordError
from palimpsest.records.keyed import BEGINNING, likeness
from palimpsest.records.read import ColumnNames, iter_rows


class Found(NamedTuple):
    """A fault: its kind, the record's number, the line that it begins on, and the column."""

    kind: Kind
    row: int
    line: int | None
    column: str | None


@dataclass(frozen=True)
class Checked:
    """The findings of a pass through a file. All of it follows from the rows, so it is only for their owner.

    Attributes:
        faults: in the order of the file, to its end or to where it is broken: a quote, a carriage return.
        rows: how many rows can be read.
        persons: how many different persons these name.
        nobody: whether one of them names no person.
        labels: the labels that these have.
        likeness: the hash by which the rows are recognised, see `keyed.likeness`; None without a key, or without rows.
        marks: the marks of the texts, see `duplicates.marks`.
    """

    faults: tuple[Found, ...]
    rows: int
    persons: int
    nobody: bool
    labels: frozenset[str]
    likeness: str | None = None
    marks: frozenset[int] = frozenset()


def check(
    path: Path, columns: ColumnNames, max_length: int, labels: Sequence[str] | None, key: bytes | None = None
) -> Checked:
    """Read a file as a run would, going on after every fault that leaves the rest readable.

    Args:
        path, columns, max_length, labels: as `iter_rows` has them.
        key: the key for the likeness of the rows; None leaves that out.

    Raises:
        DataError: the file as a whole cannot be read, or has no row.
    """
    faults: list[Found] = []
    rows = 0
    persons: set[str | None] = set()
    seen: set[str | None] = set()
    texts: list[str] = []
    said: set[int] = set()

    def bad(fault: RecordError) -> bool:
        faults.append(Found(fault.kind, fault.place.row, fault.place.line, fault.column))
        return fault.kind not in NOTES

    try:
        for row in iter_rows(path, columns, max_length, labels, bad):
            rows += 1
            persons.add(row.unit)
            seen.add(row.label)
            said |= marks([row.text])
            if key is not None:
                texts.append(row.text[:BEGINNING])
    except RecordError as broken:  # what follows a broken quote or line is no record any more
        bad(broken)
    alike = likeness(texts, key) if key is not None and texts else None
    labelled = frozenset(filter(None, seen))
    return Checked(tuple(faults), rows, len(persons - {None}), None in persons, labelled, alike, frozenset(said))
