"""A command of the command line: options that several share, and how one ends."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import Signature, signature
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
    from palimpsest.cli.repro import STOPPED, leave

    if code == STOPPED:
        leave(code)
    raise typer.Exit(code)


def take_options(given: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take the options of a function or a class: what it makes becomes the first argument."""
    shared = signature(given).parameters

    def taking(command: Callable[..., None]) -> Callable[..., None]:
        own = list(signature(command).parameters.values())[1:]

        @wraps(command)
        def called(**values: Any) -> None:
            command(given(**{name: values.pop(name) for name in shared}), **values)

        both = [*shared.values(), *own]
        vars(called).pop("__wrapped__")  # typer asks the outer one
        called.__annotations__ = {each.name: each.annotation for each in both}
        called.__signature__ = Signature(both)  # type: ignore[attr-defined]
        return called

    return taking
