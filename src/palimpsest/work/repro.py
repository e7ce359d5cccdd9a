"""`python -m palimpsest.work.repro [--single-item] [TARGET ...]`: does what `dvc repro` does, in our words.

Both runners start stages through it, and only here are DVC's own hints filtered out. After a Ctrl-C it records the
stage that is done, and begins no other: half of DVC's lock files would be worse than a moment's delay. Processes that
a run starts are shown while they run, and ended together with everything that they started.
"""

import codecs
import contextlib
import json
import logging
import os
import re
import shutil
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
from traceback import extract_tb
from types import FrameType
from typing import IO, TYPE_CHECKING, Any, NoReturn

import psutil

from palimpsest.errors import PalimpsestError
from palimpsest.files import atomic_path
from stages.common import end_with_parent, name_runner
from stages.warm import GRACE_SECONDS, STOPPED

if TYPE_CHECKING:
    from dvc.repo import Repo

BUSY = 75  # exit status: another DVC process uses the same files
_STARTS = "Running stage "
_HINTS = (
    "To track the changes with git", "To enable auto staging", "Updating lock file", "Generating lock file",
    "Process '%s' with (Pid %s), in RWLock-file", "'%s' is empty",  # as `release/` is where nothing may leave
)  # fmt: skip
_NOTE = re.compile("[0-9a-f]{64}")
_stopping = False
_POLL_SECONDS = 0.05
_CHUNK = 65536


class _Stopping(BaseException):
    """Raised when the next stage would begin and must not."""


def silence_dvc() -> None:
    """Hide DVC's hints from the user: about `dvc push`, which private stages have no use for, about git and locks."""
    import dvc  # noqa: F401  # it sets its handlers up when it is imported

    for handler in logging.getLogger("dvc").handlers:
        handler.addFilter(_is_no_hint)


def reproduce(targets: Sequence[str], *, single_item: bool) -> int:
    """Bring stages up to date as `dvc repro` does, in the working directory; return its exit status."""
    from dvc.exceptions import DvcException
    from dvc.lock import LockError
    from dvc.repo import Repo
    from dvc.stage.exceptions import StageCmdFailedError

    silence_dvc()
    logging.getLogger("dvc.stage.run").addFilter(_is_allowed)
    try:
        with Repo(_wait_for_lock=True) as repo:  # a command that reads the state holds the lock for a moment
            discard_broken_lock(repo)
            _discard_broken_notes(repo)
            _write_locks_whole()
            repo.reproduce(list(targets) or None, single_item=single_item)
    except DvcException as error:
        causes = list(_causes(error))
        if any(isinstance(cause, LockError) for cause in causes):
            return _report_busy()
        failed = any(isinstance(cause, StageCmdFailedError) for cause in causes)
        _tell(
            f"{error}." if failed else f"{': '.join(map(_describe_error, causes))}.",
            "Read the stage's own lines above, then run again." if failed else "Correct it, then run again.",
        )
        return 1
    except _Stopping:
        return STOPPED
    return STOPPED if _stopping else 0


def discard_broken_lock(repo: "Repo") -> None:
    """Remove DVC's list of busy files if a killed DVC process left half of it: every later run would fail on it."""
    from dvc.lock import make_lock
    from dvc.rwlock import RWLOCK_FILE, RWLOCK_LOCK

    folder = Path(repo.tmp_dir or repo.root_dir)
    hardlink = repo.config["core"].get("hardlink_lock", False)
    guard = make_lock(str(folder / RWLOCK_LOCK), tmp_dir=str(folder), hardlink_lock=hardlink, wait=True)
    with guard:  # nobody is writing it now
        if not _is_json(folder / RWLOCK_FILE):
            (folder / RWLOCK_FILE).unlink()


def _discard_broken_notes(repo: "Repo") -> None:
    """Remove what a full disk left of DVC's notes of earlier runs: DVC takes the newest file of a folder for whole, and
    fails where a folder has none. A whole note has a hash for its name.
    """
    with repo.lock:  # nobody is writing one now
        for folder in filter(Path.is_dir, Path(repo.stage_cache.cache_dir).glob("*/*")):
            for half in (file for file in folder.iterdir() if not _NOTE.fullmatch(file.name)):
                half.unlink()
            if not any(folder.iterdir()):
                folder.rmdir()


def _write_locks_whole() -> None:
    """Have DVC replace dvc.lock whole: it would write into the file, and a full disk or a kill would leave half."""
    from dvc import dvcfile

    dvcfile.modify_yaml = _modify_file


@contextmanager
def _modify_file(path: str, fs: object = None) -> Iterator[dict[str, Any]]:
    """Yield the content of one of DVC's files to be changed; the file then has all changes, or is as it was."""
    from dvc.utils.serialize import modify_yaml

    with atomic_path(path) as draft:
        if Path(path).exists():
            shutil.copyfile(path, draft)
        with modify_yaml(str(draft)) as said:
            yield said


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return True
    except ValueError:
        return False
    return True


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _describe_error(cause: BaseException) -> str:
    """Return DVC's message; for an error that it did not foresee, its type and place too."""
    from dvc.exceptions import DvcException

    if isinstance(cause, DvcException):
        return str(cause)
    at = extract_tb(cause.__traceback__)[-1]
    return f"{cause} ({type(cause).__name__} at line {at.lineno} of {Path(at.filename).name})"


def _report_busy() -> int:
    _tell(
        "Another DVC process is at files that this run needs.",
        "Wait for it to end, or end it, and run again. Nothing of its work is lost; remove no lock by hand.",
    )
    return BUSY


def _tell(problem: str, remedy: str) -> None:
    print(PalimpsestError(problem, remedy).lines, file=sys.stderr, flush=True)


def _is_no_hint(record: logging.LogRecord) -> bool:
    return not str(record.msg).lstrip().startswith(_HINTS)


def _is_allowed(record: logging.LogRecord) -> bool:
    """Stop before the next stage if asked to: DVC logs that a stage starts right before it does."""
    if _stopping and str(record.msg).startswith(_STARTS):
        raise _Stopping
    return True


def _stop(number: int, frame: FrameType | None) -> None:
    global _stopping
    _stopping = True


if __name__ == "__main__":
    signal.signal(signal.SIGINT, _stop)
    name_runner()
    end_with_parent()
    os.environ.setdefault("DVC_NO_ANALYTICS", "1")
    names = [name for name in sys.argv[1:] if name != "--single-item"]
    sys.exit(reproduce(names, single_item="--single-item" in sys.argv))


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
