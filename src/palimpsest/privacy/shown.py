"""How an epsilon is shown: to a thousandth, on the side that promises no more than there is."""

import math
from collections.abc import Callable


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


def _thousandths(side: Callable[[float], int], epsilon: float) -> str:
    """Rounded to that side, but for what sums of floats leave behind."""
    return f"{side(round(1000.0 * epsilon, 6)) / 1000:.3f}" if math.isfinite(epsilon) else "∞"
