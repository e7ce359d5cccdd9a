"""Shared by all methods: a plan that costs nothing, a fit that spends, and rows that are free."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from dp_accounting.dp_event import DpEvent

from palimpsest.privacy.events import composed
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.query import View
from palimpsest.records.record import Record

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
    """

    method: str
    budget: Budget
    queries: tuple[PlannedQuery, ...]
    numbers: Mapping[str, float | int | str] = field(default_factory=dict)
    feasible: bool = True
    notes: tuple[str, ...] = ()

    @property
    def event(self) -> DpEvent:
        """The composition of all queries, in parallel for those of disjoint parts."""
        return composed((query.event, query.partition) for query in self.queries)

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
