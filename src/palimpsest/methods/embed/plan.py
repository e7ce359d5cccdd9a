"""What `embed` asks; no row is read."""

from palimpsest.methods.embed.costs import (
    EmbedCosts,
    candidates,
    costs_of,
    feasible,
    gap,
    notes,
    require_fit,
    rounds_cost,
    votes_each,
)
from palimpsest.methods.embed.settings import EmbedSettings, LimitedDomainSettings
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.means import planned_means
from palimpsest.methods.shared.shares import planned_query
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.records.schema import PublicSchema

ROUNDS = "vote rounds"


def plan(settings: EmbedSettings, schema: PublicSchema, budget: Budget) -> Plan:
    """What a fit will ask and cost, and whether that can work.

    It is infeasible where LimitedDomain could not select as many parents as it is asked for (`feasible`).

    Raises:
        ParamsError: the settings do not fit the public schema.
    """
    require_fit(settings, schema)
    costs = costs_of(settings, schema, budget)
    means = [] if costs.means is None else [planned_means(costs.means)]
    event, own_delta = rounds_cost(settings, costs)
    rounds = PlannedQuery(ROUNDS, event, settings.rounds, own_delta=own_delta)
    numbers, told = _numbers(settings, schema, costs), tuple(notes(settings, schema, budget, costs))
    queries = (*planned_query(costs.histogram), *means, rounds)
    return Plan("embed", budget, queries, numbers, feasible(settings, schema, costs), told)


def _numbers(settings: EmbedSettings, schema: PublicSchema, costs: EmbedCosts) -> dict[str, float | int | str]:
    labels = max(1, len(schema.label_names))
    pool = 1 if settings.class_means is None else settings.class_means.pool
    numbers: dict[str, float | int | str] = {
        "rounds": settings.rounds,
        "rows": settings.rows,
        "candidates": candidates(settings),
        "votes_each": votes_each(settings, schema),
        "texts_decoded": settings.rounds * settings.parents * labels + settings.rows * pool,
    }
    if isinstance(settings.selection, LimitedDomainSettings):
        numbers |= {"scale": costs.votes, "gap": gap(costs), "round_delta": costs.delta}
    else:
        numbers |= {"sigma": costs.votes, "neighbours": settings.selection.neighbours}
    return numbers if costs.means is None else {**numbers, "means_sigma": costs.means}
