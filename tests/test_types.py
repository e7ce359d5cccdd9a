"""The code's types hold."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.xdist_group("base")  # which begins early: one long test at the end would leave the other worker idle
@pytest.mark.timeout(900)  # it takes a core for a minute and a half, which it may have to share
def test_types_hold() -> None:
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
