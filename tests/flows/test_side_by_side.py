"""The graph without Prefect, on real pipelines."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from flows.runner import bring_side_by_side

Make = Callable[..., Path]

MEET = """
import pathlib, sys, time
own, other, *rest = sys.argv[1:]
pathlib.Path(f"{own}.here").touch()
while not pathlib.Path(f"{other}.here").exists():
    time.sleep(0.02)
pathlib.Path(own).write_text(" ".join(rest))
print("met", other)
"""
PIPELINE = """
stages:
  left: {cmd: python meet.py left.txt right.txt, deps: [meet.py], outs: [left.txt]}
  right: {cmd: python meet.py right.txt left.txt, deps: [meet.py], outs: [right.txt]}
  both: {cmd: cat left.txt right.txt > both.txt, deps: [left.txt, right.txt], outs: [both.txt]}
"""
FAILING = PIPELINE.replace("meet.py left.txt right.txt,", "meet.py left.txt right.txt && exit 3,")


def test_what_needs_nothing_of_each_other_runs_at_once_and_then_not_again(
    make_workspace: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = make_workspace(PIPELINE, meet_py=MEET)
    assert bring_side_by_side(folder, workers=2) == 0
    lines = capfd.readouterr().out.splitlines()
    assert {"left: met right.txt", "right: met left.txt"} <= set(lines)
    assert lines.index("both: Running stage 'both':") > max(
        lines.index(f"{one}: met {other}.txt") for one, other in SIDES
    )
    assert bring_side_by_side(folder, workers=2) == 0
    assert capfd.readouterr().out == ""


SIDES = (("left", "right"), ("right", "left"))


def test_after_a_failure_what_runs_goes_on_and_nothing_starts(
    make_workspace: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = make_workspace(FAILING, meet_py=MEET)
    assert bring_side_by_side(folder, workers=2) == 1
    told = capfd.readouterr().out
    assert "right: met left.txt" in told
    assert "error: Stage 'left' failed with exit code" in told
    assert not (folder / "both.txt").exists()


def test_ctrl_c_leaves_no_process_behind(make_workspace: Make) -> None:
    folder = make_workspace(PIPELINE.replace("meet.py right.txt left.txt", "meet.py right.txt never"), meet_py=MEET)
    code = (
        "from pathlib import Path; from flows.runner import bring_side_by_side; bring_side_by_side(Path(), workers=2)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
    )
    while not (folder / "right.txt.here").exists():
        assert child.poll() is None
        time.sleep(0.02)
    family = psutil.Process(child.pid).children(recursive=True)
    child.send_signal(signal.SIGINT)
    assert child.wait() != 0
    assert not psutil.wait_procs(family, timeout=30)[1]
