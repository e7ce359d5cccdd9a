"""Gaussians from random bits, rounded to whole numbers without error: Box and Muller's transform (1958).

An infinite sequence of fair bits is a point of the unit interval. Two such points, u and t, make two independent
normals, s R cos(pi t / 4) and s R sin(pi t / 4) with R = sqrt(-2 log u), up to an exchange and two signs, which three
more bits choose. Only the first bits of u and t are drawn, which puts them into a cell. Where every point of the cell
leads to the same two whole numbers, these are the answer; elsewhere more bits halve the cell until it does. So what
comes out is round(N(0, s^2)) of the infinite sequence itself: no tail is cut and no probability is moved.

`settle` looks at all cells of a batch in double precision and says for which the answer is proved. `refine` decides
the few that are left in interval arithmetic. What it proves does not depend on the rounding of the machine, so the
answer does not either.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import numpy as np
from mpmath import libmp
from mpmath.ctx_iv import MPIntervalContext
from numba import njit

_Function = TypeVar("_Function", bound=Callable[..., Any])
WIDTH = 52  # bits that each word gives to u or t: as many as a double holds together with the middle of the cell

LOG_2 = math.log(2.0)
SHIFTER = 1.5 * 2.0**52  # a number below 2^51 that is added to it is rounded to a whole one
SHIFTER_BITS = int(np.float64(SHIFTER).view(np.int64))
ROOT_BITS = int(np.float64(math.sqrt(0.5)).view(np.int64))
LARGEST = 2.0**62
_INTERVALS = MPIntervalContext()
_SPARE = 64  # bits of precision beyond those of the cell
_DOUBT = 32  # of these bits that mpmath may get wrong, though it should round outwards to the last bit


def _compile_cached(**options: Any) -> Callable[[_Function], _Function]:
    """Return Numba's compiler. It caches its output beside this file or in the user's cache until the file changes,
    because compiling takes seconds in each process. Where neither can be written, each process compiles."""

    def compiled(function: _Function) -> _Function:
        try:
            return cast(_Function, njit(error_model="numpy", cache=True, **options)(function))
        except RuntimeError:
            return cast(_Function, njit(error_model="numpy", **options)(function))

    return compiled


@_compile_cached(nogil=True)
def uniforms(words: np.ndarray) -> np.ndarray:
    """Make odd multiples of 2^-53 in (0, 1), (n,) float64, from bits 12 to 63 of each of (n,) uint64."""
    values = np.empty(words.size)
    for index in range(words.size):
        values[index] = _middle(words[index], np.uint64(12)) * 2.0**-52
    return values


def whole_normals(words: np.ndarray, std: float, more: Callable[[int], np.ndarray], width: int = WIDTH) -> np.ndarray:
    """Make independent round(N(0, std^2)), exactly.

    Args:
        words: (2n,) uint64, uniform and independent. The first half makes the radii. Of the second half the bits 0 to 2
            choose the octant, and the upper ones the angle in it.
        std: standard deviation s in steps of the grid, at most 2^50; taken as the exact number that it is.
        more: draws that many further words; `words` need not outlive a call.
        width: how many of the upper bits of each word are used. Fewer than `WIDTH` are for tests: the answer has the
            same distribution.

    Returns:
        (2n,) int64: the first numbers of all pairs, then the second ones.
    """
    pairs = words.size // 2
    points, open_cells = np.empty(2 * pairs, dtype=np.int64), np.empty(pairs, dtype=np.bool_)
    settle(words, width, std, points, open_cells)
    left = np.flatnonzero(open_cells)
    radial, angular = words[left].tolist(), words[pairs + left].tolist()  # a copy, before more words are drawn
    for index, *pair in zip(left.tolist(), radial, angular, strict=True):
        points[index], points[pairs + index] = refine(cells(pair, more, width), pair[1], std)
    return points


@_compile_cached(nogil=True, fastmath={"contract"})
def settle(words: np.ndarray, width: int, std: float, points: np.ndarray, open_cells: np.ndarray) -> None:
    """Decide in double precision what can be decided, and say what is open.

    Guarantee: a pair that is not `open` is the answer for every u and t of its cell. Write e = 2^-53. Addition,
    multiplication, division and square root have relative errors of at most e, and a product that is not rounded before
    it is added to (`contract`) only leaves an error out. Errors are relative where nothing else is said, and products
    of errors are covered by rounding up.

    The middle of the cell, u0 = v 2^-width with v a half above a whole number:

    * v, and m and k with v = 2^k m and m in [sqrt(1/2), sqrt(2)): exact. f = m - 1 is exact (Sterbenz).
    * q = f / (2 + f): 2e. log m = 2 artanh q = q (2 + 2 z / 3 + ...), z = q^2 <= 0.0295: z has 5e; what is added to the
      2 is at most 0.01 of it and has less than 20e, so the bracket has 0.2e, its own rounding e, the terms left out
      (from z^11 on) 2^-57; with the last product, 4.3e.
    * log u0 = (k - width) log 2 + log m. Where k = width this is log m. Otherwise |log m| <= log(2) / 2 makes it
      at least half of the first part and the whole second one: 2e, doubled, 4.3e, and e of the sum. At most 9.4e.
    * radius = s sqrt(-2 log u0): half of it, and two roundings: 6.7e.
    * The angle has 2e and is at most 0.786, so sine and cosine move by 1.6e (absolute, here and below). Their Taylor
      polynomials leave out less than 5e-17 = 0.45e and are rounded by less than 1.9e; the product with the radius is
      rounded by e. In all at most 5e of the radius.
    * Together 11.7e of the radius; 16e are allowed for. What is over covers the rounding of the test at the end.

    The rest of the cell:

    * t moves by at most 2^-(width + 1), so a coordinate by at most 0.79 * 2^-(width + 1) radii, where one 2^-width is
      allowed for.
    * v moves by h = 1/2. As R^2 = -2 log u, |R^2 - R0^2| <= 2 h / (v - h) and so |R - R0| <= 1 / ((v - 1/2) R0), which
      for v >= 3/2 is at most 1.5 / (v R0). In steps this is 1.5 s^2 / (v radius), where 2 s^2 / (v radius) is allowed
      for; so the test needs no division. The lowest cell, v = 1/2, has no largest radius: it is always open.

    A pair is settled where both coordinates are farther than all this from a half above a whole number. Where a
    coordinate passes 2^48 the allowance alone does, so nothing is settled that `SHIFTER` could not round.

    Args:
        points: (2n,) int64, written; the entries of open pairs have no meaning.
        open_cells: (n,) bool, written.
    """
    pairs = words.size // 2
    shift = np.uint64(64 - width)
    step, share = angle_step(width), radius_share(width)
    for index in range(pairs):
        v = _middle(words[index], shift)
        bits = np.float64(v).view(np.int64)
        k = (bits - ROOT_BITS) >> 52
        f = np.int64(bits - (k << 52)).view(np.float64) - 1.0
        logarithm = np.float64(k - width) * LOG_2 + twice_artanh(f / (2.0 + f))
        radius = std * math.sqrt(-2.0 * logarithm)
        word = words[pairs + index]
        angle = _middle(word, shift) * step
        y, x = sine(angle), cosine(angle)
        swapped = (word & np.uint64(1)) != 0
        first = (radius if (word & np.uint64(2)) != 0 else -radius) * (y if swapped else x)
        second = (radius if (word & np.uint64(4)) != 0 else -radius) * (x if swapped else y)
        near_first, near_second = first + SHIFTER, second + SHIFTER
        points[index] = np.float64(near_first).view(np.int64) - SHIFTER_BITS
        points[pairs + index] = np.float64(near_second).view(np.int64) - SHIFTER_BITS
        room = 0.5 - max(abs(first - (near_first - SHIFTER)), abs(second - (near_second - SHIFTER)))
        settled = (room - share * radius) * v * radius >= 2.0 * std * std
        open_cells[index] = v < 1.0 or not settled


def refine(cells: Iterator[tuple[int, int, int]], octant: int, std: float) -> tuple[int, int]:
    """Return the pair of whole numbers from the first cell that decides both of them.

    Both are read off the same cell, so they stay independent of each other.

    Args:
        cells: (radial, angular, bits): u lies in [radial, radial + 1] 2^-bits and t in [angular, angular + 1] 2^-bits;
            each lies in the one before it.
        octant: a word whose bits 0 to 2 choose the octant.
    """
    cosine, sine = next(pair for pair in (decide_cell(*cell, std) for cell in cells) if pair is not None)
    first, second = (sine, cosine) if octant & 1 else (cosine, sine)
    return first if octant & 2 else -first, second if octant & 4 else -second


def decide_cell(radial: int, angular: int, bits: int, std: float) -> tuple[int, int] | None:
    """round(s R cos(pi t / 4)) and round(s R sin(pi t / 4)) where they are the same on a whole cell; None elsewhere.

    Guarantee: interval arithmetic (mpmath) with `_SPARE` bits more than the cell has. It rounds outwards; the intervals
    are widened by 2^`_DOUBT` units in the last place beside that, because it does not prove so.

    Args:
        radial, angular, bits: a cell, as for `refine`. The lowest one has no largest radius and decides nothing.
    """
    if radial == 0:
        return None
    context = _INTERVALS
    context.prec = bits + _SPARE
    u = context.mpf([radial, radial + 1]) / context.mpf(2) ** bits
    angle = context.pi * context.mpf([angular, angular + 1]) / context.mpf(2) ** (bits + 2)
    slack = context.mpf(2) ** (_DOUBT - context.prec)
    radius = std * context.sqrt(-2 * context.log(u)) * context.mpf([1 - slack, 1 + slack])
    shifted = [radius * part(angle) + context.mpf(0.5) for part in (context.cos, context.sin)]  # none is negative
    # The ends as they are: read through a context, they would be rounded to its digits before they are cut.
    (cosine, most_cosine), (sine, most_sine) = (map(libmp.to_int, one._mpi_) for one in shifted)
    return (cosine, sine) if (cosine, sine) == (most_cosine, most_sine) else None


def cells(pair: list[int], more: Callable[[int], np.ndarray], width: int) -> Iterator[tuple[int, int, int]]:
    """Yield the cell of two words, then ever smaller ones, each with `width` more bits of u and of t."""
    radial, angular, bits = 0, 0, 0
    while True:
        radial, angular = (
            old << width | word >> (64 - width) for old, word in zip((radial, angular), pair, strict=True)
        )
        bits += width
        yield radial, angular, bits
        pair = more(2).tolist()


@_compile_cached(nogil=True)
def add_on_grid(values: np.ndarray, steps: np.ndarray, grid: float) -> None:
    """Round (n,) float32 or float64 `values` to multiples of `grid`, a power of two, and add (n,) `steps` of it.

    The sum is one of 64-bit whole numbers and therefore exact; it is cast to the type of `values` afterwards. Values
    beyond 2^62 steps are brought to that bound, which moves no two of them apart. So is NaN.
    """
    fineness = 1.0 / grid
    for index in range(values.size):
        value = values[index] * fineness
        value = value if value > -LARGEST else -LARGEST
        value = value if value < LARGEST else LARGEST
        values[index] = np.float64(np.int64(np.rint(value)) + steps[index]) * grid


@njit(error_model="numpy", inline="always")
def _middle(word: np.uint64, shift: np.uint64) -> float:
    """Return the bits from `shift` up as a number, plus a half: exact up to 52 bits, never whole."""
    return np.float64(np.int64(word >> shift)) + 0.5


@njit(error_model="numpy", inline="always")
def angle_step(width: int) -> float:
    """Return the factor that turns the middle of a cell into an angle in the octant."""
    return 0.25 * math.pi * 2.0**-width


@njit(error_model="numpy", inline="always")
def radius_share(width: int) -> float:
    """Return the share of the radius by which a coordinate may be off at the middle u of a cell."""
    return 2.0**-49 + 2.0**-width


@njit(error_model="numpy", inline="always", fastmath={"contract"})
def twice_artanh(q: float) -> float:
    z = q * q
    high = 2 / 13 + z * (2 / 15 + z * (2 / 17 + z * (2 / 19 + z * (2 / 21))))
    return q * (2.0 + z * (2 / 3 + z * (2 / 5 + z * (2 / 7 + z * (2 / 9 + z * (2 / 11 + z * high))))))


@njit(error_model="numpy", inline="always", fastmath={"contract"})
def sine(x: float) -> float:
    z = x * x
    high = -1 / 39916800 + z * (1 / 6227020800 - z / 1307674368000)
    return x * (1.0 + z * (-1 / 6 + z * (1 / 120 + z * (-1 / 5040 + z * (1 / 362880 + z * high)))))


@njit(error_model="numpy", inline="always", fastmath={"contract"})
def cosine(x: float) -> float:
    z = x * x
    high = 1 / 479001600 + z * (-1 / 87178291200 + z / 20922789888000)
    return 1.0 + z * (-1 / 2 + z * (1 / 24 + z * (-1 / 720 + z * (1 / 40320 + z * (-1 / 3628800 + z * high)))))
