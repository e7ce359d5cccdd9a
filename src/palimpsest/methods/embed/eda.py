"""Estimation of distribution: draws new embeddings from those that votes selected. All of it is post-processing."""

from dataclasses import dataclass

import numpy as np

from palimpsest.methods.embed.settings import Eda
from palimpsest.privacy.means import unit_rows

_TURNS = 100  # of Lloyd's algorithm, at most; so few points settle far earlier


@dataclass(frozen=True, eq=False)
class Mixture:
    """Gaussians with independent coordinates.

    Attributes:
        weights: the probability of each Gaussian, shape (m,), sum 1.
        means: the mean of each Gaussian, shape (m, d).
        spreads: standard deviation of each coordinate, shape (m, d).
    """

    weights: np.ndarray
    means: np.ndarray
    spreads: np.ndarray

    def drawn(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """New points, each brought to length 1: float32 (count, d)."""
        own = rng.choice(len(self.weights), size=count, p=self.weights)
        points = self.means[own] + self.spreads[own] * rng.standard_normal((count, self.means.shape[1]))
        return unit_rows(points).astype(np.float32)


def fitted(
    parents: np.ndarray, votes: np.ndarray, settings: Eda, spread: np.ndarray, rng: np.random.Generator
) -> Mixture:
    """Fit a distribution to parents (Zhao, Song, Zhou 2024, Algorithm 2), or a mixture where the settings ask for one.

    Each Gaussian is fitted to the parents nearest to its centre (`grouped`) and weighs as much as their votes.

    Args:
        parents: n >= 1 embeddings, the best first, shape (n, d).
        votes: the votes of each parent, >= 0, shape (n,); where all are 0, each weighs the same.
        spread: public standard deviation of each coordinate, shape (d,), for a Gaussian whose parents do not differ.
        rng: draws the first centres.
    """
    parents = np.asarray(parents, dtype=np.float64)
    groups = grouped(parents, settings.components, rng)
    gaussians = [gaussian(parents[own], settings, spread) for own in groups]
    weights = np.array([votes[own].sum() for own in groups], dtype=np.float64)
    if not weights.sum() > 0.0:
        weights = np.array([len(own) for own in groups], dtype=np.float64)
    means, spreads = zip(*gaussians, strict=True)
    return Mixture(weights / weights.sum(), np.stack(means), np.stack(spreads))


def gaussian(parents: np.ndarray, settings: Eda, spread: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of one Gaussian, (d,) each.

    mu' = (1 - a) mu + a (e_best + e_second - e_worst) and sigma' = (1 - a) sigma + a sigma_R, where mu and sigma are
    the mean and the standard deviation of all parents and sigma_R is that of the R best. The paper's sums stop one
    short of the last parent; here all count. A lone parent is best, second and worst. Where parents do not differ
    sigma' would be 0 and every offspring the same: `spread` then takes its place.

    >>> eda = Eda(smoothing=0.5, best=2, components=1)
    >>> mean, deviation = gaussian(np.array([[4.0], [2.0], [0.0]]), eda, np.ones(1))
    >>> mean.round(3).tolist(), deviation.round(3).tolist()
    ([4.0], [1.316])
    """
    mean, share = parents.mean(axis=0), settings.smoothing
    moved = (1.0 - share) * mean + share * (parents[0] + parents[:2][-1] - parents[-1])
    deviation = (1.0 - share) * parents.std(axis=0) + share * parents[: settings.best].std(axis=0)
    return moved, deviation if deviation.any() else np.asarray(spread, dtype=np.float64)


def grouped(parents: np.ndarray, count: int, rng: np.random.Generator) -> list[np.ndarray]:
    """At most `count` groups of parents near each other: indices in ascending order, the group of the best first.

    Lloyd's algorithm from centres that are far apart (k-means++: Arthur and Vassilvitskii 2007).
    """
    if count == 1:
        return [np.arange(len(parents))]
    centres, owners = _far_apart(parents, count, rng), np.full(len(parents), -1)
    for _ in range(_TURNS):
        nearest = _squares(parents, centres).argmin(axis=1)
        if np.array_equal(nearest, owners):
            break
        owners = nearest
        centres = np.stack([parents[owners == owner].mean(axis=0) for owner in np.unique(owners)])
    return [np.flatnonzero(owners == owner) for owner in dict.fromkeys(owners.tolist())]


def _far_apart(parents: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw initial centres: the best parent, then parents in proportion to their squared distance from those before."""
    chosen = [0]
    far = _squares(parents, parents[:1])[:, 0]
    while len(chosen) < count and far.sum() > 0.0:
        chosen.append(int(rng.choice(len(parents), p=far / far.sum())))
        far = np.minimum(far, _squares(parents, parents[chosen[-1:]])[:, 0])
    return parents[chosen]


def _squares(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Squared distance of each point from each centre, (points, centres); 0 from itself, exactly."""
    return np.stack([np.square(points - centre).sum(axis=1) for centre in centres], axis=1)
