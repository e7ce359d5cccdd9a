"""Distances between two sets of texts, by their embeddings, words or lengths.

Embeddings have shapes (n, d) and (m, d). All but the energy distance and MMD depend on the numbers of rows: compare at
equal n only. Too few rows are a DataError; embeddings that are not finite are a ModelError of the distances.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist, pdist
from scipy.special import rel_entr
from scipy.stats import wasserstein_distance
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from palimpsest import validate
from palimpsest.errors import DataError, ModelError
from palimpsest.records.segment import words

_FEWEST = 2  # rows: a covariance needs two
_FOLDS = 5
_STRENGTH = 0.1  # of the classifiers' penalty: C of scikit-learn
_OF_RECALL = 3  # neighbours, as in Kynkäänniemi et al. 2019
_OF_COVERAGE = 5  # as in Naeem et al. 2020
_SCALE = 5.0  # c of MAUVE
_VARIANCE = 0.9  # of the embeddings that their principal components keep
_ROWS_PER_CLUSTER = 10  # of the smaller set
_STARTS = 2  # of k-means
_ADDED = 0.5  # to a cluster's count, before logarithms are taken (Krichevsky and Trofimov 1981)
_POINTS = 1001  # of MAUVE's frontier
_GRID = 2.0**-36  # of squared distances, in squared lengths of the longest vector


# --- distances of embeddings -----------------------------------------------------------------------------------


def frechet(first: np.ndarray, second: np.ndarray) -> float:
    """Squared Fréchet distance of the Gaussians with the means and covariances of two sets: the FID, at least 0.

    |m1 - m2|^2 + tr S1 + tr S2 - 2 tr (S1 S2)^(1/2) (Dowson and Landau 1982; Heusel et al. 2017). With S = R'R, R
    from a QR decomposition of the centred rows, the last trace is the sum of the singular values of R1 R2': no square
    root of a matrix is taken, so singular covariances (n <= d) are exact too. It is biased upwards, more so with fewer
    rows.
    """
    _check(first, second)
    (mean, root), (other_mean, other_root) = _moments(first), _moments(second)
    shared = np.linalg.svd(root @ other_root.T, compute_uv=False).sum()
    spread = (root**2).sum() + (other_root**2).sum() - 2.0 * shared
    return float(((mean - other_mean) ** 2).sum() + max(0.0, spread))


def energy(first: np.ndarray, second: np.ndarray) -> float:
    """Energy distance of two sets, 2 E|x - y| - E|x - x'| - E|y - y'| (Székely and Rizzo 2013), without bias.

    That is twice an MMD^2 with a distance kernel (Sejdinovic et al. 2013): it is 0 for equal distributions only, and
    has no bandwidth to choose. As a U-statistic it varies around 0, also below it, for samples of one distribution.
    """
    _check(first, second)
    one, two = first.astype(np.float64), second.astype(np.float64)
    return float(2.0 * cdist(one, two).mean() - pdist(one).mean() - pdist(two).mean())


def wasserstein(first: np.ndarray, second: np.ndarray) -> float:
    """Wasserstein distance W1 of two sets of equal size, under Euclidean distance: at least 0, 0 for equal sets only.

    The least mean distance over all ways to pair the rows. Between two uniform distributions on n points each some
    optimal plan is a permutation (Birkhoff 1946; Peyré and Cuturi 2019, Proposition 2.1), so the best assignment is
    exact: no regularisation, no projection. It is biased upwards, and in many dimensions falls slowly with n.

    Raises:
        ValueError: the sets differ in size.
    """
    _check(first, second)
    if len(first) != len(second):
        raise ValueError(f"wasserstein pairs row with row, got {len(first)} and {len(second)} rows")
    apart = _distances(first, second)  # (n, n)
    return float(apart[linear_sum_assignment(apart)].mean())


def mmd(first: np.ndarray, second: np.ndarray) -> float:
    """Squared maximum mean discrepancy, without bias: around 0, and below it too, for samples of one distribution.

    Source: Gretton et al. 2012, equation 3 (the U-statistic), with the kernel exp(-|x - y|^2 / (2 s^2)), s the median
    distance within the second set: all sets compared with the same rows are compared under nearly the same kernel.
    """
    within_one, within_two = (_squares(side, side)[np.triu_indices(len(side), 1)] for side in (first, second))
    between = _squares(first, second)
    scale = float(np.median(within_two)) or 1.0  # 1: where most rows are equal
    first_kernel, second_kernel, mixed = (
        np.exp(squares / (-2.0 * scale)).mean() for squares in (within_one, within_two, between)
    )
    return float(first_kernel + second_kernel - 2.0 * mixed)


def _moments(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean, and R of shape (min(n, d), d) with R'R the covariance (divisor n - 1)."""
    exact = rows.astype(np.float64)
    mean = exact.mean(axis=0)
    root: np.ndarray = np.linalg.qr((exact - mean) / np.sqrt(len(rows) - 1)).R
    return mean, root


def _distances(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Euclidean distances; exactly 0 for equal rows, so that copies lie in each other's balls."""
    return np.sqrt(_squares(first, second))


def _squares(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Squared Euclidean distances, (n, m), from one product of matrices: many times as fast as pair by pair.

    The rounding of a distance depends on its place in the matrix. So distances are rounded to a grid that is coarser
    than these errors, and finer than an encoder's own rounding of one text: equal rows are 0 apart, and ties stay ties.
    """
    one, two = first.astype(np.float64), second.astype(np.float64)
    lengths, others = (np.einsum("ij,ij->i", side, side) for side in (one, two))
    step = _GRID * float(max(lengths.max(), others.max())) or 1.0
    squares = lengths[:, None] + others - 2.0 * (one @ two.T)
    return np.maximum(np.round(squares / step), 0.0) * step


def _check(*sets: np.ndarray) -> None:
    if min(len(rows) for rows in sets) < _FEWEST:
        raise DataError(
            "A distance needs two rows of training, holdout and synthetic text.", "Give the audit more rows."
        )
    if not all(np.isfinite(rows).all() for rows in sets):
        raise ModelError("Embeddings are not all finite.", "Use another encoder, or look for what it cannot read.")


# --- two-sample tests and lengths ------------------------------------------------------------------------------


def two_sample_auc(first: np.ndarray, second: np.ndarray, seed: int) -> float:
    """AUC of a linear classifier that separates two sets, on rows it was not fitted to; .5 for one distribution.

    Source: Lopez-Paz and Oquab 2017, with the AUC for the accuracy. Five folds, each scored by a logistic regression
    that was fitted to the other four; the mean of their five AUCs, because scores of different fits do not compare.
    Values below .5 come from sets that are copies of each other: rows of one set then contradict what the other taught.
    """
    model = make_pipeline(StandardScaler(), _classifier())
    return _cross_validate(model, np.concatenate([first, second]), len(first), seed)


def two_sample_words_auc(first: Sequence[str], second: Sequence[str], seed: int) -> float:
    """AUC of a linear classifier that separates two sets by the words of their texts: independent of any encoder."""
    bags = CountVectorizer(binary=True, tokenizer=words, lowercase=False, token_pattern=None)
    return _cross_validate(_classifier(), bags.fit_transform([*first, *second]), len(first), seed)


def _classifier() -> LogisticRegression:
    return LogisticRegression(C=_STRENGTH, max_iter=1000)


def _cross_validate(model: Any, rows: Any, first: int, seed: int) -> float:
    """Mean AUC over the folds; rows are dense or sparse, shape (n, features), those of the first set first."""
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=seed)
    sides = np.arange(rows.shape[0]) < first
    return float(cross_val_score(model, rows, sides, cv=folds, scoring="roc_auc").mean())


def length_distance(first: Sequence[str], second: Sequence[str]) -> float:
    """Wasserstein distance of the numbers of words of two sets of texts, in words."""
    return float(wasserstein_distance(*([len(words(text)) for text in side] for side in (first, second))))


# --- precision, recall, density, coverage ----------------------------------------------------------------------


@dataclass(frozen=True)
class Manifold:
    """The overlap of two sets of embeddings."""

    precision: float  # share of written rows inside some real ball (Kynkäänniemi et al. 2019, equation 2)
    recall: float  # share of real rows inside some ball of written rows (the same equation, sides swapped)
    density: float  # mean number of real balls around a written row, over k; can exceed 1 (Naeem et al. 2020, eq. 3)
    coverage: float  # share of real balls that hold a written row (Naeem et al. 2020, equation 5)
    f1: float  # harmonic mean of precision and recall; 0 where both are


def manifold(written: np.ndarray, real: np.ndarray) -> Manifold:
    """Measure all five: whether written texts lie where the real ones do, and cover them.

    A real row's ball reaches to its k-th nearest real row; together the balls mark the region of real texts.

    Raises:
        DataError: a set has no more than five rows.
    """
    if min(len(written), len(real)) <= _OF_COVERAGE:
        raise DataError(
            f"Neighbours need more than {_OF_COVERAGE} rows of either set.", "Generate more rows, or enlarge the audit."
        )
    between = _distances(written, real)  # (m, n)
    of_real, of_written = _distances(real, real), _distances(written, written)
    wide = between <= radii(of_real, _OF_COVERAGE)
    precision = float((between <= radii(of_real, _OF_RECALL)).any(axis=1).mean())
    recall = float((between <= radii(of_written, _OF_RECALL)[:, None]).any(axis=0).mean())
    return Manifold(
        precision=precision,
        recall=recall,
        density=float(wide.sum() / (_OF_COVERAGE * len(written))),
        coverage=float(wide.any(axis=0).mean()),
        f1=2.0 * precision * recall / ((precision + recall) or 1.0),
    )


def radii(within: np.ndarray, neighbours: int) -> np.ndarray:
    """Distance of each row to its k-th nearest other one, (n,), from those of all pairs, (n, n)."""
    validate.require_in_range(1, len(within) - 1, neighbours=neighbours)
    return np.partition(within, neighbours, axis=1)[:, neighbours]  # place 0 is the row itself


# --- clusters ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clustered:
    """Distances between the shares of two sets of embeddings in common clusters: P of written rows, Q of real rows."""

    # 1 for equal shares, near 0 where no cluster holds rows of both (Pillutla et al. 2021, "MAUVE: Measuring the Gap
    # Between Neural Text and Human Text using Divergence Frontiers").
    mauve: float
    # KL(P | Q) in nats, at least 0. One half is added to each count, so that it stays finite for clusters without real
    # rows.
    kl: float
    total_variation: float  # half the sum of |P - Q|, from 0 to 1


def compare_clusters(written: np.ndarray, real: np.ndarray, seed: int) -> Clustered:
    """Measure all three on one quantisation: k-means on principal components of the unit vectors of both sets.

    All depend on the number of clusters, and so on the number of rows.

    Source: compute_mauve.py of AI-secure/aug-pe for the compared quantities. It adds 1e-8 to empty clusters where here
    a half is added: one empty cluster then weighs some 16 times its share.

    Raises:
        DataError: a set has fewer than 20 rows.
    """
    clusters = min(len(written), len(real)) // _ROWS_PER_CLUSTER
    if clusters < 2:
        raise DataError("MAUVE needs 20 rows of either set.", "Generate more rows, or give the audit a larger subset.")
    cells = np.split(quantise(np.concatenate([written, real]), clusters, seed), [len(written)])
    counts = [np.bincount(part, minlength=clusters) for part in cells]
    exact, filled = ([each / each.sum() for each in (count + added for count in counts)] for added in (0.0, _ADDED))
    return Clustered(
        mauve=frontier_area(*exact),
        kl=float(rel_entr(*filled).sum()),
        total_variation=float(np.abs(exact[0] - exact[1]).sum() / 2.0),
    )


def quantise(rows: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    """The cluster of each row, int (n,): k-means on the principal components of its unit vector."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    units = (rows / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
    components = PCA(n_components=_VARIANCE, svd_solver="full").fit_transform(units) if np.ptp(units) else units
    return KMeans(clusters, n_init=_STARTS, random_state=seed).fit_predict(components)


def frontier_area(first: np.ndarray, second: np.ndarray) -> float:
    """Area under the divergence frontier of two distributions P and Q, each (k,): equations 1 and 2 of the paper.

    Its points are exp(-c KL(Q | R)), exp(-c KL(P | R)) for the mixtures R = share P + (1 - share) Q, 0 < share < 1, and
    its ends lie on the axes. Disjoint distributions still have the area c B(c + 1, c) = 0.004.

    >>> round(frontier_area(np.array([0.5, 0.5]), np.array([0.5, 0.5])), 3)
    1.0
    >>> round(frontier_area(np.array([1.0, 0.0]), np.array([0.0, 1.0])), 4)
    0.004
    """
    validate.require_in_range(1 - 1e-9, 1 + 1e-9, first=float(first.sum()), second=float(second.sum()))
    share = np.linspace(0.0, 1.0, _POINTS)[1:-1, None]
    mixture = share * first + (1.0 - share) * second  # (points, k)
    across, up = (np.exp(-_SCALE * rel_entr(side, mixture).sum(axis=1)) for side in (second, first))
    across, up = np.r_[1.0, across, 0.0], np.r_[0.0, up, 1.0]  # share 0 is Q itself, share 1 is P
    return float(np.trapezoid(up[::-1], across[::-1]))
