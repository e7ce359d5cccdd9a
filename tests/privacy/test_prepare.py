"""What a query prepares costs nothing, answers nothing and cannot keep the query from beginning."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import dp_accounting as dpa
import numpy as np
import pytest

from palimpsest.errors import LedgerError, ModelError
from palimpsest.privacy.depth import DepthPicks, public_directions
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.limited_domain import LimitedDomain
from palimpsest.privacy.means import ClassMeans
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.query import Query, is_stepped, register_query
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.session import metered
from palimpsest.privacy.votes import Ballot, DomainBallot, Slate, Vote, VoteRounds
from palimpsest.records.schema import PublicSchema
from tests.reading import reading

LABELS = ("refund", "outage")
SCHEMA = PublicSchema("tickets", "classify", "text", 1000, 200, "label", dict.fromkeys(LABELS, ""))
ROWS = [PrivateRow(f"ticket {number}", LABELS[number % 2]) for number in range(6)]
WIDTH = 4


def nothing() -> Any:
    """Do nothing."""


@register_query
@dataclass(frozen=True)
class Prepared:
    """Calls back while it prepares, and while it runs."""

    preparing: Callable[[], Any] = nothing
    running: Callable[[], Any] = nothing
    name: str = "prepared"
    stores_answer: bool = True
    subject: str = ""

    def event(self) -> dpa.DpEvent:
        return dpa.GaussianDpEvent(9.0)

    def prepare(self, rows: Sequence[PrivateRow]) -> Any:
        return self.preparing()

    def run(self, rows: Sequence[PrivateRow], noise: NoiseSource) -> Any:
        return self.running()


def attempt(ledger: Ledger, run: Any, query: Query, rows: Callable[[], Sequence[PrivateRow]] = lambda: ROWS) -> Any:
    """One run of a stage that asks this query alone."""
    steps = getattr(query, "steps", None)
    asked = [PlannedQuery(query.name, query.event(), steps, own_delta=getattr(query, "own_delta", 0.0))]
    own = reading(run(), ledger, "tickets", ROWS)
    with metered(ledger, SCHEMA, own, asked, rows, NoiseSource()) as session:
        return session.view.ask(query)


def states(ledger: Ledger) -> list[str]:
    return [charge.state for charge in ledger.charges("tickets")]


def stopped() -> Any:
    raise KeyboardInterrupt


def stopped_after(_answer: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("rows", "query", "left", "free"),
    [
        (stopped, Prepared(), ["refunded"], True),  # while rows are read
        (lambda: ROWS, Prepared(preparing=stopped), ["refunded"], True),
        (lambda: ROWS, Prepared(running=stopped), ["begun"], False),
        (lambda: ROWS, Prepared(), ["committed"], False),  # answered
    ],
)
def test_a_stop_costs_nothing_until_the_query_begins(small, run, rows, query, left, free):
    if left == ["committed"]:
        attempt(small, run, query, rows)
    else:
        with pytest.raises(KeyboardInterrupt):
            attempt(small, run, query, rows)
    assert states(small) == left
    assert (small.balance("tickets").spent == 0.0) == free


def test_a_query_is_prepared_while_it_is_reserved_and_runs_once_it_has_begun(small, run):
    seen: list[str] = []
    note = lambda: seen.extend(states(small))  # noqa: E731
    attempt(small, run, Prepared(note, note))
    assert seen == ["reserved", "begun"]


@pytest.mark.parametrize("error", [RuntimeError, ModelError, MemoryError, SystemExit, GeneratorExit])
def test_what_fails_in_preparing_is_charged_as_if_it_had_failed_in_running(small, run, error):
    """A refusal before the query begins would tell of the rows, free and as often as one likes."""

    def fail() -> Any:
        raise error("a row", "x")

    ran: list[bool] = []
    with pytest.raises(error):
        attempt(small, run, Prepared(fail, lambda: ran.append(True)))
    assert (states(small), ran) == (["begun"], [])
    assert small.balance("tickets").spent > 0.0


def test_what_was_prepared_goes_nowhere(small, run):
    assert attempt(small, run, Prepared(lambda: "a row", lambda: "noise")) == "noise"


def test_only_the_registered_code_prepares(small, run):
    query, seen = Prepared(), list[Any]()
    object.__setattr__(query, "prepare", lambda rows=(): seen.append(rows))
    attempt(small, run, query)
    assert seen == []


def test_a_replayed_answer_is_not_prepared_again(small, run):
    """The attempt before was stopped once its query was answered."""
    own, asked = reading(run(), small, "tickets", ROWS), [PlannedQuery("prepared", Prepared().event())]
    with (
        pytest.raises(KeyboardInterrupt),
        metered(small, SCHEMA, own, asked, lambda: ROWS, NoiseSource()) as session,
    ):
        stopped_after(session.view.ask(Prepared(running=lambda: 7)))
    seen: list[bool] = []
    assert attempt(small, run, Prepared(preparing=lambda: seen.append(True))) == 7
    assert seen == []


def test_a_query_without_a_reservation_prepares_nothing(small, run):
    seen: list[bool] = []
    own = reading(run(), small, "tickets", ROWS)
    asked = [PlannedQuery("another", dpa.GaussianDpEvent(9.0))]
    with (
        pytest.raises(LedgerError, match="no reservation"),
        metered(small, SCHEMA, own, asked, lambda: ROWS, NoiseSource()) as session,
    ):
        session.view.ask(Prepared(lambda: seen.append(True)))
    assert (seen, states(small)) == ([], ["refunded"])


class Memory:
    """An encoder that keeps what it encoded, and says which texts were new."""

    def __init__(self, fails_on: str | None = None) -> None:
        self.fails_on = fails_on
        self.new: list[str] = []
        self.known: set[str] = set()

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        if self.fails_on in texts:
            raise ValueError(self.fails_on)
        self.new += [text for text in texts if text not in self.known]
        self.known.update(texts)
        return np.array([[len(text), *text.encode()[-(WIDTH - 1) :]] for text in texts], dtype=np.float64)


CANDIDATES = np.eye(WIDTH)
SLATE = Slate({}, dict.fromkeys(LABELS, CANDIDATES))
QUERIES: dict[str, Callable[[Memory], Query]] = {
    "means": lambda encode: ClassMeans(LABELS, encode, WIDTH, 5.0),
    "vote": lambda encode: Vote(Ballot(encode, 1, 9.0), SLATE),
    "rounds": lambda encode: VoteRounds(Ballot(encode, 1, 9.0), LABELS, SLATE, lambda done: SLATE, 2),
    "domain": lambda encode: VoteRounds(
        DomainBallot(encode, LimitedDomain(2, 1, 50.0, 1e-7)), LABELS, SLATE, lambda done: SLATE, 1
    ),
    "depths": lambda encode: DepthPicks(
        encode, CANDIDATES, public_directions(3, WIDTH), dict.fromkeys(LABELS, 1), 0.01
    ),
}


@pytest.mark.parametrize("kind", QUERIES)
def test_nothing_is_left_to_encode_once_a_query_is_prepared(kind):
    encode = Memory()
    query: Any = QUERIES[kind](encode)
    query.prepare([*ROWS, PrivateRow("of no label that is asked", "another")])
    assert sorted(encode.new) == sorted(row.text for row in ROWS)
    encode.new.clear()
    meter = Counting(getattr(query, "steps", 1))
    query.run_steps(ROWS, NoiseSource(), meter) if is_stepped(query) else query.run(ROWS, NoiseSource())
    assert encode.new == []


@pytest.mark.parametrize("kind", QUERIES)
def test_an_encoder_that_fails_on_a_row_fails_after_the_charge(small, run, kind):
    with pytest.raises(ModelError) as told:
        attempt(small, run, QUERIES[kind](Memory(fails_on=ROWS[3].text)))
    assert ROWS[3].text not in str(told.value)
    assert states(small) == ["begun"]


@dataclass
class Counting:
    """A meter that counts for nobody."""

    limit: int
    charge: str = ""
    begun: int = 0
    resumed: bool = False
    lasting: bool = False

    def begin(self, steps: int) -> None:
        self.begun += steps


@pytest.mark.parametrize("count", [0, 1, 63, 900])
def test_shares_alone_are_told_of_what_is_prepared(capsys, count):
    rows = [PrivateRow(f"ticket {number}", "refund") for number in range(count)]
    ClassMeans(LABELS, Memory(), WIDTH, 5.0).prepare(rows)
    told = capsys.readouterr()
    lines = told.err.splitlines()
    assert [line.partition(" eta")[0] for line in lines] == [f"progress encode {part}%" for part in (25, 50, 75, 100)]
    assert told.out == ""
