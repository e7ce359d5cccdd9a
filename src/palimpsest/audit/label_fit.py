"""Checks whether texts fit the labels that they were written for, by a classifier that learned from real rows."""

from dataclasses import dataclass

import numpy as np

from palimpsest.audit.statistics import Estimate, wilson
from palimpsest.plain import Plain


@dataclass(frozen=True)
class LabelFit(Plain):
    """Private zone: the share of rows to which the classifier gives the rows' own label.

    The classifier is not perfect, so synthetic rows can be expected to reach the share of real test rows. A share above
    it says that rows are more typical of their label than real ones are.

    Attributes:
        synthetic: the share of a variant's rows.
        real: the share of real test rows, none of which the classifier has read.
    """

    synthetic: Estimate
    real: Estimate

    @classmethod
    def of(cls, agreed: np.ndarray, synthetic: int) -> "LabelFit":
        """Compute both from the share of seeds that gave each row its own label, (rows,), synthetic rows first."""
        return cls(_mean(agreed[:synthetic]), _mean(agreed[synthetic:]))


def _mean(agreed: np.ndarray) -> Estimate:
    """Return the mean with Wilson's interval over rows, which is conservative for shares of seeds."""
    return Estimate(float(agreed.mean()), *wilson(float(agreed.sum()), len(agreed)))
