"""What is read of a workspace's state is what DVC says of it, and what it then does."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from shutil import rmtree

import pytest
from dvc.repo import Repo
from dvc.utils.serialize import dumps_yaml, parse_yaml

from palimpsest.errors import DataError
from palimpsest.graph import state
from palimpsest.graph.state import Cache, Standing, State, md5_of, survey
from palimpsest.work.context import environment, find_stale

GRAPH = """
stages:
  second:
    cmd: mkdir -p made && cp first.txt made/second.txt && echo second >> runs
    deps: [first.txt]
    outs: [made]
  first:
    cmd: cp own.txt first.txt && echo first >> runs
    deps: [own.txt]
    params:
    - params.resolved.yaml: [lms.dp3]
    outs: [first.txt]
  third:
    cmd: ls made > third.txt && echo third >> runs
    deps: [made/second.txt]
    metrics:
    - third.txt: {cache: false}
"""
VALUES = "lms: {dp3: {epsilon: %s, train: {epochs: 4}}}\n"


class Work:
    """A small workspace whose stages write down that they ran."""

    def __init__(self, home: Path) -> None:
        self.home = home
        Repo.init(str(home), no_scm=True).close()
        (home / "dvc.yaml").write_text(GRAPH)
        (home / "own.txt").write_text("rows")
        self.set(3)

    def set(self, epsilon: float) -> None:
        (self.home / "params.resolved.yaml").write_text(VALUES % epsilon)

    def repro(self) -> list[str]:
        """The stages that ran."""
        (self.home / "runs").write_text("")
        command = [sys.executable, "-m", "dvc", "repro", "-q"]
        subprocess.run(command, cwd=self.home, env=environment(), check=True, capture_output=True)
        return (self.home / "runs").read_text().split()

    def look(self) -> Mapping[str, Standing]:
        found = {one.name: one for one in survey(self.home, dict)}
        assert list(found) == ["first", "second", "third"], "each after those it needs"
        return found

    def states(self) -> list[str]:
        return [one.state.value for one in self.look().values()]


@pytest.mark.timeout(300)
def test_what_is_read_is_what_dvc_says_and_does(tmp_path: Path) -> None:
    work = Work(tmp_path)
    assert work.states() == ["will run"] * 3
    assert work.repro() == ["first", "second", "third"]
    assert work.states() == ["cached"] * 3
    assert find_stale(tmp_path) == set()

    work.set(2)
    told = work.look()
    assert told["first"].why == ("lms.dp3.epsilon (3 before, 2 now)",)
    assert told["second"].after == ("first",)
    assert work.states() == ["will run"] * 3
    assert find_stale(tmp_path) == set(told)
    assert work.repro() == ["first"], "its text is the same, so nothing behind it ran"

    work.set(3)
    (tmp_path / "made" / "second.txt").write_text("edited")
    assert work.states() == ["restorable", "restorable", "cached"]
    assert work.repro() == []
    assert work.states() == ["cached"] * 3

    for run in (path for path in (tmp_path / ".dvc/cache/runs").rglob("*") if path.is_file()):
        run.write_text("")  # as a full disk leaves it
    for listing in (tmp_path / ".dvc/cache/files").rglob("*.dir"):
        listing.chmod(0o600)
        listing.write_text("[{")
    (tmp_path / "made" / "second.txt").write_text("edited")
    assert work.states() == ["cached", "will run", "will run"]
    (tmp_path / "made" / "second.txt").write_text("rows")

    (tmp_path / "own.txt").write_text("other rows")
    assert work.look()["first"].why == ("own.txt",)
    (tmp_path / "own.txt").write_text("rows")
    rmtree(tmp_path / ".dvc" / "cache" / "files")
    (tmp_path / "first.txt").unlink()
    assert work.look()["first"].state is State.RUNS, "the cache has it no more"


def test_a_look_at_many_stages_takes_so_many_times_as_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number, asked = 200, list[str]()
    stages = "".join(f"  s{n}: {{cmd: make, deps: [own.txt], outs: [made/{n}.txt]}}\n" for n in range(number))
    last = "  last: {cmd: make, deps: [made], outs: [last.txt]}\n"
    (tmp_path / "dvc.yaml").write_text(f"stages:\n{stages}{last}")
    (tmp_path / "params.resolved.yaml").write_text(VALUES % 3)
    monkeypatch.setattr(
        state, "_is_inside", lambda path, folder: bool(asked.append(path)) or path.startswith(f"{folder}/")
    )
    found = survey(tmp_path, dict)
    assert found[-1].after == tuple(f"s{n}" for n in range(number))
    assert len(asked) < 10 * number


@pytest.mark.parametrize("length", [60, 90, 120, 200])
def test_what_dvc_notes_of_a_long_label_it_can_read(length: int) -> None:
    noted = {"params": {"labels": {("word " * 50)[: length - 1] + "s": "its description"}}}
    assert parse_yaml(dumps_yaml(noted), "dvc.lock") == noted


@pytest.mark.parametrize(
    "half",
    [
        "stages:\n  first: {cmd: [", "text", "[1]", "stages:\n  first:",
        "stages:\n  first:\n    outs:\n    - path:",
        "stages:\n  first:\n    outs:\n    - path: first.txt\n      hash: md5",
        "stages:\n  first:\n    deps:\n    - path: first.py\n      md5:",
    ],
)  # fmt: skip
def test_a_lock_file_that_is_not_whole_is_an_error_with_a_remedy(tmp_path: Path, half: str) -> None:
    work = Work(tmp_path)
    (tmp_path / "dvc.lock").write_text(half)
    with pytest.raises(DataError, match=r"dvc\.lock cannot be read"):
        work.look()


def test_a_folder_has_the_hash_of_its_files_and_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "a.txt").write_text("text")
    before = md5_of(folder)
    assert str(before).endswith(".dir")
    os.rename(folder / "in" / "a.txt", folder / "in" / "b.txt")
    assert md5_of(folder) != before
    assert md5_of(tmp_path / "none") is None


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"system": "[cache]\ndir = /srv/system\n"},
        {"system": "[cache]\ndir = /srv/system\n", "global": "[cache]\ndir = ~/cache\n"},
        {"global": "[Cache]\n  DIR = beside  # a word\n"},
        {"global": '[cache]\ndir = "/srv/a folder"\nshared = group\n[core]\nanalytics = false\n'},
        {"global": "[cache]\ndir = /srv/global\n", "repo": "[core]\nno_scm = true\n[cache]\ndir = cache\n"},
        {
            "repo": "[core]\nno_scm = true\n[cache]\ndir = ../../repo\n",
            "local": "['remote \"a\"']\nurl = /b\n[cache]\ndir = '/srv/local'\n",
        },
        {"local": "[cache]\ntype = symlink\n"},
    ],
)
def test_the_cache_is_where_dvc_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Mapping[str, str]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    Repo.init(str(home), no_scm=True).close()
    levels = {"system": "system/config", "global": "global/config", "repo": ".dvc/config", "local": ".dvc/config.local"}
    for level in ("system", "global"):
        monkeypatch.setenv(f"DVC_{level.upper()}_CONFIG_DIR", str(home / level))
        (home / level).mkdir()
    for level, text in settings.items():
        (home / levels[level]).write_text(text)
    (home / "inside").mkdir()
    with Repo(str(home)) as repo:
        assert {Cache.of(place).folder for place in (home, home / "inside")} == {Path(repo.cache.local_cache_dir)}


def test_without_settings_in_the_environment_the_users_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DVC_SYSTEM_CONFIG_DIR", "DVC_GLOBAL_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    (tmp_path / "own" / "dvc").mkdir(parents=True)
    (tmp_path / "own" / "dvc" / "config").write_text("[cache]\ndir = /srv/team\n")
    Repo.init(str(tmp_path), no_scm=True).close()
    with Repo(str(tmp_path)) as repo:
        assert Cache.of(tmp_path).folder == Path(repo.cache.local_cache_dir) == Path("/srv/team")


def test_of_a_metric_that_dvc_is_not_to_keep_it_keeps_a_copy_and_needs_none(tmp_path: Path) -> None:
    work = Work(tmp_path)
    work.repro()
    value = md5_of(tmp_path / "third.txt")
    copy = tmp_path / ".dvc" / "cache" / "files" / "md5" / value[:2] / value[2:]
    assert copy.read_text() == (tmp_path / "third.txt").read_text()
    copy.chmod(0o600)
    copy.unlink()
    assert work.states() == ["cached"] * 3
    assert find_stale(tmp_path) == set()
