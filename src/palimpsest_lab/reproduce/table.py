"""The finished table: our values beside the published ones, as a page, as JSON and as a drawing. Private zone."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from palimpsest.report.drawing import draw_svg
from palimpsest.report.formats import MISSING, at_most, number
from palimpsest.workspace import INTERNAL
from palimpsest_lab.reproduce.cells import Cell
from palimpsest_lab.reproduce.grid import Grid
from palimpsest_lab.reproduce.measures import Value

_HEAD = ("data", "row", "epsilon stated", "published in truth", "ours", "ours as the paper counts", "what")


@dataclass(frozen=True)
class Epsilons:
    """The epsilons of a cell."""

    stated: float  # by the paper
    # the true value of its statement; None for the epsilon of one word, which says nothing about a record
    in_truth: float | None
    charged: float | None  # proved of ours, by its receipt; None where nothing is charged, or not yet
    as_counted: float | None  # the paper's counting of ours; None where nothing is charged


@dataclass(frozen=True)
class Result:
    """A cell with its result."""

    cell: Cell
    epsilons: Epsilons
    value: Value | None  # ours; None where there is none
    why: str  # why there is none, or a note on it

    @property
    def ours(self) -> Value:
        """Our value in the unit of the published value."""
        found, scale = self.value or Value(None), 100.0 if self.cell.measured.unit == "percent" else 1.0
        low, value, high = (None if one is None else one * scale for one in (found.low, found.value, found.high))
        return Value(value, low, high, found.note)


def document(grid: Grid, results: Sequence[Result], made_with: Sequence[str]) -> dict[str, Any]:
    """Return the table as JSON values; `made_with` names, for each data set, the models that wrote and judged ours."""
    return {
        "zone": INTERNAL, "paper": grid.paper, "table": grid.table, "title": grid.title,
        "published_with": dict(grid.models), "made_with": list(made_with), "counting": grid.counting.says,
        "cells": [_cell(result) for result in results],
    }  # fmt: skip


def _cell(result: Result) -> dict[str, Any]:
    cell, ours = result.cell, result.ours
    return {
        "cell": cell.name, "data": cell.data, "row": cell.of.title, "column": cell.measured.title,
        "unit": cell.measured.unit, "epsilon": asdict(result.epsilons), "published": cell.published,
        "ours": None if ours.value is None else {"value": ours.value, "low": ours.low, "high": ours.high},
        "why": result.why,
    }  # fmt: skip


def page(grid: Grid, results: Sequence[Result], made_with: Sequence[str]) -> str:
    """Write the table as Markdown."""
    heads = (*_HEAD, "published", "ours (95 %)", "note")
    lines = [f"| {' | '.join(_line(result))} |" for result in results]
    models = "; ".join(f"{what}: {name}" for what, name in grid.models.items())
    papers, ours = models and f"The paper's models: {models}.", [f"Ours, {one}." for one in made_with]
    told = [text for text in (papers, *ours, grid.counting.says, grid.unpublished) if text]
    table = "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *lines])
    said = "".join(f"\n\n{text}" for text in told)
    return f"# {grid.called}: {grid.title}\n\nPrivate: measured on private rows.{said}\n\n{table}\n"


def _line(result: Result) -> list[str]:
    cell, epsilons, ours = result.cell, result.epsilons, result.ours
    interval = "" if ours.low is None else f" ({number(ours.low, 4)} to {number(ours.high, 4)})"
    return [
        cell.data, cell.of.title, format_stated(cell), number(epsilons.in_truth), at_most(epsilons.charged),
        at_most(epsilons.as_counted), cell.measured.title, number(cell.published, 4),
        MISSING if ours.value is None else f"{number(ours.value, 4)}{interval}", result.why.replace("|", "/"),
    ]  # fmt: skip


def format_stated(cell: Cell) -> str:
    """Return the epsilon that the paper states, and its unit where that is not a record."""
    return f"{number(cell.epsilon)}{' a word' * cell.of.per_word}"


def draw_table(grid: Grid, results: Sequence[Result]) -> str:
    """Draw the table as SVG: the published value and ours with its interval, a line for each row.

    Empty where no cell has a value.
    """
    return draw_svg(grid.title, [row for result in results for row in _points(result)])


def _points(result: Result) -> list[dict[str, Any]]:
    cell, ours = result.cell, result.ours
    named = {"data": f"{cell.data}, {cell.measured.title}", "row": f"{cell.of.title}, epsilon {format_stated(cell)}"}
    found = [("published", Value(cell.published)), ("ours", ours)]
    return [
        {**named, "whose": whose, "value": one.value, "low": one.low or one.value, "high": one.high or one.value}
        for whose, one in found
        if one.value is not None
    ]
