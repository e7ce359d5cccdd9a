"""Numbers of bounds: what is shown holds, and is as near as its digits allow."""

import math

from hypothesis import given
from hypothesis import strategies as st

from palimpsest.report.formats import at_least, at_most

VALUES = st.floats(1e-12, 1e12)
DIGITS = st.integers(1, 6)


def read(text: str) -> float:
    raised = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    mantissa, _, exponent = text.partition(" × 10")
    return float(mantissa) * 10.0 ** int(exponent.translate(raised) or 0)


@given(VALUES, DIGITS)
def test_a_shown_bound_holds(value: float, digits: int) -> None:
    """But for the digits that two machines may differ in."""
    step = 1.001 * 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    assert value * (1 - 1e-9) <= read(at_most(value, digits)) <= value + step
    assert value - step <= read(at_least(value, digits)) <= value * (1 + 1e-9)


@given(st.integers(1, 999), st.integers(-12, 9), st.floats(-1e-12, 1e-12))
def test_a_number_of_few_digits_is_shown_as_it_is_whatever_a_machine_makes_of_it(
    digits: int, power: int, off: float
) -> None:
    value = digits * 10.0**power
    assert at_most(value * (1 + off)) == at_least(value * (1 + off))
