import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from flows.graph import Stopped
from flows.runner import Children

DEAF = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)
grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(os.getpid(), grandchild.pid, flush=True)
time.sleep(600)
"""


def test_lines_come_whole_and_bars_only_once(tmp_path: Path) -> None:
    lines: list[str] = []
    code = r"import sys; sys.stdout.buffer.write(b'one\n\n\xff\n1%\r50%\r100%\nlast')"
    assert Children().run([sys.executable, "-c", code], tmp_path, os.environ, lines.append) == 0
    assert lines == ["one", "�", "100%", "last"]


def test_the_exit_code_comes_back(tmp_path: Path) -> None:
    assert Children().run([sys.executable, "-c", "raise SystemExit(3)"], tmp_path, os.environ, print) == 3


def test_a_stop_kills_a_child_that_ignores_signals_and_a_grandchild_in_its_own_session(tmp_path: Path) -> None:
    children, pids, started = Children(), list[int](), threading.Event()

    def note(line: str) -> None:
        pids.extend(map(int, line.split()))
        started.set()

    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(children.run, [sys.executable, "-c", DEAF], tmp_path, os.environ, note)
        started.wait(30)
        children.stop(grace=0.1)
        assert run.result(30) != 0
    assert len(pids) == 2
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=30)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def test_nothing_starts_after_a_stop(tmp_path: Path) -> None:
    children = Children()
    children.stop(grace=0.1)
    with pytest.raises(Stopped):
        children.run([sys.executable, "-c", ""], tmp_path, os.environ, print)


def test_a_child_whose_reader_fails_is_ended(tmp_path: Path) -> None:
    pids: list[int] = []

    def fail(line: str) -> None:
        pids.append(int(line))
        raise ValueError("unreadable")

    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    with pytest.raises(ValueError, match="unreadable"):
        Children().run([sys.executable, "-c", code], tmp_path, os.environ, fail)
    assert not psutil.pid_exists(pids[0]) or psutil.Process(pids[0]).status() == psutil.STATUS_ZOMBIE
