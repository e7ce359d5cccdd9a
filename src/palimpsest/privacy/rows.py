"""The private row. Generators may not import this module: an import contract keeps them out."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PrivateRow:
    """One private record, as a registered query's `run` sees it. `repr` shows no content."""

    text: str
    label: str | None = None

    def __repr__(self) -> str:
        return "PrivateRow(...)"
