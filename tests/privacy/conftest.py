"""Ledgers on SQLite and on a PostgreSQL server of our own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from bench import postgres as server
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, Run

DELTA = 1e-5


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a server of PostgreSQL."""
    if server.tool("initdb") is None or server.tool("pg_ctl") is None:
        pytest.skip("PostgreSQL is not installed")
    with server.server("fsync=off") as url:
        yield url


@pytest.fixture
def empty_server(postgres: str) -> str:
    """The URL of the server, with nothing in it."""
    engine = sa.create_engine(postgres)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP SCHEMA public CASCADE"))
        connection.execute(sa.text("CREATE SCHEMA public"))
    engine.dispose()
    return postgres


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/ledger.db"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of a place where no ledger is yet, on each database in turn."""
    return request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "empty_server")


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
            **changes,
        }
    )
