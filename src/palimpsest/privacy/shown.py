"""Display of epsilons and deltas, rounded to the side that promises no more than there is."""

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

_SURE = Context(prec=10)  # digits beyond which sums of floats may differ


def up(epsilon: float) -> str:
    """Format an epsilon that is charged or proved, rounded up: none is shown as less than it is.

    >>> up(9.14238), up(0.0002), up(3.0000000000000004), up(math.inf)
    ('9.143', '0.001', '3.000', '∞')
    """
    return _thousandths(math.ceil, epsilon)


def down(epsilon: float) -> str:
    """Format an epsilon that is left, rounded down.

    >>> down(10.0 - 9.14238), down(10.0 - 7.0)
    ('0.857', '3.000')
    """
    return _thousandths(math.floor, epsilon)


def delta_up(delta: float) -> str:
    """Format a delta to three digits, rounded up: an epsilon holds at any larger delta, and at no smaller one.

    >>> delta_up(1.0004e-5), delta_up(1e-5), delta_up(0.0), delta_up(1 / 8396 / 9)
    ('1.01e-05', '1e-05', '0', '1.33e-05')
    """
    return _three_digits(ROUND_CEILING, delta)


def delta_down(limit: float) -> str:
    """Format the limit of a delta to three digits, rounded down: what is shown is within the limit.

    >>> delta_down(1.0099e-5), delta_down(1e-5), delta_down(1 / 1500)
    ('1e-05', '1e-05', '0.000666')
    """
    return _three_digits(ROUND_FLOOR, limit)


def _three_digits(side: str, delta: float) -> str:
    return f"{float(Context(prec=3, rounding=side).plus(_SURE.create_decimal_from_float(delta))):.3g}"


def _thousandths(side: Callable[[float], int], epsilon: float) -> str:
    """Round to that side, after removing the residue of floating-point sums."""
    return f"{side(round(1000.0 * epsilon, 6)) / 1000:.3f}" if math.isfinite(epsilon) else "∞"
