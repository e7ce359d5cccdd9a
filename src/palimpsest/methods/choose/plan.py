"""The queries of `choose` and their cost; no row is read."""

import math

from dp_accounting.dp_event import ComposedDpEvent, DpEvent

from palimpsest.errors import ParamsError
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.privacy.accounting import calibrate_noise, is_private, planned_epsilon
from palimpsest.privacy.choice import Choice, choice_event
from palimpsest.privacy.events import gumbel_rho
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.shown import up
from palimpsest.privacy.versions import versions_of

_WIDE = 1e6  # a scale at which a choice costs next to nothing: its event decides which accountant counts


def plan(budget: Budget, before: DpEvent) -> Plan:
    """Plan a choice and its cost; the budget covers it together with everything that any of the variants was charged.

    Raises:
        ParamsError: nothing is left of the budget after what the variants were charged.
    """
    scale = _scale(budget, before)
    event = choice_event(gumbel_rho(1, scale))
    query = PlannedQuery(Choice.name, event, versions=versions_of(Choice.name))
    return Plan("choose", budget, (query,), {"scale": scale, "rounds": 1})


def _scale(budget: Budget, before: DpEvent) -> float:
    if math.isinf(budget.epsilon):
        return 0.0
    if not is_private(before):
        raise ParamsError(
            "A variant that could be chosen is not private.",
            "Take it out of `from`, or give this one epsilon .inf and purpose reference.",
        )

    def whole(scale: float) -> DpEvent:
        return ComposedDpEvent([before, choice_event(gumbel_rho(1, scale))])

    try:
        return calibrate_noise(whole, budget.epsilon, budget.delta)
    except ValueError:
        spent = planned_epsilon(whole(_WIDE), budget.delta)
        raise ParamsError(
            f"The variants to choose from cost epsilon {up(spent)} together; nothing is left of {budget.epsilon:g}.",
            "Raise it, or name fewer.",
        ) from None
