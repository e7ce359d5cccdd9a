"""How an epsilon and a delta are shown: on the side that promises no more than there is."""

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, Context

_SURE = Context(prec=10)  # digits behind which sums of floats may differ


def up(epsilon: float) -> str:
    """An epsilon that is charged or proved, rounded up: none is shown as less than it is.

    >>> up(9.14238), up(0.0002), up(3.0000000000000004), up(math.inf)
    ('9.143', '0.001', '3.000', '∞')
    """
    return _thousandths(math.ceil, epsilon)


def down(epsilon: float) -> str:
    """An epsilon that is left, rounded down.

    >>> down(10.0 - 9.14238), down(10.0 - 7.0)
    ('0.857', '3.000')
    """
    return _thousandths(math.floor, epsilon)


def delta_up(delta: float) -> str:
    """A delta, to three digits and rounded up: an epsilon holds at any larger delta, and at no smaller one.

    >>> delta_up(1.0004e-5), delta_up(1e-5), delta_up(0.0), delta_up(1 / 8396 / 9)
    ('1.01e-05', '1e-05', '0', '1.33e-05')
    """
    rounded = Context(prec=3, rounding=ROUND_CEILING).plus(_SURE.create_decimal_from_float(delta))
    return f"{float(rounded):.3g}"


def _thousandths(side: Callable[[float], int], epsilon: float) -> str:
    """Rounded to that side, but for what sums of floats leave behind."""
    return f"{side(round(1000.0 * epsilon, 6)) / 1000:.3f}" if math.isfinite(epsilon) else "∞"
