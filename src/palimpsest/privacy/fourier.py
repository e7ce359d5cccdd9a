"""A second accountant for the events that have a privacy loss: its own code, its own error bound.

The loss of each mechanism is cut into bins, moved so that its mean is kept, and composed by a Fourier transform: the
method of Gopi, Lee and Wutschitz 2021 ("Numerical composition of differential privacy"), after Koskela, Jälkö and
Honkela 2020. It shares no code with the accountants of `accounting` but the reading of an event, and unlike them it
returns both ends: the true epsilon lies between.

The argument. Let Y be the sum of T losses and X the sum of the binned ones. Where no loss leaves the window, Y - X is a
sum of T independent errors of mean 0, each within an interval of one bin's width h, so X misses Y by t or more with
probability at most exp(-2 t^2 / (T h^2)) (Hoeffding 1963). So delta_Y(eps) <= delta_X(eps - t) + s, where s also holds
what lies outside the window (Chernoff) and the rounding of the transform. The lower end is the same with signs turned.
Rounding is allowed for by a generous term and not proved, so a difference to another accountant is to be explained,
and is never by itself a reason to state the smaller number.
"""

import functools
import json
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import dp_accounting.dp_event as dpa
import numpy as np
import scipy  # its parts load when they are used

from palimpsest import validate
from palimpsest.privacy import events
from palimpsest.privacy.accounting import is_private, leaves
from palimpsest.privacy.events import DiscreteGaussianDpEvent

_SHARE = 1e-3  # of delta, given away to everything that is only bounded
_TIGHT = 1e-3  # t over the epsilon that moments alone give
_ROUNDING = 2.0**-50  # of each composition, in delta
_MOST_BINS = 2**22
_MOST_EPSILON = 700.0  # of the bound by moments: beyond it the quadratures are not exact enough
_NODES, _REACH = 4_001, 200.0  # of the quadrature: how many, and how many sigmas to each side
_POWERS = np.geomspace(1e-3, 190.0, 60)  # of the moments, in sigmas: their peaks lie within the quadrature's reach
_MOST_SIGMA = 1e5  # of a discrete Gaussian: its losses are listed one by one


class Bracket(NamedTuple):
    """An epsilon between two ends; `high` is the one to state."""

    low: float
    high: float


class _Loss(NamedTuple):
    """The privacy loss of one mechanism, in one direction, under the first of the two outputs.

    Attributes:
        cdf: losses (n,) -> the probability of at most that loss (n,).
        nodes: losses of a quadrature, (k,); exact for sums over the law of the loss, to double precision.
        log_weights: logarithms of their probabilities, (k,).
        powers: positive orders up to which exp(order loss) is integrated exactly, (p,).
    """

    cdf: Callable[[np.ndarray], np.ndarray]
    nodes: np.ndarray
    log_weights: np.ndarray
    powers: np.ndarray


_Parts: TypeAlias = Sequence[tuple[_Loss, int]]


def epsilon(event: dpa.DpEvent, at_delta: float) -> Bracket | None:
    """Both ends of the epsilon of `event` at `at_delta`, for adding or removing one record; infinite where the event is
    not private.

    None where a part has no privacy loss that is known here: everything but Gaussians, discrete Gaussians of sigma up
    to 1e5, Laplace noise, and Gaussians on Poisson samples; and where epsilon may be above 700. The upper end is loose,
    or infinite, for a delta not far above 1e-15 for each composed mechanism: the rounding of the transform is then a
    part of delta that counts. So it is for millions of mechanisms: what moving their bins may shift leaves no window.

    >>> import dp_accounting as dpa
    >>> step = dpa.PoissonSampledDpEvent(0.01, dpa.GaussianDpEvent(1.1))
    >>> [round(end, 3) for end in epsilon(dpa.SelfComposedDpEvent(step, 1000), 1e-5)]
    [1.513, 1.518]
    """
    validate.require_in_range(0.0, 1.0, at_delta=at_delta)
    validate.require_positive(at_delta=at_delta)
    if not is_private(event):
        return Bracket(math.inf, math.inf)
    if not all(_is_supported(leaf) for leaf, _ in leaves(event)):
        return None
    return _epsilon(json.dumps(events.to_json(event)), at_delta)


def _is_supported(leaf: dpa.DpEvent) -> bool:
    if isinstance(leaf, dpa.PoissonSampledDpEvent):
        return isinstance(leaf.event, dpa.GaussianDpEvent)
    if isinstance(leaf, DiscreteGaussianDpEvent):
        return bool(leaf.sigma <= _MOST_SIGMA)
    return isinstance(leaf, (dpa.GaussianDpEvent, dpa.LaplaceDpEvent))


@functools.lru_cache(maxsize=256)
def _epsilon(body: str, at_delta: float) -> Bracket | None:
    parts = list(leaves(events.from_json(json.loads(body))))
    if not parts:
        return Bracket(0.0, 0.0)
    directions = (True, False) if any(map(_has_two_directions, parts)) else (False,)
    ways = [[(_loss(leaf, adding), count) for leaf, count in parts] for adding in directions]
    if not all(_tail(way, -math.log(at_delta), 1.0) <= _MOST_EPSILON for way in ways):
        return None
    ends = [_bracket_epsilon(way, at_delta) for way in ways]
    return Bracket(max(low for low, _ in ends), max(high for _, high in ends))


def _has_two_directions(part: tuple[dpa.DpEvent, int]) -> bool:
    """Whether adding and removing a record may have different losses: without a sample noise is symmetric."""
    leaf, _ = part
    return isinstance(leaf, dpa.PoissonSampledDpEvent) and leaf.sampling_probability < 1


# --- the loss of one mechanism ---------------------------------------------------------------------------------------


def _loss(leaf: dpa.DpEvent, adding: bool) -> _Loss:
    if isinstance(leaf, dpa.PoissonSampledDpEvent):
        return _gaussian(leaf.event.noise_multiplier, leaf.sampling_probability, adding)
    if isinstance(leaf, dpa.GaussianDpEvent):
        return _gaussian(leaf.noise_multiplier, 1.0, adding)
    if isinstance(leaf, DiscreteGaussianDpEvent):
        return _discrete_gaussian(leaf.sigma)
    return _laplace(leaf.noise_multiplier)


def _gaussian(sigma: float, rate: float, adding: bool) -> _Loss:
    """With the record the output is (1 - q) N(0, sigma^2) + q N(1, sigma^2), without it N(0, sigma^2).

    `adding`: the loss of the output without the record against the one with it; otherwise the other way round.
    """

    def loss(x: np.ndarray) -> np.ndarray:  # log of the mixture over N(0, sigma^2); it grows with x
        with np.errstate(divide="ignore"):
            return np.logaddexp(np.log1p(-rate), np.log(rate) + (2.0 * x - 1.0) / (2.0 * sigma**2))

    def inverse(y: np.ndarray) -> np.ndarray:  # -infinity for a loss below all that occur
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            below = y if rate == 1.0 else np.log(np.expm1(y) + rate)  # expm1 + 1 is 0 of a loss below -37
            ratio = np.where(y > 0, y + np.log1p(-(1.0 - rate) * np.exp(-np.abs(y))), below)
        return 0.5 + sigma**2 * (np.where(np.isnan(ratio), -np.inf, ratio) - math.log(rate))

    def mixed(y: np.ndarray) -> np.ndarray:
        x = inverse(y)
        return (1.0 - rate) * scipy.special.ndtr(x / sigma) + rate * scipy.special.ndtr((x - 1.0) / sigma)

    x, step = np.linspace(-_REACH * sigma, 1.0 + _REACH * sigma, _NODES, retstep=True)
    plain = -0.5 * (x / sigma) ** 2 - math.log(sigma * math.sqrt(2.0 * math.pi)) + math.log(step)
    losses, powers = loss(x), _POWERS * sigma
    if adding:
        return _Loss(lambda y: scipy.special.ndtr(-inverse(-y) / sigma), -losses, plain, powers)
    return _Loss(mixed, losses, plain + losses, powers)


def _discrete_gaussian(sigma: float) -> _Loss:
    """k of probability in proportion to exp(-k^2 / 2 sigma^2) against the same moved by one, in either direction."""
    reach = math.ceil(40.0 * sigma) + 2
    k = np.arange(reach, -reach - 1, -1)  # losses ascend
    nodes, log_weights = (1.0 - 2.0 * k) / (2.0 * sigma**2), -0.5 * (k / sigma) ** 2
    log_weights = log_weights - scipy.special.logsumexp(log_weights)
    below = np.concatenate([[0.0], np.exp(log_weights).cumsum()])

    def cdf(y: np.ndarray) -> np.ndarray:
        return below[np.searchsorted(nodes, y, side="right")]

    return _Loss(cdf, nodes, log_weights, np.geomspace(1e-3, 30.0, 60) * sigma)


def _laplace(scale: float) -> _Loss:
    """Lap(b) against the same moved by one, in either direction: two atoms at -1/b and 1/b, a density between them."""
    end = 1.0 / scale

    def cdf(y: np.ndarray) -> np.ndarray:
        inside = 0.5 * np.exp(0.5 * (np.minimum(y, end) - end))
        return np.where(y < -end, 0.0, np.where(y >= end, 1.0, inside))

    x, weights = np.polynomial.legendre.leggauss(200)
    nodes = np.concatenate([[-end], end * x, [end]])
    density = np.log(weights * end) + 0.5 * (end * x - end) - math.log(4.0)
    log_weights = np.concatenate([[math.log(0.5) - end], density, [math.log(0.5)]])
    return _Loss(cdf, nodes, log_weights, np.geomspace(1e-3, 200.0, 60) * min(scale, 1.0))


# --- composition -----------------------------------------------------------------------------------------------------


def _bracket_epsilon(parts: _Parts, at_delta: float) -> Bracket:
    """Both ends in one direction."""
    total, given = sum(count for _, count in parts), _SHARE * at_delta / 2.0
    above, below = (_tail(parts, math.log((total + 1) / given), sign) for sign in (1.0, -1.0))
    error = _TIGHT * max(_tail(parts, -math.log(at_delta), 1.0), 1e-9)  # t
    per_width = math.sqrt(0.5 * total * math.log(1.0 / given))  # t / h
    room = _MOST_BINS - total - 2.0 * per_width  # bins left when the error and what moving the bins may shift fit, too
    if room <= 0.0:
        return Bracket(0.0, math.inf)
    width = max(error / per_width, 2.0 * max(above, below) / room)
    error = width * per_width
    half = max(above, below) + error + 0.5 * total * width
    bins = scipy.fft.next_fast_len(max(16, math.ceil(2.0 * half / width)), real=True)
    values, masses = _sum_losses(parts, width, bins)
    slack = 2.0 * given + total * _ROUNDING
    high = _invert_delta(values, masses, width, at_delta - slack) + error
    low = _invert_delta(values, masses, width, at_delta + slack) - error
    return Bracket(max(0.0, low), max(0.0, high))


def _tail(parts: _Parts, log_odds: float, sign: float) -> float:
    """What the sum of losses, and each of them, passes in the direction of `sign` with probability at most
    exp(-log_odds): min over a > 0 of (log E exp(a sum) + log_odds) / a (Chernoff)."""
    powers = functools.reduce(lambda left, right: left[left <= right[-1]], [loss.powers for loss, _ in parts])
    moments = sum(count * _log_moments(loss, sign * powers) for loss, count in parts)
    return float(np.min((np.maximum(moments, 0.0) + log_odds) / powers))


def _log_moments(loss: _Loss, powers: np.ndarray) -> np.ndarray:
    return np.array([scipy.special.logsumexp(power * loss.nodes + loss.log_weights) for power in powers])


def _sum_losses(parts: _Parts, width: float, bins: int) -> tuple[np.ndarray, np.ndarray]:
    """The binned sum: ascending values (bins,) and their probabilities (bins,)."""
    index = np.arange(bins) - bins // 2
    spectrum, shift = np.ones(bins // 2 + 1, dtype=np.complex128), 0.0
    for loss, count in parts:
        inner = loss.cdf((index[:-1] + 0.5) * width)
        masses = np.diff(inner, prepend=0.0, append=1.0)  # what lies outside goes to the ends
        spectrum *= scipy.fft.rfft(np.roll(masses, -(bins // 2))) ** count
        inside = np.clip(loss.nodes, index[0] * width, index[-1] * width)
        shift += count * float(np.exp(loss.log_weights) @ inside - masses @ (index * width))
    return index * width + shift, np.roll(scipy.fft.irfft(spectrum, bins), bins // 2)


def _invert_delta(values: np.ndarray, masses: np.ndarray, width: float, at_delta: float) -> float:
    """The epsilon at which the sum over losses y > eps of (1 - e^(eps - y)) P(y) is `at_delta`; the losses are `width`
    apart."""
    if at_delta <= 0.0:
        return math.inf
    above = values > 0  # an epsilon is never below 0
    values, masses = values[above], np.maximum(masses[above], 0.0)
    tail = masses[::-1].cumsum()[::-1]  # of losses from here on
    # [j]: times e^(values[j] - y), never tiny
    weighted = scipy.signal.lfilter([1.0], [1.0, -math.exp(-width)], masses[::-1])[::-1]
    at_zero = tail[0] - math.exp(-values[0]) * weighted[0] if len(values) else 0.0
    if at_zero <= at_delta:
        return 0.0
    below = np.concatenate([[0.0], values[:-1]])  # the losses from values[j] on count for every eps in [below[j], ...)
    delta = tail - np.exp(below - values) * weighted
    last = int(np.flatnonzero(delta > at_delta)[-1])
    return float(values[last] + np.log((tail[last] - at_delta) / weighted[last]))
