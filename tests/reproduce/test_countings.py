"""Epsilon by both countings, against what is known of each paper."""

import math

import dp_accounting.dp_event as dpa
import pytest

from palimpsest.privacy import accounting
from palimpsest_lab.reproduce.countings import counted_epsilon, true_epsilon
from palimpsest_lab.reproduce.grid import Counting, grid

TWO = Counting(kind="two_gradients", batch=128, epochs=4)


def test_three_of_paper_000_is_eight_point_four() -> None:
    assert true_epsilon(TWO, "sst2", 3.0, 9484) == pytest.approx(8.4, abs=0.05)


def test_ours_is_counted_by_the_noise_that_each_gradient_gets() -> None:
    """The noise that the paper would take for 3 is counted as 3, whatever is charged for it."""
    rate = 128 / 9484

    def stated(noise: float) -> float:
        step = dpa.PoissonSampledDpEvent(rate, dpa.GaussianDpEvent(noise))
        return accounting.epsilon(dpa.SelfComposedDpEvent(step, round(4 / rate)), 1 / 9484, "rdp")

    numbers = {"clipping": "separate", "noise_multiplier": 0.7619}
    assert counted_epsilon(TWO, 8.4, numbers, 9484) == pytest.approx(stated(0.7619)) == pytest.approx(3.0, abs=0.01)
    assert counted_epsilon(TWO, 8.4, {"clipping": "joint", "noise_multiplier": 0.7619}, 9484) == 8.4


def test_the_noise_that_paper_002_prints_is_worth_a_little_more_than_it_says() -> None:
    counting = grid("002", "noise").counting
    assert true_epsilon(counting, "yelp", 1.0, 1_939_290) == pytest.approx(1.0045, abs=5e-5)
    assert true_epsilon(counting, "yelp", 3.0, 1_939_290) == 3.0  # no noise is printed for it


def test_thirty_picks_cost_thirty_times_the_rho_of_one() -> None:
    counting, n = Counting(kind="one_pick", picks=30), 5452
    rho = accounting.zcdp_rho(true_epsilon(counting, "trec", 5.0, n), 1 / n)
    assert rho == pytest.approx(30 * accounting.zcdp_rho(5.0, 1 / n), rel=1e-6)
    assert counted_epsilon(counting, true_epsilon(counting, "trec", 5.0, n), {"gap": 100.0}, n) == pytest.approx(
        5.0, rel=1e-6
    )


@pytest.mark.parametrize("epsilon", [0.0, math.inf])
def test_no_noise_and_no_look_are_counted_alike(epsilon: float) -> None:
    assert true_epsilon(TWO, "sst2", epsilon, 9484) == counted_epsilon(TWO, epsilon, {}, 9484) == epsilon
