"""What `custext` asks; no row is read."""

import math

from dp_accounting import NonPrivateDpEvent

from palimpsest.errors import ParamsError
from palimpsest.methods.baselines.custext.settings import CusTextSettings
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.privacy.planned import PlannedQuery

QUERY = "replaced_words"


def plan(settings: CusTextSettings, budget: Budget) -> Plan:
    """What a fit will ask.

    Raises:
        ParamsError: the budget is finite, or the map would not hold one set.
    """
    if not math.isinf(budget.epsilon):
        raise ParamsError(
            f"custext protects words, not records; epsilon {budget.epsilon:g} would claim what it does not give.",
            "Write `purpose: reference` and `epsilon: .inf`; token_epsilon is its own.",
        )
    if settings.neighbours > settings.vocabulary:
        raise ParamsError(
            f"A vocabulary of {settings.vocabulary} words holds no set of {settings.neighbours}.",
            "Raise vocabulary, or lower neighbours.",
        )
    numbers: dict[str, float | int | str] = {
        "token_epsilon": settings.token_epsilon,
        "neighbours": settings.neighbours,
        "vocabulary": settings.vocabulary,
    }
    return Plan("custext", budget, (PlannedQuery(QUERY, NonPrivateDpEvent()),), numbers)
