"""Let the public language model answer real test rows behind demonstrations from one row of the results."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from palimpsest.audit.incontext import InContextAnswers, audit_in_context
from palimpsest.audit.incontext_settings import InContext
from palimpsest.audit.statistics import Bootstrap
from palimpsest.errors import DataError, ParamsError
from palimpsest.files import read_json, write_json
from palimpsest.models.lm import load_lm
from palimpsest.params.load import load
from palimpsest.records.record import Record
from palimpsest.workspace import BASE_LM, METRICS
from stages.audited import records_of, written
from stages.common import start

REAL = "real"
RESAMPLES = 2000


def run(name: str) -> None:
    """models/base, the rows of `name`, data/private/test.parquet -> incontext.json of `name`.

    `name` is a variant, `public_only`, or `real`, whose file the others read: it says whether the model can judge.
    """
    params = load()
    settings = params.utility.in_context
    if settings is None:
        raise ParamsError("utility.in_context is null in params.yaml.", "Fill it in, or leave this stage out.")
    if params.dataset.label is None:
        raise ParamsError(
            f"utility.in_context asks for labels, and task {params.dataset.task} has none.",
            "Set utility.in_context to null.",
        )
    known = None if name == REAL else can_judge()
    shown = records_of("train") if name == REAL else written(params, name)
    audit = score(settings, tuple(params.dataset.labels), shown, records_of("test"), params.seed, params.untouched)
    write_json(metric(name), (audit if known is None else replace(audit, judges=known)).to_json(name))


def score(
    settings: InContext,
    labels: Sequence[str],
    rows: Sequence[Record],
    test: Sequence[Record],
    seed: int,
    folder: Path = BASE_LM,
) -> InContextAnswers:
    """The answers of the language model in `folder`, behind demonstrations from `rows`."""
    model, tokenizer = load_lm(folder)
    if torch.cuda.is_available():
        model.to("cuda")  # type: ignore[arg-type]
    draws = Bootstrap(resamples=RESAMPLES, seed=seed)
    return audit_in_context(model, tokenizer, rows, test, labels, settings, draws, seed)


def can_judge() -> bool:
    """Whether real demonstrations beat zero-shot, as the file of the real rows says.

    Raises:
        DataError: there is no such file.
    """
    if not metric(REAL).is_file():
        raise DataError(
            "It is not known yet whether the model can judge demonstrations.", f"Run this stage for {REAL!r} first."
        )
    return bool(read_json(metric(REAL))["judges"])


def metric(name: str) -> Path:
    """The metric file of a row of the results."""
    return METRICS / name / "incontext.json"


if __name__ == "__main__":
    start(run)
