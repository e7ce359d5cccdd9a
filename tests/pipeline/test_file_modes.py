"""What DVC makes of a workspace where it runs with the widest umask: nothing that others than the owner could read."""

import os
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree

import pytest
from dvc.repo import Repo

import stages.dp_train
from palimpsest.privacy.ledger import records
from palimpsest.work.context import find_stale
from stages.warm import VARIABLE as WARM
from tests.pipeline.place import VARIANT, Place, asked_word

pytestmark = [pytest.mark.xdist_group("pipeline"), pytest.mark.timeout(900)]

OTHERS = 0o077
PUBLIC = {"params.yaml", "params.resolved.yaml", "dvc.yaml", ".gitignore", ".dvcignore"}


@pytest.fixture
def wide(again: Place) -> Iterator[Place]:
    """A workspace that has run, in a folder that everybody may enter, for commands with the widest umask."""
    again.workspace.chmod(0o777)
    before = os.umask(0)
    yield again
    os.umask(before)


def readable(folder: Path) -> set[str]:
    """Paths in a folder that others than the owner can come to, but for the settings."""
    found = set()
    for place, folders, files in os.walk(folder):
        entered = {name for name in (*folders, *files) if is_open(Path(place, name))}
        found |= {Path(place, name).relative_to(folder).as_posix() for name in entered}
        folders[:] = [name for name in folders if name in entered]
    return found - PUBLIC


def is_open(path: Path) -> bool:
    try:
        return bool(path.lstat().st_mode & OTHERS)
    except FileNotFoundError:
        return False


@contextmanager
def watched(folder: Path) -> Iterator[set[str]]:
    """What others could come to at any time meanwhile; complete when the block has ended."""
    found, stopped = set[str](), threading.Event()

    def watch() -> None:
        while not stopped.wait(0.001):
            found.update(readable(folder))
        found.update(readable(folder))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        stopped.set()
        thread.join()


def test_dvc_alone_opens_nothing_private_from_the_first_byte_on(wide: Place) -> None:
    for folder in ("data", ".dvc/cache"):
        rmtree(wide.workspace / folder)
    wide.edit("lms", VARIANT, epsilon=0.6, epochs=20)  # long enough to be stopped on the way
    train = wide.workspace / "data/private/train.parquet"
    with watched(wide.workspace) as found:
        assert wide.start("dvc", "repro", "preprocess").wait() == 0, wide.output
        assert train.stat().st_mode & OTHERS, "DVC's own mode: the folder around it holds"
        command = ("dvc", "repro", "--single-item", f"dp_train@{VARIANT}")
        with wide.entered():  # it was charged with other settings
            own_word = asked_word(*wide.stage(stages.dp_train, VARIANT))
        wide.stop_in_training(signal.SIGKILL, *command, **{WARM: "", records.CONSENT: own_word})
        train.unlink()
        assert wide.start("dvc", "checkout", "preprocess").wait() == 0, wide.output
    assert train.is_file()
    assert found == set()


def test_what_dvc_keeps_elsewhere_of_a_workspace_is_its_users_alone(
    made: Place, copy: Callable[[Place], Place]
) -> None:
    assert stat.S_IMODE(made.workspace.stat().st_mode) == mode_elsewhere(made) == 0o700, "by `init`"
    moved = copy(made)
    before = os.umask(0)
    try:
        assert mode_elsewhere(moved) == 0o777, "by DVC alone"
        find_stale(moved.workspace)
    finally:
        os.umask(before)
    assert mode_elsewhere(moved) == 0o700, "once a command of ours has opened it"


def mode_elsewhere(place: Place) -> int:
    with Repo(str(place.workspace)) as repo:
        return stat.S_IMODE(Path(repo.site_cache_dir).stat().st_mode)
