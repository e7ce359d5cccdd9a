"""Evidence on singling out, linkability and inference, from the released rows of one variant."""

from palimpsest.audit.anonymity import audit_anonymity
from palimpsest.audit.membership import bag_of_words_control
from palimpsest.audit.units import Released
from palimpsest.files import write_json
from palimpsest.params.load import load
from palimpsest.privacy.receipt import read_receipt
from palimpsest.report.tradeoff import read_tradeoff
from palimpsest.workspace import METRICS, RECEIPTS
from stages.audited import guessed, written
from stages.common import start
from stages.public import public_texts

NEIGHBOURS = 5  # synthetic rows that each half of a record is linked to


def run(name: str) -> None:
    """Synthetic rows, members and non-members, public rows, the receipt -> anonymity.json of the variant."""
    params, guess = load(), guessed()
    released = Released(written(params, name), guess.members, guess.others, public_texts(), guess.units)
    receipt = read_receipt(RECEIPTS / f"{name}.json")
    curve = read_tradeoff(receipt) if receipt.claim is not None else None
    audit = audit_anonymity(
        released,
        bag_of_words_control(*guess.documents, seed=params.seed),
        labelled=bool(params.dataset.labels),
        neighbours=NEIGHBOURS,
        claim=receipt.claim,
        best=curve.true_positives if curve else None,
        seed=params.seed,
    )
    write_json(METRICS / name / "anonymity.json", audit.to_json(name))


if __name__ == "__main__":
    start(run)
