"""`palimpsest plan`: the price list, before anything is bought."""

import math
from dataclasses import dataclass
from pathlib import Path

import dp_accounting as dpa
from rich.table import Table

from palimpsest.cli.console import console, table
from palimpsest.cli.context import Context, opened
from palimpsest.cli.graph import stale
from palimpsest.generators.base import Plan
from palimpsest.privacy import accounting
from palimpsest.privacy.ledger import Charge, Request, preview
from palimpsest.report.formats import MISSING, number
from stages.dp_train import continues, planned, requested


@dataclass(frozen=True)
class Priced:
    """A variant's plan and whether its private stage would run now."""

    name: str
    purpose: str
    plan: Plan
    pending: bool

    @property
    def requests(self) -> list[Request]:
        """What it would reserve."""
        return requested(self.plan)


def priced(context: Context, *, only_pending: bool = False) -> list[Priced]:
    """The variants that run, with their plans. Reads no row."""
    changed = stale(context.workspace)
    found = []
    names = [name for name in context.params.run.dp_lm if f"dp_train@{name}" in changed or not only_pending]
    for name in names:
        variant = context.params.variants[name]
        _, plan = planned(context.params, variant)
        found.append(Priced(name, variant.purpose, plan, f"dp_train@{name}" in changed))
    return found


def asked_total(context: Context, variants: list[Priced]) -> float:
    """The epsilon spent on the asset once every pending release has run.

    What an earlier, stopped attempt of theirs reserved and never began, can replay or can continue is not counted
    twice.
    """
    pending = {item.name: item for item in variants if item.pending and item.purpose == "release"}
    charges = context.ledger.charges(context.asset.name)
    standing = [charge for charge in charges if not (charge.variant in pending and _reusable(context, charge))]
    return preview(context.asset, standing, [request for item in pending.values() for request in item.requests])


def _reusable(context: Context, charge: Charge) -> bool:
    begun = charge.state == "begun" and continues(charge, context.workspace)
    return begun or charge.state in ("reserved", "answered")


def budget_cost(context: Context, item: Priced) -> float:
    """The epsilon that one run of a variant would take from the budget now; 0 for a reference and for a cached one."""
    return asked_total(context, [item]) - context.ledger.balance(context.asset.name).spent


def show_plan(workspace: Path) -> None:
    """Print the plan of every variant, its cost by both accountants and to the budget, and what would be left."""
    context, out = opened(workspace), console()
    for flag in context.params.flags():
        out.print(f"[yellow]flag:[/yellow] {flag}")
    variants = priced(context)
    out.print(_table(context, variants))
    for item in variants:
        for note in item.plan.notes:
            out.print(f"{item.name}: {note}")
    balance = context.ledger.balance(context.asset.name)
    after = asked_total(context, variants)
    verdict = "[green]fits[/green]" if after <= context.asset.epsilon else "[red]does not fit[/red]"
    out.print(
        f"Budget of [bold]{context.asset.name}[/bold]: epsilon {context.asset.epsilon:g} at delta "
        f"{context.asset.delta:.3g}; spent {balance.spent:.3f}, after the pending runs {after:.3f}: {verdict}."
    )
    out.print(
        "Budget cost: what one run adds to the data set's total. It is above the variant's own epsilon because the "
        "total also holds for plans chosen after looking at earlier results; several costs do not simply add up."
    )
    out.print("A cached variant spends nothing; one that runs again is charged again.")


def _table(context: Context, variants: list[Priced]) -> Table:
    made = table("Plan: no row was read")
    for heading in (
        "variant",
        "noise",
        "steps",
        "batch\n(rate)",
        "epsilon\nPLD",
        "epsilon\nRDP",
        "budget\ncost",
        "state",
    ):
        made.add_column(heading, justify="left" if heading in ("variant", "state") else "right", overflow="fold")
    for item in variants:
        made.add_row(f"{item.name}\n{item.plan.method} {item.purpose}", *_cells(context, item))
    return made


def _cells(context: Context, item: Priced) -> list[str]:
    numbers, delta = item.plan.numbers, context.asset.delta
    shown = [number(numbers.get("noise_multiplier"), 5), number(numbers.get("steps"))]
    shown.append(f"{number(numbers.get('expected_batch'), 6)}\n({number(numbers.get('sampling_rate'), 4)})")
    if not item.plan.feasible:
        return [*shown, MISSING, MISSING, MISSING, "[red]infeasible[/red]"]
    event = dpa.ComposedDpEvent([query.event for query in item.plan.queries])
    shown += [_epsilon(accounting.epsilon(event, delta, accountant)) for accountant in ("pld", "rdp")]
    return [*shown, f"{budget_cost(context, item):.3f}", "will run" if item.pending else "cached"]


def _epsilon(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.3f}"
