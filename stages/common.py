"""Starts every stage, and reports its failures without a word of private text."""

import logging
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

from palimpsest.devices import VARIABLE
from palimpsest.errors import PalimpsestError, ParamsError, TeamError, machine_error
from palimpsest.files import close_workspace, owner_only
from palimpsest.shards import RUNNER, closing
from stages.runner import alone, end_with_launcher, end_with_runner
from stages.warm import STOPPED

PROCESSES = "PALIMPSEST_PROCESSES"  # from the environment, because it is a fact about the machine
LAUNCHED = "PALIMPSEST_LAUNCHED"  # set by `start_processes` for the processes that it starts
_LONGEST_NAME = 60  # of a lock: a sign takes up to four bytes, and file systems stop at 255
LOST = 3  # exit status of a process that has lost another one


def start(stage: Callable[..., None]) -> None:
    """Run a stage with the command line's arguments; errors become two lines and exit status 1.

    Guarantee: only its user has access to what it writes, whatever the umask was. An unexpected error is shown only by
    its type and place in the code, and warnings of libraries are not shown: either might quote a private row or number.
    """
    with _told():
        if "RANK" in os.environ:
            end_with_launcher()
        else:
            end_with_runner()
        close_workspace(Path())
        _choose_where()
        with _alone(), closing():
            began = time.monotonic()
            stage(*sys.argv[1:])
            _keep_time(time.monotonic() - began)


def start_processes(stage: Callable[..., None]) -> None:
    """Run a stage like `start`, in as many processes as the environment asks for, one for each accelerator, say.

    This process starts the others and ends with them: all when it is stopped, and the rest when one of them is lost.
    """
    with _told():
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
def _told() -> Iterator[None]:
    """Report errors in two lines, or only by their type and place, and exit."""
    with owner_only(), _silent_libraries():
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


def _alone() -> AbstractContextManager[None]:
    """Be the only process at this stage; of processes that train together, the first one locks for all."""
    name = _lock_name(Path(sys.argv[0]).stem, sys.argv[1:])
    return alone(name) if os.environ.get("RANK", "0") == "0" else nullcontext()


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
        from stages.timing import note

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
