"""A run is alone, is stopped as a person expects, and says nothing of DVC's; stages here are a few lines of Python."""

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import psutil
import pytest
from dvc import dvcfile
from dvc.repo import Repo
from dvc.utils.serialize import _yaml

from palimpsest.errors import DataError
from palimpsest.privacy.ledger import records
from palimpsest.work import before as run_command
from palimpsest.work.context import find_stale
from palimpsest.work.repro import BUSY, STOPPED, reproduce
from palimpsest.work.run import hold_workspace
from palimpsest.workspace import READING, RUNNING
from tests.running import at_work, is_free, wait_until

HOLD = """
import pathlib, time
try:
    pathlib.Path("held").write_text("")  # from here on the interrupt may come
    time.sleep(600)
finally:
    pathlib.Path("held").unlink()
"""
DEAF = """
import pathlib, signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path("held").write_text("")
time.sleep(600)
"""
STAGES = (
    "stages:\n  first: {cmd: python first.py, deps: [first.py], outs: [first.txt]}\n"
    "  next: {cmd: 'echo private rows ran', deps: [first.txt]}\n"
)
# What `palimpsest run` does, without its checks.
RUN = """
import sys
from pathlib import Path
from palimpsest.work.run import hold_workspace
from palimpsest.work.run import _run_repro
with hold_workspace(Path()) as lock:
    try:
        sys.exit(_run_repro(None, Path(), [lock], lambda variables, bring: bring([]), {}))
    except KeyboardInterrupt:
        print("closing")
        sys.exit(130)
"""


@pytest.fixture
def make(tmp_path: Path) -> Callable[[str], Path]:
    """A workspace whose first stage runs this code."""

    def made(code: str) -> Path:
        Repo.init(str(tmp_path), no_scm=True).close()
        (tmp_path / "dvc.yaml").write_text(STAGES)
        (tmp_path / "first.py").write_text(code)
        return tmp_path

    return made


def start(folder: Path, *command: str) -> "subprocess.Popen[str]":
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with (folder / "output").open("w") as output:
        return subprocess.Popen(
            [sys.executable, *command], cwd=folder, env=variables, stdout=output, stderr=output, text=True
        )


def held(folder: Path) -> bool:
    return (folder / "held").exists()


@pytest.mark.parametrize(
    ("code", "number", "tidy"), [(HOLD, signal.SIGINT, True), (HOLD, signal.SIGHUP, True), (DEAF, signal.SIGINT, False)]
)
def test_a_stop_ends_everything_with_one_line(make: Callable[[str], Path], code: str, number: int, tidy: bool) -> None:
    folder = make(code)
    run = start(folder, "-c", RUN)
    wait_until(lambda: held(folder))
    family = psutil.Process(run.pid).children(recursive=True)
    run.send_signal(number)
    assert run.wait(60) == STOPPED
    assert not at_work(family)
    said = (folder / "output").read_text().splitlines()
    assert said[-1] == "closing"
    assert [line for line in said if line not in ("Running stage 'first':", "> python first.py")] == ["closing"]
    assert held(folder) != tidy  # an interrupt came first, so that a stage could tidy up
    with hold_workspace(folder):
        assert not (folder / "first.txt").exists()


def test_nothing_of_dvcs_own_advice_reaches_the_user(make: Callable[[str], Path]) -> None:
    folder = make("open('first.txt', 'w')")
    (folder / ".dvc" / "tmp").mkdir(exist_ok=True)
    killed = {"write": {str(folder / "first.txt"): {"pid": 2**22 - 1, "cmd": "dvc repro"}}, "read": {}}
    (folder / ".dvc" / "tmp" / "rwlock").write_text(json.dumps(killed))
    run = start(folder, "-c", RUN)
    assert run.wait(60) == 0
    said = (folder / "output").read_text()
    assert "private rows ran" in said
    assert not [word for word in ("dvc push", "lock", "git", "killed") if word in said]


def test_a_list_of_busy_files_that_a_killed_reader_left_half_is_forgotten(make: Callable[[str], Path]) -> None:
    folder = make("open('first.txt', 'w')")
    (folder / READING).mkdir(parents=True)
    (folder / READING / "rwlock").write_text('{"read": {')
    assert find_stale(folder) == {"first", "next"}


def test_dvc_leaves_its_lock_file_as_it_was_or_whole(
    make: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make("open('first.txt', 'w')")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(dvcfile, "modify_yaml", dvcfile.modify_yaml)
    assert reproduce(["first"], single_item=True) == 0
    before = Path("dvc.lock").read_bytes()
    assert b"first.txt" in before
    (folder / "first.py").write_text("open('first.txt', 'w').write('more')")

    def full(data: object, stream: TextIO) -> None:
        stream.write("schema: '2.0'\nstages:\n  first:\n    cmd:")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(_yaml, "_dump", full)
        assert reproduce(["first"], single_item=True) == 1
    assert Path("dvc.lock").read_bytes() == before
    assert "No space left on device (OSError at line " in capsys.readouterr().err
    assert reproduce(["first"], single_item=True) == 0
    assert Path("dvc.lock").read_bytes() != before
    assert not find_stale(folder) & {"first"}
    assert not list(folder.glob(".dvc.lock*"))


@pytest.mark.parametrize("half", [None, "", "cmd: python first.py\ndeps:\n- path: first.py\n"])
def test_half_a_note_of_an_earlier_run_stops_no_later_one(
    make: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, half: str | None
) -> None:
    folder = make("open('first.txt', 'w')")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(dvcfile, "modify_yaml", dvcfile.modify_yaml)
    assert reproduce(["first"], single_item=True) == 0
    (note,) = folder.glob(".dvc/cache/runs/*/*/*")
    for path in (note, folder / "dvc.lock", folder / "first.txt"):
        path.unlink()
    if half is not None:
        (note.parent / f"{'4' * 22}.tmp").write_text(half)
    assert reproduce(["first"], single_item=True) == 0
    assert [path.name for path in folder.glob(".dvc/cache/runs/*/*/*")] == [note.name]


def test_a_failed_stage_is_named_without_a_traceback(make: Callable[[str], Path]) -> None:
    folder = make("raise SystemExit(3)")
    run = start(folder, "-c", RUN)
    assert run.wait(60) == 1
    assert (folder / "output").read_text().splitlines()[-2] == "error: failed to reproduce 'first'."


@pytest.fixture
def busy(make: Callable[[str], Path]) -> Path:
    """A workspace in which another DVC process, this one, runs the first stage."""
    folder = make("open('first.txt', 'w')")
    (folder / ".dvc" / "tmp").mkdir(exist_ok=True)
    ours = {"write": {str(folder / "first.txt"): {"pid": os.getpid(), "cmd": "dvc repro"}}, "read": {}}
    (folder / ".dvc" / "tmp" / "rwlock").write_text(json.dumps(ours))
    return folder


def test_files_that_another_dvc_is_at_are_said_in_two_parts(busy: Path) -> None:
    run = start(busy, "-P", "-m", "palimpsest.work.repro")
    assert run.wait(60) == BUSY
    assert (busy / "output").read_text().splitlines() == [
        "error: Another DVC process is at files that this run needs.",
        "  what to do: Wait for it to end, or end it, and run again. Nothing of its work is lost; remove no lock by "
        "hand.",
    ]


def test_the_state_is_told_while_a_stage_runs(busy: Path) -> None:
    assert find_stale(busy) == {"first", "next"}


def test_a_second_run_is_told_who_runs(tmp_path: Path) -> None:
    with hold_workspace(tmp_path), pytest.raises(DataError) as told, hold_workspace(tmp_path):
        pass
    assert f"process {os.getpid()}, since 20" in told.value.problem
    assert (tmp_path / RUNNING).stat().st_mode & 0o777 == 0o600
    with hold_workspace(tmp_path):
        pass


def test_a_run_that_was_killed_holds_the_workspace_while_its_stage_lives(make: Callable[[str], Path]) -> None:
    folder = make(HOLD)
    run = start(folder, "-c", RUN)
    wait_until(lambda: held(folder))
    family = psutil.Process(run.pid).children(recursive=True)
    run.kill()
    run.wait()
    with pytest.raises(DataError, match="A run is at work"), hold_workspace(folder):
        pass
    for child in family:
        with contextlib.suppress(psutil.NoSuchProcess):  # what holds nothing may have ended by itself
            child.kill()
    wait_until(lambda: is_free(folder))


# Second charges.


class Asked:
    """What a run would ask of, and what a person answers."""

    def __init__(self, patch: pytest.MonkeyPatch, words: set[str], terminal: bool, answer: bool) -> None:
        self.questions: list[str] = []
        patch.setattr(
            run_command,
            "_find_repeated",
            lambda context, spending, known: [(None, word) for word in sorted(words - known)],
        )
        patch.setattr(run_command, "_cost", lambda context, pending: "It costs.")
        patch.setattr(run_command, "_ask_owner", lambda *_, **__: None)
        patch.setattr("sys.stdin.isatty", lambda: terminal, raising=False)
        patch.setattr(run_command, "confirm", lambda question: self.questions.append(question) or answer)


@pytest.mark.parametrize(
    ("words", "terminal", "yes", "answer", "given", "questions"),
    [
        (set(), True, False, False, "", 0),
        ({"fit@a:1"}, True, False, True, "fit@a:1", 1),
        ({"fit@a:1"}, True, False, False, None, 1),
        ({"fit@a:1"}, True, True, False, "fit@a:1", 0),
        ({"fit@a:1"}, False, True, False, "fit@a:1", 0),
        ({"fit@a:1"}, False, False, True, "", 0),  # the stage refuses
        ({"fit@a:0"}, False, False, False, "fit@a:0", 0),  # its word is in the environment
        ({"fit@a:0", "fit@a:1"}, True, False, True, "fit@a:0 fit@a:1", 1),
    ],
)
def test_a_word_for_a_second_charge_comes_from_a_person(
    monkeypatch: pytest.MonkeyPatch,
    words: set[str],
    terminal: bool,
    yes: bool,
    answer: bool,
    given: str | None,
    questions: int,
) -> None:
    if "fit@a:0" in words:
        monkeypatch.setenv(records.CONSENT, "fit@a:0")
    person = Asked(monkeypatch, words, terminal, answer)
    answers = run_command.ask_consent(None, [], releases=True, yes=yes, reason=None)  # type: ignore[arg-type]
    assert (answers.again is None) == (given is None)
    if given is not None:
        assert answers.variables[records.CONSENT] == given
    assert len(person.questions) == questions
