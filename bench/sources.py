"""Seconds and memory of copying a table from where it lies, and of reading the copy once.

    python -m bench.sources --rows 1000000

The rows of `bench.larger`, some 200 characters each, lie in PostgreSQL, in SQLite, in an S3-compatible server and in a
JSON list, all on this machine. Each reading is a process of its own: seconds are of the wall clock, `peak` is the
highest resident set of that process, `start` that before it reads.

Feeds docs/performance.md. It needs PostgreSQL's server and no folder.
"""

import argparse
import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg

from bench import postgres, s3
from bench.larger import made
from palimpsest.records.read import ColumnNames, iter_rows
from palimpsest.records.sources import copied_suffix, copy

KEY, SECRET, BUCKET = "key", "secret", "tickets"
COLUMNS = ColumnNames("text", "label")


def rows_of(path: Path) -> Iterator[tuple[str, str]]:
    """The rows of a file of JSON lines."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            yield row["text"], row["label"]


def fill_postgres(url: str, path: Path) -> str:
    """A table of the rows; returns its address."""
    with psycopg.connect(url.replace("+psycopg", "")) as connection, connection.cursor() as cursor:
        cursor.execute("create table tickets (text text, label text)")
        with cursor.copy("copy tickets from stdin") as table:
            for row in rows_of(path):
                table.write_row(row)
    return f"{url}#tickets"


def fill_sqlite(path: Path) -> str:
    """The same in a file beside."""
    with sqlite3.connect(path.with_suffix(".db")) as connection:
        connection.execute("create table tickets (text text, label text)")
        connection.executemany("insert into tickets values (?, ?)", rows_of(path))
    connection.close()
    return f"sqlite:///{path.with_suffix('.db')}#tickets"


def write_list(path: Path) -> Path:
    """The same as one JSON list."""
    whole = path.with_suffix(".json")
    with path.open(encoding="utf-8") as lines, whole.open("w", encoding="utf-8") as stream:
        for number, line in enumerate(lines):
            stream.write(("[" if number == 0 else ",\n") + line.rstrip("\n"))
        stream.write("]\n")
    return whole


def measure(named: str, folder: Path, what: str) -> None:
    """Copy or read one table in this process, and print what it took."""
    start, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    draft = folder / f"copy{copied_suffix(named) or '.jsonl'}"
    if what == "copy":
        copy(named, draft)
    else:
        draft = draft if copied_suffix(named) else Path(named)
        sum(1 for _ in iter_rows(draft, COLUMNS, 1000))
    seconds, peak = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = draft.stat().st_size / 1e6
    print(f"{seconds:6.1f} s  start {start / 1024:5.0f} MiB  peak {peak / 1024:5.0f} MiB  {size:.0f} MB")


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--measure", nargs=3)
    given = arguments.parse_args()
    if given.measure:
        measure(given.measure[0], Path(given.measure[1]), given.measure[2])
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / BUCKET).mkdir()
        path = folder / BUCKET / "tickets.jsonl"
        made(path, given.rows, 1)
        with postgres.server("fsync=off") as url, s3.server(folder, KEY, SECRET) as address:
            os.environ |= {f"AWS_{name}": value for name, value in {
                "ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": SECRET, "DEFAULT_REGION": "here", "ENDPOINT_URL": address,
            }.items()}  # fmt: skip
            places = {
                "PostgreSQL": fill_postgres(url, path), "SQLite": fill_sqlite(path),
                "S3": f"s3://{BUCKET}/tickets.jsonl", "JSON list": str(write_list(path)),
            }  # fmt: skip
            for place, named in places.items():
                for what in ("copy", "read") if "://" in named else ("read",):
                    command = [sys.executable, "-m", "bench.sources", "--measure", named, str(folder), what]
                    done = subprocess.run(command, check=True, capture_output=True, text=True)
                    print(f"{place:10} {what}  {done.stdout.rstrip()}", flush=True)


if __name__ == "__main__":
    main()
