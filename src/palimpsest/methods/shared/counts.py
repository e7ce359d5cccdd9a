"""Counts of the stage that wrote a variant's rows: generation.json."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from palimpsest.plain import Plain, PlainFile
from palimpsest.workspace import INTERNAL


@dataclass(frozen=True)
class ScoredText(Plain):
    """One synthetic text, and how likely the public model finds it."""

    text: str
    label: str | None
    perplexity: float


@dataclass(frozen=True)
class GenerationCounts(PlainFile):
    """Counts of the stage that wrote a variant's rows; None for those that a method does not count.

    Attributes:
        drawn: rows before any filter.
        rows: rows that were kept.
        removed: filter -> rows that it removed.
        tokens: tokens that were written, or paid for.
        private_share: share of the tokens that private rows influenced.
        rounds: finished rounds.
        requests: requests that were sent to an author.
        unusable: reason -> an author's answers that were unusable.
        kept_samples: texts that a readability check let pass.
        unreadable_samples: texts that it dropped.
        strengths: label -> strength by which a model was moved for it, in measured differences.
        chosen: the variant whose rows these are, where it was chosen among several.
    """

    drawn: int
    rows: int
    removed: Mapping[str, int] = field(default_factory=dict)
    tokens: int | None = None
    private_share: float | None = None
    rounds: int | None = None
    requests: int | None = None
    unusable: Mapping[str, int] | None = None
    kept_samples: tuple[ScoredText, ...] | None = None
    unreadable_samples: tuple[ScoredText, ...] | None = None
    strengths: Mapping[str, float] | None = None
    chosen: str | None = None

    def to_json(self, variant: str, zone: str = INTERNAL) -> dict[str, Any]:
        """Return the metric file of a variant, without counts that are None; its zone is that of the rows."""
        return {name: value for name, value in super().to_json(variant, zone).items() if value is not None}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        optional = {one.name: one.default for one in fields(cls) if one.default is None}
        return super().from_json({**optional, "removed": {}, **body})
