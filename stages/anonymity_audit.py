"""Measures singling out, linkability and inference, from the released rows of one variant."""

from palimpsest.audit.anonymity import audit_anonymity
from palimpsest.audit.units import Released
from palimpsest.report.tradeoff import read_tradeoff
from stages.audited import conclude_on_error, metric_of_subject, save, written
from stages.common import start
from stages.membership import Target
from stages.public import public_texts

NEIGHBOURS = 5  # synthetic rows that each half of a record is linked to


@conclude_on_error(metric_of_subject("anonymity"))
def run(name: str) -> None:
    """Synthetic rows, members and non-members, public rows, the receipt -> anonymity.json of the variant."""
    target = Target.of(name)
    params, guess, receipt = target.params, target.guess, target.receipt
    curve = read_tradeoff(receipt) if receipt.claim is not None else None
    audit = audit_anonymity(
        Released(written(params, name), *guess.sides, public_texts(), guess.units),
        target.control,
        labelled=bool(params.dataset.labels),
        neighbours=NEIGHBOURS,
        claim=receipt.claim,
        best=curve.true_positives if curve else None,
        seed=params.seed,
    )
    save(name, "anonymity", audit.to_json(name))


if __name__ == "__main__":
    start(run)
