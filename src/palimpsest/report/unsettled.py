"""Describes audits that came to no result, for the page, the final table and the terminal."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from palimpsest.audit.inconclusive import Inconclusive
from palimpsest.report.results import Metric, Results
from palimpsest.report.sections import METRICS
from palimpsest.report.sections.base import Claim, digest


@dataclass(frozen=True)
class Unsettled:
    """One reason, and the audits that it kept from a result.

    Attributes:
        audits: kind of metric file -> its subjects, such as variants.
    """

    why: Inconclusive
    audits: dict[str, tuple[str, ...]]

    @property
    def sentence(self) -> str:
        """The audits, the reason, and what to do."""
        named = "; ".join(f"{kind.replace('_', ' ')} ({', '.join(names)})" for kind, names in self.audits.items())
        return f"Inconclusive, because {self.why.inconclusive}: {named}. {self.why.remedy}"


def unsettled(results: Results) -> tuple[Unsettled, ...]:
    """Return each reason once, first those for which an audit itself failed."""
    found: dict[Inconclusive, dict[str, tuple[str, ...]]] = {}
    for metric, name, why in _each(results):
        audits = found.setdefault(why, {})
        audits[metric.name] = (*audits.get(metric.name, ()), name)
    return tuple(sorted((Unsettled(*one) for one in found.items()), key=lambda one: not one.why.failed))


def reasons(results: Results, variant: str) -> dict[str, str]:
    """Return kind -> why there is no result of it for a variant, or for another row of the results."""
    own = ((metric, why) for metric, name, why in _each(results) if name == variant and not metric.path)
    return {metric.name: why.inconclusive for metric, why in own}


def uncovered(results: Results) -> Iterator[Claim]:
    """Return, for each audit without a result, the statement that nothing is claimed by it."""
    for metric, name, why in _each(results):
        sentence = f"Audit {metric.name.replace('_', ' ')} of {name}: inconclusive, because {why.inconclusive}."
        path = f"reports/metrics/{metric.file(name)}"
        body = results.documents[metric.name][name]
        yield Claim(f"I-{metric.name}-{name}", sentence, "not covered", path, digest(body))


def _each(results: Results) -> Iterator[tuple[Metric[Any], str, Inconclusive]]:
    return ((metric, name, why) for metric in METRICS for name, why in results.unsettled(metric).items())
