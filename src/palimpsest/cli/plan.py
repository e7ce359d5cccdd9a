"""`palimpsest plan`: the price list, before anything is bought."""

import math
from dataclasses import dataclass
from pathlib import Path

import dp_accounting as dpa
from rich.console import Console
from rich.table import Table

from palimpsest.cli.context import Context, opened
from palimpsest.cli.graph import stale
from palimpsest.generators.base import Plan
from palimpsest.privacy import accounting
from palimpsest.privacy.ledger import Request, preview
from stages.dp_train import planned


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
        return [Request(query.name, query.event) for query in self.plan.queries]


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
    """The epsilon spent on the asset once every pending release has run."""
    wanted = [request for item in variants if item.pending and item.purpose == "release" for request in item.requests]
    return preview(context.asset, context.ledger.charges(context.asset.name), wanted)


def show_plan(workspace: Path) -> None:
    """Print the plan of every variant, its cost by both accountants, and what would be left."""
    context, console = opened(workspace), Console()
    for flag in context.params.flags():
        console.print(f"[yellow]flag:[/yellow] {flag}")
    variants = priced(context)
    console.print(_table(context, variants))
    for item in variants:
        for note in item.plan.notes:
            console.print(f"{item.name}: {note}")
    balance = context.ledger.balance(context.asset.name)
    after = asked_total(context, variants)
    verdict = "[green]fits[/green]" if after <= context.asset.epsilon else "[red]does not fit[/red]"
    console.print(
        f"Budget of [bold]{context.asset.name}[/bold]: epsilon {context.asset.epsilon:g} at delta "
        f"{context.asset.delta:.3g}; spent {balance.spent:.3f}, after the pending runs {after:.3f}: {verdict}."
    )
    console.print("A cached variant spends nothing; one that runs again is charged again.")


def _table(context: Context, variants: list[Priced]) -> Table:
    table = Table(title="Plan: no row was read")
    for heading in ("variant", "method", "purpose", "noise", "steps", "rate", "batch", "eps PLD", "eps RDP", "state"):
        table.add_column(heading, justify="left" if heading in ("variant", "method", "purpose", "state") else "right")
    for item in variants:
        numbers, event = item.plan.numbers, dpa.ComposedDpEvent([query.event for query in item.plan.queries])
        table.add_row(
            item.name,
            item.plan.method,
            item.purpose,
            f"{numbers['noise_multiplier']:.4f}",
            f"{numbers['steps']}",
            f"{numbers['sampling_rate']:.4g}",
            f"{numbers['expected_batch']:g}",
            _epsilon(accounting.epsilon(event, context.asset.delta)),
            _epsilon(accounting.epsilon(event, context.asset.delta, "rdp")),
            "will run" if item.pending else "cached: free",
        )
    return table


def _epsilon(value: float) -> str:
    return "inf" if math.isinf(value) else f"{value:.3f}"
