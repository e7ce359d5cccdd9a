"""`palimpsest ledger`: the books."""

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from palimpsest.cli.context import opened
from palimpsest.errors import LedgerError
from palimpsest.privacy.books import ledger_summary


def show_ledger(workspace: Path, *, verify: bool, refund: str | None, as_json: bool) -> None:
    """Print every charge of the workspace's asset; optionally verify the chain or refund what never began."""
    context, console = opened(workspace), Console()
    if refund is not None:
        give_back(context.ledger, context.asset.name, refund)
    books = ledger_summary(context.ledger, context.asset)
    if as_json:
        print(json.dumps(books, indent=2))
        return
    console.print(_table(books))
    console.print(
        f"Asset [bold]{books['asset']}[/bold] at {context.ledger.place}: epsilon {books['spent_epsilon']:.3f} spent, "
        f"{books['left_epsilon']:.3f} left of {books['cap_epsilon']:g} at delta {books['delta']:.3g}. "
        "The total holds also for plans chosen after looking at earlier results."
    )
    if verify:
        console.print(f"Chain of {books['entries']} entries: whole. Head {books['head']}.")


def give_back(ledger, asset: str, charge_id: str) -> None:  # type: ignore[no-untyped-def]
    """Refund one reservation that never began.

    Raises:
        LedgerError: if there is no such charge, or it has begun.
    """
    found = [charge for charge in ledger.charges(asset) if charge.id.startswith(charge_id)]
    if len(found) != 1 or not ledger.refund(found):
        raise LedgerError(
            f"No single charge that starts with {charge_id!r} can be given back.",
            "Name one that is `reserved`: what has begun stays charged for ever.",
        )


def _table(books) -> Table:  # type: ignore[no-untyped-def]
    table = Table("#", "id", "time", "stage", "variant", "query", "run", "state", "purpose", "epsilon alone")
    for line in books["charges"]:
        alone = "not private" if line["epsilon"] is None else f"{line['epsilon']:.3f}"
        table.add_row(
            str(line["seq"]), line["id"][:8], line["time"], line["stage"], line["variant"], line["query"],
            str(line["run"]), line["state"], line["purpose"], alone,
        )  # fmt: skip
    return table
