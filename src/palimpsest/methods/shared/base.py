"""What every generator is: a plan that costs nothing, a fit that spends, and sampling that is free."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from dp_accounting import DpEvent

from palimpsest.privacy.composition import composed
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.query import View
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema

Artifact = TypeVar("Artifact")


@dataclass(frozen=True)
class Budget:
    """What one variant may spend.

    Attributes:
        epsilon: target epsilon; infinity marks a reference run that adds no noise.
        delta: the data asset's delta.
    """

    epsilon: float
    delta: float


@dataclass(frozen=True)
class Plan:
    """What a fit will do and cost, made from public facts alone.

    Attributes:
        method: the generator's name.
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
        """All queries composed, those of disjoint parts in parallel."""
        return composed((query.event, query.partition) for query in self.queries)

    @property
    def own_delta(self) -> float:
        """What the queries take of delta beside their events; those of disjoint parts are added, too."""
        return sum(query.own_delta for query in self.queries)


class Generator(Protocol[Artifact]):
    """A method that turns private rows into synthetic ones.

    What a fit leaves may be drawn from in several ways, so the two halves may be classes of their own.

    Guarantee: `fit` reaches private rows only through the view's metered queries, so the artifact is as
    private as the composition of the plan's events; `plan` and `sample` read no private row (post-processing).
    """

    def plan(self, schema: PublicSchema, budget: Budget) -> Plan: ...

    def fit(self, view: View, plan: Plan) -> Artifact: ...

    def sample(self, artifact: Artifact, counts: Mapping[str, int]) -> Iterator[Record]: ...
