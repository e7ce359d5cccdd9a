"""Texts matched with rows of fields, by what noisy sums say of the texts of each value: post-processing."""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from palimpsest.methods.shared.tables import table_of

_TOGETHER = 400  # texts that are matched with as many rows at once
_BETWEEN = 0.1  # variance of the means of values, as a share of the texts'
_SHRINKAGE = 0.5  # of the texts' covariance towards a multiple of the identity


def fit_means(joint: np.ndarray, total: float, sums: np.ndarray, std: float, variance: float) -> np.ndarray:
    """Return what each value of each axis adds to a text's embedding: ridge regression on noisy sums, (values, d).

    The normal equations need how often two values come together, which the joint says, and the sums of the embeddings
    of each value. The ridge is the ratio of the noise's variance to that which is expected between values.

    Args:
        total: number of rows that the sums are of.
        sums: noisy sums for each value, axis by axis, (values, d).
        std: standard deviation of the noise on each coordinate.
        variance: of a coordinate of the texts' embeddings.
    """
    together = total * _value_pairs(joint)
    ridge = 1.0 + std**2 / (_BETWEEN * variance)
    return np.asarray(np.linalg.solve(together + ridge * np.eye(len(together)), sums))


def _value_pairs(joint: np.ndarray) -> np.ndarray:
    """Return how likely two values come together, (values, values), axis by axis."""
    axes = range(joint.ndim)
    return np.block([[_pair(joint, one, other) for other in axes] for one in axes])


def _pair(joint: np.ndarray, one: int, other: int) -> np.ndarray:
    if one == other:
        return np.diag(table_of(joint, (one,)))
    table = table_of(joint, (min(one, other), max(one, other)))
    return table if one < other else table.T


def match(
    vectors: np.ndarray, cells: np.ndarray, means: np.ndarray, starts: Sequence[int], rng: np.random.Generator
) -> np.ndarray:
    """Return the row for each text: a permutation of `cells`, int64 (n, axes), the likeliest but for chance.

    Texts of a value are taken as normal around what its values add, with one covariance, so a text's likelihood under a
    row is linear in the text. A Gumbel draw is added to each: a text alone would then get a row by its posterior, and
    the fields are no easier to read from texts than they were.

    Args:
        vectors: embeddings of n texts, (n, d).
        cells: n rows, (n, axes).
        means: what each value adds, (values, d).
        starts: the index of each axis' first value among `means`.
    """
    expected = sum(means[start + cells[:, axis]] for axis, start in enumerate(starts))
    weights = _whiten(vectors, np.asarray(expected))
    scores = vectors @ weights.T - 0.5 * np.einsum("rd,rd->r", weights, expected)
    scores += rng.gumbel(size=scores.shape)
    matched = np.empty_like(cells)
    order = rng.permutation(len(cells))
    for start in range(0, len(order), _TOGETHER):
        some = order[start : start + _TOGETHER]
        texts, rows = linear_sum_assignment(scores[np.ix_(some, some)], maximize=True)
        matched[some[texts]] = cells[some[rows]]
    return matched


def _whiten(vectors: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return the expected embeddings times the inverse of the texts' covariance, shrunk halfway to the identity's."""
    centred = vectors - vectors.mean(axis=0)
    covariance = centred.T @ centred / max(1, len(vectors) - 1)
    even = max(np.trace(covariance) / len(covariance), 1e-12) * np.eye(len(covariance))
    shrunk = (1.0 - _SHRINKAGE) * covariance + _SHRINKAGE * even
    return np.asarray(np.linalg.solve(shrunk, expected.T).T)
