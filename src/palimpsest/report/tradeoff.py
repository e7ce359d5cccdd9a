"""Bounds on the best possible attack under a proven trade-off curve, rounded against us."""

from dataclasses import dataclass

import numpy as np

from palimpsest.errors import DataError
from palimpsest.privacy.receipt import Receipt

_FINE = 10_001  # grid of the advantage; its error is below 1 / (_FINE - 1), on the safe side


@dataclass(frozen=True)
class TradeOff:
    """A lower bound on the false-negative rate of every membership attack (Dong, Roth and Su 2022, definition 2.1).

    Guarantee: between the given points the convex curve is bounded from below by the lines through its neighbours,
    and everywhere by the (epsilon, delta) curve (Kairouz et al. 2015, theorem 2.1): the bounds on the best attack
    are never less than it can do, if the points themselves are proven.
    """

    alpha: np.ndarray  # false-positive rates, increasing, the last one 1
    beta: np.ndarray  # smallest false-negative rate at each
    epsilon: float  # proven epsilon of the same release
    delta: float  # its delta

    def false_negatives(self, fpr: np.ndarray | float) -> np.ndarray:
        """Return a lower bound on the false-negative rate at these false-positive rates.

        They may have any shape; the result has the same shape.
        """
        fpr = np.asarray(fpr, dtype=float)
        bound = np.maximum(1 - self.delta - np.exp(self.epsilon) * fpr, (1 - self.delta - fpr) * np.exp(-self.epsilon))
        return np.asarray(np.clip(np.maximum(bound, self._interpolate(fpr)), 0.0, 1.0))

    def true_positives(self, fpr: float) -> float:
        """Return an upper bound on the share of members that an attack finds at this false-positive rate."""
        return float(1 - self.false_negatives(fpr))

    def advantage(self) -> float:
        """Return an upper bound on true-positive minus false-positive rate, over all attacks."""
        grid = np.linspace(0, 1, _FINE)
        return float(np.max(1 - self.false_negatives(grid[1:]) - grid[:-1]))

    def belief(self, prior: float, fpr: float) -> float:
        """Return an upper bound on the probability of membership after an accusation, starting from `prior` (Bayes)."""
        found = prior * self.true_positives(fpr)
        return found / (found + (1 - prior) * fpr)

    def _interpolate(self, fpr: np.ndarray) -> np.ndarray:
        """Return the curve at its points; between them, the higher of neighbouring lines and the right-hand point."""
        slope = np.diff(self.beta) / np.diff(self.alpha)
        last = len(self.alpha) - 1
        right = np.clip(np.searchsorted(self.alpha, fpr), 1, last)
        left = right - 1
        before = np.where(left > 0, self._line(left, slope[np.maximum(left - 1, 0)], fpr), 0.0)
        after = np.where(right < last, self._line(right, slope[np.minimum(right, last - 1)], fpr), 0.0)
        inner = np.maximum(np.maximum(before, after), self.beta[right])
        return np.where(fpr < self.alpha[0], 0.0, inner)

    def _line(self, point: np.ndarray, slope: np.ndarray, fpr: np.ndarray) -> np.ndarray:
        return np.asarray(self.beta[point] + slope * (fpr - self.alpha[point]))


def read_tradeoff(receipt: Receipt) -> TradeOff | None:
    """Read the curve in a receipt; None where the run has no finite epsilon.

    Guarantee: a query's own delta, which no event shows, adds to delta(epsilon) at every epsilon, so it lowers every
    line of the curve by no more than itself: it is taken off the false-negative rate.

    Raises:
        DataError: the two lists do not form a curve.
    """
    if receipt.epsilon is None:
        return None
    alpha, beta = np.asarray(receipt.curve.alpha, dtype=float), np.asarray(receipt.curve.beta, dtype=float)
    if alpha.shape != beta.shape or alpha.size < 2 or np.any(np.diff(alpha) <= 0) or np.any(np.diff(beta) > 1e-9):
        raise DataError(
            f"The trade-off curve of variant {receipt.variant!r} is not a curve.",
            "Run the fit stage again: alpha must increase, beta must not, and both must have the same length.",
        )
    beta = beta - receipt.own_delta  # failures outside the events
    if alpha[-1] < 1:  # accusing everybody misses nobody
        alpha, beta = np.append(alpha, 1.0), np.append(beta, 0.0)
    return TradeOff(alpha, beta, receipt.epsilon, receipt.delta)
