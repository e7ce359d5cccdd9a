"""One run of a private stage: reserve, open the view, and close the books whatever happens."""

import math
import time
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from palimpsest.errors import LedgerError
from palimpsest.privacy import accounting
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, Charge, Closed, Run, require_unit
from palimpsest.privacy.ledger.rules import compose_charges, resume_never
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.receipt import GROUPS, Curve, Group, QueryLine, Receipt, stated_fields
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.view import PrivateView
from palimpsest.records.keyed import fingerprint
from palimpsest.records.schema import PublicSchema


@dataclass(frozen=True)
class Session(Closed):
    """An open run, with the view to ask."""

    view: PrivateView


@contextmanager
def metered(
    ledger: Ledger,
    schema: PublicSchema,
    run: Run,
    planned: Sequence[PlannedQuery],
    rows: Callable[[], Sequence[PrivateRow]],
    noise: NoiseSource,
    resumable: Callable[[Charge], bool] = resume_never,
    witnesses: Collection[str] = (),
    again: Container[str] = (),
    team: str | None = None,
    *,
    invented: bool = False,
    provenance: str = "",
) -> Iterator[Session]:
    """Reserve the plan's budget, then read and check the rows, then yield the view; commit when the block ends well.

    `resumable` says whether this attempt has what it needs to continue, under the same charge, a query in steps that an
    earlier attempt began. Under noise that a seed fixes nothing is continued: its draws would come again. `witnesses`
    are hashes of ledger entries that the workspace's receipts noted, `again` the owner's words for second charges,
    `team` the team whose share of the asset the run counts in, `invented` says that the rows belong to nobody, and
    `provenance` identifies the public sources of its model.

    Guarantee: no row is read before the whole plan is reserved, and nothing is reserved in a ledger that is older than
    what was noted of it. No query sees other rows than those that the run is identified by: what a charge paid for is
    asked, repeated and continued on these alone. If the block fails, what never began is given back and what began
    stays charged; if the process is killed, the reservation stands and a retry finds it. What is continued runs only
    the steps that its charge has left. One process at a time is in the block of a run, so that none gives back what
    another will begin.

    Raises:
        BudgetExceeded, ConsentNeeded: before any row is read.
        LedgerError: if the asset is registered for another unit of privacy or the ledger's chain does not hold, before
            any row is read; if another process is at the same run, or the rows are not the run's or not of the unit. No
            query has begun then.
    """
    require_unit(ledger.asset(schema.asset), schema)
    with ledger.lock_run(schema.asset, run.key):
        goes_on = resume_never if noise.fixed else resumable
        reservation = ledger.reserve(schema.asset, run, planned, goes_on, witnesses, again, team, invented=invented)
        try:
            asset = ledger.asset(schema.asset)
            require_unit(asset, schema)  # its terms could be corrected until this was reserved
            own = verify_rows(rows(), run, asset.key)
            view = PrivateView(own, schema, ledger, reservation, noise, provenance)
            yield Session(reservation, time.monotonic(), view)
            ledger.commit(reservation)
        except BaseException:
            ledger.refund(reservation.charges)
            raise


def replay_run(
    ledger: Ledger, schema: PublicSchema, run: Run, planned: Sequence[PlannedQuery], provenance: str
) -> Session | None:
    """Replay a committed run from its stored answers; None where some are missing.

    Guarantee: its view has no rows and its charges can begin nothing, so every answer is one that was paid for, onto
    the subject that it was asked about.
    """
    reservation = ledger.find_answered(schema.asset, run, planned)
    if reservation is None:
        return None
    view = PrivateView((), schema, ledger, reservation, NoiseSource(), provenance)
    return Session(reservation, time.monotonic(), view)


def verify_rows(rows: Sequence[PrivateRow], run: Run, key: bytes) -> Sequence[PrivateRow]:
    """Return the rows that were read, if by the asset's key they are those that the run is identified by.

    Raises:
        LedgerError: they are other rows.
    """
    if fingerprint(rows, key) != run.fingerprint:
        raise LedgerError(
            "The training rows are not those that the plan was reserved for.",
            "No query was asked. Make them again with `dvc repro --force --single-item preprocess`, and let nothing "
            "else write data/private.",
        )
    return rows


def paid_charges(ledger: Ledger, name: str, behind: Receipt, purpose: str) -> list[Charge]:
    """Return the charges of the receipt `behind` something that has this purpose and builds on it.

    Raises:
        LedgerError: if the ledger does not have them, as committed charges of the receipt's model, if the receipt is
            for another unit of privacy, or if they are of a reference run and the purpose is a release.
    """
    books = ledger.books([behind.ledger_head])
    known = {charge.id: charge for charge in books.charges(name)}
    named = [known[line.charge] for line in behind.queries if line.charge in known]
    own = [charge for charge in named if charge.state == "committed"]
    if len(own) < max(1, len(behind.queries)) or behind.model != own[-1].variant:
        raise LedgerError(
            f"The ledger does not have the charges of model {behind.model!r} as committed ones.",
            "Fit that model again on this ledger; nothing was charged now.",
        )
    unit = books.asset(name).unit
    if behind.unit != unit:
        raise LedgerError(
            f"The receipt of model {behind.model!r} is for adding or removing one {behind.unit}, not one {unit}.",
            "It was changed by hand. Fit that model again; nothing was charged now.",
        )
    if purpose == "release" and any(charge.purpose != "release" for charge in own):
        raise LedgerError(
            f"Model {behind.model!r} is a reference, outside the total: no release may build on it.",
            "Fit it with purpose release, or mark what builds on it as a reference too.",
        )
    return own


def receipt(
    ledger: Ledger,
    asset: Asset,
    session: Closed,
    *,
    method: str,
    target: float,
    before: Sequence[str] = (),
    assumptions: Collection[str] = (),
) -> Receipt:
    """Make the receipt of a committed run: its epsilon by its primary accountant and by RDP, its trade-off curve and
    its group epsilons, all for adding or removing one unit of the asset, or a group of that many units.

    `before` names the charges behind the private model that the run built on: all of them are composed with its own.
    Charges of disjoint parts of the data set are composed in parallel. Epsilons leave room for the deltas that no event
    carries; the curve is that of the events only. `assumptions` are those that this run and the runs that it builds on
    make about the machine; no private row may decide what is in it.
    """
    books = ledger.books()
    charges = {charge.id: charge for charge in books.charges(asset.name)}
    own = [charges[key] for key in (*before, *(charge.id for charge in session.reservation.charges))]
    event = compose_charges(own)
    beside = sum(charge.own_delta for charge in own)
    delta = asset.delta - beside
    alpha, beta = accounting.trade_off(event)
    return Receipt(
        **stated_fields(asset, own),
        variant=own[-1].variant,
        method=method,
        epsilon_target=_finite_or_none(target),
        epsilon=_finite_or_none(accounting.epsilon(event, delta)),
        epsilon_rdp=_finite_or_none(accounting.epsilon(event, delta, "rdp")),
        queries=tuple(map(QueryLine.of, own)),
        group=tuple(Group(k, _finite_or_none(accounting.group_epsilon(event, k, asset.delta, beside))) for k in GROUPS),
        curve=Curve(tuple(alpha), tuple(beta)),
        ledger_head=books.head,
        seconds=round(time.monotonic() - session.started, 1),
        assumptions=tuple(sorted(set(assumptions))),
    )


def _finite_or_none(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None
