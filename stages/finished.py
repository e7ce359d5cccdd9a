"""Keeps fitted models that were paid for: a fit that is started again is put back, and not charged again.

Unlike rows, a model cannot be made again from answers. So the outputs of a training are kept beside the checkpoints
before the ledger commits it, under the run's key. They are put back after a stage that was killed between the commit
and DVC's note of it, which would remove the model, and after a change of code, which makes DVC start the stage anew.
"""

import json
import os
import shutil
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from palimpsest.files import atomic_path, make_folder, read_json
from palimpsest.privacy.ledger.records import Charge, Closed, Reservation, Run
from palimpsest.privacy.ledger.rules import committed
from palimpsest.records.vouched import sha256
from palimpsest.workspace import CHECKPOINTS

_FOLDER = CHECKPOINTS / "finished"
_DIGITS = 16  # digits of a key
_BODY, _FILES = "run.json", "files"


class Again(NamedTuple):
    """A finished run whose outputs were put back, and the facts kept with it."""

    session: Closed
    facts: Mapping[str, Any]


def keep(run: Run, paths: Iterable[Path], facts: Mapping[str, Any], provenance: str, code: str) -> None:
    """Keep the outputs of a run, right before it is committed.

    Args:
        paths: files and folders of the workspace.
        facts: plain values that its receipt needs beside the ledger.
        provenance: distinguishes the public sources of the run.
        code: digest of the code that made it.
    """
    with atomic_path(_of(run)) as draft:
        files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*")))]
        found = {str(file): sha256(file) for file in files if file.is_file()}
        for name in found:
            _link(Path(name), draft / _FILES / name)
        body = {"run": run.key, "facts": facts, "files": found, "provenance": provenance, "code": code}
        (draft / _BODY).write_text(json.dumps(body), encoding="utf-8")


def restored(run: Run, charges: Collection[Charge], provenance: str, code: str) -> Again | None:
    """Put back the outputs of a committed run; None where there is no such run, or it is not kept whole.

    Guarantee: nothing is asked. The outputs put back are those that the committed charges of this very run paid for,
    behind the same public sources. A run that is not put back is left to `reserve`, which charges a second look only
    with the owner's word.

    Args:
        charges: all charges of the asset.
    """
    own = committed(run.key, charges)
    body = _whole(_of(run)) if own else None
    if body is None:
        return None
    if body["provenance"] != provenance:
        print("budget: the model that was paid for has other public sources than those named now", flush=True)
        return None
    for name in body["files"]:
        _link(_of(run) / _FILES / name, Path(name))
    made = "" if body["code"] == code else ", as older code made it"
    print(f"budget: this model was paid for and is put back{made}; nothing is charged", flush=True)
    return Again(Closed(Reservation(tuple(own), own[0].run, {}), time.monotonic()), body["facts"])


def is_kept(run: Run, workspace: Path = Path()) -> bool:
    """Tell whether a run's outputs are kept, only by their names: `restored` looks into the files."""
    folder = workspace / _of(run)
    try:
        return all((folder / _FILES / name).is_file() for name in read_json(folder / _BODY)["files"])
    except (OSError, KeyError, TypeError, ValueError):
        return False


def _whole(folder: Path) -> Mapping[str, Any] | None:
    """Read the notes on a kept run; None where one of its files is not as it was kept."""
    try:
        body = dict(read_json(folder / _BODY))
        return body if all(sha256(folder / _FILES / name) == told for name, told in body["files"].items()) else None
    except (OSError, KeyError, TypeError, ValueError):
        return None


def _of(run: Run) -> Path:
    """Return the folder of a run. Each run has its own: one with other settings removes nothing that was paid for."""
    return _FOLDER / f"{run.stage}@{run.variant}" / run.key[:_DIGITS]


def _link(source: Path, target: Path) -> None:
    """Link the same file under another name, or copy it where the disk has no links."""
    make_folder(target.parent)
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)
