"""The faults that one record of a file can have, and the policies for a record with a fault."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple

from palimpsest.errors import DataError


class Kind(StrEnum):
    """Kinds of faults, in words for the owner of the file."""

    EMPTY = "a text is empty"
    LONG = "a text is longer than the longest kept, and is cut"
    LABEL = "a label is not one of those listed"
    CODING = "a field is not valid UTF-8, or holds a NUL character"
    TYPE = "a field has the wrong type"
    NESTED = "a field holds a list or an object"
    RECORD = "a text is not a JSON object"
    NOBODY = "a record names no person"
    FIELDS = "a record has more or fewer fields than the header"
    LINE = "a line is not a JSON object"
    KEY = "a line lacks a key"
    RETURN = "a carriage return stands alone, as the end of a line or in a field without quotes"
    QUOTE = "a quote is broken and swallows what follows, or a field is far too long"


FLATTEN = (
    "Turns of a chat, and other objects, are records of --task json, or are written as one text. Of several labels, "
    "each has a column: name all with --label, and what they may be in --labels-file."
)


class Place(NamedTuple):
    """The place of a record: its number, and in a text file the line that it begins on; both from 1."""

    row: int
    line: int | None = None

    def __str__(self) -> str:
        beside = "" if self.line in (None, self.row) else f" (line {self.line})"
        return f"row {self.row}{beside}"


class RecordError(DataError):
    """The error for a record that cannot be used as it is. It names file, place and column, and holds no value."""

    def __init__(
        self, kind: Kind, name: str, place: Place, problem: str, remedy: str, column: str | None = None
    ) -> None:
        super().__init__(f"{name!r}, {place}: {problem}.", remedy)
        self.kind, self.place, self.column = kind, place, column


Bad = Callable[[RecordError], bool]
"""Told of a fault: True leaves the record out, False keeps it, which only a note allows; or it raises."""

NOTES = frozenset({Kind.EMPTY, Kind.LONG})  # the record can be read all the same
# Faults of a record's own fields: leaving it out touches no other.
OF_THE_RECORD = frozenset({Kind.EMPTY, Kind.LABEL, Kind.CODING, Kind.TYPE, Kind.NESTED, Kind.RECORD})


def stop(fault: RecordError) -> bool:
    """Raise a fault as an error, but keep a record with only a note."""
    if fault.kind in NOTES:
        return False
    raise fault


def drop(fault: RecordError) -> bool:
    """Leave out a record with a fault in its own fields; raise a fault of the file's structure as an error.

    Guarantee: whether a record is left out is a function of that record and of public settings alone, so that adding
    or removing one leaves out no other. A quote that is never closed swallows its neighbours, so it always stops.
    """
    if fault.kind in OF_THE_RECORD:
        return True
    return stop(fault)


POLICIES: Mapping[str, Bad] = {"stop": stop, "drop": drop}
