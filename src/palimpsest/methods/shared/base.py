"""Shared by all methods: a plan that costs nothing, a fit that spends, and rows that are free."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from dp_accounting.dp_event import DpEvent

from palimpsest.methods.shared.foretell import Foretold
from palimpsest.plain import Plain, PlainFile
from palimpsest.privacy.events import compose_terms
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.query import View
from palimpsest.records.record import Record
from palimpsest.workspace import INTERNAL

Artifact = TypeVar("Artifact")
Model = TypeVar("Model", covariant=True)


@dataclass(frozen=True)
class Budget:
    """The privacy budget of one variant.

    Attributes:
        epsilon: target epsilon; infinity marks a reference run that adds no noise.
        delta: the data asset's delta.
    """

    epsilon: float
    delta: float


@dataclass(frozen=True)
class Plan:
    """The queries of a fit and their cost, made from public facts only.

    Attributes:
        method: its name.
        budget: the target.
        queries: every private query of the fit, in order.
        numbers: public figures worth printing (noise multiplier, steps, rate, ...).
        feasible: False where the setting cannot work; `notes` then say why and what to do instead.
        foretold: the signals that are expected of private rows.
    """

    method: str
    budget: Budget
    queries: tuple[PlannedQuery, ...]
    numbers: Mapping[str, float | int | str] = field(default_factory=dict)
    feasible: bool = True
    notes: tuple[str, ...] = ()
    foretold: tuple[Foretold, ...] = ()

    @property
    def lost(self) -> bool:
        """Whether noise is expected to decide over private rows, so that a run needs the owner's word."""
        return bool(self.foretold) and all(one.word == "lost" for one in self.foretold)

    @property
    def told(self) -> tuple[str, ...]:
        """Sentences about this plan for a person to read; nothing is foretold where there is no noise."""
        return (*(one.describe() for one in self.foretold if math.isfinite(one.ratio)), *self.notes)

    @property
    def event(self) -> DpEvent:
        """The composition of all queries, in parallel for those of disjoint parts."""
        return compose_terms((query.event, query.partition) for query in self.queries)

    @property
    def own_delta(self) -> float:
        """The delta that the queries take beside their events; those of disjoint parts are added, too."""
        return sum(query.own_delta for query in self.queries)


@dataclass(frozen=True)
class Made:
    """The synthetic rows of a fit, and the facts about them that may be reported.

    Attributes:
        rows: the rows that are kept.
        drawn: rows that were written or drawn before filters.
        removed: filter -> rows that it removed.
        told: further counts and samples for generation.json.
        rounds: writes the selection of each round to a path, whose suffix it chooses; None where there are no rounds.
        assumptions: ids of the `privacy.assumptions` that the fit relied on.
    """

    rows: Sequence[Record]
    drawn: int
    removed: Mapping[str, int] = field(default_factory=dict)
    told: Mapping[str, Any] = field(default_factory=dict)
    rounds: Callable[[Path], None] | None = None
    assumptions: tuple[str, ...] = ()


class Fit(Protocol[Artifact]):
    """A method with everything that it works with: its plan, public models and public texts.

    Guarantee: `ask` reaches private rows only through the view's metered queries, so the artifact is as private as the
    composition of the plan's events. `made` reads no private row (post-processing).
    """

    def ask(self, view: View) -> Artifact:
        """Ask what was planned, in order."""

    def made(self, artifact: Artifact) -> Made:
        """The rows that follow from the answers, free."""


class Training(Protocol[Model]):
    """A training with everything that it works with. Its guarantee is that of a `Fit`; rows are drawn later."""

    def ask(self, view: View) -> Model:
        """Ask what was planned, in order, and return the fitted model."""

    def assumptions(self) -> tuple[str, ...]:
        """Return the ids of `privacy.assumptions` that it relies on; only public records decide."""


class Saved(Protocol):
    """A fitted model."""

    def save(self, folder: Path) -> None:
        """Write it to a folder, all or nothing."""


def coins(*parts: object) -> np.random.Generator:
    """Public randomness: a stream of draws that is a function only of these numbers and texts.

    >>> coins(1, "a", "b").random() == coins(1, "a", "b").random()
    True
    >>> coins(1, "a", "b").random() == coins(1, "ab").random()
    False
    """
    digest = blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))


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
