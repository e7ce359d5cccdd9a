"""The command line: its groups of commands, each in a module of its own, and what they load is loaded when one runs."""
# ruff: noqa: E402

import gc
from typing import Annotated

import typer

from palimpsest.parts import import_in_parts

# Before what they are about is imported.
import_in_parts("dp_accounting")
gc.set_threshold(100_000)  # what an import makes stays: looking for garbage in it takes a tenth of a command's time

from palimpsest import __version__
from palimpsest.cli import begin, ledger, look, release, run, settings
from palimpsest.cli.command import HELP, RICH, Commands

app = typer.Typer(
    cls=Commands,
    help="Differentially private synthetic text, with a metered budget and an audit.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=HELP,
    rich_markup_mode=RICH,
)
for group in (begin, look, run, ledger, release, settings):
    app.add_typer(group.commands)


def _tell_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Differentially private synthetic text, with a metered budget and an audit."""


if __name__ == "__main__":
    app(prog_name="palimpsest")
