"""Curves against closed forms and worst cases; the test of a curve against its own false alarms and power."""

import itertools
import math
from functools import cache, partial

import dp_accounting as dpa
import numpy as np
import pytest
from scipy.stats import binom, norm

from palimpsest.audit.statistics import Rate, clopper_pearson
from palimpsest.privacy import accounting
from tools.curve import CurveTest, curve_test, event_curve, independent_epsilon, zcdp_curve


def gaussian_curve(mu: float):
    """The curve of N(0, 1) against N(mu, 1)."""
    return lambda alpha: float(norm.cdf(norm.isf(alpha) - mu))


RATES = np.array([1e-3, 0.01, 0.1, 0.3, 0.5, 0.8, 0.99])
SAMPLED = dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(0.3, dpa.GaussianDpEvent(1.2)), 5)
CURVES = {
    "gaussian": partial(gaussian_curve, 1.3),
    "zcdp": partial(zcdp_curve, 0.5),
    "sampled": cache(partial(event_curve, SAMPLED)),  # which takes seconds
    "relaxed": partial(zcdp_curve, 0.2, 0.02),
}


def flags(count: int, n: int) -> np.ndarray:
    return np.arange(n) < count


@pytest.mark.parametrize("name", CURVES)
def test_a_curve_is_its_own_inverse_and_convex(name):
    curve = CURVES[name]()
    values = np.array([curve(alpha) for alpha in RATES])
    held = (values > 1e-9) & (values < 1 - 1e-9)
    again = np.array([curve(value) for value in values])
    assert again[held] == pytest.approx(RATES[held], abs=1e-6)
    assert np.all(values <= 1.0 - RATES + 1e-12)  # no better than guessing blindly
    slopes = np.diff(values) / np.diff(RATES)
    assert np.all(np.diff(slopes) >= -1e-9)


def test_the_curve_of_a_gaussian_event_is_the_exact_one_seen_from_below():
    event = dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(4.0), 9)
    found, exact = event_curve(event), gaussian_curve(0.75)
    for alpha in RATES.tolist():
        assert exact(alpha) - 2e-3 <= found(alpha) <= exact(alpha) + 1e-9


def test_the_curve_of_a_sampled_gaussian_holds_for_its_best_attack_in_both_directions():
    rate, sigma = 0.3, 1.2
    curve = event_curve(dpa.PoissonSampledDpEvent(rate, dpa.GaussianDpEvent(sigma)))
    for threshold in np.linspace(-3, 4, 15):  # likelihood ratios grow with the output, so thresholds are best
        without = norm.sf(threshold / sigma)
        present = (1 - rate) * without + rate * norm.sf((threshold - 1) / sigma)
        slack = (1 - present) - curve(without), without - curve(1 - present)
        assert min(slack) >= -1e-9
        assert slack[0] <= 0.02 or threshold < 0.5  # tight where few are flagged


def test_no_noise_promises_nothing():
    assert event_curve(dpa.NonPrivateDpEvent())(0.0) == 0.0


def test_events_known_by_their_rho_have_the_curve_of_zcdp():
    event = dpa.ComposedDpEvent([dpa.ZCDpEvent(0.3), dpa.GaussianDpEvent(2.0)])
    assert event_curve(event)(0.2) == zcdp_curve(0.3 + 0.125)(0.2)


@pytest.mark.parametrize("rho", [0.02, 0.5, 2.0])
def test_the_curve_of_zcdp_holds_for_gaussians_and_is_above_the_way_through_epsilon(rho):
    curve, gaussian = zcdp_curve(rho), gaussian_curve(math.sqrt(2 * rho))
    for alpha in RATES.tolist():
        assert curve(alpha) <= gaussian(alpha)
        lines = [1 - accounting.zcdp_delta(rho, eps) - math.exp(eps) * alpha for eps in np.linspace(0, 12, 100)]
        assert curve(alpha) >= max(lines) - 5e-4


@pytest.mark.parametrize("span", [0.5, 2.0])
def test_the_curve_of_zcdp_holds_for_bounded_range_and_nearly_no_more(span):
    # Choosing between two options whose log odds move by `span` is span^2 / 8 - zCDP.
    curve = zcdp_curve(span**2 / 8)
    for odds in np.linspace(-4, 4, 17):
        before, after = 1 / (1 + math.exp(-odds)), 1 / (1 + math.exp(-odds - span))
        assert 1 - after >= curve(before) - 1e-12
    assert curve(1 / (1 + math.exp(span / 2))) > 1 - 1 / (1 + math.exp(-span * 0.5 - 0.15 * span))


def test_a_claim_without_a_rho_is_refused():
    with pytest.raises(ValueError, match="rho"):
        zcdp_curve(0.0)


@pytest.mark.parametrize("delta", [1e-3, 0.05])
def test_an_own_delta_leaves_room_for_what_happens_that_seldom(delta):
    rho, span = 0.5, 2.0  # log odds of two options that move by 2 are 1/2-zCDP
    loose, exact = zcdp_curve(rho, delta), zcdp_curve(rho)
    for odds in np.linspace(-3, 3, 13):
        fpr, fnr = 1 / (1 + math.exp(-odds)), 1 - 1 / (1 + math.exp(-odds - span))
        # With probability delta something comes out that tells for certain: of the record, that it is not there, both.
        for keep in ((1, 1 - delta), (1 - delta, 1), (1 - delta, 1 - delta)):
            assert keep[1] * fnr >= loose(keep[0] * fpr) - 1e-9
        assert loose(fpr) < exact(fpr) <= loose(max(0.0, fpr - delta)) + 1e-9
    assert loose(0.0) == pytest.approx(1 - delta)
    assert exact(0.0) == pytest.approx(1.0)


def test_the_verdict_reads_the_far_ends_of_both_intervals():
    found = curve_test(flags(100, 1000), flags(600, 1000), gaussian_curve(1.0), 1e-5, 0.05)
    high, low = clopper_pearson(100, 1000, 0.95).high, clopper_pearson(600, 1000, 0.95).low
    assert (found.false_positives.high, found.true_positives.low) == (high, low)
    assert found.allowed == pytest.approx(norm.cdf(norm.ppf(high) + 1.0))
    assert found.violated == (low > found.allowed)
    assert found.violated
    assert found.epsilon == independent_epsilon(100, 1000, 400, 1000, 1e-5, 0.05)
    assert found.epsilon_max == independent_epsilon(0, 1000, 0, 1000, 1e-5, 0.05)
    assert (found.true_positives.count, found.true_positives.n) == (600, 1000)
    just = CurveTest(Rate(0, 9, 0, 0.1), Rate(9, 9, 0.5, 1), 0.5, 0.0, 1.0)
    assert not just.violated


def test_flagging_absence_refutes_the_same():
    curve = CURVES["sampled"]()
    for false, true in itertools.product((0, 20, 100, 250), (150, 200, 280, 300)):
        there = curve_test(flags(false, 300), flags(true, 300), curve, 1e-5, 0.01)
        absent = curve_test(flags(300 - true, 300), flags(300 - false, 300), curve, 1e-5, 0.01)
        assert there.violated == absent.violated


@pytest.mark.parametrize("threshold", [-0.5, 0.5, 1.5])
def test_a_true_claim_is_refuted_no_more_often_than_alpha(threshold):
    n, curve = 40, gaussian_curve(1.0)
    counts, rates = range(n + 1), (norm.sf(threshold), norm.sf(threshold - 1.0))
    false_mass, true_mass = (binom.pmf(counts, n, rate) for rate in rates)
    refuting = sum(
        false_mass[false] * true_mass[true]
        for false in counts
        for true in counts
        if curve_test(flags(false, n), flags(true, n), curve, 1e-5, 0.2).violated
    )
    assert 0.0 < refuting <= 0.2
