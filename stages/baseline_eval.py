"""Scores the rows that every variant is compared with: real rows, public rows, and rows of only the public model."""

from dataclasses import replace

from palimpsest.audit.statistics import RESAMPLES, Bootstrap
from palimpsest.audit.utility import Evaluation, Scored, UtilityAudit, UtilityScores, retention
from palimpsest.files import write_json
from palimpsest.params.load import load
from palimpsest.workspace import BASELINES, REAL
from stages.audited import conclude_on_error, metric, read_one_each, real_rows, save, written
from stages.common import start
from stages.downstream_eval import Judges


@conclude_on_error(lambda: [*(metric(name, "utility") for name in (REAL, *load().at_epsilon_0)), BASELINES])
def run() -> None:
    """Private train and test rows, rows at epsilon 0 -> utility.json of `real` and of these, baselines.json."""
    params = load()
    judges = Judges(params)
    test = judges.part(read_one_each("test"), asset=True)
    parts = {REAL: judges.part(real_rows(params), asset=True)} | {
        name: judges.part(written(params, name), asset=False) for name in params.at_epsilon_0
    }
    audits = {name: judges.score(part, test) for name, part in parts.items()}
    draws = Bootstrap(resamples=RESAMPLES, seed=params.seed)
    for name, audit in audits.items():
        groups = judges.groups(parts[name], test, audit)
        save(name, "utility", replace(add_retention(audit, audits[REAL], draws), groups=groups).to_json(name))
    write_json(BASELINES, {"zone": "private", **{name: answers(audit) for name, audit in audits.items()}})


def add_retention(audit: UtilityAudit, real: UtilityAudit, draws: Bootstrap) -> UtilityScores:
    """Return the scores of a baseline, with its share of the real rows' accuracy; it has no gap to close."""

    def compared(evaluator: str, evaluation: Evaluation) -> Scored:
        share = retention(evaluation.item_accuracy, real.evaluations[evaluator].item_accuracy, draws)
        return replace(evaluation.scored, retention=share)

    return audit.scores(compared)


def answers(audit: UtilityAudit) -> dict[str, list[float]]:
    """Return evaluator -> share of seeds that got each test row right, for paired intervals."""
    return {name: evaluation.item_accuracy.tolist() for name, evaluation in audit.evaluations.items()}


if __name__ == "__main__":
    start(run)
