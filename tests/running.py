"""Whether a run is at work."""

from pathlib import Path

from palimpsest.cli.alone import alone
from palimpsest.errors import DataError


def is_free(workspace: Path) -> bool:
    try:
        with alone(workspace):
            return True
    except DataError:
        return False
