"""Where the nodes of a DAG stand: columns by longest path, rows by the average row of what they need."""

from collections.abc import Mapping, Sequence
from typing import Any


def layered(stages: Sequence[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """Stage name -> (column, row); rows of one column are centred on 0.

    Args:
        stages: acyclic; each with "name" and "deps" (names of stages; names of anything else are ignored).
    """
    names = {stage["name"] for stage in stages}
    deps = {stage["name"]: [dep for dep in stage["deps"] if dep in names] for stage in stages}
    columns: dict[str, int] = {}
    for name in deps:
        _column(name, deps, columns)
    places: dict[str, tuple[float, float]] = {}
    for column in range(max(columns.values(), default=-1) + 1):
        _place([name for name in deps if columns[name] == column], column, deps, places)
    return places


def _column(name: str, deps: Mapping[str, list[str]], columns: dict[str, int]) -> int:
    if name not in columns:
        columns[name] = max((_column(dep, deps, columns) + 1 for dep in deps[name]), default=0)
    return columns[name]


def _place(
    members: list[str], column: int, deps: Mapping[str, list[str]], places: dict[str, tuple[float, float]]
) -> None:
    def pull(name: str) -> float:
        rows = [places[dep][1] for dep in deps[name]]
        return sum(rows) / len(rows) if rows else 0.0

    for index, name in enumerate(sorted(members, key=pull)):
        places[name] = (float(column), index - (len(members) - 1) / 2)
