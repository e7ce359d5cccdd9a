"""A difference by two intervals, against the normal distribution."""

import pytest
import scipy.stats

from palimpsest.audit.differences import difference
from palimpsest.audit.statistics import Estimate


def test_a_difference_of_two_normal_intervals_is_the_normal_interval_of_the_difference() -> None:
    def interval(value: float, error: float) -> Estimate:
        return Estimate(value, *scipy.stats.norm.interval(0.95, value, error))

    found, wanted = difference(interval(0.8, 0.03), interval(0.7, 0.04)), interval(0.1, 0.05)
    assert (found.value, found.low, found.high) == pytest.approx((wanted.value, wanted.low, wanted.high))
