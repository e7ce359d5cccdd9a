"""Notes of the ledger that lie outside it, so that an old copy put back is noticed: the heads of its chain.

Receipts hold one each. Beside them a file of heads is appended to after every charge, in the folder where the owner's
keys lie: it is never rewritten, and a stage that writes its receipt anew destroys nothing there.
"""

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from platformdirs import user_config_path

from palimpsest.errors import LedgerError
from palimpsest.files import make_folder, read_json, workspace_of

VARIABLE = "PALIMPSEST_WITNESSES"
_PLACE = (
    "Make it writable for you, or copy its files into another folder outside every workspace and then set "
    f"{VARIABLE} to that one"
)


@dataclass(frozen=True)
class Head:
    """An entry of the chain: its number and its hash."""

    seq: int
    hash: str


def receipt_heads(folder: Path, asset: str) -> list[str]:
    """Return the heads that a workspace's receipts of an asset noted; LedgerError where a file there is no receipt."""
    bodies = (_receipt(path) for path in sorted(folder.rglob("*.json")))
    return [body["ledger_head"] for body in bodies if body is not None and body["asset"] == asset]


def _receipt(path: Path) -> Mapping[str, Any] | None:
    """Read one receipt; None where another stage is just writing it anew."""
    try:
        body = read_json(path)
        if isinstance(body["ledger_head"], str) and isinstance(body["asset"], str):
            return dict(body)
    except FileNotFoundError:
        return None
    except (OSError, KeyError, TypeError, ValueError):
        pass
    raise LedgerError(
        f"The receipt {path.name!r} is not JSON, or names no entry of the ledger: it was changed by hand.",
        "Remove it and make it again with `palimpsest run`.",
    )


@dataclass(frozen=True)
class Witnesses:
    """The files of heads: one for each data set as it was registered, named by the hash of its random key.

    An old copy of a ledger holds the same key wherever it lies, and is checked against the same file. An asset that is
    registered anew has a key and a file of its own.

    Attributes:
        folder: where they lie.
        beside_ledger: whether that is beside the ledger of an invented world, and moves with it.
    """

    folder: Path
    beside_ledger: bool = False

    @classmethod
    def locate(cls, ledger: Path | None, environment: Mapping[str, str] = os.environ) -> "Witnesses":
        """Return where the heads of a ledger are noted.

        A ledger inside a workspace is of the invented world (`ledger_url` admits no other) and has them beside it, so
        that a removed workspace can begin again. Otherwise PALIMPSEST_WITNESSES names the folder; without it, they lie
        beside the keys.

        Raises:
            LedgerError: the path would mean another place in another process, or would be copied with a workspace.
        """
        if ledger is not None and workspace_of(ledger) is not None:
            return cls(ledger.with_name(f"{ledger.name}.witnesses"), beside_ledger=True)
        given = environment.get(VARIABLE)
        if not given:
            return cls(user_config_path("palimpsest") / "witnesses")
        folder = Path(given).expanduser()
        if not folder.is_absolute() or workspace_of(folder / "heads") is not None:
            raise LedgerError(
                f"{VARIABLE} is {given!r}, which is not a whole path, or lies in a workspace.",
                "Give the whole path of a folder outside every workspace.",
            )
        return cls(folder)

    def heads(self, lineage: str) -> list[Head]:
        """Return all heads noted of a data set; LedgerError where the file cannot be read or a line is incomplete."""
        return [head for _, head in self._lines(self._path(lineage))]

    def count_others(self, asset: str, lineages: Collection[str]) -> int:
        """Count the other data sets of this name that were charged on other ledgers.

        A file belongs to one data set, which its first line names.
        """
        known = {self._path(lineage) for lineage in lineages}
        first = [next(self._lines(path), None) for path in self.folder.glob("*.jsonl") if path not in known]
        return sum(line is not None and line[0] == asset for line in first)

    @contextmanager
    def open_note(self, asset: str, lineage: str) -> Iterator[Callable[[Head], None]]:
        """Open the file of a data set, then append a head to it.

        The file is opened before the ledger's transaction ends, so that a place that cannot be written costs nothing;
        the head is written and synced after it, as one short line, so that no head is noted that is not in the chain.

        Raises:
            LedgerError: the file cannot be opened: nothing is charged then; or not written: the charge stands then.
        """
        path = self._path(lineage)
        try:
            make_folder(self.folder)
            descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o600)
        except OSError as error:
            raise LedgerError(
                f"The ledger's entries cannot be noted in {str(self.folder)!r} ({type(error).__name__}).",
                f"{_PLACE}; nothing was charged by this step.",
            ) from None
        try:
            yield lambda head: self._append(descriptor, asset, head)
        finally:
            os.close(descriptor)

    def _append(self, descriptor: int, asset: str, head: Head) -> None:
        line = json.dumps({"asset": asset, "hash": head.hash, "seq": head.seq}).encode() + b"\n"
        try:
            if _is_cut_off(descriptor):
                line = b"\n" + line
            if os.write(descriptor, line) != len(line):
                raise OSError
            os.fsync(descriptor)
        except OSError as error:
            raise LedgerError(
                f"Entry {head.seq} was written to the ledger and not noted in {str(self.folder)!r} "
                f"({type(error).__name__}).",
                f"Free its disk and run again: what was charged stays charged. {_PLACE}.",
            ) from None

    def _lines(self, path: Path) -> Iterator[tuple[str, Head]]:
        try:
            for line in path.read_text(encoding="utf-8").splitlines() if _exists(path) else ():
                body = json.loads(line)
                yield str(body["asset"]), Head(int(body["seq"]), str(body["hash"]))
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise LedgerError(
                f"The noted entries in {str(path)!r} cannot be read ({type(error).__name__}).",
                "Make the file readable for you; if a full disk cut a line of it short, remove that line alone.",
            ) from None

    def _path(self, lineage: str) -> Path:
        return self.folder / f"{lineage}.jsonl"


def _exists(path: Path) -> bool:
    """Return whether this user can see the file: another user's folder may be closed."""
    try:
        return path.exists()
    except PermissionError:
        return False


def _is_cut_off(descriptor: int) -> bool:
    """Return whether a full disk cut off the end of the file's last line: a line glued to it would be lost with it."""
    size = os.fstat(descriptor).st_size
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
