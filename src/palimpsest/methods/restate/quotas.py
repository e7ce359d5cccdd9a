"""How often each combination of values shall be stated, and which statement is changed to which: free, after noise."""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Self

import numpy as np

from palimpsest.methods.shared.shares import divided


@dataclass(frozen=True, eq=False)
class Quotas:
    """The combinations that enough units state, as far as noise lets tell.

    Attributes:
        cells: a place among the values of each attribute, shape (kept, attributes).
        weights: how often each is stated under each label, shape (labels, kept), in units; one row is for all labels
            where they were not asked.
    """

    cells: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, cells: np.ndarray, by_label: np.ndarray, stds: tuple[float, float], false_cells: float) -> Self:
        """Those with a noisy count above what noise alone reaches in `false_cells` of all cells, on average.

        A cell's count is divided among the labels by its noisy counts there. Where these drown in noise, all that is
        stated of the first attribute's value decides: it is added with the weight of one standard deviation.

        Args:
            cells: noisy counts, shape (values of the first attribute, ...).
            by_label: the same for each label, shape (labels or 0, values of the first attribute, ...).
            stds: standard deviation of the noise of either.
        """
        kept = np.argwhere(cells > stds[0] * _quantile(false_cells, cells.size))
        counts = cells[tuple(kept.T)].astype(np.float64)  # (kept,)
        if not len(by_label) or not len(kept):
            return cls(kept, counts[None])
        own = np.maximum(by_label[(slice(None), *kept.T)], 0).astype(np.float64)  # (labels, kept)
        whole = np.maximum(by_label.reshape(*by_label.shape[:2], -1).sum(axis=2), 1)  # (labels, first values)
        backed = own + (stds[1] * whole / whole.sum(axis=0))[:, kept[:, 0]]
        return cls(kept, counts * backed / np.maximum(backed.sum(axis=0), 1e-9))

    def wanted(self, label: int, statements: int) -> np.ndarray:
        """How many of a label's statements shall say each, adding up to all of them; int64 (kept,).

        A combination is wanted once at least under its likeliest label, where that has room: rare ones are few enough
        to be rounded away under every label otherwise.
        """
        if not len(self.cells) or not statements:
            return np.zeros(len(self.cells), dtype=np.int64)
        own = self.weights[min(label, len(self.weights) - 1)]
        at_home = self.weights.argmax(axis=0) == min(label, len(self.weights) - 1)
        least = np.where(at_home, max(own.sum(), 1e-9) / statements, 0.0)
        weights = np.maximum(own, least)
        shares = {str(cell): float(share) for cell, share in enumerate(weights / weights.sum())}
        return np.array(list(divided(statements, shares).values()), dtype=np.int64)


def assigned(stated: np.ndarray, cells: np.ndarray, wanted: np.ndarray) -> list[int]:
    """Which cell each statement is changed to: those go first that change least, then in their order.

    Args:
        stated: what each says, shape (n, attributes), -1 for a value that is not known.
        cells: shape (kept, attributes).
        wanted: how many shall say each, shape (kept,); n in all, or 0 where nothing is kept.

    Returns:
        n indices of `cells`; nothing where nothing is kept.
    """
    left, chosen = wanted.copy(), np.full(len(stated), -1)
    for agreeing in range(cells.shape[1], -1, -1) if wanted.any() else ():
        for place in np.flatnonzero(chosen < 0):
            fits = ((cells == stated[place]).sum(axis=1) >= agreeing) & (left > 0)
            if fits.any():
                chosen[place] = np.where(fits, left, -1).argmax()
                left[chosen[place]] -= 1
    return chosen[chosen >= 0].tolist()


def _quantile(share: float, cells: int) -> float:
    """How many standard deviations noise is above in `share` of so many cells, on average; 0 where that is most."""
    likely = share / max(1, cells)
    return -NormalDist().inv_cdf(likely) if likely < 0.5 else 0.0
