"""What a stopped or repeated fit goes on with: kept answers, models that were paid for, their receipts."""

import json
import os
import shutil
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from palimpsest.errors import LedgerError
from palimpsest.files import atomic_path, make_folder, read_json, remove
from palimpsest.methods.shared.base import Plan
from palimpsest.methods.shared.method import Method, Resumes
from palimpsest.privacy import accounting
from palimpsest.privacy.ledger.records import Charge, Closed, Reservation, Run
from palimpsest.privacy.ledger.rules import committed_charges
from palimpsest.privacy.receipt import Receipt, read_receipt
from palimpsest.records.vouched import sha256, weights, weights_of
from palimpsest.workspace import CHECKPOINTS, MODEL_RECEIPTS, MODELS, PRIVATE

_FOLDER = CHECKPOINTS / "finished"
_DIGITS = 16  # digits of a key
_BODY, _FILES = "run.json", "files"
FITTED = PRIVATE / "fitted"  # no stage's output: fitting a model anew must not wipe out its notes


def folder(method: Method, run: Run, plan: Plan, noise_fixed: bool) -> Path | None:
    """Return where a run keeps its state for going on; None where nothing is kept.

    Exact rounds are not private, so none are kept; nor are rounds under noise that a seed fixes, which never go on.
    """
    if method.resumes is Resumes.WAVES:
        return CHECKPOINTS / method.name
    lasting = accounting.is_private(plan.event) and not noise_fixed
    if method.resumes is Resumes.ROUNDS and lasting:
        return CHECKPOINTS / method.name / run.variant / run.key[:16]
    return None


def continues(method: Method, charge: Charge, workspace: Path = Path()) -> bool:
    """Tell whether a stopped run goes on in this workspace, under the same charge."""
    if charge.steps is None or charge.noise_fixed:
        return False
    if method.resumes is Resumes.WAVES:
        return True
    if method.resumes is not Resumes.ROUNDS or not accounting.is_private(charge.event):
        return False
    stored = (workspace / CHECKPOINTS / method.name / charge.variant).glob(f"*/{charge.id}.json")
    return charge.steps_begun < charge.steps or any(stored)


def forget(method: Method, name: str, charges: Iterable[Charge]) -> None:
    """Remove the unfinished texts that the finished run of a variant, and earlier runs of it, left.

    What rounds voted over stays, as do their answers: rows are made again from both.

    Args:
        charges: all charges of the data set.
    """
    if method.resumes is Resumes.WAVES:
        for charge in charges:
            if (charge.stage, charge.variant) == (method.stage, name):
                remove(CHECKPOINTS / method.name / f"{charge.id}.json")


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
    with atomic_path(_folder_of(run)) as draft:
        files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*")))]
        found = {str(file): sha256(file) for file in files if file.is_file()}
        for name in found:
            _link(Path(name), draft / _FILES / name)
        body = {"run": run.key, "facts": facts, "files": found, "provenance": provenance, "code": code}
        (draft / _BODY).write_text(json.dumps(body), encoding="utf-8")


def restore_outputs(run: Run, charges: Collection[Charge], provenance: str, code: str) -> Again | None:
    """Put back the outputs of a committed run; None where there is no such run, or it is not kept whole.

    Guarantee: nothing is asked. The outputs put back are those that the committed charges of this very run paid for,
    behind the same public sources. A run that is not put back is left to `reserve`, which charges a second look only
    with the owner's word.

    Args:
        charges: all charges of the asset.
    """
    own = committed_charges(run.key, charges)
    body = _read_whole(_folder_of(run)) if own else None
    if body is None:
        return None
    if body["provenance"] != provenance:
        print("budget: the model that was paid for has other public sources than those named now", flush=True)
        return None
    for name in body["files"]:
        _link(_folder_of(run) / _FILES / name, Path(name))
    made = "" if body["code"] == code else ", as older code made it"
    print(f"budget: this model was paid for and is put back{made}; nothing is charged", flush=True)
    return Again(Closed(Reservation(tuple(own), own[0].run, {}), time.monotonic()), body["facts"])


def is_kept(run: Run, workspace: Path = Path()) -> bool:
    """Tell whether a run's outputs are kept, only by their names: `restore_outputs` looks into the files."""
    folder = workspace / _folder_of(run)
    try:
        return all((folder / _FILES / name).is_file() for name in read_json(folder / _BODY)["files"])
    except (OSError, KeyError, TypeError, ValueError):
        return False


def _read_whole(folder: Path) -> Mapping[str, Any] | None:
    """Read the notes on a kept run; None where one of its files is not as it was kept."""
    try:
        body = dict(read_json(folder / _BODY))
        return body if all(sha256(folder / _FILES / name) == told for name, told in body["files"].items()) else None
    except (OSError, KeyError, TypeError, ValueError):
        return None


def _folder_of(run: Run) -> Path:
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


def receipt_of(model: str) -> Receipt:
    """Read the receipt of a fitted model.

    Raises:
        LedgerError: if it is not whole, or not of the weights in the model's folder.
    """
    receipt = read_receipt(MODEL_RECEIPTS / f"{model}.json")
    if receipt.weights != weights(MODELS / model):
        raise LedgerError(
            f"The receipt of model {model!r} is of other weights than those in its folder.",
            "Restore both together with `dvc checkout`, or run the stage that fits the model.",
        )
    return receipt


def note_fitted(folder: Path) -> None:
    """Append the hash of every file of weights in a model's folder to those that were ever fitted here."""
    lines = [f"{sha256(path)}\n" for path in sorted(weights_of(folder.rglob("*")))]
    make_folder(FITTED.parent)
    descriptor = os.open(FITTED, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write("".join(lines))


def fitted_here(workspace: Path = Path()) -> frozenset[str]:
    """Read the hashes that `note_fitted` wrote."""
    path = workspace / FITTED
    return frozenset(path.read_text(encoding="utf-8").split()) if path.is_file() else frozenset()
