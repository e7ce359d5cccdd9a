"""Declaration of method vote_select, and its settings."""

from dataclasses import replace

from pydantic import Field

from palimpsest.methods.shared.base import Budget, Fit, Plan
from palimpsest.methods.shared.method import CHOSEN, Basis, Family, Method
from palimpsest.methods.shared.settings import EncodedBatch, Votes
from palimpsest.methods.shared.tools import Reads, Tools
from palimpsest.records.schema import PublicSchema
from palimpsest.settings import Settings


class VoteSelectSettings(Settings):
    """Rows of another variant, chosen by one noisy vote."""

    keep: float = Field(default=0.25, gt=0, le=1, description="Share of each label's rows that is kept.")
    votes: Votes = Votes()
    batch: EncodedBatch = 1


def _plan(settings: VoteSelectSettings, _schema: PublicSchema, budget: Budget, basis: Basis) -> Plan:
    from palimpsest.methods.vote_select.plan import plan

    return plan(settings, replace(budget, delta=budget.delta - basis.own_delta), basis.event)


def _build(settings: VoteSelectSettings, plan: Plan, tools: Tools) -> Fit:
    from palimpsest.methods.vote_select.fit import VoteSelect

    encoders = tools.encoders(settings.batch)
    return VoteSelect(settings, tools.schema, plan, tools.source(), encoders, tools.seed)


VOTE_SELECT = Method(
    name="vote_select",
    stage="vote_select",
    family=Family.CHOOSES,
    title="One row of the results: rows of another variant, chosen by one noisy vote; its epsilon counts both.",
    does="Keep those rows of another variant that one noisy vote of the private rows points at",
    tasks=("classify", "text", "json"),
    settings=VoteSelectSettings,
    plan=_plan,
    build=_build,
    reads=frozenset({Reads.SOURCE, Reads.ENCODER}),
    columns=CHOSEN,
    module=__name__,
    source="named",
    seeded=True,
)
