"""A second charge of one variant on the same rows needs the owner's word, which holds once, wherever a run stops."""

from dataclasses import replace
from typing import Any

import dp_accounting as dpa
import pytest

from palimpsest.errors import BudgetExceeded, ConsentNeeded
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.ledger import records
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Charge, Reservation, Run
from palimpsest.privacy.ledger.rules import resume_never
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.session import metered
from palimpsest.privacy.shown import up
from palimpsest.records.schema import PublicSchema
from tests.reading import EVERYTHING

GAUSSIAN = dpa.GaussianDpEvent(20.0)
STEPS = PlannedQuery("walk", dpa.SelfComposedDpEvent(GAUSSIAN, 4), steps=4)
PLAN = [PlannedQuery("votes", GAUSSIAN), STEPS]
SCHEMA = PublicSchema("tickets", "classify", "text", 1000, 200, "label", {"refund": ""})


def goes_on(_charge: Charge) -> bool:
    return True


def left(ledger: Ledger, run: Run, states: tuple[str, str]) -> None:
    """An attempt that left its two charges so."""
    for charge, state in zip(ledger.reserve("tickets", run, PLAN).charges, states, strict=True):
        if state == "refunded":
            ledger.refund([charge])
        if state in ("begun", "answered"):
            ledger.begin(charge)
        if state == "answered":
            ledger.answer(charge, 1)


def word_of(ledger: Ledger, run: Run) -> str:
    return records.consent_word(run, ledger.charges("tickets"))


STATES = ("reserved", "refunded", "begun", "answered")


@pytest.mark.parametrize("continues", [False, True])
@pytest.mark.parametrize("second", ["reserved", "refunded", "begun"])
@pytest.mark.parametrize("first", STATES)
def test_what_is_charged_again_and_nothing_else_needs_a_word(small, run, first, second, continues):
    left(small, run(), (first, second))
    resumable = goes_on if continues else resume_never
    lost = first == "begun" or (second == "begun" and not continues)
    before = small.head(), small.balance("tickets").spent
    if lost:
        with pytest.raises(ConsentNeeded):
            small.reserve("tickets", run(), PLAN, resumable)
        assert (small.head(), small.balance("tickets").spent) == before
    words = {word_of(small, run())} if lost else ()
    small.reserve("tickets", run(), PLAN, resumable, again=words)
    assert (small.balance("tickets").spent > before[1]) == (lost or "refunded" in (first, second))


def finished(ledger: Ledger, run: Run, words: Any = ()) -> None:
    reservation = ledger.reserve("tickets", run, PLAN[:1], again=words)
    ledger.begin(reservation.charges[0])
    ledger.commit(reservation)


def test_a_finished_run_needs_a_word_for_each_repetition(small, run):
    finished(small, run())
    word = word_of(small, run())
    with pytest.raises(ConsentNeeded, match="this plan already ran on these data"):
        finished(small, run())
    finished(small, run(), {word})
    with pytest.raises(ConsentNeeded):
        finished(small, run(), {word})  # as a shell that exported it would
    finished(small, run(), {word_of(small, run())})


def test_a_word_holds_until_its_charge_has_begun(small, run):
    """Whoever says yes and stops before anything begins is not asked to pay, and need not say it anew."""
    finished(small, run())
    word = word_of(small, run())
    small.refund(small.reserve("tickets", run(), PLAN[:1], again={word}).charges)
    (charge,) = small.reserve("tickets", run(), PLAN[:1], again={word}).charges
    assert small.reserve("tickets", run(), PLAN[:1]).charges == (charge,)  # reserved already
    small.begin(charge)
    with pytest.raises(ConsentNeeded):
        small.reserve("tickets", run(), PLAN[:1], again={word})


@pytest.mark.parametrize("other", [{"variant": "dp1"}, {"fingerprint": "another"}])
def test_another_variant_and_other_rows_need_no_word_once(small, run, other):
    finished(small, run())
    finished(small, run(**other))
    with pytest.raises(ConsentNeeded):
        finished(small, run(**other), {word_of(small, run())})


def test_other_settings_of_a_variant_need_a_word_on_the_same_rows(small, run):
    """Whatever version or setting changed: what was charged stays charged, and a schedule can ask nobody."""
    finished(small, run())
    with pytest.raises(ConsentNeeded, match="with other settings"):
        finished(small, run(plan="another"))
    with pytest.raises(ConsentNeeded):
        finished(small, run(plan="another"), {word_of(small, run())})
    finished(small, run(plan="another"), {word_of(small, run(plan="another"))})


def test_a_raised_version_is_named(small, run):
    old, new = (replace(PLAN[0], versions=(("encoder", 2), ("votes", number))) for number in (1, 2))
    small.commit(began(small, small.reserve("tickets", run(), [old])))
    with pytest.raises(ConsentNeeded, match=r"\(votes is version 2 now and was 1\)"):
        small.reserve("tickets", run(plan="another"), [new])


def began(ledger: Ledger, reservation: Reservation) -> Reservation:
    for charge in reservation.charges:
        ledger.begin(charge)
    return reservation


def test_the_error_says_what_it_costs_and_which_word_to_give(small, run):
    finished(small, run())
    once = small.balance("tickets").spent
    with pytest.raises(ConsentNeeded) as told:
        finished(small, run())
    finished(
        small,
        run(),
        records.read_consents({records.CONSENT: told.value.remedy.partition(f"{records.CONSENT}=")[2].split()[0]}),
    )
    twice = small.balance("tickets").spent
    assert f"from epsilon {up(once)} to {up(twice)} of 4" in told.value.problem
    assert "no row was read" in told.value.remedy


def test_nothing_is_read_before_the_word_is_there(small, run):
    finished(small, run())
    read: list[bool] = []
    with (
        pytest.raises(ConsentNeeded),
        metered(small, SCHEMA, run(), PLAN[:1], lambda: read.append(True) or [], NoiseSource()),
    ):
        pass
    assert read == []


def test_a_word_buys_nothing_beyond_the_budget(small, run):
    dear = [PlannedQuery("votes", dpa.GaussianDpEvent(1.5))]
    reservation = small.reserve("tickets", run(), dear)
    small.begin(reservation.charges[0])
    small.commit(reservation)
    with pytest.raises(BudgetExceeded):
        small.reserve("tickets", run(), dear, again=EVERYTHING)


def test_a_reference_is_outside_the_total_and_asks_nobody(small, run):
    for _ in range(2):
        finished(small, run(purpose="reference"))
    assert small.balance("tickets").spent == 0.0


@pytest.mark.parametrize("text", ["a@b:1 c@d:2", "a@b:1,c@d:2", " a@b:1,\n c@d:2,"])
def test_words_are_divided_by_commas_or_spaces(text):
    assert records.read_consents({records.CONSENT: text}) == {"a@b:1", "c@d:2"}
    assert records.read_consents({}) == records.read_consents({records.CONSENT: " "}) == frozenset()
