"""Settings of method dp_lm: DP-SGD training, discriminators, ways of drawing."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from palimpsest.methods.shared.settings import Filters, HistogramShare, LabelCounts, PublicShares
from palimpsest.models.settings import BARE, Precision
from palimpsest.settings import TEXT, Follows, Settings, by_labels, near_a_twelfth, shown

TUNED = "tuned"  # what a discriminator reads that is a language model of its own

Epochs = Annotated[float, Field(gt=0, allow_inf_nan=False, description="Expected passes over the private rows.")]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False, description="Peak learning rate of DP-AdamW.")]
_WarmUp = Annotated[float, Field(ge=0, lt=1, description="Share of the steps in which the learning rate rises.")]
Norm = Annotated[
    float,
    Field(ge=1e-100, le=1e100, allow_inf_nan=False, description="Largest L2 norm of what one unit of privacy adds, C."),
]
MicroBatch = Annotated[int, Field(ge=1, description="Rows whose gradients are in memory at once; always that many.")]
Batch = Annotated[
    int, Field(ge=1, description="Expected batch size, in units of privacy; the sampling rate is batch / n.")
]
_MaxTokens = Annotated[int, Field(ge=1, description="Tokens kept of a text; the rest is cut.")]
_TWELFTH = "about a twelfth of the units of privacy: a power of two from 16 to 1,024"


class DpSgd(Settings):
    """Settings of every training with DP-SGD. A key without a default here has one for each model that is trained."""

    epochs: Epochs
    batch: Batch
    learning_rate: Rate
    schedule: Literal["constant", "linear"] = "linear"
    """Decay of the learning rate after warm-up, to 0."""
    warmup: _WarmUp
    betas: tuple[float, float] = Field(default=(0.9, 0.98), description="AdamW's decay rates of the two moments.")
    adam_eps: float = Field(default=1e-8, gt=0, allow_inf_nan=False)
    """AdamW's epsilon, added to the root of the second moment."""
    noise_correction: bool = False
    """Take the noise's known variance out of AdamW's second moment (DP-AdamBC). Free; `adam_eps` then bounds a step and
    should be near the size of a gradient's signal."""
    clipping_norm: Norm
    max_tokens: _MaxTokens = 64
    micro_batch: MicroBatch
    person: Literal["joint", "rows"] = "joint"
    """How a person's rows are clipped where `dataset.unit` names a column. joint: the gradient of their mean loss,
    once. rows: each row's gradient, and their mean is added. Either way a person adds C at most."""
    checkpoint_steps: int = Field(default=50, ge=1)
    """Steps from one checkpoint to the next, at most a quarter of all. A stopped training continues from the last one
    under the same charge; at most these steps are lost."""


class DpLmTrain(DpSgd):
    """How a language model is fitted to private rows."""

    epochs: Epochs = 6
    batch: Annotated[Batch, Follows(_TWELFTH, lambda stated, _: near_a_twelfth(stated))]
    learning_rate: Rate = 0.002
    warmup: _WarmUp = 0.05
    clipping_norm: Norm = 0.1
    max_tokens: Annotated[_MaxTokens, TEXT] = 64
    micro_batch: int = Field(default=16, ge=1)
    """Rows whose gradients are in memory at once; always that many, or as few as leave 2^26 logits of a head that
    trains."""
    clipping: Literal["joint", "separate"] = "joint"
    """joint: one gradient per record, of both losses together. separate: one clipped gradient per loss, as published,
    charged as the sensitivity sqrt(2) C that it is."""
    discriminator_weight: Annotated[float, by_labels(1.0, 0.0)] = Field(ge=0, allow_inf_nan=False)
    """Weight of the discriminator's loss, lambda; 0 trains the language model alone."""
    discriminator_learning_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Peak learning rate of the discriminator: with `clipping: separate` of the AdamW of its loss, as published; with
    joint of the head's weights alone. null: as `learning_rate`."""
    discriminator_width: int = Field(default=0, ge=0)
    """Hidden units of the discriminator's MLP; 0 makes it linear, which little noise suits."""
    discriminator_reads: Literal["hidden", "last", "both"] = "both"
    """hidden: the mean last hidden state of a prefix. last: that of its last token alone, as published. both: the mean
    token embedding beside the mean state."""
    prefix_step: int = Field(default=4, ge=1)
    """The discriminator classifies every `prefix_step`-th text prefix."""
    loss_on: Literal["text", "all"] = "text"
    """Tokens that the LM loss counts: the text's, or all."""
    prompt: str = BARE
    """What stands before a text; may name {label}, {description} and {separator}. In words for a named model
    (`models.words`)."""
    freeze_first: int = Field(default=0, ge=0, description="First transformer blocks that stay as they are.")
    freeze_last: int = Field(default=0, ge=0, description="Last transformer blocks that stay as they are.")
    freeze_embeddings: bool = True
    """Keep the token and position embeddings, and a head tied to them, as the public model has them: fewer trained
    parameters mean less noise."""
    lora_rank: int = Field(default=0, ge=0)
    """Rank of the adapters that train in place of the transformer's matrices (LoRA), merged into them afterwards; 0
    trains the matrices themselves. Needs the extra `lora`."""
    soft_prompt: int = Field(default=0, ge=0)
    """Vectors before every text that train in place of all weights of the language model (prompt tuning); 0 has none.
    They want a larger `learning_rate`, such as 0.03."""
    precision: Precision = "float32"
    """Of the forward and backward passes, and with `lora_rank` or `soft_prompt` of the weights that stay as they are;
    norms, clipping, noise and the weights that train are float32 always."""
    label_counts: LabelCounts = "noisy"
    prior: PublicShares = None
    histogram_share: HistogramShare = 0.01
    fields_share: float = Field(default=0.1, gt=0, lt=1)
    """Share of rho for tables of the label and the fields, where records have fields: rows are drawn under them, and no
    histogram of labels is asked beside them."""

    @model_validator(mode="after")
    def _separate_needs_two_losses(self) -> "DpLmTrain":
        if self.clipping == "separate" and not self.discriminator_weight:
            raise ValueError("clipping separate needs a discriminator_weight > 0; with one loss use joint")
        return self

    @model_validator(mode="after")
    def _a_rate_needs_a_discriminator(self) -> "DpLmTrain":
        if self.discriminator_learning_rate is not None and not self.discriminator_weight:
            raise ValueError("discriminator_learning_rate needs a discriminator_weight > 0; leave it null without one")
        return self

    @model_validator(mode="after")
    def _adapters_replace_freezing(self) -> "DpLmTrain":
        if self.lora_rank and (self.freeze_first or self.freeze_last or not self.freeze_embeddings):
            raise ValueError(
                "lora_rank trains adapters alone: set freeze_first and freeze_last 0, freeze_embeddings true"
            )
        return self

    @model_validator(mode="after")
    def _a_soft_prompt_trains_alone(self) -> "DpLmTrain":
        others = self.lora_rank or self.freeze_first or self.freeze_last or not self.freeze_embeddings
        if self.soft_prompt and others:
            raise ValueError(
                "soft_prompt trains no weight of the model: set lora_rank, freeze_first and freeze_last 0, "
                "freeze_embeddings true"
            )
        return self


def _as_lm(key: str, head: Any) -> Follows:
    """Return one default for a head and, for a discriminator that is a language model of its own, that of one."""
    model = DpLmTrain.model_fields[key].default
    words = f"{shown(head)}; with `reads: {TUNED}` {shown(model)}"
    return Follows(words, lambda _, written: model if written.get("reads") == TUNED else head)


_ALL_UNITS = Follows(
    f"the number of units of privacy; with `reads: {TUNED}` {_TWELFTH}",
    lambda stated, written: near_a_twelfth(stated) if written.get("reads") == TUNED else stated.units,
)


class DiscriminatorTrain(DpSgd):
    """How a discriminator is fitted to private rows, on features that stay as they are."""

    epochs: Annotated[Epochs, _as_lm("epochs", 40)] = 40
    batch: Annotated[Batch, _ALL_UNITS]
    learning_rate: Annotated[Rate, _as_lm("learning_rate", 0.01)] = 0.01
    warmup: Annotated[_WarmUp, _as_lm("warmup", 0.0)] = 0.0
    clipping_norm: Annotated[Norm, _as_lm("clipping_norm", 0.5)] = 0.5
    micro_batch: Annotated[MicroBatch, _as_lm("micro_batch", 2048)] = 2048
    reads: Literal["hidden", "last", "both", "encoder", "tuned"] = "encoder"
    """hidden: the language model's mean last hidden state. last: that of the last token alone. both: the mean token
    embedding beside the mean state. encoder: the public sentence encoder `models.encoder`. tuned: a copy of the whole
    language model that is tuned too and reads the last token's state, as published of the filter. These two can judge
    texts but not steer tokens."""
    width: int = Field(default=0, ge=0)
    """Hidden units of the MLP; 0 makes it linear, which little noise suits."""
    prefix_step: int = Field(default=4, ge=1)
    """Classify every `prefix_step`-th text prefix; `encoder` and `tuned` whole texts only."""
    lora_rank: int = Field(default=0, ge=0)
    """With `reads: tuned` the rank of the adapters that train in place of the copy's matrices, merged into them
    afterwards; 0 trains all but its embeddings. Needs the extra `lora`."""

    @model_validator(mode="after")
    def _adapters_are_of_a_copy(self) -> "DiscriminatorTrain":
        if self.lora_rank and self.reads != TUNED:
            raise ValueError("lora_rank is for a language model that is tuned: set reads to tuned, or lora_rank to 0")
        return self


class DpLmGenerate(Settings):
    """How synthetic rows are drawn from a fitted `dp_lm`. All of it is post-processing."""

    rows: int = Field(default=1000, ge=1, description="Synthetic rows to draw, over all labels.")
    batch: int = Field(default=100, ge=1, description="Texts written side by side.")
    max_tokens: Annotated[int, TEXT] = Field(default=64, ge=1, description="Longest text in tokens.")
    top_p: float = Field(default=0.95, gt=0, le=1)
    """Nucleus sampling: smallest set of tokens with this probability."""
    top_k: int = Field(default=0, ge=0, description="Draw from the likeliest `top_k` tokens only; 0 means all.")
    temperature: float = Field(default=1.0, gt=0, description="Divides the logits before sampling.")
    precision: Precision = "float32"
    """Of the language model while it writes; bf16 is 1.6 times as fast on a processor with AVX512-BF16. Gradients that
    steer (pplm, multitask) need float32."""
    seed: int = Field(default=0, ge=0, description="Another number draws other texts of the same model, free.")
    best_of: int = Field(default=1, ge=1)
    """Texts drawn for each row; the likeliest to carry its label is kept."""
    draws: int = Field(default=20, ge=1, description="Give up once the filters made this many draws per row necessary.")
    iterations: int = Field(default=3, ge=0, description="PPLM: gradient steps per token.")
    step_size: float = Field(default=0.04, gt=0, description="PPLM: length of one step.")
    gamma: float = Field(default=1.0, ge=0, description="PPLM: the gradient is divided by its norm to this power.")
    kl_scale: float = Field(default=0.01, ge=0)
    """PPLM: weight of staying close to the unsteered distribution."""
    gm_scale: float = Field(default=0.95, ge=0, le=1)
    """PPLM: exponent of the steered distribution in the geometric mean."""
    horizon: int = Field(default=1, ge=0, description="PPLM: soft look-ahead tokens that the discriminator also reads.")
    candidates: int = Field(default=16, ge=2)
    """FUDGE: likeliest next tokens that the discriminator reweights."""
    strength: float = Field(default=1.0, ge=0, description="FUDGE: exponent of the label's probability.")
    filters: Filters = Filters()


@dataclass(frozen=True)
class Kind:
    """A row of the paper's table.

    Attributes:
        steering: how tokens are chosen: "plain" (as the model has them), "pplm", "fudge" or "state".
        head: the discriminator it needs: "none", "own" (trained after the language model) or "joint" (with it).
    """

    steering: str
    head: str


VARIANTS = {
    "plain": Kind("plain", "none"),
    "filter": Kind("plain", "own"),
    "pplm": Kind("pplm", "own"),
    "multitask": Kind("pplm", "joint"),
    "fudge": Kind("fudge", "joint"),
    "fudge_state": Kind("state", "joint"),
}
