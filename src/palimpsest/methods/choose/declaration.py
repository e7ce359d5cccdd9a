"""Declaration of method choose, and its settings."""

from dataclasses import replace

from pydantic import Field

from palimpsest.methods.shared.base import Budget, Fit, Plan
from palimpsest.methods.shared.method import CHOSEN, Basis, Family, Method, Reads, Tools
from palimpsest.records.schema import PublicSchema
from palimpsest.settings import Settings


class ChooseSettings(Settings):
    """The rows of one of several variants, chosen by a charged look at private rows."""

    ngrams: int = Field(default=2, ge=1, le=3, description="Longest run of words that the classifiers read.")


def _plan(_settings: ChooseSettings, _schema: PublicSchema, budget: Budget, basis: Basis) -> Plan:
    from palimpsest.methods.choose.fit import plan

    return plan(replace(budget, delta=budget.delta - basis.own_delta), basis.event)


def _build(settings: ChooseSettings, plan: Plan, tools: Tools) -> Fit:
    from palimpsest.methods.choose.fit import Choose

    return Choose(settings, plan, tools.sources())


CHOOSE = Method(
    name="choose",
    stage="choose",
    family=Family.CHOOSES,
    title="One row of the results: the rows of one of several variants; its epsilon counts all of them and the choice.",
    does="Choose one of several variants by how many private rows a classifier that it trained gets right, with noise",
    tasks=("classify",),
    settings=ChooseSettings,
    plan=_plan,
    build=_build,
    reads=frozenset({Reads.SOURCES}),
    columns=CHOSEN,
    module=__name__,
    source="several",
    untwinned="what comes out is the name of one of a few variants, each charged before: its query is audited alone",
)
