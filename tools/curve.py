"""Whole trade-off curves as claims, and their test on independent trials.

A claim is a function f: whoever tells whether a record was there, with a false-positive rate of alpha, misses it with a
rate of at least f(alpha) (Dong, Roth, Su 2022). Every curve here holds for adding and for removing the record, so it is
its own inverse. A test of the whole curve sees a fault that no single (epsilon, delta) on it would.
"""

import functools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import dp_accounting.dp_event as dpa
import numpy as np

from palimpsest import validate
from palimpsest.audit.statistics import Rate, clopper_pearson
from palimpsest.privacy import accounting, events

Curve: TypeAlias = Callable[[float], float]

_LINES = 200
_MOST_EPSILON = 100.0
_LEAST_DELTA = 1e-9  # the curve is drawn up to its epsilon
_ORDERS = 1.0 + np.geomspace(1e-2, 1e3, 100)
_HALVINGS = 40


@dataclass(frozen=True)
class CurveTest:
    """A claimed curve, tested on independent trials at a threshold fixed in advance."""

    false_positives: Rate  # flagged trials without the record; both intervals hold together at confidence 1 - alpha
    true_positives: Rate  # flagged trials with it
    allowed: float  # the largest true-positive rate that the claim allows at the upper end of the false-positive rate
    epsilon: float  # lower bound on epsilon (`independent_epsilon`)
    # the same for an attack that makes no mistake: the largest epsilon that so many trials could refute.
    epsilon_max: float

    @property
    def violated(self) -> bool:
        """TPR_low > 1 - f(FPR_high)."""
        return self.true_positives.low > self.allowed


def curve_test(without: np.ndarray, present: np.ndarray, curve: Curve, delta: float, alpha: float) -> CurveTest:
    """Whether so many true and false positives refute the claim.

    Both rates are Clopper-Pearson at alpha / 2, so a true claim is refuted with probability at most alpha (the
    trials being independent, and whatever flags them fixed before they are seen). As `curve` is its own inverse, the
    same test holds for flagging absence. Coins of one training run whose canaries share weights are not independent.

    Args:
        without: whether each trial without the record was flagged, bool (negatives,).
        present: whether each trial with it was flagged, bool (positives,).
        delta: at which lower bounds on epsilon are read.
    """
    validate.require_positive(negatives=len(without), positives=len(present), alpha=alpha)
    false, true = (Rate.exact(int(side.sum()), len(side), 1.0 - alpha) for side in (without, present))
    bound = independent_epsilon(false.count, false.n, true.n - true.count, true.n, delta, alpha)
    most = independent_epsilon(0, false.n, 0, true.n, delta, alpha)
    return CurveTest(false, true, 1.0 - curve(false.high), bound, most)


def independent_epsilon(
    false_positives: int, negatives: int, false_negatives: int, positives: int, delta: float, alpha: float
) -> float:
    """Lower bound on epsilon at confidence 1 - alpha, from independent trials at a threshold fixed in advance.

    max(ln((1 - delta - FNR) / FPR), ln((1 - delta - FPR) / FNR)) at the upper ends of both rates, each Clopper-Pearson
    at alpha / 2 (Jagielski, Ullman and Oprea 2020; the two errors' region: Kairouz, Oh and Viswanath 2015).

    Negatives are the trials without the record, positives those with it.

    >>> round(independent_epsilon(0, 1000, 0, 1000, delta=1e-5, alpha=0.05), 3)
    5.601
    """
    validate.require_in_range(0, 1, delta=delta)
    fpr = clopper_pearson(false_positives, negatives, 1.0 - alpha).high
    fnr = clopper_pearson(false_negatives, positives, 1.0 - alpha).high
    ratios = ((1.0 - delta - fnr) / fpr, (1.0 - delta - fpr) / fnr)
    return max(0.0, math.log(max(*ratios, 1.0)))


# --- claims ----------------------------------------------------------------------------------------------------------


def event_curve(event: dpa.DpEvent) -> Curve:
    """The curve that the ledger's events promise: what its primary accountant proves.

    From privacy-loss distributions by 200 lines, each the (eps, delta(eps)) of the worse direction; from the rho of
    zCDP by `zcdp_curve`. Either is at or below the event's true curve, so it is refuted only where the truth is.
    """
    if not accounting.is_private(event):
        return lambda alpha: 0.0
    if accounting.primary_accountant(event) == "zcdp":
        return zcdp_curve(accounting.total_rho(event))
    return _lines(*_points(json.dumps(events.to_json(event))))


def zcdp_curve(rho: float, own_delta: float = 0.0) -> Curve:
    """The curve of rho-zCDP: the two rates' own Renyi divergences are at most rho a at every order a.

    Flagging is post-processing, so D_a(Bern(TPR) || Bern(FPR)) <= rho a and the same the other way round (Bun and
    Steinke 2016, Lemma 2.2; Balle et al. 2020 show that nothing better follows from such bounds). Tighter than the way
    through (epsilon, delta). A hundred orders stand for all: that only weakens the claim.

    Args:
        rho: what the event says.
        own_delta: what it does not: the first argument of each divergence may be a law within this total variation of
            the output's, as of `privacy.limited_domain`.
    """
    validate.require_positive(rho=rho)

    def least(alpha: float) -> float:
        low, high = alpha, 1.0
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if _within(middle, alpha, rho, own_delta) else (low, middle)
        return 1.0 - high

    return least


@functools.lru_cache(maxsize=16)
def _points(body: str) -> tuple[np.ndarray, np.ndarray]:
    """Epsilons from 0 up, and the delta at each."""
    event = events.from_json(json.loads(body))
    top = min(_MOST_EPSILON, max(1.0, accounting.epsilon(event, _LEAST_DELTA)))
    epsilons = np.linspace(0.0, top, _LINES)
    return epsilons, np.array([accounting.delta(event, at) for at in epsilons.tolist()])


def _lines(epsilons: np.ndarray, deltas: np.ndarray) -> Curve:
    slopes = np.exp(epsilons)

    def least(alpha: float) -> float:
        return float(max(0.0, (1.0 - deltas - slopes * alpha).max(), ((1.0 - deltas - alpha) / slopes).max()))

    return least


def _within(tpr: float, fpr: float, rho: float, own_delta: float) -> bool:
    """Whether two rates, tpr >= fpr, may be those of one flag under a claim of rho-zCDP."""
    there, absent = max(tpr - own_delta, fpr), min(fpr + own_delta, tpr)  # the first argument of either divergence
    return bool(np.all(_renyi(there, fpr) <= rho * _ORDERS) and np.all(_renyi(absent, tpr) <= rho * _ORDERS))


def _renyi(p: float, q: float) -> np.ndarray:
    """D_a(Bern(p) || Bern(q)) at `_ORDERS`, shape (orders,)."""
    if p == q or not 0.0 < q < 1.0:
        return np.full(len(_ORDERS), 0.0 if p == q else math.inf)
    heads = _ORDERS * _log(p) + (1.0 - _ORDERS) * math.log(q)
    tails = _ORDERS * _log(1.0 - p) + (1.0 - _ORDERS) * math.log1p(-q)
    return np.logaddexp(heads, tails) / (_ORDERS - 1.0)


def _log(x: float) -> float:
    return math.log(x) if x > 0.0 else -math.inf
