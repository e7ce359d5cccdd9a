"""One `palimpsest run` and one `palimpsest serve` at a time in a workspace: locks that say who holds them, and that end
with their processes.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from palimpsest.errors import DataError
from palimpsest.files import make_folder
from palimpsest.workspace import RUNNING, SERVING


@contextmanager
def alone(workspace: Path) -> Iterator[int]:
    """Hold the workspace while the block lasts; yields the descriptor that holds it.

    The operating system gives the lock back when the last process that has the descriptor ends, however it ends.

    Raises:
        DataError: another run holds it: by whom, and since when.
    """
    with _held(workspace / RUNNING, "A run is at work in this workspace") as descriptor:
        yield descriptor


@contextmanager
def serving(workspace: Path) -> Iterator[int]:
    """Hold the schedule of the workspace while the block lasts: a second schedule would replace the first and end it.

    Raises:
        DataError: it is served already: by whom, and since when.
    """
    with _held(workspace / SERVING, "This workspace is served already") as descriptor:
        yield descriptor


@contextmanager
def _held(path: Path, said: str) -> Iterator[int]:
    make_folder(path.parent)
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _taken(path, said) from None
        os.ftruncate(descriptor, 0)
        since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "since": since}).encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _taken(path: Path, said: str) -> DataError:
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        who = f"process {int(body['pid'])}, since {body['since']}"
    except (KeyError, TypeError, ValueError):  # it is just being written
        who = "another process"
    return DataError(
        f"{said}: {who}.",
        "Wait for it to end, or stop it with Ctrl-C where it was started. `palimpsest status`, `plan` and `ledger` "
        "work meanwhile.",
    )
