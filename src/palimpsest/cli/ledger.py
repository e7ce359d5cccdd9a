"""`palimpsest ledger`: the books; with `export`, `import` and `merge-check` a whole ledger as a file."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.markup import escape

from palimpsest.cli.console import Rows, console, show, show_json
from palimpsest.cli.context import Context, load_or_compute, open_workspace
from palimpsest.errors import LedgerError
from palimpsest.params.load import LEDGER_VARIABLE, ledger_url, read
from palimpsest.privacy.ledger import exported
from palimpsest.privacy.ledger.books import Books
from palimpsest.privacy.ledger.exported import Comparison, compare_ledgers
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Balance, Charge
from palimpsest.privacy.ledger.summary import Accounted, LedgerSummary, account_charges, ledger_summary
from palimpsest.privacy.ledger.witness import Witnesses
from palimpsest.privacy.shown import delta_up, down, up
from palimpsest.workspace import PARAMS

_SQLITE = b"SQLite format 3\0"  # what every such file begins with
_DIVERGED = 1


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
    context, out = open_workspace(workspace), console()
    if refund is not None:
        _give_back(context.ledger, context.asset.name, refund)
    if strike is not None:
        context.ledger.strike(context.asset.name, strike, because or "")
    whole = context.ledger.books()
    books = ledger_summary(whole, context.asset.name) if verify else summarise_books(context, whole)
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
    for said in describe_total(whole, context.asset.name):
        out.print(f"[yellow]{escape(said)}[/yellow]", soft_wrap=not out.is_terminal)
    if books.after_loss:
        out.print("[yellow]An earlier ledger of this data set is lost: what it spent is in no total here.[/yellow]")
    if verify:
        out.print(f"Chain of {books.entries} entries: whole. Head {books.head}.")


def describe_total(books: Books, name: str) -> Iterator[str]:
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


def summarise_books(context: Context, books: Books) -> LedgerSummary:
    """Return the books for display: the same entries' result when last shown; `--verify` works it out anew."""

    def worked_out() -> dict[str, Any]:
        found = account_charges(books, context.asset.name)
        return {"balance": asdict(found.balance), "epsilons": found.epsilons}

    body = load_or_compute(context.workspace, "ledger", [context.asset.name, books.head], worked_out)
    balance = Balance(**{**body["balance"], "used": tuple(body["balance"]["used"])})
    return ledger_summary(books, context.asset.name, Accounted(balance, body["epsilons"]))


def _give_back(ledger: Ledger, asset: str, charge_id: str) -> None:
    """Refund one reservation that never began.

    Raises:
        LedgerError: if there is no such charge, it has begun, or a process is at its run.
    """
    found = [one for one in ledger.charges(asset) if one.asset == asset and one.id.startswith(charge_id)]
    if len(found) == 1:
        with ledger.lock_run(asset, found[0].run_key):
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


def _address(workspace: Path) -> str:
    """Return the address of the workspace's ledger; without a workspace, only PALIMPSEST_LEDGER gives it."""
    given = os.environ.get(LEDGER_VARIABLE)
    if given and not (workspace / PARAMS).is_file():
        return _url(given)
    return ledger_url(read(workspace), workspace)


def write_export(workspace: Path, path: Path) -> None:
    """Write the whole ledger into a file, and print its number of entries and its head."""
    ledger = Ledger.open(_address(workspace)).export()
    exported.write(ledger, path)
    print(f"{path}: {len(ledger.chain.entries)} entries; head {ledger.chain.head.hash}")
    print("It holds the keys of the data sets: keep it as private as the ledger.")


def read_import(workspace: Path, path: Path) -> None:
    """Write a file's ledger into an empty one, and print what each data set has spent."""
    read_from = exported.read(path)
    ledger = Ledger.create(_address(workspace))
    books = ledger.take_in(read_from)
    print(f"{ledger.place}: {books.entries} entries; head {books.head}")
    for name in books.chain.keys:
        balance = books.balance(name)
        print(f"{name}: epsilon {up(balance.spent)} spent of {balance.cap:g}")
    print("Use this ledger from now on, everywhere, and put the one that it was copied from away: each counts alone.")


def check_merge(one: str, other: str, *, as_json: bool = False) -> int:
    """Print where two ledgers diverge and what both have spent; return 1 if they diverged, else 0."""
    found = compare_ledgers(_books(one), _books(other))
    if as_json:
        show_json(found)
    else:
        _print(found, one, other)
    return _DIVERGED if found.diverged else 0


def _print(found: Comparison, one: str, other: str) -> None:
    print(f"{found.shared} entries alike; then {found.own[0]} of {one} alone and {found.own[1]} of {other} alone")
    for each in found.sums:
        verdict = "within the cap" if each.fits else "beyond the cap"
        print(
            f"{each.asset}: epsilon {up(each.spent[0])} and {up(each.spent[1])} spent; together {up(each.both)} of "
            f"{each.cap:g}, {verdict}"
        )
    print(_advice(found, one, other))


def _advice(found: Comparison, one: str, other: str) -> str:
    if found.diverged:
        return (
            f"They part at entry {found.shared + 1}: neither says what was spent, and nothing was merged. Stop both, "
            "and release nothing more on either: the data's owner decides, by what was spent together."
        )
    if found.own == (0, 0):
        return "They are one ledger."
    return f"{other if found.own[1] else one} goes on from the other, which is an old copy: put that away."


def _books(place: str) -> Books:
    path = Path(place)
    if "://" not in place and not _is_database(path):
        return Books(exported.read(path).chain, place, Witnesses(path.parent))
    return Ledger.open(_url(place)).unchecked_books()


def _is_database(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def _url(place: str) -> str:
    return place if "://" in place else f"sqlite:///{Path(place).expanduser().resolve()}"
