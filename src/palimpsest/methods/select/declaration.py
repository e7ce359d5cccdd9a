"""Declaration of method select, and its settings."""

from pydantic import Field

from palimpsest.methods.shared.base import Budget, Fit, Plan
from palimpsest.methods.shared.method import CHOSEN, Basis, Family, Method, Reads, Tools
from palimpsest.methods.shared.settings import Counted, Rows
from palimpsest.records.schema import PublicSchema


class SelectSettings(Counted):
    """Public texts chosen by noisy class means."""

    rows: Rows = 4000
    domain: float = Field(default=0.75, gt=0, le=1)
    """Share of the candidates that is in a label's domain: those nearest its rows' mean."""
    most: float = Field(default=0.4, gt=0, le=1)
    """Largest share of the public texts that is chosen, over all labels; nearly all would be no choice."""


def _plan(settings: SelectSettings, schema: PublicSchema, budget: Budget, _basis: Basis) -> Plan:
    from palimpsest.methods.select.fit import plan

    return plan(settings, schema, budget)


def _build(settings: SelectSettings, plan: Plan, tools: Tools) -> Fit:
    from palimpsest.methods.select.fit import Select
    from palimpsest.methods.shared.means import public_candidates

    encode = tools.encoders(settings.batch).rows
    return Select(settings, tools.schema, plan, public_candidates(tools), encode, tools.embeddings()["descriptions"])


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
