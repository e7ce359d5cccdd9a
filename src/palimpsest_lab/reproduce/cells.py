"""The cells of a grid: their names, and the params.yaml that they need."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

from palimpsest.errors import ParamsError
from palimpsest.params.preset import HERE, epsilon_suffix
from palimpsest.params.sweep import FITTED, merge_sections
from palimpsest_lab.reproduce.grid import Column, Grid, Need, Row

_EPSILON = "<epsilon>"


@dataclass(frozen=True)
class Cell:
    """One value of a table; data, row and column are names in the grid."""

    grid: Grid
    data: str
    row: str
    epsilon: float  # as the paper states it; .inf is the run without noise
    column: str
    published: float | None  # the paper's value, if it is known

    @property
    def variant(self) -> str:
        """The name of its row in the workspace: a variant for each epsilon, or the baseline."""
        return self.of.baseline or name_at_epsilon(self.row, self.epsilon)

    @property
    def name(self) -> str:
        """The name by which --cells picks it."""
        row = self.row if self.of.baseline is not None else name_at_epsilon(self.row, self.epsilon)
        return f"{self.data}/{row}/{self.column}"

    @property
    def of(self) -> Row:
        """Its row's declaration."""
        return self.grid.rows[self.row]

    @property
    def measured(self) -> Column:
        """Its column's declaration."""
        return self.grid.columns[self.column]

    @property
    def detail(self) -> Mapping[str, Any]:
        """The choice among the measure's values."""
        return {**self.measured.detail, **self.of.detail}

    @property
    def needs(self) -> Mapping[Need, str]:
        """Its needs that not everybody has."""
        return {**self.measured.needs, **self.of.needs}

    @property
    def missing(self) -> str:
        """The parts it needs that are not built."""
        return self.of.missing or self.measured.missing


def cells_of(grid: Grid) -> tuple[Cell, ...]:
    """Return all cells of a grid, by data set, row, epsilon and column."""
    return tuple(_cells(grid))


def _cells(grid: Grid) -> Iterator[Cell]:
    for data in grid.data:
        for row, of in grid.rows.items():
            for epsilon in grid.epsilons if of.epsilons is None else of.epsilons:
                values = grid.published.get(data, {}).get(row, {}).get(epsilon, (None,) * len(grid.columns))
                for (column, has), value in zip(grid.columns.items(), values, strict=True):
                    if not has.rows or row in has.rows:
                        yield Cell(grid, data, row, epsilon, column, value)


def select_cells(cells: Sequence[Cell], patterns: Sequence[str]) -> tuple[Cell, ...]:
    """Return the cells that a pattern names, with `*` for anything; all cells where there is no pattern.

    A pattern that names the first parts of a cell's name means all cells that begin so.

    Raises:
        ParamsError: a pattern names no cell.
    """
    for pattern in patterns:
        if not any(_matches(cell, pattern) for cell in cells):
            some = ", ".join(cell.name for cell in cells[:3])
            raise ParamsError(f"--cells names {pattern!r}, which no cell is called.", f"Cells are called {some}, ...")
    return tuple(cell for cell in cells if not patterns or any(_matches(cell, pattern) for pattern in patterns))


def _matches(cell: Cell, pattern: str) -> bool:
    return fnmatch(cell.name, pattern) or fnmatch(cell.name, f"{pattern}/*")


def name_at_epsilon(name: str, epsilon: float) -> str:
    """Name something at an epsilon, as a preset names it: multitask3, multitask0_5, multitaskinf."""
    return f"{name}{epsilon_suffix(epsilon)}"


def fragment(cell: Cell, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of params.yaml for a cell: its variant and the models below it.

    Args:
        settings: of the paper at the cell's epsilon, in the form of params.yaml.

    Raises:
        ParamsError: the settings have no such variant.
    """
    base = name_at_epsilon(cell.of.like or cell.row, cell.epsilon)
    if base not in settings.get("variants", {}):
        raise ParamsError(f"The preset of paper {cell.grid.paper} has no variant {base!r}.", "Correct the grid.")
    variant = merge_sections(settings["variants"][base], cell.of.changes)
    made = dict(_find_base(settings, variant.get("from", base)))
    if cell.of.below:
        section = next(part for part in ("lms", "authors") if variant["from"] in settings.get(part, {}))
        made = {section: {cell.variant: merge_sections(settings[section][variant["from"]], cell.of.below)}}
        variant["from"] = cell.variant
    return merge_sections(made, {"variants": {cell.variant: variant}})


def _find_base(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the fitted model of that name, if it is one, and the model that it rests on."""
    for section in FITTED:
        if name in settings.get(section, {}):
            entry = deepcopy(dict(settings[section][name]))
            below = _find_base(settings, entry["from"]) if "from" in entry else {}
            return merge_sections(below, {section: {name: entry}})
    return {}


def fill_epsilon(value: Any, epsilon: float) -> Any:
    """Fill an epsilon into settings: `<e>` in names is how names have it, `<epsilon>` by itself its value."""
    if isinstance(value, Mapping):
        return {fill_epsilon(key, epsilon): fill_epsilon(inner, epsilon) for key, inner in value.items()}
    if value == _EPSILON:
        return epsilon
    return value.replace(HERE, epsilon_suffix(epsilon)) if isinstance(value, str) else value
