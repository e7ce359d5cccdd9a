"""Reading the wanted cells of a CSV, TSV, JSONL, JSON or Parquet file, row by row, plain or gzipped.

Messages name the file, the wanted column and the record's place. They never name the file's own columns: where the
header is missing, the first row stands in its place, and that row is private. `names` lists them, only for the
terminal of the file's owner. Every error is raised outside the handler that found it, so that no library exception
holding a row is chained to it.
"""

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from palimpsest.errors import DataError
from palimpsest.records.faults import Bad, Kind, Place, RecordError, stop
from palimpsest.records.structured import unique_members


@dataclass(frozen=True)
class Wanted:
    """A column, or the whole row, that is read of every row.

    Attributes:
        column: the column's name; None for the whole row, which only JSON has.
        optional: True where a JSON line without the key stands for null, as long as any line has it.
    """

    column: str | None
    optional: bool = False


class MissingColumn(DataError):
    """A wanted column is missing; the names of the other columns are neither said nor held."""

    def __init__(self, problem: str, column: str) -> None:
        remedy = "Check the column names in params.yaml, dataset section, and that the file names its columns."
        super().__init__(problem, remedy)
        self.column = column


Cells = Iterator[tuple[Place, Sequence[Any]]]
_Values = Callable[[BinaryIO, str], Iterator[tuple[Place, Any]]]


class _Format(NamedTuple):
    """The readers of a kind of file: of the wanted cells of its rows, and of the names of its columns."""

    cells: Callable[[BinaryIO, str, Sequence[Wanted], Bad], Cells]
    names: Callable[[BinaryIO, str], Sequence[str]]
    whole: bool = False  # whether a row can be a record


# A field beyond this is a quote that was never closed, not a text.
FIELD_LIMIT = 1 << 24  # characters
_LINE_LIMIT = 1 << 25  # bytes: a small file may unpack to a line without end
_UNPACKED = 1 << 28  # bytes of a gzipped Parquet file, which is held whole
_BATCH_ROWS = 4096
_PIECE = 1 << 20  # characters of a JSON list
_DECODER = json.JSONDecoder(object_pairs_hook=unique_members)
_BEFORE_FIRST, _BEFORE_NEXT = re.compile(r"\s*\[\s*(?=[^\s\]])"), re.compile(r"\s*,\s*(?=\S)")
_BROKEN = object()  # a line that is no JSON, a cell that Python cannot hold
_UTF8_BOM = b"\xef\xbb\xbf"
# The first bytes of files that are no UTF-8 text, whatever their names say -> problem and remedy.
_FOREIGN = (
    ((b"\xff\xfe", b"\xfe\xff"), "is UTF-16", "Save it as UTF-8."),
    ((b"PK\x03\x04", b"\xd0\xcf\x11\xe0"), "is a spreadsheet or an archive", "Export it as CSV in UTF-8."),
    ((b"PAR1",), "is a Parquet file", "Let its name end in .parquet."),
    ((b"\x1f\x8b",), "is gzipped", "Let its name end in .gz as well."),
)
_EXCEL = re.compile(r"sep=.?.?", re.IGNORECASE)  # its delimiter may have been split off
_SIGNS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}

_DAMAGED_GZIP = (EOFError, zlib.error, gzip.BadGzipFile)
# What keeps a file from being read, the special before the general -> problem and remedy.
_FAILURES: tuple[tuple[tuple[type[Exception], ...], str, str], ...] = (
    ((FileNotFoundError, NotADirectoryError), "does not exist", "Check the path in params.yaml, dataset section."),
    ((PermissionError,), "may not be read", "Give this user permission to read the file."),
    (_DAMAGED_GZIP, "is not a whole gzip file", "Copy the file again, or compress it again."),
    ((pa.ArrowException,), "is not a whole Parquet file", "Copy the file again, or write it again."),
    ((OSError,), "cannot be read", "Check the disk, and that the file is whole."),
)


def cells(path: Path, wanted: Sequence[Wanted], bad: Bad = stop) -> Cells:
    """Yield (place, one cell per wanted thing) for every row of the file.

    Row numbers start at 1, blank lines count, the header of a CSV or TSV does not. Bytes that are not UTF-8 come back
    as lone surrogates, for the caller to refuse in the cells it uses. At most one row and one batch are held.

    Args:
        path: the file; its format is read from its suffix (.csv, .tsv, .jsonl, .json, .parquet, each also with .gz).
        wanted: the columns to read.
        bad: called with a row that has another form than the rest; the row is skipped unless it raises.

    Raises:
        DataError: the file is missing, unreadable, empty, damaged, or malformed at a row.
    """
    known = require_known(path)
    if not known.whole and any(each.column is None for each in wanted):
        raise DataError(
            f"{path.name!r} is not JSONL, and only there is a row a record.",
            "Write one JSON object per line, or name the column that holds each record's JSON text.",
        )
    with _explain_failures(path.name):
        _check_regular(path)
        with _open_stream(path) as stream:
            yield from known.cells(stream, path.name, wanted, bad)


def names(path: Path) -> list[str]:
    """Return the names of a file's columns, or of the keys in its first line of JSON.

    Where the header is missing they are the first row, so they are only for the terminal of the file's owner.

    Raises:
        DataError: as for `cells`.
    """
    known = require_known(path)
    with _explain_failures(path.name):
        _check_regular(path)
        with _open_stream(path) as stream:
            return list(known.names(stream, path.name))


def require_known(path: Path) -> _Format:
    """Return the format that a file's name says; DataError where it says none."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    plain = suffixes[:-1] if _is_gzipped(path) else suffixes
    known = _FORMATS.get(plain[-1]) if plain else None
    if known is None:
        raise DataError(
            f"The format of {path.name!r} is not known.",
            f"Use a file whose name ends in {', '.join(_FORMATS)}, each alone or followed by .gz; or in .xlsx.",
        )
    return known


def _is_gzipped(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _check_regular(path: Path) -> None:
    # stat() first: it says which of "missing" and "not allowed" holds, where is_file() says False to both.
    path.stat()
    if not path.is_file():
        raise DataError(f"{path.name!r} is not a regular file.", "Name one data file.")


def _open_stream(path: Path) -> Any:
    return gzip.open(path, "rb") if _is_gzipped(path) else path.open("rb")


@contextmanager
def _explain_failures(name: str) -> Iterator[None]:
    failure = None
    try:
        yield
    except tuple(kind for kinds, *_ in _FAILURES for kind in kinds) as error:
        problem, remedy = next(words for kinds, *words in _FAILURES if isinstance(error, kinds))
        failure = DataError(f"{name!r} {problem}.", remedy)
    if failure is not None:
        raise failure


def _read_delimited(stream: BinaryIO, name: str, wanted: Sequence[Wanted], bad: Bad, *, delimiter: str) -> Cells:
    rows = _rows(stream, name, delimiter)
    header = _header(rows, name)
    if all(header.count(str(each.column)) == 0 for each in wanted):
        _check_separated(header, name, delimiter)
    places = [_place(header, each.column, name) for each in wanted]
    for place, row in rows:
        if len(row) == len(header):
            yield place, [row[index] for index in places]
        elif row:
            problem = f"{len(row)} fields, and the header has {len(header)}"
            remedy = "Give every row as many fields as the header; quote a field that contains the delimiter."
            bad(RecordError(Kind.FIELDS, name, place, problem, remedy))


def _delimited_names(stream: BinaryIO, name: str, *, delimiter: str) -> list[str]:
    return _header(_rows(stream, name, delimiter), name)


def _header(rows: Iterator[tuple[Place, list[str]]], name: str) -> list[str]:
    _, header = next(rows, (None, None))
    if header is None:
        raise DataError(f"{name!r} is empty.", "Give a file with a header and at least one row.")
    if _EXCEL.fullmatch(",".join(header)):
        raise DataError(
            f"{name!r} begins with a line for Excel, sep=, in place of the columns' names.",
            "Delete that line, and save the file with commas as .csv, or with tabs as .tsv.",
        )
    return header


def _check_separated(header: Sequence[str], name: str, delimiter: str) -> None:
    """Refuse a file of one column that another delimiter would split, where the wanted column is missing."""
    other = next((sign for sign in _SIGNS if sign != delimiter and len(header) == 1 and sign in header[0]), None)
    if other is not None:
        raise DataError(
            f"{name!r} has one column; it looks separated by {_SIGNS[other]}, not by {_SIGNS[delimiter]}.",
            "Save it with commas as .csv, or with tabs as .tsv.",
        )


def _rows(stream: BinaryIO, name: str, delimiter: str) -> Iterator[tuple[Place, list[str]]]:
    """Yield the header as row 0, then the rows."""
    csv.field_size_limit(FIELD_LIMIT)
    reader = csv.reader(_lines(stream, name), delimiter=delimiter, strict=True)
    number = 0
    while True:
        place = Place(number, reader.line_num + 1)
        try:
            row = next(reader, None)
        except csv.Error as error:
            returns = "new-line character" in str(error)  # only the library's words, none of a row
            break
        if row is None:
            return
        yield place, row
        number += 1
    if returns:
        problem = "a carriage return stands alone, as the end of a line or in a field without quotes"
        raise RecordError(Kind.RETURN, name, place, problem, "Save it with line ends of Unix or Windows.")
    problem = f"the quoting is broken, or a field is longer than {FIELD_LIMIT} characters"
    remedy = "Close every quote and double the quotes inside a quoted field, or use JSONL or Parquet."
    raise RecordError(Kind.QUOTE, name, place, problem, remedy)


def _lines(stream: BinaryIO, name: str) -> Iterator[str]:
    for number, line in enumerate(iter(lambda: stream.readline(_LINE_LIMIT + 1), b"")):
        if len(line) > _LINE_LIMIT:
            problem = f"the line is longer than {_LINE_LIMIT} bytes"
            remedy = "Give one record a line, or a delimited file with short fields; leave out what no text needs."
            raise RecordError(Kind.QUOTE, name, Place(number + 1, number + 1), problem, remedy)
        if number == 0:
            _check_begins(line, name)
        text = line.removeprefix(_UTF8_BOM) if number == 0 else line
        yield text.decode("utf-8", "surrogateescape")


def _check_begins(line: bytes, name: str) -> None:
    for signs, problem, remedy in _FOREIGN:
        if line.startswith(signs):
            raise DataError(f"{name!r} {problem}.", remedy)


def _place(header: Sequence[str], column: str | None, name: str) -> int:
    count = 0 if column is None else header.count(column)
    if column is None or count == 0:
        raise MissingColumn(f"{name!r} has no column {column!r}; it has {len(header)} columns.", str(column))
    if count > 1:
        raise DataError(f"{name!r} has {count} columns named {column!r}.", "Rename or drop all but one.")
    return header.index(column)


def _read_json(stream: BinaryIO, name: str, wanted: Sequence[Wanted], bad: Bad, *, values: _Values) -> Cells:
    seen: set[str] | None = None
    for place, row in _objects(values(stream, name), name, bad):
        seen = (seen or set()) | {each.column for each in wanted if each.column in row}
        if missing := [each.column for each in wanted if _lacks(row, each)]:
            remedy = "Give every row the same keys; null stands for empty."
            bad(RecordError(Kind.KEY, name, place, f"no key {missing[0]!r}", remedy, missing[0]))
            continue
        yield place, [row if each.column is None else row.get(each.column) for each in wanted]
    never = [each.column for each in wanted if each.column is not None and each.column not in (seen or ())]
    if seen is not None and never:
        raise MissingColumn(f"{name!r}: no row has the key {never[0]!r}.", never[0])


def _json_names(stream: BinaryIO, name: str, *, values: _Values) -> list[str]:
    return next((list(row) for _, row in _objects(values(stream, name), name, stop)), [])


def _objects(values: Iterator[tuple[Place, Any]], name: str, bad: Bad) -> Iterator[tuple[Place, dict[str, Any]]]:
    for place, value in values:
        if isinstance(value, dict):
            yield place, value
        else:
            problem = "not valid JSON, or a key that occurs twice" if value is _BROKEN else "not a JSON object"
            bad(RecordError(Kind.LINE, name, place, problem, "Write one JSON object per record, a key per column."))


def _line_values(stream: BinaryIO, name: str) -> Iterator[tuple[Place, Any]]:
    first = True
    for number, line in enumerate(_lines(stream, name), start=1):
        if not line.strip():
            continue
        if first and line.lstrip().startswith("["):
            remedy = "Write one JSON object per line, without brackets, or let the name of a list end in .json."
            raise DataError(f"{name!r} begins with a JSON array.", remedy)
        first = False
        yield Place(number, number), _parsed_json(line)


def _list_values(stream: BinaryIO, name: str) -> Iterator[tuple[Place, Any]]:
    """Yield the values of a JSON list up to a broken one; of the file a piece and a value are held."""
    text = io.TextIOWrapper(stream, "utf-8-sig", "surrogateescape")
    held, number = "", 0
    while len(held) <= _LINE_LIMIT and (piece := text.read(max(_PIECE, len(held)))):
        held, at = held + piece, 0
        while sign := (_BEFORE_NEXT if number else _BEFORE_FIRST).match(held, at):
            try:
                value, end = _DECODER.raw_decode(held, sign.end())
            except (ValueError, RecursionError):  # the next piece may have the rest of it
                break
            if end == len(held):  # or more digits
                break
            number, at = number + 1, end
            yield Place(number), value
        held = held[at:]
    if not re.fullmatch(r"\s*\]\s*" if number else r"\s*\[\s*\]\s*", held):
        if number == 0:
            remedy = "Write [, objects with commas between, ], or let the name of lines of JSON end in .jsonl."
            raise DataError(f"{name!r} does not begin as a JSON list of objects.", remedy)
        problem = "not valid JSON, or a key that occurs twice, or no end of the list"
        raise RecordError(Kind.LINE, name, Place(number + 1), problem, "Write one JSON object per record of the list.")


def _lacks(row: dict[str, Any], wanted: Wanted) -> bool:
    return wanted.column is not None and wanted.column not in row and not wanted.optional


def _parsed_json(line: str) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(line, object_pairs_hook=unique_members)
    return _BROKEN


def _read_parquet(stream: BinaryIO, name: str, wanted: Sequence[Wanted], _: Bad) -> Cells:
    file = _parquet_file(stream)
    header = file.schema_arrow.names
    columns_of = [header[_place(header, each.column, name)] for each in wanted]
    _require_no_fractions(file.schema_arrow, columns_of, name)
    batches = file.iter_batches(_BATCH_ROWS, columns=list(dict.fromkeys(columns_of)))
    rows = (zip(*(_values(batch.column(column)) for column in columns_of), strict=True) for batch in batches)
    yield from ((Place(number), row) for number, row in enumerate(chain.from_iterable(rows), 1))


def _require_no_fractions(schema: pa.Schema, columns: Sequence[str], name: str) -> None:
    """Refuse columns of fractions: a column has one type, so one missing value makes all its whole numbers fractions.

    That is a fault of the file's structure and stops, whatever becomes of single records.
    """
    for column in columns:
        kind = schema.field(column).type
        if pa.types.is_floating(kind.value_type if pa.types.is_dictionary(kind) else kind):
            raise DataError(
                f"Column {column!r} of {name} holds numbers with a point, and neither texts nor whole numbers.",
                "Write the column as text. A table that has one empty cell turns whole numbers into such.",
            )


def _parquet_names(stream: BinaryIO, _: str) -> list[str]:
    return list(_parquet_file(stream).schema_arrow.names)


def _parquet_file(stream: BinaryIO) -> pq.ParquetFile:
    # Parquet is read from its end, which a gzip stream cannot do; and no private copy may touch the disk.
    if not isinstance(stream, gzip.GzipFile):
        return pq.ParquetFile(stream)
    whole = stream.read(_UNPACKED + 1)
    if len(whole) > _UNPACKED:
        raise DataError("A gzipped Parquet file unpacks to more than it may.", "Unpack it: Parquet is packed already.")
    return pq.ParquetFile(pa.BufferReader(whole))


# Arrow does not check that its strings are UTF-8.
_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}
_NO_VALUE = (pa.ArrowException, ValueError, ArithmeticError, LookupError)  # a date past all calendars, bytes in a list


def _values(column: pa.Array) -> list[Any]:
    if pa.types.is_dictionary(column.type):
        names = column.dictionary
        binary = _BYTES.get(names.type)
        words = names if binary is None else names.cast(binary)
        column = pa.DictionaryArray.from_arrays(column.indices, words).dictionary_decode()
    else:
        binary = _BYTES.get(column.type)
        column = column if binary is None else column.cast(binary)
    values = _to_values(column)
    if binary is None:
        return values
    return [None if raw is None else raw.decode("utf-8", "surrogateescape") for raw in values]


def _to_values(column: pa.Array) -> list[Any]:
    """Return the cells as Python values; a cell that has none is no text and no number, and is refused by itself."""
    with suppress(*_NO_VALUE):
        return list(column.to_pylist())
    return [_cell(cell) for cell in column]


def _cell(cell: pa.Scalar) -> Any:
    with suppress(*_NO_VALUE):
        return cell.as_py()
    return _BROKEN


_LINES, _LIST = (
    _Format(partial(_read_json, values=values), partial(_json_names, values=values), whole=True)
    for values in (_line_values, _list_values)
)
_FORMATS: dict[str, _Format] = {
    ".csv": _Format(partial(_read_delimited, delimiter=","), partial(_delimited_names, delimiter=",")),
    ".tsv": _Format(partial(_read_delimited, delimiter="\t"), partial(_delimited_names, delimiter="\t")),
    ".jsonl": _LINES,
    ".ndjson": _LINES,
    ".json": _LIST,
    ".parquet": _Format(_read_parquet, _parquet_names),
}
