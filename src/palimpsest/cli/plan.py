"""`palimpsest plan`: the stages that would run, the price list, and how long it may take, before anything is bought."""

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import dp_accounting.dp_event as dpa

from palimpsest.cli.console import Rows, console, show, show_json
from palimpsest.cli.context import Context, load_or_compute, open_workspace, render, stamp
from palimpsest.cli.graph import standings
from palimpsest.cli.ledger import describe_total
from palimpsest.errors import PalimpsestError
from palimpsest.files import read_json
from palimpsest.graph.stage import NAME, Stage
from palimpsest.graph.stages import STAGES
from palimpsest.graph.state import ITS_CODE, Standing, State, made_alike
from palimpsest.methods.registry import METHODS, method
from palimpsest.methods.shared.base import Plan
from palimpsest.methods.shared.method import PlanTable
from palimpsest.params.file import RESOLVED
from palimpsest.privacy import accounting
from palimpsest.privacy.ledger.records import Balance, Charge, Run
from palimpsest.privacy.ledger.rules import TEAM, Attempt, attempt, committed_charges, describe_new_versions, preview
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.shown import delta_down, delta_up, up
from palimpsest.records.vouched import files_of
from palimpsest.report.formats import MISSING, number
from palimpsest.workspace import CHECKPOINTS, MANIFEST, Zone
from stages import resuming
from stages.common import PASSES, RECORDS, ROWS, place, sizes
from stages.spenders import Prices, Spender, continues, run_of, spender, spenders
from stages.vouching import require_vouched

_FILES = ("private", "test", "public", "public_test")  # keys of `dataset` that are paths


@dataclass(frozen=True)
class Work:
    """The amount of work in a stage; 1 stands for a size that does not concern it.

    Attributes:
        records: n_public, where it reads private rows.
        rows: the rows asked for from what it is repeated for.
        passes: the passes over these: epochs, rounds, steps and tokens, multiplied.
    """

    records: float
    rows: float
    passes: float

    def ratio_to(self, before: "Work") -> float:
        """Return how many times as much work it is, by the size that grew most."""
        return max(self.records / before.records, self.rows / before.rows) * self.passes / before.passes


def estimate_minutes(workspace: Path, names: Iterable[str]) -> dict[str, float]:
    """Return stage, as DVC names it -> its expected minutes; only for those that were measured on this machine."""
    declared, now = {stage.name: stage for stage in STAGES}, sizes(workspace)
    minutes: dict[str, float] = {}
    for full in names:
        stage, _, name = full.partition("@")
        with suppress(OSError, ValueError, KeyError, TypeError, ZeroDivisionError):  # it was not measured, or edited
            known = declared[stage]
            kept = read_json(workspace / place(known.code.rpartition(".")[2], name))
            if kept["cores"] == os.cpu_count():
                grown = _work(known, name, now).ratio_to(_work(known, name, kept["sizes"]))
                minutes[full] = kept["seconds"] / 60.0 * grown
    return minutes


def _work(stage: Stage, name: str, told: Mapping[str, float]) -> Work:
    """Return a stage's work by the settings that it depends on, and the rows of the variant that it measures."""
    keys = [key.replace(NAME, name) for key in stage.params]
    own = [pair for key in keys for pair in _sizes_below(key, told)]
    measured = [] if keys != list(stage.params) else _sizes_below(f"variants.{name}", told)
    return Work(
        told[f"dataset.{RECORDS}"] if stage.zone is Zone.PRIVATE else 1.0,
        max((size for last, size in (*own, *measured) if last == ROWS), default=1.0),
        math.prod(size for last, size in own if last in PASSES),
    )


def _sizes_below(key: str, told: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Yield the sizes at a key and below it, each with the last part of its own key."""
    return ((full.rpartition(".")[2], size) for full, size in told.items() if f"{full}.".startswith(f"{key}."))


@dataclass(frozen=True)
class Priced:
    """The plan of a model that is fitted to private rows, or of a variant that is written from them.

    Attributes:
        stage: the stage's name, as in dvc.yaml.
        name: the model's or the variant's.
        purpose: release or reference.
        plan: the queries of its stage.
        whole: its whole cost: its own plan and that of the model it builds on.
        own_delta: the delta that this takes beside its event.
        pending: whether the stage would run, and be charged.
        run: its identity in the ledger; None where the rows are not there yet, or may be others by then.
    """

    stage: str
    name: str
    purpose: str
    plan: Plan
    whole: dpa.DpEvent
    own_delta: float
    pending: bool
    run: Run | None = None


@dataclass(frozen=True)
class Cost:
    """The cost of something that spends, as it is shown.

    Attributes:
        name: the model's or the variant's.
        numbers: of its plan, what is known of it: noise_multiplier, sigma, steps, rows, requests, tokens, cost.
        notes: notes to its owner.
        feasible: whether the setting can work.
        epsilon: its own, with what it builds on; None for a reference, and where it cannot work.
        accountant: the accountant of that epsilon; epsilon_rdp is that of the other.
        budget_cost: what a run would add to the data set's total now; 0 if it will not run, or was paid for.
        may_be_paid: whether that is 0 if the file, which only a run reads, holds rows that were charged before.
        raised: in words, the versions of its queries that were raised since these rows were charged.
    """

    name: str
    numbers: Mapping[str, Any]
    notes: tuple[str, ...]
    feasible: bool
    epsilon: float | None
    accountant: str
    epsilon_rdp: float | None
    budget_cost: float
    raised: tuple[str, ...] = ()
    may_be_paid: bool = False


@dataclass(frozen=True)
class PlanLine:
    """A stage that spends.

    Attributes:
        state: cached, restorable (free) or will run.
        why: what changed since it ran, in words.
        after: stages before it that will run.
        draws: variants that are drawn from it, free.
        minutes: expected minutes, where it will run; None where it was never measured here.
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
    """The budget of a team that shares the data set: its cap, what it spent, and would have spent after a run."""

    name: str
    cap: float
    spent: float
    after: float

    @property
    def fits(self) -> bool:
        return self.after <= self.cap


@dataclass(frozen=True)
class PlanSummary:
    """A summary of what a run of the workspace would do and cost; `palimpsest plan --json` prints it.

    Attributes:
        unit: record or person.
        cap: the budget's epsilon, at `delta`; spent and left count what was charged, after what a run would charge.
        fits: whether a run stays within the budget.
        states: in words, the guarantee that is proved for all releases together after the run.
        beside: deltas that no event carries, after the run; at most `most_beside`.
        team: the budget of the team that asks, where teams share the data set.
        flags: warnings about the settings, and about what the ledger's total adds up.
        lines: the stages that spend.
        others: how many of the stages that spend nothing are cached, restorable, will run.
        minutes: the expected minutes, by name, of each stage that will run and was measured here before.
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
    states: str
    beside: float
    most_beside: float
    team: TeamBudget | None
    flags: tuple[str, ...]
    lines: tuple[PlanLine, ...]
    others: Mapping[str, int]
    minutes: Mapping[str, float]
    unmeasured: int


def price_all(context: Context, *, only_pending: bool = False) -> list[Priced]:
    """Return everything that spends, with its plan, each after what it builds on. Reads no row."""
    return _price_spenders(context, {one.name: one for one in standings(context, fresh=True)}, only_pending)


def _price_spenders(context: Context, found: Mapping[str, Standing], only_pending: bool = False) -> list[Priced]:
    prices, wanted, rows = Prices(context.params), spenders(context.params), predict_fingerprint(context, found)
    return [price_one(prices, each, found, rows) for each in wanted if _would_run(found, each) or not only_pending]


def price_one(prices: Prices, each: Spender, found: Mapping[str, Standing], rows: str | None) -> Priced:
    """Return the plan of one that spends, by the state of its stage; a stage that is not there yet would run.

    Args:
        rows: the result of `predict_fingerprint`.
    """
    plan, (whole, own_delta) = prices.plan_of(each.name), prices.total_charge(each.name)
    run = None if rows is None else run_of(prices.params, each, plan, rows)
    return Priced(each.stage, each.name, each.target.purpose, plan, whole, own_delta, _would_run(found, each), run)


def predict_fingerprint(context: Context, found: Mapping[str, Standing]) -> str | None:
    """Returns the keyed hash of the training rows that a run would find.

    None if there are none yet, or if a stage that makes them runs for a reason that may change them. Neither its code
    nor another place of the same file does.
    """
    making = [found[name] for name in ("world", "preprocess") if name in found]
    path = context.workspace / MANIFEST
    changed = [one.name for one in making if one.state is not State.CACHED and {*one.why} - {ITS_CODE}]
    moved = changed == ["preprocess"] and made_alike(context.workspace, "preprocess", _split_facts)
    return str(read_json(path)["fingerprint"]) if path.is_file() and (moved or not changed) else None


def _split_facts(settings: Mapping[str, Any], hash_of: Callable[[str], str | None]) -> object:
    """Return what the rows of the training part, and the public ones that are asked about, follow from.

    Files are known by format and content, and one that is not there is like no other. Of a test file it matters whether
    there is one: else a part is cut off.
    """
    data = settings["dataset"]
    read = [(Path(data[key]).suffixes, hash_of(data[key]) or object()) for key in ("private", "public")]
    others = {key: value for key, value in data.items() if key not in _FILES}
    return others, read, data["test"] is None, settings["audit.size"]


def _would_run(found: Mapping[str, Standing], each: Spender) -> bool:
    return each.stage not in found or found[each.stage].state is State.RUNS


def balance_after(
    context: Context, variants: list[Priced], charges: Sequence[Charge] | None = None, team: str | None = None
) -> Balance:
    """The asset's balance once every pending release has run, or that of a team that shares it.

    Charges of a stopped attempt at the same run are not counted twice where they were reserved and never began, or can
    be replayed or continued. `charges` are those to the asset's rows, where they are known.
    """
    every = context.ledger.charges(context.asset.name) if charges is None else charges
    pending = [item for item in variants if item.pending and item.purpose == "release"]
    wanted = dict(_plan_reservation(context, item, every) for item in pending)
    return preview(context.asset, every, wanted, team)


def _plan_reservation(
    context: Context, item: Priced, charges: Sequence[Charge]
) -> tuple[tuple[str, int], Sequence[PlannedQuery]]:
    """Return what a run would reserve anew, after its key and number."""
    if item.run is None:
        return (item.name, 1), item.plan.queries
    now, missing = next_attempt(context, item.run, item.plan, charges)
    return (item.run.key, now.number), list(missing.values())


def next_attempt(
    context: Context, run: Run, plan: Plan, charges: Sequence[Charge]
) -> tuple[Attempt, Mapping[int, PlannedQuery]]:
    """Return the attempt that a run would be, and place -> each query that it would be charged for."""
    now = attempt(run.key, charges, lambda charge: continues(charge, context.workspace))
    return now, {index: query for index, query in enumerate(plan.queries) if index not in now.kept}


def is_paid(context: Context, item: Priced, charges: Iterable[Charge]) -> bool:
    """Whether the rows, or the model, would be made again from what was paid for, free.

    The stage itself decides: it also checks whether candidates and models are the same as then. So this determines only
    what is foretold; what is charged needs the owner's word all the same.
    """
    own = [] if item.run is None else committed_charges(item.run.key, charges)
    if item.run is None or not own:
        return False
    return all(charge.answer_hash is not None for charge in own) or resuming.is_kept(item.run, context.workspace)


def may_be_paid(context: Context, item: Priced, charges: Sequence[Charge]) -> bool:
    """Whether rows that are not known yet would cost nothing if they are those of an earlier run, in another order say.

    Only a run reads the file: nothing else tells.
    """
    if item.run is not None:
        return False
    who = spender(context.params, item.name)
    earlier = {one.fingerprint for one in charges if (one.stage, one.variant) == (who.method.stage, who.name)}
    runs = (run_of(context.params, who, item.plan, rows) for rows in earlier)
    return any(is_paid(context, replace(item, run=run), charges) for run in runs)


def show_plan(workspace: Path, *, as_json: bool = False) -> None:
    """Print what would run and why, the cost of it by both accountants and to the budget, and what would be left."""
    render(workspace)
    context = open_workspace(workspace)
    require_vouched(context.params, workspace)
    summary = summarise_plan(context)
    if as_json:
        show_json(summary)
        return
    _print(summary)


def summarise_plan(context: Context) -> PlanSummary:
    """Return what a run of a workspace would do and cost. Reads no private row."""
    found = {one.name: one for one in standings(context)}
    spending = spenders(context.params)
    for each in spending:
        each.require_protection()
    pending = [each.name for each in spending if _would_run(found, each)]
    team = _team_of(context)
    about = [(context.workspace / RESOLVED).read_text(encoding="utf-8"), context.ledger.head(), pending, team]
    about += [predict_fingerprint(context, found)]
    about += [sorted(map(str, files_of(context.workspace / CHECKPOINTS)))]  # what can go on, or come back
    costs = load_or_compute(context.workspace, "plan", [*about, asdict(context.asset)], lambda: _costs(context, found))
    due = [one.name for one in found.values() if one.state is State.RUNS]
    minutes = estimate_minutes(context.workspace, due)
    pairs = zip(spending, costs["lines"], strict=True)
    lines = [_line(context, each, body, found.get(each.stage), minutes.get(each.stage)) for each, body in pairs]
    own = {line.stage for line in lines}
    states = Counter(str(one.state) for one in found.values() if one.name not in own)
    asset, cuts = context.asset, _cuts(context)
    after = Balance(**{**costs["after"], "used": tuple(costs["after"]["used"])})
    return PlanSummary(
        asset.name, asset.unit, asset.delta, asset.epsilon, costs["spent"], max(0.0, asset.epsilon - costs["spent"]),
        after.spent, after.fits, costs["states"], after.beside, after.most_beside,
        costs["team"] and TeamBudget(**costs["team"]), (*context.params.flags(), *costs["said"], *cuts), tuple(lines),
        {str(state): states[str(state)] for state in State}, minutes, len(due) - len(minutes),
    )  # fmt: skip


def keep_answers(workspace: Path) -> None:
    """Work out what the next `plan` will say, at the end of a run, so that it need not; nothing is shown."""
    with suppress(PalimpsestError):
        summarise_plan(open_workspace(workspace))


def _cuts(context: Context) -> list[str]:
    """Return the sentences about limits that cut public texts; kept, as reading the texts takes long."""
    params, workspace = context.params, context.workspace
    about = [stamp(workspace / params.dataset.public), (workspace / RESOLVED).read_text(encoding="utf-8")]

    def read() -> list[str]:
        from palimpsest.cli.lengths import describe_cuts  # it reads files, and takes a while to import

        return list(describe_cuts(params, workspace))

    told: list[str] = load_or_compute(workspace, "cuts", about, read)
    return told


def _costs(context: Context, found: Mapping[str, Standing]) -> dict[str, Any]:
    """Return all costs as JSON values: the part that takes long, and depends only on settings and ledger."""
    books = context.ledger.books()
    charges, spent = books.charges(context.asset.name), books.balance(context.asset.name).spent
    every = _price_spenders(context, found)
    variants = [replace(item, pending=item.pending and not is_paid(context, item, charges)) for item in every]
    after = balance_after(context, variants, charges)
    return {
        "spent": spent,
        "after": asdict(after),
        "states": books.total(context.asset.name, after).sentence,
        "team": _team_budget(context, variants, charges),
        "lines": [asdict(_cost(context, item, charges, spent)) for item in variants],
        "said": list(describe_total(books, context.asset.name)),
    }


def _team_of(context: Context) -> str | None:
    """The team that asks, where it has a share of the data set."""
    team = os.environ.get(TEAM)
    return team if team in dict(context.asset.teams) else None


def _team_budget(context: Context, variants: list[Priced], charges: Sequence[Charge]) -> dict[str, Any] | None:
    team = _team_of(context)
    if team is None:
        return None
    now, after = preview(context.asset, charges, {}, team), balance_after(context, variants, charges, team)
    return asdict(TeamBudget(team, now.cap, now.spent, after.spent))


def _cost(context: Context, item: Priced, charges: Sequence[Charge], spent: float) -> Cost:
    plan, delta = item.plan, context.asset.delta - item.own_delta
    own = rdp = None
    if plan.feasible and accounting.is_private(item.whole):
        own, rdp = accounting.planned_epsilon(item.whole, delta), accounting.epsilon(item.whole, delta, "rdp")
    adds = balance_after(context, [item], charges).spent - spent if plan.feasible and spent < math.inf else 0.0
    raised = describe_new_versions(charges, plan.queries, item.run.fingerprint) if item.pending and item.run else []
    return Cost(
        item.name, dict(plan.numbers), plan.told, plan.feasible, own, accounting.primary_accountant(item.whole), rdp,
        adds, tuple(raised), item.pending and may_be_paid(context, item, charges),
    )  # fmt: skip


def _line(
    context: Context, each: Spender, cost: Mapping[str, Any], where: Standing | None, minutes: float | None
) -> PlanLine:
    draws = tuple(variant for variant, model in context.params.run.dp_lm.items() if model == each.name)
    standing = where or Standing(each.method.stage, each.stage, State.RUNS, ("it is not in dvc.yaml",))
    own = Cost(**{**cost, "notes": tuple(cost["notes"]), "raised": tuple(cost["raised"])})
    return PlanLine(
        each.stage, each.method.name, each.target.purpose, str(standing.state), (*standing.why, *own.raised),
        standing.after, draws, minutes, own,
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
    """Yield the sentences under the tables."""
    for line in summary.lines:
        yield from (f"{line.cost.name}: {note}" for note in line.cost.notes)
    others = ", ".join(f"{count} {state}" for state, count in summary.others.items())
    yield f"Stages that spend nothing: {others}."
    if summary.minutes:
        measured, total = len(summary.minutes), _time(sum(summary.minutes.values()))
        yield f"Expected: {total} for what was measured here, {measured} of {measured + summary.unmeasured} stages."
    yield budget_sentence(summary)
    if any(line.cost.may_be_paid for line in summary.lines):
        yield (
            "0 or: a file is another one now, and only a run reads it. The rows that were charged before, in another "
            "order or format say, cost nothing."
        )
    if summary.fits:
        yield f"After them, what is released will say: {summary.states}"
    if team := summary.team:
        yield (
            f"Share of team {team.name}: epsilon {team.cap:g}; spent {up(team.spent)}, after the pending runs "
            f"{up(team.after)}: {'fits' if team.fits else 'does not fit'}."
        )
    if summary.beside:
        yield (
            f"Deltas that no event carries: {delta_up(summary.beside)} after the pending runs, of at most "
            f"{delta_down(summary.most_beside)}."
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
    """Return one table for the methods that share columns; with `whole`, it has the reasons of each row, too."""
    headings = (columns.row, *(column.heading for column in columns.columns), "epsilon", "epsilon\nRDP", "budget\ncost")
    rows = []
    for line in lines:
        shown = partial(_format_first, line.cost)
        title = line.stage if whole else line.cost.name
        cells = [_title(title, line, columns), *(column.cell(shown) for column in columns.columns)]
        rows.append([*cells, *_prices(line), _state(line), *([_reason(line)] if whole else [])])
    names = (*headings, "state", *(["why"] if whole else []))
    colours = (("infeasible", "red"),)
    return Rows("Plan: no private row was read", names, rows, left=(columns.row, "state"), colours=colours)


def _title(title: str, line: PlanLine, columns: PlanTable) -> str:
    """The model or variant, its method, and what is drawn from it without a further charge."""
    lines = [title, f"{line.method} {line.purpose}"]
    lines += [_format_first(line.cost, columns.way)] if columns.way else []
    return "\n".join([*lines, *([f"draws: {', '.join(line.draws)}"] if line.draws else [])])


def _format_first(cost: Cost, *keys: str, digits: int = 3) -> str:
    """The first of these numbers that the plan has."""
    return number(next((cost.numbers[key] for key in keys if key in cost.numbers), None), digits)


def _prices(line: PlanLine) -> list[str]:
    """Epsilon by the plan's own accountant and by RDP, and the cost to the budget."""
    cost = line.cost
    if not cost.feasible:
        return [MISSING] * 3
    adds = "0 or\n" * cost.may_be_paid + up(cost.budget_cost)
    return [f"{_epsilon(cost.epsilon)}\n({cost.accountant})", _epsilon(cost.epsilon_rdp), adds]


def _state(line: PlanLine) -> str:
    if not line.cost.feasible:
        return "infeasible"
    return f"{line.state}\n{_time(line.minutes)}" if line.state == State.RUNS else line.state


def _time(minutes: float | None) -> str:
    if minutes is None:
        return f"{MISSING} min"
    return f"{minutes:.1f} min" if minutes >= 1.0 else f"{60 * minutes:.0f} s"


def _reason(line: PlanLine) -> str:
    """Return why it is not cached, in words."""
    before = [f"it needs {', '.join(line.after)}, which will run"] if line.after else []
    return "; ".join([*dict.fromkeys(line.why), *before]) if line.state != State.CACHED else ""


def _epsilon(value: float | None) -> str:
    return "∞" if value is None else up(value)
