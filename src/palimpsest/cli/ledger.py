"""`palimpsest ledger`: the books."""

import json
from collections.abc import Iterable, Iterator
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
from palimpsest.privacy.ledger.summary import Accounted, LedgerSummary, accounted, ledger_summary
from palimpsest.privacy.shown import delta_up, down, up


def show_ledger(
    workspace: Path,
    *,
    verify: bool,
    refund: str | None,
    as_json: bool,
    strike: int | None = None,
    because: str | None = None,
) -> None:
    """Print every charge to the rows of the workspace's asset, and the faults of entries.

    Optionally verify the chain, refund what never began, or strike a faulty entry by the owner's word.
    """
    context, out = opened(workspace), console()
    if refund is not None:
        _give_back(context.ledger, context.asset.name, refund)
    if strike is not None:
        context.ledger.strike(context.asset.name, strike, because or "")
    whole = context.ledger.books()
    books = ledger_summary(whole, context.asset.name) if verify else shown_books(context, whole)
    if as_json:
        print(json.dumps(books.to_json(), indent=2))
        return
    show(out, _table(books, whole.charges(context.asset.name)))
    out.print(
        f"Asset {books.asset} at {escape(context.ledger.place)}: "
        f"epsilon {up(books.spent_epsilon)} spent, {down(books.left_epsilon)} left of {books.cap_epsilon:g} at "
        f"delta {delta_up(books.delta)}, for adding or removing one {books.unit}. {books.total.sentence}",
        soft_wrap=not out.is_terminal,
    )
    for said in said_of(whole, context.asset.name):
        out.print(f"[yellow]{escape(said)}[/yellow]", soft_wrap=not out.is_terminal)
    if books.after_loss:
        out.print("[yellow]An earlier ledger of this data set is lost: what it spent is in no total here.[/yellow]")
    if verify:
        out.print(f"Chain of {books.entries} entries: whole. Head {books.head}.")


def said_of(books: Books, name: str) -> Iterator[str]:
    """Yield what must be said beside a total: whose charges it adds up, and which entries are faulty."""
    if others := books.names(name):
        yield f"That is the sum over {name} and the names with the same rows: {', '.join(others)}."
    for other in books.other_units(name):
        asset, spent = books.asset(other), books.balance(other).spent
        yield (
            f"The same rows are {other}, for one {asset.unit}: epsilon {up(spent)} at delta {delta_up(asset.delta)} "
            "was spent there beside it. It is in no sum, for the unit of privacy is another."
        )
    for fault in books.faults(name):
        if fault.struck is not None:
            yield f"Struck: {fault}. The owner's reason: {fault.struck}"
        else:
            counts = "it fills the budget" if fault.fills else "it counts at what covers it"
            yield f"Faulty: {fault}; {counts}, until `palimpsest ledger --strike {fault.seq} --because REASON`."


def shown_books(context: Context, books: Books) -> LedgerSummary:
    """Return the books for display: the same entries' result when last shown; `--verify` works it out anew."""

    def worked_out() -> dict[str, Any]:
        found = accounted(books, context.asset.name)
        return {"balance": asdict(found.balance), "epsilons": found.epsilons}

    body = kept(context.workspace, "ledger", [context.asset.name, books.head], worked_out)
    balance = Balance(**{**body["balance"], "used": tuple(body["balance"]["used"])})
    return ledger_summary(books, context.asset.name, Accounted(balance, body["epsilons"]))


def _give_back(ledger: Ledger, asset: str, charge_id: str) -> None:
    """Refund one reservation that never began.

    Raises:
        LedgerError: if there is no such charge, it has begun, or a process is at its run.
    """
    found = [one for one in ledger.charges(asset) if one.asset == asset and one.id.startswith(charge_id)]
    if len(found) == 1:
        with ledger.alone(asset, found[0].run_key):
            if ledger.refund(found):
                return
    raise LedgerError(
        f"No single charge that starts with {charge_id!r} can be given back.",
        "Name one that is `reserved`: what has begun stays charged for ever.",
    )


def _table(books: LedgerSummary, charges: Iterable[Charge]) -> Rows:
    """Return one row per charge, with the steps that have begun; two or three lines, so that it fits on 80 columns."""
    known = {charge.id: charge for charge in charges}
    steps = {key: f"\n{one.steps_begun} of {one.steps} steps" for key, one in known.items() if one.steps}
    names = {key: f"\n{one.asset}" for key, one in known.items() if one.asset != books.asset}
    rows = []
    for line in books.charges:
        alone = "not private" if line.epsilon is None else up(line.epsilon)
        rows.append([
            f"{line.seq}\n{line.id[:8]}", line.time[:19].replace("T", "\n"),
            f"{line.variant}\n{line.stage}{names.get(line.id, '')}", f"{line.query}\n{line.run}",
            f"{line.state}\n{line.purpose}{steps.get(line.id, '')}", alone,
        ])  # fmt: skip
    headings = ("#\nid", "time", "variant\nstage", "query\nrun", "state\npurpose", "epsilon\nalone")
    return Rows("Charges", headings, rows, left=headings)
