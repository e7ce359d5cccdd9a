"""Composed privacy losses against exact sums, and what is shown of a delta."""

import functools
import math
from fractions import Fraction

import numpy as np
import pytest

from palimpsest.privacy import losses
from palimpsest.privacy.losses import Law, Way
from palimpsest.privacy.shown import delta_up

COIN = Law(-1, np.array([0.25, 0.25, 0.5]), 0.0)  # losses of -1, 0 and 1 steps


@functools.cache
def exact_law(count: int) -> list[Fraction]:
    """Of the sum of so many coins, in fractions."""
    quarters = np.array([1], dtype=object)
    for _ in range(count):
        quarters = np.convolve(quarters, np.array([1, 1, 2], dtype=object))
    return [Fraction(each, 4**count) for each in quarters]


def exact_delta(count: int, grid: float, epsilon: float) -> float:
    losses_of = (((place + count * COIN.first) * grid, mass) for place, mass in enumerate(exact_law(count)))
    return math.fsum(float(mass) * -math.expm1(epsilon - loss) for loss, mass in losses_of if loss > epsilon)


@pytest.mark.parametrize(
    ("places", "loose"), [(4096, 1.001), (1, 1.01)], ids=["as it is", "tilt and window by one bin"]
)
@pytest.mark.parametrize("count", [1, 2, 7, 60])
def test_a_sum_of_losses_has_its_exact_delta_from_above(count, places, loose, monkeypatch):
    monkeypatch.setattr(losses, "_PLACES", places)
    way = Way([(COIN, count)], 0.05)
    at = np.linspace(0.0, 0.05 * count - 1e-9, 60)
    exact = np.array([exact_delta(count, 0.05, one) for one in at.tolist()])
    assert np.all((way.deltas(at) >= exact) & (way.deltas(at) <= exact * loose))
    for delta in (0.1, 1e-3, 1e-6, 1e-12):
        found = way.epsilon(delta)
        assert found == 0.0 or exact_delta(count, 0.05, found) <= delta
        assert exact_delta(count, 0.05, found - 1e-3) >= delta or found < 1e-3


@pytest.mark.parametrize("count", [60, 400])
def test_what_rounding_may_hide_is_never_less_than_what_it_hid(count):
    found, wrong = losses.convolve_parts([(COIN.masses, count)], 0, 2 * count + 1)
    hid = sum((abs(Fraction(float(one)) - mass) for one, mass in zip(found, exact_law(count), strict=True)), 0)
    assert 0.0 < float(hid) <= wrong < 1e-9


@pytest.mark.parametrize("places", [1, 7, 500])
def test_a_law_in_fewer_places_has_its_mean_and_at_least_every_moment(places, monkeypatch):
    """Else a window, which these moments bound, would leave out more than is added for it."""
    monkeypatch.setattr(losses, "_PLACES", places)
    masses = np.random.default_rng(places).dirichlet(np.full(1003, 0.1))
    at = np.arange(-400.0, 603.0)
    fewer = losses._Coarse.of(-400, masses)  # noqa: SLF001
    assert (fewer.masses * fewer.places).sum() == pytest.approx((masses * at).sum(), rel=1e-9)
    for order in (-0.3, -0.02, -1e-4, 1e-4, 0.02, 0.3):
        assert fewer.log_moment(order) >= math.log((masses * np.exp(order * at)).sum()) - 1e-12
    assert fewer.variance >= (masses * (at - (masses * at).sum()) ** 2).sum() - 1e-9


def test_losses_that_are_infinite_are_a_part_of_delta_each_time():
    way = Way([(COIN._replace(masses=COIN.masses * (1 - 1e-6), infinite=1e-6), 10)], 0.05)
    assert way.epsilon(9.9e-6) == math.inf
    assert 0.0 < way.epsilon(1e-4) < math.inf
    assert way.deltas(np.array([1.0])) == pytest.approx([1e-5], rel=1e-4)


@pytest.mark.parametrize("delta", [1.0001e-5, 1.2345e-6, 2.0049e-7, 1 / 8396 / math.log(8396)])
def test_a_shown_delta_is_never_less_than_it_is(delta):
    assert delta <= float(delta_up(delta)) <= 1.01 * delta
