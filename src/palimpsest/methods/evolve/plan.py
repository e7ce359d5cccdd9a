"""The queries of `evolve`, their cost, and the expected load on its author; no row is read."""

import math
from collections.abc import Iterator, Mapping

from palimpsest.methods.evolve.authors import Author
from palimpsest.methods.evolve.declaration import EvolveSettings
from palimpsest.methods.evolve.instructed import expected_calls
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.rounds import (
    FAINT,
    RoundCosts,
    advise_neighbours,
    gaussian_costs,
    planned_rounds,
    require_fit,
    rounds_event,
)
from palimpsest.methods.shared.shares import note_counts
from palimpsest.models.chat.settings import Endpoint, LocalChatSettings
from palimpsest.records.schema import PublicSchema


def plan(settings: EvolveSettings, schema: PublicSchema, budget: Budget, author: Author | None = None) -> Plan:
    """Plan the queries of a fit, their cost, and whether it is feasible.

    Args:
        budget: the budget that may be spent.
        author: settings of the author; None leaves out its expected load.

    Raises:
        ParamsError: the settings do not fit the public schema.
    """
    require_fit("evolve", settings, schema)
    costs = gaussian_costs(settings, schema, budget)
    rounds = planned_rounds(rounds_event(costs.votes, settings.rounds), settings.rounds)
    expected = {} if author is None else _estimate_requests(author, settings, schema)
    told = () if author is None else tuple(_warnings(author, expected))
    return Plan(
        "evolve",
        budget,
        costs.planned_queries(rounds),
        {**_numbers(settings, schema, costs), **expected},
        notes=(*notes(settings, schema, costs.votes), *note_counts(costs.histogram, schema), *told),
        foretold=costs.foretell(schema, _votes_each(settings, schema)),
    )


def _numbers(settings: EvolveSettings, schema: PublicSchema, costs: RoundCosts) -> dict[str, float | int | str]:
    numbers: dict[str, float | int | str] = {
        "sigma": costs.votes,
        "rounds": settings.rounds,
        "rows": settings.rows,
        "candidates": settings.rows * settings.expand,
        "neighbours": settings.votes.neighbours,
        "votes_each": _votes_each(settings, schema),
        "new_texts": writings(settings)[0],
        "variations": writings(settings)[1],
    }
    return numbers if costs.means is None else {**numbers, "means_sigma": costs.means}


def _estimate_requests(author: Author, settings: EvolveSettings, schema: PublicSchema) -> dict[str, float | int | str]:
    """Estimate the requests to the author, their tokens and their price."""
    if not isinstance(author, LocalChatSettings | Endpoint):
        return {}
    calls = expected_calls(author, schema.labels, *writings(settings))
    numbers: dict[str, float | int | str] = {"requests": calls.requests, "tokens": calls.read + calls.written}
    return {**numbers, "cost": calls.cost(author.price)} if isinstance(author, Endpoint) else numbers


def _warnings(author: Author, numbers: Mapping[str, float | int | str]) -> Iterator[str]:
    """Yield warnings about the author's cost and the limits that it would reach."""
    if not isinstance(author, Endpoint):
        return
    cost, tokens = float(numbers["cost"]), int(numbers["tokens"])
    if cost:
        yield f"the author will cost about {cost:.2f}, at the prices given"
    if author.price.most is not None and cost > author.price.most:
        yield f"price.most is {author.price.most:g}: the run would stop there, and could go on with a higher one"
    if author.most_tokens is not None and tokens > author.most_tokens:
        yield f"most_tokens is {author.most_tokens}: the run would stop there, and could go on with a higher one"


def writings(settings: EvolveSettings) -> tuple[int, int]:
    """Count the new texts and variations that an author is asked for over a whole run."""
    first, pool = (settings.class_means.first, settings.class_means.pool) if settings.class_means else (1, 1)
    varied = settings.rounds * settings.rows * (settings.expand - 1)
    ahead = settings.rounds * settings.rows * settings.expand * settings.look_ahead
    return first * settings.rows, pool * varied + ahead


def _votes_each(settings: EvolveSettings, schema: PublicSchema) -> float:
    """The votes of an average candidate in a round, in whole votes of a unit."""
    return schema.n_units * math.sqrt(settings.votes.neighbours) / (settings.rows * settings.expand)


def notes(settings: EvolveSettings, schema: PublicSchema, sigma: float) -> Iterator[str]:
    """Yield notes for the user, before anything is spent."""
    each = _votes_each(settings, schema)
    if each < FAINT * sigma:
        candidates = settings.rows * settings.expand / max(1, len(schema.label_names))
        more = advise_neighbours("votes.neighbours", settings.votes.neighbours, sigma / each, candidates)
        yield (
            f"an average candidate gets {each:.2g} votes and noise of {sigma:.3g}: {more}ask for fewer rows, fewer "
            "rounds or a smaller expand; class_means needs far less"
        )
    if settings.expand == 1 and settings.rounds > 1:
        yield "expand 1 makes no variations: every round votes for the same texts"
