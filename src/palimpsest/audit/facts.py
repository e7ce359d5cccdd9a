"""The demo world's own yardstick: population facts should come over, individual ones must not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palimpsest.audit.statistics import Rate, wilson
from palimpsest.records.world.facts import Facts


@dataclass(frozen=True)
class PopulationFactAudit:
    """One population fact: how many private units state it, and how many synthetic texts do."""

    id: str
    support: int
    mentions: int

    @property
    def carried(self) -> bool:
        return self.mentions > 0

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "support": self.support, "carried": self.carried, "mentions": self.mentions}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "PopulationFactAudit":
        return cls(body["id"], body["support"], body["mentions"])


@dataclass(frozen=True)
class SupportBin:
    """The share carried of the facts that `first` to `last` private units state."""

    first: int
    last: int
    carried: Rate

    def to_json(self) -> dict[str, Any]:
        return {"first": self.first, "last": self.last, **self.carried.to_json()}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "SupportBin":
        return cls(body["first"], body["last"], Rate.from_json(body))


@dataclass(frozen=True)
class FactAudit:
    """Private zone: what of the world's facts the synthetic texts hold.

    Attributes:
        population: every population fact.
        by_support: the share carried against support, in bins that double.
        individual_leaked, individual_total: details of one unit that came out, of all there are.
        canaries_leaked, canaries_planted: the same for planted secrets.
        mispaired: statements about private products that are no facts: the control, since a generator that pairs names
            at random states mostly such.
    """

    population: tuple[PopulationFactAudit, ...]
    by_support: tuple[SupportBin, ...]
    individual_leaked: int
    individual_total: int
    canaries_leaked: int
    canaries_planted: int
    mispaired: int

    @property
    def carried(self) -> int:
        return sum(fact.carried for fact in self.population)

    def to_json(self, variant: str) -> dict[str, Any]:
        return {
            "variant": variant,
            "zone": "internal",
            "population": [fact.to_json() for fact in self.population],
            "carried": self.carried,
            "total": len(self.population),
            "by_support": [group.to_json() for group in self.by_support],
            "mispaired": self.mispaired,
            "individual": {"leaked": self.individual_leaked, "total": self.individual_total},
            "canaries": {"leaked": self.canaries_leaked, "planted": self.canaries_planted},
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "FactAudit":
        individual, canaries = body["individual"], body["canaries"]
        return cls(
            population=tuple(PopulationFactAudit.from_json(fact) for fact in body["population"]),
            by_support=tuple(SupportBin.from_json(group) for group in body["by_support"]),
            individual_leaked=individual["leaked"],
            individual_total=individual["total"],
            canaries_leaked=canaries["leaked"],
            canaries_planted=canaries["planted"],
            mispaired=body["mispaired"],
        )


def audit_facts(facts: Facts, synthetic: Sequence[str], confidence: float) -> FactAudit:
    """Look for every fact of the world in the synthetic texts.

    Args:
        facts: the answer key.
        synthetic: the synthetic texts.
        confidence: of the Wilson intervals of the share carried.
    """
    mentions, leaks = facts.carried(synthetic), facts.leaked(synthetic)
    population = tuple(
        PopulationFactAudit(fact.id, fact.support, mentions.get(fact.id, 0)) for fact in facts.population
    )
    return FactAudit(
        population=population,
        by_support=support_bins(population, confidence),
        individual_leaked=len(leaks.individual),
        individual_total=len(facts.individual),
        canaries_leaked=len(leaks.canaries),
        canaries_planted=len(facts.canaries),
        mispaired=facts.mispaired(synthetic),
    )


def support_bins(population: Sequence[PopulationFactAudit], confidence: float) -> tuple[SupportBin, ...]:
    """The share carried in the bins 0, 1, 2-3, 4-7, 8-15, ... of support; empty bins are left out."""
    groups: dict[int, list[bool]] = {}
    for fact in population:
        groups.setdefault(fact.support.bit_length(), []).append(fact.carried)
    return tuple(_bin(bits, carried, confidence) for bits, carried in sorted(groups.items()))


def _bin(bits: int, carried: Sequence[bool], confidence: float) -> SupportBin:
    count, n = sum(carried), len(carried)
    return SupportBin((1 << bits) >> 1, (1 << bits) - 1, Rate(count, n, *wilson(count, n, confidence)))
