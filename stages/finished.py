"""What a run wrote, kept until DVC has noted it: a stage that is killed between the two is not charged again for it.

The ledger commits a run before its stage ends, and DVC notes the outputs after. Killed in between, DVC would remove the
outputs and start the stage anew, and a committed run that runs again is a second look. So the outputs are kept beside
the checkpoints before the commit, and put back by the next attempt. Once DVC's lock file has the receipt, they go.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from palimpsest.files import atomic_path, make_folder, read_json
from palimpsest.privacy.ledger.records import Charge, Closed, Reservation, Run
from palimpsest.records.vouched import sha256
from palimpsest.workspace import CHECKPOINTS, LOCK

_FOLDER = CHECKPOINTS / "finished"
_DIGITS = 16  # of a key
_BODY, _FILES, _RECEIPT = "run.json", "files", "receipt.json"


class Again(NamedTuple):
    """A finished run whose outputs were put back, and what was told of it."""

    session: Closed
    facts: Mapping[str, Any]


def keep(run: Run, paths: Iterable[Path], facts: Mapping[str, Any]) -> None:
    """Keep what a run wrote, right before it is committed.

    Args:
        paths: files and folders of the workspace.
        facts: plain values that its receipt and its counts need beside the ledger.
    """
    with atomic_path(_of(run)) as draft:
        files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*")))]
        found = {str(file): sha256(file) for file in files if file.is_file()}
        for name in found:
            _link(Path(name), draft / _FILES / name)
        (draft / _BODY).write_text(json.dumps({"run": run.key, "facts": facts, "files": found}), encoding="utf-8")


def restored(run: Run, charges: Collection[Charge]) -> Again | None:
    """Put back what a run wrote that was committed and that DVC did not note; None where there is no such run.

    Guarantee: nothing is asked. What is put back is what the committed charges of this very run paid for, as whole as
    it was kept; a run that DVC noted, and that is started again, is left to `reserve`, which charges a second look.

    Args:
        charges: all of the asset.
    """
    forget_noted()
    folder, own = _of(run), committed(run.key, charges)
    body = _whole(folder) if own else None
    if body is None:
        shutil.rmtree(folder, ignore_errors=True)
        return None
    for name in body["files"]:
        _link(folder / _FILES / name, Path(name))
    print("budget: the run before this had finished; what it wrote is put back, and nothing is charged", flush=True)
    return Again(Closed(Reservation(tuple(own), own[0].run, {}), time.monotonic()), body["facts"])


def note(run: Run, receipt: Path) -> None:
    """Keep the receipt too, by which it is known when DVC has noted the run."""
    _link(receipt, _of(run) / _RECEIPT)


def forget_noted(workspace: Path = Path()) -> None:
    """Remove what was kept of the runs that DVC's lock file has."""
    lock = workspace / LOCK
    known = lock.read_text(encoding="utf-8") if lock.is_file() else ""
    for folder in (workspace / _FOLDER).glob("*/*"):
        receipt = folder / _RECEIPT
        if receipt.is_file() and hashlib.md5(receipt.read_bytes()).hexdigest() in known:
            shutil.rmtree(folder, ignore_errors=True)


def waiting(workspace: Path) -> Mapping[str, frozenset[str]]:
    """Stage, as DVC names it -> the keys of its finished runs that wait to be put back."""
    forget_noted(workspace)
    found: dict[str, frozenset[str]] = {}
    for folder in (workspace / _FOLDER).glob("*@*/*"):
        if (body := _whole(folder)) is not None:
            found[folder.parent.name] = found.get(folder.parent.name, frozenset()) | {str(body["run"])}
    return found


def committed(key: str, charges: Iterable[Charge]) -> Sequence[Charge]:
    """The charges of the newest run of this key, in the plan's order, if it was committed; else none."""
    own = [charge for charge in charges if charge.run_key == key and charge.state != "refunded"]
    number = max((charge.run for charge in own), default=1)
    newest = {charge.index: charge for charge in sorted(own, key=lambda charge: charge.seq) if charge.run == number}
    whole = all(charge.state == "committed" for charge in newest.values())
    return [newest[index] for index in sorted(newest)] if whole else []


def _whole(folder: Path) -> Mapping[str, Any] | None:
    """What is noted of a kept run; None where one of its files is not as it was kept."""
    try:
        body = dict(read_json(folder / _BODY))
        return body if all(sha256(folder / _FILES / name) == told for name, told in body["files"].items()) else None
    except (OSError, KeyError, TypeError, ValueError):
        return None


def _of(run: Run) -> Path:
    """Each run has a place of its own: one with other settings takes nothing away that was paid for."""
    return _FOLDER / f"{run.stage}@{run.variant}" / run.key[:_DIGITS]


def _link(source: Path, target: Path) -> None:
    """The same file under another name, or a copy where the disk has no second names."""
    make_folder(target.parent)
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)
