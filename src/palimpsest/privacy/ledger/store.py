"""How the ledger is read and written: whole transactions, checked against what was noted of it elsewhere.

Each entry carries the hash of the one before, so a changed or removed entry shows; that the newest were removed, or all
hashes made anew, shows against hashes noted elsewhere (`witness`). Nothing is read out of a ledger, and nothing
reserved in it, before both were checked.
"""

import json
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from palimpsest.errors import LedgerError
from palimpsest.files import make_folder
from palimpsest.privacy.ledger import bodies, chain, database
from palimpsest.privacy.ledger.books import Books
from palimpsest.privacy.ledger.chain import Chain, Entry
from palimpsest.privacy.ledger.database import answers, assets, entries
from palimpsest.privacy.ledger.hashes import digest_of
from palimpsest.privacy.ledger.records import Asset, Charge, Run, Standing
from palimpsest.privacy.ledger.rules import check_move
from palimpsest.privacy.ledger.witness import Head, Witnesses
from palimpsest.privacy.planned import PlannedQuery


@dataclass(frozen=True)
class Store:
    """Where a ledger's tables lie, and where its heads are noted.

    Attributes:
        engine: the database's.
        place: its address, without a password.
        witnesses: the files of heads.
    """

    engine: Engine
    place: str
    witnesses: Witnesses

    @classmethod
    def create(cls, url: str) -> "Store":
        """Make the tables; those that exist are left as they are.

        Raises:
            LedgerError: if the place cannot be written.
        """
        path = database.sqlite_path(url)
        try:
            if path is not None:
                make_folder(path.parent)
                database.make_private(path)
            engine = database.connected(url)
            database.meta.create_all(engine)
        except (OSError, SQLAlchemyError) as error:
            raise LedgerError(
                f"The ledger at {database.shown(url)} cannot be created ({type(error).__name__}).",
                "Check that the place exists and can be written, or set PALIMPSEST_LEDGER to another one.",
            ) from None
        return cls(engine, database.shown(url), Witnesses.beside(path))

    @classmethod
    def open(cls, url: str) -> "Store":
        """Open tables that exist.

        Raises:
            LedgerError: if there are none, or they cannot be read.
        """
        path = database.sqlite_path(url)
        if path is not None and not database.exists(path):
            raise LedgerError(
                f"There is no ledger at {database.shown(url)}.",
                "If this data set never had one, create it with `palimpsest register`; if it had, restore it or set "
                "PALIMPSEST_LEDGER to its place: without it nobody knows what has been spent.",
            )
        try:
            engine = database.connected(url)
            with engine.connect() as connection:
                connection.execute(sa.select(sa.func.count()).select_from(entries))
                connection.execute(sa.select(sa.func.count()).select_from(assets))
        except SQLAlchemyError as error:
            raise database.unreadable(database.shown(url), error) from None
        return cls(engine, database.shown(url), Witnesses.beside(path))

    def head(self) -> str:
        """The hash of the newest entry."""
        with self._reading() as connection:
            return chain.head(connection).hash

    def books(self, witnesses: Collection[str] = ()) -> Books:
        """The whole ledger, checked. What was noted is read first: entries are noted after they are written.

        Raises:
            LedgerError: naming the first entry that does not fit, or if a witness is missing.
        """
        with self._reading() as connection:
            noted = self.noted(connection)
        with self._reading() as connection:
            return self.held_against(chain.read(connection), witnesses, noted)

    def noted(self, connection: Connection) -> list[Head]:
        """The heads in the owner's files."""
        keys = connection.scalars(sa.select(assets.c.key)).all()
        return [head for key in keys for head in self.witnesses.heads(digest_of(str(key)))]

    def held_against(self, found: Chain, witnesses: Collection[str], noted: Collection[Head]) -> Books:
        """The books of a chain that has all that was noted elsewhere.

        Raises:
            LedgerError: it lacks some of it.
        """
        if missing := chain.lacking(found, witnesses, noted):
            raise LedgerError(
                f"The ledger at {self.place} lacks {missing} of the entries that were noted elsewhere: in the "
                f"workspace's receipts or in {str(self.witnesses.folder)!r}.",
                "An old copy was put back, or it was changed: restore the newest one; nothing may be charged or "
                "released on this one. If that is lost, remove the receipts, begin another ledger elsewhere with "
                "`palimpsest register --lost`, and make all anew with `dvc repro --force`.",
            )
        return Books(found, self.place, self.witnesses)

    @contextmanager
    def write(self) -> Iterator["Transaction"]:
        """One transaction that no other writer can interleave with; then what it wrote is noted outside the ledger.

        Registering alone is not noted: a ledger that never charged may be removed.
        """
        with ExitStack() as files:
            with self._writing() as connection:
                before = chain.newest(connection)
                yield Transaction(self, connection)
                last = chain.newest(connection)
                note = files.enter_context(self._noting(connection, last)) if last and last != before else None
            if last and note is not None:
                note(last.head)

    def _noting(self, connection: Connection, last: Entry) -> AbstractContextManager[Callable[[Head], None] | None]:
        if last.kind == "register":
            return nullcontext()
        key = connection.scalars(sa.select(assets.c.key).where(assets.c.name == last.asset)).one()
        return self.witnesses.noting(last.asset, digest_of(str(key)))

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        try:
            with self.engine.connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise database.unreadable(self.place, error) from None

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        try:
            with self.engine.execution_options(immediate=True).begin() as connection:
                if connection.dialect.name == "postgresql":
                    connection.execute(sa.text("LOCK TABLE palimpsest_entry IN EXCLUSIVE MODE"))
                yield connection
        except SQLAlchemyError as error:
            raise LedgerError(
                f"The ledger at {self.place} could not be written ({type(error).__name__}).",
                "Check its permissions and the free space of its disk; nothing was charged by this step.",
            ) from None


@dataclass(frozen=True)
class Transaction:
    """One transaction that writes; its methods run inside it."""

    store: Store
    connection: Connection

    def books(self, witnesses: Collection[str] = ()) -> Books:
        """The whole ledger as this transaction sees it, checked."""
        return self.store.held_against(chain.read(self.connection), witnesses, self.store.noted(self.connection))

    def register(self, asset: Asset) -> None:
        """Enter an asset, with its key."""
        self.connection.execute(assets.insert().values(name=asset.name, key=asset.key.hex()))
        chain.append(self.connection, asset.name, "register", None, bodies.registration(asset))

    def amend(self, name: str, body: Mapping[str, Any]) -> None:
        """Write what is said of an asset from here on."""
        chain.append(self.connection, name, "amend", None, body)

    def reserve(self, name: str, run: Run, number: int, index: int, query: PlannedQuery) -> Charge:
        """Enter a new charge for one query of a run."""
        body = bodies.reservation(run, number, index, query)
        return bodies.charge_of(chain.append(self.connection, name, "reserve", uuid.uuid4().hex, body))

    def standing(self, charge: Charge) -> Standing:
        """Where a charge stands now."""
        return bodies.standing_of(*chain.of_charge(self.connection, charge.id, charge.seq))

    def movable(self, charge: Charge, kind: str) -> Standing:
        """Where a charge stands that may move so.

        Raises:
            LedgerError: it may not.
        """
        standing = self.standing(charge)
        check_move(charge, standing, kind)
        return standing

    def move(self, charge: Charge, kind: str, **body: Any) -> None:
        """Write that a charge moves.

        Raises:
            LedgerError: it may not.
        """
        chain.append(self.connection, self.movable(charge, kind).asset, kind, charge.id, body)

    def keep_answer(self, charge: Charge, text: str) -> None:
        """Store an answer beside the chain, which has its hash."""
        self.connection.execute(answers.insert().values(charge=charge.id, body=text))

    def forget_answer(self, charge: Charge) -> None:
        """Remove the stored answer of a charge that has one."""
        self.connection.execute(answers.delete().where(answers.c.charge == charge.id))

    def replays(self, charges: Iterable[Charge]) -> dict[str, Any]:
        """Charge id -> stored answer, of those that were answered.

        Raises:
            LedgerError: an answer is not the one that the chain holds the hash of.
        """
        answered = {charge.id: charge for charge in charges if charge.state == "answered"}
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
