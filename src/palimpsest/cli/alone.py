"""One `palimpsest run` at a time in a workspace: a lock that says who holds it, and that ends with its processes."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from palimpsest.errors import DataError
from palimpsest.files import make_folder
from palimpsest.workspace import RUNNING


@contextmanager
def alone(workspace: Path) -> Iterator[int]:
    """Hold the workspace while the block lasts; yields the descriptor that holds it.

    The operating system gives the lock back when the last process that has the descriptor ends, however it ends.

    Raises:
        DataError: another run holds it: by whom, and since when.
    """
    path = workspace / RUNNING
    make_folder(path.parent)
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _taken(path) from None
        os.ftruncate(descriptor, 0)
        since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "since": since}).encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _taken(path: Path) -> DataError:
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        who = f"process {int(body['pid'])}, since {body['since']}"
    except (KeyError, TypeError, ValueError):  # it is just being written
        who = "another process"
    return DataError(
        f"A run is at work in this workspace: {who}.",
        "Wait for it to end, or stop it with Ctrl-C where it was started. `palimpsest status`, `plan` and `ledger` "
        "work meanwhile.",
    )
