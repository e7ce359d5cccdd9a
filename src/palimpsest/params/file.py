"""The part of params.yaml that a person writes: the decisions. `resolve` works out the rest."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, Field

from palimpsest.params.extension import RUNS, extend_schema
from palimpsest.settings import Settings

FILE = "params.yaml"
RESOLVED = "params.resolved.yaml"  # every value that it stands for

Section = Mapping[str, Any]
_NOTHING: Mapping[str, Any] = {}


class NamedEntry(Settings):
    """A model or an author under a name of its own. Its settings stand beside what it is, without a level between."""

    model_config = ConfigDict(extra="allow")

    @property
    def written(self) -> dict[str, Any]:
        """Its keys as they stand in the file, but `from`."""
        return dict(self.model_extra or {})


class Sourced(NamedEntry):
    """What is drawn from something else in the file, or stands behind it."""

    source: str | None = Field(default=None, alias="from")
    """What it is drawn from; for a discriminator its language model, for zero-shot texts their author."""


class Drawn(Sourced):
    """A variant: a row of the results."""

    source: str | tuple[str, ...] | None = Field(default=None, alias="from")  # type: ignore[assignment]
    """What it is drawn from; for `choose` a list."""
    method: str = Field(description="How the rows are made.")

    @property
    def written(self) -> dict[str, Any]:
        """Its keys as they stand in the file, but `from`."""
        return {"method": self.method, **super().written}


class Runs(Settings):
    """Which of what the file names runs, where that is not all of it, and the audits that only run when asked for."""

    evaluate: tuple[str, ...] | None = None
    """Variants that run, in the order of the pages; null: all."""
    audit: tuple[str, ...] | None = None
    """Variants whose rows are attacked; null: all that run. [] leaves these audits out."""
    fit: tuple[str, ...] = ()
    """Language models and discriminators that are fitted though nothing is drawn from them."""


if not TYPE_CHECKING:
    Runs = extend_schema(RUNS, Runs)


class File(Settings):
    """params.yaml as a person writes it. What the sections hold is checked once all is worked out."""

    version: Any
    preset: Any = None
    seed: Any = None
    dataset: Section
    world: Any = None
    privacy: Section
    models: Section = _NOTHING
    variants: Mapping[str, Drawn]
    lms: Mapping[str, NamedEntry] = _NOTHING
    discriminators: Mapping[str, Sourced] = _NOTHING
    taught: Mapping[str, NamedEntry] = _NOTHING
    authors: Mapping[str, NamedEntry] = _NOTHING
    decoders: Mapping[str, NamedEntry] = _NOTHING
    zero_shot: Mapping[str, Sourced] = _NOTHING
    runs: Runs = Runs()
    public_only: Section = _NOTHING
    public_lm: Section | None = None
    utility: Section = _NOTHING
    audit: Section = _NOTHING
    release: Section = _NOTHING
    compute: Section = _NOTHING
    stores: Section = _NOTHING
    sweeps: Section = _NOTHING
    testing: Section = _NOTHING
