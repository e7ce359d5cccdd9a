"""Settings of the models that public text makes: the small language model, its prompts, its pairs."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from palimpsest.defaults import RECORD, TRAINED_RATE, by_json, shown, text_tokens
from palimpsest.settings import Follows, Settings, Stated

Precision = Literal["float32", "bf16"]
_WEIGHT_DECAY = 0.01
_LEAST_CONTEXT, _WHOLE_CONTEXT = 128, 512  # positions of the embedded language model
PROMPT = 64  # tokens of a prompt, about
Rate = Annotated[
    float | None,
    Field(gt=0, description="Peak learning rate of AdamW; null: as suits a pretrained model of its size."),
]


def _context(stated: Stated) -> int:
    """Return the context of the embedded model: a power of two that has room for a prompt too."""
    if stated.task == "json":
        return _WHOLE_CONTEXT
    room = text_tokens(stated) + PROMPT
    return int(min(_WHOLE_CONTEXT, max(_LEAST_CONTEXT, 1 << (room - 1).bit_length())))


_CONTEXT = Follows(
    f"{shown(_LEAST_CONTEXT)}, more for longer `dataset.text_tokens`; task json: {shown(_WHOLE_CONTEXT)}",
    lambda stated, _: _context(stated),
)


class Schooling(Settings):
    """How a model is trained on public text, in the ordinary way."""

    epochs: float = Field(default=2, gt=0, description="Passes over the public texts.")
    batch: int = Field(default=64, ge=1, description="Texts per step.")
    learning_rate: Rate = None
    precision: Precision = "float32"
    """Of products; weights are float32. bf16 suits a pretrained model on a GPU or AVX512-BF16."""

    def decay(self) -> float:
        """Weight decay of AdamW on matrices."""
        return _WEIGHT_DECAY


class EmbeddedLm(Schooling):
    """The small language model that is trained on public text where no pretrained one is named."""

    layers: int = Field(default=4, ge=1, description="Transformer blocks.")
    width: int = Field(default=192, ge=8, description="Width of the hidden states; a multiple of `heads`.")
    heads: int = Field(default=4, ge=1, description="Attention heads.")
    vocabulary: int = Field(default=4096, ge=259)
    """Tokens of the byte-level BPE vocabulary, fitted on public text."""
    context: Annotated[int, _CONTEXT] = Field(ge=8, description="Longest sequence in tokens, prompt included.")
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
    learning_rate: Annotated[Rate, TRAINED_RATE] = None
    max_tokens: int = Field(default=64, ge=1, description="Tokens kept of a text.")


class Similar(Schooling):
    """Public pairs of neighbouring texts, on which a base model learns to go on with a similar text. Free."""

    batch: int = Field(default=64, ge=1, description="Rows per step.")
    learning_rate: Annotated[Rate, TRAINED_RATE] = None
    max_tokens: Annotated[int, by_json(RECORD, 40)] = Field(ge=1, description="Tokens kept of a text.")
    neighbours: int = Field(default=2, ge=1)
    """Nearest public texts, by the sentence encoder, that stand before each."""
