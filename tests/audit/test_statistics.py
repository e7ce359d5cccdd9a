"""Each formula against values from the literature, an independent library or brute force."""

from fractions import Fraction
from itertools import combinations
from math import comb, exp, log, sqrt

import numpy as np
import pytest
import scipy.stats
from sklearn.metrics import roc_auc_score, roc_curve

from palimpsest.audit.statistics import (
    Bootstrap,
    Estimate,
    auc_null_interval,
    auc_value,
    auc_with_interval,
    bootstrap_ratio,
    clopper_pearson,
    difference,
    hanley_mcneil_sd,
    one_run_epsilon,
    one_run_p_value,
    permutation_p,
    thin,
    tpr_at_fpr,
    wilson,
)

# Newcombe 1998, "Two-sided confidence intervals for the single proportion", table I: methods 3 and 5, at 95 %.
NEWCOMBE = [
    (81, 263, (0.2553, 0.3662), (0.2527, 0.3676)),
    (15, 148, (0.0624, 0.1605), (0.0578, 0.1617)),
    (0, 20, (0.0, 0.1611), (0.0, 0.1684)),
    (1, 29, (0.0061, 0.1718), (0.0009, 0.1776)),
]


@pytest.mark.parametrize(("count", "n", "score", "exact"), NEWCOMBE)
def test_intervals_of_a_rate(count, n, score, exact):
    assert wilson(count, n, 0.95) == pytest.approx(score, abs=5e-5)
    assert clopper_pearson(count, n, 0.95) == pytest.approx(exact, abs=5e-5)
    mirrored = clopper_pearson(n - count, n, 0.95)
    assert (1 - mirrored.high, 1 - mirrored.low) == pytest.approx(exact, abs=5e-5)


@pytest.mark.parametrize("interval", [wilson, clopper_pearson])
def test_no_trials_say_nothing_and_impossible_counts_are_errors(interval):
    assert tuple(interval(0, 0, 0.95)) == (0.0, 1.0)
    with pytest.raises(ValueError, match="count"):
        interval(3, 2, 0.95)


def test_auc_counts_ties_half():
    rng = np.random.default_rng(0)
    positive, negative = rng.integers(0, 6, 80) + 1.0, rng.integers(0, 6, 50).astype(float)
    expected = roc_auc_score(np.repeat([1, 0], [80, 50]), np.concatenate([positive, negative]))
    assert auc_value(positive, negative) == pytest.approx(expected, abs=1e-12)


def test_hanley_mcneil_standard_error():
    # Hanley and McNeil 1982: CT images of 51 abnormal and 58 normal patients, area .893, standard error .032.
    assert hanley_mcneil_sd(0.893, 51, 58) == pytest.approx(0.032, abs=1e-3)
    # Their model is two exponential distributions; with rates 1 and 1/3 the area is .75.
    rng = np.random.default_rng(0)
    areas = [auc_value(rng.exponential(3, 30), rng.exponential(1, 20)) for _ in range(4000)]
    assert np.mean(areas) == pytest.approx(0.75, abs=0.006)
    assert hanley_mcneil_sd(0.75, 30, 20) == pytest.approx(np.std(areas), rel=0.05)


@pytest.mark.parametrize("shift", [0.0, 1.0, 2.5])
def test_auc_interval_covers_the_truth(shift):
    rng, truth, hits = np.random.default_rng(1), scipy.stats.norm.cdf(shift / sqrt(2)), 0
    for _ in range(400):
        estimate = auc_with_interval(rng.normal(shift, 1, 40), rng.normal(0, 1, 60), 0.95)
        hits += estimate.low <= truth <= estimate.high
    assert hits >= 368  # 92 %: four standard deviations below 95 %


def test_auc_interval_keeps_a_width_at_the_ends():
    best = auc_with_interval(np.array([3.0, 4.0, 5.0]), np.array([0.0, 1.0]), 0.95)
    assert (best.value, best.high) == (1.0, 1.0)
    assert 0.3 < best.low < 1.0
    worst = auc_with_interval(np.array([0.0, 1.0, 1.5]), np.array([3.0, 4.0]), 0.95)
    assert (worst.value, worst.low) == (0.0, 0.0)
    assert 0.0 < worst.high < 0.7


def test_null_interval_has_the_exact_permutation_variance():
    pool = np.arange(7.0)
    values = [auc_value(pool[list(side)], np.delete(pool, side)) for side in combinations(range(7), 3)]
    low, high = auc_null_interval(pool[:3], pool[3:], 0.6)
    assert high - 0.5 == pytest.approx(scipy.stats.norm.ppf(0.8) * np.std(values))
    assert low == pytest.approx(1 - high)


@pytest.mark.parametrize("scores", [[0, 0, 0, 0, 0, 1, 2], [0, 0, 1, 1, 1, 1, 2], [0, 0, 0, 0, 0, 0, 1]])
def test_null_interval_of_scores_that_tie_has_their_permutation_variance(scores):
    pool = np.array(scores, dtype=float)
    values = [auc_value(pool[list(side)], np.delete(pool, side)) for side in combinations(range(7), 3)]
    _, high = auc_null_interval(pool[:3], pool[3:], 0.6)
    assert high - 0.5 == pytest.approx(scipy.stats.norm.ppf(0.8) * np.std(values))


def test_scores_that_all_tie_have_an_auc_of_a_half_and_no_interval_around_it():
    assert auc_null_interval(np.zeros(5), np.zeros(9), 0.99) == (0.5, 0.5)


def test_tpr_at_a_low_fpr():
    negative = np.arange(200.0)
    rate = tpr_at_fpr(np.array([197.0, 197.5, 198.5, 500.0]), negative, 0.01)
    assert (rate.count, rate.n) == (3, 4)  # two of 200 negatives may lie above: the threshold is 197
    assert (rate.low, rate.high) == pytest.approx(clopper_pearson(3, 4, 0.95))


def test_tpr_with_ties_never_exceeds_the_false_positive_rate():
    tied = np.zeros(100)
    assert tpr_at_fpr(tied, tied, 0.01).count == 0


def test_a_thinned_roc_keeps_its_ends_and_its_area():
    rng = np.random.default_rng(3)
    scores = np.concatenate([rng.normal(1, 1, 3000), rng.normal(0, 1, 3000)])
    fpr, tpr, _ = roc_curve(np.repeat([1, 0], 3000), scores, drop_intermediate=False)
    curve = np.column_stack([fpr, tpr])
    thinned = thin(curve, 200)
    assert len(thinned) <= 200
    assert (tuple(thinned[0]), tuple(thinned[-1])) == ((0.0, 0.0), (1.0, 1.0))
    areas = [np.trapezoid(points[:, 1], points[:, 0]) for points in (curve, thinned)]
    assert areas[0] == pytest.approx(areas[1], abs=1e-3)


def exact_p_value(canaries, guesses, correct, odds, delta):
    """Theorem 5.2 of Steinke et al. 2023 term by term in rational numbers, for e^epsilon = odds."""
    right = Fraction(odds, 1 + odds)
    mass = [comb(guesses, k) * right**k * (1 - right) ** (guesses - k) for k in range(guesses + 1)]

    def at_least(threshold):
        return sum(mass[max(threshold, 0) :])

    gains = [(at_least(correct - i) - at_least(correct)) / i for i in range(1, canaries + 1)]
    return min(1.0, float(at_least(correct) + 2 * canaries * Fraction(delta) * max(gains)))


@pytest.mark.parametrize("correct", [0, 7, 12, 15])
@pytest.mark.parametrize(("odds", "delta"), [(1, 0.0), (3, 0.0), (2, 1e-3), (5, 1e-2)])
def test_one_run_p_value_is_the_theorem(correct, odds, delta):
    expected = exact_p_value(20, 15, correct, odds, delta)
    assert one_run_p_value(20, 15, correct, log(odds), delta) == pytest.approx(expected, rel=1e-9)


# Computed with jax_privacy 2.0.0 (auditing._epsilon_one_run).
JAX_PRIVACY = [
    (100, 50, 45, 0.0, 0.05, 1.3936041),
    (1000, 100, 95, 1e-5, 0.05, 2.1651757),
    (1000, 1000, 600, 1e-5, 0.05, 0.2972270),
    (5000, 500, 400, 1e-6, 0.01, 1.1247042),
    (200, 200, 200, 1e-5, 0.05, 4.1882158),
    (1000, 20, 20, 1e-3, 0.05, 0.0),
]


@pytest.mark.parametrize(("canaries", "guesses", "correct", "delta", "alpha", "expected"), JAX_PRIVACY)
def test_one_run_epsilon(canaries, guesses, correct, delta, alpha, expected):
    value = one_run_epsilon(canaries, guesses, correct, delta, alpha)
    assert value == pytest.approx(expected, abs=1e-5)
    assert value == 0.0 or one_run_p_value(canaries, guesses, correct, value, delta) <= alpha


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_randomised_response_is_refuted_no_more_often_than_alpha(epsilon):
    # Exact: each guess about an epsilon-DP randomised response is right with probability e^eps / (1 + e^eps).
    guesses, alpha = 200, 0.05
    refuting = [v for v in range(guesses + 1) if one_run_epsilon(guesses, guesses, v, 0.0, alpha) > epsilon]
    false_alarms = scipy.stats.binom.pmf(refuting, guesses, exp(epsilon) / (1 + exp(epsilon))).sum()
    assert 0 < false_alarms <= alpha


@pytest.mark.parametrize("canaries", [20, 400])
def test_the_largest_claim_that_can_be_refuted(canaries):
    right = 0.05 ** (1 / canaries)  # all guesses right has probability right^m
    largest = one_run_epsilon(canaries, canaries, canaries, 0.0, 0.05)
    assert largest == pytest.approx(log(right / (1 - right)), abs=1e-6)
    assert one_run_epsilon(canaries, canaries, canaries, 1e-5, 0.05) < largest
    assert one_run_epsilon(canaries, 10, 10, 0.0, 0.05) < largest


def test_more_correct_guesses_never_lower_the_bound():
    bounds = [one_run_epsilon(200, 100, correct, 1e-5, 0.05) for correct in range(101)]
    assert bounds == sorted(bounds)
    with pytest.raises(ValueError, match="correct"):
        one_run_epsilon(200, 100, 101, 1e-5, 0.05)


def test_bootstrap_of_a_ratio_agrees_with_scipy():
    rng = np.random.default_rng(4)
    denominator = rng.integers(5, 15, 300)
    numerator = rng.binomial(denominator, 0.3)
    expected = scipy.stats.bootstrap(
        (numerator, denominator),
        lambda top, bottom, axis: top.sum(axis) / bottom.sum(axis),
        paired=True,
        vectorized=True,
        method="percentile",
        n_resamples=4000,
        rng=np.random.default_rng(0),
    ).confidence_interval
    found = bootstrap_ratio(numerator, denominator, Bootstrap(4000, seed=0))
    assert tuple(found) == pytest.approx((expected.low, expected.high), abs=2e-3)


def test_pairing_makes_the_interval_of_equal_columns_a_point():
    values = np.random.default_rng(5).integers(0, 2, 100)
    assert tuple(bootstrap_ratio(values, values, Bootstrap(200, seed=0))) == (1.0, 1.0)


def test_permutation_p_is_never_zero():
    assert permutation_p(5.0, [0.0] * 99) == 0.01
    assert permutation_p(0.0, [0.0] * 99) == 1.0
    assert permutation_p(2.0, [1, 2, 3]) == 0.75


def test_a_difference_of_two_normal_intervals_is_the_normal_interval_of_the_difference() -> None:
    def interval(value: float, error: float) -> Estimate:
        return Estimate(value, *scipy.stats.norm.interval(0.95, value, error))

    found, wanted = difference(interval(0.8, 0.03), interval(0.7, 0.04)), interval(0.1, 0.05)
    assert (found.value, found.low, found.high) == pytest.approx((wanted.value, wanted.low, wanted.high))
