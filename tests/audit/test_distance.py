"""Distances between sets of embeddings: closed forms, floors, and what they must not depend on."""

import json
from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import sqrtm
from scipy.spatial.distance import cdist

from palimpsest.audit.measures import energy, frechet, wasserstein
from palimpsest.errors import DataError, ModelError
from palimpsest_lab.audits.rounds import MEASURES, Distance, measure_rounds

ALL = pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)


def drawn(n: int, seed: int, d: int = 6, shift: float = 0.0, scale: float = 1.0) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(n, d)) * scale
    rows[:, 0] += shift
    return rows


def with_moments(mean: np.ndarray, covariance: np.ndarray, seed: int, n: int = 50) -> np.ndarray:
    """Rows whose sample mean and covariance are exactly these."""
    raw = drawn(n, seed, len(mean))
    raw -= raw.mean(axis=0)
    white = raw @ np.linalg.inv(np.linalg.cholesky(np.cov(raw.T))).T
    return white @ np.linalg.cholesky(covariance).T + mean


def defined(first: np.ndarray, second: np.ndarray) -> float:
    """The Fréchet distance as it is written down."""
    one, two = np.cov(first.T), np.cov(second.T)
    apart = ((first.mean(axis=0) - second.mean(axis=0)) ** 2).sum()
    return float(apart + np.trace(one) + np.trace(two) - 2 * np.trace(sqrtm(one @ two)).real)


# Values.


@pytest.mark.parametrize(
    ("mean", "one", "two", "value"),
    [
        ([0.0, 0.0], [4.0, 9.0], [4.0, 9.0], 0.0),
        ([3.0, 4.0], [4.0, 9.0], [4.0, 9.0], 25.0),
        ([0.0, 0.0], [4.0, 9.0], [1.0, 1.0], 1.0 + 4.0),  # sum of (sigma - sigma')^2
        ([1.0, 0.0], [16.0, 1.0], [1.0, 9.0], 1.0 + 9.0 + 4.0),
    ],
)
def test_frechet_of_gaussians_is_the_closed_form(
    mean: Sequence[float], one: Sequence[float], two: Sequence[float], value: float
) -> None:
    first = with_moments(np.zeros(2), np.diag(one), 0)
    assert frechet(first, with_moments(np.array(mean), np.diag(two), 1, 80)) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize(("n", "m"), [(60, 60), (60, 9), (200, 31)])
def test_frechet_is_its_definition(n: int, m: int) -> None:
    turned = np.linalg.qr(drawn(6, 5))[0] * [1, 2, 3, 0.5, 0.1, 1]
    first, second = drawn(n, 0) @ turned, drawn(m, 1, shift=0.3) @ turned.T
    assert frechet(first, second) == pytest.approx(defined(first, second), rel=1e-6)


def test_frechet_of_fewer_rows_than_dimensions_is_exact() -> None:
    first, second = drawn(5, 0, 4), drawn(7, 1, 4)
    wide = np.linalg.qr(drawn(40, 3, 40))[0][:4]  # a rotation into 40 dimensions changes no distance
    assert frechet(first @ wide, second @ wide) == pytest.approx(frechet(first, second), rel=1e-9)
    assert frechet(np.eye(2, 400), np.eye(2, 400)) == pytest.approx(0.0, abs=1e-12)


def test_frechet_in_single_precision_far_from_the_origin_loses_nothing_more() -> None:
    first, second = (drawn(100, 0) + 1000.0).astype(np.float32), (drawn(90, 1) + 1000.0).astype(np.float32)
    assert frechet(first, second) == pytest.approx(frechet(first.astype(float), second.astype(float)), rel=1e-12)
    assert frechet(first, second) == pytest.approx(defined(first.astype(float), second.astype(float)), rel=1e-4)


def test_energy_is_its_definition() -> None:
    first, second = drawn(1500, 0, 3), drawn(40, 1, 3, shift=0.5)
    within = [cdist(rows, rows).sum() / (len(rows) * (len(rows) - 1)) for rows in (first, second)]
    assert energy(first, second) == pytest.approx(2 * cdist(first, second).mean() - sum(within), rel=1e-6)


def test_energy_of_two_points_each_on_a_line() -> None:
    assert energy(np.array([[0.0], [1.0]]), np.array([[5.0], [7.0]])) == pytest.approx(2 * 5.5 - 1.0 - 2.0)


def test_energy_has_no_bias_and_frechet_has_one() -> None:
    pairs = [(drawn(10, seed), drawn(10, 1000 + seed)) for seed in range(300)]
    energies, squares = ([measure(*pair) for pair in pairs] for measure in (energy, frechet))
    assert abs(np.mean(energies)) < 4 * np.std(energies) / np.sqrt(300)
    assert min(energies) < 0 < min(squares)


def test_wasserstein_on_a_line_pairs_rows_in_order() -> None:
    """In one dimension the best pairing is that of the sorted values."""
    first, second = drawn(40, 0, 1), drawn(40, 1, 1, shift=0.7, scale=2.0)
    apart = np.abs(np.sort(first, axis=0) - np.sort(second, axis=0)).mean()
    assert wasserstein(first, second) == pytest.approx(apart, rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_wasserstein_is_the_best_of_all_pairings(seed: int) -> None:
    first, second = drawn(6, seed, 3), drawn(6, seed + 50, 3, shift=0.5)
    pairings = [np.linalg.norm(first - second[list(order)], axis=1).mean() for order in permutations(range(6))]
    assert wasserstein(first, second) == pytest.approx(min(pairings), rel=1e-9)  # the grid of distances
    assert wasserstein(first, second) < pairings[0]


def test_wasserstein_of_a_shift_is_its_length() -> None:
    rows = drawn(200, 0, 50)
    assert wasserstein(rows, rows[::-1] + 0.3) == pytest.approx(0.3 * np.sqrt(50))


def test_wasserstein_of_half_precision_is_that_of_its_numbers() -> None:
    first, second = drawn(30, 0).astype(np.float16), drawn(30, 1).astype(np.float16)
    assert wasserstein(first, second) == wasserstein(first.astype(float), second.astype(float))


def test_wasserstein_compares_sets_of_one_size() -> None:
    with pytest.raises(ValueError, match="5 and 6"):
        wasserstein(drawn(5, 0), drawn(6, 1))


# What they notice, and what not.


@ALL
@pytest.mark.parametrize("d", [3, 60])
def test_a_shift_and_a_change_of_spread_raise_it(measure, d: int) -> None:
    base = drawn(200, 0, d)
    shifted = [measure(base, drawn(200, 1, d, shift=shift)) for shift in (0.0, 1.0, 2.0, 4.0)]
    assert shifted == sorted(shifted)
    assert measure(base, drawn(200, 1, d, scale=2.0)) > measure(base, drawn(200, 1, d, scale=1.5)) > shifted[0]


@ALL
@settings(max_examples=40)
@given(st.integers(2, 30), st.integers(2, 30), st.integers(1, 12), st.integers(0, 99))
def test_order_and_side_do_not_matter_and_it_is_finite(measure, n: int, m: int, d: int, seed: int) -> None:
    first = drawn(m if measure is wasserstein else n, seed, d)
    second = drawn(m, seed + 100, d, shift=1.0)
    value = measure(first, second)
    order = np.random.default_rng(seed).permutation
    assert np.isfinite(value)
    assert measure(order(first), order(second)) == pytest.approx(value, rel=1e-9, abs=1e-9)
    assert measure(second, first) == pytest.approx(value, rel=1e-9, abs=1e-9)
    assert value >= 0 or measure is energy


def test_rounding_makes_no_frechet_distance_negative() -> None:
    assert min(frechet(rows, rows[::-1]) for rows in (drawn(30, seed) for seed in range(50))) >= 0.0


@ALL
def test_equal_rows_are_no_trouble(measure) -> None:
    constant, apart = np.ones((5, 8)), {frechet: 8.0, energy: 2 * np.sqrt(8.0), wasserstein: np.sqrt(8.0)}
    assert measure(constant, constant) == pytest.approx(0.0, abs=1e-7)
    assert measure(constant, constant + 1.0) == pytest.approx(apart[measure])


@ALL
@pytest.mark.parametrize("rows", [np.zeros((1, 4)), np.zeros((0, 4))])
def test_too_few_rows_are_an_error(measure, rows: np.ndarray) -> None:
    for pair in ((rows, drawn(9, 0, 4)), (drawn(9, 0, 4), rows)):
        with pytest.raises(DataError):
            measure(*pair)


@ALL
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_embeddings_that_are_no_numbers_are_an_error(measure, value: float) -> None:
    broken = drawn(9, 0)
    broken[4, 2] = value
    with pytest.raises(ModelError):
        measure(drawn(9, 1), broken)


# Floors and rounds.


def test_the_floor_is_what_two_honest_samples_are_apart() -> None:
    (found,) = measure_rounds([drawn(100, 2)], drawn(4000, 0), drawn(4000, 1), 7, repeats=40)
    for one, measure in zip(found, MEASURES.values(), strict=True):
        honest = [measure(drawn(100, seed), drawn(100, seed + 1000)) for seed in range(40)]
        assert one.n == 100
        assert one.floor == pytest.approx(np.mean(honest), abs=4 * np.std(honest) / np.sqrt(40))


def test_a_small_holdout_bounds_the_rows_of_the_floor() -> None:
    train, holdout, rows = drawn(300, 0), drawn(20, 1), drawn(100, 2)
    sizes = [
        measure_rounds([rows], *sides, 0, most=most)[0][0].n
        for sides in ((train, holdout), (holdout, train))
        for most in (99, 5)
    ]
    assert sizes == [20, 5, 20, 5]
    assert measure_rounds([rows], holdout, holdout, 0)[0][0].floor == pytest.approx(
        0.0, abs=1e-12
    )  # all rows of either
    with pytest.raises(DataError):
        measure_rounds([rows], train, holdout[:1], 0)


def test_rounds_are_compared_at_one_n_and_against_one_floor() -> None:
    train, holdout = drawn(500, 0), drawn(400, 1)
    rounds = [drawn(250, 2, shift=3.0), drawn(120, 3, shift=1.5), drawn(300, 4)]
    found = measure_rounds(rounds, train, holdout, 5)
    assert [[one.name for one in each] for each in found] == [["frechet", "energy", "wasserstein"]] * 3
    assert {one.n for each in found for one in each} == {120}
    at_the_floor = measure_rounds([holdout], train, holdout, 5, most=120)[0]
    for column, measure, honest in zip(zip(*found, strict=True), MEASURES.values(), at_the_floor, strict=True):
        assert {one.floor for one in column} == {honest.value} == {honest.floor}
        values = [one.value for one in column]
        assert values == sorted(values, reverse=True)
        assert values[1] > (1.3 if measure is wasserstein else 3) * abs(column[0].floor)
        assert values[2] == pytest.approx(column[2].floor, abs=0.2)


def test_each_value_rests_on_n_rows_of_either_side() -> None:
    train, rows = drawn(40, 0), drawn(40, 2)
    (whole,) = measure_rounds([rows], train, drawn(60, 1), 5)
    assert [one.value for one in whole] == pytest.approx([measure(rows, train) for measure in MEASURES.values()])
    ((few, *_),) = measure_rounds([drawn(900, 2)], drawn(900, 0), drawn(20, 1), 5)
    assert few.value > 5 * frechet(drawn(900, 2), drawn(900, 0))  # the bias of 20 rows, as in the floor


def test_the_seed_draws_the_rows_of_a_round_too() -> None:
    train, holdout, rows = drawn(40, 0), drawn(40, 1), drawn(300, 2)
    assert measure_rounds([rows], train, holdout, 0) != measure_rounds([rows], train, holdout, 1)


def test_copies_of_training_rows_are_below_the_floor() -> None:
    train, holdout = drawn(200, 0), drawn(200, 1)
    ((squared, apart, moved),) = measure_rounds([train.copy()], train, holdout, 0)
    assert squared.value < 1e-9 < squared.floor
    assert apart.value < apart.floor
    assert moved.value == 0.0 < moved.floor


def test_small_holdout_rules_all_rounds_and_most_rows_are_a_cap() -> None:
    train, rounds = drawn(100, 0), [drawn(80, 1), drawn(90, 2)]
    assert {one.n for each in measure_rounds(rounds, train, drawn(12, 3), 0) for one in each} == {12}
    assert {one.n for each in measure_rounds(rounds, train, drawn(70, 3), 0, most=30) for one in each} == {30}


def test_rows_are_matched_up_to_a_thousand() -> None:
    rounds, train, holdout = [drawn(1100, 0, 2), drawn(1100, 1, 2)], drawn(1100, 2, 2), drawn(1100, 3, 2)
    for found in measure_rounds(rounds, train, holdout, 0, repeats=1):
        assert [one.n for one in found] == [1100, 1100, 1000]


def test_equal_rounds_are_equal_and_the_seed_is_all_the_chance() -> None:
    train, holdout, rows = drawn(100, 0), drawn(90, 1), drawn(95, 2)
    first, second = measure_rounds([rows, rows], train, holdout, 0, most=40)
    assert first == second
    assert measure_rounds([rows], train, holdout, 0, most=40) == [first]
    assert measure_rounds([rows], train, holdout, 1, most=40) != [first]


def test_no_round_is_an_error() -> None:
    with pytest.raises(ValueError, match="rounds"):
        measure_rounds([], drawn(9, 0), drawn(9, 1), 0)


def test_a_distance_is_written_as_numbers() -> None:
    written = Distance("energy", 0.25, 0.125, 40).to_json()
    assert json.loads(json.dumps(written)) == {"name": "energy", "value": 0.25, "floor": 0.125, "n": 40}
