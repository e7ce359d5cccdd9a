"""Lists the measurements that the first page of a run still lacks."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from palimpsest.params.schema import Params
from palimpsest.report.results import Metric, Results
from palimpsest.report.row import is_attack
from palimpsest.report.sections import HEADINGS, SECTIONS
from palimpsest.report.sections.base import Section


@dataclass(frozen=True)
class Coming:
    """Measurements that a run has yet to make.

    Attributes:
        metric: the kind of file.
        names: the subjects of the files, such as variants.
        section: where the page will show them.
    """

    metric: Metric[Any]
    names: tuple[str, ...]
    section: Section

    @property
    def words(self) -> str:
        """The name of the measurement and its subjects."""
        return f"{self.metric.name.replace('_', ' ')} ({', '.join(self.names)})"


def coming(params: Params, files: Collection[str]) -> tuple[Coming, ...]:
    """Return the measurements that the run asks for and that are still to be written.

    `files` are paths below the metrics' folder: those of the missing measurements.
    """
    return tuple(_coming(params, files))


def _coming(params: Params, files: Collection[str]) -> Iterator[Coming]:
    for section in SECTIONS:
        for metric in section.metrics:
            names = tuple(name for name in metric.asked(params) if metric.file(name) in files)
            if names:
                yield Coming(metric, names, section)


def without(results: Results, still: Collection[Coming]) -> Results:
    """Return the results without the missing measurements: a file that lies there is of an earlier run."""
    documents = dict(results.documents)
    for one in still:
        kept = documents.get(one.metric.name, {})
        documents[one.metric.name] = {name: body for name, body in kept.items() if name not in one.names}
    return replace(results, documents=documents)


def unattacked(still: Collection[Coming]) -> set[str]:
    """Return the variants whose attacks are still to come."""
    return {name for one in still for name in one.names if is_attack(one.metric.name)}


def notes(still: Collection[Coming]) -> dict[str, str]:
    """Return heading -> what will stand under it, in the order of the page."""
    listed = {name: [one.words for one in still if one.section.heading == name] for name in HEADINGS}
    return {name: f"Still to come: {'; '.join(words)}." for name, words in listed.items() if words}
