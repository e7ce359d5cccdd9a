"""Settings of models: the small language model and its pairs, embedding decoders, and the words of prompts.

Words are names for texts and labels, and the prompts made of them: templates for base models, which continue text. One
declaration serves all that prompt a base model: `predict`, `dp_lm`, the author `base`, and a judge. A set of words is
public and written before a row is read. It is filled only with public labels and their descriptions.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from palimpsest.settings import RECORD, TRAINED_RATE, Follows, Settings, Stated, by_json, shown, text_tokens

Precision = Literal["float32", "bf16"]
_WEIGHT_DECAY = 0.01
_LEAST_CONTEXT, _WHOLE_CONTEXT = 128, 512  # positions of the embedded language model
PROMPT = 64  # tokens of a prompt, about
Rate = Annotated[
    float | None,
    Field(gt=0, description="Peak learning rate of AdamW; null: as suits a pretrained model of its size."),
]
Named = Literal["texts", "reviews", "news", "questions", "tweets", "tickets", "notes", "json"]
_NOUN = r"^[^{}\n]+$"
_Noun = Annotated[str, Field(min_length=1, pattern=_NOUN)]

BARE = "{label}{separator}"  # the prompt that public text teaches the embedded model


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


class Words(Settings):
    """The names of a text and of its label in prompts in words."""

    text: _Noun = Field(description="What a text is called: Review.")
    label: _Noun = Field(default="Kind", description="What its label says of it: Opinion.")
    answer: str | None = Field(default=None, min_length=1, pattern=_NOUN)
    """The same to a judge: Sentiment; null: as `label`."""
    form: str | None = Field(default=None, min_length=1)
    """Task json: a record's public form, which stands first; null: the schema's keys, with examples."""

    def prompt(self, labelled: bool) -> str:
        """Return the prompt before a text: the form, if there is one, the label's description, and the text's name."""
        form = "" if self.form is None else f"{self._begins}{_escape_braces(self.form)}\n\n"
        return form + (f"{self.label}: {{description}}\n" if labelled else "") + self._begins

    def prompt_about(self, labelled: bool) -> str:
        """The prompt with phrases that the text is about."""
        return f"{self.prompt(labelled).removesuffix(self._begins)}{self.text} about {{phrases}}:\n"

    def prompt_with_example(self, labelled: bool) -> str:
        """Return the prompt with an example: the prompt, the example, and the prompt for one more, without a form."""
        again = self.model_copy(update={"form": None})
        return f"{self.prompt(labelled)}{{text}}\n\n{again.prompt(labelled)}"

    def paraphrase(self, labelled: bool) -> str:
        """Asks for a text in other words."""
        return f"{self.prompt(labelled)}{{text}}\n\nThe same in other words:\n"

    def blanks(self, labelled: bool) -> str:
        """Asks for a text whose gaps are filled."""
        return f"{self.text} with gaps:\n{{text}}\n\nThe same without gaps.\n{self.prompt(labelled)}"

    @property
    def _begins(self) -> str:
        return f"{self.text}:\n"

    @property
    def question(self) -> str:
        """Asks a judge which label a text has; the answer follows on the same line."""
        return f"{self.text}: {{text}}\n{self.answer or self.label}:"


_SETS: Mapping[Named, Words] = {
    "texts": Words(text="Text"),
    "reviews": Words(text="Review", label="Opinion", answer="Sentiment"),
    "news": Words(text="News item", label="Section"),
    "questions": Words(text="Question", label="Asks for", answer="Answer type"),
    "tweets": Words(text="Tweet", label="Topic"),
    "tickets": Words(text="Support ticket", label="Request"),
    "notes": Words(text="Medical note", label="Specialty"),
    "json": Words(text="JSON record"),
}


def _escape_braces(text: str) -> str:
    """Escape a text for a template: none of its braces is a slot."""
    return text.replace("{", "{{").replace("}", "}}")


def words_of(chosen: Words | Named) -> Words:
    """The words of a named set, or the given words.

    >>> words_of("reviews").prompt(labelled=True)
    'Opinion: {description}\\nReview:\\n'
    """
    return chosen if isinstance(chosen, Words) else _SETS[chosen]


class DecoderSettings(Schooling):
    """A model that turns a sentence embedding back into a text, trained once on public text. Free."""

    prefix: int = Field(default=4, ge=1)
    """Pseudo tokens that stand for an embedding in front of its text, k."""
    width: int = Field(default=512, ge=1, description="Hidden units of the map from an embedding to pseudo tokens.")
    epochs: float = Field(default=1.5, gt=0, description="Passes over the public sentences.")
    batch: int = Field(default=64, ge=1, description="Sentences per step.")
    learning_rate: float = Field(default=0.0008, gt=0)
    """Peak learning rate of AdamW for the language model inside."""
    max_tokens: int = Field(default=32, ge=2, description="Tokens of a sentence, at most; longer ones are left out.")
    sentences: int = Field(default=100000, ge=1, description="Public sentences to train on, at most.")
    heldout: int = Field(default=400, ge=10)
    """Held-out public sentences that measure the reconstruction, at most."""
    corrector: int = Field(default=0, ge=0)
    """Public sentences on which a corrector learns to mend what the decoder wrote; 0: there is none."""


class DecodeSettings(Settings):
    """How an embedding becomes a text."""

    samples: int = Field(default=4, ge=1)
    """Texts that are written for an embedding; the one whose own embedding is nearest is kept."""
    corrections: int = Field(default=2, ge=0)
    """Of these, texts that keep a random beginning of the best one before them and end it anew."""
    rewrites: int = Field(default=0, ge=0)
    """Of these, texts that the decoder's corrector writes anew, each shown the best one before it."""
    temperature: float = Field(default=0.7, gt=0, description="Divides the logits.")
    top_p: float = Field(default=0.9, gt=0, le=1, description="Share of the probability that tokens are drawn from.")
    max_tokens: int = Field(default=32, ge=1, description="Tokens of a text, at most.")
    batch: int = Field(default=256, ge=1, description="Texts that are written side by side.")

    @model_validator(mode="after")
    def _something_to_correct(self) -> "DecodeSettings":
        if self.corrections + self.rewrites >= self.samples:
            raise ValueError(
                "decode.corrections and decode.rewrites together must be below decode.samples: "
                "a first text comes before a correction"
            )
        return self
