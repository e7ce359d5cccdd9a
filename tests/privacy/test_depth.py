"""Depth: one record raises it by 0 or 1, ties included, and the picks cost what is charged however many they are.

Depths are whole numbers from exact comparisons, so they are held against a count that multiplies integers.
"""

import itertools
import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import dp_accounting as dpa
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from palimpsest.errors import LedgerError, ModelError
from palimpsest.privacy import depth
from palimpsest.privacy.depth import DepthPicks, depths, public_directions
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.events import gumbel_scale
from palimpsest.privacy.nearest import STEPS, round_to_grid
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.query import is_for_persons
from palimpsest.privacy.rows import PrivateRow, group_by_person
from palimpsest.privacy.view import PrivateView
from palimpsest.records.schema import PublicSchema
from tests.privacy.persons import data_sets, neighbours, records_in, rows_in

SECRET = "the order number is 8812-XK"
LABELS = ("refund", "outage")
SCHEMA = PublicSchema("tickets", "classify", "text", 1000, 200, "label", dict.fromkeys(LABELS, ""))
CORNERS = np.array([
    [1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [3.0, 4.0], [3.0, -4.0], [-3.0, 4.0], [1e300, 1e300], [5e-324, 0.0],
    [0.0, 0.0], [np.nan, 1.0], [-np.inf, 0.0],
])  # fmt: skip
USELESS = (8, 9, 10)
LINES = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
COARSE = st.sampled_from([-2.0, -1.0, 0.0, 1.0, 3.0])  # many ties
ANY = st.one_of(COARSE, st.floats(-1, 1), st.floats(width=64))


def vectors(elements: st.SearchStrategy[float], most: int = 8) -> st.SearchStrategy[np.ndarray]:
    return arrays(np.float64, st.tuples(st.integers(0, most), st.just(3)), elements=elements)


TRIPLES = st.sampled_from([COARSE, ANY]).flatmap(lambda kind: st.tuples(*[vectors(kind)] * 3))


def brute(rows: np.ndarray, candidates: np.ndarray, directions: np.ndarray) -> list[int]:
    """The same from whole numbers, one comparison at a time."""
    own, points, lines = ((round_to_grid(part) * STEPS).astype(np.int64) for part in (rows, candidates, directions))
    own = own[own.any(axis=1)]
    found = []
    for point in points:
        sides = [len(own)]
        for line in lines:
            level, levels = int(point @ line), own @ line
            sides += [int((levels >= level).sum()), int((levels <= level).sum())]
        found.append(min(sides))
    return found


def encoder_of(points: np.ndarray) -> Callable[[Sequence[str]], np.ndarray]:
    """An encoder that reads a text as the number of a vector."""
    return lambda texts: np.stack([points[int(text)] for text in texts])


def query_of(picks: Mapping[str, int] | None = None, rho: float = 0.5, kind: type = DepthPicks) -> DepthPicks:
    return kind(encoder_of(CORNERS), CORNERS, LINES, {"refund": 3, "outage": 2} if picks is None else picks, rho)


def rows_of(*pairs: tuple[int, str | None]) -> list[PrivateRow]:
    return [PrivateRow(str(number), label) for number, label in pairs]


# Depths.


@settings(deadline=None)
@given(TRIPLES)
def test_depths_are_what_whole_numbers_say(triple):
    rows, candidates, directions = triple
    assert depths(rows, candidates, directions).tolist() == brute(rows, candidates, directions)


def test_depths_of_many_in_many_dimensions_are_exact():
    random = np.random.default_rng(0)
    rows, candidates = random.normal(size=(150, 384)) + 0.1, random.normal(size=(15, 384)) + 0.1
    candidates[:5] = rows[:5]  # ties in every direction
    lines = public_directions(70, 384)  # more than are projected on at once
    assert depths(rows, candidates, lines).tolist() == brute(rows, candidates, lines)
    assert depths(rows, candidates, lines)[:5].min() >= 1


def test_the_middle_of_a_line_is_deepest():
    angles = np.linspace(0.2, 1.2, 5)
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert depths(points, points, np.array([[0.0, 1.0]])).tolist() == [1, 2, 3, 2, 1]
    assert depths(points, -points, np.array([[0.0, 1.0]])).tolist() == [0] * 5


def test_a_direction_and_its_opposite_say_the_same():
    random = np.random.default_rng(1)
    rows, candidates, lines = (random.normal(size=(size, 4)) for size in (30, 9, 6))
    assert np.array_equal(depths(rows, candidates, lines), depths(rows, candidates, -lines))


def test_more_directions_never_raise_a_depth():
    random = np.random.default_rng(2)
    rows, candidates, lines = (random.normal(size=(size, 4)) for size in (40, 9, 50))
    found = np.array([depths(rows, candidates, lines[:most]) for most in range(0, 51, 10)])
    assert (np.diff(found, axis=0) <= 0).all()
    assert found[0].tolist() == [40] * 9


def test_directions_are_the_same_each_time_and_spread_out():
    lines = public_directions(500, 3)
    assert np.array_equal(lines, public_directions(500, 3))
    units = lines / np.linalg.norm(lines, axis=1, keepdims=True)
    assert np.allclose(units.T @ units / 500, np.eye(3) / 3, atol=0.1)


# One record.


def raised(rows: np.ndarray, extra: np.ndarray, place: int, others: np.ndarray, lines: np.ndarray) -> set[int]:
    """By how much one more row raises depths."""
    more = np.insert(rows, place, extra, axis=0)
    return set((depths(more, others, lines) - depths(rows, others, lines)).tolist())


def test_one_record_raises_depths_by_0_or_1_in_every_small_data_set():
    seen = set()
    for size in range(3):
        for own in itertools.combinations_with_replacement(range(len(CORNERS)), size):
            for extra in CORNERS:
                seen |= raised(CORNERS[list(own)], extra, 0, CORNERS, LINES)
    assert seen == {0, 1}


@settings(deadline=None)
@given(TRIPLES, st.data())
def test_one_record_raises_depths_by_0_or_1_whatever_its_vector(triple, data):
    rows, candidates, lines = triple
    extra = data.draw(arrays(np.float64, 3, elements=ANY))
    assert raised(rows, extra, data.draw(st.integers(0, len(rows))), candidates, lines) <= {0, 1}


def test_useless_rows_change_nothing():
    assert np.array_equal(depths(CORNERS, CORNERS, LINES), depths(CORNERS[:8], CORNERS, LINES))


@settings(deadline=None)
@given(TRIPLES, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_show(triple, random):
    rows, candidates, lines = triple
    order = random.sample(range(len(rows)), len(rows))
    assert np.array_equal(depths(rows, candidates, lines), depths(rows[order], candidates, lines))


# One person.

KINDS = [("0", "refund"), ("3", "refund"), ("0", "outage"), ("5", "outage"), ("8", "refund"), ("0", "unheard of")]


def depths_given(rows: Sequence[PrivateRow]) -> list[list[int]]:
    """The scores that the mechanism is given for each label in turn."""
    given: list[list[int]] = []

    def told(scores: Sequence[int], most: int, _scale: float) -> list[int]:
        given.append(list(scores))
        return list(range(most))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(depth, "gumbel_top_k", told)
        query_of().run(rows, NoiseSource())
    return given


def one_person_raises_depths_of_one_label(most: int, persons: int) -> bool:
    """By 0 or 1, in every small data set, and whatever the order of the rows."""
    answers = {data: np.array(depths_given(rows_in(data))) for data in data_sets(KINDS, most, persons)}
    moves = [answer - answers[other] for data, answer in answers.items() for other in neighbours(data)]
    orderly = all(
        np.array_equal(depths_given(rows_in(data, backwards=True)), answer) for data, answer in answers.items()
    )
    return orderly and all(set(np.unique(move)) <= {0, 1} and move.any(axis=1).sum() <= 1 for move in moves)


@pytest.mark.parametrize(("most", "persons"), [(2, 2), (3, 1)])
def test_one_person_raises_the_depths_of_one_label_by_0_or_1(most, persons):
    assert one_person_raises_depths_of_one_label(most, persons)


@pytest.mark.parametrize(
    "chosen",
    [
        lambda rows: rows,
        lambda rows: list({(row.person, row.label): row for row in rows}.values()),
        lambda rows: [own[0] for own in group_by_person(rows)],
    ],
    ids=["every row", "one of each label", "the first"],
)
def test_the_check_of_persons_catches_mutants(monkeypatch, chosen):
    monkeypatch.setattr(depth, "select_one_each", chosen)
    assert not one_person_raises_depths_of_one_label(2, 1)


def test_persons_of_one_row_count_as_records_do():
    assert all(depths_given(rows_in(data)) == depths_given(records_in(data)) for data in data_sets(KINDS, 1, 2))


def test_its_class_bounds_persons():
    assert is_for_persons(query_of())


# What reaches the mechanism.


class OneScale(DepthPicks):
    """The mutant: labels take the scale of the smallest."""

    def run(self, rows, noise):
        least = min(self.picks.values())
        alone = [
            DepthPicks(self.encode, self.candidates, self.directions, {label: own}, self.rho * own / least)
            for label, own in self.picks.items()
        ]
        return {label: answer for query in alone for label, answer in query.run(rows, noise).items()}


class Clamped(DepthPicks):
    """The mutant: the number of picks depends on how many records there are."""

    def _pick_candidates(self, texts, usable, wanted):
        return super()._pick_candidates(texts, usable, min(wanted, len(texts)))


class Mixed(DepthPicks):
    """The mutant: a record counts in the cloud of every label."""

    def run(self, rows, noise):
        return super().run([PrivateRow(row.text, label) for row in rows for label in self.picks], noise)


class Twice(DepthPicks):
    """The mutant: a record counts twice."""

    def run(self, rows, noise):
        return super().run([*rows, *rows], noise)


class Negated(DepthPicks):
    """The mutant: the shallowest are picked by their distance from the deepest, so a record raises and lowers."""

    def run(self, rows, noise):
        with pytest.MonkeyPatch.context() as patch:
            kept = depth.gumbel_top_k
            patch.setattr(depth, "gumbel_top_k", lambda scores, k, scale: kept([max(scores) - s for s in scores], k, 1))
            return super().run(rows, noise)


@dataclass(frozen=True)
class Call:
    """What the mechanism is given."""

    scores: tuple[int, ...]
    k: int
    scale: float


def calls(query: DepthPicks, rows: Sequence[PrivateRow]) -> list[Call]:
    """All that the mechanism is given, one call for each label with picks."""
    seen: list[Call] = []

    def told(scores: Sequence[int], k: int, scale: float) -> list[int]:
        seen.append(Call(tuple(scores), k, scale))
        return list(range(k))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(depth, "gumbel_top_k", told)
        query.run(rows, NoiseSource())
    return seen


def cost(query: DepthPicks, rows: Sequence[PrivateRow], extra: PrivateRow) -> Fraction | None:
    """What one record costs by what reaches the mechanism on neighbouring data; None where its guarantee is broken."""
    without, having = calls(query, rows), calls(query, [*rows, extra])
    if [(call.k, call.scale) for call in without] != [(call.k, call.scale) for call in having]:
        return None
    spent = Fraction(0)
    for before, after in zip(without, having, strict=True):
        moves = {new - old for old, new in zip(before.scores, after.scores, strict=True)}
        if not moves <= {0, 1}:
            return None
        spent += Fraction(before.k) / (8 * Fraction(before.scale) ** 2) if 1 in moves else 0
    return spent


DATA = [
    rows_of(*[(number, LABELS[number % 2]) for number in range(11)]),
    rows_of((0, "refund"), (0, "refund"), (3, "refund")),
    rows_of((1, "outage")),
    [],
]
EXTRAS = rows_of(
    *[(number, label) for number in range(len(CORNERS)) for label in (*LABELS, "unheard of", "", None)]
)  # fmt: skip


@pytest.mark.parametrize("picks", [{"refund": 3, "outage": 2}, {"refund": 1, "outage": 8}, {"refund": 0, "outage": 5}])
@pytest.mark.parametrize("rho", [1e-4, 0.3, 7.0])
def test_one_record_costs_rho_whatever_the_picks(picks, rho):
    worst = [cost(query_of(picks, rho), rows, extra) for rows in DATA for extra in EXTRAS]
    assert None not in worst
    assert 0.999999 * Fraction(rho) < max(worst) <= Fraction(rho)


@pytest.mark.parametrize("mutant", [OneScale, Clamped, Mixed, Twice, Negated])
def test_the_check_catches_mutants(mutant):
    worst = [cost(query_of(kind=mutant), rows, extra) for rows in DATA for extra in EXTRAS]
    assert None in worst or max(worst) > Fraction(0.5)


@given(st.integers(1, 10**6), st.floats(1e-9, 1e6))
def test_no_rounding_makes_a_scale_cost_more_than_rho(picks, rho):
    spent = Fraction(picks) / (8 * Fraction(gumbel_scale(picks, rho)) ** 2)
    assert 0.999999 * Fraction(rho) < spent <= Fraction(rho)


def test_the_mechanism_is_given_the_depths_of_the_label():
    rows = rows_of((0, "refund"), (3, "refund"), (4, "outage"), (6, "unheard of"), (6, None))
    first, second = calls(query_of(), rows)
    assert list(first.scores) == brute(CORNERS[[0, 3]], CORNERS[:8], LINES)
    assert list(second.scores) == brute(CORNERS[[4]], CORNERS[:8], LINES)
    assert (first.k, second.k) == (3, 2)


# The law of the answer, enumerated.


POINTS = np.array([[np.cos(angle), np.sin(angle)] for angle in np.linspace(0.0, 1.5, 4)])
ACROSS = np.array([[0.0, 1.0], [1.0, 0.3]])


def law(scores: Sequence[int], k: int, scale: float) -> dict[tuple[int, ...], float]:
    """Probability of each order of k picks: one exponential mechanism after another."""
    weights = [math.exp((score - max(scores)) / scale) for score in scores]
    found = {}
    for picks in itertools.permutations(range(len(scores)), k):
        left, chance = sum(weights), 1.0
        for pick in picks:
            chance *= weights[pick] / left
            left -= weights[pick]
        found[picks] = chance
    return found


def divergence(first: Mapping[tuple[int, ...], float], second: Mapping[tuple[int, ...], float], order: float) -> float:
    """Renyi divergence."""
    terms = (order * math.log(first[key]) + (1.0 - order) * math.log(second[key]) for key in first)
    return float(np.logaddexp.reduce(list(terms)) / (order - 1.0))


def worst_share(k: int, rho: float, scale: float) -> float:
    """The largest divergence over orders and small neighbouring data sets, as a share of what rho allows."""
    worst = 0.0
    for size in range(4):
        for own in itertools.combinations_with_replacement(range(4), size):
            for extra in range(4):
                laws = [law(depths(POINTS[list(some)], POINTS, ACROSS).tolist(), k, scale) for some in
                        (own, (*own, extra))]  # fmt: skip
                for order in (1.5, 4.0, 32.0):
                    both = (divergence(*laws, order), divergence(*reversed(laws), order))
                    worst = max(worst, max(both) / (order * rho))
    return worst


@pytest.mark.parametrize(("k", "rho"), [(1, 0.02), (1, 0.5), (2, 0.02), (2, 0.5), (3, 0.1), (4, 0.1)])
def test_the_enumerated_divergence_is_within_rho(k, rho):
    assert worst_share(k, rho, gumbel_scale(k, rho)) <= 1.0


@pytest.mark.parametrize(("k", "rho"), [(1, 0.02), (2, 0.02), (3, 0.1)])
def test_a_scale_for_fewer_picks_breaks_the_bound(k, rho):
    """It is not far from tight: half the scale passes rho."""
    assert worst_share(k, rho, gumbel_scale(k, rho) / 2) > 1.0


def test_picks_follow_the_enumerated_law():
    texts, rho = rows_of((0, "refund"), (1, "refund"), (1, "refund"), (2, "outage"), (3, "outage")), 0.6
    query = DepthPicks(encoder_of(POINTS), POINTS, ACROSS, {"refund": 2, "outage": 1}, rho)
    answers = [query.run(texts, NoiseSource()) for _ in range(1000)]
    for label, own, k in [("refund", [0, 1, 1], 2), ("outage", [2, 3], 1)]:
        expected = law(depths(POINTS[own], POINTS, ACROSS).tolist(), k, gumbel_scale(k, rho))
        drawn = [tuple(answer[label]) for answer in answers]
        observed = [drawn.count(picks) for picks in expected]
        assert stats.chisquare(observed, [1000 * chance for chance in expected.values()]).pvalue > 1e-6


# What the picks are.


def test_exact_picks_are_the_deepest_and_ties_go_to_the_earlier():
    rows = rows_of((0, "refund"), (0, "refund"), (3, "refund"), (1, "outage"))
    answer = query_of({"refund": 8, "outage": 2}, math.inf).run(rows, NoiseSource())
    found = brute(CORNERS[[0, 0, 3]], CORNERS[:8], LINES)
    assert answer["refund"] == sorted(range(8), key=lambda place: (-found[place], place))
    assert answer["outage"] == [1, 0]
    assert all(type(place) is int for place in answer["refund"])


@pytest.mark.parametrize("rho", [0.5, math.inf])
def test_useless_candidates_are_never_picked_and_each_is_picked_once(rho):
    answer = query_of({"refund": 100, "outage": 8}, rho).run(DATA[0], NoiseSource())
    assert sorted(answer["refund"]) == sorted(answer["outage"]) == sorted(set(range(11)) - set(USELESS))


def test_places_are_those_of_all_candidates():
    points = np.concatenate([[[0.0, 0.0]], CORNERS[:4]])
    query = replace(query_of({"refund": 1}, math.inf), candidates=points)
    assert query.run(rows_of((3, "refund")), NoiseSource()) == {"refund": [4]}


def test_without_rows_or_candidates_there_are_still_answers():
    assert [len(own) for own in query_of().run([], NoiseSource()).values()] == [3, 2]
    nothing = replace(query_of(), candidates=np.zeros((0, 2)))
    assert nothing.run(DATA[0], NoiseSource()) == {"refund": [], "outage": []}
    assert query_of({"refund": 0}).run(DATA[0], NoiseSource()) == {"refund": []}


def test_more_noise_for_less_rho():
    rows = rows_of(*[(3, "refund")] * 40)
    first = [
        sum(query_of({"refund": 1}, rho).run(rows, NoiseSource())["refund"] == [3] for _ in range(60))
        for rho in (1e-9, 2.0)
    ]
    assert first[0] < 30 < first[1]


# The charge.


def test_the_event_is_rho_whatever_the_picks():
    for picks in ({"refund": 1}, {"refund": 500, "outage": 3}, {}):
        assert query_of(picks).event() == dpa.ZCDpEvent(0.5)
        assert query_of(picks).stores_answer
    assert query_of(rho=math.inf).event() == dpa.NonPrivateDpEvent()
    exact = query_of(rho=math.inf)
    assert not exact.stores_answer
    object.__setattr__(exact, "event", lambda: dpa.ZCDpEvent(0.5))
    assert not exact.stores_answer


def test_a_retry_replays_the_stored_answer_without_encoding(small, run):
    def ask(asked: DepthPicks) -> dict[str, list[int]]:
        reservation = small.reserve("tickets", run(), [PlannedQuery(asked.name, asked.event())])
        return PrivateView(DATA[0], SCHEMA, small, reservation, NoiseSource()).ask(asked)

    first = ask(query_of(rho=0.1))
    before = small.balance("tickets")
    assert ask(replace(query_of(rho=0.1), encode=encoder_of(CORNERS[:0]))) == first
    assert small.balance("tickets") == before


def test_exact_picks_are_not_for_release_and_not_stored(small, run):
    query = query_of(rho=math.inf)
    asked = [PlannedQuery(query.name, query.event())]
    with pytest.raises(LedgerError, match="without noise"):
        small.reserve("tickets", run(), asked)
    reservation = small.reserve("tickets", run(purpose="reference"), asked)
    PrivateView(DATA[0], SCHEMA, small, reservation, NoiseSource()).ask(query)
    assert [charge.state for charge in small.charges("tickets")] == ["begun"]


@pytest.mark.parametrize(
    "changes",
    [{"rho": 0.0}, {"rho": -1.0}, {"rho": math.nan}, {"rho": -math.inf}, {"picks": {"refund": 2, "outage": -1}}],
)
def test_arguments_that_the_guarantee_does_not_hold_for_are_refused(changes):
    with pytest.raises(ValueError, match="must"):
        replace(query_of(), **changes)


# Encoders that misbehave.


def failing(texts: Sequence[str]) -> np.ndarray:
    raise RuntimeError(f"cannot encode {texts[0]!r}")


@pytest.mark.parametrize(
    "encode", [failing, lambda texts: np.zeros((len(texts), 5)), lambda texts: np.zeros((len(texts) + 1, 2))]
)
def test_an_encoder_that_fails_is_an_error_without_a_row(encode):
    with pytest.raises(ModelError) as caught:
        replace(query_of(), encode=encode).run([PrivateRow(SECRET, "refund")], NoiseSource())
    assert caught.value.remedy
    told = "".join(traceback.format_exception(caught.value))
    assert SECRET not in told + repr(vars(caught.value))
