"""Beside a cache that a team shares by DVC's settings, as DVC's guide has them, a workspace keeps what is private."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree, rmtree

import pytest
from cli_place import Place

from palimpsest.errors import DataError
from palimpsest.params.load import LEDGER_VARIABLE
from palimpsest.work.context import environment
from palimpsest.work.run import hold_unattended

NOBODY = 65534
SETTINGS = {"README.md", "dvc.yaml", "params.yaml", "params.resolved.yaml", ".gitignore", ".dvcignore"}
WORD = "qvxzkwjy"  # in every private text
REFUSED = "where others than their owner may read them"


@dataclass(frozen=True)
class Shared:
    """A user's workspace and a team's cache, in folders that everybody may enter."""

    place: Place
    cache: Path  # the team's, which the user's settings of DVC name
    variables: dict[str, str]  # the environment of the user's commands

    def repro(self, *targets: str) -> tuple[int, str]:
        """Bare `dvc repro`, with the umask that most users have."""
        return self.dvc("repro", *targets)

    def dvc(self, *words: str) -> tuple[int, str]:
        """A command of DVC in the workspace: its exit status and what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "dvc", *words],
            cwd=self.place.workspace, env=self.variables, umask=0o022, capture_output=True, text=True,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    @property
    def shared(self) -> list[Path]:
        """What the team's cache has."""
        return [path for path in self.cache.rglob("*") if path.is_file()]


@pytest.fixture
def shared(made: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shared]:
    home = Path(tempfile.mkdtemp())  # others may enter what lies there, and not the folders of tests
    try:
        home.chmod(0o755)
        place = Place(copytree(made, home / "user"))
        (place.home / "own.csv").write_text("body,team\n" + "".join(f"{WORD} {n},{'ab'[n % 2]}\n" for n in range(200)))
        for folder in (place.home, place.workspace):
            folder.chmod(0o755)
        cache, settings = home / "cache", home / "settings"
        cache.mkdir()
        cache.chmod(0o2775)
        settings.mkdir()
        (settings / "config").write_text(f"[cache]\n    dir = {cache}\n    shared = group\n    type = symlink\n")
        monkeypatch.setenv("DVC_GLOBAL_CONFIG_DIR", str(settings))
        monkeypatch.setenv(LEDGER_VARIABLE, str(place.ledger))
        yield Shared(place, cache, environment())
    finally:
        rmtree(home)


def without_own_cache(place: Place) -> None:
    """The workspace as one that was made before `init` gave it a cache of its own."""
    config = place.workspace / ".dvc" / "config"
    before, _, after = config.read_text().partition("[cache]\n    dir = cache\n")
    assert before, "`init` wrote it"
    config.write_text(before + after)


def read_by_others(folder: Path) -> list[Path]:
    """Files that another user reads: asked of the kernel where we may be that user, else of the modes."""
    if os.geteuid() == 0:
        done = subprocess.run(
            ["find", folder, "-type", "f", "-readable"],
            user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", capture_output=True, text=True,
        )  # fmt: skip
        return [Path(line) for line in done.stdout.splitlines()]
    return [path for path in folder.rglob("*") if path.is_file() and is_open(folder, path)]


def is_open(folder: Path, path: Path) -> bool:
    entered = [each for each in path.parents if each.is_relative_to(folder)]
    return bool(path.lstat().st_mode & 0o004) and all(each.stat().st_mode & 0o001 for each in entered)


@pytest.mark.timeout(300)
def test_a_new_workspace_has_a_cache_of_its_own_that_no_other_user_reads(shared: Shared) -> None:
    code, output = shared.repro("preprocess")
    assert code == 0, output
    work = shared.place.workspace
    train = work / "data/private/train.parquet"
    assert train.resolve().is_relative_to(work / ".dvc" / "cache"), "a link, as the user's settings want it"
    assert shared.shared == []
    assert {path.relative_to(work).as_posix() for path in read_by_others(work)} <= SETTINGS
    assert read_by_others(shared.place.home) != [], "others may enter"


@pytest.mark.timeout(300)
def test_a_workspace_whose_settings_say_nothing_of_it_runs_once_it_has_one(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = shared.place
    without_own_cache(place)
    code, output = shared.repro("preprocess")
    assert (code != 0, REFUSED in output) == (True, True), output
    for command in ("run", "plan"):
        done = place.call(command)
        assert (done.exit_code, REFUSED in done.stderr) == (1, True), done.output
    with pytest.raises(DataError, match=REFUSED), hold_unattended(place.workspace, ()):
        pytest.fail("a schedule would run it")
    assert shared.shared == []
    assert shared.dvc("cache", "dir", "--local", ".dvc/cache")[0] == 0, "as the error says"
    done = place.call("plan")
    assert done.exit_code == 0, done.output
