"""Copying a table from where it lies: an address that fsspec knows, a query of a database, a sheet of Excel.

Errors are raised outside the handlers that found them, because what libraries raise may hold rows and passwords.
"""

import json
import re
import shutil
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa

from palimpsest.errors import DataError, machine_error
from palimpsest.records.formats import require_known

_SHEET, _BATCH_ROWS, _BLOCK = ".xlsx", 4096, 1 << 23
# What file systems say of a file's version, in small letters.
_VERSION = ("etag", "versionid", "last_commit", "blob_id", "generation", "content-md5", "last-modified", "mtime")
_PACKAGES = {"psycopg": "'palimpsest[postgres]'", "pymysql": "'pymysql[rsa]'"}  # pip has other names for modules
_REFUSED = "PermissionError|Credentials| 40[137] |authentication|password|access denied|role .* does not exist"
# Signs of an error (of a query; its class, a status, a database's words) -> problem and remedy.
_FAILURES = (
    ("^query", "has no such table, or refuses the query", "Try the query in the database's own client."),
    ("FileExpired", "changed while it was being read", "Let nothing write to it, and try again."),
    (_REFUSED, "may not be read with these credentials", "Give others in the environment, and permission to read."),
    ("FileNotFound| 404 |does not exist|unable to open", "does not exist", "Correct it; it may need credentials, too."),
    ("NoSuchModule|Argument", "is no known address", "Use s3://, gs://, hf://, https://, postgresql:// or sqlite:///."),
    ("Calamine|Xml|Zip", "is no whole workbook of Excel", "Save it again, without a password."),
    ("", "cannot be reached, or the connection broke", "Check address, network and server, and try again."),
)


def is_address(named: Path | str) -> bool:
    """Return whether a name is an address, not a path."""
    return "://" in str(named)


def _is_database(named: Path | str) -> bool:
    from fsspec import available_protocols  # slow to import, and most commands copy nothing

    return is_address(named) and str(named).partition("://")[0] not in available_protocols()


def describe(named: Path | str) -> str:
    """Return an address without its user, password, options and query; a path as it is."""
    scheme, sign, rest = str(named).partition("://")
    if re.match(r"[^/?#]*:[^/?#]*[/?#].*@", rest, re.DOTALL):  # a password may have such a sign
        return f"{scheme}{sign}..."
    return scheme + sign + re.sub(r"^[^/?#]*@|[?#].*", "", rest, flags=re.DOTALL)


def describe_origin(named: Path | str) -> dict[str, str]:
    """Return what a name says of a table: its place, and the query of a database."""
    query = {"query": str(named).partition("#")[2]} if _is_database(named) else {}
    return {"from": describe(named if is_address(named) else Path(named).resolve()), **query}


def copied_suffix(named: Path | str) -> str | None:
    """Return the suffix of a table's copy, None for a file that is read where it is; DataError for another format."""
    path = Path(describe(named).lower())
    if _is_database(named) or path.suffix == _SHEET:
        return ".parquet"
    if not is_address(named):
        return None
    require_known(path)
    return "".join(path.suffixes[-2:] if path.suffix == ".gz" else path.suffixes[-1:])


def copy(named: Path | str, draft: Path) -> dict[str, Any]:
    """Copy a table, and return its place, version or query, the time, and the bytes of the copy.

    A block of bytes or a batch of rows is held, of a sheet all of it. Whatever goes wrong is a DataError.
    """
    time = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        version = _copy_query(str(named), draft) if _is_database(named) else _copy_file(named, draft)
        failure = None
    except Exception as error:  # each driver and file system has its own
        failure = error if isinstance(error, DataError) else machine_error(error) or _explain(error, named)
    if failure is not None:
        raise failure
    return {**describe_origin(named), **version, "time": time, "bytes": draft.stat().st_size}


def _copy_file(named: Path | str, draft: Path) -> dict[str, str]:
    """Copy a file, a sheet as Parquet, and return the version that its file system says."""
    from aiohttp import ClientTimeout
    from fsspec import get_filesystem_class

    client = {"trust_env": True, "timeout": ClientTimeout(total=None, sock_connect=60, sock_read=300)}
    web = {"encoded": True, "client_kwargs": client}
    streamed: dict[str, dict[str, Any]] = {"http": web, "https": web, "hf": {"expand_info": True}}  # with the commit
    scheme = str(named).partition("://")[0] if is_address(named) else "file"
    files = get_filesystem_class(scheme)(**streamed.get(scheme, {}), skip_instance_cache=True)
    before, sheet = _version(files, str(named)), describe(named).lower().endswith(_SHEET)
    place, block = draft.with_suffix(_SHEET) if sheet else draft, 0 if scheme in streamed else _BLOCK
    with files.open(str(named), "rb", block_size=block) as stream, place.open("wb") as file:
        shutil.copyfileobj(stream, file, _BLOCK)
    if _version(files, str(named)) != before or before.pop("size", None) not in (None, str(place.stat().st_size)):
        raise DataError(f"{describe(named)} {_FAILURES[1][1]}.", _FAILURES[1][2])
    if sheet:
        _write_sheet(place, draft)
    return before


def _version(files: Any, named: str) -> dict[str, str]:
    files.invalidate_cache()
    found = {name.lower(): value for name, value in files.info(named).items()}
    return {name: str(getattr(found[name], "oid", found[name])) for name in (*_VERSION, "size") if found.get(name)}


def _copy_query(address: str, draft: Path) -> dict[str, str]:
    """Write the rows of a query, all of one state of the database, in which nothing is written."""
    database, _, wanted = address.partition("#")
    if not wanted:
        remedy = "End it with # and a table's name or a query: 'postgresql://host/database#tickets'."
        raise DataError(f"{describe(address)} is a database, and no table of it is named.", remedy)
    database = re.sub(r"^postgres(ql)?://", "postgresql+psycopg://", database)
    database = re.sub(r"^(mysql|mariadb)://", r"\1+pymysql://", database)  # in Python alone: no library to compile
    database = re.sub(r"^sqlite(\+pysqlite)?:///([^?]*).*", r"sqlite:///file:\2?mode=ro&uri=true", database)
    engine = sa.create_engine(database, poolclass=sa.NullPool)
    if not re.search(r"\s", wanted):
        wanted = f"SELECT * FROM {wanted}"
    snapshot = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    options = snapshot if engine.dialect.name == "postgresql" else {}
    with engine.connect() as connection:
        connection.execution_options(stream_results=True, max_row_buffer=_BATCH_ROWS, no_parameters=True, **options)
        if engine.dialect.name in ("mysql", "mariadb"):
            connection.exec_driver_sql("SET TRANSACTION READ ONLY")  # MyISAM would keep what a rollback takes back
        found = connection.exec_driver_sql(wanted)
        _write(list(found.keys()), found.partitions(_BATCH_ROWS), draft)
    return {}


def _write_sheet(path: Path, draft: Path) -> None:
    """Write the first sheet of a workbook; its first row has the names, and empty rows are none."""
    from python_calamine import CalamineWorkbook

    with CalamineWorkbook.from_path(path) as book:
        rows = (row for row in book.get_sheet_by_index(0).iter_rows() if any(cell != "" for cell in row))
        _write(list(map(str, next(rows, []))), iter(lambda: list(islice(rows, _BATCH_ROWS)), []), draft)


def _write(names: Sequence[str], batches: Iterable[Sequence[Sequence[Any]]], path: Path) -> None:
    """Write rows as Parquet, every value as text."""
    schema = pa.schema([(name, pa.large_string()) for name in names])
    with pq.ParquetWriter(path, schema) as writer:
        for rows in batches:
            cells = (pa.array(map(_spell, column), pa.large_binary()) for column in zip(*rows, strict=True))
            columns = [column.view(pa.large_string()) for column in cells]  # which does not ask for UTF-8
            writer.write_table(pa.table(columns, schema=schema))


def _spell(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False)
    elif isinstance(value, float) and value.is_integer():  # as a sheet has whole numbers
        value = int(value)
    return str(value).encode("utf-8", "surrogatepass")


def _explain(error: Exception, named: Path | str) -> DataError:
    """Return what kept a table from being copied, in words that hold nothing of it."""
    said, cause = describe(named), error.__cause__
    if isinstance(error, ImportError):
        package = str(getattr(cause or error, "name", None))
        remedy = f"Install it: pip install {_PACKAGES.get(package, package)}."
        return DataError(f"{said} needs the package {package}, which is not installed.", remedy)
    if isinstance(cause, Exception) and said.startswith("http"):
        error = cause  # fsspec calls whatever goes wrong there a file that is not found
    asked = getattr(error, "statement", None) is not None and not getattr(error, "connection_invalidated", False)
    status = getattr(error, "status", getattr(getattr(error, "response", None), "status_code", None))
    words, error = getattr(error, "orig", ""), getattr(error, "orig", None) or error
    signs = f"{'query' * asked} {type(error).__name__} {status} {words}"
    problem, remedy = next(told for sign, *told in _FAILURES if re.search(sign, signs, re.IGNORECASE))
    return DataError(f"{said} {problem} ({type(error).__name__}).", remedy)
