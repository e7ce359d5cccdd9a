"""Score the two rows that every variant is compared with: the real rows and the public ones."""

from palimpsest.audit.utility import UtilityAudit
from palimpsest.files import write_json
from palimpsest.params.load import load
from palimpsest.records.record import Record
from palimpsest.records.write import read_split, read_synthetic
from stages.common import METRICS, PRIVATE, SYNTHETIC, start
from stages.downstream_eval import BASELINES, score


def run() -> None:
    """Private train and test rows, public_only rows -> utility.json of `real` and `public_only`, baselines.json."""
    params = load()
    real = [Record(row.text, row.label) for row in read_split(PRIVATE / "train.parquet")]
    public = read_synthetic(SYNTHETIC / "public_only", params.dataset.text, params.dataset.label)
    audits = {"real": score(params, real), "public_only": score(params, public)}
    for name, audit in audits.items():
        write_json(METRICS / name / "utility.json", audit.to_json(name))
    write_json(BASELINES, {"zone": "private", **{name: answers(audit) for name, audit in audits.items()}})


def answers(audit: UtilityAudit) -> dict[str, list[float]]:
    """Evaluator -> share of seeds that got each test row right: what paired intervals need."""
    return {name: evaluation.item_accuracy.tolist() for name, evaluation in audit.evaluations.items()}


if __name__ == "__main__":
    start(run)
