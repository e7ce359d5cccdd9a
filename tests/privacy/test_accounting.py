"""Epsilons against the literature, two accountants against each other, and conversions against their inverses."""

import math

import dp_accounting as dpa
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from palimpsest.privacy import accounting, fourier
from palimpsest.privacy.events import BoundedRangeDpEvent, DiscreteGaussianDpEvent

DELTAS = st.floats(1e-9, 1e-2)


def training(noise: float, rate: float, steps: int) -> dpa.DpEvent:
    return dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(rate, dpa.GaussianDpEvent(noise)), steps)


# noise, rate, steps, delta, RDP, PLD; the fifth's RDP is left out: the library's own order search is loose there.
TRAININGS = [
    (1.0, 0.01, 1000, 1e-5, 2.1014, 1.8282),
    (0.6, 0.0032, 900, 1e-5, 3.977, 3.0701),
    (0.8, 0.02, 500, 1e-6, 6.1645, 5.4403),
    (5.0, 0.3, 100, 1e-6, 3.0826, 2.8643),
    (0.4, 0.05, 200, 1e-5, None, 44.590),
    (1.0, 1.0, 10, 1e-5, 19.054, 17.857),
    (1.1, 0.01, 1000, 1e-5, 1.7118, 1.5154),
]


@pytest.mark.parametrize(("noise", "rate", "steps", "delta", "renyi", "loss"), TRAININGS)
def test_trainings_cost_what_both_accountants_are_known_to_say(noise, rate, steps, delta, renyi, loss):
    event = training(noise, rate, steps)
    assert accounting.epsilon(event, delta) == pytest.approx(loss, rel=2e-4)
    if renyi is not None:
        assert accounting.epsilon(event, delta, "rdp") == pytest.approx(renyi, rel=2e-4)


# Aug-PE (Xie et al. 2024), ten rounds, delta 1 / (n ln n), epsilon 1, 2 and 4; the sigmas are exact.
SIGMAS = [
    (1939290, (15.4045, 8.0389, 4.2451)),
    (8396, (11.5998, 6.2107, 3.3743)),
    (75316, (13.2506, 7.0010, 3.7493)),
]


@pytest.mark.parametrize(("size", "sigmas"), SIGMAS)
def test_ten_gaussian_rounds_need_the_exact_noise(size, sigmas):
    delta = 1.0 / (size * math.log(size))
    found = [accounting.gdp_sigma(target, delta, rounds=10) for target in (1.0, 2.0, 4.0)]
    assert found == pytest.approx(list(sigmas), abs=5e-5)


def test_the_published_sigma_exceeds_its_claim():
    delta = 1.0 / (1939290 * math.log(1939290))
    assert accounting.gdp_epsilon(math.sqrt(10) / 15.34, delta) == pytest.approx(1.0045, abs=5e-5)


# Private prediction (Amin et al. 2024): clip 10, temperature 2, delta 1e-6; private tokens that a batch can afford.
TOKENS = {
    1.0: {127: 31, 255: 126, 511: 508, 1023: 2039},
    3.0: {127: 238, 255: 962, 511: 3866, 1023: 15494},
    10.0: {127: 1986, 255: 8007, 511: 32155, 1023: 128871},
}


@pytest.mark.parametrize(("target", "tokens"), TOKENS.items())
def test_zcdp_affords_the_known_number_of_private_tokens(target, tokens):
    rho = accounting.zcdp_rho(target, 1e-6)
    assert {size: int(rho / (0.5 * (10.0 / (size * 2.0)) ** 2)) for size in tokens} == tokens


@pytest.mark.parametrize(("target", "tokens"), TOKENS.items())
def test_the_known_tokens_are_affordable_as_events_and_one_more_is_not(target, tokens):
    for size, most in tokens.items():
        token = dpa.ZCDpEvent(0.5 * (10.0 / (size * 2.0)) ** 2)
        found = [accounting.epsilon(dpa.SelfComposedDpEvent(token, count), 1e-6) for count in (most, most + 1)]
        assert found[0] <= target < found[1]


@pytest.mark.parametrize("target", [1e-9, 1e-6, 1e-3, 1.0, 100.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 1e-2])
def test_the_rho_of_an_epsilon_keeps_it_however_small_it_is(target, delta):
    rho = accounting.zcdp_rho(target, delta)
    assert rho > 0
    assert accounting.zcdp_epsilon(rho, delta) <= target * (1.0 + 1e-9)
    assert target < 1e-6 or accounting.zcdp_epsilon(2.0 * rho, delta) > target


def test_tight_zcdp_allows_more_than_the_simple_conversion():
    tight = accounting.zcdp_rho(1.0, 1e-6)
    log = math.log(1e6)
    simple = (math.sqrt(log + 1.0) - math.sqrt(log)) ** 2
    assert (tight, simple) == pytest.approx((0.02436, 0.01747), abs=5e-6)


def test_calibration_finds_the_known_noise_on_the_private_side():
    noise = accounting.calibrate_noise(lambda scale: training(scale, 0.01, 1000), 3.0, 1e-5)
    assert noise == pytest.approx(0.8136, rel=1e-3)
    assert accounting.epsilon(training(noise, 0.01, 1000), 1e-5) <= 3.0


@pytest.mark.parametrize("target", [0.1, 6.0])
def test_calibration_agrees_with_the_exact_gaussian(target):
    found, exact = accounting.calibrate_noise(dpa.GaussianDpEvent, target, 1e-5), accounting.gdp_sigma(target, 1e-5)
    assert exact <= found * (1 + 1e-6)
    assert found == pytest.approx(exact, rel=2e-3)


@pytest.mark.parametrize(("rate", "steps"), [(1.0, 1), (0.05, 50), (0.001, 20_000)])
def test_a_planned_epsilon_is_hardly_above_the_stated_one(rate, steps):
    """The coarse grids say far too much of very many steps: they are then not asked."""
    event = training(1.0, rate, steps)
    stated = accounting.epsilon(event, 1e-6)
    assert stated <= accounting.planned_epsilon(event, 1e-6) <= 1.002 * stated


def test_calibration_gives_up_when_the_fixed_part_alone_costs_too_much():
    fixed = lambda scale: dpa.ComposedDpEvent([dpa.GaussianDpEvent(0.5), dpa.GaussianDpEvent(scale)])  # noqa: E731
    with pytest.raises(ValueError, match="fixed part"):
        accounting.calibrate_noise(fixed, 1.0, 1e-5)


@settings(max_examples=8, deadline=None)
@given(st.floats(0.9, 5.0), st.floats(0.001, 0.2), st.integers(1, 300), DELTAS)
def test_the_loss_distribution_is_never_above_renyi(noise, rate, steps, delta):
    event = training(noise, rate, steps)
    assert accounting.epsilon(event, delta) <= accounting.epsilon(event, delta, "rdp") + 1e-3


@settings(max_examples=10, deadline=None)
@given(st.floats(0.05, 2.0), st.integers(1, 50), DELTAS)
def test_the_loss_distribution_of_gaussians_is_the_exact_one_seen_from_above(mu, rounds, delta):
    event = dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(math.sqrt(rounds) / mu), rounds)
    exact = accounting.gdp_epsilon(mu, delta)
    assert exact - 1e-6 <= accounting.epsilon(event, delta) <= exact + 2e-3


@pytest.mark.parametrize("delta", [1e-9, 1e-12, 1e-14])
def test_the_loss_distribution_stays_above_the_exact_one_at_tiny_deltas(delta):
    event = dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(4.0), 20)
    assert accounting.epsilon(event, delta) >= accounting.gdp_epsilon(math.sqrt(20) / 4.0, delta)


@pytest.mark.parametrize("sigma", [1.0, 4.0, 45.0])
def test_the_discrete_gaussian_is_near_the_continuous_one(sigma):
    discrete = accounting.epsilon(DiscreteGaussianDpEvent(sigma), 1e-5)
    assert discrete == pytest.approx(accounting.gdp_epsilon(1.0 / sigma, 1e-5), rel=0.02)


def test_the_gaussian_formula_is_too_kind_to_a_small_discrete_scale():
    assert accounting.epsilon(DiscreteGaussianDpEvent(0.4919), 1e-5) > accounting.gdp_epsilon(1.0 / 0.4919, 1e-5) + 0.05


def test_discrete_and_continuous_parts_compose():
    event = dpa.ComposedDpEvent([DiscreteGaussianDpEvent(10.0), dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(10.0), 3)])
    assert accounting.epsilon(event, 1e-5) == pytest.approx(accounting.gdp_epsilon(0.2, 1e-5), rel=0.01)
    assert accounting.epsilon(event, 1e-5, "rdp") == pytest.approx(
        accounting.epsilon(dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(10.0), 4), 1e-5, "rdp")
    )


VOTES = dpa.ZCDpEvent(0.01)
PRIMARIES = [
    (dpa.GaussianDpEvent(2.0), "pld"),
    (dpa.ComposedDpEvent([]), "pld"),
    (training(1.1, 0.01, 100), "pld"),
    (dpa.NonPrivateDpEvent(), "pld"),
    (VOTES, "zcdp"),
    (dpa.ComposedDpEvent([dpa.SelfComposedDpEvent(VOTES, 5), dpa.NoOpDpEvent()]), "zcdp"),
    (dpa.ComposedDpEvent([VOTES, dpa.GaussianDpEvent(4.0), DiscreteGaussianDpEvent(9.0)]), "zcdp"),
    (dpa.ComposedDpEvent([BoundedRangeDpEvent(0.4), dpa.GaussianDpEvent(4.0)]), "zcdp"),
    (dpa.ComposedDpEvent([BoundedRangeDpEvent(0.4), training(1.1, 0.01, 100)]), "pld"),
    (dpa.ComposedDpEvent([VOTES, BoundedRangeDpEvent(0.4), dpa.LaplaceDpEvent(4.0)]), "rdp"),
    (dpa.ComposedDpEvent([VOTES, dpa.LaplaceDpEvent(4.0)]), "rdp"),
    (dpa.ComposedDpEvent([VOTES, training(1.1, 0.01, 100)]), "rdp"),
    (dpa.ComposedDpEvent([VOTES, dpa.GaussianDpEvent(4.0), dpa.ZCDpEvent(0.01, 0.1)]), "rdp"),
]


@pytest.mark.parametrize(("event", "accountant"), PRIMARIES)
def test_the_primary_accountant_is_the_tightest_that_takes_every_part(event, accountant):
    assert accounting.primary_accountant(event) == accountant
    assert accounting.epsilon(event, 1e-5) == accounting.epsilon(event, 1e-5, accountant)


def test_no_accountant_takes_a_part_that_it_cannot_bound():
    mixed = dpa.ComposedDpEvent([VOTES, dpa.LaplaceDpEvent(4.0)])
    with pytest.raises(ValueError, match="LaplaceDpEvent has no rho"):
        accounting.epsilon(mixed, 1e-5, "zcdp")
    with pytest.raises(dpa.UnsupportedEventError):
        accounting.epsilon(mixed, 1e-5, "pld")
    with pytest.raises(dpa.UnsupportedEventError):
        accounting.epsilon(dpa.PoissonSampledDpEvent(0.1, VOTES), 1e-5)


def test_rho_adds_up_over_gaussians_and_zcdp_parts_as_often_as_they_ran():
    parts = dpa.GaussianDpEvent(5.0), dpa.SelfComposedDpEvent(DiscreteGaussianDpEvent(10.0), 4), VOTES
    event = dpa.SelfComposedDpEvent(dpa.ComposedDpEvent(parts), 3)
    assert accounting.total_rho(event) == pytest.approx(3 * (0.02 + 4 * 0.005 + 0.01))
    assert accounting.epsilon(event, 1e-5) == accounting.zcdp_epsilon(accounting.total_rho(event), 1e-5)


@settings(deadline=None)
@given(st.floats(1e-5, 100.0), st.integers(1, 50), st.floats(1e-9, 1e-4))
def test_zcdp_is_renyi_without_its_grid_of_orders(rho, count, delta):
    event = dpa.SelfComposedDpEvent(dpa.ZCDpEvent(rho), count)
    tight, grid = accounting.epsilon(event, delta), accounting.epsilon(event, delta, "rdp")
    assert tight <= grid * (1 + 1e-9)
    if rho * count <= 100.0:
        assert grid <= 1.08 * tight


def test_a_constant_in_the_renyi_bound_costs_at_least_itself():
    plain, more = (accounting.epsilon(dpa.ZCDpEvent(0.01, xi), 1e-5, "rdp") for xi in (0.0, 0.5))
    assert more == pytest.approx(plain + 0.5)
    assert accounting.epsilon(dpa.ZCDpEvent(0.01, 0.5), 1e-5) == more


ANY = st.one_of(
    st.builds(dpa.GaussianDpEvent, st.floats(0.6, 20.0)),
    st.builds(dpa.ZCDpEvent, st.floats(1e-4, 1.0)),
    st.builds(dpa.ZCDpEvent, st.floats(1e-4, 1.0), st.floats(0.01, 0.5)),
)


@settings(max_examples=25, deadline=None)
@given(ANY, st.floats(1e-8, 1e-3))
def test_delta_and_epsilon_of_each_accountant_invert_each_other(event, delta):
    found = accounting.epsilon(event, delta)
    if found > 0.0:
        assert accounting.delta(event, found) == pytest.approx(delta, rel=1e-3)


@pytest.mark.parametrize("delta", [1e-5, 1e-9, 1e-12])
def test_no_rho_is_too_small_or_too_large_for_an_epsilon(delta):
    rhos = [0.0, 1e-30, 1e-18, 1e-14, 1e-6, 1.0, 1e5, 1e7, 1e300, 5e307, math.inf]
    found = [accounting.zcdp_epsilon(rho, delta) for rho in rhos]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (0.0, math.inf)


WITHOUT_NOISE = [
    dpa.NonPrivateDpEvent(), dpa.GaussianDpEvent(0.0), dpa.LaplaceDpEvent(0.0), dpa.GaussianDpEvent(math.nan),
    DiscreteGaussianDpEvent(0.0), dpa.ZCDpEvent(math.inf), dpa.ZCDpEvent(-0.1), dpa.ZCDpEvent(math.nan),
    BoundedRangeDpEvent(math.inf), BoundedRangeDpEvent(-0.1), dpa.ZCDpEvent(0.1, -0.1), dpa.ZCDpEvent(0.1, math.inf),
    dpa.ZCDpEvent(0.1, math.nan), dpa.ComposedDpEvent([dpa.ZCDpEvent(0.1), dpa.GaussianDpEvent(0.0)]),
    dpa.PoissonSampledDpEvent(0.01, dpa.NonPrivateDpEvent()),
    dpa.PoissonSampledDpEvent(0.01, dpa.GaussianDpEvent(0.0)),
    dpa.ComposedDpEvent([dpa.GaussianDpEvent(1.0), dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(0.0), 3)]),
]  # fmt: skip


@pytest.mark.parametrize("event", WITHOUT_NOISE)
@pytest.mark.parametrize("accountant", [None, *accounting.NAMES])
def test_a_part_without_noise_makes_epsilon_infinite(event, accountant):
    assert accounting.epsilon(event, 1e-5, accountant) == math.inf
    assert accounting.delta(event, 1.0) == 1.0
    assert accounting.group_epsilon(event, 2, 1e-5) == math.inf
    assert not np.any(accounting.trade_off(event)[1])
    with pytest.raises(ValueError, match="without noise"):
        accounting.pld(event)


@given(st.floats(0.01, 10.0), DELTAS)
def test_gaussian_conversions_invert_each_other(mu, delta):
    found = accounting.gdp_epsilon(mu, delta)
    if found > 0.0:
        assert accounting.gdp_delta(mu, found) == pytest.approx(delta, rel=1e-6)
        assert accounting.gdp_sigma(found, delta) == pytest.approx(1.0 / mu, rel=1e-6)


@given(st.floats(1e-6, 20.0), DELTAS)
def test_zcdp_conversions_invert_each_other(rho, delta):
    found = accounting.zcdp_epsilon(rho, delta)
    assert found <= rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))
    if found > 0.0:
        assert accounting.zcdp_rho(found, delta) == pytest.approx(rho, rel=1e-4)


def test_a_negligible_rho_costs_nothing():
    assert accounting.zcdp_epsilon(1e-14, 1e-6) == 0.0


@given(st.floats(0.05, 5.0), DELTAS)
def test_zcdp_covers_the_gaussian_that_satisfies_it(mu, delta):
    assert accounting.zcdp_epsilon(mu**2 / 2.0, delta) >= accounting.gdp_epsilon(mu, delta) - 1e-9


@given(st.floats(1.01, 200.0), st.floats(0.05, 5.0), DELTAS)
def test_one_renyi_order_covers_the_gaussian_too(order, mu, delta):
    implied = accounting.renyi_epsilon(order, order * mu**2 / 2.0, delta)
    assert implied >= accounting.gdp_epsilon(mu, delta) - 1e-9


def test_skipped_orders_are_bounded_by_a_higher_one():
    values = accounting.rdp(training(0.4, 0.05, 200))
    assert np.all(np.isfinite(values[: len(values) // 2]))
    assert np.all(np.diff(values) >= 0.0)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_the_trade_off_of_a_gaussian_is_the_known_curve(sigma):
    alpha, beta = map(np.array, accounting.trade_off(dpa.GaussianDpEvent(sigma)))
    exact = norm.cdf(norm.ppf(1.0 - alpha) - 1.0 / sigma)
    assert np.all(beta <= exact + 1e-6)
    assert np.max(exact - beta) < 5e-3


CURVES = [
    training(1.1, 0.01, 200),
    DiscreteGaussianDpEvent(2.0),
    BoundedRangeDpEvent(0.8),
    dpa.LaplaceDpEvent(1.0),
    *(dpa.ZCDpEvent(rho) for rho in (0.0, 1e-4, 0.02, 1.0, 500.0)),
    dpa.ComposedDpEvent([VOTES, dpa.GaussianDpEvent(3.0)]),
    dpa.ComposedDpEvent([VOTES, dpa.LaplaceDpEvent(3.0)]),
    dpa.ZCDpEvent(0.02, 0.2),
]


@pytest.mark.parametrize("event", CURVES)
def test_a_trade_off_is_convex_falling_and_no_better_than_chance(event):
    alpha, beta = map(np.array, accounting.trade_off(event))
    slopes = np.diff(beta) / np.diff(alpha)
    assert np.all(slopes <= 1e-9)
    assert np.all(np.diff(slopes) >= -1e-6)
    assert np.all((beta >= 0.0) & (beta <= 1.0 - alpha + 1e-12))


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0, 10.0])
def test_the_trade_off_of_zcdp_is_never_above_that_of_its_gaussian(sigma):
    alpha, beta = map(np.array, accounting.trade_off(dpa.ZCDpEvent(0.5 / sigma**2)))
    exact = norm.cdf(norm.ppf(1.0 - alpha) - 1.0 / sigma)
    assert np.all(beta <= exact + 1e-12)
    assert np.max(exact - beta) < 0.3  # all mechanisms of this rho, not the Gaussian alone


def test_a_release_without_noise_hides_nothing():
    assert not np.any(accounting.trade_off(dpa.NonPrivateDpEvent())[1])


@pytest.mark.parametrize("sigma", [1.0, 5.0])
def test_group_epsilon_grows_with_the_group_and_covers_the_exact_one(sigma):
    event = dpa.GaussianDpEvent(sigma)
    found = [accounting.group_epsilon(event, size, 1e-5) for size in (1, 2, 5, 10)]
    assert found[0] == accounting.epsilon(event, 1e-5)
    assert found == sorted(found)
    assert all(
        value >= accounting.gdp_epsilon(size / sigma, 1e-5) for value, size in zip(found, (1, 2, 5, 10), strict=True)
    )


@pytest.mark.parametrize("sigma", [1.0, 5.0])
def test_zcdp_groups_cost_the_square_of_their_size_and_cover_the_exact_gaussian(sigma):
    event = dpa.SelfComposedDpEvent(dpa.ZCDpEvent(0.125 / sigma**2), 4)
    found = [accounting.group_epsilon(event, size, 1e-5) for size in (1, 2, 5, 10)]
    assert found[0] == accounting.epsilon(event, 1e-5)
    for value, size in zip(found, (1, 2, 5, 10), strict=True):
        assert value >= accounting.gdp_epsilon(size / sigma, 1e-5)
        assert value == pytest.approx(accounting.zcdp_epsilon(size**2 * 0.5 / sigma**2, 1e-5))


def test_mixed_groups_cost_more_than_one_and_more_than_their_parts():
    event = dpa.ComposedDpEvent([dpa.ZCDpEvent(0.005), dpa.LaplaceDpEvent(20.0)])
    found = [accounting.group_epsilon(event, size, 1e-5) for size in (1, 2, 5)]
    assert found == sorted(found)
    assert all(
        value > accounting.zcdp_epsilon(size**2 * 0.005, 1e-5) for value, size in zip(found, (1, 2, 5), strict=True)
    )


def test_laplace_groups_cost_exactly_their_size():
    assert accounting.group_epsilon(dpa.LaplaceDpEvent(2.0), 4, 1e-9) == pytest.approx(2.0, rel=0.01)


@pytest.mark.parametrize(
    "call",
    [
        lambda: accounting.epsilon(dpa.GaussianDpEvent(1.0), -0.1),
        lambda: accounting.epsilon(dpa.GaussianDpEvent(1.0), 0.1, "gdp"),
        lambda: accounting.calibrate_noise(dpa.GaussianDpEvent, -1.0, 1e-5),
        lambda: accounting.gdp_sigma(1.0, 1e-5, rounds=0),
    ],
)
def test_impossible_arguments_are_refused(call):
    with pytest.raises(ValueError, match="must be"):
        call()


@pytest.mark.parametrize("steps", [1_000, 10_000, 100_000])
@pytest.mark.parametrize("delta", [1e-6, 1e-10, 1e-12, 1e-14, 1e-20, 1e-30])
def test_composed_losses_are_never_below_the_exact_ones_however_small_delta_is(steps, delta):
    """A sample of everybody is no Gaussian to the library: its losses are composed one by one."""
    found, exact = accounting.epsilon(training(math.sqrt(steps), 1.0, steps), delta), accounting.gdp_epsilon(1.0, delta)
    assert exact <= found <= 1.0005 * exact


def test_a_profile_of_composed_losses_is_never_below_the_exact_one():
    at = np.concatenate([np.linspace(0.0, 12.0, 241), [3.00001, 0.1234567]])
    found = accounting.pld(training(30.0, 1.0, 900)).deltas(at)
    exact = accounting.gdp_deltas(np.ones(len(at)), at)
    assert np.all((found >= exact) & (found <= 1.001 * exact))


def test_losses_that_are_atoms_compose_to_their_sums():
    """Of twenty, half of the losses are the largest: the sum is the largest with probability 2^-20."""
    event = dpa.SelfComposedDpEvent(dpa.LaplaceDpEvent(20.0), 20)
    low, high = fourier.epsilon(event, 1e-6)
    assert low <= accounting.epsilon(event, 1e-6) <= high
    assert accounting.epsilon(event, 1e-9) == pytest.approx(1.0 + math.log1p(-1e-9 * 2**20), rel=1e-5)


@pytest.mark.parametrize("sigma", [100.0, 300.0])
def test_a_thousand_histograms_cost_no_more_than_a_thousand_gaussians(sigma):
    """No loss is rounded up: half a step of the grid each would be .05 in all."""
    event = dpa.SelfComposedDpEvent(DiscreteGaussianDpEvent(sigma), 1000)
    found = accounting.epsilon(event, 1e-6)
    assert found == pytest.approx(accounting.gdp_epsilon(math.sqrt(1000) / sigma, 1e-6), rel=1e-3)
    assert found < accounting.epsilon(event, 1e-6, "rdp")


@pytest.mark.parametrize("size", [2, 5, 10])
def test_a_group_under_gaussian_queries_has_exactly_so_many_times_their_mu(size):
    sigma = accounting.gdp_sigma(3.0, 1e-5, 20)
    mu = math.sqrt(20) / sigma
    votes = dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(sigma), 20)
    exact = accounting.gdp_epsilon(size * mu, 1e-5)
    assert accounting.group_epsilon(votes, size, 1e-5) == pytest.approx(exact, rel=1e-9)
    counts = dpa.SelfComposedDpEvent(DiscreteGaussianDpEvent(sigma), 20)
    assert exact <= accounting.group_epsilon(counts, size, 1e-5) <= 1.001 * exact
    by_losses = accounting.group_epsilon(training(sigma, 1.0, 20), size, 1e-5)  # goes unit by unit
    assert exact <= by_losses <= 1.001 * exact


def test_a_group_of_a_training_goes_unit_by_unit():
    """One epsilon for each unit, as in the lemma of Vadhan 2017, would be 3.42, 12.4 and 245."""
    event = training(1.1, 0.01, 1000)
    found = [accounting.group_epsilon(event, size, 1e-5) for size in (2, 5, 10)]
    assert found == pytest.approx([3.34, 10.2, 27.7], rel=5e-3)
    assert accounting.group_epsilon(event, 2, 1e-5, 1e-6) > found[0]
    assert accounting.group_epsilon(event, 10, 1e-5, 9e-6) == math.inf


def test_a_replaced_unit_of_a_training_costs_less_than_a_group_of_two():
    event = training(1.1, 0.01, 1000)
    library = dpa.pld.PLDAccountant(dpa.NeighboringRelation.REPLACE_ONE)
    found = accounting.replaced_epsilon(event, 1e-5)
    assert found == pytest.approx(library.compose(event).get_epsilon(1e-5), rel=1e-5)
    assert accounting.epsilon(event, 1e-5) < found < 0.8 * accounting.group_epsilon(event, 2, 1e-5)
    assert accounting.replaced_epsilon(dpa.ComposedDpEvent([event, VOTES]), 1e-5) == math.inf


def test_a_replaced_unit_moves_a_gaussian_by_twice_and_two_counts_by_one():
    gaussian = accounting.replaced_epsilon(dpa.GaussianDpEvent(4.0), 1e-5)
    assert gaussian == pytest.approx(accounting.gdp_epsilon(0.5, 1e-5), rel=1e-5)
    counts = accounting.replaced_epsilon(dpa.SelfComposedDpEvent(DiscreteGaussianDpEvent(40.0), 3), 1e-5)
    assert counts == pytest.approx(accounting.gdp_epsilon(math.sqrt(6.0) / 40.0, 1e-5), rel=1e-3)
