"""`palimpsest ledger`: the books."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.markup import escape

from palimpsest.cli.console import Rows, console, show
from palimpsest.cli.context import Context, opened
from palimpsest.cli.kept import kept
from palimpsest.errors import LedgerError
from palimpsest.privacy.ledger.books import Books
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Balance, Charge
from palimpsest.privacy.ledger.summary import (
    Accounted,
    LedgerSummary,
    UsedGaussian,
    UsedOrder,
    accounted,
    ledger_summary,
)
from palimpsest.privacy.shown import delta_up, down, up

_HOLDS = {
    UsedOrder: "The total holds also for plans chosen after looking at earlier results.",
    UsedGaussian: "Counted in Gaussian DP: the cap holds also for plans chosen after looking at earlier results; what "
    "is spent so far says where the filter stands.",
}


def show_ledger(workspace: Path, *, verify: bool, refund: str | None, as_json: bool) -> None:
    """Print every charge of the workspace's asset; optionally verify the chain or refund what never began."""
    context, out = opened(workspace), console()
    if refund is not None:
        give_back(context.ledger, context.asset.name, refund)
    whole = context.ledger.books()
    books = ledger_summary(whole, context.asset.name) if verify else shown_books(context, whole)
    if as_json:
        print(json.dumps(books.to_json(), indent=2))
        return
    show(out, _table(books, whole.charges(context.asset.name)))
    out.print(
        f"Asset {books.asset} at {escape(context.ledger.place)}: "
        f"epsilon {up(books.spent_epsilon)} spent, {down(books.left_epsilon)} left of {books.cap_epsilon:g} at "
        f"delta {delta_up(books.delta)}, for adding or removing one {books.unit}. {_HOLDS[type(books.filter)]}",
        soft_wrap=not out.is_terminal,
    )
    if books.after_loss:
        out.print("[yellow]An earlier ledger of this data set is lost: what it spent is in no total here.[/yellow]")
    if verify:
        out.print(f"Chain of {books.entries} entries: whole. Head {books.head}.")


def shown_books(context: Context, books: Books) -> LedgerSummary:
    """The books for the eye: what the same entries came to when they were last shown; `--verify` works it out anew."""

    def worked_out() -> dict[str, Any]:
        found = accounted(books, context.asset.name)
        return {"balance": asdict(found.balance), "epsilons": found.epsilons}

    body = kept(context.workspace, "ledger", [context.asset.name, books.head], worked_out)
    balance = Balance(**{**body["balance"], "used": tuple(body["balance"]["used"])})
    return ledger_summary(books, context.asset.name, Accounted(balance, body["epsilons"]))


def give_back(ledger: Ledger, asset: str, charge_id: str) -> None:
    """Refund one reservation that never began.

    Raises:
        LedgerError: if there is no such charge, it has begun, or a process is at its run.
    """
    found = [charge for charge in ledger.charges(asset) if charge.id.startswith(charge_id)]
    if len(found) == 1:
        with ledger.alone(asset, found[0].run_key):
            if ledger.refund(found):
                return
    raise LedgerError(
        f"No single charge that starts with {charge_id!r} can be given back.",
        "Name one that is `reserved`: what has begun stays charged for ever.",
    )


def _table(books: LedgerSummary, charges: Iterable[Charge]) -> Rows:
    """One row per charge, of two lines or three, so that it fits on 80 columns; with the steps that have begun."""
    steps = {charge.id: f"\n{charge.steps_begun} of {charge.steps} steps" for charge in charges if charge.steps}
    rows = []
    for line in books.charges:
        alone = "not private" if line.epsilon is None else up(line.epsilon)
        rows.append([
            f"{line.seq}\n{line.id[:8]}", line.time[:19].replace("T", "\n"),
            f"{line.variant}\n{line.stage}", f"{line.query}\n{line.run}",
            f"{line.state}\n{line.purpose}{steps.get(line.id, '')}", alone,
        ])  # fmt: skip
    headings = ("#\nid", "time", "variant\nstage", "query\nrun", "state\npurpose", "epsilon\nalone")
    return Rows("Charges", headings, rows, left=headings)
