"""Distribution tests of the noise source (tier T2). Each false alarm has a probability of at most 1e-6."""

import math
import os
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from palimpsest.privacy import circle
from palimpsest.privacy.entropy import NoiseSource, grid_of
from palimpsest.privacy.grid import covering_std

RARE = 1e-6
MANY = 200_000


@pytest.fixture
def noise() -> NoiseSource:
    return NoiseSource()


def normals(noise: NoiseSource, size: int) -> np.ndarray:
    """Standard normals, rounded to multiples of 2^-30."""
    return noise.whole_normal(size, 2.0**30) * 2.0**-30


def variance_p(sample: np.ndarray) -> float:
    """Two-sided p-value of a standard normal's variance (chi-square)."""
    tail = stats.chi2.cdf(float(np.sum(sample**2)), sample.size)
    return 2.0 * min(tail, 1.0 - tail)


def correlation_p(left: np.ndarray, right: np.ndarray) -> float:
    return float(stats.pearsonr(left, right).pvalue)


def test_the_variance_is_one_and_two_percent_less_would_show(noise):
    sample = normals(noise, MANY)
    assert variance_p(sample) > RARE
    assert variance_p(normals(noise, MANY) * 0.98) < RARE


def test_normals_are_normal(noise):
    assert stats.kstest(normals(noise, MANY), "norm").pvalue > RARE


def test_the_tails_have_their_weight(noise):
    beyond = int(np.sum(np.abs(normals(noise, 2_000_000)) > 4.0))
    low, high = stats.poisson.interval(1 - RARE, 2_000_000 * 2.0 * stats.norm.sf(4.0))
    assert low <= beyond <= high


def test_uniforms_are_uniform(noise):
    assert stats.kstest(noise.uniform(MANY), "uniform").pvalue > RARE


def test_every_bit_of_a_uniform_is_a_fair_coin(noise):
    words = (noise.uniform(MANY) * 2.0**53).astype(np.uint64)
    assert np.all(words & np.uint64(1) == 1)
    ones = [int(np.sum((words >> np.uint64(bit)) & np.uint64(1))) for bit in range(1, 53)]
    assert min(stats.binomtest(count, MANY, 0.5).pvalue for count in ones) > RARE / 52


@pytest.mark.parametrize("word", [0, 2**64 - 1])
def test_the_extreme_words_stay_inside(monkeypatch, noise, word):
    monkeypatch.setattr(noise, "_bits", lambda size: np.full(size, word, dtype=np.uint64))
    value = noise.uniform(1)[0]
    assert 0.0 < value < 1.0
    assert min(value, 1.0 - value) == 2.0**-53


def test_nothing_repeats_between_calls_or_within_one(noise):
    first, second = normals(noise, MANY), normals(noise, MANY)
    half = MANY // 2
    pairs = [(first, second), (first[1:], first[:-1]), (first[:half], first[half:])]
    pairs += [(left**2, right**2) for left, right in pairs]
    assert min(correlation_p(left, right) for left, right in pairs) > RARE / len(pairs)


def test_one_source_reused_would_show():
    assert correlation_p(normals(NoiseSource(seed=1), 1000), normals(NoiseSource(seed=1), 1000)) < RARE


def test_instances_have_keys_of_their_own():
    assert not np.array_equal(NoiseSource().uniform(4), NoiseSource().uniform(4))
    assert not NoiseSource().fixed


def test_a_seed_fixes_the_draws_and_says_so():
    assert NoiseSource(seed=7).fixed
    assert np.array_equal(normals(NoiseSource(seed=7), 9), normals(NoiseSource(seed=7), 9))
    assert not np.array_equal(NoiseSource(seed=7).uniform(4), NoiseSource(seed=7 + 2**32).uniform(4))


def drawn_by_a_child(noise: NoiseSource) -> bytes:
    """What a forked child draws next; empty if it could not."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, noise.uniform(8).tobytes())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with open(reader, "rb") as stream:
        return stream.read()


def check_a_child(noise: NoiseSource) -> None:
    """What a child draws is not what its parent draws."""
    noise.uniform(3)
    drawn = drawn_by_a_child(noise)
    assert len(drawn) == 64
    assert drawn != noise.uniform(8).tobytes()


def test_a_forked_process_draws_its_own_noise(noise):
    check_a_child(noise)


def test_a_child_that_draws_its_parents_noise_would_show():
    with pytest.raises(AssertionError):
        check_a_child(NoiseSource(seed=1))


def test_a_child_that_got_its_parents_number_draws_its_own_noise(monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: 1)
    check_a_child(NoiseSource())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_is_added_in_place_with_the_asked_scale(noise, dtype):
    values = torch.full((400, 500), 7.0, dtype=dtype)
    noise.add_gaussian(values, 3.0)
    assert (values.shape, values.dtype) == ((400, 500), dtype)
    assert variance_p((values.double() - 7.0).numpy().ravel() / 3.0) > RARE


def test_a_large_tensor_repeats_no_chunk(noise):
    values = torch.zeros(2 << 20)
    noise.add_gaussian(values, 1.0)
    drawn = values.numpy()
    assert correlation_p(drawn[: 1 << 20], drawn[1 << 20 :]) > RARE
    assert correlation_p(drawn[: 1 << 16], drawn[1 << 16 : 2 << 16]) > RARE


def test_an_odd_number_of_values_is_filled(noise):
    values = torch.zeros(2**16 + 3)
    noise.add_gaussian(values, 1.0)
    assert values.ne(0).all()
    assert normals(noise, 5).shape == (5,)


def test_an_empty_tensor_needs_no_noise(noise):
    noise.add_gaussian(torch.zeros(0, 3), 1.0)
    assert normals(noise, 0).shape == (0,)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_noise_is_refused(noise, dtype):
    with pytest.raises(ValueError, match="float32"):
        noise.add_gaussian(torch.zeros(3, dtype=dtype), 1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("std", [1.0, 0.6 * 0.1, 3e-9])
def test_the_rounded_tensor_and_the_rounded_noise_are_added_as_whole_numbers(dtype, std):
    values = (torch.randn(2**16 + 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * std).to(dtype)
    grid, before = grid_of(std), values.double().numpy().copy()
    drawn = NoiseSource(seed=3).whole_normal(values.numel(), std / grid)
    NoiseSource(seed=3).add_gaussian(values, std)
    sums = np.rint(before / grid).astype(np.int64) + drawn
    assert torch.equal(values, torch.from_numpy(sums * grid).to(dtype))


def test_the_grid_is_a_power_of_two_and_at_most_2_to_the_minus_24_deviations():
    for std in np.random.default_rng(0).lognormal(0.0, 20.0, 200):
        grid = grid_of(float(std))
        assert math.frexp(grid)[0] == 0.5
        assert 2.0**24 <= std / grid < 2.0**25


def test_no_noise_leaves_a_tensor_as_it_is(noise):
    values = torch.tensor([1 / 3, 1e-30])
    noise.add_gaussian(values, 0.0)
    assert values.tolist() == torch.tensor([1 / 3, 1e-30]).tolist()


@settings(max_examples=300, deadline=None)
@given(multiplier=st.floats(1e-3, 100.0), sensitivity=st.floats(1e-9, 1e6), values=st.integers(0, 10**9))
def test_the_deviation_covers_sensitivity_and_grid(multiplier, sensitivity, values):
    """In exact arithmetic: std / multiplier - sensitivity >= grid * sqrt(values), both sides squared."""
    std = covering_std(multiplier, sensitivity, values)
    room = Fraction(std) / Fraction(multiplier) - Fraction(sensitivity)
    assert room > 0
    assert room**2 >= Fraction(grid_of(std)) ** 2 * values
    assert std <= multiplier * sensitivity * (1 + 1.001 * (room_of(multiplier, values) + 1e-12))


@settings(max_examples=300, deadline=None)
@given(
    multiplier=st.floats(2.0**-1074, 100.0),
    exponent=st.integers(-1074, 1000),
    mantissa=st.floats(1.0, 2.0, exclude_max=True),
)
def test_noise_is_either_refused_or_covers_a_sensitivity_of_any_size(multiplier, exponent, mantissa):
    """Where the product is too small for float64 it would be 0, and nothing would be noised."""
    sensitivity = math.ldexp(mantissa, exponent)
    exact = Fraction(multiplier) * Fraction(sensitivity)
    if 2 * exact < Fraction(2) ** -900 or exact > Fraction(2) ** 900:
        with pytest.raises(ValueError, match="std must be between"):
            covering_std(multiplier, sensitivity, 1)
    elif Fraction(2) ** -900 <= exact < Fraction(2) ** 899:
        assert Fraction(covering_std(multiplier, sensitivity, 1)) >= exact


def test_a_reference_of_any_sensitivity_has_no_noise():
    assert covering_std(0.0, 5e-324, 10) == 0.0


def room_of(multiplier: float, values: int) -> float:
    """By how much the deviation is larger than without a grid: x / (1 - x)."""
    share = multiplier * math.sqrt(values) * 2.0**-24
    return share / (1 - share)


def test_a_grid_too_coarse_for_its_noise_is_refused():
    with pytest.raises(ValueError, match=r"noise multiplier \* sqrt\(values\)"):
        covering_std(300.0, 1.0, 10**9)


def test_whole_numbers_beyond_the_range_are_refused(noise):
    for std in (-1.0, math.nan, 2.0**51):
        with pytest.raises(ValueError, match="std"):
            noise.whole_normal(2, std)


def test_no_deviation_is_no_noise_and_costs_no_intervals(monkeypatch, noise):
    """Reference runs ask for it, and intervals for each of a million values would take minutes."""
    monkeypatch.setattr(circle, "decide_cell", lambda *_: pytest.fail("a value was not settled"))
    assert not noise.whole_normal(1_000_000, 0.0).any()


def test_a_coins_rate_is_never_above_the_one_asked_for(monkeypatch, noise):
    """The two uniforms on either side of a quarter: the upper one joins where the rate has room for its whole cell."""
    words = (np.array([2**50, 2**50 - 1], dtype=np.uint64)) << np.uint64(12)
    monkeypatch.setattr(noise, "_bits", lambda size: words)
    assert noise.bernoulli(2, 0.25).tolist() == [False, True]
    assert noise.bernoulli(2, 0.25 + 0.75 * 2.0**-52).tolist() == [False, True]
    assert noise.bernoulli(2, 0.25 + 2.0**-52).tolist() == [True, True]


@pytest.mark.parametrize("rate", [0.01, 0.37])
def test_coins_have_their_rate_and_a_binomial_spread(noise, rate):
    size, batches = 1000, 2000
    counts = noise.bernoulli(size * batches, rate).reshape(batches, size).sum(axis=1)
    assert stats.binomtest(int(counts.sum()), size * batches, rate).pvalue > RARE
    spread = float(np.sum((counts - size * rate) ** 2) / (size * rate * (1 - rate)))
    assert RARE < stats.chi2.cdf(spread, batches) < 1 - RARE


def test_certain_coins_are_certain(noise):
    assert noise.bernoulli(1000, 1.0).all()
    assert not noise.bernoulli(1000, 0.0).any()


def test_small_integers_are_equally_likely(noise):
    counts = np.bincount(noise.integers(MANY, 7), minlength=7)
    assert counts.size == 7
    assert stats.chisquare(counts).pvalue > RARE


def test_large_integers_are_equally_likely(noise):
    high = 3 << 61  # plain remainders of 64-bit words would fall below 2/3 of it three times in four
    below = int(np.sum(noise.integers(MANY, high) < 2 << 61))
    assert stats.binomtest(below, MANY, 2 / 3).pvalue > RARE


@pytest.mark.parametrize("std", [5e-324, 2.0**-901, 2.0**901, math.inf, math.nan])
def test_noise_whose_grid_float64_cannot_hold_is_refused(std: float) -> None:
    with pytest.raises(ValueError, match="std must be between"):
        NoiseSource(seed=1).add_gaussian(torch.zeros(4, dtype=torch.float64), std)


@pytest.mark.parametrize("std", [2.0**-900, 1e-200, 1e200, 2.0**900])
def test_noise_is_as_large_as_it_is_said_to_be_at_the_ends_of_what_is_allowed(std: float) -> None:
    values = torch.full((4000,), 3.0 * std, dtype=torch.float64)
    NoiseSource(seed=1).add_gaussian(values, std)
    told = values.numpy() / std
    assert abs(told.mean() - 3.0) < 0.1
    assert abs(told.std() - 1.0) < 0.1
