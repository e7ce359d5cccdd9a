"""A large package is imported in parts, and as a whole once something is asked of it that is no part."""

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from palimpsest.parts import import_in_parts


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a package with a light part and a heavy one, which its own code imports."""
    folder = tmp_path / "bulky"
    folder.mkdir()
    (folder / "__init__.py").write_text("from bulky.heavy import weight\n")
    (folder / "heavy.py").write_text("weight = 7\n")
    (folder / "light.py").write_text("size = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "bulky"
    for name in [name for name in sys.modules if name.partition(".")[0] == "bulky"]:
        del sys.modules[name]


def test_a_part_comes_without_the_rest_and_anything_else_with_all_of_it(package: str) -> None:
    import_in_parts(package)
    assert import_module("bulky.light").size == 1
    assert "bulky.heavy" not in sys.modules
    bulky = import_module(package)
    assert (bulky.light.size, bulky.weight) == (1, 7)
    with pytest.raises(AttributeError, match="nothing"):
        bulky.nothing  # noqa: B018


def test_a_package_that_is_there_already_or_nowhere_stays_as_it_is(package: str) -> None:
    before = import_module(package)
    import_in_parts(package)
    import_in_parts("there_is_no_such_package")
    assert sys.modules[package] is before
    assert "there_is_no_such_package" not in sys.modules


def test_the_stage_that_every_run_starts_loads_no_accountant(tmp_path: Path) -> None:
    """As a program; who imports it has the whole package."""
    told = [
        subprocess.run(
            [sys.executable, "-P", "-X", "importtime", *how], cwd=tmp_path, capture_output=True, text=True
        ).stderr
        for how in (("-m", "stages.inputs"), ("-c", "import stages.inputs"))
    ]
    assert ["scipy.signal" in each for each in told] == [False, True]
    assert all("palimpsest.methods.registry" in each for each in told)
