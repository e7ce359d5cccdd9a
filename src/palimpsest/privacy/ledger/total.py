"""The epsilon that is proved of all releases of a data set together, and where its filter stands.

A filter holds at the cap that was fixed beforehand. The epsilon at which a Renyi filter stands is proved as well,
whenever one looks. That of a Gaussian filter is not: where an owner stops depending on the answers, the bound is
weaker than that number. So an owner may register milestones before anything is asked: smaller epsilons, each of which
is a filter of its own.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, Context
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from palimpsest.privacy import accounting
from palimpsest.privacy.ledger.records import Asset, Balance, Cap
from palimpsest.privacy.shown import delta_up, up

_HALVINGS = 60
_ROUND = 1e-9  # relative, above what this arithmetic loses
_ROOM = 1.3  # between two milestones that are proposed, at least


class Total(NamedTuple):
    """The total of one data set, as all released and shown texts state it.

    Attributes:
        counted: what its filter counts, "renyi" or "gdp".
        stands_at: the epsilon of the filter's sums, including standing reservations.
        milestone: the smallest registered epsilon that is not passed; None where there is none.
        cap: the highest cap that the data set has had.
        raised: whether a cap was ever raised.
        holds: whether the charges stay within what is stated, and the deltas beside them within their part of delta: a
            version that was withdrawn may have cost more than was charged.
    """

    counted: str
    delta: float
    stands_at: float
    milestone: float | None
    cap: float
    raised: bool
    holds: bool

    @property
    def epsilon(self) -> float:
        """The proved epsilon of all releases together, at `delta`; infinity where nothing is proved of them.

        Guarantee: let s be this number whenever somebody looks, by whatever rule for stopping. Then for every event E
        the sum over s of P(E, s) - e^s Q(E, s) is at most delta, where s is no cap. The cap bounds all that will ever
        be released, whatever s was.
        """
        if not self.holds:
            return math.inf
        if self.counted == "renyi":
            return self.stands_at
        return self.cap if self.milestone is None else self.milestone

    @property
    def status(self) -> str:
        """How far it is proved: a cap may have been raised because of what was seen, which no theorem covers."""
        if not self.holds:
            return "not covered"
        return "assumed" if self.counted == "gdp" and self.milestone is None and self.raised else "proved"

    @property
    def sentence(self) -> str:
        """The total in words, the same everywhere."""
        if not self.holds:
            return (
                f"All releases together: no epsilon is proved, because charges went beyond what the budget covers. Its "
                f"filter stands at {up(self.stands_at)}."
            )
        at = f"at delta {delta_up(self.delta)}"
        if self.counted == "renyi":
            return f"All releases together: epsilon {up(self.stands_at)} {at}, whenever one looks."
        stands = f"The filter stands at {up(self.stands_at)}, which is no bound."
        raised = " That cap was raised; if what was seen led to it, no theorem covers it." if self.raised else ""
        if self.milestone is None:
            cap = f"epsilon {_format_exact(self.cap)} {at}, the cap.{raised}"
            return f"All releases together, later ones included: {cap} {stands}"
        return (
            f"All releases together: epsilon {_format_exact(self.milestone)} {at}, a milestone that they have not "
            f"passed; with all later ones epsilon {_format_exact(self.cap)} {at}, the cap.{raised} {stands}"
        )


def _format_exact(epsilon: float) -> str:
    """Return a registered epsilon with all of its digits.

    >>> _format_exact(3.0), _format_exact(3.2), _format_exact(3.0000004)
    ('3', '3.2', '3.0000004')
    """
    return repr(float(epsilon)).removesuffix(".0")


def total_of(asset: Asset, balance: Balance, caps: Sequence[Cap]) -> Total:
    """Return the total of an asset with that balance.

    Args:
        asset: with only the milestones that count: those registered before anything was asked.
        caps: every cap that it has had, oldest first; where empty, its present one.
    """
    known = [cap.epsilon for cap in caps] or [asset.epsilon]
    raised = any(later > earlier for earlier, later in pairwise(known))
    stated = milestone(asset, balance.spent)
    within = asset.filter == "renyi" or stated is not None or balance.spent <= max(known)
    holds = within and balance.beside <= balance.most_beside
    return Total(asset.filter, asset.delta, balance.spent, stated, max(known), raised, holds)


def milestone(asset: Asset, stands_at: float) -> float | None:
    """Return the smallest of the asset's milestones that its filter has not passed."""
    passed_at = stands_at * margin(asset.milestones, asset.filter_delta)
    return next((one for one in asset.milestones if passed_at <= one), None)


@lru_cache(maxsize=256)
def margin(milestones: tuple[float, ...], filter_delta: float) -> float:
    """Return the least ratio of a milestone to the filter's present epsilon at which the milestone is not passed.

    Guarantee: the sum over milestones of delta_G(e; mu) is at most `filter_delta`, where mu is the most that charges
    add up to before e is passed, and delta_G that of one Gaussian query. The factor is the least one that all
    milestones can share. So of all ways of sharing delta it costs the dearest milestone least.
    """
    low = high = 1.0
    while _deltas(milestones, filter_delta, high) > filter_delta * (1.0 - _ROUND):
        low, high = high, 2.0 * high - 1.0 + _ROUND
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        enough = _deltas(milestones, filter_delta, middle) <= filter_delta * (1.0 - _ROUND)
        low, high = (low, middle) if enough else (middle, high)
    return high


def _deltas(milestones: Sequence[float], filter_delta: float, factor: float) -> float:
    """Return the delta that the milestones take together, where each is passed at its epsilon divided by the factor."""
    most = (1.0 / accounting.gdp_sigma(epsilon / factor, filter_delta) for epsilon in milestones)
    return sum(accounting.gdp_delta(mu, epsilon) for mu, epsilon in zip(most, milestones, strict=True))


def propose_milestones(first: float, asset: Asset) -> tuple[float, ...]:
    """Propose milestones for an asset whose first plan takes its total to `first`: the least one of two digits that the
    plan does not pass, and the geometric mean of that one and the cap, where there is room."""
    begun = _two_digits(first)
    while begun < asset.epsilon:
        middle = _two_digits(math.sqrt(begun * asset.epsilon))
        found = (begun, middle) if _ROOM * begun < middle < asset.epsilon / _ROOM else (begun,)
        if milestone(replace(asset, milestones=found), first) == begun:
            return found
        begun = _two_digits(begun * (1.0 + _ROUND))
    return ()


def _two_digits(epsilon: float) -> float:
    """Round up to two digits."""
    return float(Context(prec=2, rounding=ROUND_CEILING).create_decimal_from_float(epsilon))
