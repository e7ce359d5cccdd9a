"""Picks of the bins with the most votes, among a histogram's leading bins, with a bottom that ends the picks.

Durfee and Rogers, "Practical Differentially Private Top-k Selection with Pay-what-you-get Composition" (2019), with the
cost of all k picks. Adjacency: one unit of privacy, a record or a person, adds or removes one vote.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dp_accounting.dp_event import DpEvent, NonPrivateDpEvent, ZCDpEvent

from palimpsest import validate
from palimpsest.privacy.events import gumbel_rho
from palimpsest.privacy.queries import gumbel_top_k

_SCALES = 2.0**-20, 2.0**40  # in between rho is finite and the bottom fits into 64 bits
_ROUNDED_OFF = 2.0**-40  # more, relative, than a logarithm and two products lose
_MOST_BINS = 2**31


@dataclass(frozen=True)
class LimitedDomain:
    """The k bins with the most votes, found among the `domain` largest, as far as they pass a noisy bottom.

    Bins are put in order of their counts, the largest first, equal ones by their index. The first `domain` of them can
    be picked. The bottom has the count of the next one (0 where there is none) and `offset` on top. Gumbel noise of
    `scale` is added to each of these counts and to the bottom's; the bins above the bottom come out in the order of
    their noisy counts, at most `picks`.

    Guarantee: write P and Q for what comes out without and with one vote more, in either order. There is a P' within
    total variation `delta` of P whose Renyi divergence from Q is at most rho a at every order a > 1, rho = picks /
    (8 scale^2). Proof. The vote is for bin j, and C(n) is the (domain + 1)-th count.

    1. The same bins can be picked with and without the vote. Then either j is among them and only its count rises, by
       one, or it is not, and only the bottom rises, by 0 or 1. This is `gumbel_top_k` on monotone scores of sensitivity
       1, cut off at the bottom: rho for `picks` picks, of which the bottom ends some unused. P' = P.
    2. Otherwise j came in, and the one bin that left, i, was the last of those that can be picked: nothing else moves.
       Let c be the (domain + 1)-th count without the vote. As i was ahead of j and now is behind it,
       count(j) <= c <= count(i) <= count(j) + 1. With the vote, i is the (domain + 1)-th. So if i and j are called by
       one name, x, then x has count(i) without the vote and count(j) + 1 with it, the bottom has c + offset without and
       count(i) + offset with it, and all others stay: the counts rise by 0 or 1 again. Either x rises and the bottom
       does not, or the bottom rises and x does not, or neither. So the outcomes with x in the place of i and of j are
       rho apart as in 1. Take for P' those of P with the one name put for the other.
    3. P' and P differ only where x comes out. Both times its count is at most one above that of the (domain + 1)-th
       bin: count(i) <= c + 1, and count(j) + 1 <= count(i) + 1. To come out it has to pass the bottom, which it does
       with probability w / (1 + w), w = exp((1 - offset) / scale) <= delta at most. A larger offset makes w smaller and
       changes nothing in 1 and 2, so it is rounded up to a whole number.

    T such picks, each chosen after the answers of those before, and other mechanisms among them, compose: the P' of
    all, one after the other, is within the sum of the deltas of P (a coupling fails at most that often), and Renyi
    divergences from Q add up. A set that has probability at most e^eps Q + d under P' has at most e^eps Q + d + sum
    delta under P. So the deltas are added to the one that converts the sum of divergences, and are not multiplied by
    e^eps. That a unit has one vote is the caller's part. All picks together are (eps, delta + sum delta)-DP for one
    unit in both orders; what that is for a group follows as for any mechanism (`accounting.group_epsilon`).

    The cost is that of `picks` picks, also where fewer come out; T calls cost T times as much.

    Attributes:
        domain: how many bins can be picked, Kbar.
        picks: how many are picked at most, k, up to `domain`.
        scale: of the Gumbel noise, b, in votes; 0 for the exact k largest, which is not private.
        delta: the most that the bottom may leave of the chance that a unit shows through which bins can be picked.
    """

    domain: int
    picks: int
    scale: float
    delta: float

    def __post_init__(self) -> None:
        validate.require_in_range(1, _MOST_BINS, domain=self.domain)
        validate.require_in_range(1, self.domain, picks=self.picks)
        if self.scale != 0:
            validate.require_in_range(*_SCALES, scale=self.scale)
            validate.require_positive(delta=self.delta)
            validate.require_in_range(0.0, 1.0, delta=self.delta)

    def event(self) -> DpEvent:
        return ZCDpEvent(gumbel_rho(self.picks, self.scale)) if self.scale > 0 else NonPrivateDpEvent()

    @property
    def own_delta(self) -> float:
        """The delta that one call adds beside its event."""
        return self.delta if self.scale > 0 else 0.0

    @property
    def offset(self) -> int:
        """The number of whole votes by which the bottom is above the (domain + 1)-th bin."""
        return math.ceil(gap(self.scale, self.delta) * (1.0 + _ROUNDED_OFF))

    def pick(self, counts: Sequence[int]) -> list[int]:
        """Return the indices of the bins picked by their private counts, largest noisy count first; perhaps none."""
        leading, scores = self.score_bins(counts)
        if self.scale == 0:
            return leading[: self.picks]
        order = gumbel_top_k(scores, min(self.picks, len(scores)), self.scale)
        above = order[: order.index(len(leading))] if len(leading) in order else order
        return [leading[place] for place in above]

    def score_bins(self, counts: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the bins that can be picked, their counts and, last, the bottom's: private, before noise is added."""
        order = sorted(range(len(counts)), key=lambda index: (-counts[index], index))
        leading, rest = order[: self.domain], order[self.domain :]
        if self.scale == 0:
            return leading, [counts[index] for index in leading]
        bottom = (counts[rest[0]] if rest else 0) + self.offset
        return leading, [*(counts[index] for index in leading), bottom]


def gap(scale: float, delta: float) -> float:
    """Return the votes a bin needs above the (domain + 1)-th to come out as likely as the bottom: 1 + b ln(1 / delta).

    >>> round(gap(25.57, 1.31e-5))
    288
    """
    return 1.0 - scale * math.log(delta)


def delta_for(total: float, rounds: int) -> float:
    """Return the delta of each call, so that `rounds` times it, added up or multiplied, never passes `total`."""
    validate.require_positive(total=total)
    validate.require_in_range(1, math.inf, rounds=rounds)
    return total / rounds * (1.0 - _ROUNDED_OFF)
