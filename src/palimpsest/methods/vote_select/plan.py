"""What `vote_select` asks and costs; no row is read."""

import math

from dp_accounting.dp_event import ComposedDpEvent, DpEvent

from palimpsest.errors import ParamsError
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.shares import gaussian
from palimpsest.methods.vote_select.declaration import VoteSelectSettings
from palimpsest.privacy.accounting import calibrate_noise, is_private
from palimpsest.privacy.planned import PlannedQuery

QUERY = "vote"


def plan(settings: VoteSelectSettings, budget: Budget, before: DpEvent) -> Plan:
    """What a fit will ask and cost; the budget holds for it together with all that the variant below was charged.

    Raises:
        ParamsError: nothing is left of the budget after what the other variant was charged.
    """
    sigma = _sigma(budget, before)
    numbers: dict[str, float | int | str] = {
        "sigma": sigma,
        "rounds": 1,
        "keep": settings.keep,
        "neighbours": settings.votes.neighbours,
    }
    return Plan("vote_select", budget, (PlannedQuery(QUERY, gaussian(sigma)),), numbers)


def _sigma(budget: Budget, before: DpEvent) -> float:
    if math.isinf(budget.epsilon):
        return 0.0
    if not is_private(before):
        raise ParamsError(
            "The variant below is not private.", "Choose another, or give this one epsilon .inf and purpose reference."
        )
    try:
        return calibrate_noise(lambda sigma: ComposedDpEvent([before, gaussian(sigma)]), budget.epsilon, budget.delta)
    except ValueError:
        raise ParamsError(
            f"Nothing is left of epsilon {budget.epsilon:g} after the variant below.", "Raise it, or lower that one."
        ) from None
