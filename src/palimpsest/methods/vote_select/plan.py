"""The query of `vote_select` and its cost; no row is read."""

from dp_accounting.dp_event import DpEvent

from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.shares import gaussian, noise_after
from palimpsest.methods.vote_select.declaration import VoteSelectSettings
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.versions import versions_of

QUERY = "vote"


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
