"""`init` and `synth` take tables from where they lie: a copy in the workspace, and what says where it is from."""

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from cli_place import call, write_files
from click.testing import Result

import palimpsest
from bench import postgres
from palimpsest.cli.begin import complete
from palimpsest.errors import DataError
from palimpsest.files import read_json
from palimpsest.params.load import LEDGER_VARIABLE, load, read
from palimpsest.records import sources
from palimpsest.work import begin as command
from palimpsest.workspace import GIVEN, MANIFEST, ORIGINS
from stages import preprocess
from tests.records.workbook import write_workbook

PASSWORD = "pass-of-the-guest"
TABLES = {
    "tickets": [(f"ticket number {i}", "ab"[i % 2]) for i in range(30)],
    "texts": [(f"public text {i}", "a") for i in range(20)],
}


@pytest.fixture
def database(tmp_path: Path) -> str:
    """The address of a database with a private and a public table."""
    with sqlite3.connect(tmp_path / "notes.db") as made:
        for name, rows in TABLES.items():
            made.execute(f"create table {name} (body text, team text)")
            made.executemany(f"insert into {name} values (?, ?)", rows)
    made.close()
    return f"sqlite:///{tmp_path}/notes.db"


def start(home: Path, data: str, *flags: str, **options: Any) -> Result:
    """`palimpsest init` on a table, with the public file of `write_files`."""
    given = {
        "text": "body",
        "label": "team",
        "labels": "a,b",
        "public": write_files(home) / "public.csv",
        "rows-about": 30,
    }
    given |= {"asset": "notes"} | options
    named = [str(part) for name, value in given.items() for part in (f"--{name}", value)]
    return call("init", data, *flags, *named, "--workspace", home / "work", ledger=home / "ledger.db")


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_tables_of_a_database_become_a_workspace_and_its_manifest_says_from_where(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "select body, team from tickets"
    done = start(tmp_path, f"{database}#{query}", public=f"{database}#texts")
    assert done.exit_code == 0, done.output
    given = tmp_path / "work" / GIVEN
    assert {path.name for path in given.iterdir()} == {"data.parquet", "public.parquet", "origins.json"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in (given, *given.iterdir()))
    data = load(tmp_path / "work").dataset
    assert (data.private, data.public) == (str(given / "data.parquet"), str(given / "public.parquet"))
    monkeypatch.setenv(LEDGER_VARIABLE, str(tmp_path / "ledger.db"))
    monkeypatch.chdir(tmp_path / "work")
    preprocess.run()
    told = read_json(MANIFEST)["origins"]
    assert told == read_json(ORIGINS)
    assert {name: (one["from"], one["query"]) for name, one in told.items()} == {
        "data.parquet": (database, query),
        "public.parquet": (database, "texts"),
    }
    assert all(one["time"] and "rows" not in one for one in told.values())


def test_a_manifest_says_nothing_of_a_table_that_is_not_read_any_more(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert start(tmp_path, f"{database}#tickets").exit_code == 0
    settings = tmp_path / "work" / "params.yaml"
    own = tmp_path / "mine.csv"
    own.write_text("body,team\n" + "".join(f"{body},{team}\n" for body, team in TABLES["tickets"]))
    settings.write_text(settings.read_text().replace(str(tmp_path / "work" / GIVEN / "data.parquet"), str(own)))
    monkeypatch.chdir(tmp_path / "work")
    assert preprocess.read_origins(read()) == {}


def test_a_second_init_forgets_where_the_first_had_its_tables_from(database: str, tmp_path: Path) -> None:
    assert start(tmp_path, f"{database}#tickets").exit_code == 0
    own = tmp_path / "mine.csv"
    own.write_text("body,team\n" + "".join(f"{body},{team}\n" for body, team in TABLES["tickets"]))
    assert start(tmp_path, str(own), "--force").exit_code == 0
    assert read_json(tmp_path / "work" / ORIGINS) == {}


def test_what_is_refused_leaves_nothing_and_what_was_there_stays(database: str, tmp_path: Path) -> None:
    for data, options in (
        (f"{database}#nothing", {}), (f"{database}#tickets", {"text": "words"}), ("s3://bucket/x", {}),
        (f"{database}#tickets", {"labels": "a,c"}), (f"{database}#tickets", {"public": f"{database}#nothing"}),
        (f"{database}#tickets", {"epsilon": 0}), (f"{database}#tickets", {"public": f"{database}#tickets"}),
    ):  # fmt: skip
        done = start(tmp_path, data, **options)
        assert (done.exit_code, "what to do" in done.output) == (1, True)
        assert {name for name in files(tmp_path / "work") if not name.endswith("check.json")} == set()
    assert start(tmp_path, f"{database}#tickets").exit_code == 0
    before = files(tmp_path / "work" / "data" / "given")
    assert start(tmp_path, f"{database}#nothing", "--force").exit_code == 1
    assert start(tmp_path, f"{database}#tickets", "--force", labels="a,c").exit_code == 1
    assert files(tmp_path / "work" / "data" / "given") == before


def test_an_interrupted_copy_leaves_nothing(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = sources._write  # noqa: SLF001

    def stop(names: Sequence[str], batches: Any, path: Path) -> None:
        write(names, batches, path)
        raise KeyboardInterrupt

    monkeypatch.setattr(sources, "_write", stop)
    done = start(tmp_path, f"{database}#tickets")
    assert done.exit_code != 0
    assert files(tmp_path / "work") == {}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a PostgreSQL server with a table, for a user with a password."""
    if postgres.tool("initdb") is None or postgres.tool("pg_ctl") is None:
        pytest.skip("PostgreSQL is not installed")
    import psycopg

    with postgres.server("fsync=off") as url:
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as owner:
            owner.execute("create table tickets (body text, team text)")
            owner.cursor().executemany("insert into tickets values (%s, %s)", TABLES["tickets"])
        yield url.replace("+psycopg", "").replace("palimpsest@", f"palimpsest:{PASSWORD}@")


def test_a_password_is_written_nowhere(server: str, tmp_path: Path) -> None:
    done = start(tmp_path, f"{server}#tickets")
    assert done.exit_code == 0, done.output
    assert PASSWORD not in done.output
    assert not [name for name, content in files(tmp_path).items() if PASSWORD.encode() in content]
    assert read_json(tmp_path / "work" / ORIGINS)["data.parquet"]["from"] == "postgresql:///postgres"
    for wrong in ({"public": f"{server}#tickets"}, {"text": "words"}):
        again = start(tmp_path, f"{server}#tickets", "--force", **wrong)
        assert (again.exit_code, PASSWORD in again.output) == (1, False)


def test_the_same_line_of_synth_goes_on_with_its_copies_and_another_table_is_refused(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path)
    assert start(tmp_path, f"{database}#tickets").exit_code == 0

    def synth(data: str) -> Result:
        line = ["--text", "body", "--label", "team", "--labels", "a,b", "--public", str(tmp_path / "public.csv")]
        more = ["--rows-about", "30", "--asset", "notes", "--dir", tmp_path / "work"]
        return call("synth", data, *line, *more, ledger=tmp_path / "ledger.db")

    monkeypatch.setattr(sources, "_write", None)
    going = synth(f"{database}#tickets")
    assert "going on with the workspace" in going.output
    other = synth(f"{database}#texts")
    assert (other.exit_code, "this line says otherwise: dataset.private" in other.output) == (1, True)


def test_a_sheet_is_taken_as_it_is_and_a_json_list_where_it_is(tmp_path: Path) -> None:
    write_workbook(tmp_path / "own.xlsx", [("body", "team"), *TABLES["tickets"]])
    assert start(tmp_path, str(tmp_path / "own.xlsx")).exit_code == 0
    assert load(tmp_path / "work").dataset.private == str(tmp_path / "work" / GIVEN / "data.parquet")
    (tmp_path / "own.json").write_text('[{"body": "t u", "team": "a"}, {"body": "t v", "team": "b"}]')
    assert start(tmp_path, str(tmp_path / "own.json"), "--force").exit_code == 0
    assert load(tmp_path / "work").dataset.private == str(tmp_path / "own.json")


def test_from_python_an_address_is_a_text(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LEDGER_VARIABLE, str(tmp_path / "ledger.db"))
    given = {"text": "body", "label": "team", "labels": ["a", "b"], "n_public": 30, "asset": "notes"}
    work = palimpsest.create(tmp_path / "work", f"{database}#tickets", [row[0] for row in TABLES["texts"]], **given)
    assert set(read_json(work.folder / ORIGINS)) == {"data.parquet"}
    with pytest.raises(DataError, match="no such file"):
        palimpsest.create(tmp_path / "other", Path(f"{database}#tickets"), ["one"], **given)


def test_a_name_for_the_data_set_and_the_line_to_repeat_hold_no_secret() -> None:
    given = {
        "data": f"https://me:{PASSWORD}@host/notes.csv?t={PASSWORD}",
        "text": "body",
        "public": "p.csv",
        "n_public": 30,
    }
    assert complete({**given, "asset": None}, {}, "init")["asset"] == "notes"


def test_init_copies_before_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        command, "copy", lambda named, draft: draft.write_text("body,team\nx y,a\n") and {"from": named}
    )
    write_files(tmp_path)
    done = start(tmp_path, "s3://bucket/Notes.CSV")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "work" / GIVEN / "data.csv").read_text() == "body,team\nx y,a\n"
