import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_world import DELTA, gaussian_curve, receipt
from scipy.stats import norm

from palimpsest.errors import DataError
from palimpsest.privacy.receipt import Curve
from palimpsest.report.tradeoff import TradeOff, read_tradeoff


def gaussian(mu: float, points: int) -> TradeOff:
    curve = gaussian_curve(mu, points)
    return TradeOff(np.array(curve["alpha"]), np.array(curve["beta"]), epsilon=math.inf, delta=0.0)


@given(st.floats(0.05, 4), st.integers(5, 200), st.floats(1e-5, 0.999))
def test_never_says_less_of_the_attack_than_it_can_do(mu: float, points: int, fpr: float) -> None:
    assert gaussian(mu, points).true_positives(fpr) >= norm.sf(norm.isf(fpr) - mu) - 1e-9


def test_gaussian_row_of_dong_roth_su() -> None:
    curve = gaussian(1.0, 400)
    assert curve.true_positives(0.01) == pytest.approx(norm.sf(norm.isf(0.01) - 1), abs=1e-4)
    assert curve.advantage() == pytest.approx(2 * norm.cdf(0.5) - 1, abs=1e-3)  # 0.3829


def test_randomised_response_row() -> None:
    """epsilon = ln 3: the truth is told with probability 3/4 (Kairouz et al. 2015)."""
    curve = TradeOff(np.array([0, 0.25, 1]), np.array([1, 0.25, 0]), epsilon=math.log(3), delta=0.0)
    assert curve.true_positives(0.01) == pytest.approx(0.03)
    assert curve.advantage() == pytest.approx(0.5, abs=5e-4)
    assert curve.belief(0.01, 0.01) == pytest.approx(3 * 0.01 / (3 * 0.01 + 0.99))


def test_epsilon_alone_bounds_where_the_curve_says_little() -> None:
    curve = TradeOff(np.array([0.5, 1.0]), np.array([0.0, 0.0]), epsilon=1.0, delta=1e-5)
    assert curve.true_positives(0.01) == pytest.approx(math.e * 0.01 + 1e-5)


def test_a_receipt_without_epsilon_has_no_curve() -> None:
    assert read_tradeoff(receipt("inf", None)) is None


def test_a_querys_own_delta_is_granted_to_the_attack() -> None:
    plain = receipt("dp3", 2.98)
    failing = replace(plain, queries=tuple(replace(line, own_delta=0.01) for line in plain.queries))
    before, after = read_tradeoff(plain), read_tradeoff(failing)
    assert before is not None
    assert after is not None
    assert after.true_positives(0.2) == pytest.approx(before.true_positives(0.2) + 0.02)


def test_a_curve_that_stops_early_is_closed() -> None:
    found = read_tradeoff(receipt("dp3", 2.98, curve=Curve((0.0, 0.1), (1.0, 0.5))))
    assert found is not None
    assert found.alpha[-1] == 1
    assert found.delta == DELTA


@pytest.mark.parametrize(
    "curve",
    [
        Curve((0.0, 1.0), (1.0,)),
        Curve((0.0, 0.0, 1.0), (1.0, 0.5, 0.0)),
        Curve((0.0, 0.5, 1.0), (0.2, 0.5, 0.0)),
        Curve((1.0,), (0.0,)),
    ],
)
def test_what_is_no_curve_is_refused(curve: Curve) -> None:
    with pytest.raises(DataError, match="'dp3'"):
        read_tradeoff(receipt("dp3", 2.98, curve=curve))
