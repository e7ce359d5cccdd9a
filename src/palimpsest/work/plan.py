"""Plans of a run or of a grid of variants: what it would do and cost, and how long it may take, before it is bought."""

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import dp_accounting.dp_event as dpa
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from palimpsest.errors import PalimpsestError, ParamsError
from palimpsest.files import read_json
from palimpsest.graph.stage import NAME, Stage
from palimpsest.graph.stages import STAGES
from palimpsest.graph.state import ITS_CODE, Standing, State, made_alike
from palimpsest.methods.shared.base import Plan
from palimpsest.models.chat.settings import is_english
from palimpsest.params.file import FILE, RESOLVED
from palimpsest.params.load import loads
from palimpsest.params.resolve import WAYS
from palimpsest.params.schema import Params
from palimpsest.params.sweep import Axis, Point, axis, marks, merge_sections, points
from palimpsest.params.text import insert_entries
from palimpsest.privacy import accounting
from palimpsest.privacy.ledger.records import Balance, Charge, Run
from palimpsest.privacy.ledger.rules import TEAM, Attempt, attempt, committed_charges, describe_new_versions, preview
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.shown import delta_up, up
from palimpsest.progress import track
from palimpsest.records.vouched import files_of
from palimpsest.work.context import Context, load_or_compute, open_workspace, render, stage_names, stamp, standings
from palimpsest.work.ledger import describe_total
from palimpsest.workspace import CHECKPOINTS, MANIFEST, Zone
from stages import resuming
from stages.common import PASSES, RECORDS, ROWS, place, sizes
from stages.spenders import Prices, Spender, continues, run_of, spender, spenders
from stages.vouching import require_vouched

_FILES = ("private", "test", "public", "public_test")  # keys of `dataset` that are paths
_WRITES = "write_public@"  # the stage
MAY_BE_PAID = (
    "0 or: a file is another one now, and only a run reads it. The rows that were charged before, in another order or "
    "format say, cost nothing."
)


@dataclass(frozen=True)
class Work:
    """The amount of work in a stage; 1 stands for a size that does not concern it."""

    records: float  # n_public, where it reads private rows
    rows: float  # the rows asked for from what it is repeated for
    passes: float  # the passes over these: epochs, rounds, steps and tokens, multiplied

    def ratio_to(self, before: "Work") -> float:
        """Return how many times as much work it is, by the size that grew most."""
        return max(self.records / before.records, self.rows / before.rows) * self.passes / before.passes


def estimate_minutes(workspace: Path, names: Iterable[str]) -> dict[str, float]:
    """Return stage, as DVC names it -> its expected minutes; only for those that were measured on this machine."""
    now = sizes(workspace)
    minutes: dict[str, float] = {}
    for full in names:
        with suppress(OSError, ValueError, KeyError, TypeError, ZeroDivisionError):  # it was not measured, or edited
            known, name, kept = _measured(workspace, full)
            if kept["cores"] == os.cpu_count():
                grown = _work(known, name, now).ratio_to(_work(known, name, kept["sizes"]))
                minutes[full] = kept["seconds"] / 60.0 * grown
    return minutes


def find_memory(workspace: Path, names: Iterable[str]) -> float | None:
    """Return the peak memory in GiB of the largest of these stages when it last ran here; None if none was measured."""
    found = []
    for full in names:
        with suppress(OSError, ValueError, KeyError):  # it was not measured, or edited
            found.append(float(_measured(workspace, full)[2]["gib"]))
    return max(found, default=None)


def _measured(workspace: Path, full: str) -> tuple[Stage, str, dict[str, Any]]:
    stage, _, name = full.partition("@")
    known = {one.name: one for one in STAGES}[stage]
    return known, name, read_json(workspace / place(known.code.rpartition(".")[2], name))


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
    """The plan of a model that is fitted to private rows, or of a variant that is written from them."""

    stage: str  # the stage's name, as in dvc.yaml
    name: str  # the model's or the variant's
    purpose: str  # release or reference
    plan: Plan  # the queries of its stage
    whole: dpa.DpEvent  # its whole cost: its own plan and that of the model it builds on
    own_delta: float  # the delta that this takes beside its event
    pending: bool  # whether the stage would run, and be charged
    # its identity in the ledger; None where the rows are not there yet, or may be others by then
    run: Run | None = None


@dataclass(frozen=True)
class Cost:
    """The cost of something that spends, as it is shown."""

    name: str  # the model's or the variant's
    # of its plan, what is known of it: noise_multiplier, sigma, steps, rows, requests, tokens, cost
    numbers: Mapping[str, Any]
    notes: tuple[str, ...]  # notes to its owner
    feasible: bool  # whether the setting can work
    epsilon: float | None  # its own, with what it builds on; None for a reference, and where it cannot work
    accountant: str  # the accountant of that epsilon; epsilon_rdp is that of the other
    epsilon_rdp: float | None
    budget_cost: float  # what a run would add to the data set's total now; 0 if it will not run, or was paid for
    raised: tuple[str, ...] = ()  # in words, the versions of its queries that were raised since these rows were charged
    # whether that is 0 if the file, which only a run reads, holds rows that were charged before
    may_be_paid: bool = False


@dataclass(frozen=True)
class PlanLine:
    """A stage that spends."""

    stage: str
    method: str
    purpose: str
    state: str  # cached, restorable (free) or will run
    why: tuple[str, ...]  # what changed since it ran, in words
    after: tuple[str, ...]  # stages before it that will run
    draws: tuple[str, ...]  # variants that are drawn from it, free
    minutes: float | None  # expected minutes, where it will run; None where it was never measured here
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
        """Whether the team stays within its cap."""
        return self.after <= self.cap


@dataclass(frozen=True)
class PlanSummary:
    """A summary of what a run of the workspace would do and cost; `palimpsest plan --json` prints it."""

    asset: str
    unit: str  # record or person
    delta: float
    cap: float  # the budget's epsilon, at `delta`; spent and left count what was charged, after what a run would charge
    spent: float
    left: float
    after: float
    fits: bool  # whether a run stays within the budget
    states: str  # in words, the guarantee that is proved for all releases together after the run
    beside: float  # deltas that no event carries, after the run; at most `most_beside`
    most_beside: float
    team: TeamBudget | None  # the budget of the team that asks, where teams share the data set
    flags: tuple[str, ...]  # warnings about the settings, and about what the ledger's total adds up
    lines: tuple[PlanLine, ...]  # the stages that spend
    others: Mapping[str, int]  # how many of the stages that spend nothing are cached, restorable, will run
    # the expected minutes, by name, of each stage that will run and was measured here before
    minutes: Mapping[str, float]
    memory: float | None  # peak GiB of the largest of them when it last ran; None where it was not measured
    unmeasured: int  # how many others will run
    writing: str = ""  # what an author will write of public text, and what that costs; empty where nothing is due


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


def plan_workspace(workspace: Path) -> PlanSummary:
    """Return what a run of a workspace would do and cost, after its files are rendered. Reads no row.

    Raises:
        PalimpsestError: params.yaml is wrong or names as public what is not, or the ledger does not know this data set.
    """
    render(workspace)
    context = open_workspace(workspace)
    require_vouched(context.params, workspace)
    return summarise_plan(context)


def tell_language(params: Params) -> Iterator[str]:
    """Yield a sentence where a base model is prompted in English about texts of another language."""
    if isinstance(words := params.models.words, str) and not is_english(params.dataset.language):
        yield (
            f"models.words is {words}, so prompts are English, and the texts are {params.dataset.language}: write "
            "there what a text and its label are called in that language, as {text: Rezension, label: Meinung}."
        )


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
    asset, told = context.asset, (*tell_language(context.params), *_cuts(context))
    after = Balance(**{**costs["after"], "used": tuple(costs["after"]["used"])})
    return PlanSummary(
        asset.name, asset.unit, asset.delta, asset.epsilon, costs["spent"], max(0.0, asset.epsilon - costs["spent"]),
        after.spent, after.fits, costs["states"], after.beside, after.most_beside,
        costs["team"] and TeamBudget(**costs["team"]), (*context.params.flags(), *costs["said"], *told), tuple(lines),
        {str(state): states[str(state)] for state in State}, minutes, find_memory(context.workspace, minutes),
        len(due) - len(minutes),
        _tell_writing(context.params) if any(name.startswith(_WRITES) for name in due) else "",
    )  # fmt: skip


def _tell_writing(params: Params) -> str:
    from palimpsest.params.written import describe_writing  # with scipy, which few plans need

    return describe_writing(params)


def keep_answers(workspace: Path) -> None:
    """Work out what the next `plan` will say, at the end of a run, so that it need not; nothing is shown."""
    with suppress(PalimpsestError, OSError):  # a run that ended well stays so
        summarise_plan(open_workspace(workspace))


def _cuts(context: Context) -> list[str]:
    """Return the sentences about limits that cut public texts; kept, as reading the texts takes long."""
    params, workspace = context.params, context.workspace
    read_from = (workspace / name for name in (params.dataset.public, params.models.encoder, params.models.lm))
    about = [stamp(*read_from), (workspace / RESOLVED).read_text(encoding="utf-8")]

    def read() -> list[str]:
        from palimpsest.work.lengths import describe_cuts  # it reads files, and takes a while to import

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


def budget_sentence(summary: PlanSummary) -> str:
    """The budget, what is spent of it, and what the pending runs would leave spent."""
    return (
        f"Budget of {summary.asset}: epsilon {summary.cap:g} at delta {delta_up(summary.delta)} for adding or removing "
        f"one {summary.unit}; spent {up(summary.spent)}, after the pending runs {up(summary.after)}: "
        f"{'fits' if summary.fits else 'does not fit'}."
    )


_EVALUATION = "downstream_eval"  # the stage


@dataclass(frozen=True)
class Offer:
    """A point with what it would cost."""

    point: Point
    why: str  # the reason why it is left out; empty if it can run
    charges: tuple[Priced, ...] = ()  # the parts of it that ask private rows something
    added: float = 0.0  # the epsilon that it adds to the data set's total, after the points before it
    # whether that is 0 if the file, which only a run reads, holds rows that were charged before
    may_be_paid: bool = False


@dataclass(frozen=True)
class Sweep:
    """A grid, and the workspace to which it would be added."""

    context: Context
    variant: str
    text: str  # params.yaml as it is
    found: Mapping[str, Standing]  # stage -> its state as it is

    @cached_property
    def written(self) -> dict[str, Any]:
        """params.yaml as a person wrote it."""
        return dict(YAML(typ="safe", pure=True).load(self.text))


def price_grid(workspace: Path, variant: str, varied: Sequence[str]) -> tuple[Sweep, list[Offer]]:
    """Return a grid of variants, and each of its points with what it would cost. Reads no row.

    Raises:
        PalimpsestError: no point can be made, or the workspace cannot be opened.
    """
    render(workspace)
    context = open_workspace(workspace)
    require_vouched(context.params, workspace)
    found = {one.name: one for one in standings(context, fresh=True)}
    asked = Sweep(context, variant, (workspace / FILE).read_text(encoding="utf-8"), found)
    _require_all_run(asked)
    return asked, _price_points(asked, points(asked.written, variant, [_read_axis(text) for text in varied]))


def _read_axis(text: str) -> Axis:
    """Read a key with its values; refuse values that params.yaml cannot hold."""
    try:
        found = axis(text)
        said = all(value == value for value in found.values)
    except TypeError:
        said = False
    if not said:
        raise ParamsError(f"{text!r} has NaN or a date among its values.", "Take numbers, and write a date in quotes.")
    return found


def _require_all_run(asked: Sweep) -> None:
    if (asked.written.get("runs") or {}).get("evaluate") is not None:
        raise ParamsError(
            f"runs.evaluate of {FILE} lists the variants that run, and a sweep adds some.",
            "Take runs.evaluate out: all variants run then.",
        )


def insert_points(asked: Sweep, wanted: Sequence[Point]) -> str:
    """Return params.yaml with these points and the note that a sweep made them.

    Raises:
        ParamsError: it has one of their names with other settings, or is written so that nothing can be added.
    """
    there = asked.written
    made: dict[str, Any] = {"sweeps": marks(wanted, asked.variant)}
    for point in wanted:
        made = merge_sections(made, point.settings)
    new = {key: _select_new(key, there.get(key) or {}, entries) for key, entries in made.items()}
    text = insert_entries(asked.text, new)
    if not _parses_to(text, merge_sections(there, {key: value for key, value in new.items() if value})):
        raise ParamsError(
            f"Points cannot be added to {FILE}: a section of it is written on one line in braces.",
            "Give each entry of variants, lms, discriminators and sweeps a line of its own.",
        )
    return text


def _parses_to(text: str, wanted: Mapping[str, Any]) -> bool:
    try:
        return bool(YAML(typ="safe", pure=True).load(text) == wanted)
    except YAMLError:
        return False


def _select_new(section: str, there: Mapping[str, Any], entries: Mapping[str, Any]) -> dict[str, Any]:
    other = [name for name in entries if section != "sweeps" and name in there and there[name] != entries[name]]
    if other:
        raise ParamsError(
            f"{section}.{other[0]} is there with other settings, and would be charged again with these.",
            "Rename it, or sweep other values.",
        )
    return {name: entry for name, entry in entries.items() if name not in there}


def _price_points(asked: Sweep, grid: Sequence[Point]) -> list[Offer]:
    """Return what each point would cost after those before it."""
    refused = {point.name: _refusal(asked, point) for point in grid}
    params = loads(insert_points(asked, [point for point in grid if not refused[point.name]]))
    till = Till(asked, params)
    told = track(grid, name="price the points", total=len(grid), private=False, unit="point")
    return [Offer(point, why) if (why := refused[point.name]) else till.offer(point) for point in told]


def _refusal(asked: Sweep, point: Point) -> str:
    """Return why params.yaml cannot have a point; empty if it can."""
    try:
        params = loads(insert_points(asked, [point]))
        spender(params, params.run.dp_lm.get(point.name, point.name)).require_protection()
    except ParamsError as error:
        return error.problem
    return ""


class Till:
    """Prices points one after the other, each on top of those before it that fit."""

    def __init__(self, asked: Sweep, params: Params) -> None:
        self._asked, self._params, self._prices = asked, params, Prices(params)
        self._charges = asked.context.ledger.charges(asked.context.asset.name)
        self._rows = predict_fingerprint(asked.context, asked.found)
        self._items: dict[str, Priced] = {}
        self._total = balance_after(asked.context, [], self._charges).spent

    def offer(self, point: Point) -> Offer:
        """Return a point with what it would add; one that cannot run adds nothing."""
        try:
            own = self._price(point)
        except ParamsError as error:  # its sources leave nothing for the choice
            return Offer(point, error.problem)
        wanted, context = [*(self._items | own).values()], self._asked.context
        after = balance_after(context, wanted, self._charges)
        if why := _explain_infeasible(own) or _explain_excess(after):
            return Offer(point, why, tuple(own.values()))
        added, self._total = after.spent - self._total, after.spent
        self._items |= own
        return Offer(point, "", tuple(own.values()), added, added > 0.0 and self._may_be_paid(own.values()))

    def _may_be_paid(self, own: Iterable[Priced]) -> bool:
        """Whether each part of a point that would be charged may have been charged before."""
        due = [item for item in own if item.pending and item.purpose == "release"]
        context = replace(self._asked.context, params=self._params)  # which has the points
        return all(may_be_paid(context, item, self._charges) for item in due)

    def _price(self, point: Point) -> dict[str, Priced]:
        """Return all that a point asks of private rows: its own queries, and those of what it builds on."""
        charged = self._params.run.dp_lm.get(point.name, point.name)
        found = [spender(self._params, name) for name in self._prices.chain(charged)]
        return {each.stage: price_one(self._prices, each, self._asked.found, self._rows) for each in found}


def _explain_infeasible(own: Mapping[str, Priced]) -> str:
    notes = [f"{item.name}: {' '.join(item.plan.notes)}" for item in own.values() if not item.plan.feasible]
    return f"infeasible: {'; '.join(notes)}" if notes else ""


def _explain_excess(after: Balance) -> str:
    return "" if after.fits else f"does not fit: the total would be epsilon {up(after.spent)} of {after.cap:g}"


def is_finished(asked: Sweep, point: Point) -> bool:
    """Whether a point was evaluated, and nothing of it has changed since."""
    standing = asked.found.get(f"{_EVALUATION}@{point.name}")
    return standing is not None and standing.state is State.CACHED


def last_stage(context: Context, name: str) -> str:
    """Return the stage that evaluates a variant or, without one, the stage that writes its rows."""
    evaluation, run = f"{_EVALUATION}@{name}", context.params.run
    if evaluation in stage_names(context.workspace):
        return evaluation
    writes = "pplm_generate" if name in run.dp_lm else WAYS[context.params.variants[name].method].stage
    return f"{writes}@{name}"
