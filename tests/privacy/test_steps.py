"""Queries in steps: a crash costs steps, and neither a second charge nor one step more than was paid for."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any

import dp_accounting as dpa
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.errors import LedgerError
from palimpsest.privacy import entropy, view
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.ledger import ledger as protocol
from palimpsest.privacy.ledger import records, rules
from palimpsest.privacy.ledger.books import Books
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, Charge, Reservation, Run
from palimpsest.privacy.ledger.rules import preview, resume_never
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.query import Meter, register_query
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.session import Session, metered
from palimpsest.privacy.view import PrivateView
from palimpsest.records.schema import PublicSchema
from tests.machines import own_ledger
from tests.reading import EVERYTHING, reading

LIMIT = 8
STEP = dpa.PoissonSampledDpEvent(0.1, dpa.GaussianDpEvent(4.0))
WALK = dpa.SelfComposedDpEvent(STEP, LIMIT)
ROWS = [PrivateRow("a ticket", "refund")] * 3
SCHEMA = PublicSchema("tickets", "classify", "text", 1000, 200, "label", {"refund": ""})
RUN = Run("fit", "dp3", "release", "f", "p")


class Crash(Exception):
    """An attempt that ends in the middle."""


def nothing(_meter: Meter) -> None:
    """Go on."""


@register_query
@dataclass(frozen=True)
class Walk:
    """Noise alone, one value a step, kept in `drawn`; calls back between a block's beginning and its noise."""

    seen: Callable[[Meter], object] = nothing
    block: int = 1
    name: str = "walk"
    steps: int = LIMIT
    drawn: list[float] = field(default_factory=list)
    subject: str = ""

    def event(self) -> dpa.DpEvent:
        return WALK

    def run(self, rows: Sequence[PrivateRow], noise: NoiseSource) -> Any:
        raise AssertionError("a query in steps must not run at once")

    def run_steps(self, rows: Sequence[PrivateRow], noise: NoiseSource, meter: Meter) -> list[float]:
        while meter.begun < meter.limit:
            size = min(self.block, meter.limit - meter.begun)
            meter.begin(size)
            self.seen(meter)
            self.drawn.extend(noise.uniform(size))
        return self.drawn


@register_query
@dataclass(frozen=True)
class Handed:
    """Gives its meter away, so that a test may begin steps one by one."""

    name: str = "walk"
    steps: int = LIMIT
    subject: str = ""

    def event(self) -> dpa.DpEvent:
        return WALK

    def run(self, rows: Sequence[PrivateRow], noise: NoiseSource) -> Any:
        raise AssertionError("a query in steps must not run at once")

    def run_steps(self, rows: Sequence[PrivateRow], noise: NoiseSource, meter: Meter) -> Meter:
        return meter


def always(_charge: Charge) -> bool:
    return True


def until(begun: int) -> Callable[[Meter], None]:
    """Crash once so many steps have begun."""

    def stop(meter: Meter) -> None:
        if meter.begun >= begun:
            raise Crash

    return stop


def reserve(ledger: Ledger, resumable: Callable[[Charge], bool] = always, run: Run = RUN) -> Reservation:
    own = reading(run, ledger, "tickets", ROWS)
    return ledger.reserve("tickets", own, [PlannedQuery("walk", WALK, steps=LIMIT)], resumable, (), EVERYTHING)


def attempt(ledger: Ledger, query: Any, seed: int | None = None) -> Any:
    """Ask in a view of its own, as a new process would."""
    return PrivateView(ROWS, SCHEMA, ledger, reserve(ledger), NoiseSource(seed=seed)).ask(query)


def crashed(ledger: Ledger, begun: int, seed: int | None = None) -> list[float]:
    """An attempt that crashes once so many steps have begun; what it had drawn."""
    query = Walk(until(begun))
    with pytest.raises(Crash):
        attempt(ledger, query, seed)
    return query.drawn


def standing(ledger: Ledger) -> list[tuple[str, int]]:
    return [(charge.state, charge.steps_begun) for charge in ledger.charges("tickets")]


def spent(ledger: Ledger) -> float:
    return ledger.balance("tickets").spent


def refused(call: Callable[[], object], *problems: str) -> bool:
    """Whether the call is refused for one of these reasons."""
    try:
        call()
    except LedgerError as error:
        return bool(error.remedy) and any(problem in error.problem for problem in problems)
    return False


@pytest.fixture
def fresh(tmp_path) -> Callable[[], Ledger]:
    """Makes ledgers that know one asset."""
    numbers = count()

    def make() -> Ledger:
        made = own_ledger(tmp_path / str(next(numbers)))
        made.register(Asset("tickets", 1e-5, 4.0, 1000))
        return made

    return make


# --- what must hold; each planted fault below must break one of these


def check_a_crash_costs_steps_alone(ledger: Ledger) -> None:
    crashed(ledger, 3)
    first = spent(ledger)
    crashed(ledger, 5)
    drawn = attempt(ledger, Walk())
    assert len(drawn) == LIMIT - 5
    assert standing(ledger) == [("begun", LIMIT)]
    planned = {("", 1): [PlannedQuery("", WALK)]}
    assert spent(ledger) == first == pytest.approx(preview(ledger.asset("tickets"), [], planned).spent)
    assert attempt(ledger, Walk()) == []


def check_every_attempt_draws_new_noise(ledger: Ledger) -> None:
    drawn = [*crashed(ledger, 3), *crashed(ledger, 6), *attempt(ledger, Walk())]
    assert len(set(drawn)) == len(drawn) == LIMIT - 2  # the step in which an attempt crashed drew nothing


def check_steps_are_written_before_they_are_drawn(ledger: Ledger) -> None:
    written: list[tuple[int, int]] = []
    attempt(ledger, Walk(lambda meter: written.append((meter.begun, standing(ledger)[0][1])), block=3))
    assert written == [(3, 3), (6, 6), (8, 8)]


def check_one_process_at_a_time(ledger: Ledger) -> None:
    crashed(ledger, 2)
    one, two = attempt(ledger, Handed()), attempt(ledger, Handed())
    assert (one.begun, two.begun, one.charge) == (2, 2, two.charge)
    one.begin(2)
    assert refused(lambda: two.begin(3), "another process continues this run")
    assert (two.begun, standing(ledger)) == (2, [("begun", 4)])
    one.begin(4)


def check_the_limit_is_the_ledgers(ledger: Ledger) -> None:
    meter = attempt(ledger, Handed())
    (charge,) = ledger.charges("tickets")
    meter.begin(LIMIT - 1)
    assert refused(lambda: meter.begin(2), "pass what was paid for")
    assert refused(lambda: ledger.advance(replace(charge, steps=10**6), LIMIT - 1, 2), "pass what was paid for")
    meter.begin(1)
    assert standing(ledger) == [("begun", LIMIT)]


def check_a_seed_continues_nothing(ledger: Ledger) -> None:
    crashed(ledger, 3, seed=1)
    assert reserve(ledger).lost == 1
    assert len(attempt(ledger, Walk())) == LIMIT
    assert standing(ledger) == [("begun", 3), ("begun", LIMIT)]


CHECKS = [
    check_a_crash_costs_steps_alone,
    check_every_attempt_draws_new_noise,
    check_steps_are_written_before_they_are_drawn,
    check_one_process_at_a_time,
    check_the_limit_is_the_ledgers,
    check_a_seed_continues_nothing,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_it_holds(ledger, check):
    check(ledger)
    ledger.books()


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.integers(0, 3), st.integers(1, 4)),
        st.tuples(st.just("resume"), st.just(0), st.just(0)),
        st.tuples(st.just("other"), st.just(0), st.just(0)),
    ),
    max_size=12,
)


@settings(max_examples=25, deadline=None)
@given(OPERATIONS)
def test_no_order_of_crashes_and_rivals_passes_the_limit_or_moves_the_charge(tmp_path_factory, operations):
    """Attempts that a later one replaced stay alive here: each may be a process that was thought dead."""
    ledger = own_ledger(tmp_path_factory.mktemp("steps"))
    ledger.register(Asset("tickets", 1e-5, 4.0, 1000))
    meters, known, accepted, others = [attempt(ledger, Handed())], [0], 0, 0
    small = PlannedQuery("votes", dpa.GaussianDpEvent(40.0))
    for kind, who, steps in operations:
        before = spent(ledger)
        if kind == "resume":
            meters.append(attempt(ledger, Handed()))
            known.append(accepted)
            assert (meters[-1].begun, meters[-1].resumed) == (accepted, accepted > 0)
        elif kind == "other":
            others += 1
            ledger.begin(ledger.reserve("tickets", replace(RUN, variant=f"v{others}"), [small]).charges[0])
        else:
            who %= len(meters)
            if known[who] == accepted and accepted + steps <= LIMIT:
                meters[who].begin(steps)
                accepted += steps
                known[who] = accepted
            else:
                assert refused(partial(meters[who].begin, steps), "another process", "paid for")
        assert [pair for pair in standing(ledger) if pair != ("begun", 0)] == [("begun", accepted)] * (accepted > 0)
        assert len(ledger.charges("tickets")) == 1 + others
        assert accepted <= LIMIT
        assert spent(ledger) >= before
        asked = [PlannedQuery("", WALK), *[small] * others]
        assert spent(ledger) == pytest.approx(preview(ledger.asset("tickets"), [], {("", 1): asked}).spent)
    ledger.books()


# --- a real end


def _walk_and_hang(url: str, sender: "multiprocessing.connection.Connection") -> None:
    def hang(meter: Meter) -> None:
        sender.send((os.getpid(), meter.begun))
        if meter.begun >= 6:
            signal.pause()

    attempt(Ledger.open(url), Walk(hang, block=3))


def test_a_killed_process_is_continued_under_its_charge(url, asset):
    Ledger.create(url).register(asset)
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_walk_and_hang, args=(url, sender))
    child.start()
    assert [receiver.recv()[1] for _ in range(2)] == [3, 6]
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    assert child.exitcode == -signal.SIGKILL
    ledger = Ledger.open(url)
    before = spent(ledger)
    found = reserve(ledger)
    assert (found.resumed, found.steps, found.lost, found.run) == (6, LIMIT, 0, 1)
    assert len(attempt(ledger, Walk())) == LIMIT - 6
    ledger.commit(found)
    assert standing(ledger) == [("committed", LIMIT)]
    assert spent(ledger) == before
    assert ledger.books().entries == 8  # register, reserve, begin, 4 advances, commit


# --- many at once


def test_only_one_of_many_can_begin_a_step(ledger):
    charge = reserve(ledger).charges[0]
    ledger.begin(charge)

    def advance(_: int) -> bool:
        try:
            ledger.advance(charge, 0, 1)
        except LedgerError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(advance, range(8))) == 1
    assert standing(ledger) == [("begun", 1)]
    ledger.books()


# --- reserving and continuing


def test_what_cannot_be_resumed_is_charged_again_in_full(small):
    crashed(small, 3)
    once, asked = spent(small), []
    again = reserve(small, lambda charge: asked.append((charge.steps_begun, charge.steps)) is not None)
    assert asked == [(3, LIMIT)]
    assert (again.lost, again.resumed) == (1, 0)
    assert again.charges[0].state == "reserved"
    assert spent(small) > once
    assert standing(small) == [("begun", 3), ("reserved", 0)]


def test_the_newest_attempt_is_continued_and_older_ones_stay_lost(small):
    crashed(small, 3)
    small.begin(reserve(small, resume_never).charges[0])
    small.advance(small.charges("tickets")[1], 0, 2)
    found = reserve(small)
    assert (found.charges[0].id, found.resumed, found.lost) == (small.charges("tickets")[1].id, 2, 1)
    assert len(standing(small)) == 2


def test_another_plan_continues_nothing(small):
    crashed(small, 3)
    other = reserve(small, run=replace(RUN, plan="other"))
    assert (other.resumed, other.charges[0].state) == (0, "reserved")


def test_a_finished_run_is_not_continued(small):
    attempt(small, Walk())
    small.commit(reserve(small))
    assert (reserve(small).run, reserve(small).resumed) == (2, 0)
    assert standing(small) == [("committed", LIMIT), ("reserved", 0)]


def test_a_run_that_stops_early_commits(small):
    attempt(small, Handed()).begin(2)
    small.commit(reserve(small))
    assert standing(small) == [("committed", 2)]
    charge = small.charges("tickets")[0]
    assert refused(lambda: small.advance(charge, 2, 1), "is committed; it cannot advance")


def test_a_meter_tells_what_a_loop_needs(small):
    meter = attempt(small, Handed())
    assert (meter.charge, meter.limit) == (small.charges("tickets")[0].id, LIMIT)
    assert (meter.begun, meter.resumed, meter.lasting) == (0, False, True)
    meter.begin(3)
    assert (meter.begun, meter.resumed) == (3, False)
    assert attempt(small, Handed()).resumed


@pytest.mark.parametrize("steps", [0, -1, 0.5, float("nan")])
def test_less_than_a_step_is_refused(small, steps):
    meter = attempt(small, Handed())
    with pytest.raises(ValueError, match="steps"):
        meter.begin(steps)
    assert (meter.begun, standing(small)) == (0, [("begun", 0)])


@pytest.mark.parametrize("state", ["reserved", "refunded", "answered", "committed"])
def test_only_a_begun_charge_advances(small, state):
    found = reserve(small)
    (charge,) = found.charges
    if state == "refunded":
        small.refund(found.charges)
    if state in ("answered", "committed"):
        small.begin(charge)
        small.advance(charge, 0, 2)
        small.answer(charge, 1)
    if state == "committed":
        small.commit(found)
    begun = small.charges("tickets")[0].steps_begun
    assert refused(lambda: small.advance(charge, begun, 1), f"is {state}; it cannot advance")
    assert standing(small) == [(state, begun)]


def test_an_advanced_charge_begins_no_second_time(small):
    crashed(small, 3)
    assert refused(lambda: small.begin(reserve(small).charges[0]), "is begun; it cannot begin")
    assert small.refund(small.charges("tickets")) == 0


def test_a_charge_without_steps_neither_advances_nor_continues(small, run):
    at_once = small.reserve("tickets", run(variant="other"), [PlannedQuery("walk", WALK)], always).charges[0]
    small.begin(at_once)
    assert refused(lambda: small.advance(at_once, 0, 1), "pays for no steps")
    again = small.reserve("tickets", run(variant="other"), [PlannedQuery("walk", WALK)], always, (), EVERYTHING)
    assert again.charges[0].id != at_once.id


@pytest.mark.parametrize(
    ("event", "steps"),
    [
        (WALK, LIMIT + 1),
        (WALK, LIMIT - 1),
        (STEP, 1),
        (dpa.ComposedDpEvent([STEP] * LIMIT), LIMIT),
        (dpa.SelfComposedDpEvent(STEP, 0), 0),
    ],
)
def test_steps_that_the_event_does_not_compose_are_refused(small, event, steps):
    assert refused(
        lambda: small.reserve("tickets", RUN, [PlannedQuery("walk", event, steps=steps)]), "does not compose"
    )
    assert standing(small) == []


def test_a_reference_runs_in_steps_outside_the_total(small):
    reference, exact = replace(RUN, purpose="reference"), dpa.NonPrivateDpEvent()
    charge = small.reserve("tickets", reference, [PlannedQuery("walk", exact, steps=LIMIT)]).charges[0]
    small.begin(charge)
    small.advance(charge, 0, 3)
    assert small.reserve("tickets", reference, [PlannedQuery("walk", exact, steps=LIMIT)], always).resumed == 3
    assert spent(small) == 0.0


def test_a_lowered_count_shows_in_the_chain(small, sqlite_url):
    crashed(small, 3)
    engine = sa.create_engine(sqlite_url)
    with engine.begin() as connection:
        connection.exec_driver_sql("""UPDATE palimpsest_entry SET body = '{"begun":1}' WHERE kind = 'advance'""")
    engine.dispose()
    with pytest.raises(LedgerError, match="changed by hand"), opened(small):
        pass


# --- a session


def opened(ledger: Ledger) -> AbstractContextManager[Session]:
    requests = [PlannedQuery("votes", dpa.GaussianDpEvent(40.0)), PlannedQuery("walk", WALK, steps=LIMIT)]
    run = reading(RUN, ledger, "tickets", ROWS)
    return metered(ledger, SCHEMA, run, requests, lambda: ROWS, NoiseSource(), always)


def test_a_session_that_failed_is_continued_by_the_next(small):
    for begun in (3, 7):
        with pytest.raises(Crash), opened(small) as session:
            session.view.ask(Walk(until(begun)))
    with opened(small) as session:
        assert (session.reservation.resumed, session.reservation.lost) == (7, 0)
        assert len(session.view.ask(Walk())) == 1
        small.begin(session.reservation.charges[0])
    assert sorted(standing(small)) == [("committed", 0), ("committed", LIMIT), ("refunded", 0), ("refunded", 0)]


@pytest.mark.parametrize(("seed", "told"), [(None, False), (1, True)])
def test_a_session_untold_or_under_a_seed_pays_again(small, seed, told):
    crashed(small, 3)
    more = {"again": EVERYTHING} | ({"resumable": always} if told else {})
    requests = [PlannedQuery("walk", WALK, steps=LIMIT)]
    run = reading(RUN, small, "tickets", ROWS)
    with metered(small, SCHEMA, run, requests, lambda: ROWS, NoiseSource(seed=seed), **more) as session:
        assert (session.reservation.resumed, session.reservation.lost) == (0, 1)
        assert len(session.view.ask(Walk())) == LIMIT
    assert standing(small) == [("begun", 3), ("committed", LIMIT)]


def test_a_view_under_a_seed_continues_nothing(small):
    crashed(small, 3)
    query = Walk()
    assert refused(lambda: attempt(small, query, seed=1), "a seed fixes its noise")
    assert (query.drawn, standing(small)) == ([], [("begun", 3)])


def test_a_meter_under_a_seed_does_not_last(small):
    assert not attempt(small, Handed(), seed=1).lasting


# --- mutants: one fault each, and the check that sees it --------------------------------------------------------------


def wrap(patch, owner, name, wrapper):
    patch.setattr(owner, name, wrapper(getattr(owner, name)))


def restarted_meter(patch):
    def wrapper(original):
        def mutant(*given):
            made = original(*given)
            made.begun = 0
            return made

        return mutant

    wrap(patch, view, "_Steps", wrapper)


def trusted_count(patch):
    def wrapper(check):
        return lambda charge, standing, begun, steps: check(charge, replace(standing, begun=begun), begun, steps)

    wrap(patch, protocol, "check_advance", wrapper)


def restarted_everywhere(patch):
    restarted_meter(patch)
    trusted_count(patch)


def count_forgotten_when_read(patch):
    def wrapper(original):
        return lambda *given: [replace(charge, steps_begun=0) for charge in original(*given)]

    wrap(patch, Books, "charges", wrapper)


def no_limit(patch):
    def wrapper(check):
        return lambda charge, standing, begun, steps: check(charge, replace(standing, steps=10**9), begun, steps)

    wrap(patch, protocol, "check_advance", wrapper)


def limit_of_the_caller(patch):
    def wrapper(check):
        return lambda charge, standing, begun, steps: check(charge, replace(standing, steps=charge.steps), begun, steps)

    wrap(patch, protocol, "check_advance", wrapper)


def nothing_written(patch):
    patch.setattr(Ledger, "advance", lambda self, charge, begun, steps: None)


def charged_again(patch):
    patch.setattr(rules, "_is_usable", lambda charge, resumable: charge.state != "begun")


def begun_is_free(patch):
    patch.setattr(records, "_COUNTED", ("reserved", "answered", "committed"))


def same_key_every_time(patch):
    patch.setattr(entropy.os, "urandom", bytes)


def seeded_steps_continue(patch):
    patch.setattr(rules, "_is_usable", lambda charge, resumable: resumable(charge))


MUTANTS = [
    (restarted_meter, check_a_crash_costs_steps_alone),
    (restarted_everywhere, check_a_crash_costs_steps_alone),
    (count_forgotten_when_read, check_a_crash_costs_steps_alone),
    (charged_again, check_a_crash_costs_steps_alone),
    (begun_is_free, check_a_crash_costs_steps_alone),
    (same_key_every_time, check_every_attempt_draws_new_noise),
    (nothing_written, check_steps_are_written_before_they_are_drawn),
    (nothing_written, check_one_process_at_a_time),
    (trusted_count, check_one_process_at_a_time),
    (no_limit, check_the_limit_is_the_ledgers),
    (limit_of_the_caller, check_the_limit_is_the_ledgers),
    (seeded_steps_continue, check_a_seed_continues_nothing),
]


@pytest.mark.parametrize(("mutate", "check"), MUTANTS, ids=lambda part: part.__name__)
def test_each_planted_fault_is_seen(monkeypatch, fresh, mutate, check):
    check(fresh())
    mutate(monkeypatch)
    with pytest.raises((AssertionError, LedgerError)):
        check(fresh())
