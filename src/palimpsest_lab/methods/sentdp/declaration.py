"""Declares method sentdp to the rest of the project, with its settings."""

from pydantic import Field

from palimpsest.methods.shared.base import Budget, Fit, Plan
from palimpsest.methods.shared.method import CHOSEN, Basis, Family, Method, Reads, Tools
from palimpsest.methods.shared.settings import Counted
from palimpsest.records.schema import PublicSchema


class SentDpSettings(Counted):
    """Public texts picked by the exponential mechanism among those deep in the cloud of a label's rows."""

    directions: int = Field(default=100, ge=1)
    """Public random directions that the depth of a text is taken over."""


def _plan(settings: SentDpSettings, schema: PublicSchema, budget: Budget, _basis: Basis) -> Plan:
    from palimpsest_lab.methods.sentdp.fit import plan

    return plan(settings, schema, budget)


def _build(settings: SentDpSettings, plan: Plan, tools: Tools) -> Fit:
    from palimpsest.methods.shared.means import public_candidates
    from palimpsest_lab.methods.sentdp.fit import SentDp

    encode = tools.encoders(settings.batch).rows
    return SentDp(settings, tools.schema, plan, public_candidates(tools), encode)


SENTDP = Method(
    name="sentdp",
    stage="sentdp",
    family=Family.CHOOSES,
    title="One row of the results: public texts picked by the exponential mechanism, a baseline.",
    does="Pick public texts deep in the cloud of each label's rows by the exponential mechanism, a baseline",
    tasks=("classify",),
    settings=SentDpSettings,
    plan=_plan,
    build=_build,
    reads=frozenset({Reads.TEXTS, Reads.EMBEDDINGS, Reads.ENCODER}),
    columns=CHOSEN,
    module=__name__,
    baseline=True,
)
