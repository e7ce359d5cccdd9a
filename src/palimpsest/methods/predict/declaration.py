"""Declaration of method predict, and its settings."""

import math
from functools import partial
from typing import Annotated, Literal

from pydantic import Field, model_validator

from palimpsest.methods.shared.base import Budget, Fit, Plan
from palimpsest.methods.shared.method import WRITTEN, Basis, Family, Method, Reads, Resumes, Tools
from palimpsest.methods.shared.settings import (
    ClassMeansSettings,
    EncodedBatch,
    Ends,
    HistogramShare,
    Joint,
    LabelCounts,
    PublicShares,
    UnjudgedTextFilters,
    leaves_something,
)
from palimpsest.models.settings import Precision, Words
from palimpsest.records.schema import PublicSchema
from palimpsest.settings import RECORD, WITH_LABELS, Follows, Settings, by_json

_MOST_CONTEXTS, _FEWEST_CONTEXTS = 32, 8
_BATCH = Follows(
    f"a 64th of the units of privacy, from {_FEWEST_CONTEXTS} to {_MOST_CONTEXTS}",
    lambda stated, _: min(max(stated.units // 64, _FEWEST_CONTEXTS), _MOST_CONTEXTS),
)
_FEWEST_ROUNDED = 24  # of an expected number below it twice as many are no rarity, and rounding is charged for no more


class Prompt(Settings):
    """The prompts that the language model reads; a template may name {label}, {description}, {separator} and {end}."""

    private: str = Field(default="{label}{separator}{text}{separator}", min_length=1)
    """Around one record: names {text} once."""
    public: str = Field(default="{label}{separator}", min_length=1)
    """Without a record: what free tokens and differences rest on."""
    chat: bool = False
    """Put the prompts into the model's chat template (instruction-tuned models)."""
    text_tokens: Annotated[int, by_json(RECORD, 40)] = Field(ge=1, description="Tokens kept of a record's text.")
    joint: Joint = " | "
    ends: Ends = "eos"


class SparseVectorSettings(Settings):
    """Lets tokens pass for free on which private and public contexts agree (AboveThreshold)."""

    threshold: float = Field(default=0.5, ge=0, le=2, description="L1 distance of the next-token distributions, theta.")
    noise: float = Field(default=0.2, gt=0, description="Scale of its Laplace noise, nu.")
    temperature: float = Field(default=1.5, gt=0, description="Divides the public logits of a free token.")


class PredictMeans(ClassMeansSettings):
    """A look at the class means, by which the written texts are chosen and labelled anew."""

    share: float = Field(default=0.2, gt=0, lt=1, description="Share of the budget (rho) that it may take.")
    keep: float = Field(default=0.5, gt=0, le=1)
    """Share of the written texts that is kept, the likeliest of each label."""
    domain: float = Field(default=1.0, gt=0, le=1, description="Share of the written texts that counts as in domain.")
    batch: EncodedBatch = 1


class PredictSettings(Settings):
    """How text is written from batches of private contexts (paper: private prediction)."""

    clipping: Literal["fixed", "difference"] = "difference"
    """fixed: logits cut below their largest, as published. difference: their difference to the public logits is cut,
    which needs a far smaller clip (InvisibleInk)."""
    batch_size: Annotated[int, _BATCH] = Field(ge=1)
    """Expected records of a batch, or persons, s: the fixed divisor."""
    batches: int | None = Field(default=None, ge=1)
    """Batches that are written from; null: all records, or persons, / s."""
    clip: float | None = Field(default=None, gt=0)
    """Clip of one context's logits; null: what `tokens` leaves."""
    tokens: Annotated[int | None, by_json(300, 100)] = Field(ge=1)
    """Private tokens of each batch, r; null: what `clip` leaves."""
    temperature: float = Field(default=1.0, gt=0, description="Divides the averaged logits, tau.")
    top_k: int = Field(default=50, ge=0)
    """Draw from the k likeliest public tokens, with difference also from those that could be lifted as high; 0 means
    all."""
    sparse_vector: SparseVectorSettings | None = None
    """fixed: lets tokens pass for free; null means never."""
    max_tokens: Annotated[int, by_json(RECORD, 40)] = Field(ge=1, description="Longest example in tokens.")
    most_tokens: int | None = Field(default=None, ge=1)
    """Most tokens of a batch, free ones included; null: 10 times r."""
    typical_tokens: Annotated[int, by_json(150, 20)] = Field(ge=1)
    """Tokens of a typical example; only the plan reads it."""
    rows: int | None = Field(default=None, ge=1)
    """Examples wanted, before filters; only the plan reads it, and says which batch_size would write as many. null: it
    says nothing."""
    keep_unfinished: Annotated[bool, by_json(False, True)]
    """Keep the example that a batch's last token leaves unfinished."""
    together: int = Field(default=1024, ge=1)
    """Private contexts, expected at most, whose batches are written side by side."""
    micro_batch: int = Field(default=256, ge=1)
    """Contexts that one forward pass reads, on a processor 32 of them; fewer are filled up to as many."""
    precision: Precision = "float32"
    """Of the language model that reads private contexts and writes, but for its head. bf16 suits a pretrained model on
    a GPU or AVX512-BF16."""
    rounding: float | None = Field(default=None, gt=0)
    """Nats that a score may move because contexts stand beside others: charged, and listed as an assumption; with a
    batch_size of 24 or more. null: nothing; bits are tried on public prompts, and a device that moves a context's is
    refused."""
    checkpoint_tokens: int = Field(default=20, ge=1, description="Tokens a batch may lose when a run is stopped.")
    label_counts: LabelCounts = "noisy"
    prior: PublicShares = None
    histogram_share: HistogramShare = 0.01
    class_means: Annotated[PredictMeans | None, WITH_LABELS]
    """Noisy class means of the sentence encoder's embeddings choose and label what was written; null: each text keeps
    the label of its batch. For task classify."""
    prompt: Prompt
    filters: UnjudgedTextFilters

    _leaves_something = model_validator(mode="after")(leaves_something)

    @model_validator(mode="after")
    def _one_of_clip_and_tokens(self) -> "PredictSettings":
        if (self.clip is None) == (self.tokens is None):
            raise ValueError("give either clip or tokens and leave the other null: the budget decides it")
        return self

    @model_validator(mode="after")
    def _rounding_is_measured_in_float32(self) -> "PredictSettings":
        if self.rounding is not None and self.precision != "float32":
            raise ValueError("rounding is charged for float32 alone: set precision float32, or rounding null")
        if self.rounding is not None and self.batch_size < _FEWEST_ROUNDED:
            raise ValueError(f"rounding goes with a batch_size of {_FEWEST_ROUNDED} or more: smaller ones vary much")
        return self

    @model_validator(mode="after")
    def _vector_needs_fixed(self) -> "PredictSettings":
        if self.sparse_vector is not None and self.clipping != "fixed":
            raise ValueError("sparse_vector goes with clipping fixed: difference clipping has no use for it")
        return self


def _plan(settings: PredictSettings, schema: PublicSchema, budget: Budget, _basis: Basis) -> Plan:
    from palimpsest.methods.predict.plan import plan

    return plan(settings, schema, budget)


def _build(settings: PredictSettings, plan: Plan, tools: Tools) -> Fit:
    from palimpsest.methods.predict.fit import Predict
    from palimpsest.methods.shared.filters import public_perplexity

    encoders = None if settings.class_means is None else tools.encoders(settings.class_means.batch)
    tokens, batch, quantile = settings.max_tokens, settings.micro_batch, settings.filters.quantile
    measure = partial(public_perplexity, tools, tokens, batch, quantile)
    return Predict(settings, tools.schema, plan, tools.reader(), tools.key(), tools.kept, measure, encoders)


def _prompt_words(words: Words, labelled: bool) -> dict[str, str]:
    return {"private": words.prompt_with_example(labelled), "public": words.prompt(labelled), "ends": "line"}


def _problem(settings: PredictSettings, _purpose: str, epsilon: float) -> str | None:
    if math.isinf(epsilon) and settings.tokens is None:
        return "epsilon .inf leaves any number of tokens: give predict.tokens, and leave clip null"
    return None


PREDICT = Method(
    name="predict",
    stage="private_predict",
    family=Family.WRITES,
    title="One row of the results: text written by an untouched language model from batches of private contexts.",
    does="Write rows from private contexts with a public language model that never learns from them",
    tasks=("classify", "span", "text", "json"),
    settings=PredictSettings,
    plan=_plan,
    build=_build,
    reads=frozenset({Reads.READER, Reads.ENCODER, Reads.HELDOUT, Reads.BASE}),
    columns=WRITTEN,
    module=__name__,
    source="base",
    resumes=Resumes.WAVES,
    problem=_problem,
    worded=_prompt_words,
)
