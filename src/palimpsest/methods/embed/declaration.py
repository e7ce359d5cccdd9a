"""Declaration of method embed, and its settings."""

import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from palimpsest.methods.shared.base import Budget, Fit, Plan
from palimpsest.methods.shared.method import CHOSEN, Basis, Family, Method, Reads, Resumes, Tools
from palimpsest.methods.shared.settings import (
    DELTA_SHARE,
    ClassMeansSettings,
    Filters,
    InRounds,
    ModelFreeFilters,
    VotesEach,
)
from palimpsest.models.settings import DecodeSettings
from palimpsest.records.schema import PublicSchema
from palimpsest.settings import WITH_LABELS, Settings


class GaussianHistogram(Settings):
    """Noise on every count: the cost does not depend on how many parents are taken."""

    kind: Literal["gaussian"] = Field(description="How parents are selected.")
    neighbours: VotesEach = 10


class LimitedDomainSettings(Settings):
    """Parents picked one by one among the candidates with the most votes, as published, with the corrected cost."""

    kind: Literal["limited_domain"] = Field(description="How parents are selected.")
    domain: int = Field(default=300, ge=1, description="Candidates with the most votes that can be picked, Kbar.")
    delta_share: float = Field(default=DELTA_SHARE, gt=0, le=0.5)
    """Share of delta that the thresholds of all rounds may take; the rest converts rho. A small share costs few
    votes."""


class Eda(Settings):
    """The distribution that offspring are drawn from."""

    smoothing: float = Field(default=0.1, ge=0, le=1, description="Weight of the best and the worst parents, alpha.")
    best: int = Field(default=10, ge=1, description="Parents whose spread counts beside that of all, R.")
    components: int = Field(default=20, ge=1)
    """Gaussians, each fitted to the parents nearest to it; 1 is as published."""


class Readable(Settings):
    """Which decoded parents may have offspring: those that the public language model finds likely enough."""

    quantile: float | None = Field(default=0.95, gt=0, le=1)
    """Held-out public text whose perplexity is not above the limit; null: use `perplexity`."""
    perplexity: float | None = Field(default=None, gt=1)
    """The limit itself; 50, as published, means GPT-2's."""

    @model_validator(mode="after")
    def _one_limit(self) -> "Readable":
        if (self.quantile is None) == (self.perplexity is None):
            raise ValueError("readable needs either quantile or perplexity, and the other null")
        return self


class EmbedMeans(ClassMeansSettings):
    """A look at the class means that chooses the first population and the final texts."""

    pool: int = Field(default=2, ge=1)
    """Texts decoded for each row of the result; the likeliest of a label are kept."""


class EmbedSettings(InRounds):
    """Evolution of embeddings: records vote for vectors, and a public decoder writes the last ones down."""

    rounds: int = Field(default=3, ge=1, description="Rounds of votes, T.")
    start: int = Field(default=300, ge=1, description="Public texts of each label that the first round votes for.")
    zero_shot: str | None = None
    """A key of `zero_shot`: the first round votes for what that author wrote; null: for public texts."""
    offspring: int = Field(default=300, ge=1)
    """New embeddings of each label that every later round votes for."""
    parents: int = Field(default=40, ge=1, description="Embeddings of each label that a round selects, at most.")
    keep_parents: bool = True
    """Readable parents stand for election again, which costs nothing; false: they die, as published, and their
    offspring alone are voted for."""
    selection: Annotated[GaussianHistogram | LimitedDomainSettings, Field(discriminator="kind")] = GaussianHistogram(
        kind="gaussian"
    )
    eda: Eda = Eda()
    readable: Readable | None = Readable()
    """Perplexity filter of parents and of the result; null: none."""
    class_means: Annotated[EmbedMeans | None, WITH_LABELS]
    """Noisy class means that choose where to start and what to keep; null: votes alone."""
    decode: DecodeSettings = DecodeSettings()
    filters: ModelFreeFilters = Filters()

    @model_validator(mode="after")
    def _sizes_fit(self) -> "EmbedSettings":
        fewest = min(self.start, self.offspring)
        if self.parents > fewest:
            raise ValueError(f"parents is {self.parents}; allowed is at most start and offspring, {fewest}")
        if isinstance(self.selection, LimitedDomainSettings) and self.parents > self.selection.domain:
            raise ValueError(f"parents is {self.parents}; allowed is at most selection.domain, {self.selection.domain}")
        return self


def _plan(settings: EmbedSettings, schema: PublicSchema, budget: Budget, _basis: Basis) -> Plan:
    from palimpsest.methods.embed.plan import plan

    return plan(settings, schema, budget)


def _build(settings: EmbedSettings, plan: Plan, tools: Tools) -> Fit:
    from palimpsest.methods.embed.fit import Embed
    from palimpsest.methods.shared.filters import public_losses
    from palimpsest.methods.shared.means import Candidates
    from palimpsest.methods.shared.postprocess import perplexity_limit
    from palimpsest.models.decoder.decoding import Decoder

    encoders, records, kept = tools.encoders(settings.batch), tools.start(), tools.embeddings()
    texts = [record.text for record in records]
    public = settings.zero_shot is None and bool(kept)
    losses = public_losses(tools.untouched(), settings.decode.max_tokens, settings.decode.batch)
    asked = settings.readable
    limit = None
    if asked is not None and asked.perplexity is not None:
        limit = math.log(asked.perplexity)
    elif asked is not None and asked.quantile is not None:
        limit = perplexity_limit(losses(tools.heldout()), asked.quantile)
    return Embed(
        settings=settings,
        schema=tools.schema,
        plan=plan,
        start=Candidates(texts, kept["texts"] if public else encoders.others(texts)),
        labels=tuple(record.label for record in records),
        descriptions=kept["descriptions"] if kept else None,
        decode=Decoder.load(tools.decoder(), encoders.fingerprint),
        encoders=encoders,
        losses=losses,
        limit=limit,
        seed=tools.seed,
        checkpoints=tools.kept,
    )


EMBED = Method(
    name="embed",
    stage="eda_evolve",
    family=Family.CHOOSES,
    title="One row of the results: embeddings that evolve by noisy votes, written down by a public decoder.",
    does="Let private rows vote, round by round, for embeddings, and write the last ones down with a public decoder",
    tasks=("classify", "text"),
    settings=EmbedSettings,
    plan=_plan,
    build=_build,
    reads=frozenset({Reads.START, Reads.EMBEDDINGS, Reads.HELDOUT, Reads.BASE, Reads.DECODER, Reads.ENCODER}),
    columns=CHOSEN,
    module=__name__,
    source="named",
    resumes=Resumes.ROUNDS,
    seeded=True,
    rounds=".npz",
)
