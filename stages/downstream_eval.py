"""Train classifiers on synthetic rows and score them on the real test rows."""

from collections.abc import Mapping, Sequence
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
from palimpsest.files import read_json, write_json
from palimpsest.models.encoder import Encoder
from palimpsest.params.load import load
from palimpsest.params.schema import Params
from palimpsest.records.record import Record
from palimpsest.workspace import METRICS, PRIVATE
from stages.audited import one_row_each, written
from stages.common import start
from stages.vouching import vouched

BASELINES = PRIVATE / "baselines.json"
RESAMPLES = 2000


def run(name: str) -> None:
    """data/synthetic/<variant>.parquet, data/private/test.parquet -> utility.json of the variant."""
    params = load()
    audit = score(params, written(params, name), private_test())
    baselines = read_json(BASELINES)
    scores = audit.scores(lambda evaluator, evaluation: compared(evaluation, baselines, evaluator, params.seed))
    write_json(METRICS / name / "utility.json", scores.to_json(name))


def private_test() -> list[Record]:
    """The private test rows, one of each person where they name one: intervals count them as independent."""
    return [Record(row.text, row.label) for row in one_row_each("test")]


def score(params: Params, rows: Sequence[Record], test: Sequence[Record]) -> UtilityAudit:
    """All evaluators of params.yaml, trained on these rows and scored on those."""
    settings = LinearSettings(range(params.utility.seeds), params.utility.validation_share)
    evaluators = {"minilm_lr": _minilm, "tfidf_lr": _tfidf, "finetuned": _finetuned}
    found: dict[str, Evaluation] = {}
    for name in params.utility.evaluators:
        found[name] = evaluators[name](params, rows, test, settings)
    return UtilityAudit(len(rows), len(test), found)


def compared(evaluation: Evaluation, baselines: Mapping[str, Any], evaluator: str, seed: int) -> Scored:
    """With retention and gap closed against the baselines' answers on the same test rows."""
    own = evaluation.item_accuracy
    real, public = (np.array(baselines[row][evaluator]) for row in ("real", "public_only"))
    draws = Bootstrap(resamples=RESAMPLES, seed=seed)
    closed = gap_closed(own, public, real, draws)
    return replace(evaluation.scored, retention=retention(own, real, draws), gap_closed=closed, compared=True)


def _minilm(params: Params, rows: Sequence[Record], test: Sequence[Record], settings: LinearSettings) -> Evaluation:
    encoder = Encoder(vouched(params, "models.encoder"))
    features = [encoder.encode([row.text for row in part]) for part in (rows, test)]
    return minilm_lr(features[0], _labels(rows), features[1], _labels(test), tuple(params.dataset.labels), settings)


def _tfidf(params: Params, rows: Sequence[Record], test: Sequence[Record], settings: LinearSettings) -> Evaluation:
    texts = [[row.text for row in part] for part in (rows, test)]
    return tfidf_lr(texts[0], _labels(rows), texts[1], _labels(test), tuple(params.dataset.labels), settings)


def _finetuned(params: Params, rows: Sequence[Record], test: Sequence[Record], settings: LinearSettings) -> Evaluation:
    tuning = FinetuneSettings(
        seeds=settings.seeds,
        device="cuda" if torch.cuda.is_available() else "cpu",
        **params.utility.finetune.model_dump(),
    )
    folder = vouched(params, "models.classifier")
    texts = [[row.text for row in part] for part in (rows, test)]
    labels = tuple(params.dataset.labels)
    return finetuned(folder, texts[0], _labels(rows), texts[1], _labels(test), labels, tuning)


def _labels(rows: Sequence[Record]) -> list[str]:
    return [row.label or "" for row in rows]


if __name__ == "__main__":
    start(run)
