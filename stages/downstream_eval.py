"""Train classifiers on synthetic rows and score them on the real test rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from palimpsest.audit.finetune import FinetuneSettings, finetuned
from palimpsest.audit.statistics import Bootstrap
from palimpsest.audit.utility import (
    Evaluation,
    LinearSettings,
    Scored,
    UtilityAudit,
    gap_closed,
    minilm_lr,
    retention,
    tfidf_lr,
)
from palimpsest.files import read_json
from palimpsest.models.encoder import Encoder
from palimpsest.params.load import load
from palimpsest.params.schema import Params
from palimpsest.records.record import Record
from palimpsest.workspace import BASELINES
from stages.audited import records_of, save, written
from stages.common import start
from stages.vouching import vouched

RESAMPLES = 2000
Texts = list[str]
Evaluator = Callable[[Params, Texts, Texts, Texts, Texts], Evaluation]  # texts and labels: of training, of test rows


def run(name: str) -> None:
    """data/synthetic/<variant>.parquet, data/private/test.parquet -> utility.json of the variant."""
    params = load()
    audit = score(params, written(params, name), records_of("test"))
    baselines = read_json(BASELINES)
    scores = audit.scores(lambda evaluator, evaluation: compared(evaluation, baselines, evaluator, params.seed))
    save(name, "utility", scores.to_json(name))


def score(params: Params, rows: Sequence[Record], test: Sequence[Record]) -> UtilityAudit:
    """All evaluators of params.yaml, trained on these rows and scored on those."""
    evaluators: Mapping[str, Evaluator] = {"minilm_lr": _minilm, "tfidf_lr": _tfidf, "finetuned": _finetuned}
    train, truth = (([row.text for row in part], [row.label or "" for row in part]) for part in (rows, test))
    evaluations: dict[str, Evaluation] = {
        name: evaluators[name](params, *train, *truth) for name in params.utility.evaluators
    }
    return UtilityAudit(len(rows), len(test), evaluations)


def compared(evaluation: Evaluation, baselines: Mapping[str, Any], evaluator: str, seed: int) -> Scored:
    """With retention and gap closed against the baselines' answers on the same test rows."""
    own = evaluation.item_accuracy
    real, public = (np.array(baselines[row][evaluator]) for row in ("real", "public_only"))
    draws = Bootstrap(resamples=RESAMPLES, seed=seed)
    closed = gap_closed(own, public, real, draws)
    return replace(evaluation.scored, retention=retention(own, real, draws), gap_closed=closed, compared=True)


def _minilm(params: Params, texts: Texts, labels: Texts, test: Texts, truth: Texts) -> Evaluation:
    encode = Encoder(vouched(params, "models.encoder")).encode
    return minilm_lr(encode(texts), labels, encode(test), truth, tuple(params.dataset.labels), _linear(params))


def _tfidf(params: Params, texts: Texts, labels: Texts, test: Texts, truth: Texts) -> Evaluation:
    return tfidf_lr(texts, labels, test, truth, tuple(params.dataset.labels), _linear(params))


def _finetuned(params: Params, texts: Texts, labels: Texts, test: Texts, truth: Texts) -> Evaluation:
    tuning = FinetuneSettings(
        seeds=range(params.utility.seeds),
        device="cuda" if torch.cuda.is_available() else "cpu",
        **params.utility.finetune.model_dump(),
    )
    folder = vouched(params, "models.classifier")
    return finetuned(folder, texts, labels, test, truth, tuple(params.dataset.labels), tuning)


def _linear(params: Params) -> LinearSettings:
    return LinearSettings(range(params.utility.seeds), params.utility.validation_share)


if __name__ == "__main__":
    start(run)
