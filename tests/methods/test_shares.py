"""Shares of the labels: what a histogram costs, and how totals are split."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.methods.shared.base import Budget
from palimpsest.methods.shared.shares import divide_total, label_shares, planned_histogram, whole_rho
from palimpsest.privacy.accounting import total_rho, zcdp_epsilon
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.schema import PublicSchema
from tests.methods.predict_settings import predict_settings

SCHEMA = PublicSchema("tiny", "classify", "text", 100, 200, "label", {"a": "", "b": "", "c": ""})
ROWS = [PrivateRow("x", "a")] * 70 + [PrivateRow("x", "b")] * 30


class Answers:
    """Answers queries on invented rows."""

    def ask(self, query):
        return query.run(ROWS, NoiseSource())


def test_a_budget_is_the_rho_that_its_epsilon_allows() -> None:
    assert zcdp_epsilon(whole_rho(Budget(3.0, 1e-6)), 1e-6) == pytest.approx(3.0)
    assert math.isinf(whole_rho(Budget(math.inf, 1e-6)))


@pytest.mark.parametrize("share", [0.01, 0.3])
def test_a_histogram_takes_its_share_of_rho(share: float) -> None:
    settings = predict_settings(label_counts="noisy", histogram_share=share)
    found = planned_histogram(settings, SCHEMA, 0.2)
    assert found is not None
    assert total_rho(found.event()) == pytest.approx(share * 0.2)
    assert found.labels == ("a", "b", "c")
    assert planned_histogram(settings, SCHEMA, math.inf) == LabelHistogram(("a", "b", "c"), 0.0)


def test_one_label_or_a_public_prior_needs_no_histogram() -> None:
    one = PublicSchema("tiny", "classify", "text", 100, 200, "label", {"a": ""})
    assert planned_histogram(predict_settings(label_counts="noisy"), one, 0.2) is None
    assert planned_histogram(predict_settings(label_counts="prior"), SCHEMA, 0.2) is None


def test_shares_are_those_of_the_noisy_counts_and_none_is_zero() -> None:
    settings = predict_settings(label_counts="noisy")
    found = label_shares(Answers(), settings, SCHEMA, LabelHistogram(SCHEMA.label_names, 0.0), "")
    assert found == {"a": pytest.approx(70 / 101), "b": pytest.approx(30 / 101), "c": pytest.approx(1 / 101)}


@pytest.mark.parametrize(
    ("prior", "wanted"), [(None, [1 / 3] * 3), ({"a": 2.0, "b": 1.0, "c": 1.0}, [0.5, 0.25, 0.25])]
)
def test_public_shares_ask_nothing(prior, wanted) -> None:
    found = label_shares(None, predict_settings(label_counts="prior", prior=prior), SCHEMA, None, "")  # type: ignore[arg-type]
    assert list(found.values()) == pytest.approx(wanted)
    assert label_shares(None, predict_settings(), PublicSchema("t", "text", "text", 9, 9), None, "") == {"": 1.0}  # type: ignore[arg-type]


@given(st.integers(0, 500), st.lists(st.floats(0.001, 1.0), min_size=1, max_size=8))
def test_a_total_is_split_whole_and_nearly_by_share(total: int, weights: list[float]) -> None:
    shares = {str(index): weight / sum(weights) for index, weight in enumerate(weights)}
    found = divide_total(total, shares)
    assert sum(found.values()) == total
    assert all(abs(found[label] - share * total) < 1.0 + 1e-9 for label, share in shares.items())
