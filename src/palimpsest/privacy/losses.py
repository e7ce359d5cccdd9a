"""Privacy losses on a grid, composed so that no delta is too small: an upper bound with its rounding counted.

The library `dp_accounting` says the loss of one mechanism. A Fourier transform composes it with itself and with others.
Done at once that is wrong by some 1e-15 for each mechanism, in either direction, and so says nothing of smaller deltas.
Here the law of the loss is tilted first, as for a saddle point: each probability is multiplied by e^(theta y), where
theta is chosen so that the wanted epsilon lies in the middle. After the transform the tilt is taken off again, and with
it the error shrinks to a small part of the delta that is asked for.

The bound. Let q be the tilted law of the sum, M = E e^(theta Y), and L = log M. Then

    delta(eps) = e^(L - theta eps) sum over y > eps of q(y) e^(-theta (y - eps)) (1 - e^(eps - y)).

The factors of q are at most 1. So what the transform gets wrong counts with at most its sum of absolute errors. Each
output of a transform of nonnegative numbers with sum 1 is wrong by at most some roundings a level (Higham 2002, section
24.1). A power of it is wrong by as much for each factor, times the rest of the product; the transform back adds as much
once more. The law wraps around a window outside of which Chernoff bounds leave e^-50 of q; that is added as well. What
is left is the rounding within the law of one mechanism: it is allowed for by a generous factor and not proved. The rest
is a sum of positive terms.
"""

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy  # its parts load when they are used

_TILTS = np.concatenate([[0.0], np.geomspace(0.02, 2e4, 64)])  # a quarter apart, as close as deltas of 1e-40 need
_OUTSIDE = 50.0  # minus the logarithm of what of a tilted law lies outside its window, on each side
_REACH = np.geomspace(0.1, 20.0, 10)  # of orders tried for that, in standard deviations
_NEAR = 2  # places of tilts that serve as well
_PLACES = 4096  # of a law, where a tilt is looked for or a window: any tilt proves its bound, some a better one
_LEVEL = 2.0**-50  # of a level of a transform, four roundings
_LEAF = 2.0**-36  # relative, of the profile of one mechanism


class Law(NamedTuple):
    """Of the loss of one mechanism in one direction.

    Attributes:
        first: the least loss, in steps of the grid.
        masses: probabilities of it and of those that follow, (losses,); the first and the last are above 0.
        infinite: the probability of an infinite loss.
    """

    first: int
    masses: np.ndarray
    infinite: float


class _Tilted(NamedTuple):
    """The law of a sum of losses under one tilt, summed up from above; (losses,) each.

    Attributes:
        first: the loss of the first place, in steps of the grid.
        apart: [j]: of losses y from place j on, the sum of q(y) e^(-theta s) (1 - e^-s), s being y less that of j.
        weights: [j]: the same without the last factor, but e^-s.
        wrong: what rounding and the window may hide in any such sum.
    """

    first: int
    apart: np.ndarray
    weights: np.ndarray
    wrong: float


@dataclass(frozen=True, eq=False)
class Way:
    """The losses of a composition in one order of neighbours.

    Attributes:
        parts: the law of each mechanism with the number of times that it ran.
        grid: the step of losses.
    """

    parts: Sequence[tuple[Law, int]]
    grid: float
    _moments: dict[int, float] = field(default_factory=dict)
    _guesses: dict[int, float] = field(default_factory=dict)
    _last: dict[int, _Tilted] = field(default_factory=dict)  # one: whoever asks again mostly asks near by

    def epsilon(self, at_delta: float) -> float:
        """An upper bound; infinity where the losses are infinite with a larger probability than `at_delta`."""
        wanted = at_delta - self._infinite
        if wanted <= 0:
            return math.inf if self._infinite > 0 else self._end
        chosen = self._best_tilt_for(math.log(wanted))
        found = self._invert(chosen, wanted)
        while (better := self._best_tilt_at(found)) < chosen - _NEAR:  # Chernoff's bound was far off, as of few atoms
            chosen, found = better, min(found, self._invert(better, wanted))
        return found

    def _invert(self, chosen: int, wanted: float) -> float:
        """An epsilon whose delta is proved by one tilt, infinite losses apart."""
        first, size = self._get_tilted(chosen).first, len(self._get_tilted(chosen).apart)
        at = (first + np.arange(size)) * self.grid
        low = int((self._bounds_by_tilt(chosen, at) > wanted).sum())  # it falls
        if low == 0:
            return max(0.0, float(at[0]))
        ends = float(at[low - 1]), float(at[low]) if low < size else self._end

        def excess(epsilon: float) -> float:
            return float(self._bounds_by_tilt(chosen, np.array([epsilon]))[0]) - wanted

        if excess(ends[1]) > 0:
            return self._end
        root = scipy.optimize.brentq(excess, *ends, xtol=1e-12)
        return min(ends[1], max(0.0, root + 1e-11))

    def deltas(self, at: np.ndarray) -> np.ndarray:
        """Upper bounds at each epsilon, in any order."""
        chosen = np.array([self._best_tilt_at(one) for one in at.tolist()], dtype=int)
        found = np.zeros(len(at))
        for tilt in np.unique(chosen):
            found[chosen == tilt] = self._bounds_by_tilt(int(tilt), at[chosen == tilt])
        return np.minimum(1.0, np.where(at >= self._end, 0.0, found) + self._infinite)

    def _bounds_by_tilt(self, chosen: int, at: np.ndarray) -> np.ndarray:
        """Upper bounds by one tilt, infinite losses apart."""
        tilt, one = _TILTS[chosen], self._get_tilted(chosen)
        place = np.maximum(0, np.ceil(at / self.grid).astype(np.int64) - one.first)
        rest = np.maximum(0.0, (one.first + place) * self.grid - at)
        inside, place = place < len(one.apart), np.minimum(place, len(one.apart) - 1)
        above = np.exp(-tilt * rest) * (one.apart[place] - np.expm1(-rest) * one.weights[place])
        with np.errstate(over="ignore"):
            scale = np.exp(self._log_moment(chosen) - tilt * at + self._slack)
        return np.minimum(1.0, scale * (np.where(inside, above, 0.0) + one.wrong))

    @property
    def _count(self) -> int:
        return sum(count for _, count in self.parts)

    @property
    def _slack(self) -> float:
        return self._count * _LEAF

    @property
    def _infinite(self) -> float:
        return -math.expm1(sum(count * math.log1p(-law.infinite) for law, count in self.parts))

    @property
    def _end(self) -> float:
        """From here on delta is what infinite losses have."""
        return max(0.0, self._top * self.grid)

    @property
    def _top(self) -> int:
        return sum(count * (law.first + len(law.masses) - 1) for law, count in self.parts)

    @property
    def _bottom(self) -> int:
        return sum(count * law.first for law, count in self.parts)

    def _log_moment(self, chosen: int) -> float:
        """log E e^(theta Y), of finite losses."""
        if chosen not in self._moments:
            order = float(_TILTS[chosen]) * self.grid
            self._moments[chosen] = math.fsum(count * _log_moment(law, order) for law, count in self.parts)
        return self._moments[chosen]

    @cached_property
    def _coarse(self) -> list[tuple["_Coarse", int]]:
        return [(_Coarse.of(law.first, law.masses), count) for law, count in self.parts]

    def _guess_log_moment(self, chosen: int) -> float:
        """The same nearly, which is enough to look for a tilt with."""
        if chosen not in self._guesses:
            order = float(_TILTS[chosen]) * self.grid
            self._guesses[chosen] = math.fsum(count * law.log_moment(order) for law, count in self._coarse)
        return self._guesses[chosen]

    def _best_tilt_for(self, log_delta: float) -> int:
        """The tilt whose Chernoff bound is about the least epsilon for a delta."""
        tilts = _TILTS[1:].tolist()
        return _find_lowest(lambda place: (self._guess_log_moment(place + 1) - log_delta) / tilts[place]) + 1

    def _best_tilt_at(self, epsilon: float) -> int:
        """The tilt whose Chernoff bound is about the least delta at an epsilon."""
        return _find_lowest(lambda place: self._guess_log_moment(place) - float(_TILTS[place]) * epsilon)

    def _get_tilted(self, chosen: int) -> _Tilted:
        if chosen not in self._last:
            self._last.clear()
            self._last[chosen] = self._compose(chosen)
        return self._last[chosen]

    def _compose(self, chosen: int) -> _Tilted:
        tilt, step = float(_TILTS[chosen]), self.grid
        tilted = [(_tilt_masses(law, tilt * step), count) for law, count in self.parts]
        first, last = self._window(tilted)
        masses, wrong = convolve_parts(tilted, first - self._bottom, last - first + 1)
        wrong += 2.0 * math.exp(-_OUTSIDE)
        fall, further = math.exp(-tilt * step), math.exp(-(tilt + 1.0) * step)
        weights = scipy.signal.lfilter([1.0], [1.0, -further], masses[::-1])  # from above
        apart = scipy.signal.lfilter([0.0, -fall * math.expm1(-step)], [1.0, -fall], weights)
        return _Tilted(first, apart[::-1], weights[::-1], wrong)

    def _window(self, tilted: Sequence[tuple[np.ndarray, int]]) -> tuple[int, int]:
        """The least and the largest loss of the window, in steps of the grid, by Chernoff's bound of coarser laws."""
        if self._count == 1:
            return self._bottom, self._top
        pairs = zip(self.parts, tilted, strict=True)
        laws = [(_Coarse.of(law.first, masses), count) for (law, _), (masses, count) in pairs]
        orders = _REACH / max(1.0, math.sqrt(sum(count * law.variance for law, count in laws)))
        upper, lower = (
            min(
                (_OUTSIDE + math.fsum(count * law.log_moment(side * order) for law, count in laws)) / order
                for order in orders
            )
            for side in (1.0, -1.0)
        )
        first, last = max(self._bottom, math.floor(-lower)), min(self._top, math.ceil(upper))
        return min(first, self._top), max(last, self._bottom)


@dataclass(frozen=True)
class Losses:
    """The losses of a composition, for both orders of neighbours."""

    ways: tuple[Way, ...]

    def epsilon(self, at_delta: float) -> float:
        """An upper bound of epsilon at a delta; infinity where none is proved."""
        return max(way.epsilon(at_delta) for way in self.ways)

    def delta(self, at_epsilon: float) -> float:
        """An upper bound of delta at an epsilon."""
        return float(self.deltas(np.array([at_epsilon]))[0])

    def deltas(self, at: np.ndarray) -> np.ndarray:
        """Upper bounds of delta at each epsilon, in any order."""
        return np.maximum.reduce([way.deltas(at) for way in self.ways])


class _Coarse(NamedTuple):
    """A law in fewer places that has the same mean and at least every moment: each bin's mass lies at its two ends.

    Attributes:
        places: losses, in steps of the grid.
        masses: their probabilities.
    """

    places: np.ndarray
    masses: np.ndarray

    @classmethod
    def of(cls, first: int, masses: np.ndarray) -> "_Coarse":
        """Split each bin's mass so that its mean stays; by convexity each e^(order y) is then at least as large."""
        width = max(1, len(masses) // _PLACES)
        starts = np.arange(0, len(masses), width)
        ends = np.append(starts[1:], len(masses)) - 1
        whole = np.add.reduceat(masses, starts)
        above = np.add.reduceat(masses * (np.arange(len(masses)) % width), starts)  # of the bin's first place
        upper = np.clip(above / np.maximum(ends - starts, 1), 0.0, whole)
        return cls(first + np.concatenate([starts, ends]).astype(float), np.concatenate([whole - upper, upper]))

    def log_moment(self, order: float) -> float:
        """At least log E e^(order y), and nearly it."""
        some = self.masses > 0.0  # a tilt may leave nothing of a far bin
        logs = order * self.places[some]
        top = float(logs.max())
        return top + math.log(float((self.masses[some] * np.exp(logs - top)).sum()))

    @property
    def variance(self) -> float:
        """At least that of the losses, and nearly it."""
        return float((self.masses * (self.places - (self.masses * self.places).sum()) ** 2).sum())


def _find_lowest(bound: Callable[[int], float]) -> int:
    """Where a bound is least, over the places of `_TILTS` but the last: it falls, then rises."""
    return bisect.bisect_left(range(len(_TILTS) - 2), True, key=lambda place: bound(place + 1) >= bound(place))


def _log_moment(law: Law, order: float) -> float:
    """log E e^(order y), y in steps of the grid."""
    places = np.arange(len(law.masses), dtype=float)
    end = len(law.masses) - 1 if order > 0 else 0
    return order * (law.first + end) + math.log(float((law.masses * np.exp(order * (places - end))).sum()))


def _tilt_masses(law: Law, order: float) -> np.ndarray:
    end = len(law.masses) - 1
    weighted = law.masses * np.exp(order * (np.arange(end + 1.0) - end))
    return np.asarray(weighted / weighted.sum())


def convolve_parts(parts: Sequence[tuple[np.ndarray, int]], first: int, size: int) -> tuple[np.ndarray, float]:
    """The law of the sum from place `first` on, (size,), and the most that rounding makes of it, summed over all."""
    if sum(count for _, count in parts) == 1:
        return parts[0][0][first : first + size], 0.0
    bins = scipy.fft.next_fast_len(max([size, *(len(masses) for masses, _ in parts)]), real=True)
    product, least = np.ones(bins // 2 + 1, dtype=np.complex128), np.ones(bins // 2 + 1)
    for masses, count in parts:
        spectrum = scipy.fft.rfft(masses, bins)
        product *= spectrum**count
        least = np.minimum(least, np.abs(spectrum))
    others = np.minimum(1.0, np.abs(product) / np.maximum(least, 1e-300))  # of a product, without its least factor
    errors = (1 + sum(count for _, count in parts)) * _LEVEL * math.log2(bins)
    wrong = errors * math.exp(errors) * 2.0 * float(others.sum())
    return np.maximum(0.0, np.roll(scipy.fft.irfft(product, bins), -(first % bins))[:size]), wrong
