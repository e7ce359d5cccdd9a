"""Bounds on epsilon against linear programmes, exact tails, an independent library, and claims that are true."""

import math

import numpy as np
import pytest
import scipy.stats
from scipy.optimize import linprog

from palimpsest.audit.curve import approximate_curve, gaussian_curve, one_run_gaussian_estimate
from palimpsest.audit.statistics import (
    gaussian_trade_off,
    holm,
    independent_epsilon,
    one_run_curve_p_value,
    one_run_epsilon,
    one_run_p_value,
)
from palimpsest.privacy.accounting import gdp_epsilon


def most_likely_tail(canaries, guesses, correct, epsilon, delta):
    """The largest probability of `correct` or more right guesses that an (epsilon, delta) curve allows: a linear
    programme over the probabilities of 0 to `guesses` right ones, each part of the curve a constraint for each T."""
    right = np.arange(guesses + 1) / canaries
    wrong = np.arange(guesses, -1, -1) / canaries
    rows, limits = [], []
    for start in range(1, guesses + 1):
        above = np.where(np.arange(guesses + 1) >= start, right, 0.0)
        below = np.where(np.arange(guesses + 1) >= start - 1, wrong, 0.0)
        rows += [above - math.exp(epsilon) * below, above - math.exp(-epsilon) * below]
        limits += [delta, 1.0 - math.exp(-epsilon) * (1.0 - delta)]
    goal = -(np.arange(guesses + 1) >= correct).astype(float)
    found = linprog(goal, np.array(rows), limits, np.ones((1, guesses + 1)), [1.0], bounds=(0.0, 1.0))
    return -found.fun


@pytest.mark.parametrize(("canaries", "guesses", "correct"), [(12, 12, 9), (12, 12, 12), (30, 12, 11), (40, 40, 30)])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (1.0, 1e-3), (2.0, 0.02)])
def test_the_p_value_of_a_curve_is_the_best_that_its_constraints_allow(canaries, guesses, correct, epsilon, delta):
    found = one_run_curve_p_value(canaries, guesses, correct, approximate_curve(epsilon, delta))
    assert found == pytest.approx(most_likely_tail(canaries, guesses, correct, epsilon, delta), rel=1e-4, abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.5, 1.5])
def test_randomised_response_stays_below_the_p_value_of_its_curve(epsilon):
    guesses, alpha, curve = 60, 0.05, approximate_curve(epsilon, 0.0)
    right = math.exp(epsilon) / (1 + math.exp(epsilon))
    for correct in (1, 30, 40, 50, 60):
        exact = scipy.stats.binom.sf(correct - 1, guesses, right)
        assert exact <= one_run_curve_p_value(guesses, guesses, correct, curve) * (1 + 1e-6) + 1e-14
    refuting = [v for v in range(guesses + 1) if one_run_curve_p_value(guesses, guesses, v, curve) <= alpha]
    assert 0 < scipy.stats.binom.pmf(refuting, guesses, right).sum() <= alpha


@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_the_best_guesses_about_a_gaussian_stay_below_the_p_value_of_its_curve(mu):
    canaries, curve = 200, gaussian_curve(mu)
    right = scipy.stats.norm.cdf(mu / 2)
    for correct in range(100, 201, 20):
        assert scipy.stats.binom.sf(correct - 1, canaries, right) <= one_run_curve_p_value(
            canaries, canaries, correct, curve
        )


def test_half_the_noise_is_refuted_by_the_whole_curve_where_one_point_of_it_says_nothing():
    rng, canaries, guesses, delta = np.random.default_rng(0), 2000, 500, 1e-5
    coins = rng.integers(0, 2, canaries)
    scores = coins + rng.normal(size=canaries) / 2.0 - 0.5  # mu is 2, and 1 is claimed
    surest = np.argsort(-np.abs(scores))[:guesses]
    correct = int(((scores[surest] > 0) == coins[surest]).sum())
    assert one_run_curve_p_value(canaries, guesses, correct, gaussian_curve(1.0)) <= 1e-2
    assert one_run_p_value(canaries, guesses, correct, gdp_epsilon(1.0, delta), delta) > 0.1


def test_more_right_guesses_are_less_likely_and_none_say_nothing():
    values = [one_run_curve_p_value(50, 40, correct, gaussian_curve(1.0)) for correct in range(41)]
    assert values == sorted(values, reverse=True)
    assert values[0] == 1.0
    with pytest.raises(ValueError, match="correct"):
        one_run_curve_p_value(50, 40, 41, gaussian_curve(1.0))


# Computed with jax_privacy 2.0.0 (auditing._epsilon_one_run_fdp).
JAX_PRIVACY = [
    (100, 50, 45, 1e-5, 0.05, 2.7930206),
    (1000, 100, 95, 1e-5, 0.05, 3.3233005),
    (1000, 1000, 600, 1e-5, 0.05, 0.5835404),
    (5000, 500, 400, 1e-6, 0.01, 1.6214318),
    (200, 200, 200, 1e-5, 0.05, 9.5139568),
    (1000, 20, 20, 1e-3, 0.05, 1.6233865),
]


@pytest.mark.parametrize(("canaries", "guesses", "correct", "delta", "alpha", "expected"), JAX_PRIVACY)
def test_the_gaussian_estimate(canaries, guesses, correct, delta, alpha, expected):
    found = one_run_gaussian_estimate(canaries, guesses, correct, delta, alpha)
    assert found == pytest.approx(expected, abs=1e-5)
    assert found > one_run_epsilon(canaries, guesses, correct, delta, alpha)


def test_guesses_by_chance_give_an_estimate_of_zero():
    assert one_run_gaussian_estimate(1000, 1000, 500, 1e-5, 0.05) == 0.0


def test_the_gaussian_curve_is_what_a_threshold_gives():
    threshold, mu = 0.7, 1.3
    fpr, fnr = scipy.stats.norm.sf(threshold), scipy.stats.norm.cdf(threshold - mu)
    assert gaussian_trade_off(mu, fpr) == pytest.approx(fnr)
    assert gaussian_trade_off(0.0, 0.3) == pytest.approx(0.7)


def upper(count, n, alpha):
    """Clopper and Pearson's upper end by its definition: at most `count` has probability alpha there."""
    return scipy.optimize.brentq(lambda p: scipy.stats.binom.cdf(count, n, p) - alpha, 1e-12, 1 - 1e-12, xtol=1e-14)


@pytest.mark.parametrize(("false_positives", "false_negatives"), [(3, 40), (40, 3), (10, 10), (45, 50)])
def test_the_bound_from_two_rates_is_its_formula(false_positives, false_negatives):
    delta, alpha = 1e-3, 0.05
    fpr, fnr = upper(false_positives, 100, alpha / 2), upper(false_negatives, 90, alpha / 2)
    expected = max(0.0, math.log((1 - delta - fnr) / fpr), math.log((1 - delta - fpr) / fnr))
    found = independent_epsilon(false_positives, 100, false_negatives, 90, delta, alpha)
    assert found == pytest.approx(expected, abs=1e-9)


def test_an_attack_that_is_always_wrong_proves_nothing():
    assert independent_epsilon(100, 100, 100, 100, 1e-5, 0.05) == 0.0
    assert independent_epsilon(0, 0, 0, 0, 1e-5, 0.05) == 0.0


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_bound_is_above_the_truth_no_more_often_than_alpha(epsilon):
    n, alpha = 60, 0.1
    wrong = 1 / (1 + math.exp(epsilon))  # both errors of randomised response
    mass = scipy.stats.binom.pmf(np.arange(n + 1), n, wrong)
    above = sum(
        mass[fp] * mass[fn]
        for fp in range(n + 1)
        for fn in range(n + 1)
        if mass[fp] * mass[fn] > 1e-9 and independent_epsilon(fp, n, fn, n, 0.0, alpha) > epsilon
    )
    assert 0 < above <= alpha


def test_holm_stops_at_the_first_that_fails():
    # .011 fails .05 / 4, so .012 stays although it is below .05 / 3.
    assert holm({"a": 0.0126, "b": 0.012, "c": 0.04, "d": 0.9}, 0.05) == {"a": True, "b": True, "c": False, "d": False}
    assert holm({"a": 0.013, "b": 0.0135, "c": 0.0136, "d": 0.9}, 0.05) == dict.fromkeys("abcd", False)
    assert holm({}, 0.05) == {}
    with pytest.raises(ValueError, match="p_value"):
        holm({"a": 1.2}, 0.05)


def test_holm_rejects_a_true_hypothesis_with_probability_at_most_alpha_and_uses_most_of_it():
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(4000):
        values = {str(i): float(value) for i, value in enumerate(rng.uniform(size=5))} | {"false": 1e-6}
        wrong += any(rejected for name, rejected in holm(values, 0.1).items() if name != "false")
    assert 0.08 < wrong / 4000 < 0.1 + 4 * math.sqrt(0.1 * 0.9 / 4000)  # 1 - .98^5 = .096
