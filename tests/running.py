"""Whether a run, a process or anything else is at work, and waiting until it is or no longer is."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

from palimpsest.errors import DataError
from palimpsest.work.run import hold_workspace


def is_free(workspace: Path) -> bool:
    try:
        with hold_workspace(workspace):
            return True
    except DataError:
        return False


def at_work(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Those that have not ended."""
    return [one for one in processes if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
