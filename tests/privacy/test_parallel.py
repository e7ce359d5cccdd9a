"""Charges of disjoint parts of a data set: composed as one event, in the filter, in a receipt and in the books."""

import math
from collections.abc import Sequence
from dataclasses import replace

import dp_accounting as dpa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.errors import LedgerError
from palimpsest.privacy import accounting, events
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, Charge, Reservation
from palimpsest.privacy.ledger.rules import compose_charges, preview
from palimpsest.privacy.ledger.summary import ledger_summary
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.receipt import Receipt
from palimpsest.privacy.session import Session, receipt
from palimpsest.privacy.view import PrivateView
from palimpsest.records.schema import PublicSchema

ASSET = Asset("tickets", delta=1e-5, epsilon=20.0, n_public=1000)
EVENTS = [
    dpa.ZCDpEvent(0.002),
    dpa.ZCDpEvent(0.03),
    dpa.SelfComposedDpEvent(dpa.ZCDpEvent(0.0005), 31),
    dpa.GaussianDpEvent(7.0),
]
PARTITIONS = [None, *((scheme, cell) for scheme in ("batch", "label") for cell in ("0", "1", "2"))]
TOKENS = PlannedQuery("votes", EVENTS[2])


def charge(event: dpa.DpEvent, partition: tuple[str, str] | None, run: int = 1) -> Charge:
    return Charge(
        id="c", seq=1, run_key="k", run=run, index=0, stage="fit", variant="dp3", purpose="release", fingerprint="f",
        query="votes", event=event, own_delta=0.0, partition=partition, state="committed", time="",
    )  # fmt: skip


CHARGES = st.lists(
    st.builds(charge, st.sampled_from(EVENTS), st.sampled_from(PARTITIONS), st.integers(1, 2)), min_size=1, max_size=14
)


def rho(charges: Sequence[Charge]) -> float:
    return accounting.total_rho(compose_charges(charges))


def summed(charges: Sequence[Charge]) -> float:
    """As if all had been asked of one record."""
    return sum(accounting.total_rho(charge.event) for charge in charges)


def seen_by(charges: Sequence[Charge], cells: dict[tuple[int, str], str]) -> list[Charge]:
    """The charges that met a record that lies in these cells."""
    return [c for c in charges if c.partition is None or cells.get((c.run, c.partition[0])) == c.partition[1]]


@given(CHARGES, st.fixed_dictionaries({(r, s): st.sampled_from("012") for r in (1, 2) for s in ("batch", "label")}))
def test_no_record_costs_more_than_the_composition_and_that_no_more_than_the_sum(charges, cells):
    assert summed(seen_by(charges, cells)) <= rho(charges) * (1 + 1e-12)
    assert rho(charges) <= summed(charges) * (1 + 1e-12)


@given(st.lists(st.sampled_from(PARTITIONS[:4]), min_size=1, max_size=12))
def test_of_one_event_the_worst_cell_counts_exactly(partitions):
    cells = [partition for partition in partitions if partition is not None]
    worst = max((cells.count(cell) for cell in cells), default=0) + partitions.count(None)
    assert rho([charge(EVENTS[0], partition) for partition in partitions]) == pytest.approx(worst * 0.002)


@pytest.mark.parametrize("other", [{"run": 2}, {"run_key": "other"}])
@given(CHARGES, CHARGES)
def test_two_runs_of_one_scheme_add(other, one, two):
    first, second = ([replace(c, run=1) for c in charges] for charges in (one, two))
    second = [replace(c, **other) for c in second]
    assert rho([*first, *second]) == pytest.approx(rho(first) + rho(second))


@settings(deadline=None)
@given(CHARGES)
def test_the_filter_and_the_composed_event_count_alike(charges):
    divergences = accounting.rdp(compose_charges(charges), ASSET.orders)
    assert preview(ASSET, charges, {}).spent == pytest.approx(ASSET.spent(divergences))


def test_different_events_in_different_cells_are_all_counted():
    mixed = [charge(EVENTS[0], ("batch", "0")), charge(EVENTS[1], ("batch", "1")), charge(EVENTS[1], ("batch", "1"))]
    assert rho(mixed) == pytest.approx(0.002 + 2 * 0.03)


def test_charges_of_the_whole_data_set_compose_as_they_stand():
    step = dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(0.01, dpa.GaussianDpEvent(1.1)), 50)
    charges = [charge(step, None), charge(EVENTS[3], None)]
    assert compose_charges(charges) == dpa.ComposedDpEvent([step, EVENTS[3]])


# --- a run over parts, on its ledger


def over_cells(cells: str) -> list[PlannedQuery]:
    return [replace(TOKENS, partition=("batch", cell)) for cell in cells]


def committed(ledger: Ledger, run, requests: list[PlannedQuery]) -> Reservation:
    reservation = ledger.reserve("tickets", run, requests)
    for reserved in reservation.charges:
        ledger.begin(reserved)
    ledger.commit(reservation)
    return reservation


def receipt_of(ledger: Ledger, reservation: Reservation, before: Sequence[str] = ()) -> Receipt:
    schema = PublicSchema("tickets", "text", "body", n_public=1000, max_length=100)
    view = PrivateView([], schema, ledger, reservation, NoiseSource())
    found = Session(reservation, 0.0, view)
    return receipt(ledger, ledger.asset("tickets"), found, method="predict", target=3.0, before=before)


def test_a_receipt_charges_the_fullest_cell_and_names_every_one(small, run):
    found = receipt_of(small, committed(small, run(), over_cells("0012")))
    fullest = dpa.SelfComposedDpEvent(TOKENS.event, 2)
    assert found.accountant == "zcdp"
    assert found.epsilon == pytest.approx(accounting.zcdp_epsilon(2 * 31 * 0.0005, 1e-5))
    assert found.epsilon_rdp == pytest.approx(accounting.epsilon(fullest, 1e-5, "rdp"))
    assert found.epsilon <= found.epsilon_rdp <= 1.08 * found.epsilon
    assert [line.partition for line in found.queries] == [("batch", cell) for cell in "0012"]
    assert found.curve.beta == tuple(accounting.trade_off(fullest)[1])
    assert [row.epsilon for row in found.group] == [
        pytest.approx(accounting.zcdp_epsilon(row.k**2 * 0.031, 1e-5)) for row in found.group
    ]


def test_a_receipt_adds_what_it_builds_on_even_over_the_same_parts(small, run):
    below = committed(small, run(variant="below"), over_cells("01"))
    above = committed(small, run(variant="above"), over_cells("01"))
    found = receipt_of(small, above, [paid.id for paid in below.charges])
    assert found.epsilon == pytest.approx(accounting.zcdp_epsilon(2 * 31 * 0.0005, 1e-5))


def test_a_receipt_of_the_whole_data_set_says_so(small, run):
    found = receipt_of(small, committed(small, run(), [PlannedQuery("histogram", dpa.GaussianDpEvent(5.0))]))
    assert (found.accountant, found.queries[0].partition) == ("pld", None)
    assert found.epsilon == pytest.approx(accounting.gdp_epsilon(0.2, 1e-5), abs=2e-3)


def test_a_receipt_of_mixed_mechanisms_names_its_one_accountant(small, run):
    mixed = [*over_cells("01"), PlannedQuery("threshold", dpa.LaplaceDpEvent(9.0))]
    found = receipt_of(small, committed(small, run(), mixed))
    assert found.accountant == "rdp"
    assert found.epsilon == found.epsilon_rdp > accounting.zcdp_epsilon(0.0155, 1e-5)


def test_a_charge_without_a_finite_rho_is_no_release(small, run):
    for bad in (math.inf, math.nan, -1.0):
        with pytest.raises(LedgerError, match="without noise"):
            small.reserve("tickets", run(), [PlannedQuery("votes", dpa.ZCDpEvent(bad))])


def test_the_books_name_the_part_and_the_epsilon_of_each_charge(small, run):
    committed(small, run(), [*over_cells("01"), PlannedQuery("histogram", dpa.GaussianDpEvent(5.0))])
    lines = ledger_summary(small.books(), "tickets").charges
    assert [line.partition for line in lines] == [("batch", "0"), ("batch", "1"), None]
    assert lines[0].epsilon == pytest.approx(accounting.zcdp_epsilon(0.0155, 1e-5))


def test_events_of_a_composition_survive_json(small, run):
    event = compose_charges(committed(small, run(), over_cells("0012")).charges)
    assert events.from_json(events.to_json(event)) == event
