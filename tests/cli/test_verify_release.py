"""`palimpsest verify FOLDER`, as a function; the command line calls it."""

import shutil
from pathlib import Path

import pytest

from palimpsest.cli.verify_release import check_release
from palimpsest.report.release.keys import fingerprint, load_key
from tests.report.release_world import Workspace, released


@pytest.fixture(scope="module")
def made() -> Workspace:
    return released()


def test_a_release_that_holds_ends_with_0_and_says_that_the_key_was_not_pinned(
    made: Workspace, capsys: pytest.CaptureFixture[str]
):
    name = fingerprint(load_key(made.key).public_key())
    assert check_release(made.folder / "release", None) == 0
    told = capsys.readouterr().out
    assert told.count("holds") == 5
    assert f"key: {name}" in told
    assert "not pinned" in told
    assert check_release(made.folder / "release", name) == 0
    assert "not pinned" not in capsys.readouterr().out


def test_a_release_that_does_not_hold_ends_with_1_and_says_why(
    made: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    shutil.copytree(made.folder / "release", tmp_path / "release")
    (tmp_path / "release" / "README.md").write_text("changed")
    assert check_release(tmp_path / "release", None) == 1
    assert "'README.md' was changed" in capsys.readouterr().out


def test_another_key_ends_with_1(made: Workspace, capsys: pytest.CaptureFixture[str]):
    assert check_release(made.folder / "release", "SHA256:" + "0" * 64) == 1
    assert "Another key than the given one" in capsys.readouterr().out
