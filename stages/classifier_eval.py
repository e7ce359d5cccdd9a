"""Scores a classifier trained with DP-SGD on the real test rows, to show what private rows teach without any text."""

from palimpsest.audit.next_token_settings import NEXT_TOKEN
from palimpsest.audit.utility import ClassifierAudit, score_classifier
from palimpsest.files import write_json
from palimpsest.methods.dp_lm.likelihood import judge_of
from palimpsest.methods.dp_lm.model import ENCODER, DpLmArtifact
from palimpsest.params.load import load
from palimpsest.params.schema import Params
from palimpsest.workspace import BASELINES, CLASSIFIER_METRICS, MODELS
from stages.audited import conclude_on_error, read_result, records_of
from stages.common import start
from stages.downstream_eval import Part, compare_with_baselines
from stages.resuming import receipt_of
from stages.tools import encoders


@conclude_on_error(lambda name: [CLASSIFIER_METRICS / f"{name}.json"])
def run(name: str) -> None:
    """models/<discriminator>, data/private/test.parquet, baselines.json -> reports/metrics/classifiers/<name>.json."""
    params, artifact = load(), DpLmArtifact.load(MODELS / name)
    encode = encoders(params).rows if artifact.judging.head.shape.reads == ENCODER else None
    judge, test = judge_of(artifact.judging, artifact.serialiser(), encode), Part(records_of("test"), asset=True)
    evaluation = score_classifier(judge, test.texts, test.labels, tuple(params.dataset.labels))
    beside = evaluator_beside(params)
    scored = (
        evaluation.scored
        if beside is None
        else compare_with_baselines(evaluation, read_result(BASELINES), beside, params.seed)
    )
    audit = ClassifierAudit(len(test.rows), receipt_of(name).epsilon, beside, scored)
    write_json(CLASSIFIER_METRICS / f"{name}.json", audit.to_json(name))


def evaluator_beside(params: Params) -> str | None:
    """Name the evaluator whose scores of real and public rows it is compared with: the encoder's, if there is one."""
    known = [name for name in params.utility.evaluators if name != NEXT_TOKEN]
    return next(iter(sorted(known, key=lambda name: name != "minilm_lr")), None)


if __name__ == "__main__":
    start(run)
