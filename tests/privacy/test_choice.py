"""A choice: a unit, a person with several rows too, raises a score by 0 or 1, and one pick costs what is charged."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import dp_accounting as dpa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from palimpsest.errors import LedgerError
from palimpsest.privacy import choice
from palimpsest.privacy.choice import Choice, choice_event
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.events import BoundedRangeDpEvent, gumbel_scale
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.query import is_for_persons
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.view import PrivateView
from palimpsest.records.schema import PublicSchema
from tests.privacy.persons import Data, data_sets, neighbours, records_in, rows_in

LABELS = ("refund", "outage")
SCHEMA = PublicSchema("tickets", "classify", "text", 1000, 200, "label", dict.fromkeys(LABELS, ""))
KINDS = (("a", "refund"), ("a", "outage"), ("b", "outage"), ("b", None))
RHO = 0.3


def by_text(**labels: str):
    """A classifier that knows a text's label by heart."""
    return lambda texts: [labels[text] for text in texts]


CLASSIFIERS = (by_text(a="refund", b="refund"), by_text(a="refund", b="outage"), by_text(a="outage", b="refund"))


class OfRows(Choice):
    """A person counts with every row."""

    def run(self, rows: Sequence[PrivateRow], noise: NoiseSource) -> int:
        return super().run([PrivateRow(row.text, row.label) for row in rows], noise)


class Signed(Choice):
    """A wrong answer counts against a classifier: scores fall as well, and by two from best to worst."""

    def run(self, rows: Sequence[PrivateRow], noise: NoiseSource) -> int:
        texts = [row.text for row in rows]
        scores = [
            sum(1 if label == row.label else -1 for label, row in zip(classify(texts), rows, strict=True))
            for classify in self.classifiers
        ]
        return choice.gumbel_top_k(scores, 1, gumbel_scale(1, self.rho))[0]


class Sharper(Choice):
    """The noise is that of twice the epsilon."""

    def run(self, rows: Sequence[PrivateRow], noise: NoiseSource) -> int:
        return replace(self, rho=4 * self.rho).run(rows, noise) if self.rho == RHO else super().run(rows, noise)


def query_of(rho: float = RHO, kind: type[Choice] = Choice) -> Choice:
    return kind(CLASSIFIERS, rho)


def reached(query: Choice, rows: Sequence[PrivateRow]) -> tuple[list[int], int, Fraction]:
    """What the mechanism is given: scores, picks, scale."""
    seen: list[tuple[list[int], int, Fraction]] = []

    def told(scores: Sequence[int], k: int, scale: float) -> list[int]:
        seen.append((list(scores), k, Fraction(scale)))
        return [0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choice, "gumbel_top_k", told)
        query.run(rows, NoiseSource())
    (only,) = seen
    return only


def cost(query: Choice, less: Sequence[PrivateRow], more: Sequence[PrivateRow]) -> Fraction | None:
    """What one unit costs by what reaches the mechanism on neighbouring data; None where its guarantee is broken."""
    (before, k, scale), (after, *public) = reached(query, less), reached(query, more)
    moves = {new - old for old, new in zip(before, after, strict=True)}
    if [k, scale] != public or not moves <= {0, 1}:
        return None
    return Fraction(k) / (8 * scale**2)


def pairs() -> Iterator[tuple[Data, Data]]:
    return ((less, data) for data in data_sets(KINDS, most=2, persons=2) for less in neighbours(data))


def worst(kind: type[Choice], rows_of=rows_in) -> Fraction | None:
    found = [cost(query_of(kind=kind), rows_of(less), rows_of(more)) for less, more in pairs()]
    return None if None in found else max(spent for spent in found if spent is not None)


def test_one_person_with_all_their_rows_costs_rho_on_all_small_data_sets():
    found = worst(Choice)
    assert found is not None
    assert 0.999999 * Fraction(RHO) < found <= Fraction(RHO)
    assert is_for_persons(query_of())


def test_one_record_costs_rho_on_all_small_data_sets():
    found = [
        cost(query_of(), rows[:place] + rows[place + 1 :], rows)
        for data in data_sets(KINDS, most=2, persons=2)
        for rows in [records_in(data)]
        for place in range(len(rows))
    ]
    assert None not in found
    assert max(found) <= Fraction(RHO)


@pytest.mark.parametrize("mutant", [OfRows, Signed])
def test_the_check_catches_mutants_of_the_sensitivity(mutant):
    assert worst(mutant) is None


def test_the_check_catches_noise_of_another_rho():
    assert worst(Sharper) > Fraction(RHO)


def test_a_person_counts_once_whatever_the_order_of_their_rows():
    for data in data_sets(KINDS, most=2, persons=2):
        there = sum(bool(own) for own in data)
        scores, *_ = reached(query_of(), rows_in(data))
        assert scores == reached(query_of(), rows_in(data, backwards=True))[0]
        assert max(scores) <= there


@given(st.floats(1e-9, 1e6))
def test_no_rounding_makes_a_scale_cost_more_than_rho(rho):
    assert 1 / (8 * Fraction(gumbel_scale(1, rho)) ** 2) <= Fraction(rho)


def test_the_choice_follows_the_enumerated_law():
    rows = [PrivateRow("a", "refund"), PrivateRow("b", "outage"), PrivateRow("b", "outage")]
    scale = gumbel_scale(1, RHO)
    weights = [math.exp(score / scale) for score in (1, 3, 0)]
    drawn = [query_of().run(rows, NoiseSource()) for _ in range(1000)]
    expected = [1000 * weight / sum(weights) for weight in weights]
    assert stats.chisquare([drawn.count(place) for place in range(3)], expected).pvalue > 1e-6


def test_without_noise_it_is_the_best_and_of_equals_the_first():
    rows = [PrivateRow("a", "refund"), PrivateRow("b", "outage")]
    assert query_of(math.inf).run(rows, NoiseSource()) == 1
    assert query_of(math.inf).run([], NoiseSource()) == 0


def test_the_answer_is_a_place_and_no_score():
    answer = query_of().run([PrivateRow("a", "refund")] * 50, NoiseSource())
    assert type(answer) is int
    assert answer in range(len(CLASSIFIERS))


def test_without_rows_there_is_still_an_answer():
    assert query_of().run([], NoiseSource()) in range(len(CLASSIFIERS))


@pytest.mark.parametrize("rho", [0.0, -1.0, math.nan])
def test_a_cost_that_is_none_is_refused(rho):
    with pytest.raises(ValueError, match="rho"):
        query_of(rho)


def test_a_choice_among_nothing_is_refused():
    with pytest.raises(ValueError, match="number_of_classifiers"):
        Choice((), RHO)


def test_the_event_is_rho_and_an_exact_choice_is_not_private():
    assert query_of().event() == choice_event(RHO) == BoundedRangeDpEvent(math.sqrt(8 * RHO))
    assert query_of().stores_answer
    assert query_of(math.inf).event() == dpa.NonPrivateDpEvent()
    assert not query_of(math.inf).stores_answer


def test_a_retry_replays_the_stored_choice_and_charges_nothing(small, run):
    rows = [PrivateRow("a", "refund")]

    def ask(asked: Choice) -> int:
        reservation = small.reserve("tickets", run(), [PlannedQuery(asked.name, asked.event())])
        return PrivateView(rows, SCHEMA, small, reservation, NoiseSource()).ask(asked)

    first = ask(query_of(0.01))
    before = small.balance("tickets")
    assert ask(replace(query_of(0.01), classifiers=CLASSIFIERS[:1])) == first
    assert small.balance("tickets") == before


def test_an_exact_choice_is_not_for_release(small, run):
    asked = query_of(math.inf)
    with pytest.raises(LedgerError, match="without noise"):
        small.reserve("tickets", run(), [PlannedQuery(asked.name, asked.event())])
