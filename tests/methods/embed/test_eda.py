"""The distribution of selected embeddings, and what is drawn from it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats

from palimpsest.methods.embed.declaration import Eda
from palimpsest.methods.embed.steps import Mixture, fit_mixture, gaussian, group_parents

PUBLIC = np.array([0.3, 0.4])
PARENTS = np.array([[1.0, 0.0], [0.0, 2.0], [5.0, 4.0], [2.0, 6.0]])  # the best first


def eda(**changes: Any) -> Eda:
    return Eda(**{"smoothing": 0.1, "best": 2, "components": 1, **changes})


def fit(parents: np.ndarray, votes: Any, settings: Eda, seed: int = 0) -> Mixture:
    return fit_mixture(parents, np.asarray(votes, dtype=float), settings, PUBLIC, np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("parents", "changes", "mean", "deviation"),
    [
        # mu = (2, 3), best + second - worst = (-1, -4); sigma = sqrt(3.5), sqrt(5); of the two best 0.5, 1.
        (PARENTS, {}, [1.7, 2.3], [0.9 * 3.5**0.5 + 0.05, 0.9 * 5**0.5 + 0.1]),
        (PARENTS, {"smoothing": 0.0}, [2.0, 3.0], [3.5**0.5, 5**0.5]),
        (PARENTS, {"smoothing": 1.0}, [-1.0, -4.0], [0.5, 1.0]),
        (PARENTS, {"best": 1}, [1.7, 2.3], [0.9 * 3.5**0.5, 0.9 * 5**0.5]),
        (PARENTS, {"best": 9}, [1.7, 2.3], [3.5**0.5, 5**0.5]),
        # Of three, the worst is the third: mu = (2, 2), (1, 2) - (5, 4).
        (PARENTS[:3], {"smoothing": 0.5}, [-1.0, 0.0], [(14 / 3) ** 0.5 / 2 + 0.25, (8 / 3) ** 0.5 / 2 + 0.5]),
        # Of two, the second best is the worst too; a lone one is all three.
        (PARENTS[:2], {}, [0.9 * 0.5 + 0.1, 0.9], [0.5, 1.0]),
        (PARENTS[2:3], {}, [5.0, 4.0], [0.3, 0.4]),
        (PARENTS[[2, 2, 2]], {}, [5.0, 4.0], [0.3, 0.4]),
        # One coordinate in which parents differ is a spread of their own.
        (np.array([[1.0, 0.0], [1.0, 2.0]]), {"smoothing": 0.0}, [1.0, 1.0], [0.0, 1.0]),
        # The best alone have no spread, which at a smoothing of 1 leaves none.
        (PARENTS, {"smoothing": 1.0, "best": 1}, [-1.0, -4.0], [0.3, 0.4]),
    ],
)
def test_the_formula_by_hand(parents: np.ndarray, changes: dict[str, Any], mean: Any, deviation: Any) -> None:
    found = gaussian(parents, eda(**changes), PUBLIC)
    np.testing.assert_allclose(found, [mean, deviation], atol=1e-12)


def test_one_gaussian_has_all_parents_whatever_their_votes() -> None:
    found = fit(PARENTS, [9, 0, 0, 0], eda())
    assert found.weights.tolist() == [1.0]
    np.testing.assert_allclose(found.means, gaussian(PARENTS, eda(), PUBLIC)[0][None])
    np.testing.assert_allclose(found.spreads, gaussian(PARENTS, eda(), PUBLIC)[1][None])


NEAR = np.array([[0.0, 0.0], [9.0, 9.0], [0.0, 2.0], [9.0, 8.0], [1.0, 0.0], [9.0, 7.0]])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("votes", "weights"), [([5, 1, 3, 1, 0, 2], [8 / 12, 4 / 12]), ([0] * 6, [0.5, 0.5]), ([0, 3, 0, 0, 0, 0], [0, 1])]
)
def test_a_mixture_is_a_gaussian_for_each_group(seed: int, votes: list[int], weights: list[float]) -> None:
    """Best, second and worst are those of the group, by the order of all."""
    settings = eda(components=2, smoothing=0.5)
    found = fit(NEAR, votes, settings, seed)
    np.testing.assert_allclose(found.weights, weights)
    for place, own in enumerate(([0, 2, 4], [1, 3, 5])):
        mean, spread = gaussian(NEAR[own], settings, PUBLIC)
        np.testing.assert_allclose(found.means[place], mean)
        np.testing.assert_allclose(found.spreads[place], spread)


def test_a_group_of_one_has_the_public_spread() -> None:
    found = fit(NEAR[[0, 1, 2]], [1, 1, 1], eda(components=2))
    np.testing.assert_allclose(found.means[1], NEAR[1])
    np.testing.assert_allclose(found.spreads[1], PUBLIC)
    assert (found.spreads[0] != PUBLIC).all()


@given(
    arrays.arrays(np.float64, st.tuples(st.integers(1, 12), st.just(2)), elements=st.integers(-4, 4).map(float)),
    st.integers(1, 6),
    st.integers(0, 3),
)
def test_groups_are_the_parents_nearest_to_their_centres(parents: np.ndarray, count: int, seed: int) -> None:
    groups = group_parents(parents, count, np.random.default_rng(seed))
    assert sorted(index for own in groups for index in own) == list(range(len(parents)))
    assert 1 <= len(groups) <= min(count, len(np.unique(parents, axis=0)))
    assert [own[0] for own in groups] == sorted(own.min() for own in groups)
    centres = np.stack([parents[own].mean(axis=0) for own in groups])
    for place, own in enumerate(groups):
        squares = np.square(parents[own][:, None] - centres).sum(axis=-1)
        assert (squares[:, place] <= squares.min(axis=1) + 1e-9).all()


def test_groups_are_as_many_as_parents_that_differ_at_most() -> None:
    assert [own.tolist() for own in group_parents(NEAR[[0, 0, 1, 0]], 4, np.random.default_rng(0))] == [[0, 1, 3], [2]]


def test_offspring_have_length_one() -> None:
    found = fit(PARENTS, [1] * 4, eda()).draw(500, np.random.default_rng(0))
    assert (found.shape, found.dtype) == ((500, 2), np.float32)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, rtol=1e-6)
    assert len(np.unique(found, axis=0)) == 500


def test_offspring_are_normal_around_the_mean() -> None:
    """Seen from (4, 0), a point with no spread in x: y / x is normal with a quarter of y's deviation."""
    one = Mixture(np.ones(1), np.array([[4.0, 1.0]]), np.array([[0.0, 2.0]]))
    found = one.draw(4000, np.random.default_rng(0)).astype(float)
    assert stats.kstest(found[:, 1] / found[:, 0], stats.norm(0.25, 0.5).cdf).pvalue > 1e-4


def test_coordinates_are_drawn_apart() -> None:
    one = Mixture(np.ones(1), np.array([[9.0, 0.0, 0.0]]), np.array([[0.0, 1.0, 1.0]]))
    found = one.draw(4000, np.random.default_rng(0)).astype(float)
    assert abs(np.corrcoef(found[:, 1] / found[:, 0], found[:, 2] / found[:, 0])[0, 1]) < 0.06


def test_each_gaussian_is_drawn_from_by_its_weight() -> None:
    three = Mixture(np.array([0.2, 0.5, 0.3]), np.eye(3), np.zeros((3, 3)))
    found = three.draw(3000, np.random.default_rng(0)).argmax(axis=1)
    assert stats.chisquare(np.bincount(found, minlength=3), [600, 1500, 900]).pvalue > 1e-4


def test_draws_are_a_function_of_the_seed() -> None:
    one = fit(NEAR, [1] * 6, eda(components=2))
    same, other = (one.draw(9, np.random.default_rng(seed)) for seed in (3, 4))
    assert np.array_equal(same, one.draw(9, np.random.default_rng(3)))
    assert not np.array_equal(same, other)
