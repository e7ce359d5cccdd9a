"""The unit that is named is the one that is charged: the door, the ledger, receipts and what leaves of the ledger."""

import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import dp_accounting as dpa
import pytest
import sqlalchemy as sa

import palimpsest
from palimpsest.errors import DataError, LedgerError
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, Charge, Reservation, Run, require_unit
from palimpsest.privacy.ledger.rules import balance
from palimpsest.privacy.ledger.summary import LedgerSummary, UsedOrder
from palimpsest.privacy.ledger.total import total_of
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.query import bounds_persons, is_for_persons, is_registered, register_query
from palimpsest.privacy.receipt import Receipt
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.session import Session, metered, paid_charges, receipt
from palimpsest.privacy.view import PrivateView
from palimpsest.records.keyed import fingerprint
from palimpsest.records.schema import PublicSchema
from palimpsest.report.release.extract import asset_of, extract
from tests.machines import own_ledger

RECORDS = PublicSchema("tickets", "text", "body", 1000, 200)
PERSONS = replace(RECORDS, unit_column="author", max_rows_per_unit=4, n_persons=500)
OTHERS = replace(PERSONS, unit_column="customer")
SCHEMAS = {"records": RECORDS, "persons": PERSONS, "persons of another column": OTHERS}
EVENT = dpa.GaussianDpEvent(9.0)


@register_query
@dataclass(frozen=True)
class OfRecords:
    """A query whose event holds for records."""

    name: str = "counted"
    subject: str = ""

    def event(self) -> dpa.DpEvent:
        return EVENT

    def run(self, rows: Sequence[PrivateRow], noise: NoiseSource) -> str:
        return "answered"


@register_query
@bounds_persons
@dataclass(frozen=True)
class OfPersons(OfRecords):
    """One whose event holds for a person with all their rows."""


class OfNobody(OfPersons):
    """A subclass of it, which was never looked at."""


def asset_for(schema: PublicSchema) -> Asset:
    return Asset("tickets", 1e-5, 4.0, 1000, schema.unit, unit_column=schema.unit_column)


def rows_of(schema: PublicSchema) -> list[PrivateRow]:
    return [PrivateRow("SECRET", None, None if schema.unit == "record" else "a" * 64)] * 3


@pytest.fixture
def book(sqlite_url: str) -> Callable[[PublicSchema], Ledger]:
    """Makes a ledger that knows the asset for the schema's unit."""

    def make(schema: PublicSchema) -> Ledger:
        made = Ledger.create(sqlite_url)
        made.register(asset_for(schema))
        return made

    return make


def reserved(ledger: Ledger, run: Callable[..., Run]) -> Reservation:
    return ledger.reserve("tickets", run(), [PlannedQuery("counted", EVENT)])


def states(ledger: Ledger) -> list[str]:
    return [charge.state for charge in ledger.charges("tickets")]


# --- the door


def test_a_query_for_records_is_refused_where_the_unit_is_a_person_and_nothing_begins(book, run):
    ledger = book(PERSONS)
    view = PrivateView(rows_of(PERSONS), PERSONS, ledger, reserved(ledger, run), NoiseSource())
    with pytest.raises(LedgerError, match="not what one person does") as caught:
        view.ask(OfRecords())
    assert "bounds persons" in caught.value.remedy
    assert "SECRET" not in str(caught.value)
    assert states(ledger) == ["reserved"]
    assert view.ask(OfPersons()) == "answered"
    assert states(ledger) == ["begun"]


@pytest.mark.parametrize("query", [OfRecords(), OfPersons()])
def test_any_registered_query_is_answered_where_the_unit_is_a_record(book, run, query):
    ledger = book(RECORDS)
    assert PrivateView(rows_of(RECORDS), RECORDS, ledger, reserved(ledger, run), NoiseSource()).ask(query) == "answered"


def test_a_mark_is_of_one_class_and_not_of_those_below_it(book, run):
    ledger = book(PERSONS)
    register_query(OfNobody)
    with pytest.raises(LedgerError, match="not what one person does"):
        PrivateView(rows_of(PERSONS), PERSONS, ledger, reserved(ledger, run), NoiseSource()).ask(OfNobody())


@pytest.mark.parametrize(("rows", "schema"), [(PERSONS, RECORDS), (RECORDS, PERSONS)])
def test_rows_of_another_unit_never_get_behind_the_door(book, run, rows, schema):
    """Rows of one name would be answered as one unit: for records that bounds nothing, and the other way round."""
    ledger = book(schema)
    mixed = [*rows_of(schema), rows_of(rows)[0]]
    found = run(fingerprint=fingerprint(mixed, ledger.asset("tickets").key))
    asked = ledger, schema, found, [PlannedQuery("counted", EVENT)], lambda: mixed
    with (
        pytest.raises(LedgerError, match="not those of a data set whose unit") as caught,
        metered(*asked, NoiseSource()),
    ):
        raise AssertionError("it must not open")
    assert "SECRET" not in str(caught.value)
    assert states(ledger) == ["refunded"]


SOURCE = Path(palimpsest.__file__).parent

# Queries that bound what a record changes and not what a person does, each with the reason: the door holds them back.
FOR_RECORDS_ALONE: dict[str, str] = {}


@cache
def all_queries() -> dict[str, type]:
    """Every query of the package by its name, wherever it is registered."""
    paths = [path for path in SOURCE.rglob("*.py") if "\n@register_query" in path.read_text(encoding="utf-8")]
    names = [".".join(path.relative_to(SOURCE.parent).with_suffix("").parts) for path in paths]
    kinds = [kind for name in names for kind in vars(importlib.import_module(name)).values() if isinstance(kind, type)]
    return {kind.__name__: kind for kind in kinds if kind.__module__ in names and is_registered(object.__new__(kind))}


def marked() -> set[str]:
    return {name for name, kind in all_queries().items() if is_for_persons(object.__new__(kind))}


def test_every_query_bounds_persons_or_is_listed_with_its_reason():
    found = set(all_queries())
    assert len(found) >= 9
    assert found - marked() == set(FOR_RECORDS_ALONE)


def test_what_bounds_persons_states_its_guarantee():
    assert [name for name in marked() if "Guarantee" not in (all_queries()[name].__doc__ or "")] == []


# --- the ledger

CHANGES = [(old, new) for old in SCHEMAS for new in SCHEMAS if old != new]


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_an_asset_is_closed_to_another_unit(book, run, old, new):
    """Refused where it is registered and where it is charged, before a row is read; nothing is written."""
    ledger = book(SCHEMAS[old])
    reserved(ledger, run)
    entries = ledger.books().entries
    with pytest.raises(LedgerError, match="as the unit of privacy") as caught:
        ledger.register(asset_for(SCHEMAS[new]))
    assert "closed to another unit" in caught.value.remedy

    def unread() -> Sequence[PrivateRow]:
        raise AssertionError("a row was read")

    asked = ledger, SCHEMAS[new], run(), [PlannedQuery("counted", EVENT)], unread, NoiseSource()
    with pytest.raises(LedgerError, match="as the unit of privacy"), metered(*asked):
        raise AssertionError("it must not open")
    assert ledger.books().entries == entries
    assert states(ledger) == ["reserved"]


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_a_run_whose_unit_is_corrected_while_it_reserves_reads_no_row(book, run, old, new, monkeypatch):
    ledger, reserve = book(SCHEMAS[old]), Ledger.reserve

    def late(self: Ledger, *asked: Any, **how: Any) -> Reservation:
        self.register(asset_for(SCHEMAS[new]))
        return reserve(self, *asked, **how)

    monkeypatch.setattr(Ledger, "reserve", late)

    def unread() -> Sequence[PrivateRow]:
        raise AssertionError("a row was read")

    asked = ledger, SCHEMAS[old], run(), [PlannedQuery("counted", EVENT)], unread, NoiseSource()
    with pytest.raises(LedgerError, match="as the unit of privacy"), metered(*asked):
        raise AssertionError("it must not open")
    assert states(ledger) == ["refunded"]


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_the_unit_that_was_registered_comes_back_and_the_cap_of_rows_may_change(book, schema):
    ledger = book(schema)
    known = ledger.asset("tickets")
    assert (known.unit, known.unit_column) == (schema.unit, schema.unit_column)
    require_unit(known, replace(schema, max_rows_per_unit=7))
    assert ledger.register(asset_for(schema)) == known
    assert ledger.amend("tickets", 5.0).unit_column == schema.unit_column
    assert ledger.asset("tickets").unit_column == schema.unit_column


def body_of(url: str) -> dict[str, Any]:
    with sa.create_engine(url).connect() as connection:
        return dict(json.loads(connection.scalars(sa.text("SELECT body FROM palimpsest_entry WHERE seq = 1")).one()))


def test_a_registration_says_every_public_term_and_the_hash_of_the_key(book, sqlite_url):
    book(RECORDS)
    terms = {"name", "delta", "epsilon", "n_public", "unit", "unit_column", "adjacency", "orders", "filter"}
    terms |= {"milestones"}
    assert set(body_of(sqlite_url)) == terms | {"key_hash", "noted_in"}


def test_an_asset_of_persons_has_its_column_in_the_chain(book, sqlite_url):
    book(PERSONS)
    found = body_of(sqlite_url)
    assert (found["unit"], found["unit_column"]) == ("person", "author")


@pytest.mark.parametrize("terms", [{"unit": "person"}, {"unit_column": "author"}, {"unit": "household"}])
def test_an_asset_without_a_whole_unit_is_none(terms):
    with pytest.raises(ValueError, match=r"unit|column"):
        Asset("tickets", 1e-5, 4.0, 1000, **terms)


@pytest.mark.parametrize("terms", [{"unit_column": "author"}, {"n_persons": 500}])
def test_a_schema_without_a_whole_unit_is_none(terms):
    with pytest.raises(ValueError, match="go together"):
        replace(RECORDS, **terms)


# --- receipts


def committed(ledger: Ledger, schema: PublicSchema, run: Callable[..., Run]) -> Receipt:
    reservation = reserved(ledger, run)
    ledger.begin(reservation.charges[0])
    ledger.commit(reservation)
    view = PrivateView(rows_of(schema), schema, ledger, reservation, NoiseSource())
    return receipt(ledger, ledger.asset("tickets"), Session(reservation, 0.0, view), method="select", target=3.0)


@pytest.mark.parametrize("schema", [RECORDS, PERSONS])
def test_a_receipt_names_the_assets_unit_and_no_other_holds_beside_its_ledger(book, run, schema):
    ledger = book(schema)
    found = committed(ledger, schema, run)
    assert found.unit == schema.unit
    asset, charges = ledger.asset("tickets"), ledger.charges("tickets")
    assert found.problems(asset, charges) == []
    assert [charge.id for charge in paid_charges(ledger, "tickets", found, "release")] == [charges[0].id]
    other = replace(found, unit="person" if schema.unit == "record" else "record")
    assert other.problems(asset, charges) == [f"unit must be {schema.unit!r}; the receipt says {other.unit!r}"]
    with pytest.raises(LedgerError, match=f"adding or removing one {other.unit}"):
        paid_charges(ledger, "tickets", other, "release")


@pytest.mark.parametrize("unit", ["persons", "Record", "household", "", None, 1])
def test_a_receipt_of_an_unknown_unit_is_refused(book, run, unit):
    body = committed(book(RECORDS), RECORDS, run).to_json() | {"unit": unit}
    for published in (False, True):
        kept = {name: value for name, value in body.items() if not published or name not in ("ledger_head", "seconds")}
        with pytest.raises(LedgerError, match="field unit"):
            Receipt.from_json(kept, published=published)


def test_groups_are_of_units_whatever_the_unit(book, run, tmp_path):
    """The same charge has the same group epsilons: they count persons where the asset is of persons."""
    found = committed(book(RECORDS), RECORDS, run)
    other = own_ledger(tmp_path / "other")
    other.register(asset_for(PERSONS))
    again = committed(other, PERSONS, run)
    assert [row.k for row in found.group] == [1, 2, 5, 10]
    assert again.group == found.group
    assert again.group[0].epsilon == again.epsilon


# --- what leaves of the ledger


def extracted(asset: Asset, charges: Sequence[Charge] = ()) -> dict[str, Any]:
    books = LedgerSummary(
        asset.name, asset.unit, asset.delta, asset.epsilon, caps=(), filter=UsedOrder(2.0, 0.0, (2.0,)),
        spent_epsilon=0.0, left_epsilon=4.0, charges=(), shown_head="s", head="h", entries=1, verified=True,
        after_loss=False, total=total_of(asset, balance(asset, ()), ()),
    )  # fmt: skip
    return dict(json.loads(json.dumps(extract(asset, charges, books))))


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_the_extract_gives_another_machine_the_unit_and_its_column(schema):
    assert asset_of(extracted(asset_for(schema))) == asset_for(schema)


@pytest.mark.parametrize("term", ["unit", "unit_column", "filter", "orders"])
def test_an_extract_that_leaves_out_a_term_is_none(term):
    document = extracted(asset_for(RECORDS))
    del document["asset"][term]
    with pytest.raises(DataError, match="has not its form"):
        asset_of(document)


@pytest.mark.parametrize("change", [{"unit": "record"}, {"unit_column": None}, {"unit": "crowd"}, {"unit_column": 3}])
def test_an_extract_that_mixes_units_is_none(change):
    document = extracted(asset_for(PERSONS))
    document["asset"] |= change
    with pytest.raises(DataError, match="has not its form"):
        asset_of(document)


def test_a_receipt_of_records_does_not_hold_beside_the_extract_of_persons(book, run):
    ledger = book(PERSONS)
    found = committed(ledger, PERSONS, run)
    elsewhere = asset_of(extracted(ledger.asset("tickets"), ledger.charges("tickets")))
    assert found.problems(elsewhere, ledger.charges("tickets")) == []
    assert replace(found, unit="record").problems(elsewhere, ledger.charges("tickets"))
