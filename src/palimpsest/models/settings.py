"""Settings of the models that public text makes: the small language model, its prompts, its pairs."""

from typing import Literal

from pydantic import Field, model_validator

from palimpsest.settings import Settings

Precision = Literal["float32", "bf16"]
_WEIGHT_DECAY = 0.01


class Schooling(Settings):
    """How a model is trained on public text, in the ordinary way."""

    epochs: float = Field(default=2, gt=0, description="Passes over the public texts.")
    batch: int = Field(default=64, ge=1, description="Texts per step.")
    learning_rate: float | None = Field(
        default=None, gt=0, description="Peak learning rate of AdamW; null: as suits a pretrained model of its size."
    )
    precision: Precision = Field(
        default="float32",
        description="Of products; weights are float32. bf16 suits a pretrained model on a GPU or AVX512-BF16.",
    )

    def decay(self) -> float:
        """Weight decay of AdamW on matrices."""
        return _WEIGHT_DECAY


class EmbeddedLm(Schooling):
    """The small language model that is trained on public text where no pretrained one is named."""

    layers: int = Field(default=4, ge=1, description="Transformer blocks.")
    width: int = Field(default=192, ge=8, description="Width of the hidden states; a multiple of `heads`.")
    heads: int = Field(default=4, ge=1, description="Attention heads.")
    vocabulary: int = Field(
        default=4096, ge=259, description="Tokens of the byte-level BPE vocabulary, fitted on public text."
    )
    context: int = Field(ge=8, description="Longest sequence in tokens, prompt included.")
    epochs: float = Field(default=4, gt=0, description="Passes over the public training text.")
    learning_rate: float = Field(default=0.002, gt=0, description="Peak learning rate of AdamW.")
    batch: int = Field(default=32, ge=1, description="Texts per step.")
    weight_decay: float = Field(default=_WEIGHT_DECAY, ge=0, description="Weight decay of AdamW on matrices.")

    @model_validator(mode="after")
    def _heads_divide_width(self) -> "EmbeddedLm":
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads, got {self.width!r} and {self.heads!r}")
        return self

    def decay(self) -> float:
        """Weight decay of AdamW on matrices."""
        return self.weight_decay


class PromptWarmUp(Schooling):
    """Public text behind the prompt of its nearest label, so that the base model knows what a prompt is. Free.

    A named model is left as it is unless this is asked for. Then a copy learns, and what judges or filters reads the
    model as it was.
    """

    epochs: float = Field(default=2, ge=0, description="Passes over the public text; 0 leaves the base model as it is.")
    max_tokens: int = Field(default=64, ge=1, description="Tokens kept of a text.")


class Similar(Schooling):
    """Public pairs of neighbouring texts, on which a base model learns to go on with a similar text. Free."""

    batch: int = Field(default=64, ge=1, description="Rows per step.")
    max_tokens: int = Field(ge=1, description="Tokens kept of a text.")
    neighbours: int = Field(
        default=2, ge=1, description="Nearest public texts, by the sentence encoder, that stand before each."
    )
