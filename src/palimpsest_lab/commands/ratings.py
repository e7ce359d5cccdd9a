"""`palimpsest rate`: sheets for people who judge rows. A process of the private zone writes and reads them."""

from collections.abc import Sequence
from pathlib import Path

from palimpsest.work.look import run_private
from palimpsest.workspace import RATINGS

_PROGRAM = "palimpsest_lab.stages.ratings"


def write_sheet(workspace: Path, variants: Sequence[str], rows: int) -> int:
    """Write a blinded sheet with so many rows of each variant and print its path; return the exit status."""
    done = f"Sheet (private zone): {(workspace / RATINGS).resolve()}/sheet.csv; the key beside it stays here."
    return run_private(workspace, _PROGRAM, ["sheet", str(rows), *variants], done)


def read_ratings(workspace: Path, sheets: Sequence[Path]) -> int:
    """Print the results of filled sheets of the last key; return the exit status."""
    return run_private(workspace, _PROGRAM, ["read", *(str(path.resolve()) for path in sheets)], "")
