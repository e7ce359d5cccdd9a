"""Score the two rows that every variant is compared with: the real rows and the public ones."""

from typing import Any

from palimpsest.audit.statistics import Bootstrap
from palimpsest.audit.utility import UtilityAudit, retention
from palimpsest.files import write_json
from palimpsest.params.load import load
from palimpsest.records.record import Record
from palimpsest.records.write import read_split, read_synthetic
from palimpsest.workspace import BASELINES, METRICS, PRIVATE, SYNTHETIC, Zone
from stages.common import start
from stages.downstream_eval import CONFIDENCE, RESAMPLES, private_test, score


def run() -> None:
    """Private train and test rows, public_only rows -> utility.json of `real` and `public_only`, baselines.json."""
    params = load()
    real = [Record(row.text, row.label) for row in read_split(PRIVATE / "train.parquet")]
    public = read_synthetic(SYNTHETIC / "public_only", params.dataset.text, params.dataset.label)
    test = private_test()
    audits = {"real": score(params, real, test), "public_only": score(params, public, test)}
    draws = Bootstrap(resamples=RESAMPLES, confidence=CONFIDENCE, seed=params.seed)
    for name, audit in audits.items():
        write_json(METRICS / name / "utility.json", body(name, audit, audits["real"], draws))
    write_json(BASELINES, {"zone": Zone.PRIVATE, **{name: answers(audit) for name, audit in audits.items()}})


def body(name: str, audit: UtilityAudit, real: UtilityAudit, draws: Bootstrap) -> dict[str, Any]:
    """utility.json of a baseline, with what it keeps of the real rows' accuracy; it has no gap to close."""
    found = audit.to_json(name)
    for evaluator, evaluation in audit.evaluations.items():
        kept = retention(evaluation.item_accuracy, real.evaluations[evaluator].item_accuracy, draws)
        found["evaluators"][evaluator]["retention"] = kept.to_json()
    return found


def answers(audit: UtilityAudit) -> dict[str, list[float]]:
    """Evaluator -> share of seeds that got each test row right: what paired intervals need."""
    return {name: evaluation.item_accuracy.tolist() for name, evaluation in audit.evaluations.items()}


if __name__ == "__main__":
    start(run)
