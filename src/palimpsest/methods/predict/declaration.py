"""Declaration of method predict."""

import math
from functools import partial

from palimpsest.methods.predict.settings import PredictSettings
from palimpsest.methods.shared.base import Budget, Fit, Plan
from palimpsest.methods.shared.method import WRITTEN, Basis, Family, Method, Resumes
from palimpsest.methods.shared.tools import Reads, Tools
from palimpsest.models.words import Words
from palimpsest.records.schema import PublicSchema


def _plan(settings: PredictSettings, schema: PublicSchema, budget: Budget, _basis: Basis) -> Plan:
    from palimpsest.methods.predict.plan import plan

    return plan(settings, schema, budget)


def _build(settings: PredictSettings, plan: Plan, tools: Tools) -> Fit:
    from palimpsest.methods.predict.fit import Predict
    from palimpsest.methods.shared.filters import public_perplexity

    encoders = None if settings.class_means is None else tools.encoders(settings.class_means.batch)
    tokens, batch, quantile = settings.max_tokens, settings.micro_batch, settings.filters.quantile
    measure = partial(public_perplexity, tools, tokens, batch, quantile)
    return Predict(settings, tools.schema, plan, tools.reader(), tools.key(), tools.kept, measure, encoders)


def _prompt_words(words: Words, labelled: bool) -> dict[str, str]:
    return {"private": words.prompt_with_example(labelled), "public": words.prompt(labelled), "ends": "line"}


def _problem(settings: PredictSettings, _purpose: str, epsilon: float) -> str | None:
    if math.isinf(epsilon) and settings.tokens is None:
        return "epsilon .inf leaves any number of tokens: give predict.tokens, and leave clip null"
    return None


PREDICT = Method(
    name="predict",
    stage="private_predict",
    family=Family.WRITES,
    title="One row of the results: text written by an untouched language model from batches of private contexts.",
    does="Write rows from private contexts with a public language model that never learns from them",
    tasks=("classify", "span", "text", "json"),
    settings=PredictSettings,
    plan=_plan,
    build=_build,
    reads=frozenset({Reads.READER, Reads.ENCODER, Reads.HELDOUT, Reads.BASE}),
    columns=WRITTEN,
    module=__name__,
    source="base",
    resumes=Resumes.WAVES,
    problem=_problem,
    worded=_prompt_words,
)
