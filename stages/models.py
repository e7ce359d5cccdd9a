"""Ties a fitted model's weights to its receipt, and keeps the hashes of weights that are here no more."""

import os
from pathlib import Path

from palimpsest.errors import LedgerError
from palimpsest.files import make_folder
from palimpsest.privacy.receipt import Receipt, read_receipt
from palimpsest.records.vouched import sha256, weights, weights_of
from palimpsest.workspace import MODEL_RECEIPTS, MODELS, PRIVATE

FITTED = PRIVATE / "fitted"  # no stage's output: fitting a model anew must not wipe out its notes


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
