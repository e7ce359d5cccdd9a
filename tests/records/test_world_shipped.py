"""The files of the demo's world: what the committed generator makes, written whole where the demo looks for them."""

from pathlib import Path

import pytest

from palimpsest.errors import DataError
from palimpsest.params.load import loads
from palimpsest.records.world.shipped import FILES, FOLDER, unpack
from tools.world.generate import make_world, write_world
from tools.world.pack import WORLDS, pack

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def invented(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the demo's world, made anew."""
    folder = tmp_path_factory.mktemp("invented")
    write_world(make_world(WORLDS["demo"]), folder)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_ships_is_byte_for_byte_what_the_generator_makes(invented: Path, tmp_path: Path) -> None:
    unpack("demo", tmp_path)
    assert contents(tmp_path) == contents(invented)
    assert set(contents(tmp_path)) == set(FILES)


def test_another_world_is_packed_beside_it(invented: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palimpsest.records.world.shipped.FOLDER", tmp_path)
    with pytest.raises(DataError, match="no invented world 'other'"):
        unpack("other", tmp_path / "files")
    pack("other", WORLDS["demo"], tmp_path)
    unpack("other", tmp_path / "files")
    assert contents(tmp_path / "files") == contents(invented)


def test_it_is_small_and_git_and_the_wheel_have_no_other() -> None:
    assert (FOLDER / "demo.zip").stat().st_size < 2**20
    assert "!/src/palimpsest/records/world/demo.zip" in (ROOT / ".gitignore").read_text(encoding="utf-8")
    assert '"records/world/demo.zip"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(("file", "name"), [("params.yaml", "demo"), ("params.full.yaml", "full")])
def test_the_demos_say_how_many_rows_their_worlds_have(file: str, name: str) -> None:
    params = loads((ROOT / file).read_text(encoding="utf-8"))
    assert (params.world, params.dataset.n_public) == (name, WORLDS[name].private_rows)
