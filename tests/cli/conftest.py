"""Makes `cli_place` importable from the tests beside it, and a workspace by `palimpsest init`."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cli_place import Place, init, write_files

from palimpsest.params.load import LEDGER_VARIABLE
from palimpsest.privacy.ledger.witness import VARIABLE


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv(LEDGER_VARIABLE, raising=False)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the user's files, the ledger, and a workspace `work` in which nothing has run."""
    home = write_files(tmp_path_factory.mktemp("cli"))
    with pytest.MonkeyPatch.context() as patch:  # no test notes heads there, whichever asks for this first
        patch.setenv(VARIABLE, str(tmp_path_factory.mktemp("made")))
        done = init(home, home / "work")
    assert done.exit_code == 0, done.output
    return home


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Place:
    """One test's own copy of it."""
    shutil.copytree(made, tmp_path / "home")
    return Place(tmp_path / "home")
