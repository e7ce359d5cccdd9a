"""Starts every stage, ends it with its process, and reports failures without a word of private text."""

import ctypes
import fcntl
import logging
import math
import os
import resource
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

import psutil
from ruamel.yaml import YAML

from palimpsest.devices import VARIABLE
from palimpsest.errors import DataError, PalimpsestError, ParamsError, TeamError, machine_error
from palimpsest.files import close_workspace, make_folder, restrict_to_owner, write_json
from palimpsest.params.file import RESOLVED
from palimpsest.shards import RUNNER, release_cluster
from palimpsest.workspace import SECONDS, STAGES_RUNNING
from stages.warm import GRACE_SECONDS, PR_SET_PDEATHSIG, STOPPED

RUNNER_PROCESS = "PALIMPSEST_RUNNER"  # process number and start time of the runner, for all that a stage starts
LOCK_SECONDS = 10.0  # far longer than an orphan lives
_POLL_SECONDS = 0.5
_SHELLS = {"sh", "bash", "dash", "zsh", "ksh"}  # DVC starts a stage through one
PROCESSES = "PALIMPSEST_PROCESSES"  # from the environment, because it is a fact about the machine
LAUNCHED = "PALIMPSEST_LAUNCHED"  # set by `start_processes` for the processes that it starts
_LONGEST_NAME = 60  # of a lock: a sign takes up to four bytes, and file systems stop at 255
LOST = 3  # exit status of a process that has lost another one
PASSES = ("epochs", "rounds", "steps", "tokens")
RECORDS, ROWS = "n_public", "rows"


def end_with_runner() -> None:
    """Make this process, a stage of DVC, end once the runner of the stages is gone, however that ended."""
    told = os.environ.get(RUNNER_PROCESS)
    if told is None and "DVC_STAGE" not in os.environ:
        return  # started by hand: the terminal ends it
    if told is None:
        number, began = _runner()
        os.environ[RUNNER_PROCESS] = f"{number} {began}"
    else:
        number, began = int(told.split()[0]), float(told.split()[1])
    _watch(number, began, group=False)


def name_runner() -> None:
    """Tell all processes that this one starts that it runs stages."""
    os.environ[RUNNER_PROCESS] = f"{os.getpid()} {_began(os.getpid())}"


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
def lock_stage(name: str) -> Iterator[None]:
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


def start(stage: Callable[..., None]) -> None:
    """Run a stage with the command line's arguments; errors become two lines and exit status 1.

    Guarantee: only its user has access to what it writes, whatever the umask was. An unexpected error is shown only by
    its type and place in the code, and warnings of libraries are not shown: either might quote a private row or number.
    """
    with _report_errors():
        if "RANK" in os.environ:
            end_with_launcher()
        else:
            end_with_runner()
        close_workspace(Path())
        _choose_where()
        with _lock_own_stage(), release_cluster():
            began = time.monotonic()
            stage(*sys.argv[1:])
            _keep_time(time.monotonic() - began)


def start_processes(stage: Callable[..., None]) -> None:
    """Run a stage like `start`, in as many processes as the environment asks for, one for each accelerator, say.

    This process starts the others and ends with them: all when it is stopped, and the rest when one of them is lost.
    """
    with _report_errors():
        count = processes()
        if count > 1 and "RANK" not in os.environ:
            from stages.together import launch  # which reads this module

            module = sys.modules["__main__"].__spec__
            assert module is not None  # stages are started by name; by path, stages/select.py would hide the library's
            end_with_runner()
            os.environ |= {"PYTHONSAFEPATH": "1", LAUNCHED: "1"}  # the first as `-P` in the stage's own command
            launch(count, module.name, sys.argv[1:])
            return
    start(stage)


@contextmanager
def _report_errors() -> Iterator[None]:
    """Report errors in two lines, or only by their type and place, and exit."""
    with restrict_to_owner(), _silent_libraries():
        try:
            yield
        except TeamError as error:
            _say(error.lines)
            raise SystemExit(LOST) from None
        except PalimpsestError as error:
            _fail(error)
        except KeyboardInterrupt:
            _say("stopped: no half-written output is left; what had begun stays charged")
            raise SystemExit(STOPPED) from None
        except Exception as error:
            if told := machine_error(error):
                _fail(told)
            _fail_silently(error)


def _lock_own_stage() -> AbstractContextManager[None]:
    """Be the only process at this stage; of processes that train together, the first one locks for all."""
    name = _lock_name(Path(sys.argv[0]).stem, sys.argv[1:])
    return lock_stage(name) if os.environ.get("RANK", "0") == "0" else nullcontext()


def _lock_name(program: str, arguments: Sequence[str]) -> str:
    """Name the lock of a stage with its arguments; long names become a hash, as no file's name may be long."""
    name = "-".join([program, *arguments]).replace(os.sep, "_")
    return name if len(name) <= _LONGEST_NAME else f"{program}-{sha256(name.encode()).hexdigest()[:16]}"


def _choose_where() -> None:
    """Make this process compute where params.yaml says, or where its starter says."""
    # Stages need these imports; a reader of this module does not.
    from palimpsest.params.load import device_of, runner_of

    os.environ |= {VARIABLE: device_of(), RUNNER: runner_of()}


def _keep_time(seconds: float) -> None:
    """Keep the stage's time for `palimpsest plan`. It is only informative: nothing fails where it cannot be kept."""
    with suppress(Exception):
        note(Path(sys.argv[0]).stem, "".join(sys.argv[1:2]), seconds)


@contextmanager
def _silent_libraries() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda *_, **__: None  # no filter that a library sets brings it back
            yield
    finally:
        logging.disable(before)


def processes() -> int:
    """Read from the environment how many processes train together."""
    text = os.environ.get(PROCESSES, "1")
    count = int(text) if text.strip().isdecimal() else 0
    if count < 1:
        raise ParamsError(
            f"{PROCESSES} is {text!r} in the environment, which is not a whole number from 1.",
            "Set it to the number of processes that train together, or unset it for one.",
        )
    return count


def _fail(error: PalimpsestError) -> NoReturn:
    print(error.lines, file=sys.stderr, flush=True)
    raise SystemExit(1)


def _say(words: str) -> None:
    """Report what ended all processes of a team, unless their starter does."""
    if LAUNCHED not in os.environ or "RANK" not in os.environ:
        print(words, file=sys.stderr, flush=True)


def _fail_silently(error: Exception) -> NoReturn:
    frames = "".join(traceback.format_tb(error.__traceback__))
    print(f"{frames}{type(error).__name__} (its message is not shown: it might quote private text)", file=sys.stderr)
    raise SystemExit(1)


def note(program: str, name: str, seconds: float) -> None:
    """Keep the time and the peak memory of a stage that has just ended, in the working directory.

    Args:
        program: its module in `stages`.
        name: the value it is repeated for; empty where it is not repeated.
        seconds: how long it took, without starting Python.
    """
    used = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    gib = used / (2**30 if sys.platform == "darwin" else 2**20)  # macOS counts bytes, Linux KiB
    body = {"seconds": math.ceil(seconds), "gib": round(gib, 2), "cores": os.cpu_count(), "sizes": sizes(Path())}
    write_json(place(program, name), body)


def place(program: str, name: str) -> Path:
    """Return the path of a stage's time, from the workspace."""
    return SECONDS / f"{program}@{name}.json"


def sizes(workspace: Path) -> dict[str, float]:
    """Return key, as params.yaml resolves it -> each setting that determines the amount of work."""
    values = YAML(typ="safe").load((workspace / RESOLVED).read_text(encoding="utf-8"))
    return dict(_numbers(values, ()))


def _numbers(value: Any, key: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for part, inner in value.items():
            yield from _numbers(inner, (*key, str(part)))
    elif isinstance(value, int | float) and key[-1] in (RECORDS, ROWS, *PASSES):
        yield ".".join(key), float(value)
