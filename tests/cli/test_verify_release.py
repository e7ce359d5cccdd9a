"""`palimpsest verify FOLDER`, as a function; the command line calls it."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from palimpsest.cli.main import app
from palimpsest.cli.release import list_history, on_one_line, verify_folder
from palimpsest.errors import DataError
from palimpsest.report.release.check import Check, verify_release
from palimpsest.report.release.keys import fingerprint, load_key
from palimpsest.work.console import console
from tests.report.release_world import REFERENCE, VARIANT, Workspace, released


@pytest.fixture(scope="module")
def made() -> Workspace:
    return released()


def test_a_release_that_holds_ends_with_0_for_a_pinned_key_alone(made: Workspace):
    def verified(*options: str) -> Result:
        return CliRunner().invoke(app, ["verify", str(made.folder / "release"), *options])

    name = fingerprint(load_key(made.key).public_key())
    done = verified()
    assert (done.exit_code, done.stdout.count("holds")) == (3, 6)
    assert f"key: {name}" in done.stdout
    assert "not verified: all holds, but the key was not pinned" in done.stderr
    assert "what to do: ask the releaser" in done.stderr
    done = verified("--key", name)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "with 3 without --key" in " ".join(CliRunner().invoke(app, ["verify", "--help"]).stdout.split())


def test_every_look_is_shown_with_its_day(made: Workspace, capsys: pytest.CaptureFixture[str]):
    verify_folder(made.folder / "release", None)
    told = capsys.readouterr().out.splitlines()
    shown = [line.split("  ", 1)[1] for line in told if line.startswith("shows")]
    assert [line.partition(" from ")[0] for line in shown[:1]] == ["the cap was epsilon 10"]
    assert [line.partition(": ")[2] for line in shown[1:]] == [
        f"label_histogram of {VARIANT}, release, committed, counted",
        f"label_histogram of {REFERENCE}, reference, committed, not counted",
    ]


def test_a_release_that_does_not_hold_ends_with_1_and_says_why(
    made: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    shutil.copytree(made.folder / "release", tmp_path / "release")
    (tmp_path / "release" / "README.md").write_text("changed")
    assert verify_folder(tmp_path / "release", None) == 1
    assert "'README.md' was changed" in capsys.readouterr().out


def test_nothing_that_a_signer_names_steers_the_terminal(made: Workspace, capsys: pytest.CaptureFixture[str]):
    seen = verify_release(made.folder / "release")
    hostile = tuple(replace(charge, query="q\r\n\x1b[2K\x1b[8m[red]") for charge in seen.charges)
    failed = Check("the statement\x1b[8m", ("a problem\x9b8m",))
    for line in (*list_history(replace(seen, charges=hostile)), failed.name, *failed.problems):
        shown = on_one_line(line)
        assert shown.isprintable()
        console().print(shown)
    assert "[red]" in capsys.readouterr().out  # and it is no markup


def test_another_key_ends_with_1(made: Workspace, capsys: pytest.CaptureFixture[str]):
    assert verify_folder(made.folder / "release", "SHA256:" + "0" * 64) == 1
    assert "Another key than the given one" in capsys.readouterr().out


@pytest.mark.parametrize("key", ["nope.pem", "SHA256:12", "0" * 63])
def test_what_is_no_key_accuses_nobody(made: Workspace, key: str):
    with pytest.raises(DataError, match="which is no file and no fingerprint"):
        verify_folder(made.folder / "release", key)
