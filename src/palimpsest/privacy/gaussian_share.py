"""The share of a Gaussian budget that a charge takes: the least Gaussian that covers its event, beside a small delta.

A pair of output laws of a mechanism on neighbours is covered by (mu, t) where, in both orders of the two,
delta(epsilon) <= t + (1 - t) delta_G(epsilon; mu) for every epsilon >= 0, with delta_G that of one Gaussian query of
sensitivity over noise mu. For negative epsilon the same then holds, since both sides turn into each other's order in
the same way. The right-hand side is the profile of a mechanism that tells all with probability t and asks that Gaussian
query otherwise, so the pair is a post-processing of it (Blackwell; Dong, Roth, Su 2022, Theorem 2.10). That is why
covers of adaptive queries add up: mu in squares, t as it stands; see `ledger.rules`.
"""

import json
import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import dp_accounting.dp_event as dpa
import numpy as np

from palimpsest.privacy import accounting, events

_POINTS = 8193  # of epsilon, denser near 0
_HALVINGS = 60
_ROUND = 1e-9  # relative, above what this arithmetic loses; profiles count their own rounding
_SLACK = 1e-6  # of mu, between releases of the libraries that count
_MOST_MU = 100.0
_ORDERS = 1.0 + np.geomspace(1e-3, 1e4, 600)  # any order's bound holds, so a grid of them does

_Profile: TypeAlias = Callable[[np.ndarray], np.ndarray]  # upper bounds of delta at ascending epsilons


class Share(NamedTuple):
    """The share of a Gaussian budget that one charge takes.

    Attributes:
        mu: sensitivity over noise of the Gaussian query that covers the charge; infinite where none does.
        beside: the delta beside that Gaussian, including the delta that the charge's event does not carry.
    """

    mu: float
    beside: float


def needs_delta(event: dpa.DpEvent, own_delta: float = 0.0) -> bool:
    """Return whether a Gaussian covers the event only beside a delta: all but Gaussian queries, whose mu adds up."""
    return own_delta > 0 or any(type(leaf) is not dpa.GaussianDpEvent for leaf, _ in accounting.leaves(event))


def cover_charge(event: dpa.DpEvent, own_delta: float, beside: float) -> Share:
    """Return the least Gaussian that covers a whole charge beside a delta of `beside`; infinite where none is found.

    Guarantee: delta(epsilon) + own_delta <= t + (1 - t) delta_G(epsilon; mu) for every epsilon >= 0 and both orders of
    neighbours, with t = own_delta + beside. Between two points of the grid both sides fall, so the left one at the
    lower point is held against the right one at the upper point; from the last point on the left one is below t. What
    adapts within a charge has the same profile: that of its dominating pair (Zhu, Dong, Wang 2022, Theorem 10).

    Args:
        event: the composition of a whole charge.
        own_delta: a delta that the event does not carry.
        beside: the delta that the cover may take beside that; plain Gaussian queries take none.
    """
    if not needs_delta(event, own_delta):
        return Share(math.sqrt(sum(count / leaf.noise_multiplier**2 for leaf, count in accounting.leaves(event))), 0.0)
    if beside <= 0 or not accounting.is_private(event):
        return Share(math.inf, own_delta)
    return _search_share(json.dumps(events.to_json(event)), own_delta, beside)


@lru_cache(maxsize=1024)
def _search_share(body: str, own_delta: float, beside: float) -> Share:
    mus = (least_mu(profile, own_delta, beside) for profile in _profiles(body))
    return Share(next((mu for mu in mus if mu < math.inf), math.inf), own_delta + beside)


@lru_cache(maxsize=64)
def _profiles(body: str) -> tuple[_Profile, _Profile]:
    """Return two profiles of an event in its JSON form; either one proves a cover."""
    event = events.from_json(json.loads(body))
    return _memoise_profile(tightest_profile(event)), _memoise_profile(bounds(event, "rdp"))


def _memoise_profile(profile: _Profile) -> _Profile:
    """Compute a profile only once on each grid: the covers of one event meet few grids and many shares."""
    kept: dict[bytes, np.ndarray] = {}

    def at(epsilons: np.ndarray) -> np.ndarray:
        key = epsilons.tobytes()
        if key not in kept:
            kept[key] = profile(epsilons)
        return kept[key]

    return at


def covers(share: Share, event: dpa.DpEvent, own_delta: float) -> bool:
    """Return whether a share covers a whole charge, by the accountants of today; see `cover_charge`.

    It checks a single mu where `cover_charge` tries many, so that a long ledger is read quickly.
    """
    beside, mu = share.beside - own_delta, share.mu * (1.0 + _SLACK)
    if mu == math.inf:
        return True
    if not needs_delta(event, own_delta) or beside <= 0 or not accounting.is_private(event):
        return mu >= cover_charge(event, own_delta, beside).mu
    return _is_covered(json.dumps(events.to_json(event)), own_delta, beside, mu)


@lru_cache(maxsize=4096)
def _is_covered(body: str, own_delta: float, beside: float, mu: float) -> bool:
    mu = max(mu, math.ulp(0.0))  # no event that needs a delta is covered by the Gaussian that tells nothing
    grids = (_required_deltas(profile, own_delta, beside) for profile in _profiles(body))
    return any(bool(np.all(accounting.gdp_deltas(mu, upper) >= needed)) for needed, upper in filter(None, grids))


def tightest_profile(event: dpa.DpEvent) -> _Profile:
    """Return the least bound at each epsilon, by the event's accountant and by its losses where it has them.

    For choices of bounded range, rho gives the tighter bound far from epsilon 0 and the losses near it.
    """
    own = accounting.primary_accountant(event)
    profiles = [bounds(event, own)]
    if own != "pld" and accounting.has_losses(event):
        profiles.append(bounds(event, "pld"))
    return lambda at: np.minimum.reduce([profile(at) for profile in profiles])


def least_mu(profile: _Profile, own_delta: float, beside: float) -> float:
    """Return the mu of the least Gaussian that covers a profile, which never rises; see `cover_charge`."""
    found = _required_deltas(profile, own_delta, beside)
    if found is None:
        return math.inf
    needed, upper = found
    low, high = np.zeros(len(needed)), np.full(len(needed), _MOST_MU)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        enough = accounting.gdp_deltas(middle, upper) >= needed
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    mu = float(high.max(initial=0.0)) * (1.0 + _ROUND)
    return mu if mu < _MOST_MU else math.inf


def _required_deltas(profile: _Profile, own_delta: float, beside: float) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the deltas that a Gaussian must reach and their epsilons; None where the profile never ends."""
    end = _end(profile, beside)
    if not math.isfinite(end):
        return None
    at = end * np.linspace(0.0, 1.0, _POINTS) ** 2
    above = profile(at)[:-1] * (1.0 + _ROUND) - beside * (1.0 - _ROUND)
    return above[above > 0] / (1.0 - own_delta - beside), at[1:][above > 0]


def _end(profile: _Profile, beside: float) -> float:
    """Return an epsilon from which on the profile is at most `beside`; infinite where none is found."""
    ends = 2.0 ** np.arange(-20, 10)
    low = profile(ends) <= beside * (1.0 - _ROUND)  # all at once: with losses, one epsilon takes as long as many
    return float(ends[low.argmax()]) if low.any() else math.inf


def bounds(event: dpa.DpEvent, accountant: str) -> _Profile:
    """Return upper bounds of delta at each epsilon, for both orders of neighbours, by one accountant."""
    if accountant == "pld":
        return accounting.pld(event, accounting.PLANNED_GRID).deltas
    if accountant == "zcdp":
        rho = accounting.total_rho(event)
        return lambda at: _renyi_deltas(_ORDERS, rho * _ORDERS, rho, at)
    orders, renyi = np.array(accounting.ORDERS), accounting.rdp(event)
    return lambda at: _renyi_deltas(orders, renyi, float(renyi[0]), at)


def _renyi_deltas(orders: np.ndarray, divergences: np.ndarray, kl: float, at: np.ndarray) -> np.ndarray:
    """Return the least delta by any order (Canonne, Kamath, Steinke 2020, Proposition 12) and Pinsker's inequality.

    Near epsilon 0 no order is as good as the divergence of Kullback and Leibler, which is at most that of any order.
    """
    fixed = (orders - 1.0) * (divergences + np.log1p(-1.0 / orders)) - np.log(orders)
    least = [float(np.min(fixed - (orders - 1.0) * one)) for one in at]
    deltas = np.minimum(np.exp(np.minimum(least, 0.0)), math.sqrt(kl / 2.0))
    return _convex_minorant(np.expm1(at), deltas) if len(at) > 1 else deltas


def _convex_minorant(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the greatest convex function below these points: delta is convex in exp(epsilon), so it bounds."""
    hull: list[tuple[float, float]] = []
    for point in zip(x.tolist(), y.tolist(), strict=True):
        while len(hull) > 1 and _is_above(hull[-1], hull[-2], point):
            hull.pop()
        hull.append(point)
    return np.interp(x, *np.array(hull).T)


def _is_above(point: tuple[float, float], left: tuple[float, float], right: tuple[float, float]) -> bool:
    """Return whether a point is on or above the chord between its neighbours."""
    return (point[1] - left[1]) * (right[0] - left[0]) >= (right[1] - left[1]) * (point[0] - left[0])
