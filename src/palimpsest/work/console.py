"""Prints the tables of commands: drawn on a terminal, a line for each row where the output goes elsewhere."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from rich.table import Table

_PIPE_WIDTH = 140  # rich takes a pipe for a terminal of 80 columns


def console() -> Console:
    """The standard output: as wide as its terminal, or as COLUMNS says, or 140 columns when piped."""
    found = Console(highlight=False)
    return found if found.is_terminal or "COLUMNS" in os.environ else Console(highlight=False, width=_PIPE_WIDTH)


def table(title: str | None = None) -> "Table":
    """A table without side borders, so that as much as possible fits on a line."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))


@dataclass(frozen=True)
class Rows:
    """A table to print."""

    title: str
    headings: tuple[str, ...]  # one a column; a cell and a heading may have several lines
    rows: Sequence[Sequence[str]]
    left: tuple[str, ...] = ()  # headings of the columns that are words, which stand to the left
    colours: tuple[tuple[str, str], ...] = ()  # a cell's text -> the colour that it has on a terminal


def show(out: Console, made: Rows) -> None:
    """Print a table; without a terminal each row is one line, its empty cells left out, with two spaces between."""
    if not out.is_terminal:
        for row in made.rows:
            cells = (_one_line(*cell) for cell in zip(made.headings, row, strict=True))
            print("  ".join(cell for cell in cells if cell))
        return
    drawn, colours = table(made.title), dict(made.colours)
    for heading in made.headings:
        drawn.add_column(heading, justify="left" if heading in made.left else "right", overflow="fold")
    for row in made.rows:
        drawn.add_row(*(f"[{colours[cell]}]{cell}[/]" if cell in colours else _escape(cell) for cell in row))
    out.print(drawn)


def show_json(value: Any) -> None:
    """Print a dataclass as JSON, its fields by their names."""
    print(json.dumps(asdict(value), indent=2, ensure_ascii=False))


def _one_line(heading: str, cell: str) -> str:
    """Return a cell as words: with its heading if it is a number, which says nothing by itself."""
    words = " ".join(cell.split())
    if not words.strip("–() "):
        return ""
    number = words.lstrip("+-\N{MINUS SIGN}")[:1].isdigit() or words[0] == "∞"
    return f"{' '.join(heading.split())} {words}" if number else words


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def owners_terminal() -> bool:
    """Whether errors are read on a terminal now: only there, and in no log, is said what follows from private rows."""
    return sys.stderr.isatty()


def tell_owner(sentence: str) -> None:
    """Say what follows from private rows, without a count or a value, on a terminal and nowhere else."""
    if owners_terminal():
        print(sentence, file=sys.stderr, flush=True)
