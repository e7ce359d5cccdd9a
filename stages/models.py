"""What ties a fitted model's weights to its receipt."""

from palimpsest.errors import LedgerError
from palimpsest.privacy.receipt import Receipt, read_receipt
from palimpsest.records.vouched import weights
from stages.common import MODEL_RECEIPTS, MODELS


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
