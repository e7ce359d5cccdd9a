"""Declaration of method phrases, its settings, and the plan of its queries, which reads no row and no model."""

import math
from functools import partial

from dp_accounting.dp_event import ComposedDpEvent, DpEvent
from pydantic import Field, field_validator

from palimpsest.methods.shared.base import Budget, Fit, Plan
from palimpsest.methods.shared.method import CHOSEN, Basis, Family, Method, Reads, Tools
from palimpsest.methods.shared.settings import (
    DELTA_SHARE,
    Ends,
    Filters,
    HistogramShare,
    LabelCounts,
    PublicShares,
    Rows,
    UnjudgedFilters,
    WritesIn,
)
from palimpsest.methods.shared.shares import gaussian, planned_histogram, planned_query, require_prior, whole_rho
from palimpsest.models.settings import BARE
from palimpsest.privacy.accounting import calibrate_noise
from palimpsest.privacy.planned import PlannedQuery, versions_of
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.privacy.thresholded import KeyPhrases
from palimpsest.records.phrases import PublicWords
from palimpsest.records.schema import PublicSchema
from palimpsest.settings import Settings

UNLABELLED = ""  # the label of a task without any


class PhrasesPrompt(Settings):
    """The prompt that a text is written behind; a template may name {label}, {description}, {separator} and {end}."""

    about: str = "{label}{separator}{phrases}{separator}"
    """With phrases of its label: names {phrases} once."""
    plain: str = Field(default=BARE, min_length=1, description="Where no phrase of the label came out.")
    ends: Ends = "eos"

    @field_validator("about")
    @classmethod
    def _shows_phrases(cls, about: str) -> str:
        if about.count("{phrases}") != 1:
            raise ValueError("about must name {phrases} once")
        return about


class PhrasesSettings(Settings):
    """Texts of the public language model behind prompts that show phrases of many private rows."""

    rows: Rows = 1000
    label_counts: LabelCounts = "noisy"
    prior: PublicShares = None
    histogram_share: HistogramShare = 0.01
    most: int = Field(default=8, ge=1, description="Phrases of a record, or person, that count.")
    common: float = Field(default=0.1, gt=0, le=1)
    """No phrase has a word that is in a larger share of the public texts."""
    delta_share: float = Field(default=DELTA_SHARE, gt=0, lt=1)
    """Share of delta for the chance that a phrase of one unit alone comes out."""
    shown: int = Field(default=3, ge=1, description="Phrases that a prompt shows.")
    prompt: PhrasesPrompt = PhrasesPrompt()
    temperature: float = Field(default=1.0, gt=0, description="Sampling temperature.")
    top_p: float = Field(default=0.95, gt=0, le=1, description="Nucleus of sampling.")
    max_tokens: int = Field(default=64, ge=1, description="Longest text in tokens.")
    side_by_side: int = Field(default=128, ge=1, description="Texts that are written side by side.")
    precision: WritesIn = "float32"
    filters: UnjudgedFilters = Filters()


def _plan(settings: PhrasesSettings, schema: PublicSchema, budget: Budget, _basis: Basis) -> Plan:
    return plan(settings, schema, budget)


def _build(settings: PhrasesSettings, plan: Plan, tools: Tools) -> Fit:
    from palimpsest.methods.phrases.fit import Phrases, Voice
    from palimpsest.methods.shared.filters import public_perplexity

    tokens, together, quantile = settings.max_tokens, settings.side_by_side, settings.filters.quantile
    measure = partial(public_perplexity, tools, tokens, together, quantile)
    voice = Voice(settings, tools.base(), tools.schema.labels, tools.seed)
    return Phrases(settings, tools.schema, plan, PublicWords.of(tools.texts(), settings.common), voice, measure)


PHRASES = Method(
    name="phrases",
    stage="phrases",
    family=Family.WRITES,
    title="One row of the results: text written by an untouched language model about phrases of many private rows.",
    does="Write rows with a public language model about phrases that many private rows have, by noisy counts",
    tasks=("classify", "text"),
    settings=PhrasesSettings,
    plan=_plan,
    build=_build,
    reads=frozenset({Reads.TEXTS, Reads.BASE, Reads.HELDOUT}),
    columns=CHOSEN,
    module=__name__,
    seeded=True,
)


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
