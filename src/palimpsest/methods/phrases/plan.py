"""The queries of `phrases` and their cost; no row and no model is read."""

import math

from dp_accounting.dp_event import ComposedDpEvent, DpEvent

from palimpsest.methods.phrases.declaration import PhrasesSettings
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.shares import gaussian, planned_histogram, planned_query, require_prior, whole_rho
from palimpsest.privacy.accounting import calibrate_noise
from palimpsest.privacy.phrases import KeyPhrases
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.privacy.versions import versions_of
from palimpsest.records.phrases import PublicWords
from palimpsest.records.schema import PublicSchema

UNLABELLED = ""  # the label of a task without any


def plan(settings: PhrasesSettings, schema: PublicSchema, budget: Budget) -> Plan:
    """Plan the queries of a fit and their cost.

    The plan is infeasible where a phrase would not come out even if every unit of a class of average size had it.

    Raises:
        ParamsError: the settings do not fit the public schema.
    """
    require_prior(settings.prior, schema)
    histogram, phrases = build_queries(settings, schema, budget, PublicWords(0, {}, settings.common))
    room, private = schema.n_units / len(phrases.labels), phrases.sigma > 0
    feasible = not private or phrases.threshold <= room
    numbers: dict[str, float | int | str] = {"sigma": phrases.sigma, "rows": settings.rows}
    numbers |= {"threshold": phrases.threshold} if private else {}
    numbers |= {} if histogram is None else {"histogram_sigma": histogram.sigma}
    return Plan(
        "phrases",
        budget,
        (*planned_query(histogram), _planned_phrases(phrases)),
        numbers,
        feasible=feasible,
        notes=() if feasible else (_explain_noise(phrases.threshold, room, schema.unit),),
    )


def build_queries(
    settings: PhrasesSettings, schema: PublicSchema, budget: Budget, words: PublicWords
) -> tuple[LabelHistogram | None, KeyPhrases]:
    """Build the queries: the units of each label, where these are not public, and the phrases."""
    delta = settings.delta_share * budget.delta
    rest = Budget(budget.epsilon, budget.delta - delta)
    histogram = planned_histogram(settings, schema, whole_rho(rest))
    labels = schema.label_names or (UNLABELLED,)
    return histogram, KeyPhrases(labels, words, settings.most, _sigma(rest, histogram), delta)


def _sigma(budget: Budget, histogram: LabelHistogram | None) -> float:
    """Return the noise of the phrases that uses up the budget left by the histogram."""
    if math.isinf(budget.epsilon):
        return 0.0
    before = [] if histogram is None else [histogram.event()]

    def whole(sigma: float) -> DpEvent:
        return ComposedDpEvent([*before, gaussian(sigma)])

    return calibrate_noise(whole, budget.epsilon, budget.delta)


def _explain_noise(threshold: int, room: float, unit: str) -> str:
    return (
        f"A phrase comes out where about {threshold} {unit}s have it, and a class of average size has {room:.0f}: "
        "raise epsilon, or lower phrases.most."
    )


def _planned_phrases(phrases: KeyPhrases) -> PlannedQuery:
    name = phrases.name
    return PlannedQuery(name, phrases.event(), own_delta=phrases.own_delta, versions=versions_of(name))
