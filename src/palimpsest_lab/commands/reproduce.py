"""`palimpsest reproduce`: a table or a figure of a paper by one command, run by the ordinary graph."""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from palimpsest.devices import AUTO, CPU, resolve_device
from palimpsest.errors import PalimpsestError, ParamsError
from palimpsest.files import write_json, write_text
from palimpsest.graph.state import State
from palimpsest.methods.shared.base import Plan
from palimpsest.params.file import FILE
from palimpsest.params.load import read as read_params
from palimpsest.params.schema import Params
from palimpsest.privacy.accounting import MOST_TARGET
from palimpsest.privacy.ledger.records import Asset
from palimpsest.privacy.ledger.rules import preview
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.receipt import read_receipt
from palimpsest.records.vouched import EMBEDDED
from palimpsest.report.formats import at_most, number
from palimpsest.work.before import may_charge
from palimpsest.work.console import Rows, console, show
from palimpsest.work.context import asset_of, find_upstream, open_workspace, render, stage_names, standings
from palimpsest.work.ledger import books_of
from palimpsest.work.plan import estimate_minutes
from palimpsest.work.repro import STOPPED
from palimpsest.work.run import run_workspace
from palimpsest.workspace import GRAPH, MODEL_RECEIPTS, RECEIPTS, REPORTS
from palimpsest_lab.commands.reproduction import Asked, Place, made_params, make, merge_existing, params_of, place_of
from palimpsest_lab.reproduce.cells import Cell, cells_of, select_cells
from palimpsest_lab.reproduce.countings import counted_epsilon, true_epsilon
from palimpsest_lab.reproduce.grid import Grid, grid, list_grids
from palimpsest_lab.reproduce.measures import Value, is_planned, measure, read, subject, target
from palimpsest_lab.reproduce.table import Epsilons, Result, document, draw_table, format_stated, page
from palimpsest_lab.settings import models_of
from stages.spenders import Prices, spenders

_SIZES = ("steps", "requests", "tokens", "forward_tokens", "candidates", "texts_decoded", "rows")  # of plans


@dataclass(frozen=True)
class Lot:
    """The cells of one data set, with what they would ask and cost."""

    place: Place
    cells: tuple[Cell, ...]
    never: Mapping[str, str]  # cell of the table -> why it cannot run whatever is brought along; empty where it can
    now: Mapping[str, str]  # the same for this machine and these files
    params: Params  # of its workspace, with all cells that can run somewhere

    @cached_property
    def finished(self) -> frozenset[str]:
        """The stages of its workspace that are up to date."""
        return _finished_stages(self.place.workspace)

    @cached_property
    def prices(self) -> Prices:
        """The plans of all spenders."""
        return Prices(self.params)

    @property
    def models(self) -> dict[str, str]:
        """Variant of dp_lm -> the language model that it rests on."""
        run = self.params.run
        return {name: run.discriminator.get(model, model) for name, model in run.dp_lm.items()}

    def plan(self, cell: Cell) -> Plan | None:
        """Plan what a cell's measurement asks of private rows; None where it is a baseline or cannot run."""
        if cell.of.baseline is not None or self.never[cell.name]:
            return None
        charged = self.params.run.dp_lm.get(cell.variant, cell.variant)
        return self.prices.plan_of(subject(cell, self.models) if measure(cell).of_model else charged)

    def why_not(self, cell: Cell) -> str:
        """Say why a cell does not run here and now; empty where it does."""
        plan = self.plan(cell)
        if plan is not None and not plan.feasible:
            return f"infeasible: {' '.join(plan.notes)}"
        return self.never[cell.name] or self.now[cell.name]

    @property
    def pending(self) -> dict[tuple[str, int], tuple[PlannedQuery, ...]]:
        """The queries of its unfinished releases, by the workspace and the name of each."""
        return {
            (f"{self.place.name}/{each.name}", 1): self.prices.plan_of(each.name).queries
            for each in spenders(self.params)
            if each.target.purpose == "release" and each.stage not in self.finished
            if self.prices.plan_of(each.name).feasible
        }

    @property
    def made_with(self) -> str:
        """The writer of its rows, their judges, and the number of private records, by its settings."""
        models = self.params.models
        judge = models_of(self.params).judge
        named_there = (models.classifier, None if judge is None else judge.model)
        judges = [name_model(one) for one in named_there if one is not None] or ["those of this house"]
        return (
            f"{self.place.name}: written by {name_model(models.lm)}, judged by {' and '.join(judges)}, of about "
            f"{self.params.schema_of_data.n_units:,} private records"
        )


def name_model(model: str) -> str:
    """Name a model without its folder's place, which is nobody's business."""
    return "the embedded small model" if model == EMBEDDED else Path(model).name


@dataclass(frozen=True)
class Total:
    """The total that a data set of the ledger would come to."""

    lots: tuple[Lot, ...]  # the part of it that is asked for here; several parts may share one budget
    epsilon: float  # of all past and all planned charges
    asset: Asset  # on the ledger's terms, where it has them
    known: bool  # whether the ledger has it

    @property
    def names(self) -> str:
        """The names of its data sets, in words."""
        return " and ".join(lot.place.name for lot in self.lots)

    @property
    def beyond(self) -> str:
        """The advice where not all of it fits."""
        if self.epsilon <= self.asset.epsilon:
            return ""
        if math.isinf(self.epsilon):
            return " (together these pass the data set's delta, which no cap mends: pick fewer with --cells)"
        more = (
            "let --budget be more, which `palimpsest register --amend` enters" if self.known else "let --budget be more"
        )
        if self.known and any((lot.place.workspace / FILE).is_file() for lot in self.lots):
            more = (
                "raise privacy.budget.epsilon in a params.yaml of it and enter that with `palimpsest register --amend`"
            )
        return f" (not all of it fits: pick some with --cells, or {more})"


def totals(lots: Sequence[Lot]) -> list[Total]:
    """Total the charges of each data set of the ledger, including all earlier ones, whoever asked."""
    found: list[Total] = []
    for name in dict.fromkeys(lot.params.dataset.asset for lot in lots):
        own = tuple(lot for lot in lots if lot.params.dataset.asset == name)
        books = books_of(own[0].params, own[0].place.workspace)
        known = None if books is None else books.find_asset(name)
        charges = [] if books is None or known is None else books.charges(name)
        wanted = {key: asked for lot in own for key, asked in lot.pending.items()}
        asset = known or asset_of(own[0].params)
        found.append(Total(own, preview(asset, charges, wanted).spent, asset, known is not None))
    return found


def show_tables(paper: str | None = None) -> None:
    """List the papers and their tables, or those of one paper. Raises ParamsError if there is no such paper."""
    found = [grid(*each) for each in list_grids() if paper in (None, each[0])]
    if not found:
        raise ParamsError(
            f"PAPER is {paper!r}.", "Name one of 000, 002, 003, 004 and house, or none to list all tables."
        )
    rows = [(one.paper, one.table, one.title, ", ".join(one.data), str(len(cells_of(one)))) for one in found]
    headings = ("paper", "table", "what it shows", "data sets", "cells")
    show(console(), Rows("Tables and figures", headings, rows, headings[:4]))


def read_options(
    workspace: Path, data: Path | None, model: Path | None, judge: Path | None, cells: str | None, records: str | None,
    budget: float, precision: str | None,
) -> Asked:  # fmt: skip
    """Read the options. Raises ParamsError if a number of records is none."""
    counts: dict[str, int] = {}
    for part in (records or "").split(",") if records else ():
        name, _, number_of = part.partition("=")
        if not number_of.strip().isdigit():
            raise ParamsError(f"--records says {part!r}.", "Give names with numbers, as agnews=29575,trec=5452.")
        counts[name.strip()] = int(number_of)
    picked = tuple(part.strip() for part in (cells or "").split(",") if part.strip())
    return Asked(workspace, data, model, judge, picked, counts, budget, precision)


def reproduce(paper: str, table: str, asked: Asked, *, plan: bool, yes: bool) -> int:
    """Plan a table, ask, run its cells, and write it down; return the exit status.

    Finished cells stay. A failing cell stops none of the others, and the table says why it is empty.

    Raises:
        PalimpsestError: an option is wrong, or nobody can be asked.
    """
    _check(asked)
    found = grid(paper, table)
    wanted = select_cells(cells_of(found), asked.cells)
    lots = [_lot(found, name, wanted, asked) for name in found.data if any(cell.data == name for cell in wanted)]
    _show_plan(found, lots, asked)
    if plan:
        return 0
    open_lots = [lot for lot in lots if any(not is_planned(cell) and not lot.why_not(cell) for cell in lot.cells)]
    if open_lots and not _may_charge(open_lots, yes=yes):
        print("Nothing was made and nothing was charged. The same line asks again.")
        return 1
    for lot in open_lots:
        make(lot.place, found, params_of(lot.place, found, _open_cells(lot), asked))
    failed, code = _run(open_lots, yes=yes)
    _write(found, [*lots, *_find_other_lots(found, lots, asked)], failed, asked)
    return code


def _check(asked: Asked) -> None:
    for option, path in (("--data", asked.data), ("--model", asked.model), ("--judge", asked.judge)):
        if path is not None and not path.is_dir():
            raise ParamsError(f"{option} is {str(path)!r}, which is no folder.", "Name the folder with the files.")


def _lot(found: Grid, name: str, wanted: Sequence[Cell], asked: Asked) -> Lot:
    place, cells = place_of(found, name, asked), tuple(cell for cell in wanted if cell.data == name)
    never, now = _reasons(found, place, asked)
    body = merge_existing(place, params_of(place, found, [cell for cell in cells if not never[cell.name]], asked))
    return Lot(place, cells, never, now, made_params(body))


def _reasons(found: Grid, place: Place, asked: Asked) -> tuple[dict[str, str], dict[str, str]]:
    """Return cell of a data set -> why it can run nowhere, and why not here; empty where it can."""
    every = [cell for cell in cells_of(found) if cell.data == place.name]
    return {cell.name: _reason_never(cell) for cell in every}, {
        cell.name: _reason_now(cell, place, asked) for cell in every
    }


def _find_other_lots(found: Grid, lots: Sequence[Lot], asked: Asked) -> Iterator[Lot]:
    """Yield the data sets of the table that are not asked for now and have a workspace, whatever options made it."""
    for name in found.data:
        place = place_of(found, name, asked)
        if name not in {lot.place.name for lot in lots} and (place.workspace / FILE).is_file():
            with suppress(ParamsError):  # unreadable settings are not shown
                yield Lot(place, (), *_reasons(found, place, asked), read_params(place.workspace))


def _open_cells(lot: Lot) -> list[Cell]:
    return [cell for cell in lot.cells if not lot.why_not(cell)]


def _reason_never(cell: Cell) -> str:
    if cell.missing:
        return f"missing: {cell.missing}"
    if "api" in cell.needs:
        return f"needs API: {cell.needs['api']}"
    if MOST_TARGET < cell.epsilon < math.inf:
        return f"refused: epsilon {cell.epsilon:g} is no protection; noise is worked out up to {MOST_TARGET:g}"
    return ""


def _reason_now(cell: Cell, place: Place, asked: Asked) -> str:
    """Say what a cell lacks here. Only a named model needs a GPU: the embedded one is small."""
    if is_planned(cell):
        return ""
    if place.lacks:
        return f"needs file: {place.lacks}"
    if "file" in cell.needs and asked.judge is None:
        return f"needs file: {cell.needs['file']}"
    if "model" in cell.needs and asked.model is None:
        return f"needs model: {cell.needs['model']}; name its folder with --model"
    if cell.of.model and (asked.model is None or cell.of.model not in asked.model.name):
        return f"needs file: --model with a folder of {cell.of.model}"
    if "gpu" in cell.needs and asked.model is not None and cell.name not in asked.cells and resolve_device(AUTO) == CPU:
        return f"needs GPU: {cell.needs['gpu']}; name the cell in full with --cells to run it without"
    return ""


def _show_plan(found: Grid, lots: Sequence[Lot], asked: Asked) -> None:
    headings = ("cell", "epsilon", "in truth\npublished", "as the paper\ncounts ours", "published", "size", "state")
    rows = [_planned_row(lot, cell) for lot in lots for cell in lot.cells]
    out = console()
    show(out, Rows(f"{found.called}: no row was read", headings, rows, ("cell", "size", "state")))
    for text in _sentences(found, lots, asked):
        out.print(text, markup=False, soft_wrap=True)


def _planned_row(lot: Lot, cell: Cell) -> list[str]:
    epsilons, plan = _epsilons(lot, cell), lot.plan(cell)
    sizes = [f"{number(plan.numbers[key])} {key}" for key in _SIZES if key in plan.numbers] if plan is not None else []
    state = _state(lot, cell)
    return [
        cell.name, format_stated(cell), number(epsilons.in_truth), at_most(epsilons.as_counted),
        number(cell.published, 4), ", ".join(sizes), state,
    ]  # fmt: skip


def _state(lot: Lot, cell: Cell) -> str:
    """Say whether a cell is finished, will run, or cannot and why; a cell that only needs the plan gets its value."""
    if target(cell, lot.models) in lot.finished and not is_planned(cell) and not lot.never[cell.name]:
        return "finished"
    if why := lot.why_not(cell):
        return why
    if is_planned(cell):
        value, why = _read_measured(lot, cell, frozenset(), {})
        return why if value is None else f"by the plan: {number(value.value, 6)}"
    return "will run"


def _finished_stages(workspace: Path) -> frozenset[str]:
    """Return the stages of a workspace that are up to date; none where it is not made yet."""
    if not (workspace / GRAPH).is_file():
        return frozenset()
    render(workspace)
    return frozenset(one.name for one in standings(open_workspace(workspace), fresh=True) if one.state is State.CACHED)


def _sentences(found: Grid, lots: Sequence[Lot], asked: Asked) -> Iterator[str]:
    paper = ", ".join(f"{what} {name}" for what, name in found.models.items())
    yield f"The paper's models: {paper or 'not stated'}."
    for each in totals(lots):
        yield (
            f"{each.names}: all of this comes to epsilon {at_most(each.epsilon, 4)} at delta "
            f"{at_most(each.asset.delta)}, of {each.asset.epsilon:g}{each.beyond}, with what the ledger has of it. "
            "What is finished is not charged again, and what changed since is."
        )
    for lot in lots:
        yield f"{lot.made_with}, with public text of {lot.place.public_name}. Expected: {_time(lot)}."
    for lot in lots:
        if lot.place.lacks:
            dataset = lot.place.found.dataset
            yield (
                f"{lot.place.name} lacks {lot.place.lacks} in --data. Its files come from {dataset.where}; "
                f"`palimpsest dataset` says more. Public text beside it: {dataset.public}"
            )
    if found.counting.says:
        yield found.counting.says


def _time(lot: Lot) -> str:
    """Say how long the stages to run are expected to take, as far as they were measured here, with other sizes."""
    workspace = lot.place.workspace
    if not (workspace / GRAPH).is_file():
        return "nothing was measured here yet"
    there, done = set(stage_names(workspace)), lot.finished
    wanted = {target(cell, lot.models) for cell in _open_cells(lot) if not is_planned(cell)}
    below = find_upstream(workspace, sorted(wanted & there)) if wanted & there else set()
    due = (below | wanted) - done
    minutes = estimate_minutes(workspace, sorted(due))
    hours = sum(minutes.values()) / 60.0
    return f"{hours:.1f} hours for the stages that were measured here, {len(minutes)} of at least {len(due)}"


def _may_charge(lots: Sequence[Lot], *, yes: bool) -> bool:
    asked = ", ".join(f"{each.names}: at most epsilon {at_most(each.epsilon, 4)} in all" for each in totals(lots))
    return yes or may_charge("This run", f"({asked})", "Nothing was made and nothing was charged.")


def _run(lots: Sequence[Lot], *, yes: bool) -> tuple[dict[str, str], int]:
    """Run the cells one after the other; return cell -> why it failed, and the exit status."""
    failed: dict[str, str] = {}
    for lot in lots:
        done = _finished_stages(lot.place.workspace)
        for name in dict.fromkeys(target(cell, lot.models) for cell in _open_cells(lot) if not is_planned(cell)):
            why, code = _run_one(lot.place.workspace, name, yes) if name not in done else ("", 0)
            if code == STOPPED:
                return failed, code
            failed |= {name_of(lot.place, name): why} if why else {}
    return failed, int(bool(failed))


def _run_one(workspace: Path, name: str, yes: bool) -> tuple[str, int]:
    try:
        code = run_workspace(workspace, [name], ui=False, stay=False, yes=yes)
    except PalimpsestError as error:
        print(error.lines, file=sys.stderr)
        return f"refused: {error.problem}", 1
    return (f"failed: {name}" if code not in (0, STOPPED) else ""), code


def name_of(place: Place, stage: str) -> str:
    """Name a stage of one of the workspaces."""
    return f"{place.name}/{stage}"


def _results(found: Grid, lot: Lot, failed: Mapping[str, str]) -> Iterator[Result]:
    """Yield every requested cell with its value, or why it has none; of the other cells the earlier values."""
    done = _finished_stages(lot.place.workspace)
    for cell in cells_of(found):
        if cell in lot.cells:
            yield Result(cell, _epsilons(lot, cell), *_read_measured(lot, cell, done, failed))
        elif cell.data == lot.place.name and target(cell, lot.models) in done and not is_planned(cell):
            value, why = _read_measured(lot, cell, done, failed)
            if value is not None:
                yield Result(cell, _epsilons(lot, cell), value, why)


def _read_measured(lot: Lot, cell: Cell, done: frozenset[str], failed: Mapping[str, str]) -> tuple[Value | None, str]:
    plan = lot.plan(cell)
    if is_planned(cell):
        return (None if plan is None else measure(cell).read(plan.numbers, cell.detail)), lot.never[cell.name]
    stage = target(cell, lot.models)
    there = stage in done and not lot.never[cell.name]
    value = read(cell, lot.place.workspace, lot.models) if there else None
    if value is not None:
        return value, value.note
    return None, lot.why_not(cell) or failed.get(name_of(lot.place, stage), "not run")


def _epsilons(lot: Lot, cell: Cell) -> Epsilons:
    """Return both countings' epsilons, of the published value and of ours."""
    if cell.of.per_word:
        return Epsilons(cell.epsilon, None, None, None)
    of, counting = cell.grid.data[cell.data], cell.grid.counting
    n, plan = lot.params.schema_of_data.n_units, lot.plan(cell)
    receipts = MODEL_RECEIPTS if measure(cell).of_model else RECEIPTS
    receipt = lot.place.workspace / receipts / f"{subject(cell, lot.models)}.json"
    charged = read_receipt(receipt).epsilon if receipt.is_file() else None
    truth, ours = cell.epsilon, None if plan is None else charged or plan.budget.epsilon
    if cell.row in counting.rows:
        truth = true_epsilon(counting, cell.data, cell.epsilon, of.records or n)
        ours = None if plan is None else counted_epsilon(counting, ours or 0.0, plan.numbers, n)
    return Epsilons(cell.epsilon, truth, charged, ours)


def _write(found: Grid, lots: Sequence[Lot], failed: Mapping[str, str], asked: Asked) -> None:
    """Write the table as a page and as JSON, and its drawing; all of it stays with its owner.

    Cells of the same table that an earlier call finished stay in it.
    """
    order = {cell.name: place for place, cell in enumerate(cells_of(found))}
    results = sorted(
        (result for lot in lots for result in _results(found, lot, failed)), key=lambda one: order[one.cell.name]
    )
    shown = {result.cell.data for result in results}
    made_with = [lot.made_with for lot in lots if lot.place.name in shown]
    home = asked.workspace / REPORTS / f"{found.paper}-{found.table}"
    write_json(home.with_suffix(".json"), document(found, results, made_with))
    whole = page(found, results, made_with)
    write_text(home.with_suffix(".md"), whole)
    if drawing := draw_table(found, results):
        write_text(home.with_suffix(".svg"), drawing)
    print(whole)
    print(f"written: {home}.md, .json" + (" and .svg" if drawing else "") + "; they are private, as the test rows are")
