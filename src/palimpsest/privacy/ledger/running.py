"""One process per run: a lock on the run's key, held from before its charges are reserved until its books are closed.

The operating system or the server gives the lock back when the process dies, so that a killed run leaves none behind.
A child made by fork does not keep it: the lock is its parent's alone.
"""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.exc import SQLAlchemyError

from palimpsest.errors import LedgerError
from palimpsest.files import make_folder
from palimpsest.privacy.ledger.database import unreadable

_held: set[int] = set()  # descriptors that keep this process's locks


def _let_go() -> None:
    """In a forked child: close its copies, which would keep the locks of a parent that died."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go)


@contextmanager
def alone(engine: Engine, place: str, asset: str, run_key: str) -> Iterator[None]:
    """Hold a run of an asset while the block lasts.

    Raises:
        LedgerError: another process, or another thread of this one, holds it; or it cannot be locked here.
    """
    name = hashlib.sha256(f"{asset}\0{run_key}".encode()).hexdigest()
    if engine.dialect.name == "sqlite":
        path = Path(engine.url.database or "").resolve()
        lock = _file_lock(path.with_name(f"{path.name}.running") / name)
    else:
        lock = _server_lock(engine, place, int.from_bytes(bytes.fromhex(name[:16]), signed=True))
    with lock:
        yield


@contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    try:
        make_folder(path.parent)
        descriptor = _locked(path)
    except OSError as error:
        raise LedgerError(
            f"The folder {str(path.parent)!r} beside the ledger cannot be written ({type(error).__name__}).",
            "Make it writable for you; nothing was charged by this step.",
        ) from None
    _held.add(descriptor)
    try:
        yield
    finally:
        if descriptor in _held:  # and not in a child that ran out of the block
            _held.remove(descriptor)
            path.unlink(missing_ok=True)
            os.close(descriptor)


def _locked(path: Path) -> int:
    """A descriptor of the file that lies at the path and is locked: one removed meanwhile is opened anew."""
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise _busy() from None
        except FileNotFoundError:
            pass
        os.close(descriptor)


@contextmanager
def _server_lock(engine: Engine, place: str, number: int) -> Iterator[None]:
    """An advisory lock of PostgreSQL, on a connection of its own that ends with it."""
    try:
        connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        free = connection.scalar(sa.select(sa.func.pg_try_advisory_lock(number)))
        descriptor = connection.connection.dbapi_connection.fileno()  # type: ignore[union-attr]
    except SQLAlchemyError as error:
        raise unreadable(place, error) from None
    _held.add(descriptor)
    try:
        if not free:
            raise _busy()
        yield
    finally:
        if descriptor in _held:
            _held.remove(descriptor)
            connection.invalidate()
            connection.close()


def _busy() -> LedgerError:
    return LedgerError(
        "Another process is at this run: the same stage, settings, data and code.",
        "Wait for it to end, or end it, and run again; nothing was reserved or given back now.",
    )
