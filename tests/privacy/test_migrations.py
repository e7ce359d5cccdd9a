"""Ledgers of earlier forms, on both databases: brought to the form of today, and whole."""

import dp_accounting as dpa
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from palimpsest.errors import LedgerError
from palimpsest.privacy.ledger import database, migrations
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.planned import PlannedQuery
from tests.privacy.changed import execute

ASKED = [PlannedQuery("votes", dpa.GaussianDpEvent(10.0))]
BEFORE = ("DROP TABLE palimpsest_version", "DROP INDEX ix_palimpsest_entry_charge")  # as no version noted a revision


def looked(url: str) -> tuple[str | None, list[object]]:
    """The revision of a ledger, and in what its tables differ from those that the code has."""
    engine = database.connected(url)
    with engine.connect() as connection:
        options = {"version_table": database.versions.name, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        return database.revision(connection), compare_metadata(context, database.meta)


def test_a_ledger_from_before_revisions_is_stamped_and_goes_on(ledger, run, url):
    ledger.begin(ledger.reserve("tickets", run(), ASKED).charges[0])
    head, spent = ledger.head(), ledger.balance("tickets").spent
    execute(url, *BEFORE)
    assert looked(url)[0] == "0001"
    as_it_was = Ledger.open(url)
    assert (as_it_was.books().head, as_it_was.balance("tickets").spent) == (head, spent)
    brought = Ledger.create(url)
    assert looked(url) == (database.REVISIONS[-1], [])
    assert (brought.books([head]).head, brought.balance("tickets").spent) == (head, spent)
    brought.reserve("tickets", run(variant="next"), ASKED)
    assert brought.books([head]).entries == 4


def test_the_revisions_make_the_tables_that_a_new_ledger_has(url):
    engine = database.connected(url)
    with engine.begin() as connection:
        migrations.upgrade(connection, "base")
    engine.dispose()
    assert looked(url) == (database.REVISIONS[-1], [])


def test_a_ledger_that_is_newer_than_the_code_is_refused(ledger, run, url):
    execute(url, "UPDATE palimpsest_version SET version_num = '9999'")
    for method in (Ledger.open, Ledger.create):
        with pytest.raises(LedgerError, match="of revision '9999'") as refused:
            method(url)
        assert "newest version" in refused.value.remedy
    with sa.create_engine(url).connect() as connection:
        assert connection.scalar(sa.text("SELECT version_num FROM palimpsest_version")) == "9999"


def test_an_upgrade_that_fails_leaves_the_ledger_as_it_was(ledger, url, monkeypatch):
    execute(url, *BEFORE)

    def fails(connection: sa.Connection, revision: str) -> None:
        real(connection, revision)
        raise sa.exc.OperationalError("", {}, Exception())

    real = migrations.upgrade
    monkeypatch.setattr(migrations, "upgrade", fails)
    with pytest.raises(LedgerError, match=r"cannot be (opened|created)"):
        Ledger.create(url)
    assert looked(url)[0] == "0001"
    monkeypatch.undo()
