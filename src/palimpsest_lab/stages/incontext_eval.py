"""Lets a judge, a language model, answer real test rows behind demonstrations from one row of the results."""

from dataclasses import replace

from palimpsest.audit.statistics import RESAMPLES, Bootstrap
from palimpsest.devices import exact_device
from palimpsest.errors import DataError, ParamsError
from palimpsest.models.chat.settings import JudgeEndpoint
from palimpsest.models.lm import load_lm
from palimpsest.params.load import ledger_url, load
from palimpsest.params.schema import Params
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.records.keyed import digest
from palimpsest.workspace import PRIVATE, REAL
from palimpsest_lab.audits.incontext import Judge, audit_in_context
from palimpsest_lab.audits.incontext_endpoint import EndpointJudge
from palimpsest_lab.audits.incontext_model import local_judge
from palimpsest_lab.audits.incontext_settings import InContext
from palimpsest_lab.settings import models_of, utility_of
from stages.audited import conclude_on_error, metric, metric_of_subject, read_result, records_of, save, written
from stages.common import start
from stages.vouching import resolve_vouched

KEPT = PRIVATE / "judged"  # an endpoint's answers, outside DVC's outputs: nothing is asked, or paid, twice


@conclude_on_error(metric_of_subject("incontext"))
def run(name: str) -> None:
    """The judge, the rows of `name`, data/private/test.parquet -> incontext.json of `name`.

    `name` is a variant, `public_only`, or `real`, whose file the others read: it says whether the model can judge.
    """
    params = load()
    settings = settings_of(params)
    known = None if name == REAL else can_judge()
    shown = records_of("train") if name == REAL else written(params, name)
    judge, draws = judge_of(params, settings, name), Bootstrap(resamples=RESAMPLES, seed=params.seed)
    labels = tuple(params.dataset.labels)
    audit = audit_in_context(judge, shown, records_of("test"), labels, settings, draws, params.seed)
    save(name, "incontext", (audit if known is None else replace(audit, judges=known)).to_json(name))


def settings_of(params: Params) -> InContext:
    """Return the settings of the judge. Raises ParamsError if params.yaml has none, or there is no label to ask for."""
    settings = utility_of(params).in_context
    if settings is None:
        raise ParamsError("utility.in_context is null in params.yaml.", "Fill it in, or leave this stage out.")
    if params.dataset.label is None:
        raise ParamsError(
            f"utility.in_context asks for labels, and task {params.dataset.task} has none.",
            "Set utility.in_context to null.",
        )
    return settings


def judge_of(params: Params, settings: InContext, name: str) -> Judge:
    """Return the judge that params.yaml names; the public language model where it names none."""
    judge, labels = models_of(params).judge, tuple(params.dataset.labels)
    if isinstance(judge, JudgeEndpoint):
        asset = Ledger.open(ledger_url(params)).asset(params.dataset.asset)
        return EndpointJudge(judge, settings, labels, KEPT / f"{name}.sqlite", digest(asset.key, "judge"))
    model, tokenizer = load_lm(params.untouched if judge is None else resolve_vouched(params, "models.judge.model"))
    model.to(exact_device())  # type: ignore[arg-type]
    return local_judge(model, tokenizer, labels, settings)


def can_judge() -> bool:
    """Tell whether real demonstrations beat zero-shot, by the file of the real rows.

    Raises:
        DataError: there is no such file, or it came to no result.
    """
    if not metric(REAL, "incontext").is_file():
        raise DataError(
            "It is not known yet whether the model can judge demonstrations.", f"Run this stage for {REAL!r} first."
        )
    return bool(read_result(metric(REAL, "incontext"))["judges"])


if __name__ == "__main__":
    start(run)
