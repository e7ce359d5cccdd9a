"""What ties a fitted model's weights to its receipt."""

from typing import Any

from palimpsest.errors import LedgerError
from palimpsest.files import read_json
from palimpsest.records.vouched import weights
from stages.common import MODEL_RECEIPTS, MODELS


def receipt_of(model: str) -> dict[str, Any]:
    """The receipt of a fitted model.

    Raises:
        LedgerError: if it is not of the weights that lie in the model's folder.
    """
    found = dict(read_json(MODEL_RECEIPTS / f"{model}.json"))
    if found.get("weights") != weights(MODELS / model):
        raise LedgerError(
            f"The receipt of model {model!r} is of other weights than those in its folder.",
            "Restore both together with `dvc checkout`, or run the stage that fits the model.",
        )
    return found
