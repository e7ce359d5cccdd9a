"""Reading and writing the ledger: whole transactions, checked against what was noted of it elsewhere.

Each entry carries the hash of the one before, so a changed or removed entry shows; that the newest were removed, or all
hashes made anew, shows against hashes noted elsewhere (`witness`). Nothing is read out of a ledger, and nothing
reserved in it, before both were checked.

Only one process at a time works on a run (`Store.lock_run`). The operating system or the server releases that lock when
the process dies, so that a killed run leaves none behind. A forked child does not keep it: it belongs to its parent.
"""

import fcntl
import hashlib
import json
import os
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from palimpsest.errors import LedgerError
from palimpsest.files import make_folder
from palimpsest.privacy.gaussian_share import Share
from palimpsest.privacy.ledger import books, chain, database, reader
from palimpsest.privacy.ledger.books import Books
from palimpsest.privacy.ledger.chain import Chain, Entry
from palimpsest.privacy.ledger.database import answers, assets, entries
from palimpsest.privacy.ledger.exported import Exported
from palimpsest.privacy.ledger.records import Asset, Charge, Run, Standing, digest_of
from palimpsest.privacy.ledger.rules import check_move
from palimpsest.privacy.ledger.witness import Head, Witnesses
from palimpsest.privacy.planned import PlannedQuery

_held: set[int] = set()  # descriptors that keep this process's locks


@dataclass(frozen=True)
class Store:
    """The place of a ledger's tables, and of the notes of its heads.

    Attributes:
        place: its address, without a password.
    """

    engine: Engine
    place: str
    witnesses: Witnesses

    @classmethod
    def create(cls, url: str) -> "Store":
        """See `Ledger.create`."""
        path = database.sqlite_path(url)
        there = path is not None and database.file_exists(path)
        try:
            if path is not None:
                make_folder(path.parent)
                database.make_private(path)
            engine = database.make_engine(url)
            database.prepare(engine)
        except (OSError, SQLAlchemyError) as error:
            raise database.creation_error(database.hide_password(url), error, there=there) from None
        return cls(engine, database.hide_password(url), Witnesses.locate(path))

    @classmethod
    def open(cls, url: str) -> "Store":
        """See `Ledger.open`."""
        path = database.sqlite_path(url)
        if path is not None and not database.file_exists(path):
            raise LedgerError(
                f"There is no ledger at {database.hide_password(url)}.",
                "If this data set never had one, create it with `palimpsest register`; if it had, restore it or set "
                "PALIMPSEST_LEDGER to its place: without it nobody knows what has been spent.",
            )
        try:
            engine = database.make_engine(url)
            with engine.connect() as connection:
                connection.execute(sa.select(sa.func.count()).select_from(entries))
                connection.execute(sa.select(sa.func.count()).select_from(assets))
                database.tables_exist(connection)
        except SQLAlchemyError as error:
            raise database.reading_error(database.hide_password(url), error) from None
        return cls(engine, database.hide_password(url), Witnesses.locate(path))

    def books(self, witnesses: Collection[str] = ()) -> Books:
        """See `Ledger.books`. The notes are read first, because entries are noted after they are written."""
        with self._read_transaction() as connection:
            noted = self.read_heads(connection)
        with self._read_transaction() as connection:
            return self.check_against_heads(chain.read(connection), witnesses, noted)

    def unchecked_books(self) -> Books:
        """Return the books with their chain recomputed but checked against nothing else: only for comparing."""
        with self._read_transaction() as connection:
            return Books(chain.read(connection), self.place, self.witnesses)

    def read_heads(self, connection: Connection) -> list[Head]:
        """Return the heads in the owner's files, both where they are noted now and where the ledger says they were.

        Guarantee: on the machine where a data set was registered, neither another PALIMPSEST_WITNESSES nor another home
        leads away from what was noted there, as long as that folder lies there.
        """
        lineages = [digest_of(str(key)) for key in connection.scalars(sa.select(assets.c.key))]
        said = [reader.body_of(entry) or {} for entry in chain.read_kind(connection, "register")]
        folders = {self.witnesses.folder, *(Path(body["noted_in"]) for body in said if _is_path(body.get("noted_in")))}
        return [head for folder in folders for each in lineages for head in Witnesses(folder).heads(each)]

    def check_against_heads(self, known: Chain, witnesses: Collection[str], noted: Collection[Head]) -> Books:
        """Return the books of a chain; LedgerError where it lacks an entry that was noted elsewhere."""
        if missing := known.count_missing(witnesses, noted):
            raise LedgerError(
                f"The ledger at {self.place} lacks {missing} of the entries that were noted elsewhere: in the "
                f"workspace's receipts or in {str(self.witnesses.folder)!r}.",
                "An old copy was put back, or it was changed: restore the newest one; nothing may be charged or "
                "released on this one. If that is lost, remove the receipts, begin another ledger elsewhere with "
                "`palimpsest register --lost`, and make all anew with `dvc repro --force`.",
            )
        return Books(known, self.place, self.witnesses)

    @contextmanager
    def write(self) -> Iterator["Transaction"]:
        """Open one transaction that no other writer can interleave with; then note what it wrote outside the ledger.

        Registrations and the likenesses of rows are not noted: a ledger that never charged may be removed.
        """
        with ExitStack() as files:
            with self._write_transaction() as connection:
                before = chain.read_newest(connection)
                yield Transaction(self, connection)
                last = chain.read_newest(connection)
                note = files.enter_context(self._open_note(connection, last)) if last and last != before else None
                self._commit(connection, last)
            if last and note is not None:
                note(last.head)

    def _commit(self, connection: Connection, last: Entry | None) -> None:
        """Commit; after an error, look whether the commit was done: the connection may have died after it.

        Guarantee: it ends well where the entries are in the chain, and "nothing was charged" is said where they are
        not. The turn of a transaction that the server is still at is waited for.
        """
        try:
            connection.commit()
        except SQLAlchemyError:
            connection.invalidate()
            if last is None or not self._is_written(last):
                raise

    def _is_written(self, entry: Entry) -> bool:
        try:
            with self.engine.execution_options(immediate=True).connect() as connection:
                database.take_turn(connection)
                return chain.holds(connection, entry)
        except SQLAlchemyError as error:
            raise LedgerError(
                f"The ledger at {self.place} was lost while it wrote ({type(error).__name__}): whether this step was "
                "charged is not known here.",
                "Run again once it can be reached: what was charged is found there, and nothing is charged a second "
                "time without your word.",
            ) from None

    def _open_note(self, connection: Connection, last: Entry) -> AbstractContextManager[Callable[[Head], None] | None]:
        if last.kind in ("register", books.ROWS):
            return nullcontext()
        key = connection.scalars(sa.select(assets.c.key).where(assets.c.name == last.asset)).one()
        return self.witnesses.open_note(last.asset, digest_of(str(key)))

    @contextmanager
    def lock_run(self, asset: str, run_key: str) -> Iterator[None]:
        """See `Ledger.lock_run`."""
        name = hashlib.sha256(f"{asset}\0{run_key}".encode()).hexdigest()
        if self.engine.dialect.name == "sqlite":
            path = Path(self.engine.url.database or "").resolve()
            lock = _file_lock(path.with_name(f"{path.name}.running") / name)
        else:
            lock = _server_lock(self.engine, self.place, int.from_bytes(bytes.fromhex(name[:16]), signed=True))
        with lock:
            yield

    @contextmanager
    def _read_transaction(self) -> Iterator[Connection]:
        try:
            with database.use_snapshot(self.engine).connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise database.reading_error(self.place, error) from None

    @contextmanager
    def _write_transaction(self) -> Iterator[Connection]:
        try:
            with self.engine.execution_options(immediate=True).connect() as connection:
                database.take_turn(connection)
                yield connection
        except SQLAlchemyError as error:
            raise database.writing_error(self.place, error) from None


@dataclass(frozen=True)
class Transaction:
    """One transaction that writes; its methods run inside it."""

    store: Store
    connection: Connection

    def books(self, witnesses: Collection[str] = ()) -> Books:
        """Return the whole ledger as this transaction sees it, checked."""
        return self.store.check_against_heads(
            chain.read(self.connection), witnesses, self.store.read_heads(self.connection)
        )

    def export(self) -> Exported:
        """Return all that the ledger holds, checked."""
        rows = self.connection.execute(sa.select(answers))
        return Exported(self.books().chain, {row.charge: row.body for row in rows})

    def take_in(self, ledger: Exported) -> Books:
        """Write a whole ledger into an empty one; return its books as they are read back, checked."""
        if self.connection.scalar(sa.select(sa.func.count()).select_from(assets)) or chain.read_newest(self.connection):
            raise LedgerError(
                f"The ledger at {self.store.place} holds entries already; two ledgers are never merged.",
                "Set PALIMPSEST_LEDGER to an empty place. `palimpsest ledger merge-check` says where two part.",
            )
        rows = {
            assets: [{"name": name, "key": key} for name, key in ledger.chain.keys.items()],
            entries: [asdict(entry) for entry in ledger.chain.entries],
            answers: [{"charge": charge, "body": body} for charge, body in ledger.answers.items()],
        }
        for table, values in rows.items():
            if values:
                self.connection.execute(table.insert(), values)
        found = self.books()
        self.replays(one for name in found.chain.keys for one in found.account(name).charges if one.answer_hash)
        return found

    def register(self, asset: Asset) -> None:
        """Write a new data set with its key."""
        self.connection.execute(assets.insert().values(name=asset.name, key=asset.key.hex()))
        self.register_anew(asset)

    def register_anew(self, asset: Asset) -> None:
        """Write all terms of an asset, which replace those that it has, but for its key and that a ledger is lost."""
        noted_in = None if self.store.witnesses.beside_ledger else str(self.store.witnesses.folder)
        chain.append(self.connection, asset.name, "register", None, books.registration(asset, noted_in))

    def amend(self, name: str, body: Mapping[str, Any]) -> None:
        """Write new terms of an asset, which hold from here on."""
        chain.append(self.connection, name, "amend", None, body)

    def rows(self, name: str, body: Mapping[str, Any]) -> None:
        """Write the likeness of an asset's rows, or the owner's word on them."""
        chain.append(self.connection, name, books.ROWS, None, body)

    def reserve(
        self, name: str, run: Run, number: int, index: int, query: PlannedQuery, share: Share | None, team: str | None
    ) -> Charge:
        """Write the reservation of one query, and return its charge."""
        body = books.reservation(run, number, index, query, share, team)
        return reader.charge_of(chain.append(self.connection, name, "reserve", uuid.uuid4().hex, body))

    def standing(self, charge: Charge) -> Standing:
        """Return the state of a charge by the entries as they are now."""
        struck = reader.struck_entries(
            entry for entry in chain.read_kind(self.connection, reader.STRIKE) if entry.asset == charge.asset
        )
        moved = chain.read_charge(self.connection, charge.asset, charge.id, struck)
        return reader.standing_of(charge.asset, moved, struck)

    def strike(self, name: str, seq: int, because: str) -> None:
        """Write that the data's owner takes a faulty entry out, and why."""
        chain.append(self.connection, name, reader.STRIKE, None, {"entry": seq, "because": because})

    def require_movable(self, charge: Charge, kind: str) -> Standing:
        """Return where a charge stands; LedgerError where it may not move this way."""
        standing = self.standing(charge)
        check_move(charge, standing, kind)
        return standing

    def move(self, charge: Charge, kind: str, **body: Any) -> None:
        """Write that a charge moves; LedgerError where it may not."""
        chain.append(self.connection, self.require_movable(charge, kind).asset, kind, charge.id, body)

    def keep_answer(self, charge: Charge, text: str) -> None:
        """Store an answer beside the chain, which has its hash."""
        self.connection.execute(answers.insert().values(charge=charge.id, body=text))

    def replays(self, charges: Iterable[Charge]) -> dict[str, Any]:
        """Return charge id -> stored answer; LedgerError where an answer does not have the hash in the chain."""
        answered = {charge.id: charge for charge in charges if charge.answer_hash is not None}
        rows = self.connection.execute(sa.select(answers).where(answers.c.charge.in_(answered))).all()
        stored = {row.charge: str(row.body) for row in rows}
        for key, charge in answered.items():
            if digest_of(stored.get(key, "")) != charge.answer_hash:
                raise LedgerError(
                    f"The stored answer of query {charge.query!r} is not the one that the ledger's chain has the hash "
                    "of.",
                    "Restore the ledger from a backup; nothing may be charged or released on this one.",
                )
        return {key: json.loads(body) for key, body in stored.items()}


def _is_path(said: object) -> bool:
    return isinstance(said, str) and Path(said).is_absolute()


@contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    try:
        make_folder(path.parent)
        descriptor = _open_locked(path)
    except OSError as error:
        raise LedgerError(
            f"The folder {str(path.parent)!r} beside the ledger cannot be written ({type(error).__name__}).",
            "Make it writable for you; nothing was charged by this step.",
        ) from None
    _held.add(descriptor)
    try:
        yield
    finally:
        if descriptor in _held:  # not in a forked child that left the block
            _held.remove(descriptor)
            path.unlink(missing_ok=True)
            os.close(descriptor)


def _open_locked(path: Path) -> int:
    """Open and lock the file at the path; return its descriptor. A file removed meanwhile is opened anew."""
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise _busy_error() from None
        except FileNotFoundError:
            pass
        os.close(descriptor)


@contextmanager
def _server_lock(engine: Engine, place: str, number: int) -> Iterator[None]:
    """Hold an advisory lock of PostgreSQL, on a connection of its own that ends with it."""
    try:
        connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        free = connection.scalar(sa.select(sa.func.pg_try_advisory_lock(number)))
        descriptor = connection.connection.dbapi_connection.fileno()  # type: ignore[union-attr]
    except SQLAlchemyError as error:
        raise database.reading_error(place, error) from None
    _held.add(descriptor)
    try:
        if not free:
            raise _busy_error()
        yield
    finally:
        if descriptor in _held:
            _held.remove(descriptor)
            connection.invalidate()
            connection.close()


def _busy_error() -> LedgerError:
    return LedgerError(
        "Another process is at this run: the same stage, settings and data.",
        "Wait for it to end, or end it, and run again; nothing was reserved or given back now.",
    )


def _let_go() -> None:
    """In a forked child: close its copies, which would keep the locks of a parent that died."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go)
