"""The ledger: every look at a private data set, reserved before it, written down as it begins, never forgotten.

An append-only chain of entries in a transactional database (SQLite, or PostgreSQL by URL). What a charge is at a moment
- reserved, begun (and after how many steps), answered, committed, refunded - is derived from its entries; nothing is
ever updated in place. Each entry carries the hash of the one before, so a changed or removed entry shows; that the
newest were removed shows against a hash noted elsewhere (`verify`).
"""

import contextlib
import hashlib
import json
import math
import os
import secrets
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import dp_accounting as dpa
import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from palimpsest import validate
from palimpsest.errors import BudgetExceeded, LedgerError
from palimpsest.privacy import accounting, composition, events
from palimpsest.privacy.composition import Cell, Term

ADJACENCY = "add_remove"
FILTER_ORDERS = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0)
PURPOSES = ("release", "reference")
_COUNTED = ("reserved", "begun", "answered", "committed")
_ADDRESS = (
    "Set PALIMPSEST_LEDGER to sqlite:////absolute/path, or to postgresql+psycopg://user@host/database with the extra "
    "palimpsest[postgres] installed."
)
_NEXT = {
    "reserve": "reserved",
    "begin": "begun",
    "advance": "begun",
    "answer": "answered",
    "commit": "committed",
    "refund": "refunded",
}


_meta = sa.MetaData()
_assets = sa.Table(
    "palimpsest_asset",
    _meta,
    sa.Column("name", sa.String(200), primary_key=True),
    sa.Column("key", sa.String(64), nullable=False),
)
_entries = sa.Table(
    "palimpsest_entry",
    _meta,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("asset", sa.String(200), nullable=False, index=True),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("charge", sa.String(32), nullable=True),
    sa.Column("time", sa.String(40), nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("previous", sa.String(64), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
)
_answers = sa.Table(
    "palimpsest_answer",
    _meta,
    sa.Column("charge", sa.String(32), primary_key=True),
    sa.Column("body", sa.Text, nullable=False),
)


@dataclass(frozen=True)
class Asset:
    """A private data set as the ledger knows it; everything but `key` is public.

    Attributes:
        name: the asset's name.
        delta: the one delta of every release and of the total.
        epsilon: the budget: the cap on the total epsilon at `delta`.
        n_public: the declared number of records.
        unit: what one adjacency step adds or removes ("record").
        adjacency: "add_remove".
        orders: the Renyi orders of the privacy filter, fixed at registration.
        key: 32 secret bytes for keyed hashes of this asset's rows.
    """

    name: str
    delta: float
    epsilon: float
    n_public: int
    unit: str = "record"
    adjacency: str = ADJACENCY
    orders: tuple[float, ...] = FILTER_ORDERS
    key: bytes = field(default=b"", repr=False)

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
class Request:
    """One query that a plan wants to pay for.

    Attributes:
        query: the query's name.
        event: what it may cost at most.
        own_delta: a delta that the event does not carry.
        adjacency: the adjacency that the event is stated for.
        partition: (scheme, cell): disjoint parts of the data set; None for all of it.
        steps: how many identical steps the event composes, for a query that runs and may be continued in steps;
            None for one that runs at once.
    """

    query: str
    event: dpa.DpEvent
    own_delta: float = 0.0
    adjacency: str = ADJACENCY
    partition: tuple[str, str] | None = None
    steps: int | None = None


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
        return hashlib.sha256(_canonical(asdict(self)).encode()).hexdigest()


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

    def __init__(self, engine: Engine, place: str) -> None:
        self._engine = engine
        self.place = place

    @classmethod
    def create(cls, url: str) -> "Ledger":
        """Make the ledger's tables; a ledger that exists is left as it is.

        Raises:
            LedgerError: if the place cannot be written.
        """
        path = _sqlite_path(url)
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                _make_private(path)
            engine = _engine(url)
            _meta.create_all(engine)
        except (OSError, SQLAlchemyError) as error:
            raise LedgerError(
                f"The ledger at {_shown(url)} cannot be created ({type(error).__name__}).",
                "Check that the place exists and can be written, or set PALIMPSEST_LEDGER to another one.",
            ) from None
        return cls(engine, _shown(url))

    @classmethod
    def open(cls, url: str) -> "Ledger":
        """Open a ledger that exists.

        Raises:
            LedgerError: if there is none, or it cannot be read. A missing ledger is never taken for an empty one.
        """
        path = _sqlite_path(url)
        if path is not None and not _exists(path):
            raise LedgerError(
                f"There is no ledger at {_shown(url)}.",
                "If this data set never had one, create it with `palimpsest register`; if it had, restore it or set "
                "PALIMPSEST_LEDGER to its place: without it nobody knows what has been spent.",
            )
        try:
            engine = _engine(url)
            with engine.connect() as connection:
                connection.execute(sa.select(sa.func.count()).select_from(_entries))
                connection.execute(sa.select(sa.func.count()).select_from(_assets))
        except SQLAlchemyError as error:
            raise _unreadable(_shown(url), error) from None
        return cls(engine, _shown(url))

    def register(self, asset: Asset) -> Asset:
        """Enter a data asset, with a fresh key; entering it again with the same values changes nothing.

        Raises:
            LedgerError: if it is known with other values: delta, unit and adjacency never change.
        """
        _check_asset(asset)
        asset = replace(asset, key=secrets.token_bytes(32))
        with self._write() as connection:
            known = self._asset(connection, asset.name)
            if known is None:
                connection.execute(_assets.insert().values(name=asset.name, key=asset.key.hex()))
                self._append(connection, asset.name, "register", None, _public(asset))
                return asset
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
            asset = replace(self._known(connection, name), epsilon=epsilon)
            self._append(connection, name, "amend", None, {"epsilon": epsilon})
        return asset

    def asset(self, name: str) -> Asset:
        """The asset of that name.

        Raises:
            LedgerError: if it is not registered.
        """
        with self._read() as connection:
            return self._known(connection, name)

    def assets(self) -> list[str]:
        """Names of all registered assets."""
        with self._read() as connection:
            return list(connection.scalars(sa.select(_assets.c.name).order_by(_assets.c.name)))

    def reserve(
        self, name: str, run: Run, requests: Sequence[Request], resumable: Callable[[Charge], bool] = never
    ) -> Reservation:
        """Set budget aside for a plan, before any row is read.

        A retry of a run that never finished reuses what never began, replays what was answered, continues what began
        in steps and can be resumed, and is charged again for what began and was lost. A run that finished and is run
        again is a second look and is charged in full.

        Args:
            name: the asset.
            run: what the plan belongs to.
            requests: one per planned query, in order.
            resumable: whether the caller has what it needs to continue a begun charge; asked only of the newest
                charge of a query that runs in steps and whose noise no seed fixed. The ledger is locked meanwhile.

        Raises:
            BudgetExceeded: if the plan would pass the asset's budget; nothing is charged then.
            LedgerError: for an unknown asset, another adjacency or purpose, a release query without noise, or steps
                that the event does not compose.
            ValueError: for an own delta outside [0, 1].
        """
        _check_requests(run, requests)
        with self._write() as connection:
            asset = self._known(connection, name)
            charges = self._charges(connection, name)
            earlier = [charge for charge in charges if charge.run_key == run.key and charge.state != "refunded"]
            number, kept = _resume(earlier, resumable)
            missing = [index for index in range(len(requests)) if index not in kept]
            if run.purpose == "release":
                _check_budget(asset, charges, [requests[index] for index in missing], run, number)
            for index in missing:
                body = _reserve_body(run, number, index, requests[index])
                self._append(connection, name, "reserve", uuid.uuid4().hex, body)
            latest = _latest(c for c in self._charges(connection, name) if c.run_key == run.key and c.run == number)
            answered = [charge.id for charge in latest.values() if charge.state == "answered"]
            replays = {
                row.charge: json.loads(row.body)
                for row in connection.execute(sa.select(_answers).where(_answers.c.charge.in_(answered)))
            }
        begun = {charge.id for charge in earlier if charge.run == number and charge.state == "begun"}
        lost = len(begun - {charge.id for charge in kept.values()})
        return Reservation(tuple(latest[index] for index in range(len(requests))), number, replays, lost)

    def begin(self, charge: Charge, noise_fixed: bool = False) -> None:
        """Write durably, before the first noise is drawn, that the query has begun: from here it is spent.

        Raises:
            LedgerError: unless the charge is reserved and nothing has begun.
        """
        self._move(charge, "begin", ("reserved",), {"noise_fixed": noise_fixed})

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
            self._check_move(connection, charge, "advance", ("begun",))
            _check_advance(charge, *self._counts(connection, charge), begun, steps)
            self._append(connection, self._home(connection, charge), "advance", charge.id, {"begun": begun + steps})

    def answer(self, charge: Charge, body: Any) -> None:
        """Store a query's noisy answer, so that a retry of a killed run replays it, free."""
        self._move(charge, "answer", ("begun",), {}, json.dumps(body))

    def commit(self, reservation: Reservation) -> None:
        """Close a run: its outputs are whole, and its stored answers are no longer needed."""
        with self._write() as connection:
            for charge in reservation.charges:
                self._append_move(connection, charge, "commit", ("begun", "answered"), {})
                connection.execute(_answers.delete().where(_answers.c.charge == charge.id))

    def refund(self, charges: Iterable[Charge]) -> int:
        """Give back what never began; what has begun stays charged for ever. Returns how many were given back."""
        count = 0
        for charge in charges:
            with self._write() as connection:
                if self._state(connection, charge) == "reserved":
                    self._append(connection, self._home(connection, charge), "refund", charge.id, {})
                    count += 1
        return count

    def charges(self, name: str) -> list[Charge]:
        """All charges of an asset, oldest first."""
        with self._read() as connection:
            self._known(connection, name)
            return self._charges(connection, name)

    def balance(self, name: str) -> Balance:
        """What the asset has spent and what its cap is."""
        asset = self.asset(name)
        return _balance(asset, self.charges(name))

    def head(self) -> str:
        """The hash of the newest entry."""
        with self._read() as connection:
            return self._head(connection)[1]

    def paid(self, name: str, receipt: Mapping[str, Any], purpose: str) -> list[Charge]:
        """The charges of a receipt that something of this purpose may build on.

        Raises:
            LedgerError: if this ledger does not have them, as committed charges of the receipt's model, or if they are
                of a reference run and the purpose is a release.
        """
        self.verify([receipt["ledger_head"]])
        known = {charge.id: charge for charge in self.charges(name)}
        found = [known.get(line["charge"]) for line in receipt["queries"]]
        own = [charge for charge in found if charge is not None and charge.state == "committed"]
        if len(own) < max(1, len(found)) or receipt["model"] != own[-1].variant:
            raise LedgerError(
                f"The ledger does not have the charges of model {receipt['model']!r} as committed ones.",
                "Fit that model again on this ledger; nothing was charged now.",
            )
        if purpose == "release" and any(charge.purpose != "release" for charge in own):
            raise LedgerError(
                f"Model {receipt['model']!r} is a reference, outside the total: no release may build on it.",
                "Fit it with purpose release, or mark what builds on it as a reference too.",
            )
        return own

    def verify(self, witnesses: Iterable[str] = ()) -> int:
        """Recompute the whole chain; the number of entries.

        Args:
            witnesses: hashes of entries noted outside the ledger (`head` after a run): they show that the newest
                entries were cut off, or that an old copy was put back.

        Raises:
            LedgerError: naming the first entry that does not fit, or if a witness is missing.
        """
        previous = ""
        with self._read() as connection:
            rows = connection.execute(sa.select(_entries).order_by(_entries.c.seq)).all()
        for expected, row in enumerate(rows, start=1):
            whole = row.seq == expected and row.previous == previous
            if not whole or row.hash != _hash(previous, row.seq, row.asset, row.kind, row.charge, row.time, row.body):
                raise LedgerError(
                    f"Entry {row.seq} of the ledger does not fit the one before it: the ledger was changed by hand.",
                    "Restore the ledger from a backup; nothing may be released on this one.",
                )
            previous = row.hash
        if missing := set(witnesses) - {row.hash for row in rows}:
            raise LedgerError(
                f"The ledger at {self.place} lacks {len(missing)} of the entries that were noted elsewhere.",
                "An old copy was put back: restore the newest one; nothing may be released on this one.",
            )
        return len(rows)

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        try:
            with self._engine.connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise _unreadable(self.place, error) from None

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        """One transaction that no other writer can interleave with."""
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

    def _append(
        self, connection: Connection, asset: str, kind: str, charge: str | None, body: Mapping[str, Any]
    ) -> None:
        seq, previous = self._head(connection)
        time, text = datetime.now(UTC).isoformat(timespec="seconds"), _canonical(body)
        values = {"seq": seq + 1, "asset": asset, "kind": kind, "charge": charge, "time": time, "body": text}
        digest = _hash(previous, seq + 1, asset, kind, charge, time, text)
        connection.execute(_entries.insert().values(**values, previous=previous, hash=digest))

    def _head(self, connection: Connection) -> tuple[int, str]:
        newest = sa.select(_entries.c.seq, _entries.c.hash).order_by(_entries.c.seq.desc()).limit(1)
        row = connection.execute(newest).first()
        return (row.seq, row.hash) if row else (0, "")

    def _move(
        self, charge: Charge, kind: str, allowed: tuple[str, ...], body: Mapping[str, Any], answer: str | None = None
    ) -> None:
        with self._write() as connection:
            self._append_move(connection, charge, kind, allowed, body)
            if answer is not None:
                connection.execute(_answers.insert().values(charge=charge.id, body=answer))

    def _append_move(
        self, connection: Connection, charge: Charge, kind: str, allowed: tuple[str, ...], body: Mapping[str, Any]
    ) -> None:
        self._check_move(connection, charge, kind, allowed)
        self._append(connection, self._home(connection, charge), kind, charge.id, body)

    def _check_move(self, connection: Connection, charge: Charge, kind: str, allowed: tuple[str, ...]) -> None:
        state = self._state(connection, charge)
        if state not in allowed:
            raise LedgerError(
                f"Charge {charge.id} of query {charge.query!r} is {state}; it cannot {kind}.",
                "Run the stage again: it reserves anew what it needs.",
            )

    def _home(self, connection: Connection, charge: Charge) -> str:
        reserved = (_entries.c.seq == charge.seq) & (_entries.c.charge == charge.id)
        return connection.scalars(sa.select(_entries.c.asset).where(reserved)).one()

    def _state(self, connection: Connection, charge: Charge) -> str:
        newest = sa.select(_entries.c.kind).where(_entries.c.charge == charge.id).order_by(_entries.c.seq.desc())
        return _NEXT[connection.scalars(newest.limit(1)).one()]

    def _counts(self, connection: Connection, charge: Charge) -> tuple[int, int | None]:
        """Steps begun and steps paid for, by the charge's own entries: the newest one and the reservation."""
        bodies = sa.select(_entries.c.body).where(_entries.c.charge == charge.id)
        reserved, newest = bodies.where(_entries.c.seq == charge.seq), bodies.order_by(_entries.c.seq.desc()).limit(1)
        first, last = (json.loads(connection.scalars(query).one()) for query in (reserved, newest))
        return last.get("begun", 0), first.get("steps")

    def _known(self, connection: Connection, name: str) -> Asset:
        asset = self._asset(connection, name)
        if asset is None:
            raise LedgerError(
                f"Asset {name!r} is not registered in the ledger at {self.place}.",
                "Register it with `palimpsest register`, or correct dataset.asset in params.yaml.",
            )
        return asset

    def _asset(self, connection: Connection, name: str) -> Asset | None:
        key = connection.scalars(sa.select(_assets.c.key).where(_assets.c.name == name)).first()
        if key is None:
            return None
        kinds = _entries.c.kind.in_(("register", "amend"))
        query = sa.select(_entries.c.body).where(_entries.c.asset == name, kinds).order_by(_entries.c.seq)
        terms: dict[str, Any] = {}
        for body in connection.scalars(query):
            terms |= json.loads(body)
        return Asset(**{**terms, "orders": tuple(terms["orders"])}, key=bytes.fromhex(key))

    def _charges(self, connection: Connection, name: str) -> list[Charge]:
        query = sa.select(_entries).where(_entries.c.asset == name, _entries.c.charge.is_not(None))
        charges: dict[str, Charge] = {}
        for row in connection.execute(query.order_by(_entries.c.seq)):
            body = json.loads(row.body)
            if row.kind == "reserve":
                charges[row.charge] = _charge(row, body)
            else:
                charge = charges[row.charge]
                fixed, begun = body.get("noise_fixed", charge.noise_fixed), body.get("begun", charge.steps_begun)
                charges[row.charge] = replace(charge, state=_NEXT[row.kind], noise_fixed=fixed, steps_begun=begun)
        return list(charges.values())


def _check_asset(asset: Asset) -> None:
    validate.positive(delta=asset.delta, epsilon=asset.epsilon, n_public=asset.n_public)
    validate.in_range(0.0, 1.0, delta=asset.delta)
    validate.one_of((ADJACENCY,), adjacency=asset.adjacency)


def _check_requests(run: Run, requests: Sequence[Request]) -> None:
    if run.purpose not in PURPOSES:
        raise LedgerError(f"Variant {run.variant!r} has purpose {run.purpose!r}.", f"Use one of {PURPOSES!r}.")
    for request in requests:
        validate.in_range(0.0, 1.0, own_delta=request.own_delta)
        if request.adjacency != ADJACENCY:
            raise LedgerError(
                f"Query {request.query!r} is accounted for adjacency {request.adjacency!r}; the ledger composes "
                f"{ADJACENCY!r} only.",
                "State the query's sensitivity for adding or removing one record.",
            )
        if run.purpose == "release" and not accounting.is_private(request.event):
            raise LedgerError(
                f"Variant {run.variant!r} asks for query {request.query!r} without noise.",
                "Give it a finite epsilon, or mark it `purpose: reference`: it then stays in the private zone.",
            )
        if request.steps is not None and not _composes(request.event, request.steps):
            raise LedgerError(
                f"Query {request.query!r} plans {request.steps} steps; its event does not compose as many of one kind.",
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
    return charge.state in ("reserved", "answered")


def _latest(charges: Iterable[Charge]) -> dict[int, Charge]:
    """The newest charge of each query index."""
    return {charge.index: charge for charge in sorted(charges, key=lambda charge: charge.seq)}


def preview(asset: Asset, charges: Sequence[Charge], wanted: Mapping[tuple[str, int], Sequence[Request]]) -> float:
    """The epsilon spent on the asset once these further requests have run, by (key, number) of their runs."""
    more = [(request.event, _cell(request.partition, *run)) for run, requests in wanted.items() for request in requests]
    return asset.spent(_divergences(asset, [*_terms_of(charges), *more]))


def _check_budget(asset: Asset, charges: Sequence[Charge], wanted: Sequence[Request], run: Run, number: int) -> None:
    now = _balance(asset, charges)
    after = preview(asset, charges, {(run.key, number): wanted})
    own = sum(charge.own_delta for charge in charges if charge.counted) + sum(request.own_delta for request in wanted)
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
    """A scheme holds within one run: over another data version or key a record may lie in another cell."""
    return (f"{run_key} {number} {partition[0]}", partition[1]) if partition else None


def _terms_of(charges: Iterable[Charge]) -> list[Term]:
    return [_placed(charge) for charge in charges if charge.counted]


def _placed(charge: Charge) -> Term:
    return charge.event, _cell(charge.partition, charge.run_key, charge.run)


def composed(charges: Iterable[Charge]) -> dpa.DpEvent:
    """What these charges did to any one record, as one event: cells of one scheme of a run in parallel, the rest added.

    Guarantee: the event covers every record. Among its parts are, as often as they were charged, all queries of the
    cell that the record lies in, whichever that is, and all that were asked of the whole data set.
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


def _reserve_body(run: Run, number: int, index: int, request: Request) -> dict[str, Any]:
    steps = {} if request.steps is None else {"steps": request.steps}
    return {
        "run_key": run.key,
        "run": number,
        "index": index,
        "stage": run.stage,
        "variant": run.variant,
        "purpose": run.purpose,
        "fingerprint": run.fingerprint,
        "query": request.query,
        "event": events.to_json(request.event),
        "own_delta": request.own_delta,
        "adjacency": request.adjacency,
        "partition": request.partition,
        **steps,
    }


def _charge(row: Any, body: dict[str, Any]) -> Charge:
    partition = tuple(body["partition"]) if body["partition"] else None
    names = ("run_key", "run", "index", "stage", "variant", "purpose", "fingerprint", "query", "own_delta")
    values = {name: body[name] for name in names}
    values |= {"event": events.from_json(body["event"]), "partition": partition, "steps": body.get("steps")}
    return Charge(row.charge, row.seq, state="reserved", time=row.time, **values)


def _public(asset: Asset) -> dict[str, Any]:
    return {name: value for name, value in asdict(asset).items() if name != "key"}


def _terms(asset: Asset) -> dict[str, Any]:
    return {name: value for name, value in _public(asset).items() if name != "orders"}


def _canonical(body: Mapping[str, Any]) -> str:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _hash(previous: str, *parts: object) -> str:
    return hashlib.sha256(_canonical({"previous": previous, "parts": [*parts]}).encode()).hexdigest()


def _unreadable(place: str, error: Exception) -> LedgerError:
    return LedgerError(
        f"The ledger at {place} cannot be read ({type(error).__name__}).",
        "Check the file's permissions or the database's address; restore it from a backup if it is damaged.",
    )


def _sqlite_path(url: str) -> Path | None:
    """The file of a SQLite URL, None for another database."""
    try:
        parsed = sa.make_url(url)
    except SQLAlchemyError:
        raise LedgerError("The ledger's address is not a database URL.", _ADDRESS) from None
    if parsed.get_backend_name() != "sqlite":
        return None
    path = Path(parsed.database or "")
    if not path.is_absolute():
        # A path relative to the working directory, or memory, would be a fresh, empty ledger in every other process.
        raise LedgerError(f"The ledger's address {_shown(url)} is not an absolute path.", _ADDRESS)
    return path


def _exists(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError as error:
        raise _unreadable(str(path), error) from None


def _make_private(path: Path) -> None:
    """Make the file readable by its owner alone, because it holds the assets' keys; leave an existing one alone.

    Opening and closing a database that this process is connected to would drop the locks of that connection (POSIX
    locks belong to the process), and another process could then damage it.
    """
    if not path.exists():
        with contextlib.suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _shown(url: str) -> str:
    return sa.make_url(url).render_as_string(hide_password=True)


def _engine(url: str) -> Engine:
    try:
        engine = sa.create_engine(url)
    except ImportError:
        raise LedgerError(f"The driver for {_shown(url)} is not installed.", _ADDRESS) from None
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", _durable)
        sa.event.listen(engine, "begin", _begin)
    return engine


def _durable(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # SQLAlchemy then leaves BEGIN to `_begin`
    for setting in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=60000"):
        connection.execute(f"PRAGMA {setting}")


def _begin(connection: Connection) -> None:
    writing = connection.get_execution_options().get("immediate", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")
