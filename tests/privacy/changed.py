"""What a hand can do to a ledger's tables."""

import hashlib
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from palimpsest.privacy.ledger.witness import VARIABLE

COLUMNS = ("seq", "asset", "kind", "charge", "time", "body", "previous", "hash")


def execute(url: str, *statements: str) -> None:
    """Run statements in one transaction."""
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


def kinds(url: str) -> list[str]:
    """The kind of every entry, read past the ledger."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        found = list(connection.scalars(sa.text("SELECT kind FROM palimpsest_entry ORDER BY seq")))
    engine.dispose()
    return found


def copied(ledger: Path, target: Path) -> Path:
    """A copy of a SQLite ledger as it is now, in one file."""
    target.unlink(missing_ok=True)
    with closing(sqlite3.connect(ledger)) as books:
        books.execute("VACUUM INTO ?", (str(target),))
    return target


def on_another_machine(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go on where nothing was noted: no folder of this machine is there. Returns where that lies now."""
    noted = Path(os.environ[VARIABLE])
    kept = noted.with_name(f"{noted.name}-of-the-first")
    if noted.exists():
        noted.rename(kept)
    monkeypatch.setenv(VARIABLE, f"{noted}-other")
    return kept


def put_back(copy: Path, ledger: Path) -> None:
    """Put a copy in the ledger's place."""
    for beside in ("-wal", "-shm"):
        ledger.with_name(ledger.name + beside).unlink(missing_ok=True)
    ledger.unlink()
    ledger.write_bytes(copy.read_bytes())


def rehash(url: str) -> None:
    """Number all entries anew and make all hashes anew, as if the chain had always been this one."""
    engine, previous = sa.create_engine(url), ""
    with engine.begin() as connection:
        rows = connection.exec_driver_sql(f"SELECT {', '.join(COLUMNS)} FROM palimpsest_entry ORDER BY seq").all()
        connection.exec_driver_sql("DELETE FROM palimpsest_entry")
        for seq, (_, *parts, _, _) in enumerate(rows, start=1):
            content = {"previous": previous, "parts": [seq, *parts]}
            text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
            digest = hashlib.sha256(text.encode()).hexdigest()
            values = dict(zip(COLUMNS, (seq, *parts, previous, digest), strict=True))
            marks = ", ".join(f":{name}" for name in COLUMNS)
            connection.execute(sa.text(f"INSERT INTO palimpsest_entry VALUES ({marks})"), values)
            previous = digest
    engine.dispose()
