"""The ledger: every look at a private data set, reserved before it, written down as it begins, never forgotten.

An append-only chain of entries in a transactional database (SQLite, or PostgreSQL by URL). What a charge is at a moment
- reserved, begun (and after how many steps), answered, committed, refunded - is derived from its entries; nothing is
ever updated in place. Each entry carries the hash of the one before, so a changed or removed entry shows; that the
newest were removed, or all hashes made anew, shows against hashes noted elsewhere (`witness`). Nothing is read out of a
ledger, and nothing reserved in it, before both were checked.
"""

import json
import math
import secrets
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import dp_accounting as dpa
import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from palimpsest import validate
from palimpsest.errors import BudgetExceeded, LedgerError
from palimpsest.files import make_folder
from palimpsest.privacy import accounting, chain, composition, database, events
from palimpsest.privacy.chain import Chain
from palimpsest.privacy.composition import Cell, Term
from palimpsest.privacy.database import answers, assets, entries
from palimpsest.privacy.planned import ADJACENCY, PlannedQuery
from palimpsest.privacy.running import alone
from palimpsest.privacy.witness import Head, Witnesses

if TYPE_CHECKING:
    from palimpsest.privacy.receipt import Receipt

UNITS = ("record", "person")
FILTER_ORDERS = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0)
PURPOSES = ("release", "reference")
_COUNTED = ("reserved", "begun", "answered", "committed")
STATES = (*_COUNTED, "refunded")
_NEXT = {
    "reserve": "reserved",
    "begin": "begun",
    "advance": "begun",
    "answer": "answered",
    "commit": "committed",
    "refund": "refunded",
}


class Protected(Protocol):
    """What says which unit of privacy a data set has: an asset, or a public schema."""

    @property
    def unit(self) -> str: ...
    @property
    def unit_column(self) -> str | None: ...


@dataclass(frozen=True)
class Asset:
    """A private data set as the ledger knows it; everything but `key` is public.

    What was charged holds for the unit and the column that it was charged under. So neither ever changes; how many rows
    of a person are kept may, because a charge bounds a person whatever rows they have.

    Attributes:
        name: the asset's name.
        delta: the one delta of every release and of the total.
        epsilon: the budget: the cap on the total epsilon at `delta`.
        n_public: the declared number of units of privacy, records or persons.
        unit: what one adjacency step adds or removes: "record" or "person".
        unit_column: the column whose exact value is a person; None where the unit is one record.
        adjacency: "add_remove".
        orders: the Renyi orders of the privacy filter, fixed at registration.
        key: 32 secret bytes for keyed hashes of this asset's rows.
        after_loss: an earlier ledger of this data set is lost: what it spent is in no total.
    """

    name: str
    delta: float
    epsilon: float
    n_public: int
    unit: str = "record"
    adjacency: str = ADJACENCY
    orders: tuple[float, ...] = FILTER_ORDERS
    key: bytes = field(default=b"", repr=False)
    after_loss: bool = False
    unit_column: str | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown unit, a person without a column and a column without a person."""
        validate.one_of(UNITS, unit=self.unit)
        if (self.unit == "person") != isinstance(self.unit_column, str):
            raise ValueError("an asset of persons names the column that says who they are, and no other does")

    @property
    def filter_delta(self) -> float:
        """Half of delta converts Renyi to epsilon; the other half is for deltas that no event carries."""
        return self.delta / 2.0

    def spent(self, divergences: Sequence[float]) -> float:
        """The epsilon that summed Renyi divergences, one per order, imply at `filter_delta` shared by the orders."""
        if not any(divergences):
            return 0.0
        share = self.filter_delta / len(self.orders)
        pairs = zip(self.orders, divergences, strict=True)
        return min(accounting.renyi_epsilon(order, divergence, share) for order, divergence in pairs)


@dataclass(frozen=True)
class Cap:
    """A cap on an asset's total epsilon, and when it was set."""

    epsilon: float
    time: str


@dataclass(frozen=True)
class Run:
    """What binds a plan to its rows and its code, so that a retry is known as one.

    Attributes:
        stage: the stage that spends.
        variant: the variant it spends for.
        purpose: "release", or "reference" for what stays in the private zone and outside the total.
        fingerprint: keyed hash of the rows that it reads; see `records.keyed.fingerprint`.
        plan: digest of the plan.
        code: digest of the code.
    """

    stage: str
    variant: str
    purpose: str
    fingerprint: str
    plan: str
    code: str

    @property
    def key(self) -> str:
        """The idempotency key."""
        return chain.digest_of(chain.canonical(asdict(self)))


@dataclass(frozen=True)
class Charge:
    """One query's charge and where it stands."""

    id: str
    seq: int
    run_key: str
    run: int
    index: int
    stage: str
    variant: str
    purpose: str
    fingerprint: str
    query: str
    event: dpa.DpEvent
    own_delta: float
    partition: tuple[str, str] | None
    state: str
    time: str
    noise_fixed: bool = False
    steps: int | None = None  # what it pays for, None where the query runs at once
    steps_begun: int = 0
    answer_hash: str | None = None

    @property
    def counted(self) -> bool:
        """Whether it counts against the budget: standing reservations do, references and refunds do not."""
        return self.purpose == "release" and self.state in _COUNTED


@dataclass(frozen=True)
class Reservation:
    """The charges that one run of a plan may use.

    Attributes:
        charges: one per planned query, in the plan's order.
        run: 1 for the first run under this key, 2 when a finished run is repeated, ...
        replays: charge id -> the stored answer of a query that an earlier, killed attempt paid for.
        lost: how many queries earlier attempts began and lost; they stay charged and are charged again.
    """

    charges: tuple[Charge, ...]
    run: int
    replays: Mapping[str, Any]
    lost: int = 0

    @property
    def resumed(self) -> int:
        """How many steps earlier attempts began under charges that this run continues; 0 where it starts afresh."""
        return sum(charge.steps_begun for charge in self.charges if charge.state == "begun")

    @property
    def steps(self) -> int:
        """How many steps the charges pay for, those of earlier attempts included."""
        return sum(charge.steps or 0 for charge in self.charges)


@dataclass(frozen=True)
class Balance:
    """What an asset has spent: the filter's view, which holds for plans chosen adaptively.

    Attributes:
        divergences: summed Renyi divergence at each of the asset's orders.
        spent: the epsilon they imply at the asset's delta.
        cap: the budget's epsilon.
    """

    divergences: tuple[float, ...]
    spent: float
    cap: float

    @property
    def left(self) -> float:
        """Epsilon of the cap not yet spent."""
        return max(0.0, self.cap - self.spent)


def never(_charge: Charge) -> bool:
    """Continue no charge that has begun."""
    return False


class Ledger:
    """Reserve, begin, advance, answer, commit: the only way to spend privacy budget.

    Guarantee: the charges counted for one asset satisfy (epsilon, delta)-DP in total, also when each plan is chosen
    after looking at the results of earlier ones. For one Renyi order the sum of divergences is a valid filter
    (Feldman and Zrnic 2021, Theorem 3.1). Here a plan passes while at least one of the fixed orders stays within its
    limit for (epsilon, delta / 2 / number of orders). Every transcript then ends within the limit of some order;
    assign it to one. On the transcripts assigned to an order the process equals the one that this order's filter
    alone would stop, so they add at most that order's share of delta, and the shares sum to delta / 2. The deltas
    that no event carries never pass the other half.
    """

    def __init__(self, engine: Engine, place: str, witnesses: Witnesses) -> None:
        self._engine = engine
        self.place = place
        self._witnesses = witnesses

    @classmethod
    def create(cls, url: str) -> "Ledger":
        """Make the ledger's tables; a ledger that exists is left as it is.

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
    def open(cls, url: str) -> "Ledger":
        """Open a ledger that exists.

        Raises:
            LedgerError: if there is none, or it cannot be read. A missing ledger is never taken for an empty one.
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

    def register(self, asset: Asset, *, lost: bool = False) -> Asset:
        """Enter a data asset, with a fresh key whose hash is in the chain; entering it again changes nothing.

        One that was entered before keys had hashes in the chain gets it now.

        Args:
            asset: its terms.
            lost: an earlier ledger of this data set is lost, which is written down: what it spent is unknown.

        Raises:
            LedgerError: if it is known with other values: delta, unit, its column and adjacency never change.
        """
        _check_asset(asset)
        key = secrets.token_bytes(32)
        with self._write() as connection:
            found = self._checked(connection)
            known = _asset(found, asset.name)
            if known is None:
                connection.execute(assets.insert().values(name=asset.name, key=key.hex()))
                body = {"key_hash": chain.digest_of(key.hex()), **({"lost": True} if lost else {})}
                chain.append(connection, asset.name, "register", None, _public(asset) | body)
                return replace(asset, key=key, after_loss=lost)
            if _terms(known) == _terms(asset) and not _committed(found, asset.name):
                body = {"key_hash": chain.digest_of(known.key.hex())}
                chain.append(connection, asset.name, "amend", None, body)
        require_unit(known, asset)
        if _terms(known) != _terms(asset):
            raise LedgerError(
                f"Asset {asset.name!r} is registered with other terms: {_terms(known)!r}, not {_terms(asset)!r}.",
                "Delta, unit, size and adjacency of a data asset never change. Restore them in params.yaml; to change "
                "the budget's epsilon alone, use `palimpsest register --amend`.",
            )
        return known

    def amend(self, name: str, epsilon: float) -> Asset:
        """Change an asset's cap: a decision of the data's owner, written into the chain.

        A cap raised because of what earlier releases showed is not covered by the filter's guarantee.
        """
        validate.positive(epsilon=epsilon)
        with self._write() as connection:
            asset = replace(self._known(self._checked(connection), name), epsilon=epsilon)
            chain.append(connection, name, "amend", None, {"epsilon": epsilon})
        return asset

    def caps(self, name: str) -> list[Cap]:
        """Every cap that the asset has had, oldest first: to raise one is a decision that readers of a release see."""
        with chain.interpreted("A cap"):
            found = self._chain().of(name, "register", "amend")
            return [Cap(body["epsilon"], row.time) for row, body in found if "epsilon" in body]

    def asset(self, name: str) -> Asset:
        """The asset of that name.

        Raises:
            LedgerError: if it is not registered.
        """
        return self._known(self._chain(), name)

    def assets(self) -> list[str]:
        """Names of all registered assets."""
        return sorted(self._chain().keys)

    def elsewhere(self, name: str) -> int:
        """How many other ledgers have charged an asset of this name, by what is noted here, while this knows none."""
        keys = self._chain().keys
        return 0 if name in keys else self._witnesses.others(name, [chain.digest_of(key) for key in keys.values()])

    def alone(self, name: str, run_key: str) -> AbstractContextManager[None]:
        """Hold a run of an asset for this process alone; see `running`.

        Raises:
            LedgerError: on entering: another process holds it.
        """
        return alone(self._engine, self.place, name, run_key)

    def reserve(
        self,
        name: str,
        run: Run,
        planned: Sequence[PlannedQuery],
        resumable: Callable[[Charge], bool] = never,
        witnesses: Collection[str] = (),
    ) -> Reservation:
        """Set budget aside for a plan, before any row is read.

        A retry of a run that never finished reuses what never began, replays what was answered, continues what began
        in steps and can be resumed, and is charged again for what began and was lost. A run that finished and is run
        again is a second look and is charged in full.

        Guarantee: nothing is reserved in a ledger that lacks an entry noted elsewhere; both are looked at in the
        transaction that reserves.

        Args:
            name: the asset.
            run: what the plan belongs to.
            planned: what the plan asks, in order.
            resumable: whether the caller has what it needs to continue a begun charge; asked only of the newest
                charge of a query that runs in steps and whose noise no seed fixed. The ledger is locked meanwhile.
            witnesses: hashes of entries that the workspace's receipts noted.

        Raises:
            BudgetExceeded: if the plan would pass the asset's budget; nothing is charged then.
            LedgerError: for an unknown asset, another adjacency or purpose, a release query without noise, steps
                that the event does not compose, a stored answer that was changed, or a chain that does not hold.
            ValueError: for an own delta outside [0, 1].
        """
        _check_plan(run, planned)
        with self._write() as connection:
            found = self._checked(connection, witnesses)
            asset, charges = self._known(found, name), _charges(found, name)
            earlier = [charge for charge in charges if charge.run_key == run.key and charge.state != "refunded"]
            number, kept = _resume(earlier, resumable)
            missing = [index for index in range(len(planned)) if index not in kept]
            if run.purpose == "release":
                _check_budget(asset, charges, [planned[index] for index in missing], run, number)
            for index in missing:
                body = _reserve_body(run, number, index, planned[index])
                row = chain.append(connection, name, "reserve", uuid.uuid4().hex, body)
                kept[index] = _charge(row, body)
            latest = tuple(kept[index] for index in range(len(planned)))
            replays = _replays(connection, latest)
        begun = {charge.id for charge in earlier if charge.run == number and charge.state == "begun"}
        lost = len(begun - {charge.id for charge in latest})
        return Reservation(latest, number, replays, lost)

    def begin(self, charge: Charge, noise_fixed: bool = False) -> None:
        """Write durably, before the first noise is drawn, that the query has begun: from here it is spent.

        Raises:
            LedgerError: unless the charge is reserved and nothing has begun.
        """
        with self._write() as connection:
            self._append_move(connection, charge, "begin", ("reserved",), {"noise_fixed": noise_fixed})

    def advance(self, charge: Charge, begun: int, steps: int) -> None:
        """Write durably, before their batches and noise are drawn, that `steps` more steps of a begun charge begin.

        Guarantee: over all attempts and processes, the steps that begin under one charge never pass the number that
        its event composes, because each is counted here first, whatever becomes of it. A run that stops early has
        used a part of what was charged.

        Args:
            charge: a charge that has begun and was reserved with a number of steps.
            begun: how many of its steps have begun as far as the caller knows.
            steps: how many begin now, at least 1.

        Raises:
            LedgerError: unless the charge is begun and `begun` is its count, or if it would pass the reserved number.
            ValueError: for less than one step.
        """
        validate.in_range(1, math.inf, steps=steps)
        if not isinstance(steps, int):
            raise ValueError(f"steps must be a whole number, got {steps!r}")
        with self._write() as connection:
            first, last = self._check_move(connection, charge, "advance", ("begun",))
            found, limit = chain.body_of(last).get("begun", 0), chain.body_of(first).get("steps")
            _check_advance(charge, found, limit, begun, steps)
            chain.append(connection, first.asset, "advance", charge.id, {"begun": begun + steps})

    def answer(self, charge: Charge, body: Any) -> None:
        """Store a query's noisy answer, so that a retry of a killed run replays it, free; its hash is in the chain."""
        text = json.dumps(body)
        with self._write() as connection:
            self._append_move(connection, charge, "answer", ("begun",), {"answer_hash": chain.digest_of(text)})
            connection.execute(answers.insert().values(charge=charge.id, body=text))

    def commit(self, reservation: Reservation) -> None:
        """Close a run: its outputs are whole, and its stored answers are no longer needed."""
        with self._write() as connection:
            for charge in reservation.charges:
                self._append_move(connection, charge, "commit", ("begun", "answered"), {})
                connection.execute(answers.delete().where(answers.c.charge == charge.id))

    def refund(self, charges: Iterable[Charge]) -> int:
        """Give back what never began; what has begun stays charged for ever. Returns how many were given back.

        The caller holds the run (`alone`): else it would take from another process what that is about to begin.
        """
        count = 0
        for charge in charges:
            with self._write() as connection:
                first, last = _standing(connection, charge)
                if _NEXT.get(last.kind) == "reserved":
                    chain.append(connection, first.asset, "refund", charge.id, {})
                    count += 1
        return count

    def charges(self, name: str) -> list[Charge]:
        """All charges of an asset, oldest first."""
        found = self._chain()
        self._known(found, name)
        return _charges(found, name)

    def balance(self, name: str) -> Balance:
        """What the asset has spent and what its cap is."""
        found = self._chain()
        return _balance(self._known(found, name), _charges(found, name))

    def head(self) -> str:
        """The hash of the newest entry."""
        with self._read() as connection:
            return chain.newest(connection).hash

    def paid(self, name: str, receipt: "Receipt", purpose: str) -> list[Charge]:
        """The charges of a receipt that something of this purpose may build on.

        Raises:
            LedgerError: if this ledger does not have them, as committed charges of the receipt's model, if the receipt
                is for another unit of privacy, or if they are of a reference run and the purpose is a release.
        """
        self.verify([receipt.ledger_head])
        known = {charge.id: charge for charge in self.charges(name)}
        found = [known.get(line.charge) for line in receipt.queries]
        own = [charge for charge in found if charge is not None and charge.state == "committed"]
        if len(own) < max(1, len(found)) or receipt.model != own[-1].variant:
            raise LedgerError(
                f"The ledger does not have the charges of model {receipt.model!r} as committed ones.",
                "Fit that model again on this ledger; nothing was charged now.",
            )
        asset = self.asset(name)
        if receipt.unit != asset.unit:
            raise LedgerError(
                f"The receipt of model {receipt.model!r} is for adding or removing one {receipt.unit}, not one "
                f"{asset.unit}.",
                "It was changed by hand. Fit that model again; nothing was charged now.",
            )
        if purpose == "release" and any(charge.purpose != "release" for charge in own):
            raise LedgerError(
                f"Model {receipt.model!r} is a reference, outside the total: no release may build on it.",
                "Fit it with purpose release, or mark what builds on it as a reference too.",
            )
        return own

    def verify(self, witnesses: Collection[str] = ()) -> int:
        """Recompute the whole chain and hold it against all that was noted elsewhere; the number of entries.

        Args:
            witnesses: hashes of entries noted outside the ledger (`head` after a run), in receipts, beside those in
                the owner's files of heads: they show that the newest entries were cut off, that an old copy was put
                back, or that the hashes were made anew behind a change.

        Raises:
            LedgerError: naming the first entry that does not fit, or if a witness is missing.
        """
        return len(self._chain(witnesses).entries)

    def _chain(self, witnesses: Collection[str] = ()) -> Chain:
        """The whole ledger, checked. What was noted is read first: entries are noted after they are written."""
        with self._read() as connection:
            noted = self._noted(connection)
        with self._read() as connection:
            return self._held_against(chain.read(connection), witnesses, noted)

    def _checked(self, connection: Connection, witnesses: Collection[str] = ()) -> Chain:
        """The same inside a transaction that writes."""
        return self._held_against(chain.read(connection), witnesses, self._noted(connection))

    def _noted(self, connection: Connection) -> list[Head]:
        keys = connection.scalars(sa.select(assets.c.key)).all()
        return [head for key in keys for head in self._witnesses.heads(chain.digest_of(str(key)))]

    def _held_against(self, found: Chain, witnesses: Collection[str], noted: Collection[Head]) -> Chain:
        if missing := chain.lacking(found, witnesses, noted):
            raise LedgerError(
                f"The ledger at {self.place} lacks {missing} of the entries that were noted elsewhere: in the "
                f"workspace's receipts or in {str(self._witnesses.folder)!r}.",
                "An old copy was put back, or it was changed: restore the newest one; nothing may be charged or "
                "released on this one. If that is lost, remove the receipts, begin another ledger elsewhere with "
                "`palimpsest register --lost`, and make all anew with `dvc repro --force`.",
            )
        return found

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        try:
            with self._engine.connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise database.unreadable(self.place, error) from None

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        """One transaction that no other writer can interleave with; then what it wrote is noted outside the ledger.

        Registering alone is not noted: a ledger that never charged may be removed.
        """
        with ExitStack() as files:
            with self._transaction() as connection:
                before = chain.newest(connection)
                yield connection
                head = chain.newest(connection)
                note = files.enter_context(self._noting(connection, head)) if head != before else None
            if note is not None:
                note(head)

    def _noting(self, connection: Connection, head: Head) -> AbstractContextManager[Callable[[Head], None] | None]:
        row = connection.execute(sa.select(entries.c.asset, entries.c.kind).where(entries.c.seq == head.seq)).one()
        if row.kind == "register":
            return nullcontext()
        key = connection.scalars(sa.select(assets.c.key).where(assets.c.name == row.asset)).one()
        return self._witnesses.noting(row.asset, chain.digest_of(str(key)))

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        try:
            with self._engine.execution_options(immediate=True).begin() as connection:
                if connection.dialect.name == "postgresql":
                    connection.execute(sa.text("LOCK TABLE palimpsest_entry IN EXCLUSIVE MODE"))
                yield connection
        except SQLAlchemyError as error:
            raise LedgerError(
                f"The ledger at {self.place} could not be written ({type(error).__name__}).",
                "Check its permissions and the free space of its disk; nothing was charged by this step.",
            ) from None

    def _append_move(
        self, connection: Connection, charge: Charge, kind: str, allowed: tuple[str, ...], body: Mapping[str, Any]
    ) -> None:
        first, _ = self._check_move(connection, charge, kind, allowed)
        chain.append(connection, first.asset, kind, charge.id, body)

    def _check_move(
        self, connection: Connection, charge: Charge, kind: str, allowed: tuple[str, ...]
    ) -> tuple[Any, Any]:
        """The charge's reservation and its newest entry, where it may move so."""
        first, last = _standing(connection, charge)
        state = _NEXT.get(last.kind)
        if state not in allowed:
            raise LedgerError(
                f"Charge {charge.id} of query {charge.query!r} is {state}; it cannot {kind}.",
                "Run the stage again: it reserves anew what it needs.",
            )
        return first, last

    def _known(self, found: Chain, name: str) -> Asset:
        asset = _asset(found, name)
        if asset is None:
            raise LedgerError(
                f"Asset {name!r} is not registered in the ledger at {self.place}.",
                "Register it with `palimpsest register`, or correct dataset.asset in params.yaml.",
            )
        if not _committed(found, name):
            raise LedgerError(
                f"Asset {name!r} was registered in the ledger at {self.place} without the hash of its key.",
                "Run `palimpsest register` once: it writes the hash down; nothing else changes.",
            )
        return asset


def _standing(connection: Connection, charge: Charge) -> tuple[Any, Any]:
    """A charge's reservation and its newest entry, each with the hash of its content."""
    own = sa.select(entries).where(entries.c.charge == charge.id)
    first = connection.execute(own.where(entries.c.seq == charge.seq)).one()
    last = connection.execute(own.order_by(entries.c.seq.desc()).limit(1)).one()
    for row in (first, last):
        chain.check(row)
    return first, last


def _asset(found: Chain, name: str) -> Asset | None:
    terms = found.terms(name)
    if terms is None:
        return None
    with chain.interpreted(f"The entry of asset {name!r}"):
        own = {each.name: terms[each.name] for each in fields(Asset) if each.name not in _LATER}
        own |= {"orders": tuple(terms["orders"]), "after_loss": bool(terms.get("lost"))}
        own |= {"unit_column": terms.get("unit_column")}
        asset = Asset(**own, key=bytes.fromhex(found.keys[name]))
        _check_asset(asset)
    return asset


_LATER = ("key", "after_loss", "unit_column")  # what a registration may lack: that of records has no column


def _committed(found: Chain, name: str) -> bool:
    """Whether the chain holds the hash of the asset's key; `chain.read` has compared it."""
    return "key_hash" in (found.terms(name) or {})


def _charges(found: Chain, name: str) -> list[Charge]:
    """All charges of an asset as their entries left them, oldest first."""
    charges: dict[str, Charge] = {}
    for row, body in found.of(name, *_NEXT):
        with chain.interpreted(f"Entry {row.seq}"):
            moved = _charge(row, body) if row.kind == "reserve" else _moved(charges[row.charge], row, body)
            charges[row.charge] = moved
    return list(charges.values())


def _moved(charge: Charge, row: Any, body: Mapping[str, Any]) -> Charge:
    return replace(
        charge,
        state=_NEXT[row.kind],
        noise_fixed=bool(body.get("noise_fixed", charge.noise_fixed)),
        steps_begun=int(body.get("begun", charge.steps_begun)),
        answer_hash=body.get("answer_hash", charge.answer_hash),
    )


def _replays(connection: Connection, charges: Iterable[Charge]) -> dict[str, Any]:
    """Charge id -> stored answer, of those that were answered.

    Raises:
        LedgerError: an answer is not the one that the chain holds the hash of.
    """
    answered = {charge.id: charge for charge in charges if charge.state == "answered"}
    rows = connection.execute(sa.select(answers).where(answers.c.charge.in_(answered))).all()
    stored = {row.charge: str(row.body) for row in rows}
    for key, charge in answered.items():
        if chain.digest_of(stored.get(key, "")) != charge.answer_hash:
            raise LedgerError(
                f"The stored answer of query {charge.query!r} is not the one that the ledger's chain has the hash of.",
                "Restore the ledger from a backup; nothing may be charged or released on this one.",
            )
    return {key: json.loads(body) for key, body in stored.items()}


def require_unit(known: Asset, wanted: Protected) -> None:
    """Raise LedgerError where a data set was registered for another unit of privacy: its charges bound that one alone.

    Guarantee: no asset ever holds charges of two units, so that its total is of one.
    """
    if (known.unit, known.unit_column) != (wanted.unit, wanted.unit_column):
        raise LedgerError(
            f"Asset {known.name!r} is registered for {_unit_of(known)} as the unit of privacy; what is asked for is "
            f"{_unit_of(wanted)}.",
            "What was charged holds for the one and not for the other, so the asset is closed to another unit. Restore "
            "dataset.unit, or take another name for the data set: what was released before then counts beside it.",
        )


def _unit_of(protected: Protected) -> str:
    column = protected.unit_column
    return f"one {protected.unit}" if column is None else f"the {protected.unit} in column {column!r}"


def _check_asset(asset: Asset) -> None:
    validate.positive(delta=asset.delta, epsilon=asset.epsilon, n_public=asset.n_public)
    validate.in_range(0.0, 1.0, delta=asset.delta)
    validate.one_of((ADJACENCY,), adjacency=asset.adjacency)


def _check_plan(run: Run, planned: Sequence[PlannedQuery]) -> None:
    if run.purpose not in PURPOSES:
        raise LedgerError(f"Variant {run.variant!r} has purpose {run.purpose!r}.", f"Use one of {PURPOSES!r}.")
    for query in planned:
        validate.in_range(0.0, 1.0, own_delta=query.own_delta)
        if query.adjacency != ADJACENCY:
            raise LedgerError(
                f"Query {query.name!r} is accounted for adjacency {query.adjacency!r}; the ledger composes "
                f"{ADJACENCY!r} only.",
                "State the query's sensitivity for adding or removing one unit of privacy.",
            )
        if run.purpose == "release" and not accounting.is_private(query.event):
            raise LedgerError(
                f"Variant {run.variant!r} asks for query {query.name!r} without noise.",
                "Give it a finite epsilon, or mark it `purpose: reference`: it then stays in the private zone.",
            )
        if query.steps is not None and not _composes(query.event, query.steps):
            raise LedgerError(
                f"Query {query.name!r} plans {query.steps} steps; its event does not compose as many of one kind.",
                "State the event as that many compositions of one step, or plan the query without steps.",
            )


def _composes(event: dpa.DpEvent, steps: int) -> bool:
    """Whether the event covers any part of `steps` identical steps, however they are spread over attempts.

    The first steps of a self-composition are that composition with a smaller count, which costs no more; a query
    without noise (a reference) has nothing to pass.
    """
    composed = event.count == steps if isinstance(event, dpa.SelfComposedDpEvent) else False
    return steps >= 1 and (composed or isinstance(event, dpa.NonPrivateDpEvent))


def _check_advance(charge: Charge, found: int, limit: int | None, begun: int, steps: int) -> None:
    if limit is None:
        raise LedgerError(
            f"Charge {charge.id} of query {charge.query!r} pays for no steps; it cannot advance.",
            "Reserve the query with the number of its steps.",
        )
    if found != begun:
        raise LedgerError(
            f"Charge {charge.id} of query {charge.query!r} has begun {found} steps, not {begun}: another process "
            "continues this run.",
            "Let one process finish it and end the others.",
        )
    if begun + steps > limit:
        raise LedgerError(
            f"Charge {charge.id} of query {charge.query!r} has begun {begun} of its {limit} steps; {steps} more would "
            "pass what was paid for.",
            "End the query there: steps that were begun and lost are spent, too.",
        )


def _resume(earlier: Sequence[Charge], resumable: Callable[[Charge], bool]) -> tuple[int, dict[int, Charge]]:
    """The run's number, and the charges of an unfinished earlier attempt that it may use."""
    if not earlier:
        return 1, {}
    number = max(charge.run for charge in earlier)
    latest = _latest(charge for charge in earlier if charge.run == number)
    if any(charge.state == "committed" for charge in latest.values()):
        return number + 1, {}
    return number, {index: charge for index, charge in latest.items() if _usable(charge, resumable)}


def _usable(charge: Charge, resumable: Callable[[Charge], bool]) -> bool:
    if charge.state == "begun":
        return charge.steps is not None and not charge.noise_fixed and resumable(charge)
    return charge.state == "reserved" or (charge.state == "answered" and charge.answer_hash is not None)


def _latest(charges: Iterable[Charge]) -> dict[int, Charge]:
    """The newest charge of each query index."""
    return {charge.index: charge for charge in sorted(charges, key=lambda charge: charge.seq)}


def preview(asset: Asset, charges: Sequence[Charge], wanted: Mapping[tuple[str, int], Sequence[PlannedQuery]]) -> float:
    """The epsilon spent on the asset once these further planned have run, by (key, number) of their runs."""
    more = [(query.event, _cell(query.partition, *run)) for run, planned in wanted.items() for query in planned]
    return asset.spent(_divergences(asset, [*_terms_of(charges), *more]))


def _check_budget(
    asset: Asset, charges: Sequence[Charge], wanted: Sequence[PlannedQuery], run: Run, number: int
) -> None:
    now = _balance(asset, charges)
    after = preview(asset, charges, {(run.key, number): wanted})
    own = sum(charge.own_delta for charge in charges if charge.counted) + sum(query.own_delta for query in wanted)
    if after <= asset.epsilon and own <= asset.delta - asset.filter_delta:
        return
    share = "Lower the deltas outside the events" if after <= asset.epsilon else "Lower the variant's epsilon"
    raise BudgetExceeded(
        f"Stage {run.stage!r} ({run.variant}) would pass the budget of asset {asset.name!r}: spent epsilon "
        f"{now.spent:.3f}, asked {after - now.spent:.3f} more, left {now.left:.3f} of {asset.epsilon:g} at delta "
        f"{asset.delta:.3g} (deltas outside the events: {own:.3g} of {asset.delta - asset.filter_delta:.3g}).",
        f"Nothing was charged and no row was read. {share}, drop a variant, or, if the data's owner agrees, raise the "
        "cap of epsilon with `palimpsest register --amend`.",
    )


def _balance(asset: Asset, charges: Sequence[Charge]) -> Balance:
    used = _divergences(asset, _terms_of(charges))
    return Balance(used, asset.spent(used), asset.epsilon)


def _cell(partition: tuple[str, str] | None, run_key: str, number: int) -> Cell | None:
    """A scheme holds within one run: over another data version or key a unit may lie in another cell."""
    return (f"{run_key} {number} {partition[0]}", partition[1]) if partition else None


def _terms_of(charges: Iterable[Charge]) -> list[Term]:
    return [_placed(charge) for charge in charges if charge.counted]


def _placed(charge: Charge) -> Term:
    return charge.event, _cell(charge.partition, charge.run_key, charge.run)


def composed(charges: Iterable[Charge]) -> dpa.DpEvent:
    """What these charges did to any one unit, as one event: cells of one scheme of a run in parallel, the rest added.

    Guarantee: the event covers every unit of privacy, all of whose rows lie in one cell of a scheme. Among its parts
    are, as often as they were charged, all queries of that cell, whichever it is, and all that were asked of the whole
    data set.
    """
    return composition.composed(_placed(charge) for charge in charges)


def _divergences(asset: Asset, terms: Iterable[Term]) -> tuple[float, ...]:
    """Summed Renyi divergences, one per order."""
    total = np.zeros(len(asset.orders))
    for body, count in composition.worst_counts(terms).items():
        total += count * np.array(_divergence_of(asset.orders, body))
    return tuple(total.tolist())


@lru_cache(maxsize=4096)
def _divergence_of(orders: tuple[float, ...], body: str) -> tuple[float, ...]:
    return tuple(accounting.rdp(events.from_json(json.loads(body)), orders).tolist())


def _reserve_body(run: Run, number: int, index: int, query: PlannedQuery) -> dict[str, Any]:
    steps = {} if query.steps is None else {"steps": query.steps}
    return {
        "run_key": run.key,
        "run": number,
        "index": index,
        "stage": run.stage,
        "variant": run.variant,
        "purpose": run.purpose,
        "fingerprint": run.fingerprint,
        "query": query.name,
        "event": events.to_json(query.event),
        "own_delta": query.own_delta,
        "adjacency": query.adjacency,
        "partition": query.partition,
        **steps,
    }


def _charge(row: Any, body: dict[str, Any]) -> Charge:
    partition = tuple(body["partition"]) if body["partition"] else None
    names = ("run_key", "run", "index", "stage", "variant", "purpose", "fingerprint", "query", "own_delta")
    values = {name: body[name] for name in names}
    values |= {"event": events.from_json(body["event"]), "partition": partition, "steps": body.get("steps")}
    return Charge(row.charge, row.seq, state="reserved", time=row.time, **values)


def _public(asset: Asset) -> dict[str, Any]:
    left_out = {"key", "after_loss"} | ({"unit_column"} if asset.unit_column is None else set())
    return {name: value for name, value in asdict(asset).items() if name not in left_out}


def _terms(asset: Asset) -> dict[str, Any]:
    return {name: value for name, value in _public(asset).items() if name != "orders"}
