"""Settings that several methods share."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, model_validator

from palimpsest.models.settings import Precision
from palimpsest.settings import CHAIN, TEXT_CHAIN, WITH_LABELS, Settings

# An asset that counts in Gaussian DP reserves a tenth of delta for its releases' own deltas: this is paid from it.
DELTA_SHARE = 0.02

FilterName = Literal["length", "personal_data", "duplicates", "perplexity", "label"]
Chain = Annotated[
    tuple[FilterName, ...],
    Field(description="Names of the filters that run, in order; each sees what the ones before it kept."),
]


class Filters(Settings):
    """Free post-processing of drawn texts: what is removed, in which order."""

    chain: Chain = CHAIN
    min_words: int = Field(default=2, ge=0, description="length: fewest words.")
    max_words: int | None = Field(default=None, ge=1, description="length: most words; null means no limit.")
    similarity: float = Field(default=0.9, gt=0, le=1)
    """duplicates: Jaccard similarity of two texts that are alike."""
    quantile: float = Field(default=0.95, gt=0, lt=1)
    """perplexity: a text may be as unlikely as this quantile of held-out public text is."""
    threshold: float = Field(default=0.5, ge=0, lt=1, description="label: least probability of the wanted label.")

    @model_validator(mode="after")
    def _check_chain(self) -> "Filters":
        if len(set(self.chain)) < len(self.chain):
            raise ValueError(f"chain names each filter once, got {list(self.chain)}")
        if "length" in self.chain and self.max_words is not None and self.max_words < self.min_words:
            raise ValueError(f"max_words is {self.max_words}; allowed is at least min_words, {self.min_words}")
        return self


class TextFilters(Filters):
    """Free post-processing of drawn texts: what is removed, in which order."""

    chain: Annotated[Chain, TEXT_CHAIN] = CHAIN


def _refuse_filters(*unusable: str) -> AfterValidator:
    """Return a validator that refuses these filters, for methods without a model to judge by."""

    def usable(filters: Filters) -> Filters:
        if named := sorted({*unusable} & {*filters.chain}):
            others = ", ".join(name for name in get_args(FilterName) if name not in unusable)
            raise ValueError(f"chain names {named}; this method has {others}")
        return filters

    return AfterValidator(usable)


_UNJUDGED, _MODEL_FREE = _refuse_filters("label"), _refuse_filters("label", "perplexity")
UnjudgedFilters = Annotated[Filters, _UNJUDGED]
UnjudgedTextFilters = Annotated[TextFilters, _UNJUDGED]
ModelFreeFilters = Annotated[Filters, _MODEL_FREE]
ModelFreeTextFilters = Annotated[TextFilters, _MODEL_FREE]


def _check_distribution(prior: Mapping[str, float] | None) -> Mapping[str, float] | None:
    if prior is not None and (min(prior.values(), default=0.0) < 0 or sum(prior.values()) <= 0):
        raise ValueError("prior must hold shares >= 0 with a sum > 0")
    return prior


def leaves_something(settings: Any) -> Any:
    """A validator: histogram and class means must not take the whole budget."""
    if settings.class_means is not None and settings.class_means.share + settings.histogram_share >= 1.0:
        raise ValueError("class_means.share and histogram_share leave nothing of the budget; lower one of them")
    return settings


Rows = Annotated[int, Field(ge=1, description="Synthetic rows over all labels.")]
LabelCounts = Annotated[
    Literal["noisy", "prior"],
    Field(description="Shares of the labels: a noisy histogram, charged, or the public `prior`, free."),
]
PublicShares = Annotated[
    Mapping[str, float] | None,
    AfterValidator(_check_distribution),
    Field(description="Public share of each label; null means equal shares."),
]
HistogramShare = Annotated[
    float, Field(gt=0, lt=1, description="Share of the budget (rho) that the histogram may take.")
]
Joint = Annotated[
    str, Field(min_length=1, description="Task span: stands between a record's label, which comes first, and its text.")
]
Ends = Annotated[
    Literal["eos", "line"], Field(description="What ends a written text: the model's end of text, or a new line too.")
]
EncodedBatch = Annotated[
    int,
    Field(
        ge=1,
        description="Private texts that the encoder reads at once; with 1 none moves another's embedding by rounding.",
    ),
]
VotesEach = Annotated[
    int,
    Field(ge=1, description="Nearest candidates that each record votes for, k, 1 / sqrt(k) each; 1 is as published."),
]


class Counted(Settings):
    """Settings of every method that chooses rows label by label."""

    rows: Rows = 1000
    label_counts: LabelCounts = "noisy"
    prior: PublicShares = None
    histogram_share: HistogramShare = 0.01
    batch: EncodedBatch = 1


class ClassMeansSettings(Settings):
    """A look at the mean embedding of each label, which says what of the public or written texts to keep."""

    share: float = Field(default=0.5, gt=0, lt=1, description="Share of the budget (rho) that it may take.")
    domain: float = Field(default=0.75, gt=0, le=1)
    """Share of the texts that is in a label's domain: those nearest its rows' mean."""


class InRounds(Counted):
    """Settings of every method in rounds of votes."""

    rounds: int = Field(default=4, ge=1, description="Rounds of votes, T.")
    class_means: Annotated[ClassMeansSettings | None, WITH_LABELS]

    _leaves_something = model_validator(mode="after")(leaves_something)


class Votes(Settings):
    """How records vote for the candidates of their label, and what is made of the noisy counts."""

    neighbours: VotesEach = 10
    threshold: float = Field(default=0.0, ge=0, description="Noisy counts below it count as 0, H, in votes.")
    selection: Literal["rank", "sample"] = "rank"
    """rank: the candidates with the largest noisy counts. sample: draws in proportion to them."""


WritesIn = Annotated[
    Precision,
    Field(description="Of the language model while it writes; bf16 suits a pretrained model on a GPU or AVX512-BF16."),
]
