"""Declaration of method steer, its settings, and its queries and their cost."""

import math
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from palimpsest.methods.shared.base import Budget, Fit, Plan
from palimpsest.methods.shared.method import CHOSEN, Basis, Family, Method, Reads, Tools
from palimpsest.methods.shared.settings import Counted, Ends, Filters, ModelFreeFilters
from palimpsest.models.settings import BARE, Precision
from palimpsest.records.schema import PublicSchema

_Strength = Annotated[float, Field(gt=0)]


class SteerSettings(Counted):
    """Texts of a language model whose inside is moved to where the private rows of a label lie."""

    prompt: str = BARE
    """What a text stands behind; may name {label}, {description} and {separator}."""
    ends: Ends = "eos"
    temperature: float = Field(default=1.0, gt=0, description="Divides the logits before sampling.")
    top_p: float = Field(default=0.95, gt=0, le=1)
    """Nucleus sampling: smallest set of tokens with this probability."""
    max_tokens: int = Field(default=64, ge=1, description="Longest text in tokens.")
    side_by_side: int = Field(default=128, ge=1, description="Texts that are written at once.")
    precision: Precision = "float32"
    """Of the language model, which reads texts and writes them."""
    depth: float = Field(default=0.5, gt=0, le=1)
    """Share of the model's blocks below the place that is read and moved."""
    first: float = Field(default=0.1, gt=0, lt=1)
    """Share of what the means cost that a first look takes: where all rows lie, whatever their label."""
    pilot: int = Field(default=32, ge=2)
    """Texts a label that are written to see where the model's own lie, at each strength."""
    strengths: tuple[_Strength, ...] = Field(default=(0.5, 1.0, 2.0, 4.0), min_length=1)
    """Multiples of the measured difference that are tried for each label; the one whose texts come nearest to the noisy
    mean is kept, or none. One alone is taken as it is."""
    pool: int = Field(default=4, ge=1)
    """Texts that are written for each row; the likeliest are kept. 1 keeps all, each under its label."""
    domain: float = Field(default=0.75, gt=0, le=1)
    """Share of the written texts that is in a label's domain: those nearest its rows' mean."""
    filters: ModelFreeFilters = Filters()


def _plan(settings: SteerSettings, schema: PublicSchema, budget: Budget, _basis: Basis) -> Plan:
    """Plan two queries for means in place of one: Gaussians of noise s / sqrt(f) and s / sqrt(1 - f) cost as much as s.

    Raises:
        ParamsError: the settings do not fit the public schema.
    """
    from palimpsest.methods.shared.means import plan_means, planned_means

    one = plan_means("steer", settings, schema, budget)
    sigma = float(one.numbers["sigma"])
    first, second = sigma / math.sqrt(settings.first), sigma / math.sqrt(1.0 - settings.first)
    queries = (*one.queries[:-1], planned_means(first), planned_means(second))
    return replace(one, queries=queries, numbers={**one.numbers, "sigma": second, "first_sigma": first})


def _build(settings: SteerSettings, plan: Plan, tools: Tools) -> Fit:
    from palimpsest.methods.steer.fit import Steer, Voice

    voice = Voice(settings, tools.base(), tools.schema.labels, tools.seed)
    return Steer(settings, tools.schema, plan, voice, tools.inner(voice.reader, voice.told, settings.batch))


STEER = Method(
    name="steer",
    stage="steer",
    family=Family.WRITES,
    title="One row of the results: text of an untouched language model, moved inside towards noisy class means.",
    does="Move a public language model inside, by noisy means of hidden states, and let it write",
    tasks=("classify",),
    settings=SteerSettings,
    plan=_plan,
    build=_build,
    reads=frozenset({Reads.BASE}),
    columns=CHOSEN,
    module=__name__,
    seeded=True,
)
