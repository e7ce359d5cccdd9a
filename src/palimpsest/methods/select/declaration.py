"""Method select, as the rest of the project knows it."""

from palimpsest.methods.select.settings import SelectSettings
from palimpsest.methods.shared.base import Budget, Fit, Plan
from palimpsest.methods.shared.columns import CHOSEN
from palimpsest.methods.shared.method import Basis, Family, Method
from palimpsest.methods.shared.tools import Reads, Tools
from palimpsest.records.schema import PublicSchema


def _plan(settings: SelectSettings, schema: PublicSchema, budget: Budget, _basis: Basis) -> Plan:
    from palimpsest.methods.select.plan import plan

    return plan(settings, schema, budget)


def _build(settings: SelectSettings, plan: Plan, tools: Tools) -> Fit:
    from palimpsest.methods.select.fit import Select
    from palimpsest.methods.shared.means import Candidates

    candidates = Candidates(tools.texts(), tools.embeddings()["texts"])
    return Select(settings, tools.schema, plan, candidates, tools.encoders(settings.batch).rows)


SELECT = Method(
    name="select",
    stage="select",
    family=Family.CHOOSES,
    title="One row of the results: public texts, chosen by noisy class means.",
    does="Choose public texts by noisy class means, one cheap look at the private rows",
    tasks=("classify",),
    settings=SelectSettings,
    plan=_plan,
    build=_build,
    reads=frozenset({Reads.TEXTS, Reads.EMBEDDINGS, Reads.ENCODER}),
    columns=CHOSEN,
    module=__name__,
)
