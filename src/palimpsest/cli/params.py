"""`palimpsest params`: every value of a workspace and where it comes from."""

from pathlib import Path

from palimpsest.params.load import resolved, written
from palimpsest.params.origin import knobs
from palimpsest.params.text import flow


def show_params(workspace: Path, *, every: bool) -> None:
    """Print one line for each value: all of them, or those that a person decided against a default or without one."""
    file = written(workspace)
    for knob in knobs(file, resolved(file)):
        if every or knob.changed:
            print(f"{knob.key}: {flow(knob.value)}  # {knob.origin}")
