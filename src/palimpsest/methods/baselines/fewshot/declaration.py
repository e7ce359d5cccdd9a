"""Method fewshot, as the rest of the project knows it."""

from functools import partial

from palimpsest.methods.baselines.fewshot.settings import FewShotSettings
from palimpsest.methods.shared.base import Budget, Fit, Plan
from palimpsest.methods.shared.columns import TRAINED
from palimpsest.methods.shared.method import Basis, Family, Method, Resumes
from palimpsest.methods.shared.tools import Reads, Tools
from palimpsest.records.schema import PublicSchema


def _plan(settings: FewShotSettings, schema: PublicSchema, budget: Budget, _basis: Basis) -> Plan:
    from palimpsest.methods.baselines.fewshot.fit import plan

    return plan(settings, schema, budget)


def _build(settings: FewShotSettings, plan: Plan, tools: Tools) -> Fit:
    from palimpsest.methods.baselines.fewshot.fit import FewShot
    from palimpsest.methods.shared.filters import public_perplexity

    tokens, batch, quantile = settings.max_tokens, settings.micro_batch, settings.filters.quantile
    measure = partial(public_perplexity, tools, tokens, batch, quantile)
    return FewShot(settings, tools.schema, plan, tools.reader(), tools.kept, measure)


FEWSHOT = Method(
    name="fewshot",
    stage="private_predict",
    family=Family.WRITES,
    title="One row of the results: demonstrations whose tokens are noisy averages over samples of records.",
    tasks=("classify", "span", "text", "json"),
    settings=FewShotSettings,
    plan=_plan,
    build=_build,
    reads=frozenset({Reads.READER, Reads.HELDOUT, Reads.BASE}),
    columns=TRAINED,
    module=__name__,
    source="base",
    resumes=Resumes.WAVES,
)
