"""Statements of private rows: one unit changes as many counts as is charged, in every order of its rows."""

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import dp_accounting as dpa
import pytest
from scipy import stats

from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.query import is_for_persons, is_registered
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.thresholded import StatementCounts, StatementPhrases
from palimpsest.records.statements import Attribute
from tests.privacy.persons import Noted, data_sets, pairs, rows_in

LABELS = ("refund", "praise")
NAME = Attribute("name", {}, r"[A-Z]\w*")
DOES = Attribute("does", {"hums": ("hums", "humming"), "leaks": ("leaks",)})
KINDS = [("A hums", "refund"), ("B hums. A leaks. A hums.", "refund"), ("B hums", "praise"), ("C hums", "unheard of")]
DATA = list(data_sets(KINDS, 2, 2))


def phrases(sigma: float = 0.0, most: int = 2, delta: float = 1e-6) -> StatementPhrases:
    return StatementPhrases((NAME, DOES), LABELS, most, sigma, delta)


def counts(sigma: float = 0.0, most: int = 2, share: float = 0.25) -> StatementCounts:
    return StatementCounts((NAME, DOES), (("A", "B"), ("hums", "leaks")), LABELS, most, sigma, share)


def found(query: StatementPhrases, rows: Sequence[PrivateRow]) -> Counter[tuple[int, str]]:
    """The exact counts."""
    return Counter({(place, value): count for place, value, count in query.run(rows, NoiseSource())})


@pytest.mark.parametrize("most", [1, 2])
def test_a_unit_changes_so_many_values_by_one_and_its_own_have_no_other(most) -> None:
    query, reached = phrases(most=most), 0
    for more, less in pairs(DATA):
        with_one, without = found(query, more), found(query, less)
        changed = {key: with_one[key] - without[key] for key in with_one | without if with_one[key] != without[key]}
        assert set(changed.values()) <= {1}
        assert len(changed) <= query.changed
        reached = max(reached, len(changed))
    assert reached == most == query.changed  # one attribute is open


@pytest.mark.parametrize("most", [1, 2])
def test_a_unit_moves_both_tables_by_no_more_than_is_charged(most) -> None:
    query, longest = counts(most=most), Fraction(0)
    for more, less in pairs(DATA):
        moved = [
            [new - old for new, old in zip(*tables, strict=True)]
            for tables in zip(query.run(more, NoiseSource()), query.run(less, NoiseSource()), strict=True)
        ]
        first, by_label = (Fraction(sum(step * step for step in table), most) for table in moved)
        longest = max(longest, first * Fraction(3, 4) + by_label * Fraction(1, 4))
    assert longest == 1


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_the_noise_of_both_tables_together_is_what_is_charged(share) -> None:
    query, noise = counts(3.0, 2, share), Noted()
    answer = query.run([], noise)  # type: ignore[arg-type]
    assert query.event() == dpa.GaussianDpEvent(3.0)
    assert noise.drawn == [(4, query.stds[0]), (8 if share else 0, query.stds[1])]
    assert [len(table) for table in answer] == [4, 8 if share else 0]
    both = sum(2 / std**2 for std in query.stds if std)
    assert both <= 1 / 3.0**2 <= both * (1 + 1e-9)


@pytest.mark.parametrize("delta", [1e-9, 1e-3])
def test_a_value_of_one_unit_alone_comes_out_no_more_often_than_delta(delta) -> None:
    query, noise = phrases(2.0, 30, delta), Noted()
    assert query.run([], noise) == []  # type: ignore[arg-type]
    assert noise.drawn == [(0, query.std)]
    assert query.std == pytest.approx(math.sqrt(30) * 2.0)
    out, before = (
        query.changed * stats.norm.sf((least - 1.5) / query.std) for least in (query.threshold, query.threshold - 1)
    )
    assert out <= delta < before * (1 + 1e-9)
    assert (query.event(), query.own_delta) == (dpa.GaussianDpEvent(2.0), delta)
    assert (phrases().event(), phrases().own_delta) == (dpa.NonPrivateDpEvent(), 0.0)


def test_values_come_out_by_their_noisy_counts_and_only_above_the_threshold() -> None:
    query = phrases(1.0, 1)
    rows = [PrivateRow(f"{name} hums", "refund") for name in "AB" for _ in range(query.threshold - (name == "B"))]
    assert query.run(rows, Noted()) == [(0, "A", query.threshold)]  # type: ignore[arg-type]


def test_the_threshold_is_for_the_noisy_count() -> None:
    query = phrases(1.0, 1)
    rows = [PrivateRow("A hums", "refund")] * (query.threshold - 3)
    assert query.run(rows, Noted(3)) == [(0, "A", query.threshold)]  # type: ignore[arg-type]
    assert query.run(rows, Noted(2)) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("query", [phrases(), phrases(most=1), counts(), counts(most=1)])
def test_the_order_of_a_persons_rows_does_not_show(query: Any) -> None:
    assert all(
        query.run(rows_in(data), NoiseSource()) == query.run(rows_in(data, backwards=True), NoiseSource())
        for data in DATA
    )


def test_what_is_counted() -> None:
    rows = [PrivateRow("A hums. A is humming! B leaks. C leaks", "refund"), PrivateRow("A hums", "praise")]
    assert counts().run(rows, NoiseSource()) == [[2, 0, 0, 1], [1, 0, 0, 1, 1, 0, 0, 0]]
    unlabelled = StatementCounts((DOES,), (("hums", "leaks"),), ("",), 1, 0.0, 0.0)
    assert unlabelled.run([PrivateRow("it hums"), PrivateRow("it leaks. it hums")], NoiseSource()) == [[1, 1], []]


def test_both_are_for_persons_and_stored() -> None:
    for query in (phrases(1.0), counts(1.0)):
        assert is_registered(query)
        assert is_for_persons(query)
        assert query.stores_answer  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (phrases, {"sigma": -1.0}),
        (phrases, {"sigma": 1.0, "delta": 0.0}),
        (phrases, {"most": 0}),
        (counts, {"most": 0}),
        (counts, {"share": 1.0}),
        (counts, {"sigma": math.nan}),
    ],
)
def test_numbers_that_the_argument_does_not_hold_for_are_refused(kind: Any, changes: Any) -> None:
    with pytest.raises(ValueError, match="must be"):
        kind(**changes)


def test_a_value_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="differ"):
        StatementCounts((DOES,), (("hums", "hums"),), LABELS, 1, 1.0, 0.0)
