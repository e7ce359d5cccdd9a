"""The wheel works outside a clone, in an environment that never saw the sources."""

import json
import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("src", "stages", "flows", "pyproject.toml", "README.md", "LICENSE", "params.yaml")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def bin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel; third parties' packages are this environment's."""
    place = tmp_path_factory.mktemp("wheel")
    copied = place / "sources"
    copied.mkdir()
    subprocess.run(["cp", "-r", *(str(ROOT / name) for name in SOURCES), str(copied)], check=True)
    pip = [sys.executable, "-m", "pip", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", str(place), str(copied)], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place / "venv")], check=True)
    packages = next((place / "venv").glob("lib/python*/site-packages"))
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    wheel = next(place.glob("*.whl"))
    python = place / "venv" / "bin" / "python"
    options = ["--no-deps", "--no-index", "--force-reinstall"]  # `others.pth` shows it an installed palimpsest
    subprocess.run([*pip, "--python", str(python), "install", *options, str(wheel)], check=True)
    return python.parent


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, "HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "home"), "PYTHONUNBUFFERED": "1"}


def test_the_wheel_brings_all_that_a_stage_reads(bin_folder: Path, tmp_path: Path, environ: dict[str, str]) -> None:
    """Every module of the sources, and every file that is shipped beside one, is there and is the wheel's own."""
    code = (
        "import json, palimpsest, stages; from palimpsest.graph.closure import DYNAMIC, code;"
        "found = code('stages.report', 'stages.world').values();"
        "print(json.dumps([palimpsest.__file__, stages.__file__, *map(str, found)]))"
    )
    command = [str(bin_folder / "python"), "-P", "-c", code]
    told = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True).stdout
    places = [Path(name) for name in json.loads(told)]
    assert all(bin_folder.parent in path.parents for path in places)
    names = {path.name for path in places}
    assert {"page.py", "internal.html.j2", "privacy-statement.schema.json", "demo.zip"} <= names


def test_the_demo_runs_in_a_folder_of_its_own(bin_folder: Path, tmp_path: Path, environ: dict[str, str]) -> None:
    """It makes a workspace and runs its first stages; Ctrl-C then ends it, and `status` goes on."""
    folder = tmp_path / "demo"
    command = [str(bin_folder / "palimpsest"), "demo", "--dir", str(folder)]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as demo:
        assert demo.stdout is not None
        seen = next((line for line in demo.stdout if "encode_public" in line), None)  # world, preprocess are done
        os.killpg(demo.pid, signal.SIGINT)  # as a terminal does
        demo.stdout.read()
    assert seen is not None
    assert (folder / "data" / "public" / "train.parquet").is_file()
    status = [str(bin_folder / "palimpsest"), "status", "--workspace", str(folder)]
    told = subprocess.run(status, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True).stdout
    assert "dp_train@dp3" in told
