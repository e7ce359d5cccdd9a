"""What writing a variant's rows came to, in numbers that the stage counts: generation.json."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

_SAMPLES = ("kept_samples", "unreadable_samples")


@dataclass(frozen=True)
class ScoredText:
    """One synthetic text, and how likely the public model finds it."""

    text: str
    label: str | None
    perplexity: float


@dataclass(frozen=True)
class GenerationCounts:
    """What the stage that wrote a variant's rows counted; what a method does not count is None.

    Attributes:
        drawn: rows before any filter.
        rows: rows that were kept.
        removed: filter -> rows that it removed.
        tokens: that were written, or paid for.
        private_share: of the tokens, those in which private rows had a say.
        rounds: that were finished.
        requests: that an author was sent.
        unusable: reason -> answers of an author that were none.
        kept_samples: texts that a readability check let pass.
        unreadable_samples: texts that it dropped.
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

    def to_json(self, variant: str, zone: str) -> dict[str, Any]:
        """The metric file of a variant; its zone is that of the rows."""
        counted = {one.name: value for one in fields(self) if (value := getattr(self, one.name)) is not None}
        samples = {name: [asdict(one) for one in counted[name]] for name in _SAMPLES if name in counted}
        return {"variant": variant, "zone": zone, **counted, **samples}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "GenerationCounts":
        samples = {name: tuple(ScoredText(**one) for one in body[name]) for name in _SAMPLES if name in body}
        counted = {name: value for name, value in body.items() if name not in ("variant", "zone")}
        return cls(**(counted | samples))
