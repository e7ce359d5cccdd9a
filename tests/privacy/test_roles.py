"""Owner, analyst and auditor as the grants of a real PostgreSQL server: what each can do, and what it cannot."""

from collections.abc import Callable
from importlib.resources import files

import dp_accounting as dpa
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import ProgrammingError

from palimpsest.errors import LedgerError
from palimpsest.privacy.ledger import chain
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import MOVES, Asset
from palimpsest.privacy.planned import PlannedQuery

ASKED = [PlannedQuery("votes", dpa.GaussianDpEvent(10.0))]
ROLES = ("owner", "analyst", "auditor")
SCRIPT = files("palimpsest.privacy.ledger") / "roles.sql"


@pytest.fixture
def urls(empty_server: str, asset: Asset) -> dict[str, str]:
    """The address of a ledger as each role sees it."""
    Ledger.create(empty_server).register(asset)
    engine = sa.create_engine(empty_server)
    with engine.begin() as connection:
        for _ in range(2):  # running it again changes nothing
            connection.exec_driver_sql(SCRIPT.read_text(encoding="utf-8").replace("%", "%%"))
        for role in ROLES:
            connection.exec_driver_sql(f"DROP ROLE IF EXISTS a_{role}")
            connection.exec_driver_sql(f"CREATE ROLE a_{role} LOGIN IN ROLE palimpsest_{role}")
    engine.dispose()
    return {role: empty_server.replace("palimpsest@", f"a_{role}@") for role in ROLES}


def denied(url: str, statement: str) -> bool:
    """Whether the server refuses a statement of a role."""
    engine = sa.create_engine(url)
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql(statement)
    except ProgrammingError as error:
        return "InsufficientPrivilege" in str(error)
    finally:
        engine.dispose()
    return False


def refused(call: Callable[[], object]) -> None:
    with pytest.raises(LedgerError, match="could not be written"):
        call()


def test_an_analyst_charges_and_an_auditor_reads(urls, run):
    analyst = Ledger.open(urls["analyst"])
    reservation = analyst.reserve("tickets", run(), ASKED)
    analyst.begin(reservation.charges[0])
    analyst.answer(reservation.charges[0], 1)
    analyst.commit(reservation)
    assert analyst.refund(analyst.reserve("tickets", run(variant="other"), ASKED).charges) == 1
    analyst.know_rows("tickets", "aa")
    auditor = Ledger.open(urls["auditor"])
    assert auditor.balance("tickets").spent == analyst.balance("tickets").spent > 0
    assert auditor.books().head == analyst.head()


def test_only_the_owner_registers_and_amends(urls, asset):
    for role in ("analyst", "auditor"):
        ledger = Ledger.open(urls[role])
        refused(lambda ledger=ledger: ledger.amend("tickets", 99.0))
        refused(lambda ledger=ledger: ledger.register(Asset("second", 1e-5, 9.0, 1000)))
        refused(lambda ledger=ledger: ledger.allow_same_rows("tickets", "because"))
    assert Ledger.open(urls["analyst"]).register(asset).epsilon == asset.epsilon  # known already: nothing is written
    owner = Ledger.open(urls["owner"])
    owner.amend("tickets", 5.0)
    owner.register(Asset("second", 1e-5, 9.0, 1000))
    owner.allow_same_rows("second", "because")
    assert Ledger.open(urls["auditor"]).asset("tickets").epsilon == 5.0


def test_an_auditor_writes_nothing(urls, run):
    ledger = Ledger.open(urls["auditor"])
    refused(lambda: ledger.reserve("tickets", run(), ASKED))
    assert ledger.charges("tickets") == []
    assert denied(urls["auditor"], "SELECT * FROM palimpsest_answer")  # of references they have no noise


@pytest.mark.parametrize("role", ["analyst", "auditor"])
@pytest.mark.parametrize("table", ["palimpsest_entry", "palimpsest_asset"])
def test_nobody_but_the_owner_changes_or_removes_what_is_written(urls, role, table):
    column = "body" if table == "palimpsest_entry" else "key"
    changes = (f"UPDATE {table} SET {column} = ''", f"DELETE FROM {table}", f"TRUNCATE {table}", f"DROP TABLE {table}")
    assert all(denied(urls[role], each) for each in changes)
    assert Ledger.open(urls["owner"]).books().entries == 1


@pytest.mark.parametrize("kind", ["register", "amend", "rows", "strike", *MOVES])
def test_an_analyst_adds_entries_of_charges_alone_also_past_palimpsest(urls, kind):
    engine = sa.create_engine(urls["analyst"])
    try:
        with engine.begin() as connection:
            chain.append(connection, "tickets", kind, "c", {"word": "mine", "epsilon": 99.0})
        written = True
    except ProgrammingError:
        written = False
    finally:
        engine.dispose()
    assert written == (kind in MOVES)
