"""Writing and reading the Parquet splits, rows that hold no row objects, and synthetic rows for their user.

Each object of packed rows is made when it is looked at. For ten million rows, memory then holds the texts, a dozen
bytes beside each, and no copy.
"""

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from itertools import compress, islice, repeat, zip_longest
from pathlib import Path
from typing import Any, Generic, TypeVar, cast, overload

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from palimpsest.errors import DataError
from palimpsest.files import atomic_path
from palimpsest.records import schema as attributes
from palimpsest.records import texts
from palimpsest.records.private import SplitRow
from palimpsest.records.record import Record
from palimpsest.records.structured import PLAIN, WHOLE_ROW, members_of, parse_value

Row = TypeVar("Row")
Other = TypeVar("Other")
_PACKED_AT_ONCE = 1 << 14  # rows that are turned into arrays, or back, together
_ROW_GROUP, _AT_ONCE = 1 << 20, 1 << 16  # rows that are written, and read, together
_TEXT = pa.field("text", pa.string())
_LABEL = pa.field("label", pa.string())
_ROUNDS_SCHEMA = pa.schema([pa.field("round", pa.int64()), _TEXT, _LABEL])
_SPLIT_SCHEMA = pa.schema([_TEXT, _LABEL, pa.field("guess", pa.bool_()), pa.field("person", pa.string())])
_FIELDS = pa.field("fields", pa.string())
_LIST = pa.list_(pa.string())
_TURNS = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))


class _Made(Sequence[Row]):
    """A sequence whose items are made anew each time; it equals any sequence of equal items."""

    def _get_row(self, place: int) -> Row:
        raise NotImplementedError

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> list[Row]: ...
    def __getitem__(self, place: int | slice) -> Row | list[Row]:
        if isinstance(place, slice):
            return [self._get_row(each) for each in range(len(self))[place]]
        return self._get_row(range(len(self))[place])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(ours == theirs for ours, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]


class Packed(_Made[Row], Generic[Row]):
    """Rows in Arrow arrays, which nothing can change."""

    def __init__(self, kind: Callable[..., Row], table: pa.Table) -> None:
        """Make rows `kind(*values)` of the table's columns, in their order."""
        self._kind, self._table = kind, table

    @classmethod
    def of(cls, kind: type[Row], rows: Iterable[Row]) -> "Packed[Row]":
        """Pack rows of a dataclass of strings and booleans as they come."""
        types = {each.name: pa.bool_() if each.type is bool else pa.string() for each in fields(cast(Any, kind))}
        return cls(kind, make_table(pa.schema(types), rows))

    def convert(self, kind: type[Other]) -> "Packed[Other]":
        """Return the same rows as another dataclass, whose attributes these have too, but perhaps its last ones."""
        stored = set(self._table.column_names)
        return Packed(kind, self._table.select([one.name for one in fields(cast(Any, kind)) if one.name in stored]))

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[Row]:
        for batch in self._table.to_batches(_PACKED_AT_ONCE):
            yield from map(self._kind, *(column.to_pylist() for column in batch.columns))

    def _get_row(self, place: int) -> Row:
        return self._kind(*(column[place].as_py() for column in self._table.columns))


class Chosen(_Made[Row]):
    """The rows of a sequence that a mask chooses, bool (len(rows),)."""

    def __init__(self, rows: Sequence[Row], mask: np.ndarray) -> None:
        self._rows, self._mask, self._count = rows, mask, int(np.count_nonzero(mask))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        return compress(self._rows, self._mask)

    def _get_row(self, place: int) -> Row:
        return self._rows[int(np.flatnonzero(self._mask)[place])]


class Mapped(_Made[Row]):
    """The results of a function on the items of sequences of one length."""

    def __init__(self, make: Callable[..., Row], *sequences: Sequence[Any]) -> None:
        self._make, self._sequences = make, sequences

    def __len__(self) -> int:
        return len(self._sequences[0])

    def __iter__(self) -> Iterator[Row]:
        return map(self._make, *self._sequences)

    def _get_row(self, place: int) -> Row:
        return self._make(*(each[place] for each in self._sequences))


def draw_mask(rows: int, most: int, seed: int) -> np.ndarray:
    """Draw a mask of `most` of so many rows, without replacement; all where there are no more: bool (rows,)."""
    mask = np.zeros(rows, dtype=bool)
    mask[np.random.default_rng(seed).permutation(rows)[:most]] = True
    return mask


def make_table(schema: pa.Schema, rows: Iterable[Any]) -> pa.Table:
    """Make a table of the attributes of rows that a schema names, some rows at a time."""
    remaining, parts = iter(rows), [schema.empty_table()]
    while some := list(islice(remaining, _PACKED_AT_ONCE)):
        columns = [pa.array([getattr(row, field.name) for row in some], field.type) for field in schema]
        parts.append(pa.Table.from_arrays(columns, schema=schema))
    return pa.concat_tables(parts)


def shuffle_rows(records: Iterable[Record]) -> list[Record]:
    """Return the rows in an order drawn at random, the same each time: the first of a file then have every label."""
    rows = list(records)
    return random.Random(0).sample(rows, len(rows))


def write_synthetic(
    records: Iterable[Record], base_path: Path | str, text_column: str, label_column: str | None
) -> tuple[Path, Path]:
    """Write <base_path>.jsonl and <base_path>.parquet with the input's column names; returns the two paths.

    Both files are whole before either is renamed into place. Several texts, and turns, are split into columns, as
    `texts.cells_of` has it. The label is left out where `label_column` is None, and
    has several columns where `label_column` names several. Fields, where the first record has any, are columns behind
    it, of the type of their values.

    With the text column "*" a line is the record itself, and a text that is no JSON object has no line; the table holds
    every text as it was drawn, in the column `text`, so that audits see all.
    """
    lines, table = _add_suffix(base_path, ".jsonl"), _add_suffix(base_path, ".parquet")
    rows = list(records)
    columns = _columns(rows, text_column, label_column)
    types = dict.fromkeys(columns, pa.string())
    types |= dict.fromkeys(texts.names(text_column), _TURNS) if texts.is_turns(text_column) else {}
    types |= dict.fromkeys(attributes.names(label_column), _LIST) if attributes.holds_lists(label_column) else {}
    for place, (name, _) in enumerate(rows[0].fields if rows else ()):
        columns[name] = [row.fields[place][1] for row in rows]
        types[name] = _type_of(columns[name])
    with atomic_path(lines) as lines_draft, atomic_path(table) as table_draft:
        _write_lines(lines_draft, _lines(columns, text_column == WHOLE_ROW))
        pq.write_table(pa.table(columns, pa.schema(list(types.items()))), table_draft)
    return lines, table


def _type_of(values: Sequence[Any]) -> pa.DataType:
    """Return the type of a column of text, or of numbers."""
    known = {type(value) for value in values} - {type(None)}
    return pa.int64() if known == {int} else pa.float64() if known == {float} else pa.string()


def write_lines(path: Path, records: Iterable[Record], text_column: str, label_column: str | None) -> None:
    """Write rows as JSON lines with the input's column names; with the text column "*" under `text`."""
    _write_lines(path, _lines(_columns(list(records), text_column, label_column), whole=False))


def _columns(rows: Sequence[Record], text_column: str, label_column: str | None) -> dict[str, list[Any]]:
    apart = [attributes.parts(row.label, label_column) for row in rows]
    labels = {name: [one[place] for one in apart] for place, name in enumerate(attributes.names(label_column))}
    cells = [texts.cells_of(row.text, text_column) for row in rows]
    own = {name: [one[place] for one in cells] for place, name in enumerate(_stored_names(text_column))}
    return {**own, **labels}


def _add_suffix(base_path: Path | str, suffix: str) -> Path:
    # Not with_suffix: a variant may be called "dp0.5".
    return Path(f"{base_path}{suffix}")


def _stored_names(text_column: str) -> tuple[str, ...]:
    """Return the columns of text in a table."""
    return (PLAIN,) if text_column == WHOLE_ROW else texts.names(text_column)


def _lines(columns: Mapping[str, Sequence[str | None]], whole: bool) -> Iterator[Mapping[str, Any]]:
    """Return the object of each line: a row of the table, or the record itself where that is an object."""
    if whole:
        return (members for text in columns[PLAIN] if (members := members_of(text or "")) is not None)
    return (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))


@dataclass(frozen=True)
class Counts:
    """The sizes of the two files of `write_synthetic`."""

    rows: int  # of the table
    lines: int  # fewer only where a line is the record itself: a text that is no JSON object then has no line


def counts_of(records: Sequence[Record], text_column: str) -> Counts:
    """Return how much `write_synthetic` would write of these records."""
    whole = text_column == WHOLE_ROW
    lines = sum(members_of(record.text) is not None for record in records) if whole else len(records)
    return Counts(len(records), lines)


def differences(base_path: Path | str, columns: Sequence[str], whole: bool) -> tuple[Counts, list[str]]:
    """Return how much `write_synthetic` wrote, and where its two files differ.

    Args:
        base_path: the common path of the two files, without suffix.
        columns: the columns that the table must have, and no others.
        whole: whether a line is the record itself, with the text column "*".

    Returns:
        The counts, and a sentence for the first line that differs from its row's.
    """
    path = _add_suffix(base_path, ".parquet")
    if _names(path) != [*columns]:
        return Counts(0, 0), [f"{path.name} has not the declared columns, {', '.join(columns)}"]
    table = _read_table(path, _with_types(path, columns))
    wanted = map(json.dumps, _lines({name: table[name].to_pylist() for name in columns}, whole))
    lines, number = _add_suffix(base_path, ".jsonl"), 0
    with lines.open(encoding="utf-8", newline="\n") as stream:
        for number, (line, row) in enumerate(zip_longest(stream, wanted), 1):
            if line is None or row is None or json.dumps(parse_value(line)) != row:
                problem = f"line {number} of {lines.name} is not the row that {path.name} has there"
                return Counts(table.num_rows, number), [problem]
    return Counts(table.num_rows, number), []


def read_values(base_path: Path | str, column: str) -> list[Any]:
    """Return one column of the table that `write_synthetic` wrote; errors are those of `read_synthetic`."""
    path = _add_suffix(base_path, ".parquet")
    return list(_read_table(path, _with_types(path, [column]))[column].to_pylist())


def _write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")


def write_split(path: Path | str, rows: Iterable[SplitRow], fields: bool = False) -> None:
    """Write a private split: columns text, label, guess and person; label and person may be null. Private zone.

    Args:
        fields: public; whether the data set has fields: there is a column with their cells then.
    """
    remaining, kept = iter(rows), _SPLIT_SCHEMA.append(_FIELDS) if fields else _SPLIT_SCHEMA
    with atomic_path(path) as draft, pq.ParquetWriter(draft, kept) as writer:
        writer.write_table(_row_group(remaining, kept))
        while (some := _row_group(remaining, kept)).num_rows:
            writer.write_table(some)


def _row_group(rows: Iterator[SplitRow], kept: pa.Schema) -> pa.Table:
    return make_table(kept, islice(rows, _ROW_GROUP)).combine_chunks()


def read_split(path: Path | str) -> Packed[SplitRow]:
    """Read the rows of a private split, in their order.

    Raises:
        DataError: the file is missing, damaged or not a private split.
    """
    return Packed(SplitRow, _read_table(path, _split_schema(path)))


def read_guessed(path: Path | str) -> Packed[SplitRow]:
    """Read the rows of a private split that an attack may guess about; errors are those of `read_split`."""
    return Packed(SplitRow, _read_masked(path, lambda part, _: part["guess"]))


def read_drawn(path: Path | str, most: int, seed: int) -> Packed[SplitRow]:
    """Read at most `most` rows of a private split, drawn by a seed, in order; errors are those of `read_split`."""
    mask = draw_mask(_count(path), most, seed)
    return Packed(SplitRow, _read_masked(path, lambda part, start: pa.array(mask[start : start + len(part)])))


def split_texts(path: Path | str) -> Iterator[str]:
    """Yield the texts of a private split, some in memory at once; errors are those of `read_split`."""
    for part in _parts(path, _SPLIT_SCHEMA):
        yield from part["text"].to_pylist()


def write_public(path: Path | str, rows: Iterable[Record]) -> None:
    """Write a public split: column text, and label (nullable) where any row has one."""
    records = list(rows)
    labelled = any(row.label is not None for row in records)
    _write_table(path, pa.Table.from_pylist([asdict(row) for row in records], _public_schema(labelled)))


def read_public(path: Path | str) -> list[Record]:
    """Read the rows of a public split, in their order; the label is None where the file has none.

    Raises:
        DataError: the file is missing, damaged or not a public split.
    """
    path = Path(path)
    labelled = "label" in _names(path)
    return [Record(**row) for row in _read_table(path, _public_schema(labelled)).to_pylist()]


def read_synthetic(
    base_path: Path | str, text_column: str, label_column: str | None, fields: Iterable[str] = ()
) -> list[Record]:
    """Read the rows that `write_synthetic` wrote, with those of the declared `fields` that the file has.

    No other column is read: whatever somebody put there stays there.

    Raises:
        DataError: the file is missing, damaged or has other columns.
    """
    own, path = _stored_names(text_column), _add_suffix(base_path, ".parquet")
    columns = [*own, *attributes.names(label_column)]
    stored = _names(path)
    named = [name for name in fields if name in stored]
    table = _read_table(path, _with_types(path, [*columns, *named]))
    rows = zip(*(table[name].to_pylist() for name in columns), strict=True)
    kept = zip(*(table[name].to_pylist() for name in named), strict=True) if named else repeat(())
    return [
        Record(
            texts.text_of(row[: len(own)], text_column),
            attributes.join_cells(row[len(own) :]),
            tuple(zip(named, cells, strict=True)),
        )
        for row, cells in zip(rows, kept, strict=False)
    ]


def _with_types(path: Path, columns: Sequence[str]) -> pa.Schema:
    """Return a schema of these columns: text, or the numbers or turns that the file has there."""
    with suppress(OSError, pa.ArrowException):
        stored = pq.read_schema(path)
        kept = {one.name: one.type for one in stored if one.type in (pa.int64(), pa.float64(), _TURNS, _LIST)}
        return pa.schema([(name, kept.get(name, pa.string())) for name in columns])
    return pa.schema([(name, pa.string()) for name in columns])


def write_rounds(path: Path | str, rounds: Iterable[Iterable[Record]]) -> None:
    """Write the records that each round of a method selected: columns round (from 1), text and label (nullable)."""
    rows = [{"round": number, **asdict(row)} for number, records in enumerate(rounds, 1) for row in records]
    _write_table(path, pa.Table.from_pylist(rows, _ROUNDS_SCHEMA))


def read_rounds(path: Path | str) -> list[list[Record]]:
    """Read what `write_rounds` wrote, round by round.

    Raises:
        DataError: the file is missing, damaged or of another kind.
    """
    table = _read_table(path, _ROUNDS_SCHEMA).to_pylist()
    rounds: list[list[Record]] = [[] for _ in range(max((row["round"] for row in table), default=0))]
    for row in table:
        rounds[row["round"] - 1].append(Record(row["text"], row["label"]))
    return rounds


def _public_schema(labelled: bool) -> pa.Schema:
    return pa.schema([_TEXT, _LABEL] if labelled else [_TEXT])


def _write_table(path: Path | str, table: pa.Table) -> None:
    with atomic_path(path) as draft:
        pq.write_table(table, draft)


def _names(path: Path) -> list[str]:
    with suppress(OSError, pa.ArrowException):
        return pq.read_schema(path).names
    return []


def _read_table(path: Path | str, schema: pa.Schema) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), *_parts(path, schema)])


def _split_schema(path: Path | str) -> pa.Schema:
    return _SPLIT_SCHEMA.append(_FIELDS) if _FIELDS.name in _names(Path(path)) else _SPLIT_SCHEMA


def _read_masked(path: Path | str, mask: Callable[[pa.Table, int], pa.Array]) -> pa.Table:
    """Read only the rows of a private split that `mask` chooses, given some rows and the index of their first."""
    schema = _split_schema(path)
    kept, start = [schema.empty_table()], 0
    for part in _parts(path, schema):
        kept.append(part.filter(mask(part, start)))
        start += len(part)
    return pa.concat_tables(kept)


def _count(path: Path | str) -> int:
    with suppress(OSError, pa.ArrowException):
        return int(pq.read_metadata(path).num_rows)
    return 0  # the next reader says what is wrong


def _parts(path: Path | str, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield a table some rows at a time."""
    path = Path(path)
    # ParquetFile and not read_table: the latter reads a folder name such as "label=1" as a column.
    with suppress(OSError, KeyError, pa.ArrowException), pq.ParquetFile(path) as file:
        file.schema_arrow.empty_table().select(schema.names)  # a column that is not there is passed over below
        for batch in file.iter_batches(_AT_ONCE, columns=schema.names):
            yield pa.Table.from_batches([batch]).select(schema.names).cast(schema)
        return
    raise DataError(
        f"{path.name!r} is missing, or is not a Parquet file with the columns {', '.join(schema.names)}.",
        "Run the stage that writes it again.",
    )
