"""Declaration of method phrases, and its settings."""

from functools import partial

from pydantic import Field, field_validator

from palimpsest.methods.shared.base import Budget, Fit, Plan
from palimpsest.methods.shared.method import CHOSEN, Basis, Family, Method
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
from palimpsest.methods.shared.tools import Reads, Tools
from palimpsest.models.words import BARE
from palimpsest.records.schema import PublicSchema
from palimpsest.settings import Settings


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
    from palimpsest.methods.phrases.plan import plan

    return plan(settings, schema, budget)


def _build(settings: PhrasesSettings, plan: Plan, tools: Tools) -> Fit:
    from palimpsest.methods.phrases.fit import Phrases, Voice
    from palimpsest.methods.shared.filters import public_perplexity
    from palimpsest.records.phrases import PublicWords

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
