"""The wanted cells of a CSV, TSV, JSONL or Parquet file, row by row, plain or gzipped.

Messages name the file, the wanted column and the row number. They never name the file's own columns: where the
header is missing, the first row stands in its place, and that row is private. Every error is raised outside the
handler that found it, so that no library exception holding a row is chained to it.
"""

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from palimpsest.errors import DataError
from palimpsest.records.structured import unique


@dataclass(frozen=True)
class Wanted:
    """What is read of every row.

    Attributes:
        column: the column's name; None for the whole row, which only JSONL has.
        optional: True where a JSON line without the key stands for null, as long as any line has it.
    """

    column: str | None
    optional: bool = False


Cells = Iterator[tuple[int, Sequence[Any]]]
Reader = Callable[[BinaryIO, str, Sequence[Wanted]], Cells]

# A field beyond this is a quote that was never closed, not a text.
FIELD_LIMIT = 1 << 28
_BATCH_ROWS = 4096
_UTF8_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")

_DAMAGED_GZIP = (EOFError, zlib.error, gzip.BadGzipFile)
# What keeps a file from being read, the special before the general -> what is said of it.
_FAILURES: tuple[tuple[tuple[type[Exception], ...], str, str], ...] = (
    ((FileNotFoundError, NotADirectoryError), "does not exist", "Check the path in params.yaml, dataset section."),
    ((PermissionError,), "may not be read", "Give this user permission to read the file."),
    (_DAMAGED_GZIP, "is not a whole gzip file", "Copy the file again, or compress it again."),
    ((pa.ArrowException,), "is not a whole Parquet file", "Copy the file again, or write it again."),
    ((OSError,), "cannot be read", "Check the disk, and that the file is whole."),
)


def cells(path: Path, wanted: Sequence[Wanted]) -> Cells:
    """Yield (row number, one cell per wanted thing) for every row of the file.

    Row numbers start at 1, blank lines count, the header of a CSV or TSV does not. Bytes that are not UTF-8 come back
    as lone surrogates, for the caller to refuse in the cells it uses. At most one row and one batch are held.

    Args:
        path: the file; its format is read from its suffix (.csv, .tsv, .jsonl, .parquet, each also with .gz).
        wanted: the columns to read.

    Raises:
        DataError: the file is missing, unreadable, empty, damaged, or malformed at a row.
    """
    reader = _reader(path)
    if reader is not _json_lines and any(each.column is None for each in wanted):
        raise DataError(
            f"{path.name!r} is not JSONL, and only there is a row a record.",
            "Write one JSON object per line, or name the column that holds each record's JSON text.",
        )
    with _explained(path.name):
        _check_regular(path)
        with _opened(path) as stream:
            yield from reader(stream, path.name, wanted)


def _reader(path: Path) -> Reader:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    plain = suffixes[:-1] if _is_gzipped(path) else suffixes
    reader = _READERS.get(plain[-1]) if plain else None
    if reader is None:
        raise DataError(
            f"The format of {path.name!r} is not known.",
            f"Use a file whose name ends in {', '.join(_READERS)}, each alone or followed by .gz.",
        )
    return reader


def _is_gzipped(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _check_regular(path: Path) -> None:
    # stat() first: it says which of "missing" and "not allowed" holds, where is_file() says False to both.
    path.stat()
    if not path.is_file():
        raise DataError(f"{path.name!r} is not a regular file.", "Name one data file.")


def _opened(path: Path) -> Any:
    return gzip.open(path, "rb") if _is_gzipped(path) else path.open("rb")


@contextmanager
def _explained(name: str) -> Iterator[None]:
    failure = None
    try:
        yield
    except tuple(kind for kinds, *_ in _FAILURES for kind in kinds) as error:
        problem, remedy = next(words for kinds, *words in _FAILURES if isinstance(error, kinds))
        failure = DataError(f"{name!r} {problem}.", remedy)
    if failure is not None:
        raise failure


def _delimited(stream: BinaryIO, name: str, wanted: Sequence[Wanted], *, delimiter: str) -> Cells:
    csv.field_size_limit(FIELD_LIMIT)
    rows = _parsed(csv.reader(_lines(stream, name), delimiter=delimiter, strict=True), name)
    _, header = next(rows, (0, None))
    if header is None:
        raise DataError(f"{name!r} is empty.", "Give a file with a header and at least one row.")
    places = [_place(header, each.column, name) for each in wanted]
    for number, row in rows:
        if row and len(row) != len(header):
            raise DataError(
                f"{name!r}, row {number}: {len(row)} fields, and the header has {len(header)}.",
                "Give every row as many fields as the header; quote a field that contains the delimiter.",
            )
        if row:
            yield number, [row[place] for place in places]


def _parsed(reader: Iterator[list[str]], name: str) -> Iterator[tuple[int, list[str]]]:
    number = 0
    while True:
        try:
            row = next(reader, None)
        except csv.Error:
            break
        if row is None:
            return
        yield number, row
        number += 1
    raise DataError(
        f"{name!r}, row {number}: the quoting is broken, or a field is longer than {FIELD_LIMIT} characters.",
        "Close every quote and double the quotes inside a quoted field, or use JSONL or Parquet.",
    )


def _lines(stream: BinaryIO, name: str) -> Iterator[str]:
    for number, line in enumerate(stream):
        if number == 0 and line.startswith(_UTF16_BOMS):
            raise DataError(f"{name!r} is UTF-16.", "Save it as UTF-8.")
        text = line.removeprefix(_UTF8_BOM) if number == 0 else line
        yield text.decode("utf-8", "surrogateescape")


def _place(header: Sequence[str], column: str | None, name: str) -> int:
    count = 0 if column is None else header.count(column)
    if column is None or count == 0:
        raise DataError(
            f"{name!r} has no column {column!r}; it has {len(header)} columns.",
            "Check the column names in params.yaml, dataset section, and that the file names its columns.",
        )
    if count > 1:
        raise DataError(f"{name!r} has {count} columns named {column!r}.", "Rename or drop all but one.")
    return header.index(column)


def _json_lines(stream: BinaryIO, name: str, wanted: Sequence[Wanted]) -> Cells:
    seen: set[str] = set()
    for number, line in enumerate(_lines(stream, name), start=1):
        if line.strip():
            row = _object(line, f"{name!r}, row {number}")
            seen |= {each.column for each in wanted if each.column in row}
            yield number, [_member(row, each, f"{name!r}, row {number}") for each in wanted]
    never = [each.column for each in wanted if each.optional and each.column not in seen]
    if seen and never:
        raise DataError(
            f"{name!r}: no row has the key {never[0]!r}.", "Check the column names in params.yaml, dataset section."
        )


def _object(line: str, where: str) -> dict[str, Any]:
    value = _parsed_json(line, where)
    if not isinstance(value, dict):
        raise DataError(f"{where}: not a JSON object.", "Write one object per line, a key per column.")
    return value


def _member(row: dict[str, Any], wanted: Wanted, where: str) -> Any:
    if wanted.column is None:
        return row
    if wanted.column not in row and not wanted.optional:
        raise DataError(f"{where}: no key {wanted.column!r}.", "Give every row the same keys; null stands for empty.")
    return row.get(wanted.column)


def _parsed_json(line: str, where: str) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(line, object_pairs_hook=unique)
    raise DataError(f"{where}: not valid JSON, or a key that occurs twice.", "Write one JSON object per line.")


def _parquet(stream: BinaryIO, name: str, wanted: Sequence[Wanted]) -> Cells:
    # Parquet is read from its end, which a gzip stream cannot do; and no private copy may touch the disk.
    source = pa.BufferReader(stream.read()) if isinstance(stream, gzip.GzipFile) else stream
    file = pq.ParquetFile(source)
    names = file.schema_arrow.names
    columns_of = [names[_place(names, each.column, name)] for each in wanted]
    batches = file.iter_batches(_BATCH_ROWS, columns=list(dict.fromkeys(columns_of)))
    rows = (zip(*(_values(batch.column(column)) for column in columns_of), strict=True) for batch in batches)
    yield from enumerate(chain.from_iterable(rows), 1)


def _values(column: pa.Array) -> list[Any]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    # Arrow does not check that its strings are UTF-8.
    binary = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}.get(column.type)
    if binary is None:
        return column.to_pylist()
    return [None if raw is None else raw.decode("utf-8", "surrogateescape") for raw in column.cast(binary).to_pylist()]


_READERS: dict[str, Reader] = {
    ".csv": partial(_delimited, delimiter=","),
    ".tsv": partial(_delimited, delimiter="\t"),
    ".jsonl": _json_lines,
    ".parquet": _parquet,
}
