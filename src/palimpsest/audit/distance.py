"""Distances between synthetic texts and the private ones, as sets of embeddings: does a method come nearer?

Private zone: every value is a function of private rows. Two samples of one distribution are some way apart by chance
alone, and the further the fewer they are, so each distance stands beside its floor: the same distance between training
rows and the holdout, which differ by fair coins only, at the same number of rows. A value far below its floor says
that the rows are copies of training rows rather than of their kind.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from palimpsest import validate
from palimpsest.errors import DataError, ModelError
from palimpsest.plain import Plain

_FEWEST = 2  # rows: a covariance needs two
_BLOCK = 1024  # rows whose distances to all others are held at once
_MATCHED = 1000  # rows of either set that are matched, at most: the time grows with the cube

Measure = Callable[[np.ndarray, np.ndarray], float]


@dataclass(frozen=True)
class Distance(Plain):
    """How far a set of texts is from the training rows.

    Attributes:
        name: of the measure: frechet, energy or wasserstein.
        value: mean over random subsets of n rows of each set.
        floor: the same between training rows and the holdout.
        n: rows of either set that each value rests on; where the holdout is small, its number of rows.
    """

    name: str
    value: float
    floor: float
    n: int


def frechet(first: np.ndarray, second: np.ndarray) -> float:
    """Squared Fréchet distance of the Gaussians with the means and covariances of two sets: the FID, at least 0.

    |m1 - m2|^2 + tr S1 + tr S2 - 2 tr (S1 S2)^(1/2) (Dowson and Landau 1982; Heusel et al. 2017). With S = R'R, R
    from a QR decomposition of the centred rows, the last trace is the sum of the singular values of R1 R2': no square
    root of a matrix is taken, so singular covariances (n <= d) are exact too. It is biased upwards, the more the fewer
    the rows: compare at equal n only.

    Args:
        first: shape (n, d), n >= 2.
        second: shape (m, d), m >= 2.

    Raises:
        DataError: there are too few rows.
        ModelError: an embedding is not finite.
    """
    _check(first, second)
    (mean, root), (other_mean, other_root) = _moments(first), _moments(second)
    shared = np.linalg.svd(root @ other_root.T, compute_uv=False).sum()
    spread = (root**2).sum() + (other_root**2).sum() - 2.0 * shared
    return float(((mean - other_mean) ** 2).sum() + max(0.0, spread))


def energy(first: np.ndarray, second: np.ndarray) -> float:
    """Energy distance of two sets, 2 E|x - y| - E|x - x'| - E|y - y'| (Székely and Rizzo 2013), without bias.

    That is twice an MMD^2 with a distance kernel (Sejdinovic et al. 2013): it is 0 for equal distributions only, and
    has no bandwidth to choose. As a U-statistic it falls around 0, below it too, for samples of one distribution.

    Args:
        first: shape (n, d), n >= 2.
        second: shape (m, d), m >= 2.

    Raises:
        DataError: there are too few rows.
        ModelError: an embedding is not finite.
    """
    _check(first, second)
    one, two = first.astype(np.float64), second.astype(np.float64)
    between = _sum_of_distances(one, two) / (len(one) * len(two))
    within = sum(_sum_of_distances(rows, rows) / (len(rows) * (len(rows) - 1)) for rows in (one, two))
    return float(2.0 * between - within)


def wasserstein(first: np.ndarray, second: np.ndarray) -> float:
    """Wasserstein distance W1 of two sets of equal size, under Euclidean distance: at least 0, 0 for equal sets only.

    The least mean distance over all ways to pair the rows. Between two uniform distributions on n points each some
    optimal plan is a permutation (Birkhoff 1946; Peyré and Cuturi 2019, Proposition 2.1), so the best assignment is
    exact: no regularisation, no projection. It is biased upwards, and in many dimensions falls slowly with n: compare
    at equal n only.

    Args:
        first: shape (n, d), n >= 2.
        second: shape (n, d).

    Raises:
        DataError: there are too few rows.
        ModelError: an embedding is not finite.
        ValueError: the sets differ in size.
    """
    _check(first, second)
    if len(first) != len(second):
        raise ValueError(f"wasserstein pairs row with row, got {len(first)} and {len(second)} rows")
    apart = cdist(first.astype(np.float64), second.astype(np.float64))  # (n, n)
    return float(apart[linear_sum_assignment(apart)].mean())


MEASURES: dict[str, Measure] = {"frechet": frechet, "energy": energy, "wasserstein": wasserstein}


def floor(
    train: np.ndarray, holdout: np.ndarray, n: int, seed: int, repeats: int, measure: Measure = frechet
) -> tuple[float, int]:
    """How far apart training rows and holdout are at n rows each: what no honest method can be asked to undercut.

    Args:
        train: embeddings of training rows, shape (N, d).
        holdout: embeddings of the holdout, shape (M, d).
        n: rows of each subset; fewer where one of the sets has fewer.
        seed: of the subsets.
        repeats: pairs of subsets that the mean is taken over.

    Returns:
        The mean distance, and the number of rows that it rests on.

    Raises:
        DataError: there are too few rows.
        ModelError: an embedding is not finite.
    """
    rows = min(n, len(train), len(holdout))
    return _mean_distance(measure, holdout, train, rows, seed, repeats), rows


def per_round(
    rounds: Sequence[np.ndarray],
    train: np.ndarray,
    holdout: np.ndarray,
    seed: int,
    *,
    most: int = 2000,
    repeats: int = 3,
) -> list[tuple[Distance, ...]]:
    """The distances of each round's texts from the training rows, all at one n, so that rounds can be compared.

    n is the size of the smallest set, at most `most`, and for the Wasserstein distance at most 1000. The k-th subset of
    the training rows is the same for all rounds and for the floor, so rounds differ by what was written and not by what
    it was compared with.

    Args:
        rounds: embeddings of each round's texts, shape (rows, d) each.
        train: embeddings of training rows, shape (N, d).
        holdout: embeddings of the holdout, shape (M, d).
        seed: of the subsets.
        most: most rows of a subset; the time grows with its square.
        repeats: pairs of subsets that each value is the mean over.

    Returns:
        For each round its distances, in the order of `MEASURES`.

    Raises:
        DataError: there are too few rows.
        ModelError: an embedding is not finite.
    """
    validate.positive(rounds=len(rounds), most=most, repeats=repeats)
    n = min(most, len(train), len(holdout), *(len(rows) for rows in rounds))
    sizes = {name: min(n, _MATCHED) if measure is wasserstein else n for name, measure in MEASURES.items()}
    floors = {name: floor(train, holdout, sizes[name], seed, repeats, measure)[0] for name, measure in MEASURES.items()}
    return [
        tuple(
            Distance(name, _mean_distance(measure, rows, train, sizes[name], seed, repeats), floors[name], sizes[name])
            for name, measure in MEASURES.items()
        )
        for rows in rounds
    ]


def _mean_distance(measure: Measure, rows: np.ndarray, train: np.ndarray, n: int, seed: int, repeats: int) -> float:
    """Mean distance of random n-subsets; a set of n rows is taken whole."""
    pairs = ((_subset(rows, n, (seed, repeat, 0)), _subset(train, n, (seed, repeat, 1))) for repeat in range(repeats))
    return float(np.mean([measure(*pair) for pair in pairs]))


def _subset(rows: np.ndarray, n: int, seed: tuple[int, ...]) -> np.ndarray:
    return rows[np.sort(np.random.default_rng(seed).choice(len(rows), n, replace=False))]


def _moments(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean, and R of shape (min(n, d), d) with R'R the covariance (divisor n - 1)."""
    exact = rows.astype(np.float64)
    mean = exact.mean(axis=0)
    root: np.ndarray = np.linalg.qr((exact - mean) / np.sqrt(len(rows) - 1)).R
    return mean, root


def _sum_of_distances(first: np.ndarray, second: np.ndarray) -> float:
    """Sum of |x - y| over all pairs."""
    squares, total = (second**2).sum(axis=1), 0.0
    for start in range(0, len(first), _BLOCK):
        block = first[start : start + _BLOCK]
        apart = (block**2).sum(axis=1)[:, None] + squares - 2.0 * block @ second.T  # (block, m)
        total += float(np.sqrt(np.maximum(apart, 0.0)).sum())
    return total


def _check(*sets: np.ndarray) -> None:
    if min(len(rows) for rows in sets) < _FEWEST:
        raise DataError(
            "A distance needs two rows of training, holdout and synthetic text.", "Give the audit more rows."
        )
    if not all(np.isfinite(rows).all() for rows in sets):
        raise ModelError("Embeddings are not all finite.", "Use another encoder, or look for what it cannot read.")
