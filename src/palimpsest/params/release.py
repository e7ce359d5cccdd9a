"""Settings of what leaves the workspace."""

from collections import Counter

from pydantic import Field, field_validator

from palimpsest.settings import Settings


class Gates(Settings):
    """What a release has to reach beside its privacy."""

    accuracy: float | None = Field(default=None, ge=0, le=1)
    """Least accuracy of every released variant on dataset.public_test, by its best evaluator; null: not asked."""


class ReleaseSettings(Settings):
    """What leaves the workspace: the rows of some variants, with everything that says what they promise."""

    variants: tuple[str, ...] = ()
    """Variants whose rows leave, all of purpose release; [] releases nothing."""
    title: str = Field(min_length=1, max_length=200, description="Name of the released data set.")
    license: str | None = None
    """Licence of the released rows, as an SPDX identifier or a URL; null: other."""
    gates: Gates = Gates()

    @field_validator("variants")
    @classmethod
    def _named_once(cls, variants: tuple[str, ...]) -> tuple[str, ...]:
        if twice := sorted(name for name, count in Counter(variants).items() if count > 1):
            raise ValueError(f"variants names {twice} twice")
        return variants

    @field_validator("title", "license")
    @classmethod
    def _one_line(cls, text: str | None) -> str | None:
        if text is not None and not text.isprintable():
            raise ValueError("write it on one line")
        return text
