"""A stage ends with what runs it, and one process at a time is at a stage."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from palimpsest.errors import DataError
from stages import common

STAGE = """
import sys, time
from stages import common
common.end_with_runner()
try:
    print(__import__("os").getpid(), flush=True)  # from here on the interrupt may come
    time.sleep(600)
except KeyboardInterrupt:
    open(sys.argv[1], "w").write("interrupted")
"""
RUNS = """
import subprocess, sys
if sys.argv[3] == "named":
    from stages import common
    common.name_runner(); common.end_with_parent()
subprocess.run(["sh", "-c", '"$0" -c "$1" "$2"; true', sys.executable, sys.argv[1], sys.argv[2]])
"""
STARTS = """
import subprocess, sys
subprocess.run([sys.executable, "-c", *sys.argv[1:]], start_new_session=True)
"""


def ended(process: psutil.Process) -> None:
    psutil.wait_procs([process], timeout=30)
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("deaf", [False, True])
@pytest.mark.parametrize("how", ["named", "found"])
def test_a_stage_is_interrupted_when_its_runner_is_killed_and_ends_even_if_it_does_not_listen(
    tmp_path: Path, how: str, deaf: bool
) -> None:
    """Behind a shell, by the name that the runner left or as the nearest process that is no shell."""
    note, variables = tmp_path / "note", {**os.environ, "DVC_STAGE": "a"}
    variables.pop(common.RUNNER_PROCESS, None)
    code = STAGE.replace("import sys, time", "import sys, time, signal; signal.signal(2, signal.SIG_IGN)", int(deaf))
    command = [sys.executable, "-c", RUNS, code, str(note), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as started:
        assert started.stdout is not None
        stage = psutil.Process(int(started.stdout.readline()))
        started.kill()
        ended(stage)
    assert note.exists() == (not deaf)


def test_the_whole_line_ends_when_what_began_it_is_killed(tmp_path: Path) -> None:
    variables = {**os.environ, "DVC_STAGE": "a"}
    command = [sys.executable, "-c", STARTS, RUNS, STAGE, str(tmp_path / "note"), "named"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as started:
        assert started.stdout is not None
        stage = psutil.Process(int(started.stdout.readline()))
        started.kill()
        ended(stage)
    assert (tmp_path / "note").read_text() == "interrupted"


def test_a_program_that_is_not_ours_ends_with_its_starter_too() -> None:
    code = """
import subprocess, sys
from stages import common
server = subprocess.Popen(["sleep", "600"], start_new_session=True, preexec_fn=common.end_with_starter)
print(server.pid, flush=True)
server.wait()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        server = psutil.Process(int(started.stdout.readline()))
        started.kill()
        ended(server)


def test_a_stage_that_is_started_by_hand_watches_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DVC_STAGE", raising=False)
    monkeypatch.delenv(common.RUNNER_PROCESS, raising=False)
    monkeypatch.setattr(common, "_watch", lambda *_, **__: pytest.fail("it watches"))
    common.end_with_runner()
    assert common.RUNNER_PROCESS not in os.environ


@pytest.fixture
def holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], multiprocessing.Process]:
    """Starts a process that is at the stage `fit`; it is at it when this returns."""
    monkeypatch.chdir(tmp_path)
    context = multiprocessing.get_context("fork")

    def start() -> multiprocessing.Process:
        ready = context.Event()
        process = context.Process(target=_hold, args=(ready,), daemon=True)
        process.start()
        assert ready.wait(30)
        return process  # type: ignore[return-value]

    return start


def _hold(ready) -> None:
    with common.lock_stage("fit"):
        ready.set()
        time.sleep(600)


def test_a_second_process_at_a_stage_is_refused_and_another_stage_is_not(
    holder: Callable[[], multiprocessing.Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "LOCK_SECONDS", 0.0)
    process = holder()
    with pytest.raises(DataError, match="Another process is at the stage fit"), common.lock_stage("fit"):
        pytest.fail("two are at it")
    with common.lock_stage("fit-other"):
        pass
    process.kill()
    process.join()
    with common.lock_stage("fit"):
        assert (Path(".palimpsest/stages/fit.lock").stat().st_mode & 0o777) == 0o600


def test_a_process_that_is_about_to_end_is_waited_for(holder: Callable[[], multiprocessing.Process]) -> None:
    process = holder()
    assert process.pid is not None
    subprocess.Popen(["sh", "-c", f"sleep 1; kill -{int(signal.SIGKILL)} {process.pid}"])
    with common.lock_stage("fit"):
        assert not psutil.pid_exists(process.pid) or psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE
