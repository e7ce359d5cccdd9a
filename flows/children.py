"""Child processes that can all be stopped, with everything they started; what they make is their user's alone."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path

import psutil

from flows.slots import Stopped
from palimpsest.files import OWNER_UMASK

_POLL_SECONDS = 0.05


class Children:
    """The running children of one flow, each in a process session of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def run(self, command: Sequence[str], cwd: Path, env: Mapping[str, str], on_line: Callable[[str], None]) -> int:
        """Run a command, hand over each line of its output as it comes, return its exit code. Raises Stopped."""
        child = self._start(command, cwd, env)
        try:
            _read_lines(child, on_line)
            return child.wait()
        except BaseException:
            _end([child], grace=1.0)
            raise
        finally:
            with self._lock:
                self._running.discard(child)

    def stop(self, grace: float) -> None:
        """End every child and start no more.

        Each is interrupted, then terminated, then killed, `grace` seconds apart: an interrupt lets a stage remove
        its half-written files.
        """
        with self._lock:
            self._stopped = True
            running = list(self._running)
        _end(running, grace)

    def _start(self, command: Sequence[str], cwd: Path, env: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        with self._lock:  # no child may slip in between the decision to stop and the stopping
            if self._stopped:
                raise Stopped
            child = subprocess.Popen(
                command, cwd=cwd, env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, start_new_session=True, umask=OWNER_UMASK,
            )  # fmt: skip
            self._running.add(child)
            return child


def _read_lines(child: "subprocess.Popen[bytes]", on_line: Callable[[str], None]) -> None:
    assert child.stdout is not None
    # A bar redraws itself with carriage returns: only its last drawing is a line.
    for line in TextIOWrapper(child.stdout, encoding="utf-8", errors="replace", newline="\n"):
        text = line.rstrip().rpartition("\r")[2]
        if text:
            on_line(text)


def _end(children: Sequence["subprocess.Popen[bytes]"], grace: float) -> None:
    family: set[psutil.Process] = set()
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            family = _alive(family | _families(children))
            _signal(family - _spared(family, children) if number == signal.SIGINT else family, number)
            _wait(family, grace)
    finally:  # also when a second Ctrl-C cuts the patience short
        _signal(_alive(family | _families(children)), signal.SIGKILL)


def _spared(family: set[psutil.Process], children: Sequence["subprocess.Popen[bytes]"]) -> set[psutil.Process]:
    """Children that end by themselves once what they started has ended.

    DVC notes the end of a stage in its lock file: an interrupt at that moment would leave the file in ruins.
    """
    leaders = {child.pid for child in children}
    return {process for process in family if process.pid in leaders and _descendants(process)}


def _wait(family: set[psutil.Process], seconds: float) -> None:
    # psutil's own waiting would take the exit code away from subprocess, which then reports 0.
    deadline = time.monotonic() + seconds
    while _alive(family) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _families(children: Sequence["subprocess.Popen[bytes]"]) -> set[psutil.Process]:
    sessions = {child.pid for child in children}
    members = {process for process in psutil.process_iter() if _session(process) in sessions}
    return members.union(*(_descendants(member) for member in members))


def _session(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except (ProcessLookupError, PermissionError):
        return None


def _descendants(process: psutil.Process) -> set[psutil.Process]:
    try:
        return set(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return set()


def _alive(processes: set[psutil.Process]) -> set[psutil.Process]:
    return {process for process in processes if process.is_running() and _status(process) != psutil.STATUS_ZOMBIE}


def _status(process: psutil.Process) -> str:
    try:
        return process.status()
    except psutil.NoSuchProcess:
        return psutil.STATUS_ZOMBIE


def _signal(processes: set[psutil.Process], number: int) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue
