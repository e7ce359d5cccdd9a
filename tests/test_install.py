"""What `make` installs is found from any folder."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_package_is_found_from_above_a_clone_of_it(tmp_path: Path) -> None:
    """A folder `palimpsest` without code would be imported in its place, and have no `create`."""
    place = tmp_path / "place"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    (tmp_path / "palimpsest").mkdir()
    command = ["make", "-n", "-W", "pyproject.toml", f"VENV={place}", f"{place}/bin/.demo-installed"]
    recipe = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    (line,) = (one for one in recipe if "palimpsest_src" in one)
    subprocess.run(line, shell=True, cwd=ROOT, check=True)
    asked = [place / "bin/python", "-c", "import importlib.util as u; print(u.find_spec('palimpsest').origin)"]
    found = subprocess.run(asked, cwd=tmp_path, env={}, capture_output=True, text=True, check=True).stdout.strip()
    assert found == str(ROOT / "src/palimpsest/__init__.py")
