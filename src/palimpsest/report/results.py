"""What the stages measured: one type for each kind of metric file, read by the type that wrote it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from palimpsest.errors import DataError
from palimpsest.params.schema import Params
from palimpsest.workspace import REAL

Document = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Metric(Generic[T]):
    """One kind of metric file.

    Attributes:
        name: of the kind.
        read: the file's content -> its result.
        asked: whose files belong to this run; those of settings that were taken back may still lie there.
        path: below the metrics' folder, with a place for whose it is; that of a variant's own where it is left out.
    """

    name: str
    read: Callable[[Document], T]
    asked: Callable[[Params], Iterable[str]]
    path: str = ""

    def file(self, whose: str) -> str:
        """The path of one file below the metrics' folder."""
        return (self.path or f"{{}}/{self.name}.json").format(whose)


def measured(params: Params) -> tuple[str, ...]:
    """The variants that run, and the baselines."""
    return (*params.run.evaluate, REAL, *params.at_epsilon_0)


@dataclass(frozen=True)
class Results:
    """The metric files of one run.

    Attributes:
        documents: kind -> whose -> the file's content.
    """

    documents: Mapping[str, Mapping[str, Document]] = field(default_factory=dict)

    def of(self, metric: Metric[T]) -> dict[str, T]:
        """Whose -> result.

        Raises:
            DataError: a file is not what this version writes.
        """
        return {name: _read(metric, name, body) for name, body in self.documents.get(metric.name, {}).items()}

    def get(self, metric: Metric[T], name: str) -> T | None:
        """One result, or None where it was not measured."""
        body = self.documents.get(metric.name, {}).get(name)
        return None if body is None else _read(metric, name, body)


def _read(metric: Metric[T], name: str, body: Document) -> T:
    try:
        return metric.read(body)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"The metric file {metric.file(name)!r} is not what this version writes.",
            "Run the stage that writes it again.",
        ) from error
