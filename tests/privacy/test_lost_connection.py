"""A server that goes away at any statement of a charge: nothing is lost, nothing doubled, and what is said is true."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dp_accounting as dpa
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from palimpsest.errors import LedgerError
from palimpsest.privacy.ledger import chain
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, Run
from palimpsest.privacy.planned import PlannedQuery

ASKED = [PlannedQuery("votes", dpa.GaussianDpEvent(1000.0))]
OPERATIONS = ("reserve", "begin", "answer", "commit")
Step = Callable[[], Any]


@pytest.fixture
def server(empty_server: str, asset: Any) -> tuple[Ledger, Engine]:
    """A ledger on the server, and the engine that it writes through."""
    ledger = Ledger.create(empty_server)
    ledger.register(asset)
    return ledger, ledger._store.engine  # noqa: SLF001


def steps(ledger: Ledger, run: Run) -> dict[str, Step]:
    """The operations of one charge, each to be called again where it failed."""
    made: list[Any] = []

    def reserve() -> None:
        made[:] = [ledger.reserve("tickets", run, ASKED)]

    return {
        "reserve": reserve,
        "begin": lambda: ledger.begin(made[0].charges[0]),
        "answer": lambda: ledger.answer(made[0].charges[0], 1),
        "commit": lambda: ledger.commit(made[0]),
    }


def end(postgres: str, connection: Any) -> None:
    """End a session at the server, and wait until it is gone."""
    admin = sa.create_engine(postgres, isolation_level="AUTOCOMMIT")
    with admin.connect() as another:
        assert another.scalar(sa.text(f"SELECT pg_terminate_backend({connection.info.backend_pid}, 10000)"))
    admin.dispose()


@contextmanager
def statements(engine: Engine, reached: Callable[[Any], None]) -> Iterator[None]:
    """Call `reached` with the connection before each statement, and before each commit."""

    def before(connection: Any, *_: object) -> None:
        reached(connection.connection.dbapi_connection)

    for name in ("before_cursor_execute", "commit"):
        sa.event.listen(engine, name, before)
    yield
    for name in ("before_cursor_execute", "commit"):
        sa.event.remove(engine, name, before)


def count(engine: Engine, step: Step) -> int:
    reached: list[Any] = []
    with statements(engine, reached.append):
        step()
    return len(reached)


def kinds(ledger: Ledger, variant: str) -> list[str]:
    """What was written of the charges of a variant."""
    own = {charge.id for charge in ledger.charges("tickets") if charge.variant == variant}
    return [entry.kind for entry in ledger.books().chain.entries if entry.charge in own]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_session_that_ends_at_any_statement_neither_loses_nor_doubles_a_charge(server, postgres, run, operation):
    ledger, engine = server
    counted = {name: count(engine, step) for name, step in steps(ledger, run(variant="whole")).items()}
    assert counted[operation] > 4
    for at in range(counted[operation]):
        variant, reached = f"at{at}", 0

        def kill(connection: Any, at: int = at) -> None:
            nonlocal reached
            if reached == at:
                end(postgres, connection)
            reached += 1

        for name, step in steps(ledger, run(variant=variant)).items():
            if name == operation:
                before = ledger.head()
                with statements(engine, kill), pytest.raises(LedgerError, match="nothing was charged by this step"):
                    step()
                assert ledger.head() == before
            step()
        assert kinds(ledger, variant) == list(OPERATIONS)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_session_that_ends_behind_its_commit_has_charged_once(server, postgres, run, operation, monkeypatch):
    ledger, engine = server

    def commits_and_dies(connection: Any, commit: Any = engine.dialect.do_commit) -> None:
        monkeypatch.undo()
        commit(connection)
        end(postgres, connection.dbapi_connection)
        connection.execute("SELECT 1")

    for name, step in steps(ledger, run()).items():
        if name == operation:
            monkeypatch.setattr(engine.dialect, "do_commit", commits_and_dies)
        step()
    assert kinds(ledger, "dp3") == list(OPERATIONS)


def test_where_the_server_stays_away_it_is_not_said_that_nothing_was_charged(server, postgres, run, monkeypatch):
    ledger, engine = server

    def dies(connection: Any) -> None:
        end(postgres, connection.dbapi_connection)
        monkeypatch.setattr(engine.dialect, "connect", refused)
        connection.execute("SELECT 1")

    def refused(*_: object, **__: object) -> None:
        raise engine.dialect.dbapi.OperationalError("gone")

    monkeypatch.setattr(engine.dialect, "do_commit", dies)
    with pytest.raises(LedgerError, match="whether this step was charged is not known here") as lost:
        ledger.reserve("tickets", run(), ASKED)
    assert "nothing is charged a second time without your word" in lost.value.remedy


def test_a_reader_beside_one_who_registers_sees_the_ledger_of_one_moment(server, empty_server):
    ledger, _ = server
    with ledger._store._read_transaction() as connection:  # noqa: SLF001
        known = chain.read(connection)
        Ledger.open(empty_server).register(Asset(name="others", delta=1e-5, epsilon=1.0, n_public=10))
        assert chain.read(connection) == known
    assert len(ledger.books().chain.keys) == 2


def test_a_server_whose_transactions_see_one_moment_is_told_that_writers_see_more(server, empty_server):
    options = {"options": r"-c default_transaction_isolation=repeatable\ read"}
    address = sa.make_url(empty_server).update_query_dict(options).render_as_string(hide_password=False)
    with Ledger.open(address)._store._write_transaction() as connection:  # noqa: SLF001
        assert connection.scalar(sa.text("SHOW transaction_isolation")) == "read committed"
        assert connection.scalar(sa.text("SHOW default_transaction_isolation")) == "repeatable read"
