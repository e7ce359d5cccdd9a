"""Evidence on singling out, linkability and inference, from the released rows of one variant."""

from palimpsest.audit.anonymity import audit_anonymity
from palimpsest.audit.membership import bag_of_words_control
from palimpsest.audit.text_membership import Released
from palimpsest.files import write_json
from palimpsest.params.load import load
from palimpsest.privacy.receipt import read_receipt
from palimpsest.records.record import Record
from palimpsest.records.write import read_public, read_split, read_synthetic
from palimpsest.report.tradeoff import read_tradeoff
from stages.common import METRICS, PRIVATE, PUBLIC, RECEIPTS, SYNTHETIC, start

CONFIDENCE = 0.95
NEIGHBOURS = 5  # synthetic rows that each half of a record is linked to


def run(name: str) -> None:
    """Synthetic rows, members and non-members, public rows, the receipt -> anonymity.json of the variant."""
    params = load()
    members, nonmembers = (
        [Record(row.text, row.label) for row in read_split(PRIVATE / f"{part}.parquet") if row.guess]
        for part in ("train", "holdout")
    )
    synthetic = read_synthetic(SYNTHETIC / name, params.dataset.text, params.dataset.label)
    released = Released(synthetic, members, nonmembers, [row.text for row in read_public(PUBLIC / "train.parquet")])
    texts = [[row.text for row in side] for side in (released.members, released.nonmembers)]
    receipt = read_receipt(RECEIPTS / f"{name}.json")
    curve = read_tradeoff(receipt) if receipt.claim is not None else None
    audit = audit_anonymity(
        released,
        bag_of_words_control(*texts, confidence=CONFIDENCE, seed=params.seed),
        labelled=bool(params.dataset.labels),
        neighbours=NEIGHBOURS,
        claim=receipt.claim,
        best=curve.true_positives if curve else None,
        confidence=CONFIDENCE,
        seed=params.seed,
    )
    write_json(METRICS / name / "anonymity.json", audit.to_json(name))


if __name__ == "__main__":
    start(run)
