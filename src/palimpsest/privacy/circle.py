"""Gaussians from random bits, compiled: Box and Muller's transform (1958) in double precision."""

import math

import numpy as np
from numba import njit

_STEP = 0.25 * math.pi * 2.0**-52  # the first octant in 2^52 equal steps


@njit(error_model="numpy", nogil=True)
def uniforms(words: np.ndarray) -> np.ndarray:
    """Odd multiples of 2^-53 in (0, 1), (n,) float64, from bits 12 to 63 of each of (n,) uint64."""
    values = np.empty(words.size)
    for index in range(words.size):
        values[index] = _fraction(words[index]) * 2.0**-52
    return values


@njit(error_model="numpy", nogil=True)
def on_circle(words: np.ndarray, logarithms: np.ndarray, std: float) -> np.ndarray:
    """Points with a uniform direction and the radius std * sqrt(-2 log u).

    Bits 12 to 63 of a word choose an angle in the first octant, bits 0 to 2 the octant by swapping and by two signs.
    Sine and cosine are their Taylor polynomials there, whose remainders are below 5e-17.

    Args:
        words: (n,) uint64, uniform and independent.
        logarithms: (n,) float64, log u of independent uniforms u.
        std: standard deviation of each coordinate.

    Returns:
        (2n,) float64: all first coordinates, then all second ones.
    """
    size = logarithms.size
    points = np.empty(2 * size)
    for index in range(size):
        word = words[index]
        angle = _fraction(word) * _STEP
        sine, cosine = _sine(angle), _cosine(angle)
        radius = std * math.sqrt(-2.0 * logarithms[index])
        swapped = (word & np.uint64(1)) != 0
        first = radius if (word & np.uint64(2)) != 0 else -radius
        second = radius if (word & np.uint64(4)) != 0 else -radius
        points[index] = first * (sine if swapped else cosine)
        points[size + index] = second * (cosine if swapped else sine)
    return points


@njit(error_model="numpy", inline="always")
def _fraction(word: int) -> float:
    """Bits 12 to 63 as a number in (0, 2^52), never whole: exact."""
    return np.float64(np.int64(word >> np.uint64(12))) + 0.5


@njit(error_model="numpy", inline="always")
def _sine(x: float) -> float:
    z = x * x
    high = -1 / 39916800 + z * (1 / 6227020800 - z / 1307674368000)
    return x * (1.0 + z * (-1 / 6 + z * (1 / 120 + z * (-1 / 5040 + z * (1 / 362880 + z * high)))))


@njit(error_model="numpy", inline="always")
def _cosine(x: float) -> float:
    z = x * x
    high = 1 / 479001600 + z * (-1 / 87178291200 + z / 20922789888000)
    return 1.0 + z * (-1 / 2 + z * (1 / 24 + z * (-1 / 720 + z * (1 / 40320 + z * (-1 / 3628800 + z * high)))))
