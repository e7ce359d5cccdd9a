"""Rules of what a run may reserve or use of an earlier attempt and of how charges move: pure functions of charges.

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
from palimpsest.privacy.gaussian_share import Share, cover_charge, needs_delta
from palimpsest.privacy.ledger import records
from palimpsest.privacy.ledger.records import MOVES, PURPOSES, Asset, Balance, Charge, Run, Standing
from palimpsest.privacy.planned import ADJACENCY, PlannedQuery
from palimpsest.privacy.shown import delta_down, delta_up, down, up

TEAM = "PALIMPSEST_TEAM"  # the environment variable that names the team of a run
GIVE_BACK = (
    " What other runs reserved and never began counts, too: `palimpsest ledger` shows it as `reserved`, and "
    "`palimpsest ledger --refund ID` gives it back where such a run is not to go on."
)

# --- what charges add up to ------------------------------------------------------------------------------------------


class _Asked(NamedTuple):
    """One query as the filter counts it: of a charge, or of a plan."""

    event: dpa.DpEvent
    cell: Cell | None
    own_delta: float
    share: Share | None


def balance(asset: Asset, charges: Iterable[Charge]) -> Balance:
    """Return what the charges of an asset have spent, and its cap."""
    return _balance(asset, _collect_counted(charges))


def preview(
    asset: Asset,
    charges: Sequence[Charge],
    wanted: Mapping[tuple[str, int], Sequence[PlannedQuery]],
    team: str | None = None,
) -> Balance:
    """Return the balance of the asset after these further queries, given by (key, number) of their runs.

    With a team that has a cap, it is that team's balance: its own charges together with these queries.
    """
    asked = _collect_counted(charges)
    own = asked if team is None else _collect_counted(charge for charge in charges if charge.team == team)
    for run, planned in wanted.items():
        more = _price_queries(asset, asked, planned, *run)
        asked, own = asked + more, own + more
    return _balance(asset if team is None else replace(asset, epsilon=dict(asset.teams)[team]), own)


def shares(
    asset: Asset, charges: Iterable[Charge], wanted: Sequence[PlannedQuery], run: Run, number: int
) -> list[Share | None]:
    """Return the share of a Gaussian budget that each further query of a run takes; each None for another filter."""
    return [one.share for one in _price_queries(asset, _collect_counted(charges), wanted, run.key, number)]


def assign_shares(asset: Asset, charges: Iterable[Charge]) -> list[Charge]:
    """Return the charges, oldest first, each with a share of this asset's Gaussian budget where the filter is "gdp".

    A charge under another name for the same rows may have no share. It gets the share that this asset would have given
    its run then, which follows from what was asked before it: so a share is fixed before its query begins.
    """
    known = list(charges)
    for run in dict.fromkeys((one.run_key, one.run) for one in known if one.counted and one.share is None):
        own = [n for n, one in enumerate(known) if (one.run_key, one.run) == run and one.counted and one.share is None]
        asked = [_Asked(*_term_of(known[n]), known[n].own_delta, None) for n in own]
        priced = _add_shares(asset, _collect_counted(known[: own[0]]), asked)
        for n, one in zip(own, priced, strict=True):
            known[n] = replace(known[n], share=one.share)
    return known


def compose_charges(charges: Iterable[Charge]) -> dpa.DpEvent:
    """Compose charges into one event on any one unit: cells of one scheme of a run in parallel, the rest added up.

    Guarantee: the event covers every unit of privacy, all of whose rows lie in one cell of a scheme. Among its parts
    are, as often as they were charged, all queries of that cell, whichever it is, and all that were asked of the whole
    data set.
    """
    return events.compose_terms(_term_of(charge) for charge in charges)


def require_budget(
    asset: Asset,
    charges: Sequence[Charge],
    wanted: Sequence[PlannedQuery],
    run: Run,
    number: int,
    kept: Iterable[Charge] = (),
    faults: Sequence[object] = (),
) -> None:
    """Raise BudgetExceeded where the queries that a run has yet to begin would pass the asset's remaining budget.

    Guarantee: what was reserved earlier and never began is held against the cap as it is now, whoever reserved it.

    Args:
        charges: all of the asset.
        wanted: the queries that the run has no charge for yet.
        number: which run of its plan it is.
        kept: charges of an earlier attempt that it would use.
        faults: the entries that fill the budget, because nothing covers them.
    """
    if not wanted and not any(one.state == "reserved" for one in kept):
        return  # all of it has begun or is answered: a cap lowered since then stops only what has yet to begin
    now, after = balance(asset, charges), preview(asset, charges, {(run.key, number): wanted})
    if after.fits:
        return
    if faults:
        raise full_budget_error(asset.name, faults)
    back = GIVE_BACK if has_waiting(charges, run.key) else ""
    share = "Lower the deltas outside the events" if after.spent <= after.cap else "Lower the variant's epsilon"
    raise BudgetExceeded(
        f"Stage {run.stage!r} ({run.variant}) would pass the budget of asset {asset.name!r}: spent epsilon "
        f"{up(now.spent)}, asked {up(after.spent - now.spent)} more, left {down(now.left)} of {asset.epsilon:g} "
        f"at delta {delta_up(asset.delta)} (deltas outside the events: {delta_up(after.beside)} of at most "
        f"{delta_down(after.most_beside)}).",
        f"Nothing was charged and no row was read. {share}, drop a variant, or, if the data's owner agrees, raise the "
        f"cap of epsilon with `palimpsest register --amend`.{back}",
    )


def full_budget_error(name: str, faults: Iterable[object]) -> BudgetExceeded:
    """Return the error for an asset whose budget is filled by entries that nothing covers, each named as it prints."""
    return BudgetExceeded(
        f"The budget of asset {name!r} is full: {'; '.join(map(str, faults))}.",
        "Nothing was charged and no row was read. Such an entry was written past palimpsest, and nothing covers what "
        "it may have told. If the data's owner knows that it told nothing, `palimpsest ledger --strike NUMBER "
        "--because REASON` takes it out.",
    )


def require_kept(asset: Asset, charges: Sequence[Charge], charge: Charge, highest: float, run: Run) -> None:
    """Raise BudgetExceeded where a begun charge that a run would continue never fitted the asset's budget.

    Guarantee: while every charge was admitted, a total is at most the highest cap since the oldest of them. So nothing
    goes on under a charge that was written past the cap.

    Args:
        highest: the highest cap since the charge was reserved.
    """
    if not balance(replace(asset, epsilon=highest), charges).fits:
        raise BudgetExceeded(
            f"Stage {run.stage!r} ({run.variant}) would go on under charge {charge.id}, and the total of asset "
            f"{asset.name!r} is above every cap since that was reserved.",
            "Nothing was charged and no row was read. `palimpsest ledger` shows what was charged; if the data's owner "
            "agrees, raise the cap with `palimpsest register --amend`.",
        )


def select_paying(kept: Mapping[int, Charge], planned: Sequence[PlannedQuery], run: Run) -> dict[int, Charge]:
    """Return the charges of an earlier attempt that pay for what this run asks: its queries, for its purpose.

    Guarantee: a reservation that says a cheaper event, or a reference, is not used for a release's query.
    """
    own = (run.stage, run.variant, run.purpose)
    return {
        index: charge
        for index, charge in kept.items()
        if index < len(planned)
        and (charge.stage, charge.variant, charge.purpose) == own
        and _pays_for(charge, planned[index])
    }


def _pays_for(charge: Charge, query: PlannedQuery) -> bool:
    said = charge.query, events.to_json(charge.event), charge.own_delta, charge.partition, charge.steps, charge.versions
    asked = query.name, events.to_json(query.event), query.own_delta, query.partition, query.steps, query.versions
    return said == asked


def has_waiting(charges: Iterable[Charge], run_key: str | None = None) -> bool:
    """Return whether other runs have reservations that count and never began."""
    return any(one.counted and one.state == "reserved" and one.run_key != run_key for one in charges)


def require_team(
    asset: Asset,
    charges: Sequence[Charge],
    wanted: Sequence[PlannedQuery],
    run: Run,
    number: int,
    team: str | None,
    kept: Iterable[Charge] = (),
) -> None:
    """Raise LedgerError where teams share the asset and the run names none of them, or would pass that team's cap.

    Guarantee: it is asked beside `require_budget`, which it neither replaces nor changes, so that it can only refuse
    more, and every total holds as it did. What a team's own charges come to is counted as an asset's is.

    Args:
        charges: all of the asset.
        wanted: the queries that the run has no charge for yet.
        team: the team that the run named; None where it named none.
        kept: charges of an earlier attempt that it would use.
    """
    has_more = bool(wanted) or any(one.state == "reserved" for one in kept)
    if not has_more or resolve_team(asset, team) is None:
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


def resolve_team(asset: Asset, team: str | None) -> str | None:
    """Return the team, where teams share the asset; None where they do not.

    Raises:
        LedgerError: teams share the asset, and this is none of them.
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
    """Raise ConsentNeeded where a run's further queries would be charged again and nobody consented.

    Guarantee: where a query of this stage and variant began on these rows before, whatever its version and settings
    were, another release is reserved only with the owner's word for that one charge. What goes on under its own charge,
    is replayed or never began needs none.

    Args:
        charges: all of the asset.
        wanted: index of a planned query -> the query, where the run has no charge for it yet.
        consented: the words that were given (`again.word`).
    """
    if not charges_again(charges, wanted, run, now) or (word := records.consent_word(run, charges)) in consented:
        return
    before = balance(asset, charges)
    after = preview(asset, charges, {(run.key, now.number): list(wanted.values())})
    why = _why_again(charges, wanted, run, now)
    raise ConsentNeeded(
        f"Stage {run.stage!r} ({run.variant}) would be charged again: {why}. The total of asset {asset.name!r} would "
        f"go from epsilon {up(before.spent)} to {up(after.spent)} of {asset.epsilon:g}.",
        "Nothing was charged and no row was read. Say yes to `palimpsest run` at a terminal, or give it --yes; for "
        f"`dvc repro` or a schedule set {records.CONSENT}={word} in its environment, which holds for this one charge.",
    )


def charges_again(charges: Iterable[Charge], wanted: Collection[int], run: Run, now: "Attempt") -> bool:
    """Return whether further charges for a run would be second charges for its stage and variant on these rows."""
    return bool(wanted) and (
        now.repeats(wanted) or any(one.run_key != run.key for one in records.earlier_looks(run, charges))
    )


def _why_again(charges: Sequence[Charge], wanted: Mapping[int, PlannedQuery], run: Run, now: "Attempt") -> str:
    if now.number > 1:
        return "this plan already ran on these data, and its answers cannot be replayed"
    if now.repeats(wanted):
        return "an attempt was stopped after queries had begun"
    if raised := describe_new_versions(charges, wanted.values(), run.fingerprint):
        return f"what is asked changed since these data were charged ({', '.join(raised)})"
    return "it was charged on these data before, with other settings"


def describe_new_versions(charges: Iterable[Charge], wanted: Iterable[PlannedQuery], fingerprint: str) -> list[str]:
    """Describe each version that differs from that of the newest charge of the same query on these rows."""
    newest = {charge.query: dict(charge.versions) for charge in charges if charge.fingerprint == fingerprint}
    told = {
        f"{part} is version {number} now and was {before[part]}": None
        for query in wanted
        for part, number in query.versions
        if (before := newest.get(query.name, {})).get(part, number) != number
    }
    return list(told)


def _collect_counted(charges: Iterable[Charge]) -> list[_Asked]:
    return [_Asked(*_term_of(charge), charge.own_delta, charge.share) for charge in charges if charge.counted]


def _term_of(charge: Charge) -> Term:
    return charge.cost, _cell(charge.partition, charge.run_key, charge.run)


def _cell(partition: tuple[str, str] | None, run_key: str, number: int) -> Cell | None:
    """Name a cell within its run: with another data version or key, a unit may lie in another cell of the scheme."""
    return (f"{run_key} {number} {partition[0]}", partition[1]) if partition else None


def _balance(asset: Asset, asked: Sequence[_Asked]) -> Balance:
    if asset.filter == "gdp":
        used: tuple[float, ...] = (
            _most_of_unit((one.cell, one.share.mu**2 if one.share else math.inf) for one in asked),
        )
        beside = _most_of_unit(map(_delta_of, asked))
    else:
        used, beside = _divergences(asset, asked), sum(one.own_delta for one in asked)
    return Balance(used, asset.spent(used), asset.epsilon, beside, asset.beside_delta)


def _delta_of(one: _Asked) -> tuple[Cell | None, float]:
    return one.cell, one.share.beside if one.share else one.own_delta


def _most_of_unit(taken: Iterable[tuple[Cell | None, float]]) -> float:
    """Return the most that is taken of any one unit: a scheme counts by its dearest cell, since a unit lies in one."""
    whole, schemes = 0.0, dict[str, dict[str, float]]()
    for cell, amount in taken:
        if cell is None:
            whole += amount
        else:
            cells = schemes.setdefault(cell[0], {})
            cells[cell[1]] = cells.get(cell[1], 0.0) + amount
    return whole + sum(max(cells.values()) for cells in schemes.values())


def _price_queries(
    asset: Asset, before: Sequence[_Asked], wanted: Sequence[PlannedQuery], key: str, number: int
) -> list[_Asked]:
    """Return further queries of one run, each with its share of a Gaussian budget.

    A share is fixed here, before the query begins. The run's covers take half of the delta that is left, in equal parts
    for all that may meet one unit: so there is always some left for the next run.
    """
    asked = [_Asked(one.event, _cell(one.partition, key, number), one.own_delta, None) for one in wanted]
    return _add_shares(asset, before, asked)


def _add_shares(asset: Asset, before: Sequence[_Asked], asked: list[_Asked]) -> list[_Asked]:
    if asset.filter != "gdp":
        return asked
    left = asset.beside_delta - _most_of_unit(map(_delta_of, before)) - _most_of_unit(map(_delta_of, asked))
    parts = _most_of_unit((one.cell, float(needs_delta(one.event, one.own_delta))) for one in asked)
    each = left / 2.0 / max(1.0, parts)
    return [one._replace(share=cover_charge(one.event, one.own_delta, each)) for one in asked]


def _divergences(asset: Asset, asked: Iterable[_Asked]) -> tuple[float, ...]:
    """Return the summed Renyi divergences, one per order."""
    total = np.zeros(len(asset.orders))
    for body, count in events.worst_counts((one.event, one.cell) for one in asked).items():
        total += count * np.array(_divergence_of(asset.orders, body))
    return tuple(total.tolist())


@lru_cache(maxsize=4096)
def _divergence_of(orders: tuple[float, ...], body: str) -> tuple[float, ...]:
    return tuple(accounting.rdp(events.from_json(json.loads(body)), orders).tolist())


# --- what a run may ask and use --------------------------------------------------------------------------------------


def resume_never(_charge: Charge) -> bool:
    """Continue no charge that has begun."""
    return False


def check_plan(run: Run, planned: Sequence[PlannedQuery]) -> None:
    """Refuse a plan that no run may reserve.

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
    validate.require_in_range(0.0, 1.0, own_delta=query.own_delta)
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
    if query.steps is not None and not composes(query.event, query.steps):
        raise LedgerError(
            f"Query {query.name!r} plans {query.steps} steps; its event does not compose as many of one kind.",
            "State the event as that many compositions of one step, or plan the query without steps.",
        )
    if not events.is_possible(query.event):
        raise ValueError(f"query {query.name!r} has an event that no mechanism has: {query.event}")


def composes(event: dpa.DpEvent, steps: int) -> bool:
    """Return whether the event covers any part of `steps` identical steps, however they are spread over attempts.

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
        """Return whether charges for these planned queries, for which no charge is kept, would be second ones."""
        return bool(wanted) and (self.number > 1 or not self.looked.isdisjoint(wanted))


def attempt(run_key: str, charges: Sequence[Charge], resumable: Callable[[Charge], bool]) -> Attempt:
    """Return the attempt that a run of this key makes, from all charges of its asset.

    `resumable` says whether the caller has what it needs to continue a begun charge.
    """
    earlier = [charge for charge in charges if charge.run_key == run_key and charge.state != "refunded"]
    number = max((charge.run for charge in earlier), default=1)
    own = [charge for charge in earlier if charge.run == number]
    latest = {charge.index: charge for charge in sorted(own, key=lambda charge: charge.seq)}
    if any(charge.state == "committed" for charge in latest.values()):
        return Attempt(number + 1, {}, frozenset(), frozenset())
    kept = {index: charge for index, charge in latest.items() if _is_usable(charge, resumable)}
    begun = frozenset(charge.id for charge in own if charge.state == "begun")
    return Attempt(number, kept, begun, frozenset(charge.index for charge in own if charge.looked))


def _is_usable(charge: Charge, resumable: Callable[[Charge], bool]) -> bool:
    if charge.state == "begun":
        return charge.steps is not None and not charge.noise_fixed and resumable(charge)
    return charge.state == "reserved" or (charge.state == "answered" and charge.answer_hash is not None)


def committed_charges(run_key: str, charges: Iterable[Charge]) -> list[Charge]:
    """Return the charges of the newest run of this key, in the plan's order, if it was committed; else none."""
    own = [charge for charge in charges if charge.run_key == run_key and charge.state != "refunded"]
    number = max((charge.run for charge in own), default=1)
    newest = {charge.index: charge for charge in sorted(own, key=lambda charge: charge.seq) if charge.run == number}
    whole = all(charge.state == "committed" for charge in newest.values())
    return [newest[index] for index in sorted(newest)] if whole else []


def check_move(charge: Charge, standing: Standing, kind: str) -> None:
    """Raise LedgerError unless the charge is in a state from which it may move this way."""
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
