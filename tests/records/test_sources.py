"""Tables are copied from where they lie, whole or not at all, and no error says more than the place."""

import getpass
import hashlib
import json
import shutil
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest
from fsspec import get_filesystem_class
from huggingface_hub.hf_api import LastCommitInfo

from bench import postgres, s3
from palimpsest.errors import DataError
from palimpsest.records import sources
from palimpsest.records.sources import copied_suffix, copy, describe, describe_origin
from tests.records.workbook import write_workbook

CSV = b"body,team\nsome text,a\nmore text,b\n"
KEY, SECRET = "key", "secret-of-the-store"
PASSWORD = "pass-of-the-guest"
BUCKET = "tickets"
PROGRAMS = "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin"


def copied(named: Path | str, folder: Path) -> tuple[dict[str, Any], Path]:
    """What is said of a table, and its copy."""
    draft = folder / f"copy{copied_suffix(named)}"
    return copy(named, draft), draft


def refused(named: Path | str, folder: Path) -> str:
    """What is said of one that cannot be copied; nothing is chained to it."""
    with pytest.raises(DataError) as told:
        copied(named, folder)
    assert (told.value.__cause__, told.value.__context__) == (None, None)
    assert told.value.problem
    assert told.value.remedy
    assert SECRET not in str(told.value)
    assert PASSWORD not in str(told.value)
    return str(told.value)


def rows(path: Path) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in pq.read_table(path).to_pylist()]


# Addresses


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        ("s3://bucket/a/b.csv?versionId=7", "s3://bucket/a/b.csv"),
        ("https://me:pw@host:8/a.csv?X-Amz-Signature=pw#pw", "https://host:8/a.csv"),
        ("postgresql://me:pw@host:5432/db?password=pw#select 'a@b'", "postgresql://..."),
        ("postgresql://me:pw@host/db#tickets", "postgresql://host/db"),
        ("postgresql://me:pw/pw@host/db#tickets", "postgresql://..."),
        ("postgresql://me:p@w#pw@host/db#tickets", "postgresql://..."),
        ("postgresql://me:p@pw@host/db#tickets", "postgresql://host/db"),
        ("postgresql:///db?host=/run#tickets", "postgresql:///db"),
        ("hf://datasets/me/texts@v1/a.csv", "hf://datasets/me/texts@v1/a.csv"),
        ("folder/what?.csv", "folder/what?.csv"),
    ],
)
def test_an_address_is_shown_without_user_password_and_options(named: str, shown: str) -> None:
    assert describe(named) == shown
    assert "pw" not in json.dumps({**describe_origin(named), "query": ""})


@pytest.mark.parametrize(
    ("named", "suffix"),
    [
        ("s3://b/x.CSV.gz?a=1.json", ".csv.gz"), ("https://h/v1.2/x.json", ".json"), ("sqlite:///x.csv#t", ".parquet"),
        ("gs://b/x.xlsx", ".parquet"), (Path("x.XLSX"), ".parquet"), (Path("x.csv"), None), ("x.nothing", None),
    ],
)  # fmt: skip
def test_a_copy_has_the_format_of_its_address(named: Path | str, suffix: str | None) -> None:
    assert copied_suffix(named) == suffix


@pytest.mark.parametrize(
    "named", ["https://host/table", "s3://bucket", "s3://bucket/folder/", "hf://datasets/me/x.zip"]
)
def test_another_format_is_refused_before_anything_is_read(named: str) -> None:
    with pytest.raises(DataError, match="is not known"):
        copied_suffix(named)


@pytest.mark.parametrize(
    ("named", "word"),
    [
        ("gs://bucket/x.csv", "pip install gcsfs"), ("sftp://host/x.csv", "pip install paramiko"),
        ("mysql+mysqldb://me:pw@host/db#t", "pip install MySQLdb"), ("snow://me:pw@host/db#t", "is no known address"),
    ],
)  # fmt: skip
def test_a_package_that_is_missing_is_named(named: str, word: str, tmp_path: Path) -> None:
    told = refused(named, tmp_path)
    assert word in told
    assert "pw" not in told


def test_the_hub_is_read_by_its_own_file_system_and_may_be_out_of_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert get_filesystem_class("hf").__name__ == "HfFileSystem"
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:1")
    told = refused("hf://datasets/me/texts@v1/x.csv", tmp_path)
    assert told.startswith("hf://datasets/me/texts@v1/x.csv cannot be reached")


def test_a_revision_of_the_hub_is_the_commit_that_last_changed_the_file() -> None:
    class Hub:
        def invalidate_cache(self) -> None: ...

        def info(self, named: str) -> dict[str, Any]:
            commit = LastCommitInfo(oid="c0ffee", title="a title", date=datetime.now(UTC))
            return {"name": named, "size": 7, "type": "file", "blob_id": "b10b", "last_commit": commit, "lfs": None}

    assert sources._version(Hub(), "x") == {"last_commit": "c0ffee", "blob_id": "b10b", "size": "7"}  # noqa: SLF001


# HTTP


class Site:
    """A server on loopback: what lies there, and what becomes of it when it is read."""

    def __init__(self) -> None:
        self.content, self.status, self.short, self.changes, self.says_version = CSV, 200, 0, False, True
        site = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self, content: bytes) -> None:
                self.send_response(site.status)
                self.send_header("Content-Length", str(len(site.content)))
                if site.says_version:
                    self.send_header("ETag", hashlib.md5(site.content).hexdigest())
                self.end_headers()
                self.wfile.write(content)

            def do_HEAD(self) -> None:
                self.answer(b"")

            def do_GET(self) -> None:
                self.answer(site.content[: len(site.content) - site.short])
                if site.changes:
                    site.content = site.content.replace(b"text", b"word")

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://me:{SECRET}@127.0.0.1:{self.server.server_port}/x.csv?token={SECRET}"


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    threading.Thread(target=made.server.serve_forever, daemon=True).start()
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_a_file_of_the_web_is_copied_as_it_is_with_its_etag(site: Site, tmp_path: Path) -> None:
    origin, copy_ = copied(site.address, tmp_path)
    assert copy_.read_bytes() == CSV
    assert origin["etag"] == hashlib.md5(CSV).hexdigest()
    assert origin["bytes"] == len(CSV)
    assert origin["from"] == f"http://127.0.0.1:{site.server.server_port}/x.csv"
    assert origin["time"].endswith("+00:00")
    assert SECRET not in json.dumps(origin)


def test_a_sheet_of_the_web_becomes_a_table(site: Site, tmp_path: Path) -> None:
    site.content = write_workbook(tmp_path / "x.xlsx", [["body"], ["t"]]).read_bytes()
    origin, copy_ = copied(site.address.replace(".csv", ".xlsx"), tmp_path)
    assert rows(copy_) == [("t",)]
    assert origin["etag"]


@pytest.mark.parametrize("says_version", [True, False])
def test_a_file_that_changes_while_it_is_read_is_refused(site: Site, says_version: bool, tmp_path: Path) -> None:
    site.changes = True
    assert "changed while it was being read" in refused(site.address, tmp_path)
    site.says_version, site.changes, site.short = says_version, False, 5
    assert refused(site.address, tmp_path)  # broken off


@pytest.mark.parametrize(
    ("status", "said"),
    [(401, "with these credentials"), (403, "with these credentials"), (404, "does not exist"), (503, "be reached")],
)
def test_a_refusal_of_the_web_is_told(site: Site, status: int, said: str, tmp_path: Path) -> None:
    site.status = status
    assert said in refused(site.address, tmp_path)


def test_a_server_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert "cannot be reached" in refused(f"http://me:{SECRET}@127.0.0.1:1/x.csv?token={SECRET}", tmp_path)


# S3


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a bucket; the server's address and key are in the environment."""
    folder = tmp_path_factory.mktemp("store")
    (folder / BUCKET).mkdir()
    with s3.server(folder, KEY, SECRET) as address, pytest.MonkeyPatch.context() as patch:
        for name, text in {
            "ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": SECRET, "DEFAULT_REGION": "here", "ENDPOINT_URL": address,
            "MAX_ATTEMPTS": "1",
        }.items():  # fmt: skip
            patch.setenv(f"AWS_{name}", text)
        yield folder / BUCKET


def test_a_file_of_s3_is_copied_as_it_is_with_its_etag(store: Path, tmp_path: Path) -> None:
    (store / "x.csv").write_bytes(CSV)
    origin, copy_ = copied(f"s3://{BUCKET}/x.csv", tmp_path)
    assert copy_.read_bytes() == CSV
    assert (origin["from"], origin["bytes"]) == (f"s3://{BUCKET}/x.csv", len(CSV))
    assert hashlib.md5(CSV).hexdigest() in origin["etag"]


def test_what_is_wrong_with_s3_is_told(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (store / "x.csv").write_bytes(CSV)
    assert "does not exist" in refused(f"s3://{BUCKET}/y.csv", tmp_path)
    assert "does not exist" in refused("s3://no-such-bucket/y.csv", tmp_path)
    real = sources.shutil.copyfileobj
    with monkeypatch.context() as patch:
        patch.setattr(
            "shutil.copyfileobj", lambda *parts: (real(*parts), (store / "x.csv").write_bytes(CSV.replace(b"a", b"b")))
        )
        assert "changed while it was being read" in refused(f"s3://{BUCKET}/x.csv", tmp_path)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    assert "with these credentials" in refused(f"s3://{BUCKET}/x.csv", tmp_path)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert "cannot be reached" in refused(f"s3://{BUCKET}/x.csv", tmp_path)


# Sheets


def test_the_first_sheet_is_a_table_of_texts(tmp_path: Path) -> None:
    book = write_workbook(
        tmp_path / "x.xlsx", [["body", "stars", 7], ["<é>", 4, 2.5], [], [None, None, None], ["", "5", None]]
    )
    origin, copy_ = copied(book, tmp_path)
    assert pq.read_schema(copy_).names == ["body", "stars", "7.0"]
    assert rows(copy_) == [("<é>", "4", "2.5"), ("", "5", "")]
    assert origin["from"] == str(book)


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04" + bytes(60), b"body,team\n"])
def test_what_is_no_workbook_is_told(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "x.xlsx"
    if content is not None:
        path.write_bytes(content)
    assert ("does not exist" if content is None else "is no whole workbook") in refused(path, tmp_path)


def test_without_its_package_a_sheet_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = write_workbook(tmp_path / "x.xlsx", [["body"]])
    monkeypatch.setitem(__import__("sys").modules, "python_calamine", None)
    assert "pip install" in refused(book, tmp_path)


# Databases


@contextmanager
def sqlite(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path)
    yield connection
    connection.commit()
    connection.close()


def test_a_table_and_a_query_of_sqlite_are_copied(tmp_path: Path) -> None:
    place = tmp_path / "my notes.db"
    with sqlite(place) as made:
        made.execute("create table tickets (body text, team int, mood real, raw blob)")
        made.executemany("insert into tickets values (?, ?, ?, ?)", [("é", 1, 2.5, b"\xff"), (None, 2, 3.0, None)])
    origin, copy_ = copied(f"sqlite:///{place}#tickets", tmp_path)
    assert rows(pq_without(copy_, "raw")) == [("é", "1", "2.5"), (None, "2", "3")]
    assert (origin["from"], origin["query"]) == (f"sqlite:///{place}", "tickets")
    query = "select body as text from tickets where body like '%é%' -- 100 %"
    origin, copy_ = copied(f"sqlite:///{place}#{query}", tmp_path)
    assert (rows(copy_), origin["query"]) == ([("é",)], query)


def pq_without(path: Path, column: str) -> Path:
    """The table without a column, whose bytes are no UTF-8 and so no text."""
    table = pq.read_table(path)
    pq.write_table(table.drop_columns([column]), path)
    return path


def test_a_database_is_never_written_and_a_missing_one_never_made(tmp_path: Path) -> None:
    place = tmp_path / "notes.db"
    assert "does not exist" in refused(f"sqlite:///{place}#tickets", tmp_path)
    assert not place.exists()
    with sqlite(place) as made:
        made.execute("create table tickets (body text)")
    before = place.read_bytes()
    for query in (
        "insert into tickets values ('x')",
        "delete from tickets returning body",
        "no_such",
        "select",
        "drop t",
    ):
        assert "has no such table, or refuses the query" in refused(f"sqlite:///{place}#{query}", tmp_path)
    assert "no table of it is named" in refused(f"sqlite:///{place}", tmp_path)
    assert place.read_bytes() == before


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of the owner of a PostgreSQL server, which asks the user `guest` for a password."""
    if postgres.tool("initdb") is None or postgres.tool("pg_ctl") is None:
        pytest.skip("PostgreSQL is not installed")
    with postgres.server("fsync=off") as url:
        with psycopg.connect(plain(url), autocommit=True) as owner:
            owner.execute(f"create role guest login password '{PASSWORD}'")
            owner.execute("create table tickets (body text, team text, mood int, facts jsonb)")
            owner.execute(
                "insert into tickets select 'ticket ' || i, 'ab'[i % 2 + 1], i % 3, jsonb_build_object('é', i)"
                " from generate_series(0, 9999) i".replace("'ab'[i % 2 + 1]", "substr('ab', i % 2 + 1, 1)")
            )
            owner.execute("create table secrets (body text)")
            owner.execute("grant select on tickets to guest")
            (rules,) = owner.execute("show hba_file").fetchone() or ("",)
            text = Path(rules).read_text()
            Path(rules).write_text(f"local all guest scram-sha-256\n{text}")
            owner.execute("select pg_reload_conf()")
        yield url


def plain(url: str) -> str:
    return url.replace("+psycopg", "")


def as_guest(url: str, password: str = PASSWORD) -> str:
    return plain(url).replace("palimpsest@", f"guest:{password}@" if password else "guest@")


def test_a_table_of_postgres_is_copied_in_batches(server: str, tmp_path: Path) -> None:
    origin, copy_ = copied(as_guest(server) + "#tickets", tmp_path)
    found = rows(copy_)
    assert len(found) == 10_000
    assert found[0] == ("ticket 0", "a", "0", '{"é": 0}')
    assert origin == {
        "from": "postgresql:///postgres", "query": "tickets", "time": origin["time"], "bytes": copy_.stat().st_size,
    }  # fmt: skip
    assert pq.ParquetFile(copy_).num_row_groups == 3


def test_a_query_of_postgres_reads_one_state_and_writes_nothing(server: str, tmp_path: Path) -> None:
    query = "select current_setting('transaction_isolation') as a, current_setting('transaction_read_only') as b"
    assert rows(copied(f"{server}#{query};", tmp_path)[1]) == [("repeatable read", "on")]
    query = "select count(*) from public.tickets where body like '%1%' and '12:30' = '12:30'"
    assert rows(copied(f"{plain(server)}#{query}", tmp_path)[1]) == [("3439",)]


def test_a_password_may_come_from_the_environment(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    assert len(rows(copied(as_guest(server, "") + "#public.tickets", tmp_path)[1])) == 10_000


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("nothing", "UndefinedTable"), ("select nothing from tickets", "UndefinedColumn"), ("secrets", "Insufficient"),
        ("delete from tickets returning body", "SyntaxError"), ("select body::int from tickets", "InvalidText"),
    ],
)  # fmt: skip
def test_a_refusal_of_postgres_is_told_without_a_value(server: str, table: str, said: str, tmp_path: Path) -> None:
    told = refused(f"{as_guest(server)}#{table}", tmp_path)
    assert "has no such table, or refuses the query" in told
    assert said in told
    assert "ticket " not in told


def test_a_server_that_cannot_be_read_is_told(server: str, tmp_path: Path) -> None:
    assert "with these credentials" in refused(as_guest(server, "wrong") + "#tickets", tmp_path)
    assert "with these credentials" in refused(plain(server).replace("palimpsest@", "nobody@") + "#tickets", tmp_path)
    assert "does not exist" in refused(plain(server).replace("/postgres?", "/nothing?") + "#tickets", tmp_path)
    assert "cannot be reached" in refused(f"postgres://guest:{PASSWORD}@127.0.0.1:1/postgres#tickets", tmp_path)


def test_a_connection_that_breaks_is_told(server: str, tmp_path: Path) -> None:
    query = "select body, pg_sleep(0.001) from tickets"

    def end() -> None:
        with psycopg.connect(plain(server), autocommit=True) as owner:
            for _ in range(200):
                ended = owner.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity where query like 'FETCH %'"
                    " and pid <> pg_backend_pid()"
                ).fetchall()
                if ended:
                    return
                time.sleep(0.05)

    ending = threading.Thread(target=end)
    ending.start()
    assert "the connection broke" in refused(f"{plain(server)}#{query}", tmp_path)
    ending.join()


# MariaDB, as MySQL's own stand-in


@pytest.fixture(scope="module")
def maria() -> Iterator[str]:
    """The address of the guest of a MariaDB server, whose account may write, too."""
    installer, program = (shutil.which(name, path=PROGRAMS) for name in ("mariadb-install-db", "mariadbd"))
    if installer is None or program is None or find_spec("pymysql") is None:
        pytest.skip("MariaDB or pymysql is not installed")
    home = Path(tempfile.mkdtemp(prefix="maria"))
    user, own = getpass.getuser(), (f"--datadir={home}/data", "--character-set-server=utf8mb4")
    made = [installer, "--no-defaults", own[0], f"--user={user}", "--auth-root-authentication-method=normal"]
    subprocess.run(made, check=True, capture_output=True, timeout=120)
    flags = ("--skip-networking", f"--socket={home}/s", f"--user={user}", f"--init-file={home}/begin.sql")
    (home / "begin.sql").write_text(
        "create database support;\ncreate table support.old (body text, mood int) engine=myisam;\n"
        "insert into support.old values ('some é', 1), ('more', null);\n"
        f"grant all on support.* to guest@localhost identified by '{PASSWORD}';\n"
    )
    with subprocess.Popen([program, "--no-defaults", *own, *flags], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("ready for connections" in line for line in process.stderr)
        yield f"mysql://guest:{PASSWORD}@localhost/support?unix_socket={home}/s"
        process.terminate()
    shutil.rmtree(home, ignore_errors=True)


def test_a_table_of_mysql_is_copied_and_never_written(maria: str, tmp_path: Path) -> None:
    told = refused(f"{maria}#delete from old returning body", tmp_path)
    assert "refuses the query" in told
    origin, copy_ = copied(f"{maria}#old", tmp_path)
    assert rows(copy_) == [("some é", "1"), ("more", None)]
    assert (origin["from"], origin["query"]) == ("mysql://localhost/support", "old")
    assert "with these credentials" in refused(f"{maria.replace(PASSWORD, 'wrong')}#old", tmp_path)
    assert "refuses the query" in refused(f"{maria}#nothing", tmp_path)
