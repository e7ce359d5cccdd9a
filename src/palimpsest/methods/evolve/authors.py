"""Settings of authors: who writes the candidates of private evolution. None of them sees a private row."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from palimpsest.methods.shared.settings import Ends, WritesIn
from palimpsest.models.chat.settings import Endpoint, LocalChatSettings
from palimpsest.models.settings import BARE
from palimpsest.settings import TEXT, Settings, by_labels


class Corpus(Settings):
    """The public texts themselves; a text's variations are public texts near it. Needs no language model."""

    kind: Literal["corpus"] = Field(description="Who writes.")
    neighbours: int = Field(default=20, ge=1, description="Nearest public texts that a variation is drawn from.")


class Base(Settings):
    """A public language model without instructions: it goes on with prompts, or writes anew what is cut from texts."""

    kind: Literal["base"] = Field(description="Who writes.")
    vary: Literal["suffix", "infill", "paraphrase", "blanks"] = "suffix"
    """suffix: keep the first words of a text and write the rest anew. infill: mask words one by one with probability
    `masked`, and let the model fill each gap, judged by what comes after it too. paraphrase, blanks: write a text anew
    behind the prompt of that name, which shows it whole, or with its masked words out."""
    kept: tuple[float, float] = (0.3, 0.8)
    """suffix: the share of a text's words that is kept is drawn between these two."""
    masked: float = Field(default=0.3, gt=0, lt=1, description="infill, blanks: probability of a word to be masked.")
    start: Annotated[Literal["prompt", "corpus", "whole"], by_labels("prompt", "corpus")]
    """What new texts begin with. prompt: the label's prompt alone. corpus: the first words of a public text that is
    near the label's description. whole: new texts are public ones, and variations alone are written."""
    prompt: str = BARE
    """What a new text and its variations by suffix or infill stand behind, with `start: prompt`; may name {label},
    {description} and {separator}."""
    paraphrase: str | None = Field(default=None, description="Shows {text} once and asks for it in other words.")
    blanks: str | None = Field(default=None, description="Shows {text} once, with a _ for each word that is missing.")
    shots: int = Field(default=0, ge=0)
    """blanks: public texts near the label's description that are shown masked, and then whole, before each request;
    each masked anew."""
    examples: int = Field(default=0, ge=0)
    """Public texts near the label's description that are shown before a new text."""
    ends: Ends = "eos"
    temperature: float = Field(default=1.0, gt=0, description="Sampling temperature.")
    top_p: float = Field(default=0.95, gt=0, le=1, description="Nucleus of sampling.")
    max_tokens: Annotated[int, TEXT] = Field(ge=1, description="Longest text in tokens.")
    batch: int = Field(default=128, ge=1, description="Texts that are written side by side.")
    precision: WritesIn = "float32"

    @property
    def shows_public(self) -> bool:
        """Whether new texts begin with public texts, or the prompts show public texts."""
        return self.start != "prompt" or bool(self.examples or self.shots)

    @model_validator(mode="after")
    def _shots_fill_blanks(self) -> "Base":
        if self.shots and self.vary != "blanks":
            raise ValueError(f"shots is {self.shots}; only vary blanks shows worked examples, got {self.vary}")
        return self

    @model_validator(mode="after")
    def _kept_is_a_range(self) -> "Base":
        if not 0 <= self.kept[0] <= self.kept[1] < 1:
            raise ValueError(f"kept must be two shares in order, from 0 to below 1, got {self.kept!r}")
        return self

    @model_validator(mode="after")
    def _variation_has_a_prompt(self) -> "Base":
        if self.vary in ("paraphrase", "blanks") and getattr(self, self.vary) is None:
            raise ValueError(f"vary {self.vary} needs a prompt: give {self.vary}, or name models.words")
        return self


Author = Annotated[Corpus | Base | LocalChatSettings | Endpoint, Field(discriminator="kind")]
