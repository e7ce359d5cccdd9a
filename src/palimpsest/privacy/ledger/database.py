"""The database of the ledger's tables: a SQLite file that only its owner may read, or a PostgreSQL server."""

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from palimpsest.errors import LedgerError

_ADDRESS = (
    "Set PALIMPSEST_LEDGER to sqlite:////absolute/path, or to postgresql+psycopg://user@host/database with the extra "
    "palimpsest[postgres] installed."
)

_TURN = 0x70616C696D707365  # the number of the lock that one writer at a time holds

meta = sa.MetaData()
assets = sa.Table(
    "palimpsest_asset",
    meta,
    sa.Column("name", sa.String(200), primary_key=True),
    sa.Column("key", sa.String(64), nullable=False),
)
entries = sa.Table(
    "palimpsest_entry",
    meta,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("asset", sa.String(200), nullable=False, index=True),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("charge", sa.String(32), nullable=True, index=True),
    sa.Column("time", sa.String(40), nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("previous", sa.String(64), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
)
answers = sa.Table(
    "palimpsest_answer",
    meta,
    sa.Column("charge", sa.String(32), primary_key=True),
    sa.Column("body", sa.Text, nullable=False),
)


_versions = sa.Table("palimpsest_version", meta, sa.Column("version_num", sa.String(32), primary_key=True))
_REVISION = "0001"  # of these tables; a change of them is another one


def prepare(engine: Engine) -> None:
    """Create the tables where there are none: all of them, or nothing.

    Raises:
        LedgerError: there are some, of another revision.
    """
    with engine.execution_options(immediate=True).begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_TURN)))
        if not tables_exist(connection):
            meta.create_all(connection)
            connection.execute(_versions.insert().values(version_num=_REVISION))


def tables_exist(connection: Connection) -> bool:
    """Return whether the tables exist; if they do, this version reads them.

    Raises:
        LedgerError: they are of another revision, or say none.
    """
    there = sa.inspect(connection)
    if not there.has_table(entries.name):
        return False
    found = connection.scalar(sa.select(_versions.c.version_num)) if there.has_table(_versions.name) else None
    if found != _REVISION:
        raise LedgerError(
            f"The ledger's tables are of revision {found!r}; this version of palimpsest reads {_REVISION!r}.",
            "Install the newest version of palimpsest that was used with this ledger, or restore it from a backup if "
            "it was changed by hand; nothing was read or charged now.",
        )
    return True


def reading_error(place: str, error: Exception) -> LedgerError:
    """Return the error of a ledger that cannot be read."""
    return _busy_error(place, error) or LedgerError(
        f"The ledger at {place} cannot be read ({type(error).__name__}).",
        "Check the file's permissions or the database's address. Reading writes beside a SQLite file: if its disk "
        "cannot be written, copy it and the files beside it to one that can. If it is damaged, restore it from a "
        "backup.",
    )


def writing_error(place: str, error: Exception) -> LedgerError:
    """Return the error of a ledger that could not be written."""
    return _busy_error(place, error) or LedgerError(
        f"The ledger at {place} could not be written ({type(error).__name__}).",
        "Check its permissions and the free space of its disk; nothing was charged by this step.",
    )


def creation_error(place: str, error: Exception, *, there: bool) -> LedgerError:
    """Return why there is no ledger to work with; another place is a remedy only where there was no file yet.

    A ledger elsewhere would not know what the existing one has spent.
    """
    if there:
        return _busy_error(place, error) or LedgerError(
            f"The ledger at {place} is there and cannot be opened ({type(error).__name__}).",
            "Check its permissions and the free space of its disk; restore it from a backup if it is damaged.",
        )
    return LedgerError(
        f"The ledger at {place} cannot be created ({type(error).__name__}).",
        "Check that the place exists and can be written, or set PALIMPSEST_LEDGER to another one.",
    )


def _busy_error(place: str, error: Exception) -> LedgerError | None:
    """Return the error where another process kept its turn for longer than the wait; None for anything else."""
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", None) or 0
    if code & 0xFF != sqlite3.SQLITE_BUSY:  # the other bits say of what kind
        return None
    return LedgerError(
        f"The ledger at {place} is busy: another process is writing it.",
        "Wait for that process, and try again; nothing was charged by this step.",
    )


def sqlite_path(url: str) -> Path | None:
    """Return the file of a SQLite URL, None for another database."""
    try:
        parsed = sa.make_url(url)
    except SQLAlchemyError:
        raise LedgerError("The ledger's address is not a database URL.", _ADDRESS) from None
    if parsed.get_backend_name() != "sqlite":
        return None
    path = Path(parsed.database or "")
    if not path.is_absolute():
        # A path relative to the working directory, or memory, would be a fresh, empty ledger in every other process.
        raise LedgerError(f"The ledger's address {hide_password(url)} is not an absolute path.", _ADDRESS)
    return path


def file_exists(path: Path) -> bool:
    """Whether a file is there; an error of the disk is one of reading the ledger."""
    try:
        return path.is_file()
    except OSError as error:
        raise reading_error(str(path), error) from None


def make_private(path: Path) -> None:
    """Make the file readable only by its owner, because it holds the assets' keys; leave an existing file as it is.

    Opening and closing a database that this process is connected to would drop the locks of that connection (POSIX
    locks belong to the process), and another process could then damage it.
    """
    if not path.exists():
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def hide_password(url: str) -> str:
    """Return the address without its password and its options, since an option may hold a password."""
    return sa.make_url(url).set(query={}).render_as_string(hide_password=True)


def make_engine(url: str) -> Engine:
    """Return the engine of an address; a SQLite file is written durably and by one transaction at a time."""
    of_file = sa.make_url(url).get_backend_name() == "sqlite"
    level = {} if of_file else {"isolation_level": "READ COMMITTED"}  # a writer sees all earlier turns
    try:
        engine = sa.create_engine(url, pool_pre_ping=True, **level)  # a server that was restarted is found again
    except ImportError:
        raise LedgerError(f"The driver for {hide_password(url)} is not installed.", _ADDRESS) from None
    if of_file:
        sa.event.listen(engine, "connect", _set_durable)
        sa.event.listen(engine, "begin", _begin)
    return engine


def use_snapshot(engine: Engine) -> Engine:
    """Return the engine for a transaction whose reads all see the same ledger, as those of SQLite do anyway."""
    return engine if engine.dialect.name == "sqlite" else engine.execution_options(isolation_level="REPEATABLE READ")


def take_turn(connection: Connection) -> None:
    """Wait until no other transaction writes the ledger; this one's turn ends with it. SQLite's began with `_begin`.

    Any role may take this lock; a role that may only add to a table may not lock the table.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_TURN)))


def _set_durable(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # SQLAlchemy then leaves BEGIN to `_begin`
    for setting in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=60000"):
        connection.execute(f"PRAGMA {setting}")


def _begin(connection: Connection) -> None:
    writing = connection.get_execution_options().get("immediate", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")
