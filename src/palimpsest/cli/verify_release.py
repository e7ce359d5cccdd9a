"""`palimpsest verify FOLDER`: check a release, on any machine."""

from pathlib import Path

from rich.markup import escape

from palimpsest.cli.console import console
from palimpsest.report.release.check import verify_release


def check_release(path: Path, key: str | None) -> int:
    """Print one line per check; 0 if all hold, 1 otherwise.

    Args:
        path: the folder of the release.
        key: a PEM file with the releaser's public key, or its fingerprint; None: the key in the folder.
    """
    found, out = verify_release(path, key), console()
    for check in found.checks:
        for problem in check.problems:
            out.print(f"[red]fails[/red]  {escape(check.name)}: {escape(problem)}", soft_wrap=True)
        if not check.problems:
            out.print(f"[green]holds[/green]  {escape(check.name)}", soft_wrap=True)
    if found.fingerprint is not None:
        out.print(f"key: {found.fingerprint}", soft_wrap=True)
    if found.fingerprint is not None and not found.pinned:
        out.print(
            "[yellow]look[/yellow]   the key was not pinned: it lies in the folder that it signs. Compare its "
            "fingerprint with the releaser's, or give it with --key.",
            soft_wrap=True,
        )
    return 0 if found.holds else 1
