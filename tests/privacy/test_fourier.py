"""The second accountant: its bracket holds the exact epsilon wherever one is known, and agrees with the first."""

import math

import dp_accounting as dpa
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from palimpsest.privacy import accounting, fourier
from palimpsest.privacy.events import DiscreteGaussianDpEvent
from palimpsest.training.plan import TrainingPlan


def training(noise: float, rate: float, steps: int) -> dpa.DpEvent:
    plan = TrainingPlan(rate, steps, 1.0, noise, 1.0, "joint", 1)
    return plan.event()


@settings(max_examples=15, deadline=None)
@given(st.floats(0.05, 3.0), st.integers(1, 400), st.floats(1e-9, 1e-2))
def test_composed_gaussians_lie_in_their_bracket(mu, rounds, delta):
    event = dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(math.sqrt(rounds) / mu), rounds)
    low, high = fourier.epsilon(event, delta)
    assert low <= accounting.gdp_epsilon(mu, delta) <= high
    assert high - low <= 0.01 * high + 1e-3


def sampled_delta(sigma: float, rate: float, epsilon: float, adding: bool) -> float:
    """delta(epsilon) of one sampled Gaussian in one direction, from the threshold at which the loss passes epsilon."""
    if adding:  # loss above epsilon where the mixture is below e^-epsilon of the plain law: for small outputs
        if math.exp(-epsilon) <= 1 - rate:
            return 0.0
        x = 0.5 + sigma**2 * math.log((math.exp(-epsilon) - 1 + rate) / rate)
        mixed = (1 - rate) * norm.cdf(x / sigma) + rate * norm.cdf((x - 1) / sigma)
        return norm.cdf(x / sigma) - math.exp(epsilon) * mixed
    x = 0.5 + sigma**2 * math.log((math.exp(epsilon) - 1 + rate) / rate)
    mixed = (1 - rate) * norm.sf(x / sigma) + rate * norm.sf((x - 1) / sigma)
    return mixed - math.exp(epsilon) * norm.sf(x / sigma)


@pytest.mark.parametrize(("sigma", "rate"), [(1.0, 0.1), (0.7, 0.5), (3.0, 0.01), (0.5, 0.9), (2.0, 1e-3)])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_one_sampled_gaussian_lies_in_its_bracket(sigma, rate, delta):
    low, high = fourier.epsilon(training(sigma, rate, 1), delta)
    at_low = max(sampled_delta(sigma, rate, low, adding) for adding in (True, False))
    at_high = max(sampled_delta(sigma, rate, high, adding) for adding in (True, False))
    assert at_high <= delta
    assert at_low >= delta or low == 0.0


def test_two_discrete_gaussians_lie_in_their_bracket():
    first, second = 0.8, 2.0
    reach = np.arange(-60, 61)
    masses = [np.exp(-0.5 * (reach / sigma) ** 2) for sigma in (first, second)]
    losses = [(1 - 2 * reach) / (2 * sigma**2) for sigma in (first, second)]
    weights = np.outer(masses[0] / masses[0].sum(), masses[1] / masses[1].sum())
    total = losses[0][:, None] + losses[1][None, :]
    event = dpa.ComposedDpEvent([DiscreteGaussianDpEvent(first), DiscreteGaussianDpEvent(second)])
    for delta in (1e-2, 1e-5):
        low, high = fourier.epsilon(event, delta)
        exact = [(weights * np.maximum(0.0, 1 - np.exp(end - total))).sum() for end in (high, low)]
        assert exact[0] <= delta <= exact[1]


def test_laplace_noise_lies_in_its_bracket():
    low, high = fourier.epsilon(dpa.LaplaceDpEvent(2.0), 1e-3)
    exact = 0.5 + 2 * math.log(1 - 1e-3)  # delta(eps) = 1 - e^((eps - 1/b) / 2)
    assert low <= exact <= high <= exact * 1.005
    many = dpa.SelfComposedDpEvent(dpa.LaplaceDpEvent(3.0), 40)
    low, high = fourier.epsilon(many, 1e-5)
    assert low <= accounting.epsilon(many, 1e-5) <= high * 1.001


# What the methods' plans charge: language models, with a histogram, with two losses; votes; prompts; and all at once.
HISTOGRAM = DiscreteGaussianDpEvent(10.0)
PLANS = {
    "training": (training(0.7, 0.0032, 900), 1e-5),
    "large batches": (training(5.0, 0.3, 100), 1e-6),
    "high epsilon": (training(0.5, 0.02, 400), 1e-6),
    "with a histogram": (dpa.ComposedDpEvent([HISTOGRAM, training(1.0, 0.01, 1000)]), 1e-5),
    "two losses": (TrainingPlan(0.0135, 296, 1.0, 1.2, 1.0, "separate", 2).event(), 1e-4),
    "votes": (dpa.ComposedDpEvent([HISTOGRAM, dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(6.2), 10)]), 1e-5),
    "means and votes": (dpa.ComposedDpEvent([dpa.GaussianDpEvent(20.0), training(2.0, 1.0, 12)]), 1e-6),
    "model and judge": (dpa.ComposedDpEvent([training(0.8, 0.01, 300), training(1.5, 0.02, 100)]), 1e-5),
}


@pytest.mark.parametrize(("event", "delta"), PLANS.values(), ids=PLANS)
def test_the_two_accountants_agree_on_the_plans_of_all_methods(event, delta):
    low, high = fourier.epsilon(event, delta)
    stated = accounting.epsilon(event, delta)
    assert low <= stated
    assert high == pytest.approx(stated, rel=0.01)
    assert high <= accounting.epsilon(event, delta, "rdp")
    assert high - low < 0.01 * high


def test_a_direction_is_no_average():
    # Removing costs more at a low rate; the bracket is that of the worse direction.
    event, epsilon = training(0.8, 0.05, 1), 1.0
    worse = max(sampled_delta(0.8, 0.05, epsilon, adding) for adding in (True, False))
    better = min(sampled_delta(0.8, 0.05, epsilon, adding) for adding in (True, False))
    assert better < 0.5 * worse
    low, high = fourier.epsilon(event, worse)
    assert low <= epsilon <= high


@pytest.mark.parametrize("other", [dpa.ZCDpEvent(0.1), dpa.PoissonSampledDpEvent(0.1, dpa.LaplaceDpEvent(1.0))])
def test_events_without_a_known_loss_are_not_taken(other):
    event = dpa.ComposedDpEvent([dpa.GaussianDpEvent(1.0), other])
    assert fourier.epsilon(event, 1e-5) is None
    assert fourier.epsilon(dpa.GaussianDpEvent(1.0), 1e-5) is not None


def test_no_noise_has_no_epsilon_and_no_event_costs_nothing():
    assert fourier.epsilon(dpa.ComposedDpEvent([dpa.NonPrivateDpEvent(), dpa.GaussianDpEvent(1.0)]), 1e-5) == (
        math.inf,
        math.inf,
    )
    assert fourier.epsilon(dpa.ComposedDpEvent([]), 1e-5) == (0.0, 0.0)


def test_hundreds_of_thousands_of_steps_fit():
    low, high = fourier.epsilon(training(4.0, 1e-3, 300_000), 1e-5)
    assert 0.99 * high < low < high < accounting.epsilon(training(4.0, 1e-3, 300_000), 1e-5, "rdp")


def test_no_loss_wraps_round_the_window_of_millions_of_steps():
    early = fourier.epsilon(training(0.35, 4.728e-6, 100_000), 1e-6)
    for steps in (10_000_000, 50_000_000):
        assert fourier.epsilon(training(0.35, 4.728e-6, steps), 1e-6).high >= early.low
    many = training(1.0, 1e-6, 50_000_000)
    low, high = fourier.epsilon(many, 1e-6)
    assert low <= accounting.epsilon(many, 1e-6, "rdp")
    assert high == math.inf  # as many bins as losses are not enough


@pytest.mark.parametrize(("rounds", "within"), [(2_000_000, 0.02), (4_000_000, 0.3)])
def test_the_bracket_widens_with_the_bins_and_still_holds(rounds, within):
    event = dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(math.sqrt(rounds)), rounds)
    low, high = fourier.epsilon(event, 1e-6)
    exact = accounting.gdp_epsilon(1.0, 1e-6)
    assert low <= exact <= high
    assert high - low <= within * exact


def test_a_large_epsilon_has_a_bracket_and_one_beyond_the_quadratures_no_opinion():
    low, high = fourier.epsilon(dpa.GaussianDpEvent(0.033), 1e-6)
    assert 500 < low <= accounting.gdp_epsilon(1 / 0.033, 1e-6) <= high < 700
    assert high - low < 0.01 * high
    for event in (dpa.GaussianDpEvent(0.02), dpa.LaplaceDpEvent(1e-3), training(0.02, 0.5, 10)):
        assert fourier.epsilon(event, 1e-6) is None


def test_noise_without_a_sample_is_the_same_in_both_directions_however_large_its_losses():
    adding, removing = (fourier._gaussian(0.05, 1.0, adding) for adding in (True, False))  # noqa: SLF001
    at = np.linspace(-100.0, 400.0, 101)
    assert adding.cdf(at) == pytest.approx(removing.cdf(at), abs=1e-15)
    assert 0.4 < adding.cdf(np.array([200.0]))[0] < 0.6


def test_a_delta_below_the_rounding_leaves_no_upper_end():
    assert fourier.epsilon(training(1.0, 0.01, 1000), 1e-13).high == math.inf


def test_more_noise_and_a_larger_delta_cost_less():
    ends = [fourier.epsilon(training(noise, 0.02, 200), 1e-5).high for noise in (0.8, 1.0, 1.5, 3.0)]
    assert ends == sorted(ends, reverse=True)
    ends = [fourier.epsilon(training(1.0, 0.02, 200), delta).high for delta in (1e-8, 1e-6, 1e-4, 1e-2)]
    assert ends == sorted(ends, reverse=True)


@pytest.mark.parametrize("delta", [0.0, -1.0, 1.5])
def test_a_delta_out_of_range_is_refused(delta):
    with pytest.raises(ValueError, match="at_delta"):
        fourier.epsilon(dpa.GaussianDpEvent(1.0), delta)
