"""Ledgers on SQLite and on a PostgreSQL server of our own."""

import getpass
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, Run

DELTA = 1e-5


def _postgres_tool(name: str) -> str | None:
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(versions[-1]) if versions else shutil.which(name)


def _server_user() -> str:
    """PostgreSQL refuses to run as root: then it runs as its own user, or as nobody."""
    if os.geteuid() != 0:
        return getpass.getuser()
    return next(entry.pw_name for name in ("postgres", "nobody") for entry in pwd.getpwall() if entry.pw_name == name)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a server that listens on a socket in a folder of its own."""
    initdb, control = _postgres_tool("initdb"), _postgres_tool("pg_ctl")
    if initdb is None or control is None:
        pytest.skip("PostgreSQL is not installed")
    home = tempfile.mkdtemp(prefix="pg")
    account = pwd.getpwnam(_server_user())
    os.chown(home, account.pw_uid, account.pw_gid)
    other = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    settings = f"-c listen_addresses='' -c unix_socket_directories={home} -c fsync=off"

    def call(*command: str) -> None:
        subprocess.run(command, cwd=home, check=True, capture_output=True, timeout=60, **other)

    call(initdb, "-D", f"{home}/data", "-U", "palimpsest", "-A", "trust", "--no-sync")
    call(control, "-D", f"{home}/data", "-l", f"{home}/log", "-w", "-o", settings, "start")
    try:
        yield f"postgresql+psycopg://palimpsest@/postgres?host={home}"
    finally:
        call(control, "-D", f"{home}/data", "-m", "immediate", "stop")
        shutil.rmtree(home, ignore_errors=True)


def _empty(url: str) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP SCHEMA public CASCADE"))
        connection.execute(sa.text("CREATE SCHEMA public"))
    engine.dispose()


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ledger.db"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of a place where no ledger is yet, on each database in turn."""
    if request.param == "sqlite":
        return request.getfixturevalue("sqlite_url")
    address = request.getfixturevalue("postgres")
    _empty(address)
    return address


@pytest.fixture
def asset() -> Asset:
    return Asset(name="tickets", delta=DELTA, epsilon=4.0, n_public=1000)


@pytest.fixture
def ledger(url: str, asset: Asset) -> Ledger:
    """A ledger that knows one asset, on each database in turn."""
    made = Ledger.create(url)
    made.register(asset)
    return made


@pytest.fixture
def small(sqlite_url: str, asset: Asset) -> Ledger:
    """A ledger that knows one asset, on SQLite alone."""
    made = Ledger.create(sqlite_url)
    made.register(asset)
    return made


@pytest.fixture
def run() -> Callable[..., Run]:
    """Makes runs that differ in what is named."""
    return lambda **changes: Run(
        **{
            "stage": "fit",
            "variant": "dp3",
            "purpose": "release",
            "fingerprint": "f",
            "plan": "p",
            "code": "c",
            **changes,
        }
    )
