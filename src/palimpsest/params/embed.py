"""Settings of embedding evolution: the decoder, the generator `embed`, and the baselines `sentdp` and `custext`."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from palimpsest.params.dp_lm import Filters
from palimpsest.params.evolve import Counted


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DecoderSettings(_Settings):
    """A model that turns a sentence embedding back into a text, trained once on public text. Free."""

    prefix: int = Field(ge=1, description="Pseudo tokens that stand for an embedding in front of its text, k.")
    width: int = Field(ge=1, description="Hidden units of the map from an embedding to pseudo tokens.")
    epochs: float = Field(gt=0, description="Passes over the public sentences.")
    batch: int = Field(ge=1, description="Sentences per step.")
    learning_rate: float = Field(gt=0, description="Peak learning rate of AdamW for the language model inside.")
    warmup: float = Field(ge=0, lt=1, description="Share of the steps in which the learning rate rises.")
    schedule: Literal["constant", "linear", "cosine"] = Field(description="Decay of the learning rate after warm-up.")
    weight_decay: float = Field(ge=0, description="Weight decay of AdamW on matrices.")
    noise: float = Field(
        ge=0, description="Length of the random vector that is added to an embedding of length 1 in training."
    )
    max_tokens: int = Field(ge=2, description="Tokens of a sentence, at most; longer ones are left out.")
    sentences: int = Field(ge=1, description="Public sentences to train on, at most.")
    heldout: int = Field(ge=10, description="Held-out public sentences that measure the reconstruction, at most.")


class DecodeSettings(_Settings):
    """How an embedding becomes a text."""

    samples: int = Field(
        ge=1, description="Texts that are written for an embedding; the one whose own embedding is nearest is kept."
    )
    corrections: int = Field(
        ge=0,
        description="Of these, texts that keep a random beginning of the best one before them and end it anew.",
    )
    temperature: float = Field(gt=0, description="Divides the logits.")
    top_p: float = Field(gt=0, le=1, description="Share of the probability that tokens are drawn from.")
    max_tokens: int = Field(ge=1, description="Tokens of a text, at most.")
    batch: int = Field(ge=1, description="Texts that are written side by side.")

    @model_validator(mode="after")
    def _something_to_correct(self) -> "DecodeSettings":
        if self.corrections >= self.samples:
            raise ValueError("decode.corrections must be below decode.samples: a first text comes before a correction")
        return self


class GaussianHistogram(_Settings):
    """Noise on every count: the cost does not depend on how many parents are taken."""

    kind: Literal["gaussian"] = Field(description="How parents are selected.")
    neighbours: int = Field(
        ge=1, description="Nearest candidates that each record votes for, k, 1 / sqrt(k) each; 1 is as published."
    )


class LimitedDomain(_Settings):
    """Parents picked one by one among the candidates with the most votes, as published, with the corrected cost."""

    kind: Literal["limited_domain"] = Field(description="How parents are selected.")
    domain: int = Field(ge=1, description="Candidates with the most votes that can be picked, Kbar.")
    delta_share: float = Field(
        gt=0,
        le=0.5,
        description="Share of delta that the thresholds of all rounds may take; the rest converts rho. All releases of "
        "a data set together may take half, and a small share costs few votes.",
    )


class Eda(_Settings):
    """The distribution that offspring are drawn from."""

    smoothing: float = Field(ge=0, le=1, description="Weight of the best and the worst parents, alpha.")
    best: int = Field(ge=1, description="Parents whose spread counts beside that of all, R.")
    components: int = Field(ge=1, description="Gaussians, each fitted to the parents nearest to it; 1 is as published.")


class Readable(_Settings):
    """Which decoded parents may have offspring: those that the public language model finds likely enough."""

    quantile: float | None = Field(
        gt=0, le=1, description="Held-out public text whose perplexity is not above the limit; null: use `perplexity`."
    )
    perplexity: float | None = Field(gt=1, description="The limit itself; 50, as published, means GPT-2's.")

    @model_validator(mode="after")
    def _one_limit(self) -> "Readable":
        if (self.quantile is None) == (self.perplexity is None):
            raise ValueError("readable needs either quantile or perplexity, and the other null")
        return self


class Aim(_Settings):
    """A look at the mean embedding of each label that chooses the first population and the final texts."""

    share: float = Field(gt=0, lt=1, description="Share of the budget (rho) that it may take.")
    domain: float = Field(gt=0, le=1, description="Share of the texts that is in a label's domain.")
    pool: int = Field(ge=1, description="Texts decoded for each row of the result; the likeliest of a label are kept.")


class EmbedSettings(Counted):
    """Evolution of embeddings: records vote for vectors, and a public decoder writes the last ones down."""

    rounds: int = Field(ge=1, description="Rounds of votes, T.")
    start: int = Field(ge=1, description="Public texts of each label that the first round votes for.")
    offspring: int = Field(ge=1, description="New embeddings of each label that every later round votes for.")
    parents: int = Field(ge=1, description="Embeddings of each label that a round selects, at most.")
    selection: Annotated[GaussianHistogram | LimitedDomain, Field(discriminator="kind")]
    eda: Eda
    readable: Readable | None = Field(description="Perplexity filter of parents and of the result; null: none.")
    aim: Aim | None = Field(
        description="Noisy class means that choose where to start and what to keep; null: votes alone."
    )
    decode: DecodeSettings
    filters: Filters

    @model_validator(mode="after")
    def _sizes_fit(self) -> "EmbedSettings":
        fewest = min(self.start, self.offspring)
        if self.parents > fewest:
            raise ValueError(f"parents is {self.parents}; allowed is at most start and offspring, {fewest}")
        if isinstance(self.selection, LimitedDomain) and self.parents > self.selection.domain:
            raise ValueError(f"parents is {self.parents}; allowed is at most selection.domain, {self.selection.domain}")
        return self

    @model_validator(mode="after")
    def _shares_leave_something(self) -> "EmbedSettings":
        if self.aim is not None and self.aim.share + self.histogram_share >= 1.0:
            raise ValueError("aim.share and histogram_share leave nothing for the votes; lower one of them")
        return self

    @model_validator(mode="after")
    def _filters_that_need_no_model(self) -> "EmbedSettings":
        if unusable := {"label", "perplexity"} & set(self.filters.chain):
            raise ValueError(
                f"filters.chain names {sorted(unusable)}; method embed has length, personal_data, duplicates, and "
                "`readable`"
            )
        return self


class SentDpSettings(Counted):
    """Public texts picked by the exponential mechanism among those deep in the cloud of a label's rows."""

    directions: int = Field(ge=1, description="Public random directions that the depth of a text is taken over.")


class CusTextSettings(_Settings):
    """Each word of each private row replaced by a draw from its public neighbours: token-level privacy, no more."""

    token_epsilon: float = Field(gt=0, description="Epsilon of one word. It says nothing about a whole record.")
    neighbours: int = Field(ge=2, description="Words of the public map that a word may become, its own included.")
    vocabulary: int = Field(ge=2, description="Most frequent public words that the map holds.")
