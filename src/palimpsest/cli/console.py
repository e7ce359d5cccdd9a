"""Where the commands print their tables."""

import os
import sys

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

_PIPE_WIDTH = 140  # rich takes a pipe for a terminal of 80 columns


def console() -> Console:
    """The standard output: as wide as its terminal, or as COLUMNS says, or 140 columns when piped."""
    found = Console(highlight=False)
    return found if found.is_terminal or "COLUMNS" in os.environ else Console(highlight=False, width=_PIPE_WIDTH)


def table(title: str | None = None) -> Table:
    """A table without side borders, so that as much as possible fits on a line."""
    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))


def owners_terminal() -> bool:
    """Whether errors are read on a terminal now: what follows from private rows is said there, and in no log."""
    return sys.stderr.isatty()


def tell_owner(sentence: str) -> None:
    """Say what follows from private rows, without a count or a value, on a terminal and nowhere else."""
    if owners_terminal():
        print(sentence, file=sys.stderr, flush=True)
