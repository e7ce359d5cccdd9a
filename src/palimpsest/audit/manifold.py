"""Precision, recall, density, coverage: whether what was written lies where the real texts do, and covers them.

A real row's ball reaches to its k-th nearest real row; together the balls stand for where real texts are.
"""

from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from palimpsest import validate
from palimpsest.errors import DataError

_OF_RECALL = 3  # neighbours, as in Kynkäänniemi et al. 2019
_OF_COVERAGE = 5  # as in Naeem et al. 2020


@dataclass(frozen=True)
class Manifold:
    """How two sets of embeddings lie to each other.

    Attributes:
        precision: share of written rows inside some real ball (Kynkäänniemi et al. 2019, equation 2).
        recall: share of real rows inside some ball of written rows (the same, sides changed).
        density: real balls that a written row lies in, on average, over k; can exceed 1 (Naeem et al. 2020, eq. 3).
        coverage: share of real balls that hold a written row (Naeem et al. 2020, equation 5).
    """

    precision: float
    recall: float
    density: float
    coverage: float


def manifold(written: np.ndarray, real: np.ndarray) -> Manifold:
    """Measure all four; each depends on the numbers of rows: compare at equal n only.

    Args:
        written: shape (m, d).
        real: shape (n, d).

    Raises:
        DataError: a set has no more than five rows.
    """
    if min(len(written), len(real)) <= _OF_COVERAGE:
        raise DataError(
            f"Neighbours need more than {_OF_COVERAGE} rows of either set.", "Generate more rows, or enlarge the audit."
        )
    between = _apart(written, real)  # (m, n)
    of_real, of_written = _apart(real, real), _apart(written, written)
    wide = between <= radii(of_real, _OF_COVERAGE)
    return Manifold(
        precision=float((between <= radii(of_real, _OF_RECALL)).any(axis=1).mean()),
        recall=float((between <= radii(of_written, _OF_RECALL)[:, None]).any(axis=0).mean()),
        density=float(wide.sum() / (_OF_COVERAGE * len(written))),
        coverage=float(wide.any(axis=0).mean()),
    )


def radii(within: np.ndarray, neighbours: int) -> np.ndarray:
    """Distance of each row to its k-th nearest other one, shape (n,).

    Args:
        within: distances of all pairs of one set, shape (n, n), 0 on the diagonal.
        neighbours: k, below n.
    """
    validate.in_range(1, len(within) - 1, neighbours=neighbours)
    return np.partition(within, neighbours, axis=1)[:, neighbours]  # place 0 is the row itself


def _apart(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Euclidean distances; exactly 0 for equal rows, so that copies lie in each other's balls."""
    return cdist(first.astype(np.float64), second.astype(np.float64))
