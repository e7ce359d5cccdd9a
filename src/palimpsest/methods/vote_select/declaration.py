"""Declaration of method vote_select, its settings, and the plan of its query, which reads no row."""

from dataclasses import replace

from dp_accounting.dp_event import DpEvent
from pydantic import Field

from palimpsest.methods.shared.base import Budget, Fit, Plan
from palimpsest.methods.shared.method import CHOSEN, Basis, Family, Method, Reads, Tools
from palimpsest.methods.shared.settings import EncodedBatch, Votes
from palimpsest.methods.shared.shares import gaussian, noise_after
from palimpsest.privacy.planned import PlannedQuery, versions_of
from palimpsest.records.schema import PublicSchema
from palimpsest.settings import Settings

QUERY = "vote"


class VoteSelectSettings(Settings):
    """Rows of another variant, chosen by one noisy vote."""

    keep: float = Field(default=0.25, gt=0, le=1, description="Share of each label's rows that is kept.")
    votes: Votes = Votes()
    batch: EncodedBatch = 1


def _plan(settings: VoteSelectSettings, _schema: PublicSchema, budget: Budget, basis: Basis) -> Plan:
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


def plan(settings: VoteSelectSettings, budget: Budget, before: DpEvent) -> Plan:
    """Plan the query of a fit and its cost; the budget covers it together with all charges of the variant below.

    Raises:
        ParamsError: as `noise_after`.
    """
    sigma = noise_after(before, budget, lambda sigma: [gaussian(sigma)])
    numbers: dict[str, float | int | str] = {
        "sigma": sigma,
        "rounds": 1,
        "keep": settings.keep,
        "neighbours": settings.votes.neighbours,
    }
    return Plan("vote_select", budget, (PlannedQuery(QUERY, gaussian(sigma), versions=versions_of(QUERY)),), numbers)
