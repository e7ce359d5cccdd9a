"""Processes that a run starts: shown while they run, ended together with everything that they started."""

import codecs
import contextlib
import os
import signal
import subprocess
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, NoReturn

import psutil

from stages.warm import GRACE_SECONDS

_POLL_SECONDS = 0.05
_CHUNK = 65536


def run_command(command: Sequence[str], cwd: Path, env: Mapping[str, str], keeps: Sequence[int] = ()) -> int:
    """Run a command in a session of its own, show what it prints as it comes, return its exit code.

    It has a terminal if we have one. After a Ctrl-C nothing more of it is shown, and it ends with all that it started.

    Args:
        keeps: descriptors that it holds open as long as it lives.

    Raises:
        KeyboardInterrupt: after a Ctrl-C, once all of them have ended.
    """
    with (
        _mirror_output(sys.stdout) as (out, mute_out),
        _mirror_output(sys.stderr) as (err, mute_err),
        catch_termination(),
    ):
        child = subprocess.Popen(
            command, cwd=cwd, env=dict(env), stdin=subprocess.DEVNULL, stdout=out, stderr=err, pass_fds=keeps,
            start_new_session=True,
        )  # fmt: skip
        os.close(out)
        os.close(err)
        try:
            return child.wait()
        except BaseException:
            mute_out.set()
            mute_err.set()
            end([child])
            raise


@contextmanager
def catch_termination() -> Iterator[None]:
    """Treat a closed terminal or a `kill` as a Ctrl-C meanwhile, so that nothing is left running."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def _mirror_output(stream: IO[str]) -> Iterator[tuple[int, threading.Event]]:
    """A descriptor for a child, whose output goes to the stream until the event is set."""
    source, sink = _pair(stream)
    mute = threading.Event()
    copier = threading.Thread(target=_copy, args=(source, stream, mute), daemon=True)
    copier.start()
    try:
        yield sink, mute
    finally:
        copier.join(GRACE_SECONDS)  # do not wait for what a detached process holds open


def _pair(stream: IO[str]) -> tuple[int, int]:
    """Return where to read and where to write: a terminal like the stream's, or a pipe."""
    if not stream.isatty():
        return os.pipe()
    source, sink = os.openpty()
    with contextlib.suppress(OSError, termios.error):
        tty.setraw(sink)
        termios.tcsetwinsize(sink, termios.tcgetwinsize(stream.fileno()))
    return source, sink


def _copy(source: int, stream: IO[str], mute: threading.Event) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with os.fdopen(source, "rb", buffering=0) as file, contextlib.suppress(OSError, ValueError):  # its other end closed
        while chunk := file.read(_CHUNK):
            if not mute.is_set():
                stream.write(decoder.decode(chunk))
                stream.flush()


def leave(code: int) -> NoReturn:
    """End this process at once: after a Ctrl-C nobody waits for libraries to shut down."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def end(children: Sequence["subprocess.Popen[bytes]"], grace: float = GRACE_SECONDS) -> None:
    """End processes that lead sessions of their own, with all that they started.

    Each is interrupted, terminated after `grace` seconds and killed after a third of that. An interrupt lets a stage
    give back what never began and remove its half-written files.
    """
    family: set[psutil.Process] = set()
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            family = _select_alive(family | _families(children))
            _signal(family, number)
            _wait(family, grace if number == signal.SIGINT else grace / 3)
    finally:  # also when a second Ctrl-C cuts the patience short
        _signal(_select_alive(family | _families(children)), signal.SIGKILL)


def _wait(family: set[psutil.Process], seconds: float) -> None:
    # psutil's own waiting would take the exit code away from subprocess, which then reports 0.
    deadline = time.monotonic() + seconds
    while _select_alive(family) and time.monotonic() < deadline:
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


def _select_alive(processes: set[psutil.Process]) -> set[psutil.Process]:
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
