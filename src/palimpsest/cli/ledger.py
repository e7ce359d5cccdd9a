"""The commands about the ledger: register, and ledger with its own."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from palimpsest.cli.command import Commands, Json, Lost, Workspace
from palimpsest.errors import ParamsError
from palimpsest.privacy.shown import delta_up, down, up
from palimpsest.work.console import Rows, console, show, show_json

if TYPE_CHECKING:
    from palimpsest.privacy.ledger.books import Books
    from palimpsest.privacy.ledger.exported import Comparison
    from palimpsest.privacy.ledger.records import Charge
    from palimpsest.privacy.ledger.summary import LedgerSummary
    from palimpsest.work.context import Context

commands = typer.Typer()
books = typer.Typer(cls=Commands)
commands.add_typer(books, name="ledger")
_DIVERGED = 1


@commands.command()
def register(
    amend: Annotated[
        bool, typer.Option("--amend", help="Set the cap to privacy.budget.epsilon of params.yaml.")
    ] = False,
    lost: Lost = False,
    same_rows: Annotated[
        str | None,
        typer.Option(help="The owner's word that another data set in the ledger has the same rows: the reason."),
    ] = None,
    workspace: Workspace = Path(),
) -> None:
    """Enter the data set of params.yaml into the ledger.

    Makes the ledger where there is none.
    """
    from palimpsest.work.ledger import register_asset

    register_asset(workspace, amend=amend, lost=lost, same_rows=same_rows)


@books.callback(invoke_without_command=True)
def ledger(
    context: typer.Context,
    verify: Annotated[bool, typer.Option("--verify", help="Recompute the chain of hashes.")] = False,
    refund: Annotated[
        str | None, typer.Option("--refund", help="Give back a reservation that never began: its id.")
    ] = None,
    strike: Annotated[
        int | None, typer.Option("--strike", help="Take out a faulty entry, by the owner's word: its number.")
    ] = None,
    because: Annotated[str | None, typer.Option("--because", help="With --strike: why, in a few words.")] = None,
    as_json: Json = False,
    workspace: Workspace = Path(),
) -> None:
    """Every charge to the data set's privacy budget."""
    from palimpsest.privacy.ledger.summary import ledger_summary
    from palimpsest.work.context import open_workspace
    from palimpsest.work.ledger import give_back, summarise_books

    if context.invoked_subcommand is not None:
        if (verify, refund, strike, because, as_json, workspace) != (False, None, None, None, False, Path()):
            raise ParamsError("An option of `palimpsest ledger` stands before its command.", "Put it behind that.")
        return
    opened = open_workspace(workspace)
    if refund is not None:
        give_back(opened.ledger, opened.asset.name, refund)
    if strike is not None:
        opened.ledger.strike(opened.asset.name, strike, because or "")
    whole = opened.ledger.books()
    summary = ledger_summary(whole, opened.asset.name) if verify else summarise_books(opened, whole)
    if as_json:
        print(json.dumps(summary.to_json(), indent=2))
        return
    _print_books(opened, whole, summary)
    if verify:
        console().print(f"Chain of {summary.entries} entries: whole. Head {summary.head}.")


def _print_books(context: "Context", whole: "Books", books: "LedgerSummary") -> None:
    from palimpsest.work.ledger import describe_total

    out = console()
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


def _table(books: "LedgerSummary", charges: "Iterable[Charge]") -> Rows:
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


@books.command("export")
def export_ledger(
    file: Annotated[Path, typer.Argument(help="A file that is not there yet, outside every workspace.")],
    workspace: Workspace = Path(),
) -> None:
    """Write the whole ledger, keys and all, into a file.

    The file has JSON lines and ends with its own hash.
    """
    from palimpsest.privacy.ledger import exported
    from palimpsest.privacy.ledger.ledger import Ledger
    from palimpsest.work.ledger import address_of

    ledger = Ledger.open(address_of(workspace)).export()
    exported.write(ledger, file)
    print(f"{file}: {len(ledger.chain.entries)} entries; head {ledger.chain.head.hash}")
    print("It holds the keys of the data sets: keep it as private as the ledger.")


@books.command("import")
def import_ledger(
    file: Annotated[Path, typer.Argument(help="What `palimpsest ledger export` wrote.")], workspace: Workspace = Path()
) -> None:
    """Write an exported ledger into one that holds nothing.

    That may be a new database. The chain of what was exported must hold.
    """
    from palimpsest.privacy.ledger import exported
    from palimpsest.privacy.ledger.ledger import Ledger
    from palimpsest.work.ledger import address_of

    read_from = exported.read(file)
    ledger = Ledger.create(address_of(workspace))
    books = ledger.take_in(read_from)
    print(f"{ledger.place}: {books.entries} entries; head {books.head}")
    for name in books.chain.keys:
        balance = books.balance(name)
        print(f"{name}: epsilon {up(balance.spent)} spent of {balance.cap:g}")
    print("Use this ledger from now on, everywhere, and put the one that it was copied from away: each counts alone.")


@books.command("team")
def cap_team(
    team: Annotated[str, typer.Argument(help="Its name, which is public; a run says it in PALIMPSEST_TEAM.")],
    epsilon: Annotated[float, typer.Argument(help="Cap on the epsilon of all that this team is charged.")],
    workspace: Workspace = Path(),
) -> None:
    """Give a team that shares the data set a cap of its own.

    From the first one on, every run names a team.
    """
    from palimpsest.work.context import open_workspace

    context = open_workspace(workspace)
    context.ledger.cap_team(context.asset.name, team, epsilon)
    print(f"{context.asset.name}: team {team} may spend epsilon {epsilon:g} of the {context.asset.epsilon:g} of all")


@books.command("roles")
def roles() -> None:
    """The SQL that makes the roles of a ledger on PostgreSQL.

    They are owner, analyst and auditor: `palimpsest ledger roles | psql`.
    """
    from importlib.resources import files

    print((files("palimpsest.privacy.ledger") / "roles.sql").read_text(encoding="utf-8"), end="")


@books.command("merge-check")
def merge_check(
    one: Annotated[str, typer.Argument(help="A ledger: an exported file, a SQLite file, or the URL of a database.")],
    other: Annotated[str, typer.Argument(help="Another one.")],
    as_json: Json = False,
) -> None:
    """Where two ledgers part, and what both have spent together.

    Nothing is merged. Exit status 1 where they part.
    """
    from palimpsest.privacy.ledger.exported import compare_ledgers
    from palimpsest.work.ledger import books_at

    found = compare_ledgers(books_at(one), books_at(other))
    if as_json:
        show_json(found)
    else:
        _print_comparison(found, one, other)
    raise typer.Exit(_DIVERGED if found.diverged else 0)


def _print_comparison(found: "Comparison", one: str, other: str) -> None:
    print(f"{found.shared} entries alike; then {found.own[0]} of {one} alone and {found.own[1]} of {other} alone")
    for each in found.sums:
        verdict = "within the cap" if each.fits else "beyond the cap"
        print(
            f"{each.asset}: epsilon {up(each.spent[0])} and {up(each.spent[1])} spent; together {up(each.both)} of "
            f"{each.cap:g}, {verdict}"
        )
    print(_advice(found, one, other))


def _advice(found: "Comparison", one: str, other: str) -> str:
    if found.diverged:
        return (
            f"They part at entry {found.shared + 1}: neither says what was spent, and nothing was merged. Stop both, "
            "and release nothing more on either: the data's owner decides, by what was spent together."
        )
    if found.own == (0, 0):
        return "They are one ledger."
    return f"{other if found.own[1] else one} goes on from the other, which is an old copy: put that away."
