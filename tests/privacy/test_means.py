"""Class means: one record moves the sums by at most 1 whatever the encoder says, and the noise is what is charged.

The sums are whole steps of 1 / GRID, so sensitivities are computed in integers, without any rounding of the tests' own.
"""

import itertools
import json
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import dp_accounting as dpa
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from palimpsest.errors import ModelError
from palimpsest.models.encoder import Encoder
from palimpsest.models.sources import resolve_encoder
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.means import GRID, ClassMeans, class_steps, unit_rows
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.query import is_for_persons
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.view import PrivateView
from palimpsest.records.schema import PublicSchema
from tests.privacy.persons import IDS, data_sets, neighbours, records_in, rows_in

SECRET = "the order number is 8812-XK"
LABELS = ("refund", "outage", "praise")
CORNERS = np.array([
    [1.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [-1.5, 0.0, 0.0], [1e300, 1e300, 1e300], [5e-324, 5e-324, 0.0],
    [1.0, 1 / 3, 0.1], [0.0, 0.0, 0.0], [np.nan, 1.0, 0.0], [-np.inf, 0.0, np.inf], [1e-200, 1e200, -1e-200],
])  # fmt: skip


def encoder_of(vectors: np.ndarray) -> Callable[[Sequence[str]], np.ndarray]:
    """An encoder that reads a text as the number of a vector."""
    return lambda texts: np.stack([vectors[int(text)] for text in texts])


def query_of(vectors: np.ndarray = CORNERS, sigma: float = 0.0, batch: int = 2, kind: type = ClassMeans) -> ClassMeans:
    return kind(LABELS, encoder_of(vectors), vectors.shape[1], sigma, batch)


def rows_of(*pairs: tuple[int, str | None]) -> list[PrivateRow]:
    return [PrivateRow(str(number), label) for number, label in pairs]


def moved(query: ClassMeans, rows: Sequence[PrivateRow], extra: PrivateRow, place: int = 0) -> Fraction:
    """The squared L2 distance of the sums with and without one row, exactly."""
    without, having = (query.run(some, NoiseSource()) for some in (rows, [*rows[:place], extra, *rows[place:]]))
    steps = [
        round((new - old) * GRID)
        for before, after in zip(without, having, strict=True)
        for old, new in zip(before, after, strict=True)
    ]
    return Fraction(sum(step * step for step in steps), GRID**2)


class Unnormalised(ClassMeans):
    """The mutant: vectors as long as the encoder makes them."""

    def run(self, rows, noise):
        sums = np.zeros((len(self.labels), self.dimensions))
        for row in rows:
            sums[self.labels.index(row.label)] += np.nan_to_num(self.encode([row.text])[0])
        return sums.tolist()


class NormalisedLate(Unnormalised):
    """The mutant: the sums are normalised, not the vectors."""

    def run(self, rows, noise):
        return unit_rows(np.array(super().run(rows, noise))).tolist()


class Averaged(ClassMeans):
    """The mutant: divides by how many rows there are, and multiplies by what it expects."""

    def run(self, rows, noise):
        return (np.array(super().run(rows, noise)) / max(1, len(rows)) * 3).tolist()


class CountedTwice(ClassMeans):
    """The mutant: a row votes in its class and in the next."""

    def run(self, rows, noise):
        own = np.array(super().run(rows, noise))
        return (own + np.roll(own, 1, axis=0)).tolist()


# One record.


def test_one_record_moves_the_sums_by_at_most_one_in_every_small_data_set():
    query = query_of()
    kinds = rows_of(*[(number, "refund") for number in range(len(CORNERS))], (0, "outage"), (3, "outage"), (5, None))
    for size in range(3):
        for rows in itertools.combinations_with_replacement(kinds, size):
            assert all(moved(query, rows, extra) <= 1 for extra in kinds)


@settings(deadline=None)
@given(
    arrays(np.float64, st.tuples(st.integers(1, 7), st.integers(1, 9)), elements=st.floats(width=64)),
    st.data(),
)
def test_one_record_moves_the_sums_by_at_most_one_whatever_its_vector(vectors, data):
    labels = st.sampled_from([*LABELS, "unheard of", None])
    rows = [PrivateRow(str(number), data.draw(labels)) for number in range(len(vectors))]
    query = query_of(vectors, batch=data.draw(st.integers(1, 8)))
    assert moved(query, rows[1:], rows[0], data.draw(st.integers(0, len(rows) - 1))) <= 1


@settings(deadline=None)
@given(arrays(np.float64, (1, 300), elements=st.floats(-1, 1)), st.floats(1e-300, 1e300))
def test_no_rounding_makes_a_vector_longer_than_one(vectors, scale):
    steps = class_steps(vectors * scale, [0], 1)[0]
    length = sum(int(step) ** 2 for step in steps)
    assert length <= GRID**2
    assert length >= (GRID - 1000) ** 2 or not np.any(vectors * scale)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_long_vectors_of_every_dtype_stay_within_one(kind):
    vectors = np.random.default_rng(1).normal(size=(50, 4096)).astype(kind)
    for vector in vectors:
        assert (GRID - 1000) ** 2 <= sum(int(step) ** 2 for step in class_steps(vector[None], [0], 1)[0]) <= GRID**2


@pytest.mark.parametrize("mutant", [Unnormalised, NormalisedLate, Averaged, CountedTwice])
def test_the_check_catches_mutants(mutant):
    query = query_of(kind=mutant)
    kinds = rows_of(*[(number, "refund") for number in (0, 1, 2, 5)])
    worst = [moved(query, list(rows), extra) for rows in itertools.product(kinds, repeat=1) for extra in kinds]
    assert max(worst) > 1


def test_a_batch_that_couples_rows_breaks_the_bound_and_a_batch_of_one_keeps_it():
    """What the docstring warns of: here an encoder that centres each batch."""
    apart = np.array([[1.0, 0.0], [0.9, 0.1], [-1.0, 0.0]])

    def centred(texts: Sequence[str]) -> np.ndarray:
        vectors = encoder_of(apart)(texts)
        return vectors - (vectors.mean(axis=0) if len(vectors) > 1 else 0.0)

    rows, extra = rows_of((0, "refund"), (1, "refund"), (1, "refund")), PrivateRow("2", "refund")
    assert moved(replace(query_of(apart, batch=8), encode=centred), rows, extra) > 1
    assert moved(replace(query_of(apart, batch=1), encode=centred), rows, extra) <= 1


# One person.

WIDE = 25  # the all-ones vector then has coordinates of 214,748,364.6 steps: rounded up, it would be longer than 1
PERSONS = np.stack([np.ones(WIDE), np.eye(WIDE)[0], -np.ones(WIDE), np.zeros(WIDE), np.full(WIDE, 1e300)])
BOTH = ("refund", "outage")
KINDS = [("0", "refund"), ("0", "outage"), ("1", "refund"), ("2", "outage"), ("3", "outage"), ("1", "unheard of")]


def summed(query: ClassMeans, rows: Sequence[PrivateRow]) -> list[int]:
    """The exact sums of all classes, in steps."""
    return [round(number * GRID) for own in query.run(rows, NoiseSource()) for number in own]


def of_persons(kind: type[ClassMeans] = ClassMeans, batch: int = 2) -> ClassMeans:
    return kind(BOTH, encoder_of(PERSONS), WIDE, 0.0, batch)


def longest_move(kind: type[ClassMeans], kinds: int, most: int, persons: int) -> int:
    """The largest squared L2 distance, in steps, to a neighbour without a person, over all small data sets."""
    answers: dict[object, list[int]] = {}
    worst = 0
    for data in data_sets(KINDS[:kinds], most, persons):
        answers[data] = summed(of_persons(kind), rows_in(data))
        moves = (
            [new - old for new, old in zip(answers[data], answers[other], strict=True)] for other in neighbours(data)
        )
        worst = max([worst, *(sum(step * step for step in move) for move in moves)])
    return worst


class EveryRow(ClassMeans):
    """The mutant: each row of a person contributes a vector of its own."""

    def run(self, rows, noise):
        return super().run([PrivateRow(row.text, row.label) for row in rows], noise)


class EveryLabel(ClassMeans):
    """The mutant: a person has one vector in each class."""

    def run(self, rows, noise):
        apart = [PrivateRow(row.text, row.label, f"{row.person} {row.label}") for row in rows]
        return super().run(apart, noise)


class RoundedUp(ClassMeans):
    """The mutant: to the nearest step, not towards zero."""

    def run(self, rows, noise):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(np, "trunc", np.rint)
            return super().run(rows, noise)


@pytest.mark.parametrize(("kinds", "most", "persons"), [(4, 2, 3), (6, 2, 2), (6, 3, 1)])
def test_one_person_moves_the_sums_by_at_most_one_in_every_small_data_set(kinds, most, persons):
    assert (GRID - 1000) ** 2 <= longest_move(ClassMeans, kinds, most, persons) <= GRID**2


@pytest.mark.parametrize("mutant", [EveryRow, EveryLabel, RoundedUp])
def test_the_check_of_persons_catches_mutants(mutant):
    assert longest_move(mutant, 6, 2, 1) > GRID**2


@settings(deadline=None)
@given(
    arrays(np.float64, st.tuples(st.integers(1, 7), st.integers(1, 9)), elements=st.floats(width=64)),
    st.data(),
)
def test_one_person_moves_the_sums_by_at_most_one_whatever_their_vectors(vectors, data):
    rows = [
        PrivateRow(str(number), data.draw(st.sampled_from([*LABELS, None])), data.draw(st.sampled_from(IDS)))
        for number in range(len(vectors))
    ]
    query = query_of(vectors, batch=data.draw(st.integers(1, 8)))
    before, after = summed(query, rows), summed(query, [row for row in rows if row.person != IDS[0]])
    assert sum((new - old) ** 2 for new, old in zip(before, after, strict=True)) <= GRID**2


def test_persons_of_one_row_sum_as_records_do():
    for data in data_sets(KINDS, 1):
        assert summed(of_persons(), rows_in(data)) == summed(of_persons(), records_in(data))


@settings(deadline=None)
@given(st.permutations(range(9)), st.integers(1, 10))
def test_neither_order_nor_batches_show_where_persons_have_several_rows(order, batch):
    """Persons of five, three and one row, so that one may have more rows than a batch."""
    vectors = np.random.default_rng(3).normal(size=(9, WIDE))
    owners = [IDS[place] for place in (0, 0, 0, 0, 0, 1, 1, 1, 2)]
    rows = [PrivateRow(str(number), BOTH[number % 2], owners[number]) for number in range(9)]
    sizes: list[int] = []

    def watched(texts: Sequence[str]) -> np.ndarray:
        sizes.append(len(texts))
        return encoder_of(vectors)(texts)

    whole = replace(of_persons(), encode=encoder_of(vectors), batch=100)
    query = replace(whole, encode=watched, batch=batch)
    assert summed(query, [rows[index] for index in order]) == summed(whole, rows)
    assert max(sizes) <= batch
    assert sum(sizes) == 9


def test_a_person_says_at_least_as_much_as_the_mean_over_their_rows():
    vectors = np.random.default_rng(4).normal(size=(6, WIDE))
    query = replace(of_persons(), encode=encoder_of(vectors))
    for size in range(1, 7):
        rows = [PrivateRow(str(number), BOTH[number % 2], IDS[0]) for number in range(size)]
        own = np.array(query.run(rows, NoiseSource())).ravel()
        mean = np.array(query.run([PrivateRow(row.text, row.label) for row in rows], NoiseSource())).ravel() / size
        assert own @ mean == pytest.approx(np.linalg.norm(own) * np.linalg.norm(mean))
        assert np.linalg.norm(own) >= np.linalg.norm(mean) - 1e-8


def test_its_class_bounds_persons():
    assert is_for_persons(of_persons())


# What the sums are.


def test_sums_are_of_unit_vectors_per_class():
    rows = rows_of((0, "refund"), (2, "refund"), (3, "praise"), (3, "praise"))
    expected = np.array([[0, 0, 0], [0, 0, 0], [2, 2, 2] / np.sqrt(3)])
    assert np.allclose(query_of().run(rows, NoiseSource()), expected, atol=1e-8)


def test_useless_vectors_and_unknown_labels_contribute_nothing():
    asked: list[str] = []

    def watched(texts: Sequence[str]) -> np.ndarray:
        asked.extend(texts)
        return encoder_of(CORNERS)(texts)

    rows = rows_of((6, "refund"), (7, "refund"), (8, "outage"), (0, "unheard of"), (1, None))
    assert not np.any(replace(query_of(), encode=watched).run(rows, NoiseSource()))
    assert sorted(asked) == ["6", "7", "8"]


@settings(deadline=None)
@given(st.permutations(range(10)), st.integers(1, 11))
def test_neither_order_nor_batches_show(order, batch):
    rows = rows_of(*[(number, LABELS[number % 2]) for number in range(10)])
    answer = query_of(batch=batch).run([rows[index] for index in order], NoiseSource())
    assert answer == query_of(batch=1).run(rows, NoiseSource())


def test_the_encoder_gets_at_most_a_batch():
    sizes: list[int] = []

    def watched(texts: Sequence[str]) -> np.ndarray:
        sizes.append(len(texts))
        return encoder_of(CORNERS)(texts)

    replace(query_of(batch=3), encode=watched).run(rows_of(*[(0, "refund")] * 7), NoiseSource())
    assert sizes == [3, 3, 1]


def test_an_empty_data_set_has_sums():
    assert query_of().run([], NoiseSource()) == [[0.0] * 3] * 3


# Noise.


class Forgotten(ClassMeans):
    """The mutant: no noise."""

    def run(self, rows, noise):
        return ClassMeans.run(replace(self, sigma=0.0), rows, noise)


class Shared(Forgotten):
    """The mutant: one draw per coordinate, for all classes."""

    def run(self, rows, noise):
        drawn = noise.whole_normal(self.dimensions, self.sigma * GRID)
        return (np.array(super().run(rows, noise)) + drawn / GRID).tolist()


class OneNumber(Forgotten):
    """The mutant: one draw for all."""

    def run(self, rows, noise):
        return (np.array(super().run(rows, noise)) + noise.whole_normal(1, self.sigma * GRID) / GRID).tolist()


class Squared(ClassMeans):
    """The mutant: sigma taken for a variance."""

    def run(self, rows, noise):
        return ClassMeans.run(replace(self, sigma=self.sigma**0.5), rows, noise)


class PerBatch(ClassMeans):
    """The mutant: each batch brings noise of its own, as if it were charged apart."""

    def run(self, rows, noise):
        return (np.array(super().run(rows, noise)) + np.array(super().run([], noise))).tolist()


def plausible(kind: type[ClassMeans], seed: int) -> bool:
    """Whether the noise looks like independent N(0, sigma^2): each coordinate, and each difference of two classes."""
    wide, sigma = np.eye(4000), 2.5
    query = query_of(wide, sigma, kind=kind)
    rows = rows_of((0, "refund"), (1, "outage"), (2, "refund"), (3, "refund"), (4, "outage"))  # three batches
    exact = query_of(wide).run(rows, NoiseSource())
    noise = np.subtract(query.run(rows, NoiseSource(seed)), exact) / sigma  # (labels, d)
    differences = [(noise[i] - noise[j]) / np.sqrt(2) for i, j in [(0, 1), (1, 2), (0, 2)]]
    return all(stats.kstest(sample, "norm").pvalue > 1e-6 for sample in [noise.ravel(), *noise, *differences])


@pytest.mark.parametrize("seed", range(5))
def test_the_noise_is_gaussian_of_sigma_and_independent(seed):
    assert plausible(ClassMeans, seed)


@pytest.mark.parametrize("mutant", [Forgotten, Shared, OneNumber, Squared, PerBatch])
def test_wrong_noise_is_noticed(mutant):
    assert not plausible(mutant, 0)


def test_noise_is_fresh_each_time():
    query = query_of(sigma=1.0)
    assert len({json.dumps(query.run([], NoiseSource())) for _ in range(5)}) == 5
    source = NoiseSource()
    assert query.run([], source) != query.run([], source)


def test_no_low_bits_tell_the_sum():
    """The answer is whole steps, sum and noise alike: with the same draws it is the exact sum moved by whole steps."""
    rows = rows_of((5, "refund"), (3, "outage"), (9, "praise"))
    noisy, noise, exact = (
        np.array(query.run(some, NoiseSource(4))) * GRID
        for query, some in [(query_of(sigma=0.3), rows), (query_of(sigma=0.3), []), (query_of(), rows)]
    )
    assert all(np.array_equal(part, np.rint(part)) for part in (noisy, noise, exact))
    assert np.array_equal(noisy, noise + exact)


@pytest.mark.parametrize("sigma", [1e-3, 2.0**20])
def test_noise_of_every_allowed_size_fits(sigma):
    noise = np.array(query_of(np.eye(2000), sigma).run([], NoiseSource(1))) / sigma
    assert np.std(noise) == pytest.approx(1.0, abs=0.05)


# The charge.


def test_the_event_is_one_gaussian_or_none():
    assert query_of(sigma=3.5).event() == dpa.GaussianDpEvent(3.5)
    assert query_of(sigma=0.0).event() == dpa.NonPrivateDpEvent()


def test_a_retry_replays_the_stored_answer_without_encoding(small, run):
    schema = PublicSchema("tickets", "classify", "text", 1000, 200, "label", dict.fromkeys(LABELS, ""))
    rows, query = rows_of((0, "refund"), (3, "praise")), query_of(sigma=4.0)

    def ask(asked: ClassMeans) -> list[list[float]]:
        reservation = small.reserve("tickets", run(), [PlannedQuery(query.name, query.event())])
        return PrivateView(rows, schema, small, reservation, NoiseSource()).ask(asked)

    first = ask(query)
    before = small.balance("tickets")
    assert ask(replace(query, encode=encoder_of(CORNERS[:0]))) == first
    assert small.balance("tickets") == before
    assert np.shape(first) == (3, 3)


def test_an_exact_answer_is_not_stored(small, run):
    query = query_of()
    reservation = small.reserve("tickets", run(purpose="reference"), [PlannedQuery(query.name, query.event())])
    schema = PublicSchema("tickets", "classify", "text", 1000, 200, "label", dict.fromkeys(LABELS, ""))
    PrivateView([], schema, small, reservation, NoiseSource()).ask(query)
    assert [charge.state for charge in small.charges("tickets")] == ["begun"]


# Encoders that misbehave.


def failing(texts: Sequence[str]) -> np.ndarray:
    raise RuntimeError(f"cannot encode {texts[0]!r}")


@pytest.mark.parametrize(
    "encode",
    [
        failing,
        lambda texts: np.zeros((len(texts), 4)),
        lambda texts: np.zeros((len(texts) + 1, 3)),
        lambda texts: np.zeros(3),
        lambda texts: np.zeros((len(texts), 3, 1)),
        lambda texts: [[1.0], [1.0, 2.0]][: len(texts)],
        lambda texts: [[SECRET] * 3 for _ in texts],
        lambda texts: None,
    ],
)
def test_an_encoder_that_fails_is_an_error_without_a_row(encode):
    rows = [PrivateRow(SECRET, "refund"), PrivateRow(SECRET + "!", "outage")]
    with pytest.raises(ModelError) as raised:
        replace(query_of(), encode=encode).run(rows, NoiseSource())
    assert raised.value.problem.startswith("The encoder ")
    assert raised.value.remedy
    told = "".join(traceback.format_exception(raised.value))
    assert SECRET not in told + repr(vars(raised.value))


@pytest.mark.parametrize(
    "changes",
    [{"labels": ("refund", "refund")}, {"sigma": -1.0}, {"sigma": float("nan")}, {"sigma": 2.0**21}, {"batch": 0},
     {"dimensions": 0}, {"dimensions": 2**21}],
)  # fmt: skip
def test_arguments_that_the_guarantee_does_not_hold_for_are_refused(changes):
    with pytest.raises(ValueError, match="must"):
        replace(query_of(), **changes)


# The real encoder.


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(resolve_encoder("embedded"))


def test_the_real_encoder_takes_each_text_alone(encoder):
    """Of one text in three batches: equal alone, and up to rounding in company."""
    text, long = "The kettle leaks.", "It works, and it is loud, and it was late. " * 20
    query = ClassMeans(LABELS, encoder.encode, encoder.dimension, 0.0, 1)
    own = np.array(query.run([PrivateRow(text, "refund")], NoiseSource()))[0]
    beside = np.array(query.run([PrivateRow(long, "praise"), PrivateRow(text, "refund")], NoiseSource()))
    padded = replace(query, batch=2).run([PrivateRow(long, "praise"), PrivateRow(text, "refund")], NoiseSource())
    assert np.array_equal(beside[0], own)
    assert np.abs(np.array(padded) - beside).max() < 1e-5
    assert np.linalg.norm(own) == pytest.approx(1.0, abs=1e-6)
