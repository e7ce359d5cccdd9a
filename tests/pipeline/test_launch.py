"""Several processes at a stage: who starts them tells which was lost, ends the rest, and none outlives it."""

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil
import pytest

import stages.together  # noqa: F401 what is imported here no launcher imports again
from stages.common import LOST, PROCESSES, start_processes
from tests.pipeline.launched import stage

pytestmark = pytest.mark.xdist_group("processes")
LOG = Path("log")
Launch = Callable[[str], BaseProcess]


@pytest.fixture
def launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launch:
    """Starts the stage in two processes, by a third."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(PROCESSES, "2")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))

    def start(how: str) -> BaseProcess:
        process = multiprocessing.get_context("fork").Process(target=_launch, args=(how,))
        process.start()
        return process

    return start


def _launch(how: str) -> None:
    for number in (1, 2):
        os.dup2(os.open(LOG, os.O_CREAT | os.O_APPEND | os.O_WRONLY), number)
    sys.argv = ["launched", how]
    sys.modules["__main__"].__spec__ = ModuleSpec("tests.pipeline.launched", None)
    code = 0
    with LOG.open("a") as out, contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            start_processes(stage)
        except SystemExit as end:
            code = int(end.code or 0)
    os._exit(code)  # without what the tests' own process wants done at its end


def ended(process: BaseProcess) -> tuple[int | None, list[str]]:
    """How the launcher ended, and what was printed but for the numbers of the processes; these have ended, too."""
    process.join(60)
    assert not psutil.wait_procs(_processes(), timeout=60)[1]
    return process.exitcode, [line for line in LOG.read_text().splitlines() if not line.startswith("process ")]


def _processes() -> list[psutil.Process]:
    """Those of the two that are still there."""
    found = []
    for line in LOG.read_text().splitlines() if LOG.exists() else []:
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [psutil.Process(int(line.split()[1]))] if line.startswith("process ") else []
    return found


def test_all_end_well(launched: Launch):
    assert ended(launched("well")) == (0, [])


def test_who_trains_together_is_reached_from_this_machine_alone(launched: Launch):
    code, places = ended(launched("meets"))
    assert code == 0
    assert len(places) > 1
    assert set(places) <= {"at 127.0.0.1", "at ::1"}


def test_one_that_is_lost_is_named_once_and_the_rest_are_ended(launched: Launch):
    code, (problem, remedy) = ended(launched("lost"))
    assert (code, problem) == (LOST, "error: Of 2 processes that trained together number 1 was ended by SIGKILL.")
    assert remedy.startswith("  what to do: Look why. Run again:")


def test_one_that_failed_has_told_why(launched: Launch):
    assert ended(launched("fails")) == (1, ["error: A file is not there.", "  what to do: Make it."])


STOPPED = "stopped: no half-written output is left; what had begun stays charged"


@pytest.mark.parametrize(("number", "left"), [(signal.SIGINT, (130, [STOPPED])), (signal.SIGKILL, (-9, []))])
def test_none_outlives_who_started_it(launched: Launch, number: signal.Signals, left: tuple[int, list[str]]):
    launcher = launched("waits")
    while len(_processes()) < 2:
        launcher.join(0.05)
        assert launcher.is_alive(), LOG.read_text()
    assert launcher.pid is not None
    os.kill(launcher.pid, number)
    assert ended(launcher) == left
