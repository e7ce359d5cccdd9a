"""Noise on counts and selection among candidates, through OpenDP's exact samplers (operating system entropy)."""

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

from palimpsest import validate


def discrete_gaussian(counts: Sequence[int], sigma: float) -> list[int]:
    """Return counts plus independent discrete Gaussian noise of scale `sigma`.

    Guarantee: 1/(2 sigma^2)-zCDP for adding or removing one unit, where one unit moves one count by one
    (L2 sensitivity 1; Canonne, Kamath, Steinke 2020, Theorem 14). The sampler is exact: no floating point.

    Raises:
        ValueError: if sigma is not positive.
    """
    validate.require_positive(sigma=sigma)
    return list(_gaussian(float(sigma))([int(count) for count in counts]))


def gumbel_top_k(scores: Sequence[int], k: int, scale: float) -> list[int]:
    """Return the indices of the k largest scores after Gumbel noise of `scale`, best first.

    Guarantee: (k / (8 scale^2))-zCDP when adding one unit only raises scores, each by at most one (monotone,
    L-infinity sensitivity 1). The k best come out as they would from k exponential mechanisms, one after the other,
    each over what those before it left (Durfee and Rogers 2019, section 4.1). The privacy losses of one pick's outcomes
    lie within a range of 1 / scale (section 4.2; scores that may fall as well would need twice that), which makes it
    1 / (8 scale^2)-zCDP (Cesar and Rogers 2021, Lemma 3.2), and zCDP adds up. The sampler is exact: it compares noisy
    scores to as many bits as their order takes.

    Raises:
        ValueError: if scale is not positive or k is not between 1 and the number of scores.
    """
    validate.require_positive(scale=scale)
    validate.require_in_range(1, len(scores), k=k)
    return list(_top_k(k, float(scale))([int(score) for score in scores]))


@cache
def _opendp() -> Any:
    """Import OpenDP, which is heavy; a plan only names what noise costs and needs none of it."""
    import opendp.prelude

    opendp.prelude.enable_features("contrib")
    return opendp.prelude


@lru_cache(maxsize=64)
def _gaussian(sigma: float) -> Any:
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="i64")
    return dp.m.make_gaussian(*space, scale=sigma)


@lru_cache(maxsize=64)
def _top_k(k: int, scale: float) -> Any:
    """Make noisy maxima with the noise that suits zCDP, which is Gumbel's."""
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.linf_distance(T="i64", monotonic=True)
    return dp.m.make_noisy_top_k(*space, dp.zero_concentrated_divergence(), k=k, scale=scale)
