"""Settings of authors: who writes the candidates of private evolution. None of them sees a private row."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from palimpsest.models.chat.settings import Endpoint, LocalChatSettings
from palimpsest.settings import Settings


class Corpus(Settings):
    """The public texts themselves; a text's variations are public texts near it. Needs no language model."""

    kind: Literal["corpus"] = Field(description="Who writes.")
    neighbours: int = Field(default=20, ge=1, description="Nearest public texts that a variation is drawn from.")


class Base(Settings):
    """A public language model without instructions: it goes on with prompts, or writes anew what is cut from texts."""

    kind: Literal["base"] = Field(description="Who writes.")
    vary: Literal["suffix", "infill"] = Field(
        default="suffix",
        description="suffix: keep the first words of a text and write the rest anew. infill: mask words one by one "
        "with probability `masked`, and let the model fill each gap, judged by what comes after it too.",
    )
    kept: tuple[float, float] = Field(
        default=(0.3, 0.8), description="suffix: the share of a text's words that is kept is drawn between these two."
    )
    masked: float = Field(default=0.3, gt=0, lt=1, description="infill: probability of a word to be masked.")
    start: Literal["prompt", "corpus", "whole"] = Field(
        description="What new texts begin with. prompt: the label's prompt alone. corpus: the first words of a public "
        "text that is near the label's description. whole: new texts are public ones, and variations alone are written."
    )
    temperature: float = Field(default=1.0, gt=0, description="Sampling temperature.")
    top_p: float = Field(default=0.95, gt=0, le=1, description="Nucleus of sampling.")
    max_tokens: int = Field(ge=1, description="Longest text in tokens.")
    batch: int = Field(default=128, ge=1, description="Texts that are written side by side.")

    @model_validator(mode="after")
    def _kept_is_a_range(self) -> "Base":
        if not 0 <= self.kept[0] <= self.kept[1] < 1:
            raise ValueError(f"kept must be two shares in order, from 0 to below 1, got {self.kept!r}")
        return self


Author = Annotated[Corpus | Base | LocalChatSettings | Endpoint, Field(discriminator="kind")]
