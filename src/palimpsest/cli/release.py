"""The commands that check what was charged and released: verify and keys."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from palimpsest.cli.command import Commands, Workspace
from palimpsest.work.console import console
from palimpsest.workspace import RELEASE

if TYPE_CHECKING:
    from palimpsest.privacy.receipt import Receipt
    from palimpsest.report.release.check import Checked

commands = typer.Typer()
keys = typer.Typer(cls=Commands, help="The key that signs releases.", no_args_is_help=True)
commands.add_typer(keys, name="keys")
_UNPINNED = 3  # 1 is a check that fails, 2 a wrong command line


@commands.command()
def verify(
    release: Annotated[
        Path | None, typer.Argument(help="A release to check, offline and on any machine; none checks the workspace.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="The releaser's public key, a PEM file, or its fingerprint.")] = None,
    workspace: Workspace = Path(),
) -> None:
    """Check a workspace, or a release that you were given.

    Recomputes every epsilon from the ledger's events and checks the chain; of a release, every byte and signature.

    Exit status: 0 where all holds, 1 where something does not. A release that holds ends with 3 without --key: the key
    that lies in the folder shows that it is whole, and not whose it is.
    """
    raise typer.Exit(verify_workspace(workspace) if release is None else verify_folder(release, key))


def verify_workspace(workspace: Path) -> int:
    """Print one line per check; 0 if all hold, 1 otherwise."""
    from palimpsest.report.release import bundle
    from palimpsest.report.release.check import total_check
    from palimpsest.work.context import open_workspace
    from palimpsest.work.ledger import check_models, receipts_of

    context, out = open_workspace(workspace), console()
    found = receipts_of(context)
    books = context.ledger.books([receipt.ledger_head for receipt in found.values()])
    out.print("[green]holds[/green]  the ledger's chain is whole")
    charges, failures = books.charges(context.asset.name), 0
    for fault in (one for one in books.faults(context.asset.name) if one.struck is None):
        failures += 1
        out.print(f"[red]fails[/red]  the ledger: {escape(str(fault))}", soft_wrap=True)
    for name, receipt in found.items():
        problems = [*check_models(context.params.run, name, found), *receipt.problems(context.asset, charges)]
        failures += len(problems)
        for problem in problems:
            out.print(f"[red]fails[/red]  {name}: {escape(problem)}", soft_wrap=True)
        if not problems:
            out.print(f"[green]holds[/green]  {name}: the receipt is the ledger's; {_describe_accountants(receipt)}")
    release = context.workspace / RELEASE
    for problem in total_check(release).problems if (release / bundle.STATEMENT).is_file() else ():
        failures += 1
        out.print(f"[red]fails[/red]  the release: {escape(problem)}. Release again.", soft_wrap=True)
    return 1 if failures else 0


def _describe_accountants(receipt: "Receipt") -> str:
    if receipt.accountant == "rdp":
        return "its epsilon is that of the one accountant that takes all of its events (RDP)"
    return f"both accountants ({receipt.accountant.upper()}, RDP) give its epsilon"


def verify_folder(path: Path, key: str | None) -> int:
    """Print one line per check, and every cap and charge of the data set; return whether all holds.

    Args:
        path: the folder of the release.
        key: a PEM file with the releaser's public key, or its fingerprint; None: the key in the folder.

    Returns:
        0 if all holds for the given key; 1 if a check fails; 3 if all holds only for the key in the folder, which
        anybody could have put there.
    """
    from palimpsest.report.release.check import verify_release

    verified, out = verify_release(path, key), console()
    for check in verified.checks:
        for problem in check.problems:
            out.print(f"[red]fails[/red]  {on_one_line(check.name)}: {on_one_line(problem)}", soft_wrap=True)
        if not check.problems:
            out.print(f"[green]holds[/green]  {on_one_line(check.name)}", soft_wrap=True)
    for line in list_history(verified):
        out.print(f"[dim]shows[/dim]  {on_one_line(line)}", soft_wrap=True)
    if verified.fingerprint is not None:
        out.print(f"key: {verified.fingerprint}", soft_wrap=True)
    if not verified.holds:
        return 1
    if verified.pinned:
        return 0
    print(
        "not verified: all holds, but the key was not pinned: it lies in the folder that it signs, and anybody can put "
        "one there.\n  what to do: ask the releaser for their key or its fingerprint by another way, and give it with "
        "--key.",
        file=sys.stderr,
    )
    return _UNPINNED


def on_one_line(text: str) -> str:
    """Return a text on one line that cannot control the terminal: the signer chooses names in it."""
    from palimpsest.report.samples import make_visible

    return escape(make_visible(" ".join(text.split())))


def list_history(found: "Checked") -> list[str]:
    """Return every cap that the data set has had, and every charge to it: raised caps and refunds are decisions."""
    caps = [f"the cap was epsilon {found.caps[0].epsilon:g} from {found.caps[0].time}"] if found.caps else []
    for before, cap in zip(found.caps, found.caps[1:], strict=False):
        way = "raised" if cap.epsilon > before.epsilon else "set again"
        caps.append(f"the cap was {way} to epsilon {cap.epsilon:g} on {cap.time}")
    return caps + [
        f"charge {charge.seq} of {charge.time}: {charge.query} of {charge.variant}, {charge.purpose}, {charge.state}, "
        f"{'counted' if charge.counted else 'not counted'}"
        for charge in found.charges
    ]


@keys.command("new")
def make_key(
    path: Annotated[Path | None, typer.Option(help="Where to put it, outside any workspace.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the key that is there, if there is one.")] = False,
) -> None:
    """Make the key that signs releases, and print its fingerprint.

    Its file is readable by its owner alone.
    """
    from palimpsest.report.release.keys import fingerprint, key_path, load_key, new_key

    place = key_path(path)
    name = fingerprint(load_key(place).public_key()) if keep and place.is_file() else new_key(place)
    print(f"key: {place}\nfingerprint: {name}")
    print("Keep the file to yourself, and tell the fingerprint to those who will check your releases.")
