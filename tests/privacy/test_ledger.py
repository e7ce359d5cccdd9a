"""The ledger on SQLite and on PostgreSQL: states, retries, budgets, tampering, concurrency, places that fail."""

import json
import multiprocessing
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path

import dp_accounting as dpa
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.ledger import ADMITTED, race
from palimpsest.errors import BudgetExceeded, LedgerError
from palimpsest.privacy.ledger import chain, database
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, Run, canonical_json
from palimpsest.privacy.ledger.store import Store
from palimpsest.privacy.ledger.witness import VARIABLE
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.session import paid_charges
from tests.machines import own_ledger
from tests.privacy.changed import copied, on_another_machine, rehash
from tests.reading import EVERYTHING
from tests.receipts import a_line, a_receipt

GAUSSIAN = dpa.GaussianDpEvent(10.0)
ONE, TWO = PlannedQuery("votes", GAUSSIAN), PlannedQuery("histogram", dpa.GaussianDpEvent(20.0))
ASSET = Asset(name="tickets", delta=1e-5, epsilon=4.0, n_public=1000)


def states(ledger: Ledger) -> list[str]:
    return [charge.state for charge in ledger.charges("tickets")]


def spent(ledger: Ledger) -> float:
    return ledger.balance("tickets").spent


def cost(*events: dpa.DpEvent) -> float:
    """What the filter says of plain events."""
    orders = ASSET.orders
    total = [sum(order / (2 * event.noise_multiplier**2) for event in events) for order in orders]
    return ASSET.spent(total)


def execute(url: str, *statements: str) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))
    engine.dispose()


# --- the life of a charge


def test_a_whole_run_is_reserved_begun_answered_and_committed(ledger, run):
    reservation = ledger.reserve("tickets", run(), [ONE, TWO])
    assert states(ledger) == ["reserved", "reserved"]
    for charge in reservation.charges:
        ledger.begin(charge)
    assert states(ledger) == ["begun", "begun"]
    ledger.answer(reservation.charges[0], {"refund": 3})
    ledger.commit(reservation)
    assert states(ledger) == ["committed", "committed"]
    assert spent(ledger) == pytest.approx(cost(GAUSSIAN, TWO.event))
    assert ledger.books().entries == 8  # register, 2 reserved, 2 begun, 1 answered, 2 committed


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["begin", "answer", "commit", "refund"]), st.integers(0, 1)), max_size=8
)
MOVES = {
    ("reserved", "begin"): "begun",
    ("begun", "answer"): "answered",
    ("begun", "commit"): "committed",
    ("answered", "commit"): "committed",
    ("reserved", "refund"): "refunded",
}


@settings(max_examples=15, deadline=None)
@given(OPERATIONS)
def test_any_sequence_of_moves_follows_the_state_machine(tmp_path_factory, operations):
    ledger = own_ledger(tmp_path_factory.mktemp("states"))
    ledger.register(ASSET)
    reservation = ledger.reserve("tickets", Run("fit", "dp3", "release", "f", "p"), [ONE, TWO])
    expected = ["reserved", "reserved"]
    for kind, index in operations:
        charge = reservation.charges[index]
        target = MOVES.get((expected[index], kind))
        head = ledger.head()
        calls = {
            "begin": lambda charge=charge: ledger.begin(charge),
            "answer": lambda charge=charge: ledger.answer(charge, 1),
            "commit": lambda charge=charge: ledger.commit(replace(reservation, charges=(charge,))),
            "refund": lambda charge=charge: ledger.refund([charge]),
        }
        if target is None and kind != "refund":
            with pytest.raises(LedgerError, match="cannot"):
                calls[kind]()
        else:
            calls[kind]()
        assert (ledger.head() == head) == (target is None)
        expected[index] = target or expected[index]
        assert states(ledger) == expected
    counted = [r.event for r, state in zip([ONE, TWO], expected, strict=True) if state != "refunded"]
    assert spent(ledger) == pytest.approx(cost(*counted) if counted else 0.0)
    ledger.books()


def test_a_commit_is_whole_or_not_at_all(ledger, run):
    reservation = ledger.reserve("tickets", run(), [ONE, TWO])
    ledger.begin(reservation.charges[0])
    with pytest.raises(LedgerError, match="is reserved; it cannot commit"):
        ledger.commit(reservation)
    assert states(ledger) == ["begun", "reserved"]


def test_only_what_never_began_is_refunded(ledger, run):
    reservation = ledger.reserve("tickets", run(), [ONE, TWO])
    ledger.begin(reservation.charges[0])
    assert ledger.refund(reservation.charges) == 1
    assert ledger.refund(reservation.charges) == 0
    assert states(ledger) == ["begun", "refunded"]
    assert spent(ledger) == pytest.approx(cost(GAUSSIAN))


# --- retries


def test_a_retry_before_anything_began_reuses_the_reservation(ledger, run):
    first, second = (ledger.reserve("tickets", run(), [ONE, TWO]) for _ in range(2))
    assert [charge.id for charge in first.charges] == [charge.id for charge in second.charges]
    assert len(states(ledger)) == 2


def test_a_retry_replays_what_was_answered_and_pays_again_for_what_was_lost(ledger, run):
    first = ledger.reserve("tickets", run(), [ONE, TWO])
    for charge in first.charges:
        ledger.begin(charge)
    ledger.answer(first.charges[0], {"refund": 3})
    second = ledger.reserve("tickets", run(), [ONE, TWO], again=EVERYTHING)
    assert second.replays == {first.charges[0].id: {"refund": 3}}
    assert (second.run, second.lost) == (1, 1)
    assert second.charges[0].id == first.charges[0].id
    assert second.charges[1].id != first.charges[1].id
    assert spent(ledger) == pytest.approx(cost(GAUSSIAN, TWO.event, TWO.event))
    ledger.begin(second.charges[1])
    ledger.commit(second)
    assert states(ledger) == ["committed", "begun", "committed"]


def test_a_finished_run_that_is_repeated_is_charged_again(ledger, run):
    for number in (1, 2):
        reservation = ledger.reserve("tickets", run(), [ONE], again=EVERYTHING)
        assert (reservation.run, reservation.replays) == (number, {})
        ledger.begin(reservation.charges[0])
        ledger.answer(reservation.charges[0], number)
        ledger.commit(reservation)
    assert spent(ledger) == pytest.approx(cost(GAUSSIAN, GAUSSIAN))


def test_the_answers_of_a_committed_run_stay(ledger, run):
    reservation = ledger.reserve("tickets", run(), [ONE])
    (charge,) = reservation.charges
    assert ledger.find_answered("tickets", run(), [ONE]) is None
    ledger.begin(charge, subject="labels")
    ledger.answer(charge, 5)
    assert ledger.find_answered("tickets", run(), [ONE]) is None, "rows may not be whole yet"
    ledger.commit(reservation)
    before = ledger.head()
    kept = ledger.find_answered("tickets", run(), [ONE])
    assert (kept.replays, [one.subject for one in kept.charges]) == ({charge.id: 5}, ["labels"])
    assert ledger.find_answered("tickets", run(plan="another"), [ONE]) is None
    assert ledger.head() == before
    with pytest.raises(LedgerError, match="is committed; it cannot begin"):
        ledger.begin(kept.charges[0])


def test_a_committed_run_without_all_its_answers_is_not_made_again(ledger, run):
    reservation = ledger.reserve("tickets", run(), [ONE, TWO])
    for charge in reservation.charges:
        ledger.begin(charge)
    ledger.answer(reservation.charges[0], 5)
    ledger.commit(reservation)
    assert ledger.find_answered("tickets", run(), [ONE, TWO]) is None


@pytest.mark.parametrize(
    "planned",
    [[], [TWO], [ONE, TWO], [replace(ONE, event=TWO.event)], [replace(ONE, versions=(("another", 1),))]],
    ids=["nothing", "another", "more", "another_event", "another_version"],
)
def test_answers_stand_for_no_other_plan_than_they_were_paid_for(ledger, run, planned):
    answer_one(ledger, run())
    assert ledger.find_answered("tickets", run(), [ONE]) is not None
    assert ledger.find_answered("tickets", run(), planned) is None


def answer_one(ledger, asked):
    """Reserve, answer and commit ONE."""
    reservation = ledger.reserve("tickets", asked, [ONE])
    ledger.begin(reservation.charges[0])
    ledger.answer(reservation.charges[0], 5)
    ledger.commit(reservation)


def test_a_run_after_a_full_refund_reserves_afresh(ledger, run):
    ledger.refund(ledger.reserve("tickets", run(), [ONE]).charges)
    again = ledger.reserve("tickets", run(), [ONE])
    assert states(ledger) == ["refunded", "reserved"]
    ledger.begin(again.charges[0])


@pytest.mark.parametrize("changed", ["stage", "variant", "fingerprint", "plan"])
def test_another_run_shares_nothing(small, run, changed):
    first = small.reserve("tickets", run(), [ONE])
    second = small.reserve("tickets", run(**{changed: "other"}), [ONE])
    assert first.charges[0].id != second.charges[0].id
    assert spent(small) == pytest.approx(cost(GAUSSIAN, GAUSSIAN))


def test_a_plan_that_asks_nothing_is_refused(ledger, run):
    head = ledger.head()
    with pytest.raises(LedgerError, match="plans no query"):
        ledger.reserve("tickets", run(), [])
    assert ledger.head() == head


# --- the budget


def test_a_plan_over_budget_is_refused_and_charges_nothing(ledger, run):
    ledger.reserve("tickets", run(), [ONE])
    before, head = ledger.balance("tickets"), ledger.head()
    with pytest.raises(BudgetExceeded, match="left 3") as refused:
        ledger.reserve("tickets", run(variant="dp8"), [ONE, PlannedQuery("training", dpa.GaussianDpEvent(0.5))])
    assert refused.value.remedy
    assert (ledger.balance("tickets"), ledger.head()) == (before, head)


def test_standing_reservations_count_at_the_gate(small, run):
    large = [PlannedQuery("training", dpa.GaussianDpEvent(1.7))]
    small.reserve("tickets", run(variant="first"), large)
    with pytest.raises(BudgetExceeded):
        small.reserve("tickets", run(variant="second"), large)
    small.refund(small.charges("tickets"))
    small.reserve("tickets", run(variant="second"), large)


def test_a_refusal_names_how_abandoned_reservations_are_given_back(small, run):
    large = [PlannedQuery("training", dpa.GaussianDpEvent(1.7))]
    with pytest.raises(BudgetExceeded) as alone:
        small.reserve("tickets", run(), [PlannedQuery("training", dpa.GaussianDpEvent(0.5))])
    small.reserve("tickets", run(variant="first"), large)
    with pytest.raises(BudgetExceeded) as own:  # of its own, which it may use
        small.reserve("tickets", run(variant="first"), [*large, *large])
    with pytest.raises(BudgetExceeded) as beside:
        small.reserve("tickets", run(variant="second"), large)
    assert [("ledger --refund ID" in each.value.remedy) for each in (alone, own, beside)] == [False, False, True]
    small.begin(small.charges("tickets")[0])
    with pytest.raises(BudgetExceeded) as begun:
        small.reserve("tickets", run(variant="second"), large)
    assert "--refund" not in begun.value.remedy


def test_a_cap_that_was_lowered_stops_what_has_yet_to_begin(small, run):
    first = small.reserve("tickets", run(), [ONE, TWO])
    small.begin(first.charges[0])
    small.answer(first.charges[0], 3)
    small.amend("tickets", 0.01)
    with pytest.raises(BudgetExceeded):  # one of the two never began
        small.reserve("tickets", run(), [ONE, TWO])
    small.begin(first.charges[1])
    small.answer(first.charges[1], 4)
    again = small.reserve("tickets", run(), [ONE, TWO])
    assert ([charge.id for charge in again.charges], again.replays) == (
        [charge.id for charge in first.charges],
        {first.charges[0].id: 3, first.charges[1].id: 4},
    )
    with pytest.raises(BudgetExceeded):
        small.reserve("tickets", run(variant="more"), [ONE])


def test_references_are_written_down_outside_the_total(ledger, run):
    exact = PlannedQuery("training", dpa.NonPrivateDpEvent())
    ledger.reserve("tickets", run(purpose="reference"), [exact])
    assert states(ledger) == ["reserved"]
    assert spent(ledger) == 0.0


@pytest.mark.parametrize("event", [dpa.NonPrivateDpEvent(), dpa.GaussianDpEvent(0.0)])
def test_a_release_without_noise_is_refused_under_any_cap(small, run, event):
    small.amend("tickets", 1e300)
    with pytest.raises(LedgerError, match="without noise"):
        small.reserve("tickets", run(), [PlannedQuery("training", event)])


def test_a_purpose_that_is_not_known_is_refused(small, run):
    with pytest.raises(LedgerError, match="purpose"):
        small.reserve("tickets", run(purpose="Release"), [ONE])


def test_another_adjacency_is_refused(ledger, run):
    with pytest.raises(LedgerError, match="adjacency"):
        ledger.reserve("tickets", run(), [replace(ONE, adjacency="replace_one")])
    with pytest.raises(ValueError, match="adjacency"):
        ledger.register(Asset("other", 1e-5, 1.0, 10, adjacency="replace_one"))
    assert states(ledger) == []


def test_own_deltas_never_pass_their_half(small, run):
    own = replace(ONE, own_delta=2e-6)
    small.reserve("tickets", run(), [own, own])
    with pytest.raises(BudgetExceeded, match="outside the events"):
        small.reserve("tickets", run(variant="more"), [own])
    small.reserve("tickets", run(variant="less"), [replace(ONE, own_delta=1e-6)])
    with pytest.raises(ValueError, match="own_delta"):
        small.reserve("tickets", run(variant="back"), [replace(ONE, own_delta=-1e-6)])


def test_amending_moves_the_cap_alone(ledger, run):
    training = [PlannedQuery("training", dpa.GaussianDpEvent(0.7))]
    with pytest.raises(BudgetExceeded):
        ledger.reserve("tickets", run(), training)
    assert ledger.amend("tickets", 12.0).epsilon == 12.0
    ledger.reserve("tickets", run(), training)
    assert (ledger.asset("tickets").epsilon, ledger.asset("tickets").delta) == (12.0, 1e-5)
    with pytest.raises(ValueError, match="epsilon"):
        ledger.amend("tickets", float("nan"))


def test_equal_cells_cost_once_and_unequal_ones_the_worst(small, run):
    cells = [replace(ONE, partition=("label", cell)) for cell in ("refund", "outage", "praise")]
    small.reserve("tickets", run(variant="equal"), cells)
    assert spent(small) == pytest.approx(cost(GAUSSIAN))
    small.reserve("tickets", run(variant="worst"), [*cells, cells[0], replace(ONE, partition=("hash", "0"))])
    assert spent(small) == pytest.approx(cost(*[GAUSSIAN] * 4))  # 1, and 2 in the worst cell, and 1 of another scheme


def test_cells_of_another_data_version_add(small, run):
    for version, cell in (("before", "refund"), ("after", "outage")):
        small.reserve("tickets", run(fingerprint=version), [replace(ONE, partition=("label", cell))])
    assert spent(small) == pytest.approx(cost(GAUSSIAN, GAUSSIAN))


# --- assets


def test_registering_twice_keeps_the_key_and_other_terms_are_refused(ledger, asset, run):
    known = ledger.asset("tickets")
    assert ledger.register(asset) == known
    assert len(known.key) == 32
    assert known.key.hex() not in repr(known)
    ledger.reserve("tickets", run(), [ONE])
    with pytest.raises(LedgerError, match="other terms"):
        ledger.register(replace(asset, delta=1e-4))


CORRECTED = [
    replace(ASSET, n_public=500),
    replace(ASSET, delta=1e-6, epsilon=9.0),
    replace(ASSET, unit="person", unit_column="who"),
    replace(ASSET, filter="gdp", milestones=(1.0,)),
]
MISMATCH = "with other terms|as the unit of privacy"


@pytest.mark.parametrize(
    "steps", list(product(["correct", "reserve", "reference", "begin", "refund"], repeat=3)), ids="-".join
)
def test_terms_are_corrected_until_the_first_reservation_and_never_after_it(sqlite_url, run, steps):
    ledger, wanted, reserved = Ledger.create(sqlite_url), ASSET, []
    key = ledger.register(ASSET).key
    for step, terms in zip((*steps, "correct"), CORRECTED, strict=True):
        head = ledger.head()
        if step == "correct" and reserved:
            with pytest.raises(LedgerError, match=MISMATCH):
                ledger.register(terms)
            assert ledger.head() == head, "nothing is written"
        elif step == "correct":
            wanted = terms
            assert ledger.register(terms) == ledger.register(terms) == ledger.asset("tickets")
            assert [cap.epsilon for cap in ledger.books().caps("tickets")] == [terms.epsilon]
        elif step in ("reserve", "reference"):
            purpose = "release" if step == "reserve" else "reference"
            reserved += ledger.reserve("tickets", run(purpose=purpose, variant=head), [ONE]).charges
        else:
            waiting = [one for one in ledger.charges("tickets") if one.state == "reserved"]
            for charge in waiting:
                ledger.begin(charge) if step == "begin" else ledger.refund([charge])
    assert replace(ledger.asset("tickets"), key=b"") == wanted
    assert ledger.asset("tickets").key == key
    assert ledger.books().milestones("tickets") == wanted.milestones
    assert ledger.books().faults("tickets") == []


def test_what_another_name_of_the_same_rows_or_a_lost_ledger_charged_closes_the_terms_too(small, run):
    small.reserve("tickets", run(), [ONE])
    for name in ("second", "third"):
        small.register(replace(ASSET, name=name), lost=name == "third")
    small.allow_same_rows("second", "the same file", "rows")
    small.allow_same_rows("tickets", "the same file", "rows")
    for name in ("second", "third"):
        with pytest.raises(LedgerError, match=MISMATCH):
            small.register(replace(CORRECTED[0], name=name))
    small.register(replace(ASSET, name="fourth"))
    with pytest.raises(LedgerError, match=MISMATCH):
        small.register(replace(CORRECTED[0], name="fourth"), lost=True)


def test_a_share_of_a_team_survives_a_correction(small):
    small.cap_team("tickets", "research", 2.0)
    small.register(CORRECTED[0])
    assert small.asset("tickets").teams == (("research", 2.0),)


def test_a_cap_that_was_raised_after_a_charge_stays_in_sight(small, run, sqlite_url):
    """Also where somebody writes another registration behind it."""
    small.reserve("tickets", run(), [ONE])
    small.amend("tickets", 9.0)
    with Store.open(sqlite_url).write() as writing:
        writing.register_anew(replace(small.asset("tickets"), epsilon=9.0))
    assert [cap.epsilon for cap in small.books().caps("tickets")] == [4.0, 9.0, 9.0]


def receipt_of(ledger, reservation, **changes):
    lines = tuple(a_line(charge.id) for charge in reservation.charges)
    found = a_receipt(model=reservation.charges[-1].variant, queries=lines, ledger_head=ledger.head())
    return replace(found, **changes)


def committed(ledger, run):
    reservation = ledger.reserve("tickets", run, [ONE, TWO])
    for charge in reservation.charges:
        ledger.begin(charge)
    ledger.commit(reservation)
    return reservation


def test_a_paid_receipt_gives_its_charges(ledger, run):
    reservation = committed(ledger, run())
    found = paid_charges(ledger, "tickets", receipt_of(ledger, reservation), "release")
    assert [charge.id for charge in found] == [charge.id for charge in reservation.charges]


def test_nothing_builds_on_charges_that_were_not_paid(ledger, run):
    reservation = ledger.reserve("tickets", run(), [ONE, TWO])
    ledger.begin(reservation.charges[0])
    whole = receipt_of(ledger, reservation)
    for receipt in (whole, replace(whole, queries=()), replace(whole, queries=(a_line("nothing"),))):
        with pytest.raises(LedgerError, match="does not have the charges"):
            paid_charges(ledger, "tickets", receipt, "release")


def test_nothing_builds_on_the_receipt_of_another_model_or_ledger(ledger, run):
    reservation = committed(ledger, run())
    with pytest.raises(LedgerError, match="does not have the charges"):
        paid_charges(ledger, "tickets", receipt_of(ledger, reservation, model="another"), "release")
    with pytest.raises(LedgerError, match="lacks 1"):
        paid_charges(ledger, "tickets", receipt_of(ledger, reservation, ledger_head="0" * 64), "release")


def test_no_release_builds_on_a_reference(ledger, run):
    reservation = committed(ledger, run(purpose="reference"))
    receipt = receipt_of(ledger, reservation)
    with pytest.raises(LedgerError, match="is a reference"):
        paid_charges(ledger, "tickets", receipt, "release")
    assert len(paid_charges(ledger, "tickets", receipt, "reference")) == 2


def test_assets_do_not_share_a_budget(ledger, run):
    ledger.register(Asset("letters", 1e-6, 1.0, 500))
    ledger.reserve("letters", run(), [PlannedQuery("training", dpa.GaussianDpEvent(30.0))])
    assert ledger.books().chain.keys.keys() == {"letters", "tickets"}
    assert spent(ledger) == 0.0


def test_an_unknown_asset_is_refused(ledger, run):
    for call in (ledger.asset, ledger.charges, ledger.balance, lambda name: ledger.reserve(name, run(), [ONE])):
        with pytest.raises(LedgerError, match="not registered"):
            call("nobody's")


@pytest.mark.parametrize("terms", [{"delta": 0.0}, {"delta": 2.0}, {"epsilon": float("inf")}, {"n_public": 0}])
def test_impossible_terms_are_refused(small, terms):
    with pytest.raises(ValueError, match="must be"):
        small.register(replace(ASSET, name="other", **terms))


# --- the chain

TAMPERINGS = {
    "edit": ["UPDATE palimpsest_entry SET body = replace(body, '10.0', '99.0') WHERE seq = 2"],
    "delete": ["DELETE FROM palimpsest_entry WHERE seq = 2"],
    "delete the first": ["DELETE FROM palimpsest_entry WHERE seq = 1"],
    "reorder": [
        f"UPDATE palimpsest_entry SET seq = {new} WHERE seq = {old}" for old, new in ((2, 99), (3, 2), (99, 3))
    ],
    "kind": ["UPDATE palimpsest_entry SET kind = 'refund' WHERE seq = 4"],
    "owner": ["UPDATE palimpsest_entry SET asset = 'other' WHERE seq = 3"],
}


@pytest.mark.parametrize("statements", TAMPERINGS.values(), ids=TAMPERINGS)
def test_tampering_shows(ledger, run, url, statements):
    ledger.begin(ledger.reserve("tickets", run(), [ONE, TWO]).charges[0])
    assert ledger.books().entries == 4
    execute(url, *statements)
    with pytest.raises(LedgerError, match="changed by hand"):
        ledger.books()


def test_a_cut_tail_shows_against_a_witness(ledger, run, url, monkeypatch):
    ledger.begin(ledger.reserve("tickets", run(), [ONE]).charges[0])
    noted = ledger.head()
    assert ledger.books([noted]).entries == 3
    execute(url, "DELETE FROM palimpsest_entry WHERE seq = 3")
    with pytest.raises(LedgerError, match="lacks 1 of the entries that were noted elsewhere"):
        ledger.books()
    on_another_machine(monkeypatch)
    assert Ledger.open(url).books().entries == 2
    with pytest.raises(LedgerError, match="noted elsewhere"):
        Ledger.open(url).books([noted])


@pytest.mark.parametrize(
    ("moves", "forged"),
    [(["begin"], "refund"), (["begin", "commit"], "refund"), ([], "commit"), (["begin"], "begin"), ([], "reserve")],
)
def test_a_move_that_no_rule_admits_moves_nothing_though_its_hash_fits(small, run, sqlite_url, moves, forged):
    """Who may add entries can write past palimpsest: what began counts all the same, and nobody is stopped by it."""
    reservation = small.reserve("tickets", run(), [ONE])
    for move in moves:
        {"begin": lambda: small.begin(reservation.charges[0]), "commit": lambda: small.commit(reservation)}[move]()
    engine = sa.create_engine(sqlite_url)
    with engine.begin() as connection:
        last = connection.execute(sa.text("SELECT * FROM palimpsest_entry WHERE kind = 'reserve'")).one()
        chain.append(connection, "tickets", forged, reservation.charges[0].id, json.loads(last.body))
    engine.dispose()
    (fault,) = small.books().faults("tickets")
    assert "as no charge may move" in str(fault)
    assert (spent(small), small.charges("tickets")[0].counted) == (pytest.approx(cost(GAUSSIAN)), True)
    assert states(small) != ["reserved"] or forged == "reserve"
    small.reserve("tickets", run(variant="next"), [ONE])


@pytest.mark.parametrize("term", ["key_hash", "filter", "unit_column", "orders"])
def test_a_registration_that_leaves_out_a_term_is_refused(ledger, url, term):
    """A chain that was made anew from its first entry on, and whose hashes hold."""
    with sa.create_engine(url).connect() as connection:
        body = json.loads(connection.scalars(sa.text("SELECT body FROM palimpsest_entry")).one())
    del body[term]
    with sa.create_engine(url).begin() as connection:
        connection.execute(sa.text("UPDATE palimpsest_entry SET body = :body"), {"body": canonical_json(body)})
    rehash(url)
    words = "not the one of its registration" if term == "key_hash" else "does not have its form"
    two_parts(lambda: ledger.asset("tickets"), words)
    two_parts(lambda: ledger.register(ASSET), words)


@pytest.mark.parametrize(
    "change", ["UPDATE palimpsest_version SET version_num = '9999'", "DELETE FROM palimpsest_version",
               "DROP TABLE palimpsest_version"],
)  # fmt: skip
def test_tables_of_another_revision_are_refused_and_left_alone(ledger, url, change):
    execute(url, change)
    for _ in range(2):  # the first try makes nothing that the second would take for the ledger's own
        for method in (Ledger.open, Ledger.create):
            two_parts(lambda method=method: method(url), "of revision ('9999'|None); this version")


# --- many at once, and sudden ends


def test_no_budget_is_overspent_by_32_processes_at_once(url):
    done = race(url, writers=32, rounds=1)
    assert (done.asked, done.admitted, done.overspent) == (32, ADMITTED, 0)


def test_only_one_of_many_can_begin_a_charge(ledger, run):
    charge = ledger.reserve("tickets", run(), [ONE]).charges[0]

    def begin(_: int) -> bool:
        try:
            ledger.begin(charge)
        except LedgerError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(begin, range(8))) == 1


def _begin_and_wait(url: str, run: Run, begun: "multiprocessing.connection.Connection") -> None:
    ledger = Ledger.open(url)
    ledger.begin(ledger.reserve("tickets", run, [ONE, TWO]).charges[0])
    begun.send(True)
    signal.pause()


def test_a_killed_run_leaves_its_charge_begun_and_the_chain_whole(url, asset, run):
    Ledger.create(url).register(asset)
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_begin_and_wait, args=(url, run(), sender))
    child.start()
    assert receiver.recv()
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    ledger = Ledger.open(url)
    assert states(ledger) == ["begun", "reserved"]
    assert ledger.books().entries == 4
    assert spent(ledger) == pytest.approx(cost(GAUSSIAN, TWO.event))
    assert ledger.reserve("tickets", run(), [ONE, TWO], again=EVERYTHING).lost == 1


# --- places that fail


def two_parts(call: Callable[[], object], match: str) -> None:
    with pytest.raises(LedgerError, match=match) as refused:
        call()
    assert refused.value.problem
    assert refused.value.remedy


def test_a_missing_ledger_is_never_an_empty_one(url):
    two_parts(lambda: Ledger.open(url), "There is no ledger|cannot be read")


def test_creating_twice_keeps_what_is_there(ledger, run, url):
    ledger.reserve("tickets", run(), [ONE])
    assert states(Ledger.create(url)) == ["reserved"]


def test_a_corrupt_and_a_foreign_file_are_refused(tmp_path):
    (tmp_path / "corrupt.db").write_bytes(b"no database at all, but long enough to look" * 50)
    execute(f"sqlite:///{tmp_path}/foreign.db", "CREATE TABLE songs (title TEXT)")
    for name in ("corrupt", "foreign"):
        two_parts(lambda name=name: Ledger.open(f"sqlite:///{tmp_path}/{name}.db"), "cannot be read")
    two_parts(lambda: Ledger.create(f"sqlite:///{tmp_path}/corrupt.db"), "is there and cannot be opened")


def test_a_ledger_that_vanishes_while_open_is_an_error(ledger, url, run):
    execute(url, "DROP TABLE palimpsest_entry")
    for call in (ledger.head, ledger.books, lambda: ledger.balance("tickets")):
        two_parts(call, "cannot be read")
    two_parts(lambda: ledger.reserve("tickets", run(), [ONE]), "could not be written")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take another user's place")
def test_an_unreadable_ledger_is_an_error_as_another_user(small, sqlite_url):
    os.seteuid(65534)
    try:
        with pytest.raises(LedgerError, match="cannot be read") as found:
            Ledger.open(sqlite_url)
        assert "copy it and the files beside it to one that can" in found.value.remedy
    finally:
        os.seteuid(0)


def test_a_busy_ledger_is_said_to_be_busy_and_no_other_place_is_advised(small, sqlite_url, run, monkeypatch):
    def impatient(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA busy_timeout=10")

    monkeypatch.setattr(database, "_set_durable", impatient)
    place = Path(sqlite_url.removeprefix("sqlite:///"))
    opened, other = Ledger.open(sqlite_url), sqlite3.connect(place, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for call in (lambda: Ledger.create(sqlite_url), lambda: opened.reserve("tickets", run(), [ONE])):
        with pytest.raises(LedgerError, match="is busy: another process is writing it") as found:
            call()
        assert "PALIMPSEST_LEDGER" not in found.value.remedy
    other.close()
    assert opened.reserve("tickets", run(), [ONE]).run == 1
    closed = copied(place, place.with_name("copy.db"))
    other = sqlite3.connect(closed, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    two_parts(lambda: Ledger.open(f"sqlite:///{closed}"), "is busy: another process is writing it")
    other.close()


def test_another_place_is_advised_only_where_there_was_no_ledger(tmp_path):
    for name in ("file", "ledger.db"):
        (tmp_path / name).write_text("no database at all, but long enough to look" * 50)
    for place, advised in ((tmp_path / "file" / "ledger.db", True), (tmp_path / "ledger.db", False)):
        with pytest.raises(LedgerError) as found:
            Ledger.create(f"sqlite:///{place}")
        assert ("PALIMPSEST_LEDGER" in found.value.remedy) == advised


def test_a_place_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    two_parts(lambda: Ledger.create(f"sqlite:///{tmp_path}/file/ledger.db"), "cannot be created")


@pytest.mark.parametrize("address", ["sqlite://", "sqlite:///:memory:", "sqlite:///ledger.db", "no address", ""])
def test_an_address_that_names_no_lasting_place_is_refused(monkeypatch, tmp_path, address):
    monkeypatch.chdir(tmp_path)
    for method in (Ledger.open, Ledger.create):
        two_parts(lambda method=method: method(address), "address")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", ["user:hunter2@/ledger?host={}", "user@/ledger?host={}&password=hunter2"])
def test_an_unreachable_server_is_an_error_without_its_password(tmp_path, address):
    address = f"postgresql+psycopg://{address.format(tmp_path)}"
    with pytest.raises(LedgerError, match="cannot be read") as refused:
        Ledger.open(address)
    assert "hunter2" not in str(refused.value)


def test_a_missing_driver_is_an_error():
    two_parts(lambda: Ledger.open("firebird://user@host/ledger"), "address|driver|cannot be read")


def test_creating_an_existing_ledger_leaves_another_connection_its_locks(sqlite_url):
    first = Ledger.create(sqlite_url)
    first.register(ASSET)
    first.charges("tickets")
    amend = "Ledger.open(sys.argv[1]).amend('tickets', 5.0)"
    child = f"import sys; from palimpsest.privacy.ledger.ledger import Ledger; {amend}"
    for round_ in range(1, 4):
        Ledger.create(sqlite_url).amend("tickets", 9.0)
        subprocess.run([sys.executable, "-c", child, sqlite_url], check=True)
        assert first.books().entries == 1 + 2 * round_


def test_the_file_is_its_owners_alone(small, sqlite_url):
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.glob("ledger.db*")} == {0o600}


# --- the same rows under a second name


def test_the_same_rows_under_a_second_name_want_the_owners_word(small: Ledger):
    small.register(replace(ASSET, name="second"))
    small.know_rows("tickets", "aa")
    small.know_rows("tickets", "ab")  # other rows since
    before = small.books().entries
    small.know_rows("tickets", "aa")
    for likeness in ("aa", "ab"):
        with pytest.raises(LedgerError, match="The rows of asset 'second' are those of 'tickets'"):
            small.know_rows("second", likeness)
    with pytest.raises(LedgerError, match="no reason"):
        small.allow_same_rows("second", " ")
    assert small.books().entries == before
    small.allow_same_rows("second", "the trial had another name")
    small.know_rows("second", "aa")
    small.know_rows("tickets", "aa")
    assert small.books().known_likenesses("second") == {"aa"}
    assert small.books().charges("second") == []
    assert not list(Path(os.environ[VARIABLE]).glob("*"))  # nothing was charged: such a ledger may be removed


def test_rows_are_known_again_under_one_key_a_ledger(small: Ledger):
    key = small.books().rows_key
    small.register(replace(ASSET, name="second"))
    assert small.books().rows_key == key
    assert key not in (small.asset("tickets").key, small.asset("second").key)
