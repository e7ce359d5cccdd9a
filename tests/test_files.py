"""What is written is whole, and for its owner alone, whatever the umask is."""

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from flows.runner import Children
from palimpsest.errors import DataError
from palimpsest.files import atomic_path, close_workspace, make_folder, remove, restrict_to_owner
from palimpsest.graph.state import Cache
from stages import common
from stages.common import start, start_processes

PARTS = ("data", "data/private", "models", "models/checkpoints", "reports", ".dvc", ".dvc/cache", ".palimpsest")


@pytest.fixture(autouse=True)
def wide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The widest umask, in an empty working directory; as a command without arguments."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["stage"])
    before = os.umask(0)
    yield
    assert os.umask(before) == 0


def mode(path: str | Path) -> int:
    return stat.S_IMODE(Path(path).stat().st_mode)


def closed(path: Path) -> bool:
    """Whether others than the owner cannot come to a path: it, or a folder on the way from here, is closed to them."""
    return any(mode(part) & 0o077 == 0 for part in (path, *path.parents) if part != Path())


def test_a_file_is_its_owners_from_the_first_byte() -> None:
    with atomic_path("data/private/train.parquet") as draft, draft.open("wb") as file:
        file.write(b"first")
        assert closed(draft)
        assert mode("data") == mode("data/private") == 0o700
    assert mode("data/private/train.parquet") == 0o600


def test_a_folder_is_its_owners_with_all_that_is_in_it() -> None:
    with atomic_path("models/dp3") as draft:
        (draft / "lm").mkdir(parents=True)
        (draft / "lm" / "weights").touch()
        assert closed(draft / "lm" / "weights")
    assert [mode(f"models/{name}") for name in ("dp3", "dp3/lm", "dp3/lm/weights")] == [0o700, 0o700, 0o600]
    assert [path.name for path in Path("models").iterdir()] == ["dp3"]


def test_what_is_written_into_an_open_folder_is_closed_all_the_same() -> None:
    Path("old.json").write_text("{}")
    assert mode("old.json") == 0o666
    with atomic_path("old.json") as draft:
        draft.touch()
        assert closed(draft)
    assert mode("old.json") == 0o600


def test_an_existing_folder_stays_as_it_is() -> None:
    Path("mine").mkdir()
    make_folder(Path("mine/own/deep"))
    assert [mode(name) for name in ("mine", "mine/own", "mine/own/deep")] == [0o777, 0o700, 0o700]


def test_what_is_removed_takes_along_what_a_killed_writer_left(tmp_path: Path) -> None:
    killed = "import os, sys\nfrom pathlib import Path\nfrom palimpsest.files import atomic_path\n"
    killed += "with atomic_path(Path('kept.json')) as draft:\n    draft.write_text('{')\n    os._exit(9)"
    subprocess.run([sys.executable, "-c", killed])
    with atomic_path(tmp_path / "kept.json") as draft, atomic_path(tmp_path / "kept.json.other") as other:
        draft.write_text("{}")
        other.write_text("{}")
    assert len(list(tmp_path.glob(".kept.json.*"))) == 1
    remove(tmp_path / "kept.json")
    remove(tmp_path / "never.json")
    assert [path.name for path in tmp_path.iterdir()] == ["kept.json.other"]


def test_children_make_what_they_make_for_the_owner_alone() -> None:
    with restrict_to_owner():
        subprocess.run(["touch", "made"], check=True)
    Children().run([sys.executable, "-c", "open('by_flow', 'w')"], Path(), os.environ, print)
    assert mode("made") == mode("by_flow") == 0o600


# Stages.


@pytest.mark.parametrize("begin", [start, start_processes])
def test_a_stage_writes_for_its_owner_alone(begin) -> None:
    def stage() -> None:
        Path("plain").mkdir()
        Path("plain/file").touch()

    begin(stage)
    assert (mode("plain"), mode("plain/file")) == (0o700, 0o600)


def test_processes_that_train_together_write_for_their_owner_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    umasks = []
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("stages.dp_train", None))
    monkeypatch.setenv(common.PROCESSES, "2")
    monkeypatch.setattr("os.environ", dict(os.environ))
    monkeypatch.setattr("stages.together.launch", lambda *_: umasks.append(os.umask(0o077)))
    start_processes(lambda: None)
    assert umasks == [0o077]


@pytest.mark.parametrize("name", PARTS)
def test_a_stage_closes_what_others_left_open_before_it_reads(name: str) -> None:
    Path(name).mkdir(parents=True)
    Path(name, "by_dvc").touch()
    Path("dvc.lock").touch()
    found = []
    start(lambda: found.extend([closed(Path(name, "by_dvc")), closed(Path("dvc.lock"))]))
    assert found == [True, True]
    assert mode(Path(name, "by_dvc")) == 0o666, "the folder around it holds"


def test_a_folder_that_cannot_be_closed_stops_a_stage(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def refuse(path: Path, number: int) -> None:
        raise PermissionError

    Path("data").mkdir()
    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(DataError, match="'data'"):
        close_workspace(Path())
    with pytest.raises(SystemExit):
        start(lambda: pytest.fail("it ran"))
    assert "Keep the workspace in a folder of your own" in capsys.readouterr().err


# DVC's cache, which its settings may put elsewhere.


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """Level -> its file of settings, in a workspace with a DVC project; others may enter it, as no folder of tests."""
    with TemporaryDirectory() as folder:
        home = Path(folder).resolve()
        home.chmod(0o755)
        monkeypatch.chdir(home)
        for name in (".dvc", "system", "global"):
            Path(name).mkdir()
        for name in ("system", "global"):
            monkeypatch.setenv(f"DVC_{name.upper()}_CONFIG_DIR", str(home / name))
        levels = {"repo": ".dvc/config", "local": ".dvc/config.local"}
        yield lambda level: home / levels.get(level, f"{level}/config")


@pytest.mark.parametrize(
    ("level", "number"), [("system", 0o755), ("global", 0o2770), ("repo", 0o711), ("local", 0o2775)]
)
def test_a_cache_that_others_read_stops_a_stage(
    settings: Callable[[str], Path], level: str, number: int, capsys
) -> None:
    Path("team").mkdir()
    Path("team").chmod(number)
    settings(level).write_text(f"[cache]\n    dir = {Path('team').resolve()}\n    shared = group\n")
    with pytest.raises(SystemExit):
        start(lambda: pytest.fail("it ran"))
    told = capsys.readouterr().err
    assert f"'{Path('team').resolve()}', as '{settings(level)}' says, where others than their owner may read" in told
    assert "run `dvc cache dir --local .dvc/cache`" in told


@pytest.mark.parametrize("folder", ["own", "own/deep/cache"])
def test_a_cache_elsewhere_that_is_its_owners_alone_is_the_owners_choice(
    settings: Callable[[str], Path], folder: str
) -> None:
    settings("repo").write_text(f"[cache]\n    dir = ../{folder}\n")
    with pytest.raises(DataError, match="others than their owner"):
        close_workspace(Path())
    Path("own").mkdir(mode=0o700)
    close_workspace(Path())


def test_a_workspace_of_its_own_cache_is_moved_by_nobody(settings: Callable[[str], Path]) -> None:
    settings("global").write_text("[cache]\n    dir = /srv/team\n")
    settings("repo").write_text("[cache]\n    dir = cache\n")
    close_workspace(Path())
    assert Cache.of(Path()).folder == Path(".dvc/cache").resolve()


def test_a_link_in_place_of_the_cache_is_followed(settings: Callable[[str], Path]) -> None:
    Path("team").mkdir(mode=0o755)
    Path(".dvc/cache").symlink_to("../team")
    with pytest.raises(DataError, match=r"DVC keeps copies of private data in '[^']*/\.dvc/cache', where"):
        close_workspace(Path())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[cache]\ndir = s3://bucket/cache\n", "is no folder"),
        ("[cache]\ndir = one, two\n", "is no folder"),
        ("[cache]\nlocal = team\n['remote \"team\"']\nurl = /srv/team\n", "obsolete"),
        ("[cache\ndir = /srv/team\n", "cannot be read"),
    ],
)
def test_settings_that_lead_to_no_folder_are_refused(settings: Callable[[str], Path], text: str, problem: str) -> None:
    settings("global").write_text(text)
    with pytest.raises(DataError, match=problem):
        close_workspace(Path())
