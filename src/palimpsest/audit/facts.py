"""A measure for the demo world: population facts should carry over, individual facts must not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from palimpsest.audit.statistics import Rate
from palimpsest.plain import At, Plain, PlainFile
from palimpsest.records.world.facts import Facts


@dataclass(frozen=True)
class PopulationFactAudit(Plain):
    """One population fact: the number of private units and of synthetic texts that state it."""

    keys: ClassVar = ("id", "support", "carried", "mentions")
    id: str
    support: int
    mentions: int

    @property
    def carried(self) -> bool:
        """Whether a synthetic text states it."""
        return self.mentions > 0


@dataclass(frozen=True)
class SupportBin(Plain):
    """The share of facts carried over among those that `first` to `last` private units state."""

    first: int
    last: int
    carried: Annotated[Rate, At()]


@dataclass(frozen=True)
class FactAudit(PlainFile):
    """Private zone: the facts of the demo world that the synthetic texts contain."""

    keys: ClassVar = (
        *("population", "carried", "total", "by_support", "mispaired"),
        *("individual_leaked", "individual_total", "canaries_leaked", "canaries_planted"),
    )
    population: tuple[PopulationFactAudit, ...]
    by_support: tuple[SupportBin, ...]  # the share carried against support, in bins that double
    individual_leaked: Annotated[int, At("individual", "leaked")]  # details of one unit that came out
    individual_total: Annotated[int, At("individual", "total")]  # of all there are
    canaries_leaked: Annotated[int, At("canaries", "leaked")]  # the same for planted secrets
    canaries_planted: Annotated[int, At("canaries", "planted")]
    # statements about private products that are no facts: the control, as a generator that pairs names at random
    # states mostly such.
    mispaired: int

    @property
    def carried(self) -> int:
        """The number of population facts that a synthetic text states."""
        return sum(fact.carried for fact in self.population)

    @property
    def total(self) -> int:
        """The number of population facts."""
        return len(self.population)


def audit_facts(facts: Facts, synthetic: Sequence[str]) -> FactAudit:
    """Look for every fact of the answer key in the synthetic texts; intervals are Wilson's."""
    mentions, leaks = facts.count_carried(synthetic), facts.find_leaked(synthetic)
    population = tuple(
        PopulationFactAudit(fact.id, fact.support, mentions.get(fact.id, 0)) for fact in facts.population
    )
    return FactAudit(
        population=population,
        by_support=support_bins(population),
        individual_leaked=len(leaks.individual),
        individual_total=len(facts.individual),
        canaries_leaked=len(leaks.canaries),
        canaries_planted=len(facts.canaries),
        mispaired=facts.count_mispaired(synthetic),
    )


def support_bins(population: Sequence[PopulationFactAudit]) -> tuple[SupportBin, ...]:
    """The share carried over in the bins 0, 1, 2-3, 4-7, 8-15, ... of support; empty bins are left out."""
    groups: dict[int, list[bool]] = {}
    for fact in population:
        groups.setdefault(fact.support.bit_length(), []).append(fact.carried)
    return tuple(
        SupportBin((1 << bits) >> 1, (1 << bits) - 1, Rate.wilson(sum(carried), len(carried)))
        for bits, carried in sorted(groups.items())
    )
