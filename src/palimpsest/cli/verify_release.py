"""`palimpsest keys new`, the key that signs releases, and `palimpsest verify FOLDER`, which checks one anywhere."""

import sys
from pathlib import Path

from rich.markup import escape

from palimpsest.cli.console import console
from palimpsest.report.release.check import Checked, verify_release
from palimpsest.report.release.keys import fingerprint, key_path, load_key, new_key
from palimpsest.report.samples import make_visible

_UNPINNED = 3  # 1 is a check that fails, 2 a wrong command line


def make_key(path: Path | None, *, keep: bool = False) -> None:
    """Make a key where there is none, and print its place and its fingerprint.

    Args:
        path: where it goes; None: its usual place.
        keep: whether a key that is there stays, and is shown.

    Raises:
        DataError: there is a file already, or the place lies in a workspace.
    """
    place = key_path(path)
    name = fingerprint(load_key(place).public_key()) if keep and place.is_file() else new_key(place)
    print(f"key: {place}\nfingerprint: {name}")
    print("Keep the file to yourself, and tell the fingerprint to those who will check your releases.")


def verify_folder(path: Path, key: str | None) -> int:
    """Print one line per check, and every cap and charge of the data set; return whether all holds.

    Args:
        path: the folder of the release.
        key: a PEM file with the releaser's public key, or its fingerprint; None: the key in the folder.

    Returns:
        0 if all holds for the given key; 1 if a check fails; 3 if all holds only for the key in the folder, which
        anybody could have put there.
    """
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
    return escape(make_visible(" ".join(text.split())))


def list_history(found: Checked) -> list[str]:
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
