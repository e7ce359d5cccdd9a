"""Where the commands print their tables."""

import os

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
