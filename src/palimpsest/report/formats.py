"""Formats numbers for readers."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any

from palimpsest.workspace import PUBLIC_LM, PUBLIC_ONLY

MISSING = "–"
_SURE = Context(prec=10)  # digits beyond which two machines may differ
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: Any, digits: int = 3) -> str:
    """Format a value for a table cell: significant digits for floats, thousands separators for counts.

    >>> number(2.98123), number(12345), number(None), number("dp3"), number(2.35e-5)
    ('2.98', '12,345', '–', 'dp3', '2.35 × 10⁻⁵')
    """
    if value is None:
        return MISSING
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    mantissa, _, exponent = f"{value:.{digits}g}".partition("e")
    if exponent:
        return f"{mantissa} × 10{str(int(exponent)).translate(_RAISED)}"
    return mantissa.replace("inf", "∞").replace("-", "−")


def at_most(value: Any, digits: int = 3) -> str:
    """Format like `number`, rounded up: what is proved of a value also holds for the one that is shown.

    >>> at_most(2.9801), at_most(2.98), at_most(2.006231, 4), at_most(2.3506e-5), at_most(None)
    ('2.99', '2.98', '2.007', '2.36 × 10⁻⁵', '–')
    """
    return number(_towards(ROUND_CEILING, value, digits), digits)


def at_least(value: Any, digits: int = 3) -> str:
    """Format like `number`, rounded down.

    >>> at_least(2.9899), at_least(0.0)
    ('2.98', '0')
    """
    return number(_towards(ROUND_FLOOR, value, digits), digits)


def _towards(side: str, value: Any, digits: int) -> Any:
    """Round a finite float to so many significant digits to that side; return anything else as it is."""
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    return float(Context(prec=digits, rounding=side).plus(_SURE.create_decimal_from_float(value))) + 0.0


def percent(value: float | None, digits: int = 1) -> str:
    """Format a share in percent.

    >>> percent(0.8534), percent(None)
    ('85.3%', '–')
    """
    return MISSING if value is None else f"{100 * value:.{digits}f}%"


def per_word(epsilon: float, unit: str) -> str:
    """Format the epsilon of a method that protects single words, with its unit: it must not be read as the others.

    >>> per_word(3.0, "record")
    '3 per word (not per record)'
    """
    return f"{at_most(float(epsilon))} per word (not per {unit})"


def shown_epsilon(proved: float | None, per_word: float | None, role: str) -> str:
    """Format the epsilon of a row of the final table; by the row's role where none is proved.

    >>> shown_epsilon(2.98123, None, "release"), shown_epsilon(None, None, "reference")
    ('2.982', '∞')
    """
    if proved is not None:
        return at_most(proved, 4)
    if per_word is not None:
        return f"{at_most(per_word)} a\nword"  # another unit: never shown beside the others without its name
    return {PUBLIC_ONLY: "0", PUBLIC_LM: "0", "reference": "∞"}.get(role, MISSING)


def points(value: float | None, digits: int = 2) -> str:
    """Format a difference of shares in percentage points, with its sign.

    >>> points(0.0042), points(-0.001)
    ('+0.42', '−0.10')
    >>> points(-0.00001)
    '0.00'
    """
    if value is None:
        return MISSING
    text = f"{round(100 * value, digits):+.{digits}f}"
    return text.lstrip("+-") if float(text) == 0 else text.replace("-", "−")
