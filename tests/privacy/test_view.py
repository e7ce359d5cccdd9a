"""The door: only what is registered and reserved gets through, and it is written down before noise is drawn."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import dp_accounting as dpa
import numpy as np
import pytest

from palimpsest.errors import LedgerError, OtherSubject
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.privacy import accounting
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.events import DiscreteGaussianDpEvent
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.summary import ledger_summary
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.privacy.query import Meter, plain_digest, register_query, subject_digest
from palimpsest.privacy.receipt import Group
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.session import metered, receipt
from palimpsest.privacy.view import PrivateView
from palimpsest.records.schema import PublicSchema
from tests.reading import reading

SECRET = "the order number is 8812-XK"
ROWS = [PrivateRow(SECRET, "refund")] * 3
LABELS = ("refund", "outage")
HISTOGRAM = LabelHistogram(LABELS, 2.0)
SCHEMA = PublicSchema("tickets", "classify", "text", 1000, 200, "label", dict.fromkeys(LABELS, ""))


@register_query
@dataclass(frozen=True)
class Watched:
    """Calls back while it runs."""

    seen: Callable[[], Any]
    name: str = "watched"
    subject: str = "seen"

    def event(self) -> dpa.DpEvent:
        return dpa.ComposedDpEvent((dpa.GaussianDpEvent(9.0),))

    def run(self, rows: Sequence[PrivateRow], noise: NoiseSource) -> Any:
        return self.seen()


@register_query
@dataclass(frozen=True)
class AtOnce:
    """Composed of two steps, and counts neither."""

    name: str = "stepped"
    subject: str = ""

    def event(self) -> dpa.DpEvent:
        return dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(9.0), 2)

    def run(self, rows: Sequence[PrivateRow], noise: NoiseSource) -> Any:
        raise AssertionError("it must not run")


@register_query
@dataclass(frozen=True)
class Stepped(AtOnce):
    """The same, and counts them."""

    steps: int = 2

    def run_steps(self, rows: Sequence[PrivateRow], noise: NoiseSource, meter: Meter) -> int:
        meter.begin(self.steps)
        return meter.begun


@register_query
@dataclass(frozen=True)
class Failing:
    """Keeps to its event only up to a delta of its own."""

    own_delta: float
    name: str = "failing"
    subject: str = ""

    def event(self) -> dpa.DpEvent:
        return dpa.ZCDpEvent(0.001)

    def run(self, rows: Sequence[PrivateRow], noise: NoiseSource) -> Any:
        return "answered"


class OfModel(Watched):
    """One whose answer comes of a model."""

    reads_model: ClassVar[bool] = True


class Unregistered(LabelHistogram):
    """A subclass of a registered query that would return rows."""

    def run(self, rows: Sequence[PrivateRow], noise: NoiseSource) -> Any:
        return rows


@pytest.fixture
def opened(small: Ledger, run):
    """A view on three rows with these queries reserved."""

    def make(*planned: Any, seed: int | None = None) -> PrivateView:
        requests = [PlannedQuery(query.name, query.event()) for query in planned]
        return PrivateView(ROWS, SCHEMA, small, small.reserve("tickets", run(), requests), NoiseSource(seed=seed))

    return make


def states(ledger: Ledger) -> list[str]:
    return [charge.state for charge in ledger.charges("tickets")]


def test_a_reserved_query_is_answered_once(opened, small):
    view = opened(HISTOGRAM)
    assert set(view.ask(HISTOGRAM)) == set(LABELS)
    assert states(small) == ["answered"]
    with pytest.raises(LedgerError, match="no reservation"):
        view.ask(HISTOGRAM)


def test_an_answer_is_replayed_onto_its_own_subject_alone(opened, small, run):
    """A stopped attempt asked about other labels, by a query of the same name and cost."""
    answer = opened(HISTOGRAM).ask(HISTOGRAM)
    assert opened(HISTOGRAM).ask(HISTOGRAM) == answer
    with pytest.raises(OtherSubject, match="answered about other candidates"):
        opened(HISTOGRAM).ask(replace(HISTOGRAM, labels=("another", "label")))
    assert states(small) == ["answered"]


def test_a_query_that_reads_a_model_is_known_by_its_public_sources():
    digests = {subject_digest(query, source) for query in (HISTOGRAM, OfModel(list)) for source in ("one", "two")}
    assert len(digests) == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["a", "b"], ["ab"]),
        (["a", ["b"]], [["a"], "b"]),
        ({"a": 1}, {"a": "1"}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        (np.zeros(2), np.zeros(2, dtype=np.float32)),
        (1, True),
        (None, "None"),
    ],
)
def test_other_subjects_have_other_digests(one: Any, other: Any):
    assert plain_digest(one) == plain_digest(one) != plain_digest(other)


def test_a_subject_is_plain():
    with pytest.raises(TypeError, match="no plain value"):
        plain_digest([object()])


@pytest.mark.parametrize("other", [LabelHistogram(LABELS, 1.9), LabelHistogram(LABELS, 2.0, name="another")])
def test_a_query_that_was_not_reserved_is_refused_and_nothing_begins(opened, small, other):
    with pytest.raises(LedgerError, match="no reservation"):
        opened(HISTOGRAM).ask(other)
    assert states(small) == ["reserved"]


@pytest.mark.parametrize(("query", "steps"), [(Stepped(), None), (AtOnce(), 2)])
def test_a_query_in_steps_and_its_charge_must_agree(small, run, query, steps):
    """A query that counts no steps, on a charge that continues after a crash, would run twice and be paid once."""
    reservation = small.reserve("tickets", run(), [PlannedQuery(query.name, query.event(), steps=steps)])
    with pytest.raises(LedgerError, match="no reservation"):
        PrivateView(ROWS, SCHEMA, small, reservation, NoiseSource()).ask(query)
    assert states(small) == ["reserved"]


@pytest.mark.parametrize(("own", "paid"), [(1e-6, 0.0), (1e-6, 9e-7), (1e-6, 1.1e-6), (0.0, 1e-6)])
def test_a_query_and_its_charge_must_agree_on_the_delta_beside_the_event(small, run, own, paid):
    """One that fails more often than was charged would take a delta that nobody counts."""
    query = Failing(own)
    reservation = small.reserve("tickets", run(), [PlannedQuery(query.name, query.event(), own_delta=paid)])
    with pytest.raises(LedgerError, match="no reservation"):
        PrivateView(ROWS, SCHEMA, small, reservation, NoiseSource()).ask(query)
    assert states(small) == ["reserved"]


def test_a_query_takes_the_charge_with_its_own_delta(small, run):
    asked = [Failing(own) for own in (1e-6, 2e-6 / 3, 0.0)]
    requests = [PlannedQuery(query.name, query.event(), own_delta=query.own_delta) for query in asked]
    reservation = small.reserve("tickets", run(), requests)
    view = PrivateView(ROWS, SCHEMA, small, reservation, NoiseSource())
    assert [view.ask(query) for query in (asked[1], asked[2], asked[0])] == ["answered"] * 3
    with pytest.raises(LedgerError, match="with a delta of 1e-06 beside it"):
        view.ask(asked[0])


def test_what_a_plan_reserves_has_the_deltas_beside_its_events(small, run):
    asked = [Failing(own) for own in (1e-6, 0.0, 2e-6)]
    parts = None, ("labels", "refund"), ("labels", "outage")
    queries = [
        PlannedQuery(query.name, query.event(), partition=part, own_delta=query.own_delta)
        for query, part in zip(asked, parts, strict=True)
    ]
    plan = Plan("embed", Budget(1.0, 1e-5), tuple(queries))
    assert plan.own_delta == pytest.approx(3e-6)
    charges = small.reserve("tickets", run(), plan.queries).charges
    assert [(charge.own_delta, charge.partition) for charge in charges] == list(
        zip((1e-6, 0.0, 2e-6), parts, strict=True)
    )


def test_a_receipt_leaves_room_for_the_deltas_beside_the_events(small, run):
    """Epsilons hold at what is left of delta; a group's own delta grows with it."""
    event = dpa.ZCDpEvent(0.001)
    own = reading(run(), small, SCHEMA.asset, ROWS)
    with metered(
        small, SCHEMA, own, [PlannedQuery("failing", event, own_delta=4e-6)], lambda: ROWS, NoiseSource()
    ) as session:
        session.view.ask(Failing(4e-6))
    asset = small.asset("tickets")
    body = receipt(small, asset, session, method="embed", target=1.0)
    assert body.delta == asset.delta == 1e-5
    assert body.epsilon == accounting.epsilon(event, 6e-6) > accounting.epsilon(event, 1e-5)
    assert body.epsilon_rdp == accounting.epsilon(event, 6e-6, "rdp")
    assert [line.own_delta for line in body.queries] == [4e-6]
    assert body.group[0] == Group(1, body.epsilon)
    assert body.group[1].epsilon > accounting.group_epsilon(event, 2, 6e-6)
    assert body.group[2] == Group(5, None)  # five times the own delta are above delta
    assert ledger_summary(small.books(), asset.name).charges[0].epsilon == body.epsilon


@pytest.mark.parametrize(("size", "share"), [(2, 0.05), (2, 0.3), (3, 0.01), (5, 1e-5), (5, 1e-2)])
def test_the_epsilon_of_a_group_counts_the_own_delta_as_often_as_it_may_fail(size, share):
    """It is at most what one epsilon for all units proves, with any share of delta for the event."""
    event, delta = dpa.ZCDpEvent(0.05), 1e-5
    ones = [(left, accounting.epsilon(event, left)) for left in np.geomspace(delta, delta * 1e-12, 300).tolist()]
    proved = [
        size * one
        for left, one in ones
        if (left + share * delta) * sum(math.exp(step * one) for step in range(size)) <= delta
    ]
    found = accounting.group_epsilon(event, size, delta, share * delta)
    assert accounting.group_epsilon(event, size, delta) <= found <= min(proved, default=math.inf) * 1.001
    assert accounting.group_epsilon(event, size, delta, delta / size) == math.inf


@pytest.mark.parametrize("share", [1e-4, 0.05, 0.3])
def test_the_epsilon_of_two_is_the_least_that_any_two_epsilons_prove(share):
    """P(S) <= e^a Q(S) + d(a) and Q(S) <= e^b R(S) + d(b): so a + b at d(a) + e^a d(b), whichever a and b."""
    event, delta = dpa.ZCDpEvent(0.05), 1e-5
    at = np.linspace(0.0, 20.0, 1001)
    ones = np.array([accounting.delta(event, one) for one in at.tolist()]) + share * delta
    holds = ones[:, None] + np.exp(at)[:, None] * ones <= delta
    least = (at[:, None] + at)[holds].min(initial=math.inf)
    assert accounting.group_epsilon(event, 2, delta, share * delta) == pytest.approx(least, abs=0.03)


def test_a_query_in_steps_runs_its_registered_steps(small, run):
    query = Stepped()
    object.__setattr__(query, "run_steps", lambda rows, noise, meter: rows)
    reservation = small.reserve("tickets", run(), [PlannedQuery(query.name, query.event(), steps=2)])
    assert PrivateView(ROWS, SCHEMA, small, reservation, NoiseSource()).ask(query) == 2
    assert states(small) == ["begun"]


def test_a_subclass_of_a_registered_query_is_refused(opened, small):
    with pytest.raises(LedgerError, match="not a registered query"):
        opened(HISTOGRAM).ask(Unregistered(LABELS, 2.0))
    assert states(small) == ["reserved"]


def test_code_set_on_a_registered_query_afterwards_does_not_run(opened):
    query = LabelHistogram(LABELS, 2.0)
    object.__setattr__(query, "run", lambda rows, noise: rows)
    object.__setattr__(query, "event", lambda: DiscreteGaussianDpEvent(2.0))
    assert set(opened(HISTOGRAM).ask(query)) == set(LABELS)


def test_the_ledger_says_begun_while_the_query_runs(opened, small):
    query = Watched(lambda: states(small))
    assert opened(query).ask(query) == ["begun"]


def test_a_query_that_fails_stays_begun(opened, small):
    def fail() -> None:
        raise RuntimeError("out of memory")

    query = Watched(fail)
    with pytest.raises(RuntimeError):
        opened(query).ask(query)
    assert states(small) == ["begun"]
    assert small.balance("tickets").spent > 0.0


def test_a_query_that_cannot_be_written_down_does_not_run(opened, small):
    ran: list[bool] = []
    query = Watched(lambda: ran.append(True))
    view = opened(query)
    small.refund(small.charges("tickets"))
    with pytest.raises(LedgerError, match="refunded"):
        view.ask(query)
    assert ran == []


def test_a_retry_replays_the_stored_answer_and_asks_nothing(opened, small):
    first = opened(HISTOGRAM).ask(HISTOGRAM)
    before, head = small.balance("tickets"), small.head()
    assert opened(HISTOGRAM).ask(HISTOGRAM) == first
    assert (small.balance("tickets"), small.head()) == (before, head)


@pytest.mark.parametrize(("seed", "fixed"), [(None, False), (3, True)])
def test_the_ledger_knows_whether_the_noise_was_fixed(opened, small, seed, fixed):
    opened(HISTOGRAM, seed=seed).ask(HISTOGRAM)
    assert [charge.noise_fixed for charge in small.charges("tickets")] == [fixed]


def test_no_public_attribute_leads_to_a_row(opened):
    view = opened(HISTOGRAM)
    assert {name for name in dir(view) if not name.startswith("_")} == {"ask", "schema"}
    assert SECRET not in repr(view) + repr(vars(view)) + repr(ROWS)


def test_errors_carry_no_row(opened):
    view = opened(HISTOGRAM)
    with pytest.raises(LedgerError) as refused:
        view.ask(Unregistered(LABELS, 2.0))
    assert SECRET not in repr(refused.value) + repr(vars(refused.value))
