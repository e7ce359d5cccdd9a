"""Replaced words: the law of a word is enumerated in whole parts, and the query is not private and says so."""

import math
import traceback
from collections import Counter

import dp_accounting as dpa
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from palimpsest.errors import LedgerError
from palimpsest.privacy.accounting import is_private
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.query import is_for_persons, is_registered
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.view import PrivateView
from palimpsest.privacy.words import PARTS, ReplacedWords, WordSets, laws, words_of
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema

WORDS = (("the", "a", "this"), ("kettle", "lamp", "oven"), ("leaks", "works", "don't"))
SIMILARITY = np.array([
    [[1.0, 0.6, 0.2], [0.6, 1.0, 0.0], [0.2, 0.0, 1.0]],
    [[1.0, 0.0, 0.9], [0.0, 1.0, 0.5], [0.9, 0.5, 1.0]],
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]],
])  # fmt: skip
SETS = WordSets(WORDS, SIMILARITY)
SET_OF = {word: own for own in WORDS for word in own}
SCHEMA = PublicSchema("tickets", "classify", "text", 1000, 200, "label", {"refund": "", "outage": ""})
SECRET = "Order 8812-XK for Quillfeather"
EPSILONS = [1e-9, 0.1, 1.0, 3.0, 10.0, 40.0, 73.0, 80.0, 1000.0, 5000.0]


def rows_of(*texts: str) -> list[PrivateRow]:
    return [PrivateRow(text, "refund") for text in texts]


def replaced(text: str, token_epsilon: float = 1.0, noise: NoiseSource | None = None) -> list[str]:
    """The words that come out for a text."""
    [row] = ReplacedWords(SETS, token_epsilon).run(rows_of(text), noise or NoiseSource())
    return row.text.split()


# The law of a word.


def excess(parts: np.ndarray, token_epsilon: float) -> float:
    """By how much the worst log-ratio of two words of a set passes epsilon; parts are compared as whole numbers."""
    worst = max(
        math.log(int(one[to])) - math.log(int(other[to]))
        for own in parts
        for one in own
        for other in own
        for to in range(len(own))
    )
    return worst - token_epsilon


def random_similarity(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(size=(3, size, size))  # not even symmetric


@pytest.mark.parametrize("token_epsilon", EPSILONS)
@pytest.mark.parametrize("similarity", [SIMILARITY, random_similarity(2), random_similarity(20), np.eye(7)[None]])
def test_the_enumerated_law_is_within_epsilon(similarity, token_epsilon):
    parts = laws(similarity, token_epsilon)
    assert parts.dtype == np.int64
    assert (parts.sum(axis=2) == PARTS).all()
    assert parts.min() >= 1
    assert excess(parts, token_epsilon) <= 1e-9


@pytest.mark.parametrize("size", [2, 3, 20])
def test_the_bound_is_not_far_from_tight(size):
    """For words that are alike to nothing but themselves: what a third more than epsilon / 2 in the exponent breaks."""
    worst = np.zeros((1, size, size))
    worst[0, 0] = 1.0  # the first word is like all, the others like none but the last
    worst[0, 1:, -1] = 1.0
    epsilon = 1.5
    assert excess(laws(worst, epsilon), epsilon) <= 0.0
    assert excess(laws(worst, 4.0 * epsilon), epsilon) > 0.0


@settings(deadline=None)
@given(st.floats(1e-6, 60.0), st.integers(2, 9), st.integers(0, 99))
def test_the_law_is_the_exponential_mechanisms(token_epsilon, size, seed):
    similarity = random_similarity(size, seed)
    weights = np.exp(token_epsilon * similarity / 2.0)
    exact = weights / weights.sum(axis=2, keepdims=True)
    assert np.allclose(laws(similarity, token_epsilon) / PARTS, exact, rtol=1e-9, atol=size / PARTS)


def test_the_largest_sets_are_within_epsilon():
    assert excess(laws(random_similarity(1000)[:1, :4], 2.0)[:, :4], 2.0) <= 1e-9


class Told(NoiseSource):
    """Gives integers that are told."""

    def __init__(self, *numbers: int) -> None:
        super().__init__(0)
        self.numbers, self.highs = list(numbers), set()

    def integers(self, size, high):
        self.highs.add(high)
        return np.array([self.numbers.pop(0) for _ in range(size)], dtype=np.int64)


def test_every_part_of_the_law_is_drawn_from():
    """The draw picks the word whose parts it falls into, at both ends of each."""
    for start, word in enumerate(WORDS[1]):
        ends = np.cumsum(laws(SIMILARITY, 2.0)[1, start]).tolist()
        for place, end in enumerate(ends):
            first = ends[place - 1] if place else 0
            noise = Told(first, end - 1)
            assert replaced(f"{word} {word}", 2.0, noise) == [WORDS[1][place]] * 2
            assert noise.highs == {PARTS}


@pytest.mark.parametrize("word", [*WORDS[0], *WORDS[1], *WORDS[2]])
def test_draws_follow_the_law(word):
    own = SET_OF[word]
    drawn = Counter(replaced(f"{word} " * 4000, 3.0))
    expected = laws(SIMILARITY, 3.0)[WORDS.index(own), own.index(word)] / PARTS * 4000
    assert stats.chisquare([drawn[other] for other in own], expected).pvalue > 1e-6


def test_words_of_a_text_are_drawn_independently():
    pairs = Counter(tuple(replaced("don't works", 1.0)) for _ in range(1500))
    assert len(pairs) == 9
    assert stats.chisquare(list(pairs.values())).pvalue > 1e-6


def test_draws_are_not_seeded():
    np.random.seed(0)
    first = replaced("don't " * 60)
    np.random.seed(0)
    assert replaced("don't " * 60) != first
    assert replaced("don't " * 60, noise=NoiseSource(1)) == replaced("don't " * 60, noise=NoiseSource(1))


# What comes out.


@settings(deadline=None, max_examples=50)
@given(st.lists(st.one_of(st.sampled_from(list(SET_OF)), st.text(max_size=8)), max_size=12))
def test_each_known_word_becomes_one_of_its_set_and_nothing_else_passes(pieces):
    text = " ".join(pieces)
    known = [word for word in words_of(text) if word in SET_OF]
    found = replaced(text)
    assert len(found) == len(known)
    assert all(new in SET_OF[old] for old, new in zip(known, found, strict=True))


def test_a_secret_does_not_pass():
    assert replaced(SECRET) == []
    assert len(replaced(f"The {SECRET}: kettle, 42 don’t.")) == 3


def test_case_and_apostrophes_do_not_matter():
    assert words_of("The KETTLE don’t") == ["the", "kettle", "don't"]
    assert words_of("'tis the 'lamp'") == ["tis", "the", "lamp"]
    assert words_of("x_1 A4 3.5") == ["x_1", "a4", "3", "5"]


def test_one_row_for_each_row_with_its_label_in_order():
    """What the docstring says is copied: this is no privacy for records."""
    rows = [PrivateRow("the lamp", "refund"), PrivateRow("", None), PrivateRow("Works.", "outage")]
    found = ReplacedWords(SETS, 1.0).run(rows, NoiseSource())
    assert all(type(row) is Record for row in found)
    assert [row.label for row in found] == ["refund", None, "outage"]
    assert [len(row.text.split()) for row in found] == [2, 0, 1]
    assert ReplacedWords(SETS, 1.0).run([], NoiseSource()) == []


def test_a_large_epsilon_changes_nothing_and_a_small_one_forgets_the_word():
    assert replaced("this oven " * 50, 1000.0) == ["this", "oven"] * 50
    assert set(replaced("kettle " * 300, 1e-6)) == set(WORDS[1])


# The charge.


@pytest.mark.parametrize("token_epsilon", [1e-9, 1.0, 100.0])
def test_the_event_is_not_private_whatever_epsilon(token_epsilon):
    query = ReplacedWords(SETS, token_epsilon)
    assert query.event() == dpa.NonPrivateDpEvent()
    assert not is_private(query.event())
    assert is_registered(query)
    assert is_for_persons(query)  # its event claims nothing for anyone
    assert not getattr(query, "stores_answer", False)


def test_a_release_is_refused_before_a_row_is_read(small, run):
    query = ReplacedWords(SETS, 1.0)
    with pytest.raises(LedgerError, match="without noise"):
        small.reserve("tickets", run(), [PlannedQuery(query.name, query.event())])
    reservation = small.reserve("tickets", run(), [PlannedQuery(query.name, dpa.ZCDpEvent(0.01))])  # of another cost
    view = PrivateView(rows_of("the lamp"), SCHEMA, small, reservation, NoiseSource())
    with pytest.raises(LedgerError, match="no reservation"):
        view.ask(query)


def test_a_reference_runs_and_its_rows_are_not_stored(small, run):
    query = ReplacedWords(SETS, 1000.0)
    reservation = small.reserve("tickets", run(purpose="reference"), [PlannedQuery(query.name, query.event())])
    view = PrivateView(rows_of("This kettle leaks."), SCHEMA, small, reservation, NoiseSource())
    assert [row.label for row in view.ask(query)] == ["refund"]
    assert [charge.state for charge in small.charges("tickets")] == ["begun"]


# Arguments.


@pytest.mark.parametrize("token_epsilon", [0.0, -1.0, math.inf, math.nan])
def test_an_epsilon_that_is_none_is_refused(token_epsilon):
    with pytest.raises(ValueError, match="must"):
        ReplacedWords(SETS, token_epsilon)


@pytest.mark.parametrize(
    ("words", "similarity"),
    [
        ((), np.zeros((0, 2, 2))),
        ((("a", "b"), ("c",)), np.ones((2, 2, 2))),
        ((("a",), ("b",)), np.ones((2, 1, 1))),
        ((("a", "b"), ("b", "c")), np.ones((2, 2, 2))),
        ((("a", "a"),), np.ones((1, 2, 2))),
        ((("a", "b"),), np.ones((1, 2, 3))),
        ((("a", "b"),), np.full((1, 2, 2), 1.1)),
        ((("a", "b"),), np.full((1, 2, 2), -0.1)),
        ((("a", "b"),), np.full((1, 2, 2), np.nan)),
        ((tuple(str(number) for number in range(1001)),), np.ones((1, 1001, 1001))),
    ],
)
def test_sets_that_the_guarantee_does_not_hold_for_are_refused(words, similarity):
    with pytest.raises(ValueError, match=r"must|fit"):
        WordSets(words, similarity)


def test_an_error_shows_no_row():
    class Broken(NoiseSource):
        def integers(self, size, high):
            raise RuntimeError("no entropy")

    with pytest.raises(RuntimeError) as caught:
        replaced(f"the {SECRET}", noise=Broken())
    assert SECRET not in "".join(traceback.format_exception(caught.value))
