"""What a run may reserve, what of an earlier attempt it may use, and how a charge may move. Pure functions."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import dp_accounting as dpa

from palimpsest import validate
from palimpsest.errors import LedgerError
from palimpsest.privacy import accounting
from palimpsest.privacy.ledger.records import MOVES, PURPOSES, Charge, Run, Standing
from palimpsest.privacy.planned import ADJACENCY, PlannedQuery


def never(_charge: Charge) -> bool:
    """Continue no charge that has begun."""
    return False


def check_plan(run: Run, planned: Sequence[PlannedQuery]) -> None:
    """Refuse what no run may reserve.

    Raises:
        LedgerError: for another adjacency or purpose, a release query without noise, or steps that the event does not
            compose.
        ValueError: for an own delta outside [0, 1].
    """
    if run.purpose not in PURPOSES:
        raise LedgerError(f"Variant {run.variant!r} has purpose {run.purpose!r}.", f"Use one of {PURPOSES!r}.")
    for query in planned:
        _check_query(run, query)


def _check_query(run: Run, query: PlannedQuery) -> None:
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


@dataclass(frozen=True)
class Attempt:
    """An attempt at a plan, after those that went before it under the same key.

    Attributes:
        number: 1 for the first run, 2 when a finished run is repeated, ...
        kept: index of a planned query -> the charge of an unfinished earlier attempt that this one may use.
        begun: ids of the charges of this run that have begun.
    """

    number: int
    kept: Mapping[int, Charge]
    begun: frozenset[str]

    def lost(self, used: Iterable[Charge]) -> int:
        """How many of the charges that have begun are not among those used."""
        return len(self.begun - {charge.id for charge in used})


def attempt(run: Run, charges: Sequence[Charge], resumable: Callable[[Charge], bool]) -> Attempt:
    """The attempt that a run is, by all charges of its asset.

    Args:
        run: what is attempted.
        charges: all of the asset.
        resumable: whether the caller has what it needs to continue a begun charge.
    """
    earlier = [charge for charge in charges if charge.run_key == run.key and charge.state != "refunded"]
    number = max((charge.run for charge in earlier), default=1)
    own = [charge for charge in earlier if charge.run == number]
    latest = {charge.index: charge for charge in sorted(own, key=lambda charge: charge.seq)}
    if any(charge.state == "committed" for charge in latest.values()):
        return Attempt(number + 1, {}, frozenset())
    kept = {index: charge for index, charge in latest.items() if _usable(charge, resumable)}
    return Attempt(number, kept, frozenset(charge.id for charge in own if charge.state == "begun"))


def _usable(charge: Charge, resumable: Callable[[Charge], bool]) -> bool:
    if charge.state == "begun":
        return charge.steps is not None and not charge.noise_fixed and resumable(charge)
    return charge.state == "reserved" or (charge.state == "answered" and charge.answer_hash is not None)


def check_move(charge: Charge, standing: Standing, kind: str) -> None:
    """Raise LedgerError unless the charge stands where it may move so."""
    if standing.state not in MOVES[kind].before:
        raise LedgerError(
            f"Charge {charge.id} of query {charge.query!r} is {standing.state}; it cannot {kind}.",
            "Run the stage again: it reserves anew what it needs.",
        )


def check_advance(charge: Charge, standing: Standing, begun: int, steps: int) -> None:
    """Raise LedgerError unless `begun` steps have begun, and `steps` more do not pass what the charge pays for."""
    if standing.steps is None:
        raise LedgerError(
            f"Charge {charge.id} of query {charge.query!r} pays for no steps; it cannot advance.",
            "Reserve the query with the number of its steps.",
        )
    if standing.begun != begun:
        raise LedgerError(
            f"Charge {charge.id} of query {charge.query!r} has begun {standing.begun} steps, not {begun}: another "
            "process continues this run.",
            "Let one process finish it and end the others.",
        )
    if begun + steps > standing.steps:
        raise LedgerError(
            f"Charge {charge.id} of query {charge.query!r} has begun {begun} of its {standing.steps} steps; {steps} "
            "more would pass what was paid for.",
            "End the query there: steps that were begun and lost are spent, too.",
        )
