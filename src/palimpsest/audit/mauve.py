"""MAUVE: how much of each of two sets of texts the other could have written, in one number.

Source: Pillutla et al. 2021, "MAUVE: Measuring the Gap Between Neural Text and Human Text using Divergence Frontiers".
"""

import numpy as np
from scipy.special import rel_entr
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA

from palimpsest import validate
from palimpsest.errors import DataError

_SCALE = 5.0  # c of the paper
_VARIANCE = 0.9  # of the embeddings that their principal components keep
_ROWS_PER_CLUSTER = 10  # of the smaller set
_STARTS = 2  # of k-means
_POINTS = 1001  # of the frontier


def mauve(first: np.ndarray, second: np.ndarray, seed: int) -> float:
    """MAUVE of two sets of embeddings: 1 for equal sets, near 0 where no cluster holds rows of both.

    Both sets are quantised together (their unit vectors, by k-means on principal components), and the two histograms
    are compared. It depends on the number of clusters, and so on that of rows: compare at equal n only.

    Args:
        first: shape (n, d).
        second: shape (m, d).
        seed: of k-means.

    Raises:
        DataError: a set has fewer than 20 rows.
    """
    clusters = min(len(first), len(second)) // _ROWS_PER_CLUSTER
    if clusters < 2:
        raise DataError("MAUVE needs 20 rows of either set.", "Generate more rows, or give the audit a larger subset.")
    found = quantised(np.concatenate([first, second]), clusters, seed)
    histograms = (np.bincount(part, minlength=clusters) for part in (found[: len(first)], found[len(first) :]))
    return frontier_area(*(counts / counts.sum() for counts in histograms))


def quantised(rows: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    """The cluster of each row, int (n,): k-means on the principal components of its unit vector.

    Args:
        rows: shape (n, d).
        clusters: how many, at most n.
        seed: of k-means.
    """
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units = (rows / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
    components = PCA(n_components=_VARIANCE, svd_solver="full").fit_transform(units) if np.ptp(units) else units
    return KMeans(clusters, n_init=_STARTS, random_state=seed).fit_predict(components)


def frontier_area(first: np.ndarray, second: np.ndarray) -> float:
    """Area under the divergence frontier of two distributions (equations 1 and 2 of the paper).

    Its points are exp(-c KL(Q | R)), exp(-c KL(P | R)) for the mixtures R = share P + (1 - share) Q, 0 < share < 1, and
    its ends lie on the axes. Distributions with nothing in common still have the area c B(c + 1, c) = 0.004.

    Args:
        first: probabilities P, shape (k,).
        second: probabilities Q, shape (k,).

    >>> round(frontier_area(np.array([0.5, 0.5]), np.array([0.5, 0.5])), 3)
    1.0
    >>> round(frontier_area(np.array([1.0, 0.0]), np.array([0.0, 1.0])), 4)
    0.004
    """
    validate.in_range(1 - 1e-9, 1 + 1e-9, first=float(first.sum()), second=float(second.sum()))
    share = np.linspace(0.0, 1.0, _POINTS)[1:-1, None]
    mixture = share * first + (1.0 - share) * second  # (points, k)
    across, up = (np.exp(-_SCALE * rel_entr(side, mixture).sum(axis=1)) for side in (second, first))
    across, up = np.r_[1.0, across, 0.0], np.r_[0.0, up, 1.0]  # share 0 is Q itself, share 1 is P
    return float(np.trapezoid(up[::-1], across[::-1]))
