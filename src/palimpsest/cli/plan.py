"""`palimpsest plan`: what would run, and the price list, before anything is bought."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import dp_accounting.dp_event as dpa

from palimpsest.cli.console import Rows, console, show, show_json
from palimpsest.cli.context import Context, opened
from palimpsest.cli.graph import standings
from palimpsest.cli.kept import kept
from palimpsest.cli.render import render
from palimpsest.cli.timing import expected
from palimpsest.graph.state import Standing, State
from palimpsest.methods.registry import METHODS, method
from palimpsest.methods.shared.base import Plan
from palimpsest.methods.shared.columns import PlanTable
from palimpsest.params.file import RESOLVED
from palimpsest.privacy import accounting
from palimpsest.privacy.ledger.records import Balance, Charge
from palimpsest.privacy.ledger.rules import TEAM, preview
from palimpsest.privacy.shown import delta_up, up
from palimpsest.records.vouched import files_of
from palimpsest.report.formats import MISSING, number
from palimpsest.workspace import CHECKPOINTS
from stages import finished
from stages.pricing import Prices, continues
from stages.spenders import Spender, spenders
from stages.vouching import require_vouched


@dataclass(frozen=True)
class Priced:
    """The plan of a model that is fitted to private rows, or of a variant that is written from them.

    Attributes:
        stage: the stage's name, as in dvc.yaml.
        name: the model's or the variant's.
        purpose: release or reference.
        plan: what its stage asks.
        whole: all that it costs: its own plan and that of the model it builds on.
        own_delta: what that takes of delta beside its event.
        pending: whether the stage would run, and be charged.
    """

    stage: str
    name: str
    purpose: str
    plan: Plan
    whole: dpa.DpEvent
    own_delta: float
    pending: bool


@dataclass(frozen=True)
class Cost:
    """What something that spends would ask, as it is shown.

    Attributes:
        name: the model's or the variant's.
        numbers: of its plan, what is known of it: noise_multiplier, sigma, steps, rows, requests, tokens, cost.
        notes: what its owner should know.
        feasible: whether the setting can work.
        epsilon: its own, with what it builds on; None of a reference, and where it cannot work.
        accountant: which one says so; epsilon_rdp is that of the other.
        budget_cost: what a run would add to the data set's total now; 0 of what will not run.
    """

    name: str
    numbers: Mapping[str, Any]
    notes: tuple[str, ...]
    feasible: bool
    epsilon: float | None
    accountant: str
    epsilon_rdp: float | None
    budget_cost: float


@dataclass(frozen=True)
class PlanLine:
    """A stage that spends.

    Attributes:
        state: cached, restorable (free) or will run.
        why: what changed since it ran, in words.
        after: stages before it that will run.
        draws: variants that are drawn from it, free.
        minutes: expected of it, where it will run; None where it was never measured here.
    """

    stage: str
    method: str
    purpose: str
    state: str
    why: tuple[str, ...]
    after: tuple[str, ...]
    draws: tuple[str, ...]
    minutes: float | None
    cost: Cost


@dataclass(frozen=True)
class TeamBudget:
    """What a team that shares the data set may spend: its cap, what it spent, and would have spent after a run."""

    name: str
    cap: float
    spent: float
    after: float

    @property
    def fits(self) -> bool:
        return self.after <= self.cap


@dataclass(frozen=True)
class PlanSummary:
    """What a run of the workspace would do and cost; `palimpsest plan --json` prints it.

    Attributes:
        unit: record or person.
        cap: the budget's epsilon, at `delta`; spent and left count what was charged, after what a run would charge.
        fits: whether a run stays within the budget.
        beside: deltas that no event carries, after the run; at most `most_beside`.
        team: what the team that asks has of it, where teams share the data set.
        flags: warnings about the settings.
        lines: the stages that spend.
        others: of the stages that spend nothing, how many are cached, restorable, will run.
        minutes: expected of each stage, by its name, that will run and was measured here before.
        unmeasured: how many others will run.
    """

    asset: str
    unit: str
    delta: float
    cap: float
    spent: float
    left: float
    after: float
    fits: bool
    beside: float
    most_beside: float
    team: TeamBudget | None
    flags: tuple[str, ...]
    lines: tuple[PlanLine, ...]
    others: Mapping[str, int]
    minutes: Mapping[str, float]
    unmeasured: int


def priced(context: Context, *, only_pending: bool = False) -> list[Priced]:
    """Everything that spends, with its plan, each after what it builds on. Reads no row."""
    return _priced(context, {one.name: one for one in standings(context, fresh=True)}, only_pending)


def _priced(context: Context, found: Mapping[str, Standing], only_pending: bool = False) -> list[Priced]:
    prices, wanted = Prices(context.params), spenders(context.params)
    return [priced_one(prices, each, found) for each in wanted if _runs(found, each) or not only_pending]


def priced_one(prices: Prices, each: Spender, found: Mapping[str, Standing]) -> Priced:
    """One of them, by the state of its stage; a stage that is not there yet would run."""
    plan, (whole, own_delta) = prices.planned(each.name), prices.whole(each.name)
    return Priced(each.stage, each.name, each.target.purpose, plan, whole, own_delta, _runs(found, each))


def _runs(found: Mapping[str, Standing], each: Spender) -> bool:
    return each.stage not in found or found[each.stage].state is State.RUNS


def balance_after(
    context: Context, variants: list[Priced], charges: Sequence[Charge] | None = None, team: str | None = None
) -> Balance:
    """The asset's balance once every pending release has run, or that of a team that shares it.

    What the newest attempt at such a plan, which was stopped, reserved and never began, can replay or can continue is
    not counted twice. One before it had settings that no query shows, and stays counted beside it. `charges` are the
    asset's, where they are known.
    """
    pending = {item.name: item for item in variants if item.pending and item.purpose == "release"}
    every = context.ledger.charges(context.asset.name) if charges is None else charges
    planned = [one for one in every if one.state != "refunded" and planned_by(one, pending.get(one.variant))]
    newest = {one.variant: one.run_key for one in planned}
    used = {one.id for one in planned if one.run_key == newest[one.variant] and _reusable(context, one)}
    standing = [charge for charge in every if charge.id not in used]
    wanted = {(name, 1): item.plan.queries for name, item in pending.items()}
    return preview(context.asset, standing, wanted, team)


def comes_back(context: Context, item: Priced, kept: Mapping[str, frozenset[str]]) -> bool:
    """Whether a finished run of this plan waits to be put back, free, unless a setting that no query shows changed.

    The stage itself knows. So this decides what is foretold, and never whether somebody is asked.
    """
    charges = context.ledger.charges(context.asset.name)
    runs = (finished.committed(key, charges) for key in kept.get(item.stage, ()))
    return any(own and all(planned_by(charge, item) for charge in own) for own in runs)


def planned_by(charge: Charge, item: Priced | None) -> bool:
    """Whether the charge is one that the plan would make."""
    queries = item.plan.queries if item else ()
    own = charge.query, charge.event, charge.own_delta, charge.partition
    return any(own == (each.name, each.event, each.own_delta, each.partition) for each in queries)


def _reusable(context: Context, charge: Charge) -> bool:
    begun = charge.state == "begun" and continues(charge, context.workspace)
    return begun or charge.state in ("reserved", "answered")


def show_plan(workspace: Path, *, as_json: bool = False) -> None:
    """Print what would run and why, the cost of it by both accountants and to the budget, and what would be left."""
    render(workspace)
    context = opened(workspace)
    require_vouched(context.params, workspace)
    summary = summarised(context)
    if as_json:
        show_json(summary)
        return
    _print(summary)


def summarised(context: Context) -> PlanSummary:
    """What a run of a workspace would do and cost. Reads no row."""
    found = {one.name: one for one in standings(context)}
    spending = spenders(context.params)
    for each in spending:
        each.require_protection()
    pending = [each.name for each in spending if _runs(found, each)]
    team = team_of(context)
    about = [(context.workspace / RESOLVED).read_text(encoding="utf-8"), context.ledger.head(), pending, team]
    about += [sorted(map(str, files_of(context.workspace / CHECKPOINTS)))]  # what can go on, or come back
    costs = kept(context.workspace, "plan", [*about, asdict(context.asset)], lambda: _costs(context, found))
    due = [one.name for one in found.values() if one.state is State.RUNS]
    minutes = expected(context.workspace, due)
    pairs = zip(spending, costs["lines"], strict=True)
    lines = [_line(context, each, body, found.get(each.stage), minutes.get(each.stage)) for each, body in pairs]
    own = {line.stage for line in lines}
    states = Counter(str(one.state) for one in found.values() if one.name not in own)
    asset = context.asset
    after = Balance(**{**costs["after"], "used": tuple(costs["after"]["used"])})
    return PlanSummary(
        asset.name, asset.unit, asset.delta, asset.epsilon, costs["spent"], max(0.0, asset.epsilon - costs["spent"]),
        after.spent, after.fits, after.beside, after.most_beside, costs["team"] and TeamBudget(**costs["team"]),
        tuple(context.params.flags()), tuple(lines),
        {str(state): states[str(state)] for state in State}, minutes, len(due) - len(minutes),
    )  # fmt: skip


def _costs(context: Context, found: Mapping[str, Standing]) -> dict[str, Any]:
    """What everything costs, as JSON values: what takes long, and depends on settings and ledger alone."""
    books = context.ledger.books()
    charges, spent = books.charges(context.asset.name), books.balance(context.asset.name).spent
    kept = finished.waiting(context.workspace)
    every = _priced(context, found)
    variants = [replace(item, pending=item.pending and not comes_back(context, item, kept)) for item in every]
    return {
        "spent": spent,
        "after": asdict(balance_after(context, variants, charges)),
        "team": _team_budget(context, variants, charges),
        "lines": [asdict(_cost(context, item, charges, spent)) for item in variants],
    }


def team_of(context: Context) -> str | None:
    """The team that asks, where it has a share of the data set."""
    team = os.environ.get(TEAM)
    return team if team in dict(context.asset.teams) else None


def _team_budget(context: Context, variants: list[Priced], charges: Sequence[Charge]) -> dict[str, Any] | None:
    team = team_of(context)
    if team is None:
        return None
    now, after = preview(context.asset, charges, {}, team), balance_after(context, variants, charges, team)
    return asdict(TeamBudget(team, now.cap, now.spent, after.spent))


def _cost(context: Context, item: Priced, charges: Sequence[Charge], spent: float) -> Cost:
    plan, delta = item.plan, context.asset.delta - item.own_delta
    own = rdp = None
    if plan.feasible and accounting.is_private(item.whole):
        own, rdp = accounting.planned_epsilon(item.whole, delta), accounting.epsilon(item.whole, delta, "rdp")
    adds = balance_after(context, [item], charges).spent - spent if plan.feasible else 0.0
    return Cost(
        item.name, dict(plan.numbers), plan.notes, plan.feasible, own, accounting.primary(item.whole), rdp, adds
    )


def _line(
    context: Context, each: Spender, cost: Mapping[str, Any], where: Standing | None, minutes: float | None
) -> PlanLine:
    draws = tuple(variant for variant, model in context.params.run.dp_lm.items() if model == each.name)
    standing = where or Standing(each.method.stage, each.stage, State.RUNS, ("it is not in dvc.yaml",))
    return PlanLine(
        each.stage, each.method.name, each.target.purpose, str(standing.state), standing.why, standing.after, draws,
        minutes, Cost(**{**cost, "notes": tuple(cost["notes"])}),
    )  # fmt: skip


def _print(summary: PlanSummary) -> None:
    out = console()
    for flag in summary.flags:
        out.print(f"[yellow]flag:[/yellow] {flag}", soft_wrap=True)
    for columns in dict.fromkeys(known.columns for known in METHODS):
        if shown := [line for line in summary.lines if method(line.method).columns is columns]:
            show(out, plan_table(columns, shown, whole=not out.is_terminal))
    if out.is_terminal:
        for line in summary.lines:
            if reason := _reason(line):
                out.print(f"{line.stage} {line.state}: {reason}.", markup=False)
    for text in _sentences(summary):
        out.print(text, markup=False, soft_wrap=not out.is_terminal)


def _sentences(summary: PlanSummary) -> Iterator[str]:
    """What is told under the tables."""
    for line in summary.lines:
        yield from (f"{line.cost.name}: {note}" for note in line.cost.notes)
    others = ", ".join(f"{count} {state}" for state, count in summary.others.items())
    yield f"Stages that spend nothing: {others}."
    if summary.minutes:
        measured, total = len(summary.minutes), _time(sum(summary.minutes.values()))
        yield f"Expected: {total} for what was measured here, {measured} of {measured + summary.unmeasured} stages."
    yield budget_sentence(summary)
    if team := summary.team:
        yield (
            f"Share of team {team.name}: epsilon {team.cap:g}; spent {up(team.spent)}, after the pending runs "
            f"{up(team.after)}: {'fits' if team.fits else 'does not fit'}."
        )
    if summary.beside:
        yield (
            f"Deltas that no event carries: {delta_up(summary.beside)} after the pending runs, of at most "
            f"{delta_up(summary.most_beside)}."
        )
    yield (
        "Budget cost: what one run adds to the data set's total. It is above the variant's own epsilon because the "
        "total also holds for plans chosen after looking at earlier results; several costs do not simply add up."
    )
    yield (
        "A cached or restorable model spends nothing; one that runs again is charged again. A discriminator's epsilon "
        "counts the language model that it builds on. Whatever is drawn from a model is free."
    )


def budget_sentence(summary: PlanSummary) -> str:
    """The budget, what is spent of it, and what the pending runs would leave spent."""
    return (
        f"Budget of {summary.asset}: epsilon {summary.cap:g} at delta {delta_up(summary.delta)} for adding or removing "
        f"one {summary.unit}; spent {up(summary.spent)}, after the pending runs {up(summary.after)}: "
        f"{'fits' if summary.fits else 'does not fit'}."
    )


def plan_table(columns: PlanTable, lines: Sequence[PlanLine], *, whole: bool) -> Rows:
    """One table for the methods that share columns; `whole` has the reasons of each row in it, too."""
    headings = (columns.row, *(column.heading for column in columns.columns), "epsilon", "epsilon\nRDP", "budget\ncost")
    rows = []
    for line in lines:
        shown = partial(_shown, line.cost)
        title = line.stage if whole else line.cost.name
        cells = [_title(title, line, columns), *(column.cell(shown) for column in columns.columns)]
        rows.append([*cells, *_prices(line), _state(line), *([_reason(line)] if whole else [])])
    names = (*headings, "state", *(["why"] if whole else []))
    colours = (("infeasible", "red"),)
    return Rows("Plan: no row was read", names, rows, left=(columns.row, "state"), colours=colours)


def _title(title: str, line: PlanLine, columns: PlanTable) -> str:
    """The model or variant, its method, and what is drawn from it without a further charge."""
    lines = [title, f"{line.method} {line.purpose}"]
    lines += [_shown(line.cost, columns.way)] if columns.way else []
    return "\n".join([*lines, *([f"draws: {', '.join(line.draws)}"] if line.draws else [])])


def _shown(cost: Cost, *keys: str, digits: int = 3) -> str:
    """The first of these numbers that the plan has."""
    return number(next((cost.numbers[key] for key in keys if key in cost.numbers), None), digits)


def _prices(line: PlanLine) -> list[str]:
    """Epsilon by the plan's own accountant and by RDP, and the cost to the budget."""
    cost = line.cost
    if not cost.feasible:
        return [MISSING] * 3
    return [f"{_epsilon(cost.epsilon)}\n({cost.accountant})", _epsilon(cost.epsilon_rdp), up(cost.budget_cost)]


def _state(line: PlanLine) -> str:
    if not line.cost.feasible:
        return "infeasible"
    return f"{line.state}\n{_time(line.minutes)}" if line.state == State.RUNS else line.state


def _time(minutes: float | None) -> str:
    if minutes is None:
        return f"{MISSING} min"
    return f"{minutes:.1f} min" if minutes >= 1.0 else f"{60 * minutes:.0f} s"


def _reason(line: PlanLine) -> str:
    """Why it is not cached, in words."""
    before = [f"it needs {', '.join(line.after)}, which will run"] if line.after else []
    return "; ".join([*dict.fromkeys(line.why), *before]) if line.state != State.CACHED else ""


def _epsilon(value: float | None) -> str:
    return "∞" if value is None else up(value)
