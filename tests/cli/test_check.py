"""What `palimpsest init` finds in the files, where it says so, and what it asks for."""

import json
import os
import pty
import stat
import subprocess
import sys
from pathlib import Path

import dp_accounting as dpa
import pytest
import sqlalchemy as sa
from cli_place import Place, call, init, write_files

from palimpsest.errors import LedgerError, ParamsError
from palimpsest.files import write_json
from palimpsest.params.load import LEDGER_VARIABLE, ledger_url, load
from palimpsest.privacy.ledger import chain
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Run
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.shown import up
from palimpsest.work import check, console
from palimpsest.work.before import check_release
from palimpsest.workspace import FAULT, ROWS_REPORT
from stages import preprocess

SECRET = "ZANZIBAR-7731"
BAD = f"body,team\nsome text,a\n{SECRET} one,c\n,a\n\n{SECRET} two,A\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = write_files(tmp_path / "home")
    (made / "own.csv").write_text(BAD)
    return made


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (console, check):
        monkeypatch.setattr(module, "owners_terminal", lambda: True)


def test_kinds_and_the_first_place_are_said_and_all_is_listed(home: Path, terminal: None) -> None:
    done = init(home, home / "work")
    assert done.exit_code == 1
    words = "a label is not one of those listed. The first is row 2 (line 3), column 'team'"
    assert f"DATA is {str(home / 'own.csv')!r}, which has records that a run would stop at: {words}." in done.stderr
    path = home / "work" / check.LIST
    assert [each.relative_to(home / "work") for each in (home / "work").rglob("*") if each.is_file()] == [check.LIST]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    entry = json.loads(path.read_text())["files"][0]
    assert [fault["line"] for fault in entry["faults"]] == [3, 4, 6]
    assert SECRET not in path.read_text() + done.stdout + done.stderr
    (home / "own.csv").write_text("body,team\nsome text,a\n")
    assert init(home, home / "work").exit_code == 0
    assert not path.exists()


def test_where_there_is_no_terminal_nothing_of_a_record_is_said(home: Path) -> None:
    done = init(home, home / "work")
    assert done.exit_code == 1
    place = str(home / "work" / check.LIST)
    assert done.stderr == (
        f"error: DATA is {str(home / 'own.csv')!r}, which has records that a run would stop at.\n"
        f"  what to do: Correct them. {place!r} lists each with its kind and place.\n"
    )


def test_what_is_dropped_is_said_and_written_into_the_settings(home: Path, terminal: None) -> None:
    done = init(home, home / "work", bad_rows="drop")
    assert done.exit_code == 0, done.output
    assert (
        "records are left out: a label is not one of those listed; a text is empty. The first is row 2" in done.stderr
    )
    assert load(home / "work").dataset.bad_rows == "drop"
    assert "bad_rows: drop" in (home / "work/params.resolved.yaml").read_text()


def test_where_no_record_would_be_kept_nothing_is_registered(home: Path, terminal: None) -> None:
    """A run would charge for rows of noise alone; to leave such records out is no remedy, and is not offered."""
    (home / "own.csv").write_text("body,team\nsome text,A\nanother,B\n")
    for policy in ("stop", "drop"):
        done = init(home, home / "work", bad_rows=policy)
        assert done.exit_code == 1
        assert "a label is not one of those listed. The first is row 1 (line 2), column 'team'." in done.stderr
        assert "Correct them. Labels are compared exactly, case, spaces" in done.stderr
        assert not (home / "ledger.db").exists()


def test_texts_that_the_public_file_has_too_are_told(home: Path, terminal: None) -> None:
    (home / "own.csv").write_text("body,team\nsome text,a\nzwieback,b\n")
    said = "Some rows have a text that the public file has, too"
    assert said not in init(home, home / "one").stderr
    (home / "public.csv").write_text(f"body\n{SECRET}\nZwieback.\n")
    done = init(home, home / "two", asset="second")
    assert done.exit_code == 0, done.output
    assert said in done.stderr
    assert "wieback" not in done.stdout + done.stderr


def test_a_column_that_the_public_file_lacks_is_to_be_named_there(home: Path, terminal: None) -> None:
    (home / "public.csv").write_text("words\npublic text\n")
    done = init(home, home / "work")
    assert "--text is 'body': 'public.csv' has no such column. It has: 'words'." in done.stderr
    assert "Name the columns of 'public.csv' as those of DATA are named." in done.stderr


def test_a_key_that_a_line_lacks_is_to_be_written(tmp_path: Path, terminal: None) -> None:
    home = write_files(tmp_path / "home")
    (home / "public.csv").rename(home / "public.jsonl")
    (home / "public.jsonl").write_text('{"body": "public text"}\n')
    (home / "own.csv").write_text("body,team\nsome text,a\n")
    (home / "test.jsonl").write_text('{"body": "x", "team": "a"}\n{"body": "y"}\n')
    done = init(home, home / "work", public=home / "public.jsonl", test=home / "test.jsonl")
    assert "a line lacks a key. The first is row 2" in done.stderr
    assert "always stop, for they may hide other records. Write every key in every line; null" in done.stderr


def test_declared_sizes_that_are_far_off_are_said_without_a_count(tmp_path: Path, terminal: None) -> None:
    home = write_files(tmp_path / "home")
    done = init(home, home / "work")
    assert done.exit_code == 0
    assert "note: The number of rows is far from dataset.n_public" in done.stderr
    assert "note: All rows have the same label." in done.stderr


def test_what_was_odd_at_preprocessing_is_told_on_a_terminal_alone(
    place: Place, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the record that ended the reading, where one did; a report is newer than what kept it from being written."""
    write_json(place.workspace / FAULT, {"told": ["'own.csv', row 2: no."]})
    report = {"warnings": ["7 texts are empty."], "told": ["Some texts are empty."]}
    write_json(place.workspace / ROWS_REPORT, report)
    check.tell_of_rows(place.workspace)
    assert capfd.readouterr() == ("", "")
    for module in (console, check):
        monkeypatch.setattr(module, "owners_terminal", lambda: True)
    check.tell_of_rows(place.workspace)
    assert capfd.readouterr() == ("", "note: Some texts are empty.\n")
    (place.workspace / ROWS_REPORT).unlink()
    check.tell_of_rows(place.workspace)
    assert capfd.readouterr() == ("", "note: 'own.csv', row 2: no.\n")


def test_without_a_check_only_the_first_rows_are_looked_at(home: Path) -> None:
    done = init(home, home / "work", "--no-check")
    assert done.exit_code == 0, done.output
    assert not (home / "work" / check.LIST).exists()


def test_a_release_of_nothing_is_an_error(place: Place) -> None:
    with pytest.raises(ParamsError, match=r"release\.variants in params\.yaml names nothing"):
        check_release(load(place.workspace), ["release"])
    check_release(load(place.workspace), [])


def test_the_same_rows_under_a_second_name_want_the_owners_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: None
) -> None:
    """Through `init`, the stage that reads the rows, and `register`; the labels and the cut may be others."""
    home = write_files(tmp_path / "home")
    monkeypatch.setenv(LEDGER_VARIABLE, str(home / "ledger.db"))
    (home / "own.csv").write_text("body,team\n" + "".join(f"ticket {i},{'ab'[i % 2]}\n" for i in range(40)))
    assert init(home, home / "one").exit_code == 0
    assert init(home, home / "two", asset="second", label=None, labels=None, max_length=500).exit_code == 0

    def read(name: str) -> None:
        monkeypatch.chdir(home / name)
        preprocess.run()

    read("one")
    with pytest.raises(LedgerError, match="The rows of asset 'second' are those of 'notes'"):
        read("two")
    assert not (home / "two/data/private/train.parquet").exists()
    done = init(home, home / "three", asset="third")
    assert "note: asset 'notes' has these rows. A run stops there until" in done.stderr
    ledger = Ledger.open(ledger_url(load(home / "one"), home / "one"))
    votes = [PlannedQuery("votes", dpa.GaussianDpEvent(2.0))]
    ledger.reserve("notes", Run("fit", "dp3", "release", "f", "p"), votes)
    spent = up(ledger.balance("notes").spent)
    told = call("register", "--same-rows", "a trial", "-w", home / "two", ledger=home / "ledger.db")
    assert "both totals add up\n" in told.stdout
    assert f"second: epsilon {spent} is spent, over second, notes together" in told.stdout
    for command in ("ledger", "plan", "status"):  # before any stage has read the rows under the second name
        shown = " ".join(call(command, "-w", home / "two", ledger=home / "ledger.db").stdout.split())
        assert "the sum over second and the names with the same rows: notes" in shown
        assert spent in shown
    read("two")
    read("one")
    (home / "own.csv").unlink()
    told = call("register", "--same-rows", "a trial", "-w", home / "three", ledger=home / "ledger.db")
    assert "both totals add up once a run has read its file, which was not read now" in told.stdout
    assert "together" not in told.stdout


def test_a_faulty_entry_is_named_by_every_command_until_it_is_struck(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(LEDGER_VARIABLE, str(place.ledger))
    url = f"sqlite:///{place.ledger}"
    asset = load(place.workspace).dataset.asset
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        seq = chain.append(connection, asset, "reserve", "c" * 32, {"event": "nothing"}).seq
    engine.dispose()
    for command in ("ledger", "plan", "status"):
        done = call(command, "-w", place.workspace, ledger=place.ledger)
        shown = " ".join(done.stdout.split())
        assert (done.exit_code, f"entry {seq} (reserve) says" in shown, "∞" in shown) == (0, True, True), command
    assert call("verify", "-w", place.workspace, ledger=place.ledger).exit_code == 1
    done = call("ledger", "--strike", str(seq), "--because", "a trial", "-w", place.workspace, ledger=place.ledger)
    assert "The owner's reason: a trial" in " ".join(done.stdout.split())
    assert Ledger.open(url).balance(asset).spent == 0.0


def test_a_terminal_is_asked_each_thing_and_told_what_is_there(tmp_path: Path) -> None:
    """On a real terminal: labels are asked for again, and a missing column is answered with those that there are."""
    home = write_files(tmp_path / "home")
    answers = ["owm.csv", "own.csv", "public.csv", "text", "team", "", "a,b", "some", "600", "", "", "notes", "", ""]
    (home / "own.csv").write_text("body,group\nsome text,a\n")
    code, shown = on_a_terminal(home, answers, "init", "--workspace", "work")
    assert code == 1
    assert "Labels are never taken from the data" in shown
    assert "'owm.csv': there is no such file." in shown
    assert "'some': that is no whole number." in shown
    same = "init own.csv --public public.csv --text text --label team --labels a,b --rows-about 600 --language en"
    rest = "--asset notes --epsilon 3.0 --budget 10.0"
    assert f"beside what else you gave: palimpsest {same} {rest}" in " ".join(shown.split())
    assert "--text is 'text': 'own.csv' has no such column. It has: 'body', 'group'." in " ".join(shown.split())


def on_a_terminal(home: Path, answers: list[str], *arguments: str) -> tuple[int, str]:
    """Exit status and what a terminal showed of a command that was answered so."""
    owner, terminal = pty.openpty()
    command = [sys.executable, "-c", "from palimpsest.cli.main import app; app()", *arguments]
    variables = {**os.environ, LEDGER_VARIABLE: str(home / "ledger.db"), "COLUMNS": "200"}
    with subprocess.Popen(
        command, cwd=home, env=variables, stdin=terminal, stdout=terminal, stderr=terminal
    ) as running:
        os.close(terminal)
        os.write(owner, "".join(f"{answer}\n" for answer in answers).encode())
        shown = b""
        try:
            while part := os.read(owner, 1024):
                shown += part
        except OSError:  # Linux: the other end is closed
            pass
    os.close(owner)
    return running.returncode, shown.decode()
