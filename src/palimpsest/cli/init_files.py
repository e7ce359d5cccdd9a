"""The files of `palimpsest init`: the first row of each, and with `--check` one pass through all of them.

What a pass finds follows from private rows. Kinds of faults and the place of the first are shown only on the terminal
of the owner, the whole list is in the private zone, and no value is in either. No setting is taken from a file.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palimpsest.cli.console import owners_terminal, tell_owner
from palimpsest.cli.decisions import DataSource
from palimpsest.errors import DataError
from palimpsest.files import read_json, write_json
from palimpsest.privacy.ledger.books import Books
from palimpsest.records import schema as attributes
from palimpsest.records.faults import NOTES, OF_THE_RECORD, Kind, Place, RecordError
from palimpsest.records.formats import MissingColumn, names
from palimpsest.records.preprocess import odd_labels, odd_public, odd_sizes
from palimpsest.records.read import Checked, ColumnNames, Found, check, iter_rows, nobody_error
from palimpsest.records.schema import PublicSchema
from palimpsest.workspace import FAULT, PRIVATE, ROWS_REPORT, Zone

_FOR_EVER = "What is declared never changes for a data set: to correct it, run init again with another --asset."
_UNNAMED = "Some rows name no person and will be left out."
LIST = PRIVATE / "check.json"
_MOST_NAMES, _LONGEST_NAME, _MOST_WORDS = 30, 40, 3


@dataclass(frozen=True)
class _Named:
    """A file, the option that names it, and the columns that are read."""

    option: str
    path: Path
    columns: ColumnNames


def _files_of(source: DataSource) -> Iterator[_Named]:
    """Yield all files of a data set."""
    keys, label = source.keys, source.label
    yield _Named("DATA", source.data, ColumnNames(source.text, label, source.unit, keys, nobody=True))
    public = ColumnNames(source.text, label if source.public_labels else None, keys=keys, plain=True)
    yield _Named("--public", source.public, public)
    if source.test is not None:
        yield _Named("--test", source.test, ColumnNames(source.text, label, keys=keys))
    if source.public_test is not None:
        yield _Named("--public-test", source.public_test, ColumnNames(source.text, label, keys=keys, plain=True))


def check_first_rows(source: DataSource) -> None:
    """Check that files exist, may be read, and have the columns and a first row.

    Raises:
        DataError: the first that is wrong, with its option.
    """
    for file in _files_of(source):
        _check_there(file)
        _check_first(file, source)


def _check_there(file: _Named) -> None:
    said = f"{file.option} is {str(file.path)!r}"
    if file.path.is_dir():
        raise DataError(f"{said}, a folder.", "Name one data file in it.")
    if not file.path.exists():
        raise DataError(f"{said}: there is no such file.", "Correct the path; it counts from the folder you are in.")
    if not os.access(file.path, os.R_OK):
        raise DataError(f"{said}: it may not be read.", "Give yourself permission to read it, say with chmod u+r.")


def _check_first(file: _Named, source: DataSource) -> None:
    missing = None
    try:
        next(iter_rows(file.path, file.columns, max_length=1, bad=lambda _: False), None)
    except (MissingColumn, RecordError) as error:
        missing = error.column
    if missing is not None:
        there = _describe_columns(names(file.path), source.labels) if owners_terminal() else ""
        option = next(name for name, columns in _columns_by_option(source).items() if missing in columns)
        said = f"{option} is {missing!r}: {file.path.name!r} has no such column.{there}"
        if file.option != "DATA":
            raise DataError(said, f"Name the columns of {file.path.name!r} as those of DATA are named.")
        header = "" if ".jsonl" in file.path.name.lower() else ", or name the file's columns in its first row"
        raise DataError(said, f"Correct {option}{header}. Case and spaces count.")


def _columns_by_option(source: DataSource) -> Mapping[str, Sequence[str | None]]:
    return {"--text": [source.text], "--label": attributes.names(source.label), "--unit": [source.unit]}


def _describe_columns(columns: Sequence[str], labels: Collection[str]) -> str:
    """Return a sentence with the column names, unless they look like a record, which is shown nowhere."""
    if any(_is_value(name, labels) for name in columns):
        return " Its first row looks like a record, not like names."
    return f" It has: {', '.join(map(repr, columns[:_MOST_NAMES]))}{', ...' if len(columns) > _MOST_NAMES else ''}."


def _is_value(name: str, labels: Collection[str]) -> bool:
    number = name.strip().replace(".", "", 1).isdigit()
    return number or name in labels or len(name) > _LONGEST_NAME or len(name.split()) > _MOST_WORDS


Pass = Mapping[str, tuple[_Named, Checked]]  # option -> the file and what was found in it


def check_all(source: DataSource, schema: PublicSchema, workspace: Path, books: Books | None = None) -> Pass:
    """Go through each file once, and tell the owner of what is found.

    Args:
        source, schema: the data set.
        workspace: where it will be.
        books: of the ledger that it will be entered into, where there is one: it may know the rows by another name.

    Raises:
        DataError: a run would stop at one of the records; the list is then kept.
    """
    print("reading the files once, to check them; no setting is taken from them (--no-check leaves this out)")
    labels = tuple(source.labels) or None
    key = books.rows_key if books is not None and books.entries else None
    found = {
        file.option: (file, check(file.path, file.columns, source.max_length, labels, key))
        for file in _files_of(source)
    }
    try:
        for file, checked in found.values():
            _judge(file, checked, source.bad_rows, workspace)
    except DataError:
        keep(found, workspace)
        raise
    own = found["DATA"][1]
    if source.unit is not None and own.rows and not own.persons:
        raise nobody_error(source.data, source.unit)
    for told in _describe_odd(own, schema, found["--public"][1].marks):
        tell_owner(f"note: {told}")
    if books is not None and own.likeness is not None and (other := books.same_rows(source.asset, own.likeness)):
        agreed = "palimpsest register --same-rows REASON"
        tell_owner(f"note: asset {other!r} has these rows. A run stops there until `{agreed}`.")
    return found


def keep(found: Pass, workspace: Path) -> None:
    """Write the whole list into the private zone; where there is no fault, there is no list."""
    if any(checked.faults for _, checked in found.values()):
        write_json(workspace / LIST, {"zone": Zone.PRIVATE, "files": [_entry(*each) for each in found.values()]})
    else:
        (workspace / LIST).unlink(missing_ok=True)


def _entry(file: _Named, checked: Checked) -> dict[str, Any]:
    return {
        "option": file.option,
        "file": file.path.name,
        "rows": checked.rows,
        "faults": [fault._asdict() for fault in checked.faults],
    }


def _judge(file: _Named, checked: Checked, policy: str, workspace: Path) -> None:
    """Raise DataError where a run would stop at a record; else say which records are left out, and what is odd."""
    droppable = OF_THE_RECORD if policy == "drop" and checked.rows else frozenset[Kind]()
    stops = [fault for fault in checked.faults if fault.kind not in NOTES | droppable]
    if stops:
        shown, remedy = "", "Correct them."
        if owners_terminal():
            shown, remedy = f": {_describe_faults(stops)}", _remedy(stops, checked.rows)
        raise DataError(
            f"{file.option} is {str(file.path)!r}, which has records that a run would stop at{shown}.",
            f"{remedy} {str(workspace / LIST)!r} lists each with its kind and place.",
        )
    for words, kinds in (("records are left out", droppable), ("worth a look", NOTES - droppable)):
        if faults := [fault for fault in checked.faults if fault.kind in kinds]:
            tell_owner(f"note: {file.path.name!r}, {words}: {_describe_faults(faults)}.")


def _describe_faults(faults: list[Found]) -> str:
    """Return the kinds of faults, and the place of the first."""
    first = faults[0]
    return f"{'; '.join(dict.fromkeys(fault.kind for fault in faults))}. The first is {Place(first.row, first.line)}"


def _remedy(stops: list[Found], readable: int) -> str:
    kinds = {fault.kind for fault in stops}
    if Kind.QUOTE in kinds:
        return "Close every quote, and double the quotes inside a quoted field; what follows could not be checked."
    hints = "".join(f" {hint}" for kind, hint in _HINTS.items() if kind in kinds)
    if not kinds <= OF_THE_RECORD:
        return f"Correct them: faults of the file's structure always stop, for they may hide other records.{hints}"
    leave = ", or leave such records out with --bad-rows drop, which is public" if readable else ""
    return f"Correct them{leave}.{hints}"


_HINTS = {
    Kind.LABEL: "Labels are compared exactly, case and spaces too.",
    Kind.CODING: "Save the file as UTF-8.",
    Kind.TYPE: "Write texts and labels as strings; null stands for none.",
    Kind.RETURN: "Save the file with line ends of Unix or Windows; what follows could not be checked.",
    Kind.KEY: "Write every key in every line; null stands for none.",
}


def _describe_odd(checked: Checked, schema: PublicSchema, public: frozenset[int]) -> list[str]:
    """Return what is far from what was declared, or is public as well, without a count."""
    seen = {label: int(label in checked.labels) for label in schema.label_names}
    sizes = [each.told for each in odd_sizes(checked.rows, checked.persons, schema)]
    unnamed = [_UNNAMED] if schema.unit_column is not None and checked.nobody else []
    others = [*odd_labels(seen), *odd_public(len(checked.marks & public))]
    return [*sizes, *[_FOR_EVER] * bool(sizes), *unnamed, *(each.told for each in others)]


def tell_of_rows(workspace: Path) -> None:
    """Tell what `preprocess` found odd about the rows, or could not read, on their owner's terminal and in no log."""
    found = next((path for path in (ROWS_REPORT, FAULT) if (workspace / path).is_file()), None)
    if owners_terminal() and found is not None:
        for told in read_json(workspace / found).get("told", ()):
            tell_owner(f"note: {told}")
