"""Settings of method embed."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from palimpsest.defaults import WITH_LABELS
from palimpsest.methods.shared.settings import (
    DELTA_SHARE,
    ClassMeansSettings,
    Filters,
    InRounds,
    ModelFreeFilters,
    VotesEach,
)
from palimpsest.models.decoder.settings import DecodeSettings
from palimpsest.settings import Settings


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
