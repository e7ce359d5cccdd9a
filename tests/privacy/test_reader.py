"""Entries that fit the chain and say what none may: each counts, none stops the ledger, and the owner strikes them."""

import json
import math
from collections.abc import Callable
from typing import Any

import dp_accounting as dpa
import pytest
import sqlalchemy as sa

from palimpsest.errors import BudgetExceeded, LedgerError
from palimpsest.privacy import events
from palimpsest.privacy.gaussian_share import cover_charge
from palimpsest.privacy.ledger import chain
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, Reservation, Run
from palimpsest.privacy.planned import PlannedQuery
from tests.machines import own_ledger
from tests.reading import EVERYTHING

ONE = PlannedQuery("votes", dpa.GaussianDpEvent(10.0))
DEAR = PlannedQuery("votes", dpa.LaplaceDpEvent(0.05))  # of epsilon 20
WALK = PlannedQuery("walk", dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(40.0), 10), steps=10)
Runs = Callable[..., Run]


def body(own: Run, asked: PlannedQuery = ONE, **changes: Any) -> dict[str, Any]:
    """What a reservation says, with changes; a field that is changed to `...` is left out."""
    said = {
        "run_key": own.key, "run": 1, "index": 0, "stage": own.stage, "variant": own.variant, "purpose": own.purpose,
        "fingerprint": own.fingerprint, "query": asked.name, "event": events.to_json(asked.event),
        "own_delta": asked.own_delta, "adjacency": asked.adjacency, "partition": None, "versions": dict(asked.versions),
        **({} if asked.steps is None else {"steps": asked.steps}), **changes,
    }  # fmt: skip
    return {name: value for name, value in said.items() if value is not ...}


def write(url: str, kind: str, said: Any, charge: str | None = "c", asset: str = "tickets") -> int:
    """Add an entry past palimpsest, as the database lets an analyst; returns its number."""
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        entry = chain.append(connection, asset, kind, charge, said)
    engine.dispose()
    return entry.seq


def gaussian(url: str) -> Ledger:
    ledger = Ledger.create(url)
    ledger.register(Asset("tickets", 1e-5, 1.0, 1000, filter="gdp"))
    return ledger


# --- shares of a Gaussian budget


@pytest.mark.parametrize("share", [{"mu": 0.0, "beside": 0.0}, {"mu": 0.01, "beside": 1e-7}, ...])
def test_a_share_that_covers_nothing_is_counted_at_what_covers_the_event(sqlite_url, run, share):
    ledger = gaussian(sqlite_url)
    seq = write(sqlite_url, "reserve", body(run(), DEAR, share=share))
    assert ledger.balance("tickets").spent > 15.0
    (fault,) = ledger.books().faults("tickets")
    assert (fault.seq, fault.kind, "Gaussian budget" in fault.what) == (seq, "reserve", True)
    with pytest.raises(BudgetExceeded):  # the very run whose reservation was written for it
        ledger.reserve("tickets", run(), [DEAR])
    assert [charge.state for charge in ledger.charges("tickets")] == ["reserved"]


def test_an_understated_share_counts_for_its_event_also_where_it_is_struck(sqlite_url, run):
    ledger = gaussian(sqlite_url)
    seq = write(sqlite_url, "reserve", body(run(), ONE, share={"mu": 0.0, "beside": 0.0}))
    (charge,) = ledger.charges("tickets")
    assert charge.share == cover_charge(ONE.event, 0.0, 0.0)
    ledger.strike("tickets", seq, "a slip")
    assert ledger.charges("tickets") == [charge]
    assert [fault.struck for fault in ledger.books().faults("tickets")] == ["a slip"]


# --- reservations that say what none may

STEP = {"type": "GaussianDpEvent", "noise_multiplier": 1.0}
NONSENSE = {
    "a negative count": {"event": {"type": "SelfComposedDpEvent", "event": STEP, "count": -9}},
    "half a step": {"event": {"type": "SelfComposedDpEvent", "event": STEP, "count": 0.5}},
    "a negative scale": {"event": {**STEP, "noise_multiplier": -1.0}},
    "no scale": {"event": {**STEP, "noise_multiplier": 0.0}},
    "an infinite scale": {"event": {**STEP, "noise_multiplier": math.inf}},
    "a negative rho": {"event": {"type": "ZCDpEvent", "rho": -1.0, "xi": 0.0}},
    "a rate above one": {"event": {"type": "PoissonSampledDpEvent", "sampling_probability": 1.5, "event": STEP}},
    "a further field": {"event": {**STEP, "more": 1}},
    "no event": {"event": ...},
    "another event": {"event": {"type": "FreeDpEvent"}},
    "a number for an event": {"event": 3},
    "a huge count": {"event": {"type": "SelfComposedDpEvent", "event": STEP, "count": 10**400}},
    "a negative delta": {"own_delta": -1e-6},
    "no number for a delta": {"own_delta": math.nan},
    "a delta above one": {"own_delta": 2.0},
    "another adjacency": {"adjacency": "replace_one"},
    "another purpose": {"purpose": "nothing"},
    "more steps than its event has": {"steps": 7},
    "a negative index": {"index": -1},
    "a run of no number": {"run": "1"},
    "half a partition": {"partition": ["label"]},
    "no versions": {"versions": ...},
    "a version of no number": {"versions": {"votes": "1"}},
}


@pytest.mark.parametrize("filter", ["renyi", "gdp"])
@pytest.mark.parametrize("changes", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_fills_the_budget_until_the_owner_strikes_it(tmp_path, run, changes, filter):
    ledger = own_ledger(tmp_path)
    ledger.register(Asset("tickets", 1e-5, 4.0, 1000, filter=filter))
    ledger.reserve("tickets", run(variant="before"), [ONE])
    before = ledger.balance("tickets")
    share = {"share": {"mu": 9.0, "beside": 0.0}} if filter == "gdp" else {}
    seq = write(f"sqlite:///{tmp_path}/ledger.db", "reserve", body(run(), **{**share, **changes}))
    assert ledger.balance("tickets").spent == math.inf
    assert [(fault.seq, fault.fills) for fault in ledger.books().filling_faults("tickets")] == [(seq, True)]
    with pytest.raises(BudgetExceeded, match=rf"entry {seq} \(reserve\) says.*") as refused:
        ledger.reserve("tickets", run(variant="after"), [ONE])
    assert "--strike" in refused.value.remedy
    ledger.strike("tickets", seq, "nobody ran it")
    assert ledger.balance("tickets") == before
    ledger.reserve("tickets", run(variant="after"), [ONE])


def test_no_event_takes_back_what_another_cost(small, run, sqlite_url):
    small.reserve("tickets", run(), [PlannedQuery("training", dpa.GaussianDpEvent(2.0))])
    spent = small.balance("tickets").spent
    less = {"type": "ComposedDpEvent", "events": [{"type": "SelfComposedDpEvent", "event": STEP, "count": -9}]}
    write(sqlite_url, "reserve", body(run(variant="less"), event=less))
    assert small.balance("tickets").spent > spent


@pytest.mark.parametrize("text", ["[]", '"text"', "{", "[" * 9999])
def test_a_body_that_is_no_object_stops_nobody(small, run, sqlite_url, monkeypatch, text):
    charge = small.reserve("tickets", run(), [ONE]).charges[0]
    monkeypatch.setattr(chain, "canonical_json", lambda said: said if isinstance(said, str) else json.dumps(
        said, sort_keys=True, separators=(",", ":")))  # fmt: skip
    rows, begun = write(sqlite_url, "rows", text, None), write(sqlite_url, "begin", text, charge.id)
    monkeypatch.undo()
    assert {fault.seq for fault in small.books().faults("tickets")} == {rows, begun}
    assert [each.state for each in small.charges("tickets")] == ["begun"]
    assert small.reserve("tickets", run(variant="next"), [ONE]).run == 1


# --- moves


def test_steps_that_had_begun_never_begin_again(small, run, sqlite_url):
    charge = small.reserve("tickets", run(), [WALK]).charges[0]
    small.begin(charge)
    small.advance(charge, 0, 6)
    seq = write(sqlite_url, "advance", {"begun": 2}, charge.id)
    again = small.reserve("tickets", run(), [WALK], lambda charge: True)
    assert again.charges[0].steps_begun >= 6
    write(sqlite_url, "advance", {"begun": 2, "more": "x" * 9}, charge.id)
    with pytest.raises(LedgerError, match="has begun 10 steps, not 2"):
        small.advance(charge, 2, 1)
    small.strike("tickets", seq + 1, "written by hand")
    with pytest.raises(LedgerError, match="has begun 6 steps, not 2"):
        small.advance(charge, 2, 1)
    small.strike("tickets", seq, "written by hand")
    (charge,) = small.reserve("tickets", run(), [WALK], lambda charge: True).charges
    assert charge.steps_begun == 6
    small.advance(charge, 6, 4)


@pytest.mark.parametrize("begun", [11, "9", 6.5, True, None])
def test_steps_that_cannot_have_begun_are_all_of_them(small, run, sqlite_url, begun):
    charge = small.reserve("tickets", run(), [WALK]).charges[0]
    small.begin(charge)
    write(sqlite_url, "advance", {"begun": begun}, charge.id)
    assert [each.steps_begun for each in small.charges("tickets")] == [10]
    assert [fault.kind for fault in small.books().faults("tickets")] == ["advance"]


@pytest.mark.parametrize("kind", ["begin", "advance", "answer", "commit"])
def test_what_moves_a_charge_that_nobody_reserved_fills_the_budget(small, run, sqlite_url, kind):
    seq = write(sqlite_url, kind, {}, "another")
    write(sqlite_url, "commit", {}, "another")
    assert small.balance("tickets").spent == math.inf
    small.strike("tickets", seq, "no such charge")
    assert small.balance("tickets").spent == 0.0


def test_what_was_given_back_and_begins_all_the_same_counts(small, run, sqlite_url):
    charge = small.reserve("tickets", run(), [ONE]).charges[0]
    spent = small.balance("tickets").spent
    small.refund([charge])
    write(sqlite_url, "begin", {"noise_fixed": False}, charge.id)
    assert (small.balance("tickets").spent, small.charges("tickets")[0].state) == (spent, "begun")


# --- the owner's strike


def test_only_what_may_not_stand_is_struck_and_never_what_was_charged(small, run):
    charge = small.reserve("tickets", run(), [ONE]).charges[0]
    for seq in (1, charge.seq, 99):
        with pytest.raises(LedgerError, match="can be struck"):
            small.strike("tickets", seq, "because")


def test_a_strike_has_a_reason(small, sqlite_url):
    seq = write(sqlite_url, "commit", {}, "another")
    with pytest.raises(LedgerError, match="no reason"):
        small.strike("tickets", seq, " ")


def test_a_strike_of_what_may_stand_takes_nothing_back(small, run, sqlite_url):
    charge = small.reserve("tickets", run(), [ONE]).charges[0]
    spent = small.balance("tickets").spent
    write(sqlite_url, "strike", {"entry": charge.seq, "because": "mine"}, None)
    assert (small.balance("tickets").spent, small.books().faults("tickets")) == (spent, [])


# --- what an earlier attempt reserved


def test_a_reservation_past_the_cap_is_not_run(small, run, sqlite_url):
    dear = PlannedQuery("votes", dpa.GaussianDpEvent(0.3))
    write(sqlite_url, "reserve", body(run(), dear))
    with pytest.raises(BudgetExceeded, match="would pass the budget"):
        small.reserve("tickets", run(), [dear])
    small.amend("tickets", 100.0)
    assert small.reserve("tickets", run(), [dear]).charges[0].id == "c"


def test_what_began_under_a_charge_past_every_cap_does_not_go_on(small, run, sqlite_url):
    dear = PlannedQuery("walk", dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(0.3), 10), steps=10)
    write(sqlite_url, "reserve", body(run(), dear))
    write(sqlite_url, "begin", {"noise_fixed": False})
    with pytest.raises(BudgetExceeded, match="above every cap"):
        small.reserve("tickets", run(), [dear], lambda charge: True)


def test_what_began_within_its_cap_goes_on_though_that_was_lowered(small, run):
    charge = small.reserve("tickets", run(), [WALK]).charges[0]
    small.begin(charge)
    small.amend("tickets", 0.001)
    assert small.reserve("tickets", run(), [WALK], lambda charge: True).charges[0].id == charge.id


OTHERS = pytest.mark.parametrize(
    "changes",
    [
        {"purpose": "reference"},
        {"event": events.to_json(dpa.GaussianDpEvent(1000.0))},
        {"own_delta": 1e-7},
        {"partition": ["label", "a"]},
        {"query": "other"},
    ],
)


@OTHERS
def test_a_reservation_of_another_query_is_not_used(small, run, sqlite_url, changes):
    write(sqlite_url, "reserve", body(run(), **changes))
    (charge,) = small.reserve("tickets", run(), [ONE]).charges
    assert (charge.id == "c", charge.purpose, charge.event) == (False, "release", ONE.event)


@OTHERS
def test_rows_are_not_made_again_of_what_another_query_told(small, run, sqlite_url, changes):
    write(sqlite_url, "reserve", body(run(), **changes))
    (charge,) = small.charges("tickets")
    small.begin(charge)
    small.answer(charge, [1])
    small.commit(Reservation((charge,), 1, {}))
    assert small.charges("tickets")[0].state == "committed"
    assert small.find_answered("tickets", run(), [ONE]) is None


# --- one set of rows under several names


@pytest.fixture
def twice(small: Ledger, run: Runs) -> Ledger:
    """Rows that were charged under one name and have a second, by the owner's word."""
    small.know_rows("tickets", "aa")
    small.reserve("tickets", run(), [PlannedQuery("training", dpa.GaussianDpEvent(2.0))])
    small.register(Asset("second", 1e-5, 3.0, 1000))
    small.allow_same_rows("second", "a trial", "aa")
    return small


def test_what_was_charged_under_both_names_adds_up_under_each(twice, run):
    first = twice.balance("tickets").spent
    assert twice.balance("second").spent == first > 2.0
    assert twice.books().names("second") == ("tickets",)
    twice.reserve("second", run(variant="more"), [ONE])
    assert twice.balance("second").spent == twice.balance("tickets").spent > first
    assert {charge.asset for charge in twice.charges("second")} == {"tickets", "second"}


def test_the_cap_of_each_name_is_held_against_the_sum(twice, run):
    half = PlannedQuery("training", dpa.GaussianDpEvent(2.0))
    with pytest.raises(BudgetExceeded):
        twice.reserve("second", run(variant="more"), [half])
    own_first = twice.books().account("second").charges
    assert own_first == ()


def test_a_gaussian_budget_gives_a_share_to_what_another_name_was_charged(twice, run):
    twice.register(Asset("third", 1e-5, 30.0, 1000, filter="gdp"))
    twice.reserve("tickets", run(variant="laplace"), [PlannedQuery("mean", dpa.LaplaceDpEvent(9.0))])
    twice.allow_same_rows("third", "another trial", "aa")
    balance = twice.balance("third")
    assert 2.0 < balance.spent < 30.0
    assert balance.fits
    assert all(charge.share is not None for charge in twice.charges("third"))


def test_charges_of_another_unit_are_named_and_in_no_sum(twice):
    twice.register(Asset("people", 1e-5, 3.0, 1000, unit="person", unit_column="author"))
    twice.allow_same_rows("people", "by author", "aa")
    books = twice.books()
    assert (books.names("people"), set(books.other_units("people"))) == ((), {"tickets", "second"})
    assert books.balance("people").spent == 0.0


def test_the_owner_strikes_rows_that_are_said_to_be_others(twice, sqlite_url):
    twice.register(Asset("letters", 1e-5, 4.0, 1000))
    seq = write(sqlite_url, "rows", {"likeness": "aa"}, None, "letters")
    assert twice.balance("letters").spent > 0.0
    twice.strike("letters", seq, "these are letters")
    assert twice.balance("letters").spent == 0.0


def test_a_retry_is_charged_as_before_beside_another_name(twice, run):
    reservation = twice.reserve("second", run(variant="more"), [ONE])
    twice.begin(reservation.charges[0])
    assert twice.reserve("second", run(variant="more"), [ONE], again=EVERYTHING).lost == 1
