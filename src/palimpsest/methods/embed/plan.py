"""The cost of the queries of `embed`, and whether the votes stand out from their noise. No row is read."""

import math
from collections.abc import Iterator
from dataclasses import replace

from dp_accounting.dp_event import DpEvent, SelfComposedDpEvent

from palimpsest.methods.embed.declaration import EmbedSettings, GaussianHistogram, LimitedDomainSettings
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.rounds import (
    FAINT,
    MARGIN,
    RoundCosts,
    advise_neighbours,
    gaussian_costs,
    planned_rounds,
    require_fit,
)
from palimpsest.methods.shared.shares import gaussian, note_counts, planned_histogram, whole_rho
from palimpsest.privacy import limited_domain
from palimpsest.privacy.accounting import gdp_sigma
from palimpsest.privacy.events import gumbel_scale
from palimpsest.records.schema import PublicSchema


def plan(settings: EmbedSettings, schema: PublicSchema, budget: Budget) -> Plan:
    """Plan the queries of a fit, their cost, and whether it is feasible.

    The plan is infeasible where LimitedDomain could not select as many parents as requested (`_is_feasible`).

    Raises:
        ParamsError: the settings do not fit the public schema.
    """
    require_fit("embed", settings, schema)
    costs = costs_of(settings, schema, budget)
    event, own_delta = _rounds_cost(settings, costs)
    rounds = planned_rounds(event, settings.rounds, own_delta)
    numbers = _numbers(settings, schema, costs)
    told = (*notes(settings, schema, budget, costs), *note_counts(costs.histogram, schema))
    gaussian = isinstance(settings.selection, GaussianHistogram)
    foretold = costs.foretell(schema, _votes_each(settings, schema)) if gaussian else ()
    return Plan(
        "embed", budget, costs.planned_queries(rounds), numbers, _is_feasible(settings, schema, costs), told, foretold
    )


def _numbers(settings: EmbedSettings, schema: PublicSchema, costs: RoundCosts) -> dict[str, float | int | str]:
    labels = max(1, len(schema.label_names))
    pool = 1 if settings.class_means is None else settings.class_means.pool
    numbers: dict[str, float | int | str] = {
        "rounds": settings.rounds,
        "rows": settings.rows,
        "candidates": _candidates(settings),
        "votes_each": _votes_each(settings, schema),
        "texts_decoded": settings.rounds * settings.parents * labels + settings.rows * pool,
    }
    if isinstance(settings.selection, LimitedDomainSettings):
        numbers |= {"scale": costs.votes, "gap": _gap(costs), "round_delta": costs.delta}
    else:
        numbers |= {"sigma": costs.votes, "neighbours": settings.selection.neighbours}
    return numbers if costs.means is None else {**numbers, "means_sigma": costs.means}


def costs_of(settings: EmbedSettings, schema: PublicSchema, budget: Budget) -> RoundCosts:
    """Return the noise that meets the budget: see `gaussian_costs` and `_limited_domain_costs`."""
    if isinstance(settings.selection, LimitedDomainSettings):
        return _limited_domain_costs(settings, settings.selection, schema, budget)
    return gaussian_costs(settings, schema, budget)


def _limited_domain_costs(
    settings: EmbedSettings, selection: LimitedDomainSettings, schema: PublicSchema, budget: Budget
) -> RoundCosts:
    """Return the noise with LimitedDomain: all costs add up in zCDP, at the delta that the thresholds leave."""
    wanted = settings.class_means
    if math.isinf(budget.epsilon):
        return RoundCosts(planned_histogram(settings, schema, math.inf), None if wanted is None else 0.0, 0.0)
    own = selection.delta_share * budget.delta
    rho = whole_rho(replace(budget, delta=budget.delta - own)) / MARGIN
    histogram = planned_histogram(settings, schema, rho)
    means = None if wanted is None else math.sqrt(0.5 / (wanted.share * rho))
    scale = gumbel_scale(settings.rounds * settings.parents, _votes_share(settings, schema) * rho)
    return RoundCosts(histogram, means, scale, limited_domain.delta_for(own, settings.rounds))


def _votes_share(settings: EmbedSettings, schema: PublicSchema) -> float:
    """The share of the budget that histogram and class means leave to the votes."""
    asked = planned_histogram(settings, schema, 1.0) is not None
    means = 0.0 if settings.class_means is None else settings.class_means.share
    return 1.0 - asked * settings.histogram_share - means


def domain_of(
    settings: EmbedSettings, selection: LimitedDomainSettings, costs: RoundCosts
) -> limited_domain.LimitedDomain:
    """The mechanism by which a round picks parents."""
    return limited_domain.LimitedDomain(selection.domain, settings.parents, costs.votes, costs.delta)


def _rounds_cost(settings: EmbedSettings, costs: RoundCosts) -> tuple[DpEvent, float]:
    """Return the cost of all rounds of votes: their event, and the delta that the event does not include."""
    event, own_delta = gaussian(costs.votes), 0.0
    if isinstance(settings.selection, LimitedDomainSettings):
        mechanism = domain_of(settings, settings.selection, costs)
        event, own_delta = mechanism.event(), mechanism.own_delta
    return SelfComposedDpEvent(event, settings.rounds), settings.rounds * own_delta


def _candidates(settings: EmbedSettings) -> int:
    """The candidates of one label in the largest round."""
    again = settings.parents if settings.keep_parents else 0
    return max(settings.start, again + settings.offspring) if settings.rounds > 1 else settings.start


def _units_each(schema: PublicSchema) -> float:
    """Return the number of units of privacy, records or persons, of an average label."""
    return schema.n_units / max(1, len(schema.label_names))


def _votes_each(settings: EmbedSettings, schema: PublicSchema) -> float:
    """The votes of an average candidate in the largest round, in whole votes of a unit."""
    selection = settings.selection
    spread = math.sqrt(selection.neighbours) if isinstance(selection, GaussianHistogram) else 1.0
    return _units_each(schema) * spread / _candidates(settings)


def _gap(costs: RoundCosts) -> float:
    """The votes by which a parent must lead the first candidate outside the domain to be picked as often as not."""
    return limited_domain.gap(costs.votes, costs.delta) if costs.delta else 0.0


def _is_feasible(settings: EmbedSettings, schema: PublicSchema, costs: RoundCosts) -> bool:
    """Return whether enough votes can be cast at all to select the parents.

    Each parent of LimitedDomain must lead by the gap, so an average label must have as many units as all parents
    together need if no other votes are cast.
    """
    return settings.parents * _gap(costs) <= _units_each(schema)


def notes(settings: EmbedSettings, schema: PublicSchema, budget: Budget, costs: RoundCosts) -> Iterator[str]:
    """Yield notes for the user, before anything is spent."""
    each, selection = _votes_each(settings, schema), settings.selection
    if isinstance(selection, LimitedDomainSettings):
        if each < _gap(costs):
            yield _explain_wide_gap(settings, selection, schema, budget, costs)
    elif each < FAINT * costs.votes:
        short = costs.votes / each
        more = advise_neighbours("selection.neighbours", selection.neighbours, short, _candidates(settings))
        most = _most_candidates(schema, costs.votes, selection.neighbours)
        rounds = _most_rounds(settings.rounds, each, costs.votes)
        fewer = f", or in at most {rounds} rounds" if rounds else ""
        yield (
            f"an average candidate gets {each:.2g} votes and noise of {costs.votes:.3g}: {more}vote for at "
            f"most {most} candidates of a label (start, offspring){fewer}"
        )


def _most_rounds(rounds: int, each: float, sigma: float) -> int:
    """The most rounds in which an average candidate gets as many votes as the standard deviation of their noise.

    The variance of the noise grows with the number of rounds: mu^2 = T / sigma^2 is what the budget buys. Beside class
    means that is so up to what the accountants round.

    Args:
        rounds: those that were planned.
        each: votes of an average candidate.
        sigma: the noise of each count in that many rounds.

    >>> _most_rounds(7, 4.0, 8.0), _most_rounds(7, 1.8, 8.0)
    (1, 0)
    """
    return math.floor(rounds * (each / sigma) ** 2)


def _explain_wide_gap(
    settings: EmbedSettings, selection: LimitedDomainSettings, schema: PublicSchema, budget: Budget, costs: RoundCosts
) -> str:
    """Explain why LimitedDomain selects too few parents, and what Gaussian noise would do instead."""
    whole, wide = gdp_sigma(budget.epsilon, budget.delta, settings.rounds), _gap(costs)
    sigma, unit = whole / math.sqrt(_votes_share(settings, schema)), "rows" if schema.unit == "record" else "persons"
    verdict = (
        f"rounds may select fewer than {settings.parents} parents, or none"
        if _is_feasible(settings, schema, costs)
        else f"infeasible, as {settings.parents} parents would need {settings.parents * wide:.0f} {unit} and an "
        f"average label has {_units_each(schema):.0f}"
    )
    return (
        f"LimitedDomain needs a gap of {wide:.0f} votes to candidate {selection.domain + 1}, an average candidate "
        f"has {_votes_each(settings, schema):.2g}: {verdict}; use selection gaussian (sigma {sigma:.1f} whatever "
        f"parents is) with at most {_most_candidates(schema, sigma, 1)} candidates of a label, or ask for fewer parents"
    )


def _most_candidates(schema: PublicSchema, sigma: float, neighbours: int) -> int:
    """Return the number of a label's candidates at which an average one gets as many votes as the noise's deviation."""
    return max(1, math.floor(_units_each(schema) * math.sqrt(neighbours) / sigma))
