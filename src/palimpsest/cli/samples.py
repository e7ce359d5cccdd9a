"""`palimpsest samples`: a page to look through rows with, written anew each time."""

import sys
from collections.abc import Sequence
from pathlib import Path

from palimpsest.cli.context import environment
from palimpsest.cli.processes import shown
from palimpsest.params.load import load
from palimpsest.workspace import RATINGS, SAMPLES

_ROWS = 10_000


def write_samples(workspace: Path, variants: Sequence[str] = (), *, rows: int = _ROWS) -> int:
    """Write the page and print its path; the exit status.

    A process of its own reads the rows, started as stages are: neither an error nor a library quotes one there.

    Args:
        variants: which, and rows at epsilon 0; none are all that have rows.
        rows: of each variant, drawn at random where it has more.

    Raises:
        ParamsError: this is no workspace.
    """
    return _run(workspace, "samples", [str(rows), *variants], f"Samples (private zone): {_path(workspace, SAMPLES)}")


def write_sheet(workspace: Path, variants: Sequence[str], rows: int) -> int:
    """Write a blinded sheet with so many rows of each variant and print its path; the exit status."""
    sheet = f"Sheet (private zone): {_path(workspace, RATINGS)}/sheet.csv; the key beside it stays here."
    return _run(workspace, "ratings", ["sheet", str(rows), *variants], sheet)


def read_ratings(workspace: Path, sheets: Sequence[Path]) -> int:
    """Print what filled sheets of the last key come to; the exit status."""
    return _run(workspace, "ratings", ["read", *(str(path.resolve()) for path in sheets)], "")


def _run(workspace: Path, program: str, told: Sequence[str], done: str) -> int:
    load(workspace)
    code = shown([sys.executable, "-P", "-m", f"stages.{program}", *told], workspace, environment())
    if code == 0 and done:
        print(done, flush=True)
    return code


def _path(workspace: Path, path: Path) -> Path:
    return (workspace / path).resolve()
