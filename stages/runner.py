"""Ends a stage with the process that runs it, and keeps other processes off its files.

A killed `palimpsest run`, or a killed DVC, would leave its stage at work. The stage would block the next run, or
commit beside it and be charged twice. So each process watches the one that started it.
"""

import ctypes
import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from palimpsest.errors import DataError
from palimpsest.files import make_folder
from palimpsest.workspace import STAGES_RUNNING
from stages.warm import GRACE_SECONDS, PR_SET_PDEATHSIG, STOPPED

VARIABLE = "PALIMPSEST_RUNNER"  # process number and start time of the runner, for all that a stage starts
LOCK_SECONDS = 10.0  # far longer than an orphan lives
_POLL_SECONDS = 0.5
_SHELLS = {"sh", "bash", "dash", "zsh", "ksh"}  # DVC starts a stage through one


def end_with_runner() -> None:
    """Make this process, a stage of DVC, end once the runner of the stages is gone, however that ended."""
    told = os.environ.get(VARIABLE)
    if told is None and "DVC_STAGE" not in os.environ:
        return  # started by hand: the terminal ends it
    if told is None:
        number, began = _runner()
        os.environ[VARIABLE] = f"{number} {began}"
    else:
        number, began = int(told.split()[0]), float(told.split()[1])
    _watch(number, began, group=False)


def name_runner() -> None:
    """Tell all processes that this one starts that it runs stages."""
    os.environ[VARIABLE] = f"{os.getpid()} {_began(os.getpid())}"


def end_with_parent() -> None:
    """Make this process, which runs stages as the leader of its group, end with its parent, and the group with it."""
    parent = os.getppid()
    _watch(parent, _began(parent), group=True)


def end_with_launcher() -> None:
    """Make this process, one of several at a stage, end once its starter is gone, however that ended."""
    launcher = os.getppid()
    _watch(launcher, _began(launcher), group=False)


def end_with_starter() -> None:
    """In a new process, before it becomes a foreign program: make Linux kill it once its starter is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


def _runner() -> tuple[int, float]:
    """Return the nearest process above that is no shell, and when it began."""
    above = psutil.Process().parents()
    found = next((each for each in above if each.name() not in _SHELLS), None)
    return (found.pid, found.create_time()) if found else (0, 0.0)


def _watch(number: int, began: float, *, group: bool) -> None:
    threading.Thread(target=_wait, args=(number, began, group), name="runner", daemon=True).start()


def _wait(number: int, began: float, group: bool) -> None:
    while began and _began(number) == began:
        time.sleep(_POLL_SECONDS)
    if group:
        os.killpg(os.getpgrp(), signal.SIGINT)
    else:
        os.kill(os.getpid(), signal.SIGINT)  # so that it gives back what never began, and removes half files
    time.sleep(2 * GRACE_SECONDS)
    os._exit(STOPPED)


def _began(number: int) -> float:
    """Return when a live process began; 0 if none has this number."""
    try:
        process = psutil.Process(number)
        return 0.0 if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return 0.0


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Hold a stage while the block lasts; wait for an earlier process at it, which may be about to end.

    The operating system gives the lock back when the process ends, however it ends.

    Raises:
        DataError: another process is still at the stage.
    """
    path = STAGES_RUNNING / f"{name}.lock"
    make_folder(path.parent)
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        _take(descriptor, name)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, name: str) -> None:
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise DataError(
                    f"Another process is at the stage {name}.", "Wait for it to end, or end it, and run again."
                ) from None
            time.sleep(_POLL_SECONDS)
