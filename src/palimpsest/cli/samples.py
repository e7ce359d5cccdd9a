"""`palimpsest samples`: a page to look through rows with, written anew each time."""

import sys
from collections.abc import Sequence
from pathlib import Path

from palimpsest.cli.context import environment
from palimpsest.cli.processes import shown
from palimpsest.params.load import load
from palimpsest.workspace import SAMPLES

_ROWS = 10_000


def write_samples(workspace: Path, variants: Sequence[str] = (), *, rows: int = _ROWS) -> int:
    """Write the page and print its path; return the exit status.

    A process of its own reads the rows, started as stages are: there neither an error nor a library quotes one.

    Args:
        variants: the variants, and rows at epsilon 0, to show; none means all that have rows.
        rows: of each variant, drawn at random where it has more.

    Raises:
        ParamsError: this is no workspace.
    """
    done = f"Samples (private zone): {(workspace / SAMPLES).resolve()}"
    return run_private(workspace, "stages.samples", [str(rows), *variants], done)


def run_private(workspace: Path, program: str, told: Sequence[str], done: str) -> int:
    """Run a program of the private zone as stages are run, print a line when it is done, and return the exit status."""
    load(workspace)
    code = shown([sys.executable, "-P", "-m", program, *told], workspace, environment())
    if code == 0 and done:
        print(done, flush=True)
    return code
