"""The bound on epsilon from two rates: against its formula, and on claims that are true."""

import math

import numpy as np
import pytest
import scipy.stats
from scipy.optimize import brentq

from tools.curve import independent_epsilon


def upper(count, n, alpha):
    """Clopper and Pearson's upper end by its definition: at most `count` has probability alpha there."""
    return brentq(lambda p: scipy.stats.binom.cdf(count, n, p) - alpha, 1e-12, 1 - 1e-12, xtol=1e-14)


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
