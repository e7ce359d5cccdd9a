"""What ties a fitted model's weights to its receipt."""

import hashlib
from pathlib import Path

from palimpsest.errors import LedgerError
from palimpsest.privacy.receipt import Receipt, read_receipt
from stages.common import MODEL_RECEIPTS, MODELS


def weights(folder: Path) -> str:
    """A digest of the weights in a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.safetensors")):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def receipt_of(model: str) -> Receipt:
    """The receipt of a fitted model.

    Raises:
        LedgerError: if it is not whole, or not of the weights that lie in the model's folder.
    """
    found = read_receipt(MODEL_RECEIPTS / f"{model}.json")
    if found.weights != weights(MODELS / model):
        raise LedgerError(
            f"The receipt of model {model!r} is of other weights than those in its folder.",
            "Restore both together with `dvc checkout`, or run the stage that fits the model.",
        )
    return found
