"""The cost of picks by Gumbel noise; `mechanisms.gumbel_top_k` says why."""

import math

from palimpsest import validate

_MARGIN = 1.0 + 2.0**-40  # of a scale, so that rounding never makes it cost more than rho


def gumbel_scale(picks: int, rho: float) -> float:
    """Return the scale at which `picks` picks cost at most `rho`; 0 where rho is infinite.

    >>> round(gumbel_scale(200, 0.25), 6)
    10.0

    Raises:
        ValueError: if rho is not positive or there is no pick.
    """
    validate.positive(picks=picks)
    if not rho > 0:
        raise ValueError(f"rho must be > 0, got {rho!r}")
    return math.sqrt(picks / (8.0 * rho)) * _MARGIN


def gumbel_rho(picks: int, scale: float) -> float:
    """Return the rho of picks at this scale: picks / (8 scale^2); infinite at 0, where the exact best come out."""
    return picks / (8.0 * scale**2) if scale > 0 else math.inf
