"""From privacy events to epsilon, and from a target epsilon to noise.

A statement's epsilon comes from the tightest accountant that takes all of its mechanisms (`primary_accountant`):
privacy-loss distributions (PLD) where every part has one; concentrated DP (zCDP) by its tight conversion for Gaussians
and mechanisms known by their rho alone; Renyi differential privacy (RDP) for everything else. RDP, which shares no code
with the other two, is computed beside each of them; of zCDP it is the same bound on a grid of orders, at most 8 % above
it for a rho of 1e-5 or more (below, the best order is beyond the grid). Exact Gaussian (GDP) conversions serve plain
Gaussian rounds. Adjacency is add/remove of one unit of privacy throughout.
"""

import functools
import json
import logging
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import dp_accounting.dp_event as dpa
import numpy as np
import scipy
from dp_accounting.privacy_accountant import NeighboringRelation, UnsupportedEventError

from palimpsest import validate
from palimpsest.privacy import events
from palimpsest.privacy.events import BoundedRangeDpEvent, DiscreteGaussianDpEvent
from palimpsest.privacy.losses import Law, Losses, Way

if TYPE_CHECKING:  # heavy: accountants are imported where they count
    from dp_accounting.pld.pld_pmf import PLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

ORDERS = (*np.round(np.arange(1.1, 11.0, 0.1), 1).tolist(), *range(11, 64), 128, 256, 512, 1024)
logging.getLogger("absl").setLevel(logging.ERROR)  # RDP reports each order that it skips; `rdp` bounds those itself
NAMES = {"pld": "Privacy-loss distributions", "zcdp": "zCDP, tight conversion", "rdp": "Rényi DP"}
LEAST_TARGET = 0.01  # below it no noise may meet the target on the coarse grid of losses
MOST_TARGET = 50.0  # e to it is no protection, and finding the noise for it takes minutes and gigabytes
_MOST_NOISE = 2.0**20
_MOST_EPSILON = 700.0  # e to this power is near the largest float; a curve says nothing there
_LEAST_DELTA, _LINES = 1e-40, 2001  # of one unit's profile, for groups: where it ends, how many points it has
_CHAIN_END = 1e-3  # of the logarithm of a probability, where the search for a chain stops
_MOST_RHO = 1e6  # beyond it the tight conversion gains next to nothing
_TOLERANCE = 1e-3  # relative width at which the search for a noise multiplier stops
_SLACK = 2e-3  # of a target that a search may leave
# Steps of losses: of what is stated, of what is planned, of what a search looks at first.
_GRID, PLANNED_GRID, _COARSE_GRID = 1e-4, 5e-4, 2e-3
_CUT = -100.0  # the logarithm of what of a Gaussian's losses counts as infinite
_LEAST_EPSILON = 1e-9  # below it a search sees none
_FEW_ORDERS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 128, 256, 1024)


class _Profile(NamedTuple):
    """What one accountant proves of one event: the least delta at an epsilon, and the least epsilon at a delta."""

    delta_at: Callable[[float], float]
    epsilon_at: Callable[[float], float]


def primary_accountant(event: dpa.DpEvent) -> str:
    """The accountant that states the epsilon of `event`: the tightest one that takes all of its parts.

    "pld" without any part known by its rho alone, which no privacy-loss distribution takes; "zcdp" where each part has
    a rho and one is known by it alone; otherwise "rdp". Of choices of bounded range "pld" must let the interval of
    losses lie anew each time, so "zcdp" is the tighter one of many, and is taken where each part has a rho.

    >>> import dp_accounting as dpa
    >>> parts = dpa.GaussianDpEvent(4.0), dpa.ZCDpEvent(0.01), dpa.LaplaceDpEvent(9.0)
    >>> [primary_accountant(dpa.ComposedDpEvent(parts[:count])) for count in (1, 2, 3)]
    ['pld', 'zcdp', 'rdp']
    """
    parts = [leaf for leaf, _ in leaves(event)]
    by_rho = all(_has_rho(leaf) for leaf in parts)
    if by_rho and any(isinstance(leaf, (dpa.ZCDpEvent, BoundedRangeDpEvent)) for leaf in parts):
        return "zcdp"
    return "pld" if has_losses(event) else "rdp"


def has_losses(event: dpa.DpEvent) -> bool:
    """Whether each part has a privacy-loss distribution: all but those that are known by their rho alone."""
    return not any(isinstance(leaf, dpa.ZCDpEvent) for leaf, _ in leaves(event))


def epsilon(event: dpa.DpEvent, delta: float, accountant: str | None = None) -> float:
    """The epsilon of `event` at `delta`; infinity where the event is not private.

    Args:
        delta: in (0, 1).
        accountant: "pld" (tight, slower), "zcdp" or "rdp"; None for the event's `primary_accountant`.

    Raises:
        ValueError: if "zcdp" is asked of an event of which a part has no rho.
        dp_accounting.UnsupportedEventError: if the accountant does not take a part of the event.

    >>> import dp_accounting as dpa
    >>> step = dpa.PoissonSampledDpEvent(0.01, dpa.GaussianDpEvent(1.1))
    >>> training = dpa.SelfComposedDpEvent(step, 1000)
    >>> round(epsilon(training, 1e-5), 3), round(epsilon(training, 1e-5, "rdp"), 3)
    (1.515, 1.712)
    """
    validate.require_in_range(0.0, 1.0, delta=delta)
    chosen = primary_accountant(event) if accountant is None else accountant
    validate.require_one_of(tuple(NAMES), accountant=chosen)
    return _epsilon(json.dumps(events.to_json(event)), delta, chosen) if is_private(event) else math.inf


def delta(event: dpa.DpEvent, at_epsilon: float) -> float:
    """The delta of `event` at `at_epsilon`, by its primary accountant."""
    return float(_profile(event, primary_accountant(event)).delta_at(at_epsilon)) if is_private(event) else 1.0


def is_private(event: dpa.DpEvent) -> bool:
    """False where any part of `event` promises nothing: a non-private event, a scale that is not above 0, or a zCDP
    part whose constants are not finite numbers from 0 up."""
    return all(_is_noisy(leaf) for leaf, _ in leaves(event))


def _is_noisy(leaf: dpa.DpEvent) -> bool:
    if isinstance(leaf, dpa.PoissonSampledDpEvent):
        return is_private(leaf.event)
    if isinstance(leaf, (dpa.GaussianDpEvent, dpa.LaplaceDpEvent)):
        return leaf.noise_multiplier > 0
    if isinstance(leaf, DiscreteGaussianDpEvent):
        return leaf.sigma > 0
    if isinstance(leaf, BoundedRangeDpEvent):
        return math.isfinite(leaf.range) and leaf.range >= 0
    if isinstance(leaf, dpa.ZCDpEvent):
        return all(math.isfinite(constant) and constant >= 0 for constant in (leaf.rho, leaf.xi))
    return not isinstance(leaf, dpa.NonPrivateDpEvent)


def leaves(event: dpa.DpEvent, count: int = 1) -> Iterator[tuple[dpa.DpEvent, int]]:
    """The mechanisms of a composition, each with the number of times it ran."""
    if isinstance(event, dpa.SelfComposedDpEvent):
        yield from leaves(event.event, event.count * count)
    elif isinstance(event, dpa.ComposedDpEvent):
        for part in event.events:
            yield from leaves(part, count)
    elif not isinstance(event, dpa.NoOpDpEvent):
        yield event, count


def total_rho(event: dpa.DpEvent) -> float:
    """The rho of the zCDP that `event` satisfies as a whole: those of its parts, each as often as it ran, add up.

    A Gaussian, continuous or discrete, has rho 1 / (2 sigma^2) (Bun and Steinke 2016, Proposition 1.6 and Lemma 1.7;
    Canonne, Kamath, Steinke 2020, Theorem 14).

    Raises:
        ValueError: if a part of `event` has no rho.
    """
    return float(sum(count * _rho(leaf) for leaf, count in leaves(event)))


def _has_rho(leaf: dpa.DpEvent) -> bool:
    if isinstance(leaf, dpa.ZCDpEvent):
        return bool(leaf.xi == 0)
    return isinstance(leaf, (dpa.GaussianDpEvent, DiscreteGaussianDpEvent, BoundedRangeDpEvent))


def _rho(leaf: dpa.DpEvent) -> float:
    if not _has_rho(leaf):
        raise ValueError(f"{type(leaf).__name__} has no rho")
    if isinstance(leaf, dpa.ZCDpEvent):
        return float(leaf.rho)
    if isinstance(leaf, BoundedRangeDpEvent):
        return float(leaf.range) ** 2 / 8.0
    sigma = leaf.sigma if isinstance(leaf, DiscreteGaussianDpEvent) else leaf.noise_multiplier
    return 0.5 / sigma / sigma


def pld(event: dpa.DpEvent, grid: float = _GRID) -> Losses:
    """The privacy losses of `event`, both orders of neighbours: an upper bound at any delta, see `losses`.

    Args:
        grid: of losses; on a coarser one, as `PLANNED_GRID`, it may only say more, and sooner.

    Raises:
        ValueError: if a part of `event` adds no noise: the library leaves such a part out of its distribution.
        dp_accounting.UnsupportedEventError: if a part of `event` has no privacy-loss distribution.
    """
    if not is_private(event):
        raise ValueError("an event without noise has no privacy-loss distribution")
    return _pld(json.dumps(events.to_json(event)), grid)


@functools.lru_cache(maxsize=64)
def _pld(body: str, grid: float) -> Losses:
    """Of an event in its JSON form, on a grid of losses; a coarser one gives a larger epsilon, sooner."""
    parts = list(leaves(events.from_json(json.loads(body)))) or [(dpa.NoOpDpEvent(), 1)]
    laws: list[tuple[tuple[Law, Law], int]] = [
        (_laws(json.dumps(events.to_json(leaf)), grid), count) for leaf, count in map(_merge_gaussians, parts)
    ]
    removing, adding = ([(both[way], count) for both, count in laws] for way in (0, 1))
    same = all(both[0] is both[1] for both, _ in laws)
    return Losses((Way(removing, grid),) if same else (Way(removing, grid), Way(adding, grid)))


@functools.lru_cache(maxsize=64)
def _replaced_losses(body: str, grid: float) -> Losses:
    """As `_pld`, of one unit replaced by another, of parts that `replaced_epsilon` takes."""
    parts = map(_merge_gaussians, leaves(events.from_json(json.loads(body))))
    return Losses((Way([_replaced_law(leaf, count, grid) for leaf, count in parts], grid),))


def _replaced_law(leaf: dpa.DpEvent, count: int, grid: float) -> tuple[Law, int]:
    """The law of one mechanism, and how often it counts: of noisy counts twice, for two of them move."""
    law = _law(_distribution(leaf, grid, NeighboringRelation.REPLACE_ONE)._pmf_remove)  # noqa: SLF001
    return law, 2 * count if isinstance(leaf, DiscreteGaussianDpEvent) else count


def _merge_gaussians(part: tuple[dpa.DpEvent, int]) -> tuple[dpa.DpEvent, int]:
    """Gaussian queries asked one after the other are one of less noise, exactly."""
    leaf, count = part
    one = isinstance(leaf, dpa.GaussianDpEvent)
    return (dpa.GaussianDpEvent(leaf.noise_multiplier / math.sqrt(count)), 1) if one else part


@functools.lru_cache(maxsize=256)
def _laws(body: str, grid: float) -> tuple[Law, Law]:
    """Of one mechanism, for removing and for adding a record; one object where both are the same."""
    loss = _distribution(events.from_json(json.loads(body)), grid)
    removing = _law(loss._pmf_remove)  # noqa: SLF001
    return removing, removing if loss._symmetric else _law(loss._pmf_add)  # noqa: SLF001


def _law(pmf: "PLDPmf") -> Law:
    dense = pmf.to_dense_pmf()
    masses = np.asarray(dense._probs, dtype=float)  # noqa: SLF001
    some = np.flatnonzero(masses > 0.0)
    least, most = int(some[0]), int(some[-1])
    return Law(dense._lower_loss + least, masses[least : most + 1], float(dense._infinity_mass))  # noqa: SLF001


def _distribution(
    leaf: dpa.DpEvent, grid: float, neighbours: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE
) -> "PrivacyLossDistribution":
    """By connecting the dots, which rounds no loss up: in that way each mechanism of many would lose half a step."""
    from dp_accounting.pld import privacy_loss_distribution as library

    of: dict[str, Any] = {"value_discretization_interval": grid, "use_connect_dots": True}
    if isinstance(leaf, DiscreteGaussianDpEvent):
        return library.from_discrete_gaussian_mechanism(leaf.sigma, **of)
    if isinstance(leaf, BoundedRangeDpEvent):
        return _range_pld(leaf.range, grid)
    sampled = isinstance(leaf, dpa.PoissonSampledDpEvent)
    inner, rate = (leaf.event, leaf.sampling_probability) if sampled else (leaf, 1.0)
    if isinstance(leaf, dpa.NoOpDpEvent) or rate == 0:
        return library.identity(value_discretization_interval=grid)
    if isinstance(inner, dpa.GaussianDpEvent):
        of |= {"log_mass_truncation_bound": _CUT, "neighboring_relation": neighbours}
        return library.from_gaussian_mechanism(inner.noise_multiplier, sampling_prob=rate, **of)
    if isinstance(inner, dpa.LaplaceDpEvent):
        return library.from_laplace_mechanism(inner.noise_multiplier, sampling_prob=rate, **of)
    raise UnsupportedEventError(f"{type(inner).__name__} has no privacy-loss distribution")


def grid_error(event: dpa.DpEvent, at_delta: float) -> float:
    """How far above the true epsilon PLD may be where the losses of many mechanisms are narrow beside the grid.

    Connected dots move each loss by less than a step to either side, and hardly its mean. So they move the sum of n by
    more than a step times sqrt(n log(1 / delta) / 2) with a probability below delta (Hoeffding 1963). Infinity with a
    choice of bounded range, whose pair of laws is the worst of all intervals.
    """
    parts = [_merge_gaussians(part) for part in leaves(event)]
    if any(isinstance(leaf, BoundedRangeDpEvent) for leaf, _ in parts):
        return math.inf
    return _GRID * math.sqrt(0.5 * sum(count for _, count in parts) * math.log(1.0 / at_delta))


def range_deltas(eta: float, at_epsilon: np.ndarray) -> np.ndarray:
    """delta(epsilon) of the worst choice of range `eta` at each epsilon, wherever its interval of losses lies.

    Guarantee: delta(epsilon) is the mean of max(0, ratio - e^epsilon) on the neighbour, where the ratio of likelihoods
    has mean 1. It is convex in the ratio, so of ratios in [e^(t - eta), e^t] those at the two ends have the largest
    mean (the generalized randomized response of Dong, Durfee, Rogers 2020): (1 - e^(t - eta) - e^(epsilon - t) +
    e^(epsilon - eta)) / (1 - e^-eta). Over all t that is largest at (epsilon + eta) / 2. The envelope is convex in
    e^epsilon and the same in both orders of neighbours, so some pair of laws has it, and that pair dominates each such
    choice. Adaptive choices then compose as such pairs do (Zhu, Dong, Wang 2022, Theorem 10).
    """
    if eta == 0:
        return np.maximum(0.0, -np.expm1(at_epsilon))
    inside = np.expm1((np.clip(at_epsilon, -eta, eta) - eta) / 2.0) ** 2 / -math.expm1(-eta)
    return np.where(at_epsilon <= -eta, -np.expm1(at_epsilon), inside)


def _range_pld(eta: float, grid: float) -> "PrivacyLossDistribution":
    """Of a choice of bounded range: between its points the dots are connected, which only adds."""
    from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots_fixed_gap
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    top = max(1, math.ceil(eta / grid))
    deltas = range_deltas(eta, np.arange(-top, top + 1) * grid)
    return PrivacyLossDistribution(create_pmf_pessimistic_connect_dots_fixed_gap(grid, -top, top, deltas))


def rdp(event: dpa.DpEvent, orders: tuple[float, ...] = ORDERS) -> np.ndarray:
    """Renyi divergence bounds of `event`, one per order, shape (len(orders),).

    Where the library skips an order as numerically unstable the next higher order's value stands in: the divergence
    never falls as the order grows, so that is an upper bound.
    """
    wanted = tuple(sorted({*orders, *ORDERS}))
    return _rdp_at(event, wanted)[[wanted.index(order) for order in orders]]


def _rdp_at(event: dpa.DpEvent, orders: tuple[float, ...]) -> np.ndarray:
    """The same at these orders alone, ascending, of which the last may be infinite."""
    parts = [(json.dumps(events.to_json(leaf)), count) for leaf, count in leaves(event)]
    values = sum((count * _leaf_rdp(body, orders) for body, count in parts), np.zeros(len(orders)))
    return np.minimum.accumulate(values[::-1])[::-1]


@functools.lru_cache(maxsize=1024)
def _leaf_rdp(body: str, orders: tuple[float, ...]) -> np.ndarray:
    """Of one mechanism; infinite where the library skips an order."""
    from dp_accounting.rdp import RdpAccountant

    leaf = events.from_json(json.loads(body))
    total = RdpAccountant(orders)
    total.compose(_renyi_form(leaf))
    return np.where(np.isnan(total._rdp), np.inf, total._rdp)  # noqa: SLF001


def _renyi_form(leaf: dpa.DpEvent) -> dpa.DpEvent:
    """A mechanism that the library knows, whose Renyi divergences bound those of `leaf`."""
    if isinstance(leaf, DiscreteGaussianDpEvent):
        return dpa.GaussianDpEvent(leaf.sigma)
    return dpa.ZCDpEvent(_rho(leaf)) if isinstance(leaf, BoundedRangeDpEvent) else leaf


def calibrate_noise(make_event: Callable[[float], dpa.DpEvent], target: float, at_delta: float) -> float:
    """The smallest noise multiplier, to two parts in a thousand, whose event meets (target, at_delta).

    Renyi bounds at a few orders bracket it, losses on a coarse grid find it, and `planned_epsilon` has the last word:
    the returned value is always on the private side.

    Args:
        make_event: noise multiplier -> the whole composition that must meet the target.

    Raises:
        ValueError: no noise meets the target, or the target is above `MOST_TARGET`.
    """
    validate.require_positive(target=target, at_delta=at_delta)
    validate.require_in_range(0.0, MOST_TARGET, target=target)

    def excess(of: Callable[[dpa.DpEvent, float], float], noise: float) -> float:
        """In logarithms, so that it is nearly a straight line over that of the noise."""
        return math.log(max(of(make_event(noise), at_delta), _LEAST_EPSILON) / target)

    last_word = functools.partial(excess, planned_epsilon)
    most, aim = make_event(_MOST_NOISE), target
    if (renyi := _bound(most, at_delta)) > target:
        aim += renyi - planned_epsilon(most, at_delta)  # what Renyi bounds say too much of the fixed part
        if aim < renyi:
            raise ValueError(f"no noise multiplier meets epsilon {target!r}: the fixed part of the plan passes it")
    noise = _root(functools.partial(excess, _coarse_epsilon), _bracket(make_event, aim, at_delta))
    if last_word(noise) < -_SLACK:  # the coarse grid said far too much, as of very many mechanisms
        noise = _root(last_word, noise)
    while last_word(noise) > 0:
        noise *= 1.0 + _TOLERANCE / 2
    return noise


def _bracket(make_event: Callable[[float], dpa.DpEvent], target: float, at_delta: float) -> float:
    """A noise multiplier to begin with: by Renyi bounds, at most a tenth or so too large."""

    def passes(noise: float) -> bool:
        return _bound(make_event(noise), at_delta) <= target

    high = 1.0
    while high < _MOST_NOISE and not passes(high):
        high *= 2.0
    low = high / 2.0
    while passes(low):
        low, high = low / 2.0, low
    while high - low > 0.05 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high


def _root(excess: Callable[[float], float], start: float) -> float:
    """Where an excess that falls with the noise is about 0, on the private side; the search goes out from `start`."""
    low = high = start
    step = 1.05  # the cost of a distribution grows fast as the noise falls
    if excess(start) > 0:
        while excess(high := high * step) > 0:
            low, step = high, step * step
    else:
        while excess(low := low / step) <= 0:
            high, step = low, step * step
    ends = math.log(low), math.log(high)
    root = scipy.optimize.brentq(lambda x: excess(math.exp(x)), *ends, xtol=_TOLERANCE / 5)
    return math.exp(root + 2 * _TOLERANCE / 5)


def planned_epsilon(event: dpa.DpEvent, at_delta: float) -> float:
    """At most two parts in a thousand above `epsilon`, never below it, and sooner.

    It is worked out on two coarser grids of losses, which may only say more. Where the two differ, as of very many
    mechanisms, it is `epsilon`.
    """
    quick = _coarse_epsilon(event, at_delta, PLANNED_GRID)
    return quick if _coarse_epsilon(event, at_delta) <= quick * (1.0 + _SLACK) else epsilon(event, at_delta)


def _coarse_epsilon(event: dpa.DpEvent, at_delta: float, grid: float = _COARSE_GRID) -> float:
    """As `epsilon`, on this grid of losses where the event has them."""
    if primary_accountant(event) != "pld" or not is_private(event):
        return epsilon(event, at_delta)
    return float(_pld(json.dumps(events.to_json(event)), grid).epsilon(at_delta))


def _bound(event: dpa.DpEvent, at_delta: float) -> float:
    """An epsilon that holds, by Renyi divergences at a few orders that are quick to compute."""
    from dp_accounting.rdp import compute_epsilon

    return float(compute_epsilon(_FEW_ORDERS, _rdp_at(event, _FEW_ORDERS), at_delta)[0])


def gdp_delta(mu: float, at_epsilon: float) -> float:
    """delta(epsilon) of mu-GDP: T adaptive Gaussian rounds of L2 sensitivity D and noise sigma have
    mu = D sqrt(T) / sigma (Balle and Wang 2018, Theorem 8; Dong, Roth, Su 2022, Corollary 2.13)."""
    return float(gdp_deltas(np.array(mu), np.array(at_epsilon)))


def gdp_deltas(mu: np.ndarray | float, at_epsilon: np.ndarray) -> np.ndarray:
    """The same of each pair of a mu and an epsilon, which have one shape."""
    tail = at_epsilon + scipy.special.log_ndtr(-at_epsilon / mu - mu / 2.0)
    return np.asarray(scipy.special.ndtr(-at_epsilon / mu + mu / 2.0) - np.exp(np.minimum(tail, 0.0)))


def gdp_epsilon(mu: float, at_delta: float) -> float:
    """The exact epsilon of mu-GDP at `at_delta`."""
    if gdp_delta(mu, 0.0) <= at_delta:
        return 0.0
    high = 1.0
    while gdp_delta(mu, high) > at_delta:
        high *= 2.0
    return float(scipy.optimize.brentq(lambda e: gdp_delta(mu, e) - at_delta, 0.0, high, xtol=1e-12))


def gdp_sigma(target: float, at_delta: float, rounds: int = 1, sensitivity: float = 1.0) -> float:
    """The exact noise of `rounds` adaptive Gaussian queries that together meet (target, at_delta).

    >>> round(gdp_sigma(1.0, 1 / (8396 * math.log(8396)), rounds=10), 4)
    11.5998
    """
    validate.require_positive(target=target, at_delta=at_delta, rounds=rounds, sensitivity=sensitivity)
    mu = scipy.optimize.brentq(lambda m: gdp_delta(m, target) - at_delta, 1e-9, 1e3, xtol=1e-14, rtol=1e-14)
    return sensitivity * math.sqrt(rounds) / float(mu)


def zcdp_delta(rho: float, at_epsilon: float) -> float:
    """The tight delta of rho-zCDP (Canonne, Kamath, Steinke 2020, Corollary 13):
    inf over a > 1 of exp((a-1)(a rho - eps)) / (a-1) * (1 - 1/a)^a."""

    def log_delta(log_excess: float) -> float:
        a = 1.0 + math.exp(log_excess)
        return (a - 1.0) * (a * rho - at_epsilon) - math.log(a - 1.0) + a * math.log1p(-1.0 / a)

    best = scipy.optimize.minimize_scalar(
        log_delta, bounds=(math.log(1e-6), math.log(1e7)), method="bounded", options={"xatol": 1e-10}
    )
    return min(1.0, math.exp(min(0.0, float(best.fun))))


def zcdp_epsilon(rho: float, at_delta: float) -> float:
    """The epsilon of rho-zCDP at `at_delta`, by the tight conversion; by the simple one where numbers end."""
    high = rho + 2.0 * math.sqrt(rho * math.log(1.0 / at_delta))  # Bun and Steinke 2016, Proposition 1.3
    if rho > _MOST_RHO:
        return high
    if zcdp_delta(rho, 0.0) <= at_delta:
        return 0.0
    if zcdp_delta(rho, high) > at_delta:  # the best order of a very small rho is out of the search's reach
        return high
    return float(scipy.optimize.brentq(lambda e: zcdp_delta(rho, e) - at_delta, 0.0, high, xtol=1e-12))


def zcdp_rho(target: float, at_delta: float) -> float:
    """The largest rho whose zCDP meets (target, at_delta), by the tight conversion; by the simple one where it ends.

    >>> round(zcdp_rho(1.0, 1e-6), 5)
    0.02436
    """
    log_delta = math.log(1.0 / at_delta)
    least = (target / (math.sqrt(log_delta + target) + math.sqrt(log_delta))) ** 2  # the simple conversion, solved
    if zcdp_delta(least, target) > at_delta:  # the best order of a very small rho is out of the search's reach
        return least
    root = scipy.optimize.brentq(
        lambda rho: zcdp_delta(rho, target) - at_delta, least, target + 1.0, xtol=1e-13 * least
    )
    return float(root) if zcdp_epsilon(root, at_delta) <= target * (1.0 + 1e-9) else least


def renyi_epsilon(order: float, divergence: float, at_delta: float) -> float:
    """The epsilon that a Renyi divergence at one order implies.

    eps = r + log(1 - 1/a) - log(delta a) / (a - 1) (Canonne, Kamath, Steinke 2020, Proposition 12).
    """
    return max(0.0, divergence + math.log1p(-1.0 / order) - math.log(at_delta * order) / (order - 1.0))


def trade_off(event: dpa.DpEvent, points: int = 41) -> tuple[list[float], list[float]]:
    """The attacker's best trade-off: false-positive rates alpha and the least false-negative rate beta at each.

    beta(alpha) = max over eps of max(1 - delta - e^eps alpha, e^-eps (1 - delta - alpha)), with delta(eps) from the
    primary accountant, which holds for adding and for removing a record (Wasserman and Zhou 2010; Dong, Roth, Su 2022,
    Proposition 2.12).
    """
    alpha = np.concatenate([[0.0], np.geomspace(1e-4, 1.0, points - 1)])
    if not is_private(event):
        return alpha.tolist(), np.zeros(points).tolist()
    profile = _profile(event, primary_accountant(event))
    beta = np.zeros(points)
    for e in np.linspace(0.0, min(_MOST_EPSILON, max(1.0, 2.0 * profile.epsilon_at(1e-6))), 200):
        d = profile.delta_at(e)
        beta = np.maximum.reduce([beta, 1.0 - d - math.exp(e) * alpha, math.exp(-e) * (1.0 - d - alpha)])
    return alpha.tolist(), beta.tolist()


def group_epsilon(event: dpa.DpEvent, size: int, at_delta: float, own_delta: float = 0.0) -> float:
    """The least epsilon that is proved for a group of `size` units of privacy at the same delta, beside `own_delta` of
    which the event says nothing; infinity where none is.

    Gaussian queries of mu for one unit have exactly k mu for k of them (Dong, Roth, Su 2022, Theorem 2.14), and rho is
    k^2 rho (Bun and Steinke 2016, Proposition 1.9). Anything else goes unit by unit, see `_epsilon_by_chain`.
    """
    if size == 1 or not is_private(event):
        return epsilon(event, at_delta - own_delta)
    parts = list(leaves(event))
    if own_delta == 0 and all(isinstance(leaf, dpa.GaussianDpEvent) for leaf, _ in parts):
        return gdp_epsilon(size * math.sqrt(2.0 * total_rho(event)), at_delta)
    by_rho = own_delta == 0 and all(_has_rho(leaf) for leaf, _ in parts)
    whole = zcdp_epsilon(size**2 * total_rho(event), at_delta) if by_rho else math.inf
    return (
        whole
        if primary_accountant(event) == "zcdp" and by_rho
        else min(whole, _epsilon_by_chain(event, size, at_delta, own_delta))
    )


def replaced_epsilon(event: dpa.DpEvent, at_delta: float) -> float:
    """The epsilon for replacing one unit by another, by the losses of that; infinity where they are not known.

    It holds of queries that both units are asked in, not of parts of the data set, each of which has one of them. It is
    less than that of a group of two under sampling: both units have one coin between them, not two.

    A Gaussian query on a Poisson sample is dominated by the mixtures around opposite means. Without the unit its law
    is N(0), with it N(x) or N(x'), lengths at most 1 in units of sensitivity. For alpha >= 1 the divergence is q times
    the largest N(x)(S) - a N(0)(S) - b N(x')(S) of any set S, where a and b are not negative. By Neyman and Pearson a
    set with N(x)(S) = p has at least as much of N(0) as a half-line has at distance 1, and of N(x') as one has at
    distance 2; with opposite means one half-line has the least of both. Below 1 the two change places. Dominating pairs
    compose (Zhu, Dong, Wang 2022, Theorem 10). In noisy integer counts one less and one more move two counts, whose
    noise is independent, so each moves as by itself.
    """
    if not is_private(event) or not all(_knows_replacing(leaf) for leaf, _ in leaves(event)):
        return math.inf
    return _replaced_losses(json.dumps(events.to_json(event)), _GRID).epsilon(at_delta)


def _knows_replacing(leaf: dpa.DpEvent) -> bool:
    inner = leaf.event if isinstance(leaf, dpa.PoissonSampledDpEvent) else leaf
    return isinstance(inner, dpa.GaussianDpEvent) or isinstance(leaf, DiscreteGaussianDpEvent)


def _epsilon_by_chain(event: dpa.DpEvent, size: int, at_delta: float, own_delta: float) -> float:
    """The epsilon of a group, from the profile of one unit.

    P(S) <= e^eps Q(S) + delta(eps) for neighbours P and Q and any eps. So along a chain of k neighbours, with an eps of
    its own for each, P_0(S) <= e^(eps_1 + ... + eps_k) P_k(S) + D, where D adds up the deltas, each times e to the eps
    before it. With one eps for all that is Lemma 2.2 of Vadhan 2017; the best of them is the k-fold composition of the
    trade-off (Dong, Roth, Su 2022, Theorem 2.14). Each chain here is the best one of some probability P_k(S). The delta
    of the group is convex in e^eps, so what lies between two chains is proved as well.
    """
    slopes, deltas = _lines(json.dumps(events.to_json(event)))
    lines = slopes, _extend_below_zero(slopes, np.minimum(1.0, deltas + own_delta))
    low, high = -_MOST_EPSILON, 0.0  # logarithms of P_k(S): the smaller, the more epsilon and the less delta
    few, many = _chain(*lines, size, low), _chain(*lines, size, high)
    if few.delta > at_delta:
        return math.inf
    while high - low > _CHAIN_END:
        middle = 0.5 * (low + high)
        found = _chain(*lines, size, middle)
        low, few, high, many = (middle, found, high, many) if found.delta <= at_delta else (low, few, middle, found)
    if many.delta <= at_delta or many.epsilon >= few.epsilon:
        return max(0.0, few.epsilon)
    share = (at_delta - few.delta) / (many.delta - few.delta)
    return max(0.0, few.epsilon + math.log1p(share * math.expm1(many.epsilon - few.epsilon)))


class _Chain(NamedTuple):
    """What one chain of neighbours proves."""

    epsilon: float
    delta: float


def _chain(slopes: np.ndarray, deltas: np.ndarray, size: int, log_start: float) -> _Chain:
    """From the far end, whose probability of an event has this logarithm: each time the least bound of the next."""
    total, delta, here = 0.0, 0.0, log_start
    with np.errstate(divide="ignore"):
        log_deltas = np.log(deltas)
    for _ in range(size):
        bounds = np.logaddexp(slopes + here, log_deltas)
        best = int(bounds.argmin())
        total, here = total + float(slopes[best]), float(bounds[best])
        delta = delta * math.exp(min(float(slopes[best]), _MOST_EPSILON)) + float(deltas[best])
    return _Chain(total, delta)


@functools.lru_cache(maxsize=64)
def _lines(body: str) -> tuple[np.ndarray, np.ndarray]:
    """Ascending epsilons, of either sign and symmetric, and the delta of one unit at the absolute value of each.

    At the tiny deltas that groups need RDP may be below privacy-loss distributions cut off on a grid.
    """
    event = events.from_json(json.loads(body))
    profiles = [_profile(event, accountant) for accountant in {primary_accountant(event), "rdp"}]
    end = min(_MOST_EPSILON, min(float(profile.epsilon_at(_LEAST_DELTA)) for profile in profiles))
    half = np.linspace(0.0, end, _LINES)
    deltas = np.minimum.reduce(
        [_deltas_at(event, accountant, half) for accountant in {primary_accountant(event), "rdp"}]
    )
    return np.concatenate([-half[:0:-1], half]), np.concatenate([deltas[:0:-1], deltas])


def _deltas_at(event: dpa.DpEvent, accountant: str, at: np.ndarray) -> np.ndarray:
    if accountant == "pld":
        return pld(event, PLANNED_GRID).deltas(at)
    profile = _profile(event, accountant)
    return np.array([profile.delta_at(one) for one in at.tolist()])


def _extend_below_zero(slopes: np.ndarray, deltas: np.ndarray) -> np.ndarray:
    """Of an epsilon below 0: what the other order of neighbours says of all that is not in S."""
    return np.where(slopes < 0, -np.expm1(np.minimum(slopes, 0.0)) + np.exp(np.minimum(slopes, 0.0)) * deltas, deltas)


@functools.lru_cache(maxsize=256)
def _epsilon(body: str, at_delta: float, accountant: str) -> float:
    return float(_profile(events.from_json(json.loads(body)), accountant).epsilon_at(at_delta))


def _profile(event: dpa.DpEvent, accountant: str) -> _Profile:
    if accountant == "pld":
        loss = pld(event)
        return _Profile(loss.delta, loss.epsilon)
    if accountant == "zcdp":
        rho = total_rho(event)
        return _Profile(lambda e: zcdp_delta(rho, e), lambda d: zcdp_epsilon(rho, d))
    from dp_accounting.rdp import compute_epsilon

    renyi = rdp(event)
    return _Profile(lambda e: _rdp_delta(renyi, e), lambda d: compute_epsilon(ORDERS, renyi, d)[0])


def _rdp_delta(divergences: np.ndarray, at_epsilon: float) -> float:
    """The delta that Renyi divergences at `ORDERS` imply (Canonne, Kamath, Steinke 2020, Proposition 12)."""
    order = np.array(ORDERS)
    bounds = (order - 1.0) * (divergences - at_epsilon + np.log1p(-1.0 / order)) - np.log(order)
    return math.exp(min(0.0, float(bounds.min())))
