"""What is wrong is told in two lines, before anything is charged, and without a word of a row."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import stages.preprocess
import stages.together
from palimpsest.cli.main import app
from palimpsest.files import read_json
from palimpsest.params.load import LEDGER_VARIABLE
from palimpsest.records.read import iter_rows
from palimpsest.workspace import FAULT
from stages.common import LAUNCHED, PROCESSES, start, start_processes
from tests.pipeline.place import MARKER, Place

pytestmark = [pytest.mark.xdist_group("pipeline"), pytest.mark.timeout(900)]

Write = Callable[[str | bytes], Place]
ROWS = f"id,body,team\n1,a first text {MARKER},returns\n2,a second text {MARKER},workshop\n"


@pytest.fixture
def place(made: Place, copy: Callable[[Place], Place], entered: Callable[[Place], Place]) -> Place:
    """A workspace that has not run, entered."""
    return entered(copy(made))


@pytest.fixture
def write(place: Place) -> Write:
    """Put a file of these contents where the private file is expected."""

    def write(content: str | bytes) -> Place:
        file = place.home / "rows.csv"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        place.edit("dataset", private=str(file))
        return place

    return write


def refused(place: Place) -> str:
    """Run the stage preprocess, which must fail and may not quote a row: the problem that it tells."""
    code, output = place.stage(stages.preprocess)
    assert code == 1
    assert MARKER not in output
    lines = [line for line in output.splitlines() if not line.startswith("progress ")]
    problem, remedy = "\n".join(lines).split("\n  what to do: ")
    assert problem.startswith("error: ")
    assert remedy
    return problem


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(ROWS.replace("body", MARKER, 1), "'rows.csv' has no column 'body'", id="missing column"),
        pytest.param(ROWS.split("\n", 1)[1], "'rows.csv' has no column 'body'", id="no header"),
        pytest.param("", "'rows.csv' is empty", id="empty file"),
        pytest.param("id,body,team\n", "'rows.csv' has no row that can be read", id="header alone"),
        pytest.param(ROWS.replace("id", "body", 1), "'rows.csv' has 2 columns named 'body'", id="duplicate header"),
    ],
)
def test_a_file_that_cannot_be_used(write: Write, content: str | bytes, problem: str):
    place = write(content)
    head = place.ledger.head()
    assert problem in refused(place)
    assert untouched(place, head)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(
            ROWS.replace("workshop", MARKER), "(line 3): column 'team' is not one of the 5", id="unknown label"
        ),
        pytest.param(
            ROWS.encode().replace(b"second", b"\xff"), "(line 3): column 'body' is not valid UTF", id="no UTF-8"
        ),
        pytest.param(ROWS.replace("second", "\0"), "(line 3): column 'body' contains a NUL", id="NUL byte"),
        pytest.param(ROWS.replace("a second", '"a second'), "the quoting is broken", id="open quote"),
    ],
)
def test_a_record_that_cannot_be_used_is_named_in_the_private_zone_alone(
    write: Write, content: str | bytes, problem: str
):
    place = write(content)
    head = place.ledger.head()
    assert refused(place) == "error: A private record cannot be read."
    told = (place.workspace / FAULT).read_text()
    assert problem in read_json(place.workspace / FAULT)["told"][0]
    assert MARKER not in told
    (place.workspace / FAULT).unlink()
    assert untouched(place, head)


def test_a_single_label(place: Place):
    place.edit("dataset", labels={"returns": "returns"})
    head = place.ledger.head()
    assert "at least two `labels`" in refused(place)
    assert untouched(place, head)


def test_a_file_that_changes_while_it_is_read(write: Write, monkeypatch: pytest.MonkeyPatch):
    place = write(ROWS)
    head = place.ledger.head()

    def read_and_append(path, *arguments):
        yield from iter_rows(path, *arguments)
        if Path(path).name == "rows.csv":
            with Path(path).open("a") as stream:
                stream.write(f"3,a third text {MARKER},returns\n")

    monkeypatch.setattr("palimpsest.records.read.iter_rows", read_and_append)
    assert "changed while it was being read" in refused(place)
    assert untouched(place, head)


def test_a_ledger_that_is_missing(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(LEDGER_VARIABLE, str(place.home / "elsewhere.db"))
    assert "There is no ledger at" in refused(place)
    assert not (place.home / "elsewhere.db").exists()


def test_a_ledger_that_cannot_be_read(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(LEDGER_VARIABLE, str(place.private))
    assert "cannot be read" in refused(place)


def test_a_data_set_that_is_not_registered(place: Place):
    place.edit("dataset", asset="another")
    head = place.ledger.head()
    assert "'another' is not registered" in refused(place)
    assert untouched(place, head)


@pytest.fixture
def mounted(place: Place) -> Iterator[Callable[[str], Place]]:
    """Move the workspace to a disk of its own, mounted with these options."""
    disk = place.home / "disk"

    def mount(options: str) -> Place:
        disk.mkdir()
        _mount("-t", "tmpfs", "-o", "size=64k", "none", str(disk))
        for name in ("params.yaml", "params.resolved.yaml", "dvc.yaml"):
            (disk / name).write_bytes((place.workspace / name).read_bytes())
        _mount("-o", f"remount,{options}", str(disk))
        os.chdir(disk)
        return place

    yield mount
    os.chdir(place.home)
    subprocess.run(["umount", "--lazy", str(disk)], check=False, capture_output=True)


def _mount(*arguments: str) -> None:
    if os.geteuid() != 0 or subprocess.run(["mount", *arguments], check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount a file system")


def test_a_full_disk(mounted: Callable[[str], Place]):
    place = mounted("size=64k")
    assert refused(place) == "error: The disk is full."
    assert not place.charges
    assert not list(Path("data").rglob("*.part"))


def test_a_disk_that_cannot_be_written(mounted: Callable[[str], Place]):
    place = mounted("ro")
    head = place.ledger.head()
    assert refused(place) == "error: The disk is read-only."
    assert place.ledger.head() == head


def test_a_command_on_a_disk_that_cannot_be_written(mounted: Callable[[str], Place]):
    mounted("ro")
    done = CliRunner().invoke(app, ["run", "--yes"])
    assert (done.exit_code, done.stderr.splitlines()[0]) == (1, "error: The disk is read-only.")


@pytest.mark.parametrize("error", [MemoryError, torch.OutOfMemoryError])
def test_memory_that_is_used_up(place: Place, monkeypatch: pytest.MonkeyPatch, error: type[Exception]):
    def crowded(*_: object, **__: object) -> None:
        raise error(MARKER)

    monkeypatch.setattr(stages.preprocess, "read_rows", crowded)
    assert refused(place) == "error: The memory of this machine, or of its device, is used up."
    assert not place.charges


def test_a_folder_that_may_not_be_written(place: Place):
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    head = place.ledger.head()
    place.workspace.chmod(0o555)
    try:
        assert refused(place) == "error: A file or folder may not be read or written."
    finally:
        place.workspace.chmod(0o755)
    assert place.ledger.head() == head


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Start a stage in as many processes as the environment asks for: the arguments that the stage got."""

    def start(count: str) -> list[str]:
        got: list[str] = []
        monkeypatch.setenv(PROCESSES, count)
        monkeypatch.setattr("sys.argv", ["stage", "dp3"])
        start_processes(lambda *arguments: got.extend(arguments))
        return got

    return start


@pytest.mark.parametrize("count", ["two", "1.5", "0", "-1", ""])
def test_a_number_of_processes_that_is_none(
    asking: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str], count: str
):
    with pytest.raises(SystemExit) as stop:
        asking(count)
    problem, remedy = capsys.readouterr().err.splitlines()
    assert stop.value.code == 1
    assert problem == f"error: {PROCESSES} is {count!r} in the environment, which is not a whole number from 1."
    assert remedy.startswith("  what to do: Set it to the number of processes")


def _are(wanted: list[str], *arguments: str) -> None:
    assert [*arguments] == wanted


def test_a_stage_takes_more_arguments_than_the_name_of_a_file_has_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The first page is told of every measurement that is still to come. Other arguments have another lock."""
    monkeypatch.chdir(tmp_path)
    awaited = [f"reports/metrics/dp{number}/membership.json" for number in range(300)]
    for arguments in (awaited, awaited[1:], ["dp3"]):
        monkeypatch.setattr("sys.argv", ["stages/report.py", *arguments])
        start(partial(_are, arguments))
    locks = {path.name for path in Path(".palimpsest/stages").iterdir()}
    assert len(locks) == 3
    assert "report-dp3.lock" in locks


def test_one_process_is_this_one(asking: Callable[[str], list[str]]):
    assert asking("1") == ["dp3"]


def test_several_processes_run_the_stage_by_its_name(
    asking: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch
):
    """Not by its path: beside it lies a module named as one of the standard library."""
    started: list[Any] = []
    monkeypatch.setattr(stages.together, "launch", lambda *arguments: started.append(arguments))
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", find_spec("stages.dp_train"))
    for name in ("PYTHONSAFEPATH", LAUNCHED):
        monkeypatch.setenv(name, "")
    assert asking("2") == []
    assert started == [(2, "stages.dp_train", ["dp3"])]
    assert os.environ["PYTHONSAFEPATH"] == "1"


# The same through the command line.


@pytest.mark.parametrize(
    ("keys", "values", "problem"),
    [
        (("dataset",), {"private": "/nowhere/rows.csv"}, "dataset.private is '/nowhere/rows.csv' in params.yaml"),
        (("dataset",), {"label": None}, "task classify needs `label`"),
        (("dataset",), {"asset": "another"}, "'another' is not registered"),
        (("dataset",), {"n_public": 500}, "These never change once something was charged"),
        (("privacy", "budget"), {"epsilon": 30.0}, "the ledger at 20"),
        ((), {"version": "0.0.1"}, "version is '0.0.1' in params.yaml"),
    ],
)
def test_the_command_line_refuses_before_any_stage(place: Place, keys: tuple[str, ...], values: dict, problem: str):
    head = place.ledger.head()
    place.edit(*keys, **values)
    done = CliRunner().invoke(app, ["run", "--workspace", str(place.workspace)])
    assert done.exit_code == 1
    assert problem in done.stderr
    assert done.stderr.startswith("error: ")
    assert "\n  what to do: " in done.stderr
    assert untouched(place, head)


def test_the_command_line_refuses_a_budget_that_is_too_small(place: Place):
    place.cap(0.2)
    head = place.ledger.head()
    done = CliRunner().invoke(app, ["run", "--workspace", str(place.workspace)])
    assert done.exit_code == 1
    assert "would pass the budget of asset 'tickets': spent epsilon 0.000, asked " in done.stderr
    assert "left 0.200 of 0.2" in done.stderr
    assert untouched(place, head)


def test_a_stage_that_fails_makes_the_run_fail(write: Write, capfd: pytest.CaptureFixture[str]):
    place = write(ROWS.replace("workshop", MARKER))
    head = place.ledger.head()
    with pytest.raises(SystemExit) as stop:
        app(["run", "--workspace", str(place.workspace)])
    output = "".join(capfd.readouterr())
    assert stop.value.code == 1
    assert f"error: A private record cannot be read.\n  what to do: {str(FAULT)!r} has its file, its place" in output
    assert [MARKER in output, "row 2" in output, "line 3" in output, "public labels" in output] == [False] * 4
    kept = place.workspace / FAULT
    (told,) = read_json(kept)["told"]
    assert told.startswith("'rows.csv', row 2 (line 3): column 'team' is not one of the 5 public labels. ")
    assert MARKER not in kept.read_text()
    kept.unlink()
    assert untouched(place, head)


def untouched(place: Place, head: str) -> bool:
    """Nothing was charged and nothing private was written."""
    return place.ledger.head() == head and not place.files("data/private", "models", "reports")
