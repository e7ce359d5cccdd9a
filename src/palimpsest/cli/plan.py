"""`palimpsest plan`: the price list, before anything is bought."""

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import dp_accounting.dp_event as dpa
from rich.table import Table

from palimpsest.cli.console import console, table
from palimpsest.cli.context import Context, opened
from palimpsest.cli.graph import stale
from palimpsest.cli.render import render
from palimpsest.methods.registry import METHODS
from palimpsest.methods.shared.base import Plan
from palimpsest.methods.shared.columns import PlanTable
from palimpsest.methods.shared.method import Method
from palimpsest.privacy import accounting
from palimpsest.privacy.ledger.records import Charge
from palimpsest.privacy.ledger.rules import preview
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.report.formats import MISSING, number
from stages import pricing
from stages.spenders import spenders
from stages.vouching import require_vouched


@dataclass(frozen=True)
class Priced:
    """The plan of a model that is fitted to private rows, or of a variant that is written from them.

    Attributes:
        stage: the stage's name, as in dvc.yaml.
        name: the model's or the variant's.
        method: how it is made.
        purpose: release or reference.
        plan: what its stage asks.
        whole: all that it costs: its own plan and that of the model it builds on.
        own_delta: what that takes of delta beside its event.
        pending: whether the stage would run.
        variants: what is drawn from a model, free.
    """

    stage: str
    name: str
    method: Method
    purpose: str
    plan: Plan
    whole: dpa.DpEvent
    own_delta: float
    pending: bool
    variants: tuple[str, ...]


def priced(context: Context, *, only_pending: bool = False) -> list[Priced]:
    """Everything that spends, with its plan, each after what it builds on. Reads no row."""
    params, changed, found = context.params, stale(context.workspace), []
    for each in spenders(params):
        name, stage = each.name, f"{each.method.stage}@{each.name}"
        if only_pending and stage not in changed:
            continue
        plan, (whole, own_delta) = pricing.planned(params, name), pricing.whole(params, name)
        draws = tuple(variant for variant, model in params.run.dp_lm.items() if model == name)
        purpose, pending = each.target.purpose, stage in changed
        found.append(Priced(stage, name, each.method, purpose, plan, whole, own_delta, pending, draws))
    return found


def asked_total(context: Context, variants: list[Priced]) -> float:
    """The epsilon spent on the asset once every pending release has run.

    What an earlier, stopped attempt of theirs reserved and never began, can replay or can continue is not counted
    twice.
    """
    standing, wanted = _asked(context, variants)
    return preview(context.asset, standing, {(name, 1): queries for name, queries in wanted.items()})


def asked_delta(context: Context, variants: list[Priced]) -> float:
    """What the deltas that no event carries add up to by then."""
    standing, wanted = _asked(context, variants)
    pending = [query for queries in wanted.values() for query in queries]
    return sum(charge.own_delta for charge in standing if charge.counted) + sum(query.own_delta for query in pending)


def _asked(context: Context, variants: list[Priced]) -> tuple[list[Charge], dict[str, tuple[PlannedQuery, ...]]]:
    """The charges that stand, and what the pending releases ask by name."""
    pending = {item.name: item for item in variants if item.pending and item.purpose == "release"}
    standing = [
        charge
        for charge in context.ledger.charges(context.asset.name)
        if not (_planned(charge, pending.get(charge.variant)) and _reusable(context, charge))
    ]
    return standing, {name: item.plan.queries for name, item in pending.items()}


def _planned(charge: Charge, item: Priced | None) -> bool:
    """Whether the charge is one that the plan would make."""
    queries = item.plan.queries if item else ()
    own = charge.query, charge.event, charge.own_delta, charge.partition
    return any(own == (each.name, each.event, each.own_delta, each.partition) for each in queries)


def _reusable(context: Context, charge: Charge) -> bool:
    begun = charge.state == "begun" and pricing.continues(charge, context.workspace)
    return begun or charge.state in ("reserved", "answered")


def budget_cost(context: Context, item: Priced) -> float:
    """The epsilon that one run of a model would take from the budget now; 0 for a reference and for a cached one."""
    return asked_total(context, [item]) - context.ledger.balance(context.asset.name).spent


def show_plan(workspace: Path) -> None:
    """Print the plan of every model, its cost by both accountants and to the budget, and what would be left."""
    render(workspace)
    context, out = opened(workspace), console()
    require_vouched(context.params, workspace)
    for flag in context.params.flags():
        out.print(f"[yellow]flag:[/yellow] {flag}")
    variants = priced(context)
    for columns in dict.fromkeys(method.columns for method in METHODS):
        if shown := [item for item in variants if item.method.columns is columns]:
            out.print(_table(context, columns, shown))
    for item in variants:
        for note in item.plan.notes:
            out.print(f"{item.name}: {note}", markup=False)
    balance = context.ledger.balance(context.asset.name)
    after = asked_total(context, variants)
    beside, most = asked_delta(context, variants), context.asset.delta - context.asset.filter_delta
    fits = after <= context.asset.epsilon and beside <= most
    verdict = "[green]fits[/green]" if fits else "[red]does not fit[/red]"
    out.print(
        f"Budget of [bold]{context.asset.name}[/bold]: epsilon {context.asset.epsilon:g} at delta "
        f"{context.asset.delta:.3g} for adding or removing one {context.asset.unit}; spent {balance.spent:.3f}, after "
        f"the pending runs {after:.3f}: {verdict}."
    )
    if beside:
        out.print(f"Deltas that no event carries: {beside:.3g} after the pending runs, of at most {most:.3g}.")
    out.print(
        "Budget cost: what one run adds to the data set's total. It is above the variant's own epsilon because the "
        "total also holds for plans chosen after looking at earlier results; several costs do not simply add up."
    )
    out.print(
        "A cached model spends nothing; one that runs again is charged again. A discriminator's epsilon counts the "
        "language model that it builds on. Whatever is drawn from a model is free."
    )


def _table(context: Context, columns: PlanTable, variants: list[Priced]) -> Table:
    """One table for the methods that share columns."""
    made = table("Plan: no row was read")
    headings = [column.heading for column in columns.columns]
    for heading in (columns.row, *headings, "epsilon", "epsilon\nRDP", "budget\ncost", "state"):
        made.add_column(heading, justify="left" if heading in (columns.row, "state") else "right", overflow="fold")
    for item in variants:
        shown = partial(_shown, item.plan)
        made.add_row(_title(item), *(column.cell(shown) for column in columns.columns), *_costs(context, item))
    return made


def _shown(plan: Plan, *keys: str, digits: int = 3) -> str:
    """The first of these numbers that the plan has."""
    return number(next((plan.numbers[key] for key in keys if key in plan.numbers), None), digits)


def _title(item: Priced) -> str:
    """The model or variant, its method, and what is drawn from it without a further charge."""
    way = item.method.columns.way
    lines = [item.name, f"{item.method.name} {item.purpose}"]
    lines += [_shown(item.plan, way)] if way else []
    lines += [f"draws: {', '.join(item.variants)}"] if item.variants else []
    return "\n".join(lines)


def _costs(context: Context, item: Priced) -> list[str]:
    """Epsilon by the plan's own accountant and by RDP, the cost to the budget, the state."""
    if not item.plan.feasible:
        return [MISSING, MISSING, MISSING, "[red]infeasible[/red]"]
    delta = context.asset.delta - item.own_delta
    own = f"{_epsilon(accounting.epsilon(item.whole, delta))}\n({accounting.primary(item.whole)})"
    costs = [own, _epsilon(accounting.epsilon(item.whole, delta, "rdp")), f"{budget_cost(context, item):.3f}"]
    return [*costs, "will run" if item.pending else "cached"]


def _epsilon(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.3f}"
