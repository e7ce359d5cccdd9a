"""The grid that Gaussian noise lies on, and the room for it. Plans use it too, so nothing heavy is imported."""

import math

from palimpsest import validate

LEAST_STD = 2.0**-900  # the grids of it and of its inverse, and one over them, are normal numbers
GRID_BITS = 24  # a standard deviation is 2^24 to 2^25 steps of the grid


def covering_std(multiplier: float, sensitivity: float, values: int) -> float:
    """Return the standard deviation that is `multiplier` times an L2 sensitivity, with room for rounding to the grid.

    Guarantee: at least `multiplier` * (`sensitivity` + grid * sqrt(values)), where grid <= 2^-24 of the result. Its own
    rounding, a few units of 2^-53, is covered by 2^-48 more; it is at least 2^-900, so none of it is underflow.

    Args:
        multiplier: standard deviation over sensitivity that the accountant is told.
        sensitivity: of the values before they are rounded.
        values: how many there are, d.

    Raises:
        ValueError: the room would be more than the noise has, or float64 would not hold the grid of the result. A
            result that is too small for float64 would be 0, which stands for no noise.
    """
    room = multiplier * math.sqrt(values) * 2.0**-GRID_BITS
    validate.require_in_range(0.0, 0.5, **{"noise multiplier * sqrt(values) * 2^-24": room})
    std = multiplier * sensitivity / (1.0 - room) * (1.0 + 2.0**-48)
    if multiplier:
        validate.require_in_range(LEAST_STD, 1.0 / LEAST_STD, std=std)
    return std
