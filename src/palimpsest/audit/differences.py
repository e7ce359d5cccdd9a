"""Whether two measured values differ, by their intervals alone."""

import math

from palimpsest.audit.statistics import Estimate


def difference(first: Estimate, second: Estimate) -> Estimate:
    """First minus second with its 95 % interval, from theirs alone.

    Each interval's half width is taken for 1.96 standard errors, and the two values for independent (normal
    approximation). Values on the same test rows mostly move together: then the interval is wider than a paired one.
    """
    value = first.value - second.value
    half = math.hypot(first.high - first.low, second.high - second.low) / 2.0
    return Estimate(value, value - half, value + half)
