"""`palimpsest status`: what would run, and what is left."""

from pathlib import Path

from palimpsest.cli.console import console, table
from palimpsest.cli.context import opened
from palimpsest.cli.graph import stage_names, stale


def show_status(workspace: Path) -> None:
    """Print each stage with its state, then the budget."""
    context, changed = opened(workspace), stale(workspace)
    stages = table()
    stages.add_column("stage", overflow="fold")
    stages.add_column("state", no_wrap=True)
    for name in stage_names(workspace):
        stages.add_row(name, "[yellow]would run[/yellow]" if name in changed else "[green]up to date[/green]")
    out = console()
    out.print(stages)
    balance = context.ledger.balance(context.asset.name)
    out.print(
        f"Budget of [bold]{context.asset.name}[/bold]: epsilon {balance.spent:.3f} spent, {balance.left:.3f} left of "
        f"{balance.cap:g} at delta {context.asset.delta:.3g}."
    )
