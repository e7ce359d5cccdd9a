"""Exact noise: enumerated (tier T0), and the samplers against the enumerated probabilities (tier T2)."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from palimpsest.privacy import accounting
from palimpsest.privacy.events import DiscreteGaussianDpEvent
from palimpsest.privacy.queries import discrete_gaussian, gumbel_top_k

RARE = 1e-6


def pmf(sigma: float, reach: int = 400) -> np.ndarray:
    """The discrete Gaussian on -reach..reach (its mass beyond is below double precision for sigma <= 10)."""
    weights = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2.0 * sigma**2))
    return weights / weights.sum()


def hockey_stick(sigma: float, epsilon: float) -> float:
    """delta(epsilon) of one count, the larger of adding and removing; the pmf is symmetric, so both are the same."""
    one = pmf(sigma)
    return float(np.maximum(one[:-1] - math.exp(epsilon) * one[1:], 0.0).sum())


def log_renyi(sigma: float, order: float) -> float:
    log = -(np.arange(-400.0, 401.0) ** 2) / (2.0 * sigma**2)
    log -= np.logaddexp.reduce(log)
    return float(np.logaddexp.reduce(order * log[:-1] + (1.0 - order) * log[1:]) / (order - 1.0))


@pytest.mark.parametrize("sigma", [0.4919, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, 3.0, 8.0])
def test_the_enumerated_delta_is_within_both_accounts(sigma, epsilon):
    exact = hockey_stick(sigma, epsilon)
    assert exact <= accounting.zcdp_delta(1.0 / (2.0 * sigma**2), epsilon) + 1e-300
    assert exact <= accounting.delta(DiscreteGaussianDpEvent(sigma), epsilon) + 1e-12


@pytest.mark.parametrize("sigma", [0.4919, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("order", [1.5, 2.0, 8.0, 32.0])
def test_the_enumerated_divergence_is_within_the_gaussians(sigma, order):
    assert log_renyi(sigma, order) <= order / (2.0 * sigma**2) * (1.0 + 1e-9)


@pytest.mark.parametrize("order", [2.0, 8.0])
def test_a_scale_two_percent_too_small_breaks_the_bound(order):
    assert log_renyi(3.0 * 0.98, order) > order / (2.0 * 3.0**2)


def sampler_p(draws: np.ndarray, sigma: float) -> float:
    """Chi-square p-value of draws against the pmf, tails merged from five scales on."""
    reach = math.ceil(3.5 * sigma)
    probabilities = pmf(sigma)[400 - reach : 401 + reach]
    tail = (1.0 - probabilities.sum()) / 2.0
    probabilities[0] += tail
    probabilities[-1] += tail
    counts = np.bincount(np.clip(draws, -reach, reach) + reach, minlength=2 * reach + 1)
    return float(stats.chisquare(counts, probabilities * draws.size).pvalue)


@pytest.mark.parametrize("sigma", [0.8, 3.0])
def test_draws_follow_the_enumerated_probabilities(sigma):
    draws = np.array(discrete_gaussian([0] * 15_000, sigma))
    assert sampler_p(draws, sigma) > RARE
    assert sampler_p(draws, sigma * 1.1) < RARE


def test_noise_is_added_to_each_count_afresh():
    noisy = np.array(discrete_gaussian([10, -5] * 5000, 1.0)).reshape(-1, 2) - [10, -5]
    assert stats.pearsonr(*noisy.T).pvalue > RARE
    assert discrete_gaussian([], 1.0) == []


def raised(scores: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Every neighbour that one added record can make: each score rises by 0 or 1."""
    return [tuple(np.add(scores, step)) for step in itertools.product((0, 1), repeat=len(scores))]


SCORES = [(0, 0, 0), (3, 2, 0), (5, 5, 1), (0, 9, 9)]


def peeled(scores: tuple[int, ...], k: int, scale: float) -> dict[tuple[int, ...], float]:
    """Exponential mechanisms, one after the other: every ordered outcome's log probability (Plackett and Luce)."""
    if k == 0:
        return {(): 0.0}
    logits = np.array(scores) / scale
    logs = {}
    for first, log in enumerate(logits - np.logaddexp.reduce(logits)):
        rest = [index for index in range(len(scores)) if index != first]
        for then, after in peeled(tuple(scores[index] for index in rest), k - 1, scale).items():
            logs[first, *(rest[index] for index in then)] = float(log) + after
    return logs


def costs(scores: tuple[int, ...], k: int, scale: float, orders: Sequence[float]) -> list[float]:
    """The largest Renyi divergence over its order, from and to each neighbour that one added record makes."""
    base = np.array(list(peeled(scores, k, scale).values()))
    found = []
    for other in raised(scores):
        law = np.array(list(peeled(other, k, scale).values()))
        for order, (one, two) in itertools.product(orders, ((base, law), (law, base))):
            log = np.logaddexp.reduce(order * one + (1.0 - order) * two)
            found.append(float(log / (order - 1.0) / order))
    return found


@pytest.mark.parametrize("scores", [*SCORES, (4, 4, 4, 0)])
@pytest.mark.parametrize("scale", [0.5, 2.0, 7.0])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_enumerated_picks_cost_an_eighth_each(scores, scale, k):
    assert np.logaddexp.reduce(list(peeled(scores, k, scale).values())) == pytest.approx(0.0, abs=1e-12)
    assert max(costs(scores, k, scale, (1.01, 1.5, 2.0, 8.0, 32.0, 200.0))) <= k / (8.0 * scale**2) + 1e-9


def test_an_eighth_is_tight_enough_to_catch_two_percent_less_noise():
    """One pick of two equal scores is the worst there is."""
    assert max(costs((5, 5), 1, 20.0, [1.5])) <= 1.0 / (8.0 * 20.0**2)
    assert max(costs((5, 5), 1, 20.0 * 0.98, [1.5])) > 1.0 / (8.0 * 20.0**2)


@pytest.mark.parametrize(("scores", "scale"), [((3, 2, 0), 1.5), ((1, 1, 1), 1.5), ((3, 2, 0), 0.7)])
def test_gumbel_picks_follow_the_enumerated_probabilities(scores, scale):
    logs, size = peeled(scores, 2, scale), 4000
    drawn = [tuple(gumbel_top_k(scores, 2, scale)) for _ in range(size)]
    counts = [drawn.count(pair) for pair in logs]
    assert sum(counts) == size
    assert stats.chisquare(counts, np.exp(list(logs.values())) * size).pvalue > RARE


def test_all_of_k_are_different():
    assert sorted(gumbel_top_k([1, 2, 3, 4], 4, 1.0)) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "call",
    [
        lambda: discrete_gaussian([1], 0.0),
        lambda: discrete_gaussian([1], math.nan),
        lambda: gumbel_top_k([1, 2], 0, 1.0),
        lambda: gumbel_top_k([1, 2], 3, 1.0),
        lambda: gumbel_top_k([1, 2], 1, 0.0),
        lambda: gumbel_top_k([1, 2], 1, -1.0),
        lambda: gumbel_top_k([], 1, 1.0),
    ],
)
def test_impossible_arguments_are_refused(call):
    with pytest.raises(ValueError, match="must be"):
        call()
