"""Results of the stages: one type for each kind of metric file, read by the type that wrote it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from palimpsest.audit.inconclusive import Inconclusive, read_inconclusive
from palimpsest.errors import DataError
from palimpsest.params.schema import Params
from palimpsest.workspace import REAL

Document = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Metric(Generic[T]):
    """One kind of metric file.

    Attributes:
        name: the name of the kind.
        read: the file's content -> its result.
        asked: the subjects whose files belong to this run; files of settings since taken back may still lie there.
        path: below the metrics' folder, with a place for the subject; if left out, that of a variant's own file.
    """

    name: str
    read: Callable[[Document], T]
    asked: Callable[[Params], Iterable[str]]
    path: str = ""

    def file(self, whose: str) -> str:
        """Return the path of one file below the metrics' folder."""
        return (self.path or f"{{}}/{self.name}.json").format(whose)


def measured_subjects(params: Params) -> tuple[str, ...]:
    """Return the variants that run, and the baselines."""
    return (*params.run.evaluate, REAL, *params.at_epsilon_0)


@dataclass(frozen=True)
class Results:
    """The metric files of one run.

    Guarantee: a file of an audit that came to no result is never returned as a result.

    Attributes:
        documents: kind -> subject, such as a variant -> the file's content.
    """

    documents: Mapping[str, Mapping[str, Document]] = field(default_factory=dict)

    def of(self, metric: Metric[T]) -> dict[str, T]:
        """Return subject -> result.

        Raises:
            DataError: a file is not what this version writes.
        """
        found = ((name, self.get(metric, name)) for name in self.documents.get(metric.name, {}))
        return {name: result for name, result in found if result is not None}

    def get(self, metric: Metric[T], name: str) -> T | None:
        """Return one result, or None where it was not measured or came to no result."""
        body = self.documents.get(metric.name, {}).get(name)
        return None if body is None or read_inconclusive(body) else _read(metric, name, body)

    def find_unsettled(self, metric: Metric[Any]) -> dict[str, Inconclusive]:
        """Return subject -> why there is no result, for the audits that came to none."""
        told = {name: read_inconclusive(body) for name, body in self.documents.get(metric.name, {}).items()}
        return {name: why for name, why in told.items() if why is not None}

    def mark_inconclusive(self, kind: str, why: Inconclusive) -> "Results":
        """Return these results with every result of one kind replaced by the reason for having none."""
        return replace(self, documents={**self.documents, kind: dict.fromkeys(self.documents[kind], why.document)})


def _read(metric: Metric[T], name: str, body: Document) -> T:
    try:
        return metric.read(body)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"The metric file {metric.file(name)!r} is not what this version writes.",
            "Run the stage that writes it again.",
        ) from error
