"""What the queries of `embed` cost, and whether their noise leaves anything of the votes. No row is read."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from dp_accounting import ComposedDpEvent, DpEvent, GaussianDpEvent, SelfComposedDpEvent

from palimpsest.errors import ParamsError
from palimpsest.methods.embed.settings import EmbedSettings, GaussianHistogram, LimitedDomainSettings
from palimpsest.methods.shared.base import Budget
from palimpsest.methods.shared.noise import gaussian
from palimpsest.methods.shared.shares import planned_histogram, require_prior, whole_rho
from palimpsest.privacy import limited_domain
from palimpsest.privacy.accounting import calibrate_noise, gdp_sigma
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.records.schema import PublicSchema

_MARGIN = 1.0 + 1e-9  # what rounding may add up to
_FAINT = 1.0  # votes of an average candidate, in standard deviations of its noise


@dataclass(frozen=True)
class EmbedCosts:
    """The noise of a plan; 0 for a reference.

    Attributes:
        histogram: the label histogram; None where shares are public.
        means: standard deviation of the class means' coordinates; None where they are not asked for.
        votes: standard deviation of each round's counts, in whole votes of a unit; for LimitedDomain the scale of
            its Gumbel noise, in votes.
        delta: of each round of LimitedDomain, which no event carries; 0 for Gaussian noise.
    """

    histogram: LabelHistogram | None
    means: float | None
    votes: float
    delta: float = 0.0


def costs_of(settings: EmbedSettings, schema: PublicSchema, budget: Budget) -> EmbedCosts:
    """The noise that meets the budget.

    Gaussian votes alone compose exactly: T of them and the class means are mu-GDP with mu^2 = T / sigma^2 + 1 / s^2
    (Dong, Roth, Su 2022, Corollary 2.13). With a histogram beside them their noise is found under privacy-loss
    distributions. With LimitedDomain everything adds up in zCDP at the delta that the thresholds leave.
    """
    if isinstance(settings.selection, LimitedDomainSettings):
        return _limited(settings, settings.selection, schema, budget)
    return _gaussian(settings, schema, budget)


def _gaussian(settings: EmbedSettings, schema: PublicSchema, budget: Budget) -> EmbedCosts:
    wanted, rounds = settings.class_means, settings.rounds
    histogram = planned_histogram(settings, schema, whole_rho(budget))
    if math.isinf(budget.epsilon):
        return EmbedCosts(histogram, None if wanted is None else 0.0, 0.0)
    whole = gdp_sigma(budget.epsilon, budget.delta) * _MARGIN
    means = whole / math.sqrt(wanted.share) if wanted is not None else None
    before = [*([] if histogram is None else [histogram.event()]), *([] if means is None else [GaussianDpEvent(means)])]
    if not before:
        return EmbedCosts(None, None, whole * math.sqrt(rounds))

    def asked(sigma: float) -> DpEvent:
        return ComposedDpEvent([*before, SelfComposedDpEvent(GaussianDpEvent(sigma), rounds)])

    return EmbedCosts(histogram, means, calibrate_noise(asked, budget.epsilon, budget.delta))


def _limited(
    settings: EmbedSettings, selection: LimitedDomainSettings, schema: PublicSchema, budget: Budget
) -> EmbedCosts:
    wanted = settings.class_means
    if math.isinf(budget.epsilon):
        return EmbedCosts(planned_histogram(settings, schema, math.inf), None if wanted is None else 0.0, 0.0)
    own = selection.delta_share * budget.delta
    rho = whole_rho(replace(budget, delta=budget.delta - own)) / _MARGIN
    histogram = planned_histogram(settings, schema, rho)
    means = None if wanted is None else math.sqrt(0.5 / (wanted.share * rho))
    scale = limited_domain.scale_for(_left(settings, schema) * rho, settings.rounds, settings.parents)
    return EmbedCosts(histogram, means, scale, limited_domain.delta_for(own, settings.rounds))


def _left(settings: EmbedSettings, schema: PublicSchema) -> float:
    """The share of the budget that histogram and class means leave to the votes."""
    asked = planned_histogram(settings, schema, 1.0) is not None
    means = 0.0 if settings.class_means is None else settings.class_means.share
    return 1.0 - asked * settings.histogram_share - means


def domain_of(
    settings: EmbedSettings, selection: LimitedDomainSettings, costs: EmbedCosts
) -> limited_domain.LimitedDomain:
    """The mechanism by which a round picks parents."""
    return limited_domain.LimitedDomain(selection.domain, settings.parents, costs.votes, costs.delta)


def rounds_cost(settings: EmbedSettings, costs: EmbedCosts) -> tuple[DpEvent, float]:
    """What all rounds of votes cost: their event, and the delta that it does not carry."""
    event, own_delta = gaussian(costs.votes), 0.0
    if isinstance(settings.selection, LimitedDomainSettings):
        mechanism = domain_of(settings, settings.selection, costs)
        event, own_delta = mechanism.event(), mechanism.own_delta
    return SelfComposedDpEvent(event, settings.rounds), settings.rounds * own_delta


def candidates(settings: EmbedSettings) -> int:
    """The candidates of one label in the largest round."""
    return max(settings.start, settings.parents + settings.offspring) if settings.rounds > 1 else settings.start


def units_each(schema: PublicSchema) -> float:
    """The units of privacy, records or persons, of an average label."""
    return schema.n_units / max(1, len(schema.label_names))


def votes_each(settings: EmbedSettings, schema: PublicSchema) -> float:
    """The votes of an average candidate in the largest round, in whole votes of a unit."""
    selection = settings.selection
    spread = math.sqrt(selection.neighbours) if isinstance(selection, GaussianHistogram) else 1.0
    return units_each(schema) * spread / candidates(settings)


def gap(costs: EmbedCosts) -> float:
    """The votes by which a parent must lead the first candidate outside the domain to be picked as often as not."""
    return limited_domain.gap(costs.votes, costs.delta) if costs.delta else 0.0


def feasible(settings: EmbedSettings, schema: PublicSchema, costs: EmbedCosts) -> bool:
    """Whether the votes can do what they are asked for at all.

    Each parent of LimitedDomain must lead by the gap, so an average label must have as many units as all parents
    together need, were no other vote cast.
    """
    return settings.parents * gap(costs) <= units_each(schema)


def notes(settings: EmbedSettings, schema: PublicSchema, budget: Budget, costs: EmbedCosts) -> Iterator[str]:
    """What the user should know before anything is spent."""
    each, selection = votes_each(settings, schema), settings.selection
    if isinstance(selection, LimitedDomainSettings):
        if each < gap(costs):
            yield _too_wide(settings, selection, schema, budget, costs)
    elif each < _FAINT * costs.votes:
        wanted = math.ceil(selection.neighbours * (costs.votes / each) ** 2)
        most = _most(schema, costs.votes, selection.neighbours)
        yield (
            f"an average candidate gets {each:.2g} votes and noise of {costs.votes:.3g}: raise selection.neighbours "
            f"towards {wanted}, or vote for at most {most} candidates of a label (start, offspring), or in fewer rounds"
        )


def _too_wide(
    settings: EmbedSettings, selection: LimitedDomainSettings, schema: PublicSchema, budget: Budget, costs: EmbedCosts
) -> str:
    """Why LimitedDomain selects too little, and what Gaussian noise would do instead."""
    whole, wide = gdp_sigma(budget.epsilon, budget.delta, settings.rounds), gap(costs)
    sigma, unit = whole / math.sqrt(_left(settings, schema)), "rows" if schema.unit == "record" else "persons"
    verdict = (
        f"rounds may select fewer than {settings.parents} parents, or none"
        if feasible(settings, schema, costs)
        else f"infeasible, as {settings.parents} parents would need {settings.parents * wide:.0f} {unit} and an "
        f"average label has {units_each(schema):.0f}"
    )
    return (
        f"LimitedDomain needs a gap of {wide:.0f} votes to candidate {selection.domain + 1}, an average candidate "
        f"has {votes_each(settings, schema):.2g}: {verdict}; use selection gaussian (sigma {sigma:.1f} whatever "
        f"parents is) with at most {_most(schema, sigma, 1)} candidates of a label, or ask for fewer parents"
    )


def _most(schema: PublicSchema, sigma: float, neighbours: int) -> int:
    """Candidates of a label of which an average one gets as many votes as the standard deviation of its noise."""
    return max(1, math.floor(units_each(schema) * math.sqrt(neighbours) / sigma))


def require_fit(settings: EmbedSettings, schema: PublicSchema) -> None:
    """Raise ParamsError where settings and schema do not fit together."""
    if schema.task == "span":
        raise ParamsError("Method embed does not write a free label.", "Use method predict for task span.")
    if settings.class_means is not None and len(schema.label_names) < 2:
        raise ParamsError("embed.class_means needs two labels or more.", "Set it to null.")
    require_prior(settings.prior, schema)
    if settings.rows < max(1, len(schema.label_names)):
        raise ParamsError(
            f"embed.rows is {settings.rows}, fewer than the {len(schema.label_names)} labels.", "Ask for more rows."
        )
