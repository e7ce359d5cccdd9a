"""A million rows of a database or an object store are copied and read in little memory."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench import postgres, s3
from bench.larger import made
from bench.sources import BUCKET, KEY, SECRET, fill_postgres, fill_sqlite

ROOT = Path(__file__).parents[2]
ROWS, MOST = 1_000_000, 400  # MiB of the process, of which Python with its libraries takes half
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("rows")
    (place / BUCKET).mkdir()
    made(place / BUCKET / "tickets.jsonl", ROWS, 1)
    return place


@pytest.fixture
def servers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("where", ["SQLite", "PostgreSQL", "S3"])
def test_a_million_rows_stay_below_the_bound(
    where: str, folder: Path, servers: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = folder / BUCKET / "tickets.jsonl"
    if where == "PostgreSQL" and postgres.tool("initdb") is None:
        pytest.skip("PostgreSQL's server is not installed")
    if where == "S3" and not Path(sys.executable).with_name("rclone").exists():
        pytest.skip("rclone is not installed")
    if where == "SQLite":
        named = fill_sqlite(rows)
    elif where == "PostgreSQL":
        named = fill_postgres(servers.enter_context(postgres.server("fsync=off")), rows)
    else:
        named = f"s3://{BUCKET}/tickets.jsonl"
        address = servers.enter_context(s3.server(folder, KEY, SECRET))
        for name, value in {
            "ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": SECRET, "DEFAULT_REGION": "here", "ENDPOINT_URL": address,
        }.items():  # fmt: skip
            monkeypatch.setenv(f"AWS_{name}", value)
    for what in ("copy", "read"):
        command = [sys.executable, "-m", "bench.sources", "--measure", named, str(folder), what]
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, env=os.environ)
        peak = re.search(r"peak +(\d+) MiB", done.stdout)
        assert peak is not None, done.stdout
        assert int(peak[1]) < MOST, (what, done.stdout)
