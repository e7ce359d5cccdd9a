"""Settings of the embedded language model and of the `dp_lm` generator. Every value is written in params.yaml."""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class EmbeddedLm(_Settings):
    """The small language model that is trained on public text where no pretrained one is named."""

    layers: int = Field(ge=1, description="Transformer blocks.")
    width: int = Field(ge=8, description="Width of the hidden states; a multiple of `heads`.")
    heads: int = Field(ge=1, description="Attention heads.")
    vocabulary: int = Field(ge=259, description="Tokens of the byte-level BPE vocabulary, fitted on public text.")
    context: int = Field(ge=8, description="Longest sequence in tokens, prompt included.")
    epochs: float = Field(gt=0, description="Passes over the public training text.")
    batch: int = Field(ge=1, description="Texts per step.")
    learning_rate: float = Field(gt=0, description="Peak learning rate of AdamW.")
    warmup: float = Field(ge=0, lt=1, description="Share of the steps in which the learning rate rises.")
    schedule: Literal["constant", "linear", "cosine"] = Field(description="Decay of the learning rate after warm-up.")
    weight_decay: float = Field(ge=0, description="Weight decay of AdamW on matrices.")

    @model_validator(mode="after")
    def _heads_divide_width(self) -> "EmbeddedLm":
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads, got {self.width!r} and {self.heads!r}")
        return self


class PromptWarmUp(_Settings):
    """Public text behind the prompt of its nearest label, so that the base model knows what a prompt is. Free."""

    epochs: float = Field(ge=0, description="Passes over the public text; 0 leaves the base model as it is.")
    batch: int = Field(ge=1, description="Texts per step.")
    learning_rate: float = Field(gt=0, description="Peak learning rate of AdamW.")
    warmup: float = Field(ge=0, lt=1, description="Share of the steps in which the learning rate rises.")
    schedule: Literal["constant", "linear", "cosine"] = Field(description="Decay of the learning rate after warm-up.")
    weight_decay: float = Field(ge=0, description="Weight decay of AdamW on matrices.")
    max_tokens: int = Field(ge=1, description="Tokens kept of a text.")


class DpLmTrain(_Settings):
    """How `dp_lm` is fitted to private rows."""

    epochs: float = Field(gt=0, description="Expected passes over the private rows.")
    batch: int = Field(ge=1, description="Expected batch size; the sampling rate is batch / n_public.")
    learning_rate: float = Field(gt=0, description="Peak learning rate of DP-AdamW.")
    schedule: Literal["constant", "linear"] = Field(description="Decay of the learning rate after warm-up, to 0.")
    warmup: float = Field(ge=0, lt=1, description="Share of the steps in which the learning rate rises.")
    betas: tuple[float, float] = Field(description="AdamW's decay rates of the two moments.")
    adam_eps: float = Field(gt=0, description="AdamW's epsilon, added to the root of the second moment.")
    weight_decay: float = Field(ge=0, description="AdamW's weight decay.")
    noise_correction: bool = Field(
        description="Take the noise's known variance out of AdamW's second moment (DP-AdamBC). Free; `adam_eps` then "
        "bounds a step and should be near the size of a gradient's signal."
    )
    clipping: Literal["joint", "separate"] = Field(
        description="joint: one gradient per record, of both losses together. separate: one clipped gradient per "
        "loss, as published, charged as the sensitivity sqrt(2) C that it is."
    )
    clipping_norm: float = Field(gt=0, description="Largest L2 norm of one record's gradient, C.")
    discriminator_weight: float = Field(ge=0, description="Weight of the discriminator's loss, lambda.")
    discriminator_width: int = Field(ge=1, description="Hidden units of the discriminator's MLP.")
    prefix_step: int = Field(ge=1, description="The discriminator classifies every `prefix_step`-th text prefix.")
    loss_on: Literal["text", "all"] = Field(description="Tokens that the LM loss counts: the text's, or all.")
    freeze_first: int = Field(ge=0, description="First transformer blocks that stay as they are.")
    freeze_last: int = Field(ge=0, description="Last transformer blocks that stay as they are.")
    freeze_embeddings: bool = Field(
        description="Keep the token and position embeddings, and a head tied to them, as the public model has them: "
        "fewer trained parameters mean less noise."
    )
    max_tokens: int = Field(ge=1, description="Tokens kept of a text; the rest is cut.")
    micro_batch: int = Field(ge=1, description="Rows whose gradients are in memory at once.")
    precision: Literal["float32", "bf16"] = Field(
        description="Of the forward and backward passes; norms, clipping, noise and weights are float32 always."
    )
    checkpoint_steps: int = Field(
        ge=1,
        description="Steps from one checkpoint to the next. A stopped training continues from the last one under the "
        "same charge; at most these steps are lost.",
    )
    label_counts: Literal["noisy", "prior"] = Field(
        description="Shares of the labels: a noisy histogram, charged, or the public `prior`, free."
    )
    prior: Mapping[str, float] | None = Field(description="Public share of each label; null means equal shares.")
    histogram_share: float = Field(gt=0, lt=1, description="Share of the budget (rho) that the histogram may take.")

    @model_validator(mode="after")
    def _prior_is_a_distribution(self) -> "DpLmTrain":
        if self.prior is not None and (min(self.prior.values()) < 0 or sum(self.prior.values()) <= 0):
            raise ValueError("prior must hold shares >= 0 with a sum > 0")
        return self

    @model_validator(mode="after")
    def _separate_needs_two_losses(self) -> "DpLmTrain":
        if self.clipping == "separate" and not self.discriminator_weight:
            raise ValueError("clipping separate needs a discriminator_weight > 0; with one loss use joint")
        return self


class DpLmGenerate(_Settings):
    """How synthetic rows are drawn from a fitted `dp_lm`. All of it is post-processing."""

    rows: int = Field(ge=1, description="Synthetic rows to draw, over all labels.")
    batch: int = Field(ge=1, description="Texts written side by side.")
    max_tokens: int = Field(ge=1, description="Longest text in tokens.")
    top_p: float = Field(gt=0, le=1, description="Nucleus sampling: smallest set of tokens with this probability.")
    temperature: float = Field(gt=0, description="Divides the logits before sampling.")
    iterations: int = Field(ge=0, description="PPLM gradient steps per token; 0 samples from the prompt alone.")
    step_size: float = Field(gt=0, description="Length of one PPLM step.")
    gamma: float = Field(ge=0, description="PPLM divides the gradient by its norm to this power.")
    kl_scale: float = Field(ge=0, description="Weight of staying close to the unsteered next-token distribution.")
    gm_scale: float = Field(ge=0, le=1, description="Exponent of the steered distribution in the geometric mean.")
    horizon: int = Field(ge=0, description="Soft look-ahead tokens that the discriminator also reads.")


class DpLmSettings(_Settings):
    """Both halves of `dp_lm`."""

    train: DpLmTrain
    generate: DpLmGenerate
