"""Settings of methods that choose texts by a metered look: `select`, `vote_select` and `evolve`."""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from palimpsest.params.dp_lm import Filters


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Counted(_Settings):
    """What every method that chooses rows label by label is told."""

    rows: int = Field(ge=1, description="Synthetic rows over all labels.")
    label_counts: Literal["noisy", "prior"] = Field(
        description="Rows of each label: by a noisy histogram, charged, or by the public `prior`, free."
    )
    prior: Mapping[str, float] | None = Field(description="Public share of each label; null means equal shares.")
    histogram_share: float = Field(gt=0, lt=1, description="Share of the budget (rho) that the histogram may take.")
    batch: int = Field(
        ge=1,
        description="Private texts that the encoder reads at once; with 1 none moves another's embedding by rounding.",
    )

    @model_validator(mode="after")
    def _prior_is_a_distribution(self) -> "Counted":
        if self.prior is not None and (min(self.prior.values()) < 0 or sum(self.prior.values()) <= 0):
            raise ValueError("prior must hold shares >= 0 with a sum > 0")
        return self


class Votes(_Settings):
    """How records vote for the candidates of their label, and what is made of the noisy counts."""

    neighbours: int = Field(
        ge=1, description="Nearest candidates that each record votes for, k, 1 / sqrt(k) each; 1 is as published."
    )
    threshold: float = Field(ge=0, description="Noisy counts below it count as 0, H, in votes.")
    selection: Literal["rank", "sample"] = Field(
        description="rank: the candidates with the largest noisy counts. sample: draws in proportion to them."
    )


class SelectSettings(Counted):
    """Public texts chosen by noisy class means."""

    domain: float = Field(
        gt=0, le=1, description="Share of the candidates that is in a label's domain: those nearest its rows' mean."
    )


class VoteSelectSettings(_Settings):
    """Rows of another variant, chosen by one noisy vote."""

    keep: float = Field(gt=0, le=1, description="Share of each label's rows that is kept.")
    votes: Votes
    batch: int = Field(
        ge=1,
        description="Private texts that the encoder reads at once; with 1 none moves another's embedding by rounding.",
    )


class Steering(_Settings):
    """A look at the mean embedding of each label, before the first round, that says which candidates to keep."""

    share: float = Field(gt=0, lt=1, description="Share of the budget (rho) that it may take.")
    domain: float = Field(
        gt=0, le=1, description="Share of what is written that is in a label's domain: what is nearest its rows' mean."
    )
    first: int = Field(ge=1, description="New texts for each place in the first population; the likeliest are kept.")
    pool: int = Field(ge=1, description="Variations for each place in a later one; the likeliest of a label are kept.")


class EvolveSettings(Counted):
    """Private evolution (Aug-PE)."""

    rounds: int = Field(ge=1, description="Rounds of votes, T.")
    expand: int = Field(ge=1, description="Candidates for each row, L: a selected text and L - 1 variations of it.")
    look_ahead: int = Field(
        ge=0, description="Variations whose mean embedding, with its own, a candidate is voted by, K; 0: its own alone."
    )
    votes: Votes
    steering: Steering | None = Field(description="Noisy class means that steer what is kept; null: votes alone.")
    filters: Filters

    @model_validator(mode="after")
    def _shares_leave_something(self) -> "EvolveSettings":
        if self.steering is not None and self.steering.share + self.histogram_share >= 1.0:
            raise ValueError("steering.share and histogram_share leave nothing for the votes; lower one of them")
        return self

    @model_validator(mode="after")
    def _filters_that_need_no_model(self) -> "EvolveSettings":
        if unusable := {"label", "perplexity"} & set(self.filters.chain):
            raise ValueError(
                f"filters.chain names {sorted(unusable)}; method evolve has length, personal_data, duplicates"
            )
        return self
