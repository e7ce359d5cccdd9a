"""What a run may reserve, what of an earlier attempt it may use, how a charge may move. Pure functions of charges.

Guarantee: the charges counted for one asset satisfy (epsilon, delta)-DP in total, also when each plan is chosen
after looking at the results of earlier ones. For one Renyi order the sum of divergences is a valid filter
(Feldman and Zrnic 2021, Theorem 3.1). Here a plan passes while at least one of the fixed orders stays within its
limit for (epsilon, delta / 2 / number of orders). Every transcript then ends within the limit of some order;
assign it to one. On the transcripts assigned to an order the process equals the one that this order's filter
alone would stop, so they add at most that order's share of delta, and the shares sum to delta / 2. The deltas
that no event carries never pass the other half.

An asset may be counted in Gaussian DP instead. Each charge is covered, before it begins, by a mechanism that tells all
with probability t and asks one Gaussian query of mu otherwise (`gaussian_share`). Claim: while at most n charges are
still to come, of which mu in squares never add up to more than m^2 nor t to more than d, whatever was seen, they are
covered together by (m, d). For n = 0 nothing is told. Otherwise the next charge is covered by (mu, t), and, whatever
it answers, the rest by (sqrt(m^2 - mu^2), d - t). An adaptive composition is covered by the product of the two covers
(Zhu, Dong, Wang 2022, Theorem 10). It tells all with probability 1 - (1 - t) (1 - d + t) <= d, and asks two Gaussian
queries otherwise, which are one of mu m. So with m fixed by delta_G(epsilon; m) <= filter_delta and d by beside_delta,
the whole satisfies (epsilon, delta) however long it goes on. A unit meets one cell of a scheme, so the dearest counts.

Stages run side by side, so charges that have begun answer in any order. Each counts in full before it begins, and the
ledger lets one begin at a time. So they are interactive mechanisms that compose concurrently. A charge that a pair of
laws covers is a post-processing of one draw of that pair, made as it begins (Vadhan and Zhang 2023), so what was said
of one charge after another holds for the draws. For one Renyi order divergences add up concurrently (Lyu 2022), and
its filter stays valid (Haney et al. 2023).
"""

import json
import math
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import dp_accounting.dp_event as dpa
import numpy as np

from palimpsest import validate
from palimpsest.errors import BudgetExceeded, ConsentNeeded, LedgerError
from palimpsest.privacy import accounting, events
from palimpsest.privacy.events import Cell, Term
from palimpsest.privacy.gaussian_share import Share, covering, needs_delta
from palimpsest.privacy.ledger import again
from palimpsest.privacy.ledger.records import MOVES, PURPOSES, Asset, Balance, Charge, Run, Standing
from palimpsest.privacy.planned import ADJACENCY, PlannedQuery
from palimpsest.privacy.shown import down, up

TEAM = "PALIMPSEST_TEAM"  # the environment's: whose run it is
GIVE_BACK = (
    " What other runs reserved and never began counts, too: `palimpsest ledger` shows it as `reserved`, and "
    "`palimpsest ledger --refund ID` gives it back where such a run is not to go on."
)
_SLACK = 1e-6  # between releases of the libraries that count

# --- what charges add up to ------------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """One query as the filter counts it: of a charge, or of a plan."""

    event: dpa.DpEvent
    cell: Cell | None
    own_delta: float
    share: Share | None


def balance(asset: Asset, charges: Iterable[Charge]) -> Balance:
    """What the charges of an asset have spent, and what its cap is."""
    return _balance(asset, _counted(charges))


def preview(
    asset: Asset,
    charges: Sequence[Charge],
    wanted: Mapping[tuple[str, int], Sequence[PlannedQuery]],
    team: str | None = None,
) -> Balance:
    """The balance of the asset once these further queries have run, by (key, number) of their runs.

    With a team that has a cap it is that team's: of its own charges, these queries among them.
    """
    asked = _counted(charges)
    own = asked if team is None else _counted(charge for charge in charges if charge.team == team)
    for run, planned in wanted.items():
        more = _priced(asset, asked, planned, *run)
        asked, own = asked + more, own + more
    return _balance(asset if team is None else replace(asset, epsilon=dict(asset.teams)[team]), own)


def shares(
    asset: Asset, charges: Iterable[Charge], wanted: Sequence[PlannedQuery], run: Run, number: int
) -> list[Share | None]:
    """What each of a run's further queries takes of a Gaussian budget; None of each where the filter is another."""
    return [one.share for one in _priced(asset, _counted(charges), wanted, run.key, number)]


def understated(asset: Asset, charges: Iterable[Charge]) -> list[Charge]:
    """The charges of a Gaussian budget whose share does not cover their event, by the accountants of today."""
    if asset.filter != "gdp":
        return []
    return [charge for charge in charges if charge.counted and not _covers(charge)]


def _covers(charge: Charge) -> bool:
    if charge.share is None:
        return False
    own = charge.own_delta
    return charge.share.mu >= covering(charge.event, own, charge.share.beside - own).mu * (1.0 - _SLACK)


def composed(charges: Iterable[Charge]) -> dpa.DpEvent:
    """What these charges did to any one unit, as one event: cells of one scheme of a run in parallel, the rest added.

    Guarantee: the event covers every unit of privacy, all of whose rows lie in one cell of a scheme. Among its parts
    are, as often as they were charged, all queries of that cell, whichever it is, and all that were asked of the whole
    data set.
    """
    return events.composed(_placed(charge) for charge in charges)


def require_budget(
    asset: Asset, charges: Sequence[Charge], wanted: Sequence[PlannedQuery], run: Run, number: int
) -> None:
    """Raise BudgetExceeded where a run's further queries would pass what the asset has left.

    Args:
        charges: all of the asset.
        wanted: what the run has no charge for yet.
        number: which run of its plan it is.
    """
    if not wanted:  # it asks nothing more: a cap that was lowered since stops new charges alone
        return
    now, after = balance(asset, charges), preview(asset, charges, {(run.key, number): wanted})
    if after.fits:
        return
    back = GIVE_BACK if waiting(charges, run.key) else ""
    share = "Lower the deltas outside the events" if after.spent <= after.cap else "Lower the variant's epsilon"
    raise BudgetExceeded(
        f"Stage {run.stage!r} ({run.variant}) would pass the budget of asset {asset.name!r}: spent epsilon "
        f"{up(now.spent)}, asked {up(after.spent - now.spent)} more, left {down(now.left)} of {asset.epsilon:g} "
        f"at delta {asset.delta:.3g} (deltas outside the events: {after.beside:.3g} of {after.most_beside:.3g}).",
        f"Nothing was charged and no row was read. {share}, drop a variant, or, if the data's owner agrees, raise the "
        f"cap of epsilon with `palimpsest register --amend`.{back}",
    )


def waiting(charges: Iterable[Charge], run_key: str | None = None) -> bool:
    """Whether other runs reserved what never began and counts."""
    return any(one.counted and one.state == "reserved" and one.run_key != run_key for one in charges)


def require_team(
    asset: Asset, charges: Sequence[Charge], wanted: Sequence[PlannedQuery], run: Run, number: int, team: str | None
) -> None:
    """Raise LedgerError where an asset that teams share is asked by none of them, or beyond the cap of that one.

    Guarantee: it is asked beside `require_budget`, which it neither replaces nor changes, so that it can only refuse
    more, and every total holds as it did. What a team's own charges come to is counted as an asset's is.

    Args:
        charges: all of the asset.
        wanted: what the run has no charge for yet.
        team: whose run it is, None where it named none.
    """
    if not wanted or sharing(asset, team) is None:
        return
    now, after = preview(asset, charges, {}, team), preview(asset, charges, {(run.key, number): wanted}, team)
    if after.spent > after.cap:
        raise BudgetExceeded(
            f"Stage {run.stage!r} ({run.variant}) would pass the share of team {team!r} in asset {asset.name!r}: "
            f"spent epsilon {up(now.spent)}, asked {up(after.spent - now.spent)} more, left {down(now.left)} of "
            f"{now.cap:g}.",
            "Nothing was charged and no row was read. Lower the variant's epsilon, or, if the data's owner agrees, "
            "raise the team's cap with `palimpsest ledger team`.",
        )


def sharing(asset: Asset, team: str | None) -> str | None:
    """The team, where teams share the asset; None where they do not.

    Raises:
        LedgerError: they do, and it is none of them.
    """
    if not asset.teams:
        return None
    if team not in dict(asset.teams):
        raise LedgerError(
            f"Asset {asset.name!r} is shared by the teams {', '.join(dict(asset.teams))}; this run names "
            f"{'none' if team is None else repr(team)}.",
            f"Set {TEAM} to yours, or let the data's owner give it a cap with `palimpsest ledger team`. Nothing was "
            "charged.",
        )
    return team


def require_consent(
    asset: Asset,
    charges: Sequence[Charge],
    wanted: Mapping[int, PlannedQuery],
    run: Run,
    now: "Attempt",
    consented: Container[str],
) -> None:
    """Raise ConsentNeeded where a run's further queries would be charged again, and nobody said yes to that.

    Guarantee: a query of a release that has begun is reserved again for the same run only with the owner's word for
    that one charge. What goes on under its own charge, is replayed or never began needs none.

    Args:
        charges: all of the asset.
        wanted: index of a planned query -> what the run has no charge for yet.
        consented: the words that were given (`again.word`).
    """
    if not now.repeats(wanted) or (word := again.word(run.stage, run.variant, run.key, charges)) in consented:
        return
    before = balance(asset, charges)
    after = preview(asset, charges, {(run.key, now.number): list(wanted.values())})
    why = "this plan already ran on these data" if now.number > 1 else "an attempt was stopped after queries had begun"
    raise ConsentNeeded(
        f"Stage {run.stage!r} ({run.variant}) would be charged again: {why}. The total of asset {asset.name!r} would "
        f"go from epsilon {up(before.spent)} to {up(after.spent)} of {asset.epsilon:g}.",
        "Nothing was charged and no row was read. Say yes to `palimpsest run` at a terminal, or give it --yes; for "
        f"`dvc repro` or a schedule set {again.VARIABLE}={word} in its environment, which holds for this one charge.",
    )


def _counted(charges: Iterable[Charge]) -> list[Asked]:
    return [Asked(*_placed(charge), charge.own_delta, charge.share) for charge in charges if charge.counted]


def _placed(charge: Charge) -> Term:
    return charge.event, _cell(charge.partition, charge.run_key, charge.run)


def _cell(partition: tuple[str, str] | None, run_key: str, number: int) -> Cell | None:
    """A scheme holds within one run: over another data version or key a unit may lie in another cell."""
    return (f"{run_key} {number} {partition[0]}", partition[1]) if partition else None


def _balance(asset: Asset, asked: Sequence[Asked]) -> Balance:
    if asset.filter == "gdp":
        used: tuple[float, ...] = (_worst((one.cell, one.share.mu**2 if one.share else math.inf) for one in asked),)
        beside = _worst(map(_beside, asked))
    else:
        used, beside = _divergences(asset, asked), sum(one.own_delta for one in asked)
    return Balance(used, asset.spent(used), asset.epsilon, beside, asset.beside_delta)


def _beside(one: Asked) -> tuple[Cell | None, float]:
    return one.cell, one.share.beside if one.share else one.own_delta


def _worst(taken: Iterable[tuple[Cell | None, float]]) -> float:
    """What is taken of any one unit at most: of a scheme by the dearest of its cells, since a unit lies in one."""
    whole, schemes = 0.0, dict[str, dict[str, float]]()
    for cell, amount in taken:
        if cell is None:
            whole += amount
        else:
            cells = schemes.setdefault(cell[0], {})
            cells[cell[1]] = cells.get(cell[1], 0.0) + amount
    return whole + sum(max(cells.values()) for cells in schemes.values())


def _priced(
    asset: Asset, before: Sequence[Asked], wanted: Sequence[PlannedQuery], key: str, number: int
) -> list[Asked]:
    """Further queries of one run, each with its share of a Gaussian budget.

    A share is fixed here, before the query begins. What the run's covers take of delta is half of what is left of it,
    in equal parts for all that may meet one unit: so there is always some left for the next run.
    """
    asked = [Asked(one.event, _cell(one.partition, key, number), one.own_delta, None) for one in wanted]
    if asset.filter != "gdp":
        return asked
    left = asset.beside_delta - _worst(map(_beside, before)) - _worst(map(_beside, asked))
    parts = _worst((one.cell, float(needs_delta(one.event, one.own_delta))) for one in asked)
    each = left / 2.0 / max(1.0, parts)
    return [one._replace(share=covering(one.event, one.own_delta, each)) for one in asked]


def _divergences(asset: Asset, asked: Iterable[Asked]) -> tuple[float, ...]:
    """Summed Renyi divergences, one per order."""
    total = np.zeros(len(asset.orders))
    for body, count in events.worst_counts((one.event, one.cell) for one in asked).items():
        total += count * np.array(_divergence_of(asset.orders, body))
    return tuple(total.tolist())


@lru_cache(maxsize=4096)
def _divergence_of(orders: tuple[float, ...], body: str) -> tuple[float, ...]:
    return tuple(accounting.rdp(events.from_json(json.loads(body)), orders).tolist())


# --- what a run may ask and use --------------------------------------------------------------------------------------


def never(_charge: Charge) -> bool:
    """Continue no charge that has begun."""
    return False


def check_plan(run: Run, planned: Sequence[PlannedQuery]) -> None:
    """Refuse what no run may reserve.

    Raises:
        LedgerError: for a plan that asks nothing, another adjacency or purpose, a release query without noise, or
            steps that the event does not compose.
        ValueError: for an own delta outside [0, 1].
    """
    if run.purpose not in PURPOSES:
        raise LedgerError(f"Variant {run.variant!r} has purpose {run.purpose!r}.", f"Use one of {PURPOSES!r}.")
    if not planned:
        raise LedgerError(
            f"Variant {run.variant!r} plans no query.", "Plan what it asks: a run that asks nothing needs no charge."
        )
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


class Attempt(NamedTuple):
    """An attempt at a plan, after those that went before it under the same key.

    Attributes:
        number: 1 for the first run, 2 when a finished run is repeated, ...
        kept: index of a planned query -> the charge of an unfinished earlier attempt that this one may use.
        begun: ids of the charges of this run that have begun.
        looked: indices of the planned queries that began in this run, answered ones included.
    """

    number: int
    kept: Mapping[int, Charge]
    begun: frozenset[str]
    looked: frozenset[int]

    def repeats(self, wanted: Collection[int]) -> bool:
        """Whether charges for these planned queries, which none is kept for, would be second ones."""
        return bool(wanted) and (self.number > 1 or not self.looked.isdisjoint(wanted))


def attempt(run_key: str, charges: Sequence[Charge], resumable: Callable[[Charge], bool]) -> Attempt:
    """The attempt that a run of this key is, by all charges of its asset.

    `resumable` says whether the caller has what it needs to continue a begun charge.
    """
    earlier = [charge for charge in charges if charge.run_key == run_key and charge.state != "refunded"]
    number = max((charge.run for charge in earlier), default=1)
    own = [charge for charge in earlier if charge.run == number]
    latest = {charge.index: charge for charge in sorted(own, key=lambda charge: charge.seq)}
    if any(charge.state == "committed" for charge in latest.values()):
        return Attempt(number + 1, {}, frozenset(), frozenset())
    kept = {index: charge for index, charge in latest.items() if _usable(charge, resumable)}
    begun = frozenset(charge.id for charge in own if charge.state == "begun")
    return Attempt(number, kept, begun, frozenset(charge.index for charge in own if charge.looked))


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
