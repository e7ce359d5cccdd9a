"""SIGKILL at a moment: of everything that a run started, of the run alone, or of the process that is at the stage."""

import contextlib
import os
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from bench.chaos.place import Child, Place
from palimpsest.params.load import LEDGER_VARIABLE

NOTHING = "nothing: it had ended"
WHOM = ("tree", "parent", "stage")
MEMBERS = ("leader", "follower", "launcher")
TIMES = 5  # in a row, before a run that nobody disturbs
_STEPS = (2, 3)  # more than at the checkpoint before
_SHARE = 0.6  # of its lines: a run that goes on says fewer, and must not have ended
_LONGEST_SILENCE, _POLL_SECONDS = 2.0, 0.05
_WAIT_SECONDS = 120.0
_MOST_SECONDS = 1800.0


def in_a_row(whom: str, place: Place, arguments: Sequence[str], draw: random.Random) -> Iterator[str]:
    """Start a run and kill some of it, again and again; yields what was at work each time, when all of it has ended."""
    for _ in range(TIMES):
        yield _killed(place, arguments, whom, draw)


def _killed(place: Place, arguments: Sequence[str], whom: str, draw: random.Random) -> str:
    child = place.start(*arguments)
    wait_a_while(place, child, "--ui" in arguments, draw)
    at_work, own = stage_of(place), [] if child.wait() is not None else _chosen(place, child.pid, whom, draw)
    _kill(own)
    child.wait(_MOST_SECONDS)
    return (at_work or "before the first stage") if own else NOTHING


def of_a_team(place: Place, arguments: Sequence[str], draw: random.Random) -> Iterator[str]:
    """Train in two processes and kill one of them, or who started them; yields whom, and when all had ended."""
    for whom in draw.sample(MEMBERS, len(MEMBERS)):
        child = place.start(*arguments, PALIMPSEST_PROCESSES="2")
        steps = _begun(place) + draw.randint(*_STEPS)
        while child.wait(_POLL_SECONDS) is None and _begun(place) < steps:
            pass
        _kill([each for each in _own(place) if _member(each) == whom])
        struck = time.monotonic()
        ended = child.wait(_MOST_SECONDS)
        while _own(place) and time.monotonic() < struck + _WAIT_SECONDS:
            time.sleep(_POLL_SECONDS)
        yield f"{whom}: {time.monotonic() - struck:.1f} s" if ended else NOTHING


def _begun(place: Place) -> int:
    """Steps of trainings that have begun and not ended."""
    return sum(charge.steps_begun for charge in place.charges if charge.state == "begun")


def _member(process: psutil.Process) -> str:
    """Which of a team's processes it is; empty for none."""
    told = " ".join(_command(process))
    if "stages.dp_train" not in told:
        return ""
    with contextlib.suppress(psutil.Error, OSError):
        return {"0": "leader", "1": "follower"}.get(process.environ().get("RANK", ""), "launcher")
    return ""


def wait_a_while(place: Place, child: Child, flow: bool, draw: random.Random) -> None:
    """Wait until a run has said a random number of lines, and a random moment more.

    How fast it is depends on what else the machine does; how much it says does not.
    """
    lines, more = draw.randrange(max(1, int(_SHARE * place.lines(flow)))), draw.uniform(0.0, _LONGEST_SILENCE)
    while child.wait() is None and len(place.log.read_text(errors="replace").splitlines()) < lines:
        time.sleep(_POLL_SECONDS)
    child.wait(more)


def _chosen(place: Place, run: int, whom: str, draw: random.Random) -> list[psutil.Process]:
    own = _own(place)
    if whom == "parent":
        return [psutil.Process(run)]
    if whom == "tree":
        return own
    at_stages = [each for each in own if any("warm.py" in part or "stages." in part for part in _command(each))]
    return [draw.choice(at_stages or own)]


def stage_of(place: Place) -> str:
    """The last stage that the run said it starts; empty before the first."""
    lines = place.log.read_text(errors="replace").splitlines()
    return next((line.partition("-m stages.")[2] for line in reversed(lines) if "-m stages." in line), "")


def left_behind(place: Place) -> list[str]:
    """Commands of the processes of this place that are still there after a while; each is ended."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while (alive := _own(place)) and time.monotonic() < deadline:
        time.sleep(1.0)
    told = [" ".join(_command(each)[:6]) for each in alive]
    _kill(alive)
    return told


def end(place: Place) -> None:
    """Kill all that works in a place."""
    _kill(_own(place))


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _own(place: Place) -> list[psutil.Process]:
    """Processes that work in this place, or were started for it."""
    return [each for each in psutil.process_iter() if _belongs(each, place)]


def _belongs(process: psutil.Process, place: Place) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
            return False
        ledger = process.environ().get(LEDGER_VARIABLE)
        return Path(process.cwd()).is_relative_to(place.home) or ledger == place.variables[LEDGER_VARIABLE]
    except (psutil.Error, OSError):
        return False


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
