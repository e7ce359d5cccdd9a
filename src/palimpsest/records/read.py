"""Reading private (or public) rows from CSV, TSV, JSONL, JSON and Parquet, or finding every fault of a file."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from palimpsest import validate
from palimpsest.errors import DataError
from palimpsest.records import schema, texts
from palimpsest.records.duplicates import marks
from palimpsest.records.faults import FLATTEN, NOTES, Bad, Kind, Place, RecordError, stop
from palimpsest.records.fields import Declared, Domain, Read, columns_of, domains_of, encode_cells
from palimpsest.records.formats import Wanted, cells
from palimpsest.records.keyed import BEGINNING, likeness
from palimpsest.records.private import RawRow
from palimpsest.records.structured import WHOLE_ROW, canonical_text, parse_value, plain_text
from palimpsest.records.write import Packed


@dataclass(frozen=True)
class ColumnNames:
    """The names of the columns to read; None where the data set has no such column.

    Attributes:
        text: the text column; "*" where records are JSON objects and each row is one; several as `texts` has them.
        label: the label column; several, or one of lists, as `schema.names` has them.
        unit: the column that names the person, by its exact value.
        fields: the fields beside a text, by their columns, and how they are declared; a JSON line may leave one out.
            Those that a reader answers from the text have no column.
        nobody: whether a row may name no person: its cell is null, empty or blank, or a JSON line has no such key.
        keys: the public keys of a record that is a JSON object, in their order; None where the text is plain.
        plain: True for a public file, whose rows may hold plain text instead of records.
    """

    text: str
    label: str | None = None
    unit: str | None = None
    keys: tuple[str, ...] | None = None
    plain: bool = False
    nobody: bool = False
    fields: Mapping[str, Declared] = field(default_factory=dict)

    def wanted_columns(self, free_labels: bool) -> list[Wanted]:
        """Return the columns that are set: text, then label, then unit, then fields. A free label may be missing."""
        whole = self.keys is not None and self.text == WHOLE_ROW
        labels = [Wanted(name, free_labels) for name in schema.names(self.label)]
        others = [*labels, Wanted(self.unit, self.nobody), *(Wanted(name, True) for name in columns_of(self.fields))]
        own = [Wanted(None if whole else name) for name in texts.names(self.text)]
        return [*own, *(other for other in others if other.column is not None)]


def read_rows(
    path: Path | str,
    columns: ColumnNames,
    max_length: int,
    labels: Sequence[str] | None = None,
    check: Callable[[], object] = lambda: None,
    bad: Bad = stop,
) -> Packed[RawRow]:
    """Read all rows of one file, see `iter_rows`; the file must stay as it is until the last row is read.

    What `check` finds in the file, before the first row is read, holds for what is read: it is the same content.

    Raises:
        DataError: the file changed meanwhile, or was replaced by one of the same content; or no record is kept.
    """
    path = Path(path)
    before = _identity(path)
    check()
    rows = Packed.of(RawRow, iter_rows(path, columns, max_length, labels, bad))
    if _identity(path) != before:
        raise DataError(f"{path.name!r} changed while it was being read.", "Let nothing write to it, and run again.")
    if not rows:
        raise DataError(
            f"All records of {path.name!r} are left out by dataset.bad_rows.",
            "Compare its columns with dataset.text and dataset.labels; `palimpsest init` with its check says more.",
        )
    return rows


def nobody_error(path: Path | str, column: str) -> DataError:
    """Return the error for a file in which no row names a person: any query of it would ask about nobody."""
    return DataError(
        f"No row of {Path(path).name!r} names a person in column {column!r}.",
        "Name the column that says whose rows they are in dataset.unit.column.",
    )


def _identity(path: Path) -> tuple[int, int, str] | None:
    """Return the time of the last change, inode number and content hash of a file; None where it cannot be read."""
    with suppress(OSError), path.open("rb") as stream:
        content, status = hashlib.file_digest(stream, "sha256").hexdigest(), path.stat()
        return status.st_mtime_ns, status.st_ino, content
    return None


def iter_rows(
    path: Path | str, columns: ColumnNames, max_length: int, labels: Sequence[str] | None = None, bad: Bad = stop
) -> Iterator[RawRow]:
    """Yield the rows of one file in its order, without holding the file.

    A text longer than `max_length` is cut and marked, a null text is empty, a free label may be empty, null or missing
    and is cut like the text, a field may be anything: nothing of this is an error, because an error would itself tell.
    Integer labels and units are read as their decimal digits. A record that is a JSON object is read as its canonical
    text. A row that names no person has no unit, or is an error: whether it may be is public (`ColumnNames.nobody`).

    Guarantee: with a policy of `faults.POLICIES`, whether row i of the file is left out, and what it is read as, is a
    function of that row and of public settings alone (1-stable). No error carries anything of a row but its place.

    Args:
        path: a .csv, .tsv, .jsonl, .json or .parquet file, plain or with .gz.
        columns: the names of the columns to read.
        max_length: public; longest text kept, in characters (Unicode code points).
        labels: the public list of labels, or None where the labels are free.
        bad: what becomes of a row with a fault; public. By default the first is an error.

    Raises:
        DataError: the file cannot be used; the message names the file, the column and the row's place.
    """
    validate.require_positive(max_length=max_length)
    path = Path(path)
    listed = None if labels is None else frozenset(labels)
    rule = _Rule(path.name, columns, max_length, listed, domains_of(columns.fields))
    any_row = False
    for place, values in cells(path, columns.wanted_columns(labels is None), bad):
        any_row, row = True, rule.read(place, values)
        if isinstance(row, RecordError):
            bad(row)
        elif not any([bad(note) for note in rule.notes(place, row)]):
            yield row
    if not any_row:
        raise DataError(f"{path.name!r} has no row that can be read.", "Give a file with at least one row.")


@dataclass(frozen=True)
class _Rule:
    """The rules that a row must meet."""

    name: str
    columns: ColumnNames
    max_length: int
    labels: frozenset[str] | None
    domains: tuple[Domain, ...]

    def read(self, place: Place, values: Sequence[Any]) -> RawRow | RecordError:
        """Return the row, or what is wrong with it."""
        try:
            return self.row(place, *values)
        except RecordError as error:
            return error

    def row(self, place: Place, *values: Any) -> RawRow:
        rest = iter(values)
        own = [next(rest) for _ in texts.names(self.columns.text)]
        label = self._label([next(rest) for _ in schema.names(self.columns.label)], place)
        unit = self._unit(next(rest), place) if self.columns.unit is not None else None
        whole = self._whole(own, place)
        kept = self._clean(whole[: self.max_length], place, self.columns.text)
        named = label[: self.max_length] if label is not None and self.labels is None else label
        cut = len(whole) > self.max_length or named != label
        placed = [None if isinstance(domain, Read) else next(rest) for domain in self.domains]
        return RawRow(kept, named, unit, cut, encode_cells(placed, self.domains))

    def notes(self, place: Place, row: RawRow) -> Iterator[RecordError]:
        """Yield what is odd about a row that can be read."""
        if not row.text.strip():
            remedy = "Write a text, or leave such records out with dataset.bad_rows: drop."
            yield self._error(Kind.EMPTY, place, self.columns.text, "is empty", remedy)
        if row.cut:
            remedy = "Raise dataset.max_length, or let it be cut."
            yield self._error(Kind.LONG, place, self.columns.text, f"is longer than {self.max_length}", remedy)

    def _whole(self, own: Sequence[Any], place: Place) -> str:
        """Return the text of a record, joined where it has several."""
        if self.columns.keys is not None:
            return self._text(self._record(own[0], place), place, self.columns.text)
        if texts.is_turns(self.columns.text) and own[0] is not None:
            return self._turns(own[0], place)
        columns = texts.names(self.columns.text)
        found = [self._text(value, place, column) for value, column in zip(own, columns, strict=True)]
        return found[0] if len(found) == 1 else texts.join(found)

    def _turns(self, value: Any, place: Place) -> str:
        with suppress(ValueError):
            return texts.join_turns(value)
        roles = ", ".join(texts.ROLES)
        problem = f"is not a list of turns with a role, of {roles}, and a content that is text, and nothing else"
        remedy = "Write every conversation as such a list, or leave such rows out with dataset.bad_rows: drop."
        raise self._error(Kind.TYPE, place, texts.names(self.columns.text)[0], problem, remedy)

    def _text(self, value: Any, place: Place, column: str) -> str:
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self._wrong(value, place, column, "is not a string", "Write every text as a string.")
        return value

    def _record(self, value: Any, place: Place) -> str | None:
        """Return the canonical text of a JSON object; in a public file also plain text."""
        keys = self.columns.keys or ()
        beside = plain_text(value, keys) if self.columns.plain else None
        if value is None or beside is not None:
            return beside
        with suppress(ValueError):
            return canonical_text(value, keys)
        raise self._error(
            Kind.RECORD,
            place,
            self.columns.text,
            "is not a JSON object, or has a key twice, or a number that JSON has not",
            "Write every record as one JSON object.",
        )

    def _label(self, values: Sequence[Any], place: Place) -> str | None:
        columns = schema.names(self.columns.label)
        lists = schema.holds_lists(self.columns.label)
        named = [
            self._names(value, place, column) if lists else self._name(value, place, column)
            for value, column in zip(values, columns, strict=True)
        ]
        label = schema.join_cells(named)
        if columns and self.labels is not None and label not in self.labels:
            raise self._error(
                Kind.LABEL,
                place,
                self.columns.label,
                f"is not one of the {len(self.labels)} public labels",
                "Correct the row, case and spaces too, or add its label to dataset.labels in params.yaml.",
            )
        return label

    def _names(self, value: Any, place: Place, column: str) -> str | None:
        """Return the label that a list of values is; in CSV a cell is its JSON text, or a single value."""
        if isinstance(value, str) and value.startswith("["):
            with suppress(ValueError):
                value = parse_value(value)
        if not isinstance(value, list):
            return self._name(value, place, column)
        own = (self._name(one, place, column) for one in value)
        return schema.join_values([one for one in own if one is not None])

    def _unit(self, value: Any, place: Place) -> str | None:
        named = self._name(value, place, self.columns.unit) or ""
        # Rows of nobody are never pooled: together they would be one person with the rows of several.
        unit = None if not named or named.isspace() else named
        if unit is None and not self.columns.nobody:
            raise self._error(
                Kind.NOBODY,
                place,
                self.columns.unit,
                "is empty",
                "Name the person behind every row, or leave such rows out with dataset.unit.missing: drop.",
            )
        return unit

    def _name(self, value: Any, place: Place, column: str | None) -> str | None:
        if value is None:
            return None
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str):
            raise self._wrong(value, place, column, "is neither a string nor an integer", "Write it as a string.")
        return self._clean(value, place, column)

    def _clean(self, value: str, place: Place, column: str | None) -> str:
        if "\0" in value:
            raise self._error(Kind.CODING, place, column, "contains a NUL character", "Remove it.")
        if not is_unicode(value):
            raise self._error(Kind.CODING, place, column, "is not valid UTF-8", "Save the file as UTF-8.")
        return value

    def _wrong(self, value: Any, place: Place, column: str | None, problem: str, remedy: str) -> RecordError:
        kind, told = (Kind.NESTED, FLATTEN) if isinstance(value, list | dict) else (Kind.TYPE, remedy)
        return self._error(kind, place, column, problem, told)

    def _error(self, kind: Kind, place: Place, column: str | None, problem: str, remedy: str) -> RecordError:
        return RecordError(kind, self.name, place, f"column {column!r} {problem}", remedy, column)


def is_unicode(value: str) -> bool:
    """Return False where a string holds a lone surrogate: a byte that was not UTF-8, or half of a JSON escape pair."""
    try:
        value.isascii() or value.encode()
    except UnicodeEncodeError:
        return False
    return True


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
        faults: in the order of the file, to its end or to where it is broken: a quote, a carriage return. Of texts that
            are cut the first alone is among them.
        rows: how many rows can be read.
        persons: how many different persons these name.
        nobody: whether one of them names no person.
        labels: label -> how many of these have it.
        likeness: the hash by which the rows are recognised, see `keyed.likeness`; None without a key, or without rows.
        marks: the marks of the texts, see `duplicates.marks`.
        cut: how many texts are longer than the longest kept.
    """

    faults: tuple[Found, ...]
    rows: int
    persons: int
    nobody: bool
    labels: Mapping[str, int]
    likeness: str | None = None
    marks: frozenset[int] = frozenset()
    cut: int = 0


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
    seen: Counter[str | None] = Counter()
    beginnings: list[str] = []
    said: set[int] = set()

    cut = 0

    def bad(fault: RecordError) -> bool:
        nonlocal cut
        cut += fault.kind is Kind.LONG
        if fault.kind is not Kind.LONG or cut == 1:
            faults.append(Found(fault.kind, fault.place.row, fault.place.line, fault.column))
        return fault.kind not in NOTES

    try:
        for row in iter_rows(path, columns, max_length, labels, bad):
            rows += 1
            persons.add(row.unit)
            seen[row.label] += 1
            said |= marks([row.text])
            if key is not None:
                beginnings.append(row.text[:BEGINNING])
    except RecordError as broken:  # what follows a broken quote or line is no record any more
        bad(broken)
    alike = likeness(beginnings, key) if key is not None and beginnings else None
    labelled = {label: count for label, count in seen.items() if label}
    return Checked(tuple(faults), rows, len(persons - {None}), None in persons, labelled, alike, frozenset(said), cut)
