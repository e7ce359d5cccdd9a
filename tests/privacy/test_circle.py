"""Rounded Gaussians: the proof in double precision, the intervals, and the distribution by enumeration of all bits."""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp
from numba import njit
from scipy import stats

from palimpsest.privacy import circle
from palimpsest.privacy.circle import WIDTH, _compile_cached, add_on_grid, decide_cell, settle, whole_normals
from palimpsest.privacy.entropy import NoiseSource

UNIT = 2.0**-53
CORNERS = [(0, 0), (0, 1), (1, 0), (1, 1)]
STEPS = 2.0**25  # the most steps of the grid that a standard deviation of training noise has


def coordinates(u: Fraction, t: Fraction, std: float) -> tuple[mp.mpf, mp.mpf]:
    """s R cos(pi t / 4) and s R sin(pi t / 4), to sixty digits."""
    with mp.workdps(60):
        u, t = (mp.mpf(one.numerator) / one.denominator for one in (u, t))
        radius = std * mp.sqrt(-2 * mp.log(u))
        return radius * mp.cos(mp.pi * t / 4), radius * mp.sin(mp.pi * t / 4)


def nearest(value: mp.mpf) -> int:
    with mp.workdps(60):
        return int(mp.floor(value + mp.mpf(0.5)))


def settled(radial: np.ndarray, angular: np.ndarray, std: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First and second numbers in the octant without signs or exchange, and which cells are open."""
    words = np.concatenate([radial, angular]).astype(np.uint64) << np.uint64(64 - WIDTH)
    words[len(radial) :] |= np.uint64(0b110)
    points, open_cells = np.empty(2 * len(radial), dtype=np.int64), np.empty(len(radial), dtype=np.bool_)
    settle(words, WIDTH, std, points, open_cells)
    return *np.split(points, 2), open_cells


# --- double precision -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("octave", [*range(12), 20, 30, 40, 50, 51])
def test_a_coordinate_is_as_near_as_the_proof_says(octave):
    """u from 2^-(octave + 1) to 2^-octave, with steps so fine that half a step is no more than 3 units of 2^-53."""
    random = np.random.default_rng(octave)
    radial = random.integers(2 ** (51 - octave), 2 ** (52 - octave), 300)
    radial[:2] = 2 ** (51 - octave), 2 ** (52 - octave) - 1
    angular = random.integers(0, 2**52, 300)
    angular[2:5] = 0, 1, 2**52 - 1
    middles = [
        (Fraction(2 * int(r) + 1, 2**53), Fraction(2 * int(a) + 1, 2**53)) for r, a in zip(radial, angular, strict=True)
    ]
    std = 2.0**50 / math.sqrt(2 * math.log(2) * (octave + 1))
    for first, second, middle in zip(*settled(radial, angular, std)[:2], middles, strict=True):
        exact = coordinates(*middle, std)
        radius = math.hypot(*map(float, exact))
        for value, truth in zip((first, second), exact, strict=True):
            assert abs(int(value) - truth) <= 0.5 + 11.7 * UNIT * radius


def near_a_boundary(random: np.random.Generator, std: float, count: int) -> Iterator[tuple[int, int]]:
    """Cells that a half above a whole number crosses, and their neighbours, found by solving for u."""
    for _ in range(count):
        angular = int(random.choice([random.integers(0, 2**52), random.integers(0, 9), 2**52 - random.integers(1, 9)]))
        radius = std * math.sqrt(-2 * math.log(random.choice([random.random(), random.random() * 1e-12, 1 - 1e-9])))
        with mp.workdps(60):
            angle = mp.pi / 4 * (angular + mp.mpf(0.5)) / 2**52
            share = mp.cos(angle) if random.random() < 0.5 or angular < 9 else mp.sin(angle)
            goal = (mp.floor(radius * share) + mp.mpf(0.5)) / (std * share)
            radial = int(mp.exp(-(goal**2) / 2) * 2**52)
        for shift in (-3, -2, -1, 0, 1, 2, 3):
            if 0 <= radial + shift < 2**52:
                yield radial + shift, angular


def check_settled(radial: np.ndarray, angular: np.ndarray, std: float) -> np.ndarray:
    """Where a pair is settled, all corners of its cell lead to it; returns which are open."""
    firsts, seconds, open_cells = settled(radial, angular, std)
    for index in np.flatnonzero(~open_cells):
        # R falls with u; with t the first coordinate falls and the second one grows: corners are the extremes.
        for low, high in itertools.product((0, 1), repeat=2):
            u, t = (Fraction(int(one[index]) + move, 2**52) for one, move in ((radial, low), (angular, high)))
            found = tuple(map(nearest, coordinates(u, t, std)))
            assert found == (firsts[index], seconds[index])
    return open_cells


@pytest.mark.parametrize("std", [0.3, 1.0, 1000.0, 2.0**24, STEPS, 1.7 * 2.0**34, 2.0**45])
def test_what_is_settled_holds_on_the_whole_cell(std):
    random = np.random.default_rng(int(std))
    planted = np.array(list(near_a_boundary(random, std, 60)))
    edges = np.array([*itertools.product((0, 1, 2, 3, 2**51, 2**52 - 2, 2**52 - 1), (0, 1, 2**51, 2**52 - 1))])
    anywhere = random.integers(0, 2**52, (100, 2))
    found = check_settled(*planted.T, std)
    assert found.any()
    assert std > 2.0**40 or not found.all()
    check_settled(*edges.T, std)
    open_cells = check_settled(*anywhere.T, std)
    assert std > 2.0**40 or open_cells.sum() <= 2


@pytest.mark.parametrize("std", [0.01, 0.3, 1.0, STEPS])
@pytest.mark.parametrize("width", [2, 5, 20, WIDTH])
def test_the_lowest_cell_is_never_settled(std, width):
    points, open_cells = np.empty(2, dtype=np.int64), np.zeros(1, dtype=np.bool_)
    settle(np.array([0, 2**62], dtype=np.uint64), width, std, points, open_cells)
    assert open_cells[0]
    assert decide_cell(0, 2 ** (width - 2), width, std) is None


def test_what_is_too_fine_for_doubles_is_left_open():
    words = NoiseSource(1).uniform(2000).view(np.uint64)
    points, open_cells = np.empty(2000, dtype=np.int64), np.zeros(1000, dtype=np.bool_)
    settle(words, WIDTH, 2.0**50, points, open_cells)
    assert open_cells.mean() > 0.99


def test_few_cells_are_left_open():
    """Of a million pairs about 0.7; the probability of more than ten is below 1e-8."""
    source, count = NoiseSource(5), 0
    points, open_cells = np.empty(1 << 16, dtype=np.int64), np.empty(1 << 15, dtype=np.bool_)
    for _ in range(32):
        settle(source.integers(1 << 16, 2**63).astype(np.uint64) << np.uint64(1), WIDTH, STEPS, points, open_cells)
        count += int(open_cells.sum())
    assert count <= 10


# --- intervals --------------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(
    bits=st.integers(1, 160),
    place=st.tuples(*[st.fractions(0, 1, max_denominator=2**30)] * 2),
    inside=st.lists(st.tuples(*[st.fractions(0, 1, max_denominator=2**20)] * 2), min_size=3, max_size=3),
    std=st.one_of(st.floats(0.05, 4.0), st.floats(2.0**20, 2.0**30)),
    edge=st.sampled_from(["none", "low", "high", "axis", "diagonal"]),
)
def test_what_is_decided_holds_everywhere_in_the_cell(bits, place, inside, std, edge):
    radial, angular = (min(int(one * 2**bits), 2**bits - 1) for one in place)
    radial = {"low": min(1, 2**bits - 1), "high": 2**bits - 1}.get(edge, radial)
    angular = {"axis": 0, "diagonal": 2**bits - 1}.get(edge, angular)
    found = decide_cell(radial, angular, bits, std)
    if found is not None:
        for one, other in [(0, 0), (0, 1), (1, 0), (1, 1), *inside]:
            u, t = Fraction(radial + one) / 2**bits, Fraction(angular + other) / 2**bits
            assert tuple(map(nearest, coordinates(u, t, std))) == found


@pytest.mark.parametrize("std", [0.3, 5.0, STEPS])
def test_intervals_decide_as_soon_as_the_cell_is_small_enough(std):
    """A cell far finer than the distance to a boundary is decided: refinement ends."""
    random = np.random.default_rng(3)
    for _ in range(50):
        radial, angular = (int(random.integers(1, 2**52)) << 52 | int(random.integers(0, 2**52)) for _ in range(2))
        assert decide_cell(radial, angular, 104, std) is not None


@pytest.mark.parametrize("below", [26, 28, 29.5, 31, 40])
def test_a_cell_next_to_a_boundary_is_on_its_own_side(below):
    """Nearer than the last place of a double: the ends of the intervals must be cut as they are."""
    random, std, bits = np.random.default_rng(7), 1.7 * 2.0**24, 104
    for _ in range(40):
        angular = int(random.integers(0, 2**52)) << 52
        wanted = int(random.integers(2**20, 2**26))
        with mp.workdps(60):
            cosine = mp.cos(mp.pi * angular / 2 ** (bits + 2))
            radius = (wanted + mp.mpf(0.5) - mp.mpf(2) ** -below) / (std * cosine)
            radial = int(mp.floor(mp.exp(-(radius**2) / 2) * 2**bits))
        corners = [coordinates(Fraction(radial + i, 2**bits), Fraction(angular + j, 2**bits), std) for i, j in CORNERS]
        found = decide_cell(radial, angular, bits, std)
        assert found is None or {tuple(map(nearest, corner)) for corner in corners} == {found}
        assert found is not None or below >= 40


def scripted(words: list[int]) -> Callable[[int], np.ndarray]:
    left = iter(words)
    return lambda size: np.array([next(left) for _ in range(size)], dtype=np.uint64)


def test_the_tail_beyond_what_53_bits_reach_is_reachable():
    """Fifty-two zeros, and a one at the end of fifty-two more: 12 standard deviations."""
    zero, last = 0, 1 << (64 - WIDTH)
    found = whole_normals(np.array([zero, 0b110], dtype=np.uint64), STEPS, scripted([last, 0, 1 << 63, 0]))
    expected = coordinates(Fraction(2 * 2**51 + 2**51, 2**156), Fraction(0), STEPS)[0]
    assert found[0] == nearest(expected)
    assert found[0] / STEPS > 11.9
    assert found[1] == 0


# --- the distribution -------------------------------------------------------------------------------------------------


class TooDeep(Exception):
    """The bits of a path have run out before it was decided."""


def enumerated(std: float, width: int, depth: int) -> tuple[dict[tuple[int, int], Fraction], list[int]]:
    """The probability of every pair that `depth` words of `width` bits decide, and how many they decide at each."""
    mass: dict[tuple[int, int], int] = defaultdict(int)
    ended = [0] * depth
    words = list(itertools.product(range(2**width), repeat=2))

    def walk(path: list[tuple[int, int]], octant: int) -> None:
        left = iter(path[1:])

        def more(size: int) -> np.ndarray:
            assert size == 2
            if (following := next(left, None)) is None:
                raise TooDeep
            return np.array(following, dtype=np.uint64) << np.uint64(64 - width)

        start = np.array(path[0], dtype=np.uint64) << np.uint64(64 - width)
        start[1] |= np.uint64(octant)
        try:
            first, second = whole_normals(start, std, more, width)
        except TooDeep:
            if len(path) < depth:
                for following in words:
                    walk([*path, following], octant)
            return
        assert next(left, None) is None  # nothing was drawn in vain
        mass[int(first), int(second)] += 4 ** (width * (depth - len(path)))
        ended[len(path) - 1] += 1

    for word, octant in itertools.product(words, range(8)):
        walk([word], octant)
    return {pair: Fraction(paths, 8 * 4 ** (width * depth)) for pair, paths in mass.items()}, ended


def rounded_probability(value: int, std: float) -> float:
    """P(round(N(0, std^2)) = value)."""
    low = (abs(value) - 0.5) / std
    return float(stats.norm.sf(low) - stats.norm.sf(low + 1 / std))


ENUMERATED = [(0.1, 3, 2), (0.8, 2, 4), (2.5, 3, 2), (0.4, 4, 1)]


def check_enumeration(std: float, width: int, depth: int) -> None:
    """What is decided never exceeds what the Gaussian gives its square, and little is left undecided."""
    mass, ended = enumerated(std, width, depth)
    for (first, second), found in mass.items():
        assert found <= rounded_probability(first, std) * rounded_probability(second, std) + 1e-13
    assert 0.7 <= sum(mass.values()) < 1
    assert std < 0.2 or all(ended)


@pytest.mark.parametrize(("std", "width", "depth"), ENUMERATED)
def test_by_enumeration_no_pair_is_more_likely_than_the_gaussian_makes_it(monkeypatch, std, width, depth):
    monkeypatch.setattr(circle, "decide_cell", lru_cache(maxsize=None)(decide_cell))
    check_enumeration(std, width, depth)


@pytest.mark.parametrize("std", [0.2, 0.7, 3.0])
def test_pairs_have_the_gaussians_probabilities_and_are_independent(std):
    """Chi-square of both numbers together against the product of exact probabilities; a false alarm in a million."""
    count = 200_000
    first, second = drawn_pairs(NoiseSource(), count, std)
    reach = max(1, math.ceil(2.5 * std))
    cells = range(-reach, reach + 1)
    single = np.array([rounded_probability(cell, std) for cell in cells])
    single[[0, -1]] = stats.norm.sf((reach - 0.5) / std)
    table = np.zeros((len(cells), len(cells)))
    np.add.at(table, (np.clip(first, -reach, reach) + reach, np.clip(second, -reach, reach) + reach), 1)
    expected = count * np.outer(single, single)
    kept = expected > 5
    assert kept.sum() >= 5
    left = count - expected[kept].sum()
    observed, wanted = [*table[kept], table[~kept].sum()], [*expected[kept], left]
    if left < 5:
        observed, wanted = observed[:-1], wanted[:-1]
        wanted = np.array(wanted) * (sum(observed) / sum(wanted))
    assert stats.chisquare(observed, wanted).pvalue > 1e-6


def drawn_pairs(source: NoiseSource, count: int, std: float) -> tuple[np.ndarray, np.ndarray]:
    """Numbers that were made of one pair of words."""
    parts = [np.split(source.whole_normal(2 * 1000, std), 2) for _ in range(count // 1000)]
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


# --- the grid ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("grid", [2.0**-24, 2.0**-70, 1.0, 2.0**9])
def test_values_are_rounded_to_the_grid_and_steps_are_added_exactly(dtype, grid):
    random = np.random.default_rng(0)
    scale = grid * 2.0 ** random.integers(-3, 40, 500)
    values = (random.normal(size=500) * scale).astype(dtype)
    values[:4] = np.array([0.5, 1.5, -0.5, -2.5]) * grid  # halves
    steps = random.integers(-(2**50), 2**50, 500)
    whole = [round(Fraction(float(value)) / Fraction(grid)) for value in values]
    add_on_grid(values, steps, grid)
    sums = np.array(whole, dtype=np.int64) + steps
    assert np.array_equal(values, (sums.astype(np.float64) * grid).astype(dtype))


def test_values_beyond_the_range_are_brought_to_it():
    values = np.array([math.inf, -math.inf, math.nan, 1e300, 3.0])
    add_on_grid(values, np.array([5, 5, 5, -(2**61), 1], dtype=np.int64), 1.0)
    assert values.tolist() == [2.0**62, -(2.0**62), -(2.0**62), 2.0**61, 4.0]


def test_where_nothing_can_be_kept_each_process_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*, cache: bool = False, **options: object) -> Callable[..., object]:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return njit(**options)

    monkeypatch.setattr(circle, "njit", nowhere)
    assert _compile_cached(nogil=True)(lambda value: value + 1)(1) == 2
