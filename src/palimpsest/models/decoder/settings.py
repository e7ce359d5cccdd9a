"""Settings of embedding decoders: how they are taught, and how they write."""

from pydantic import Field, model_validator

from palimpsest.models.settings import Schooling
from palimpsest.settings import Settings


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
