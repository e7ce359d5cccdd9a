"""The `python` of the stages here against the real one: what a module sees, what it prints, how it ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.warm import bin_folder

pytestmark = [pytest.mark.xdist_group("pipeline"), pytest.mark.timeout(900)]

PROBE = """
import os, signal, sys
ours = [name for name in sys.modules if name.startswith(("palimpsest", "stages", "tests"))]
print(__name__, __spec__.name, sys.argv, sys.path[0], sys.flags, os.getcwd(), os.environ["TOLD"], ours)
print("to the other", file=sys.stderr)
{"fail": lambda: 1 / 0, "kill": lambda: os.kill(os.getpid(), signal.SIGKILL)}.get(sys.argv[1], lambda: 0)()
sys.exit(int(sys.argv[2]))
"""


@pytest.mark.parametrize("arguments", [("end", "0"), ("end", "3"), ("fail", "0"), ("kill", "0")], ids=" ".join)
def test_a_module_runs_as_it_does_in_the_real_one(tmp_path: Path, arguments: tuple[str, str]) -> None:
    (tmp_path / "probe.py").write_text(PROBE)
    places = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {**os.environ, "PYTHONUNBUFFERED": "1", "TOLD": "so", "PYTHONPATH": places}
    ends = []
    for python in (Path(sys.executable), bin_folder() / "python"):
        command = [str(python), "-P", "-m", "probe", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
        status = done.returncode if done.returncode >= 0 else 128 - done.returncode  # as a shell tells a signal
        ends.append((status, done.stdout, done.stderr.splitlines()[0], done.stderr.splitlines()[-1]))
    assert ends[0] == ends[1]
    assert ends[0][0] == {"end": int(arguments[1]), "fail": 1, "kill": 137}[arguments[0]]
