"""`palimpsest ledger export`, `import` and `merge-check`: a whole ledger as a file, and two ledgers compared."""

import os
from pathlib import Path

from palimpsest.cli.console import show_json
from palimpsest.params.load import LEDGER_VARIABLE, ledger_url, read
from palimpsest.privacy.ledger import exported
from palimpsest.privacy.ledger.books import Books
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.merge import Comparison, compared
from palimpsest.privacy.ledger.witness import Witnesses
from palimpsest.privacy.shown import up
from palimpsest.workspace import PARAMS

_SQLITE = b"SQLite format 3\0"  # what every such file begins with
_DIVERGED = 1


def _address(workspace: Path) -> str:
    """Return the address of the workspace's ledger; without a workspace, only PALIMPSEST_LEDGER gives it."""
    given = os.environ.get(LEDGER_VARIABLE)
    if given and not (workspace / PARAMS).is_file():
        return _url(given)
    return ledger_url(read(workspace), workspace)


def write_export(workspace: Path, path: Path) -> None:
    """Write the whole ledger into a file, and print its number of entries and its head."""
    ledger = Ledger.open(_address(workspace)).exported()
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
    found = compared(_books(one), _books(other))
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
    return Ledger.open(_url(place)).unheld()


def _is_database(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def _url(place: str) -> str:
    return place if "://" in place else f"sqlite:///{Path(place).expanduser().resolve()}"
