"""A command of the command line, and how one ends."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import typer

RICH: Literal["rich"] | None = "rich" if sys.stdout.isatty() else None  # a pipe gets plain lines
HELP = {"help_option_names": ["-h", "--help"]}


@dataclass(frozen=True)
class Command:
    """A command that a package brings (`extensions`).

    Attributes:
        function: annotated as Typer reads it; its docstring is the command's help.
        examples: lines to type, shown under the help.
    """

    function: Callable[..., None]
    examples: tuple[str, ...] = ()

    def command(self, name: str) -> Any:
        """Return the command as the command line runs it."""
        alone = typer.Typer(context_settings=HELP, rich_markup_mode=RICH, add_completion=False)
        alone.command(name)(self.function)
        return typer.main.get_command(alone)


def end(code: int) -> NoReturn:
    """End with the exit status of a run."""
    from palimpsest.cli.processes import leave
    from palimpsest.cli.repro import STOPPED

    if code == STOPPED:
        leave(code)
    raise typer.Exit(code)
