"""The commands about params.yaml: params and render."""

import json
import math
from pathlib import Path
from typing import Annotated

import typer

from palimpsest.cli.command import Json, Workspace
from palimpsest.params.text import flow

commands = typer.Typer()


@commands.command("params")
def show_values(
    every: Annotated[
        bool, typer.Option("--all/--changed", help="Every value, or only what differs from its default.")
    ] = False,
    describe: Annotated[
        bool, typer.Option("--keys", help="What every key of params.yaml means, and its default.")
    ] = False,
    as_json: Json = False,
    workspace: Workspace = Path(),
) -> None:
    """The values of the workspace, and where each comes from.

    That is params.yaml, worked out from it, or a default.
    """
    if describe:
        from palimpsest.params.reference import render as reference

        return print(reference())
    from palimpsest.params.load import read_written, resolve_params
    from palimpsest.params.resolve import knobs

    file = read_written(workspace)
    shown = [knob for knob in knobs(file, resolve_params(file)) if every or knob.changed]
    if as_json:
        told = [knob._replace(value=".inf") if knob.value == math.inf else knob for knob in shown]  # JSON has none
        print(json.dumps([knob._asdict() for knob in told], indent=2, default=str))
        return
    for knob in shown:
        print(f"{knob.key}: {flow(knob.value)}  # {knob.origin}")


@commands.command("render")
def render_files(workspace: Workspace = Path()) -> None:
    """Write what follows from params.yaml: values and graph.

    `run` and `plan` do so by themselves.
    """
    from palimpsest.work.context import render

    print("\n".join(f"written: {name}" for name in render(workspace)) or "up to date")
