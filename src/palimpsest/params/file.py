"""The part of params.yaml that is read before the rest is worked out: what runs, and what it is drawn from."""

import copy
from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, Field

from palimpsest.params.extension import RUNS, extended
from palimpsest.settings import Settings

FILE = "params.yaml"
RESOLVED = "params.resolved.yaml"  # every value that it stands for

NAMED = ("variants", "lms", "discriminators", "taught", "authors", "decoders", "zero_shot")
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
    """An entry that is drawn from something else in the file, or stands behind it."""

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


@extended(RUNS)
class Runs(Settings):
    """Which of what the file names runs, where that is not all of it, and the audits that only run when asked for."""

    evaluate: tuple[str, ...] | None = None
    """Variants that run, in the order of the pages; null: all."""
    audit: tuple[str, ...] | None = None
    """Variants whose rows are attacked; null: all that run. [] leaves these audits out."""
    fit: tuple[str, ...] = ()
    """Language models and discriminators that are fitted though nothing is drawn from them."""


class File(Settings):
    """params.yaml as a person writes it: what is read before the rest is worked out.

    All other sections are as `Params` has them, and are checked there.
    """

    model_config = ConfigDict(extra="allow")

    dataset: Section
    models: Section = _NOTHING
    variants: Mapping[str, Drawn]
    lms: Mapping[str, NamedEntry] = _NOTHING
    discriminators: Mapping[str, Sourced] = _NOTHING
    taught: Mapping[str, NamedEntry] = _NOTHING
    authors: Mapping[str, NamedEntry] = _NOTHING
    decoders: Mapping[str, NamedEntry] = _NOTHING
    zero_shot: Mapping[str, Sourced] = _NOTHING
    runs: Runs = Runs()

    @property
    def written(self) -> dict[str, Any]:
        """The file's settings as `Params` has them: without `runs`, and without what entries are drawn from."""
        named = {key: {name: entry.written for name, entry in getattr(self, key).items()} for key in NAMED}
        sections = {key: getattr(self, key) for key in ("dataset", "models") if key in self.model_fields_set}
        return copy.deepcopy({**(self.model_extra or {}), **sections, **named})
