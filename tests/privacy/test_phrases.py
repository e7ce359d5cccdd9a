"""Phrases of private rows: a unit changes as many counts as is charged; what it alone has stays in, but for delta."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import dp_accounting as dpa
import numpy as np
import pytest
from scipy import stats

from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.query import is_for_persons, is_registered
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.thresholded import KeyPhrases
from palimpsest.records.phrases import PublicWords
from tests.privacy.persons import Noted, data_sets, pairs, rows_in

LABELS = ("refund", "praise")
PUBLIC = PublicWords.of(["the lamp", "the lamp hums", "the", "the"], 0.5)
KINDS = [("Lamp hums", "refund"), ("the lamp, the oven", "praise"), ("oven", "refund"), ("lamp", "unheard of")]
DATA = list(data_sets(KINDS, 2, 2))


def phrases(sigma: float = 0.0, most: int = 2, delta: float = 1e-6) -> KeyPhrases:
    return KeyPhrases(LABELS, PUBLIC, most, sigma, delta)


def found(query: KeyPhrases, rows: Sequence[PrivateRow]) -> Counter[tuple[int, str]]:
    """The exact counts."""
    return Counter({(place, phrase): count for place, phrase, count in query.run(rows, NoiseSource())})


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_unit_changes_so_many_counts_by_one(most) -> None:
    query, reached = phrases(most=most), 0
    for more, less in pairs(DATA):
        with_one, without = found(query, more), found(query, less)
        changed = {key: with_one[key] - without[key] for key in with_one | without if with_one[key] != without[key]}
        assert set(changed.values()) <= {1}
        assert len(changed) <= query.changed
        reached = max(reached, len(changed))
    assert reached == most == query.changed


def test_the_most_usual_phrases_of_a_unit_count_over_all_its_rows() -> None:
    rows = [PrivateRow("Lamp hums. Oven!", "refund", "aa" * 32), PrivateRow("the lamp, lamp", "praise", "aa" * 32)]
    assert found(phrases(most=2), rows) == {(0, "lamp"): 1, (1, "lamp"): 1}
    assert found(phrases(most=3), rows) == {(0, "lamp"): 1, (1, "lamp"): 1, (0, "hums"): 1}
    assert found(phrases(most=9), rows)[0, "lamp hums"] == 1
    assert found(phrases(), [PrivateRow("lamp", "unheard of"), PrivateRow("lamp")]) == {}
    unlabelled = KeyPhrases(("",), PUBLIC, 1, 0.0, 0.0)
    assert unlabelled.run([PrivateRow("lamp"), PrivateRow("oven")], NoiseSource()) == [(0, "lamp", 1), (0, "oven", 1)]


@pytest.mark.parametrize("most", [1, 30])
@pytest.mark.parametrize("delta", [1e-9, 1e-3])
def test_a_phrase_of_one_unit_alone_comes_out_no_more_often_than_delta(delta, most) -> None:
    query, noise = phrases(2.0, most, delta), Noted()
    assert query.run([], noise) == []  # type: ignore[arg-type]
    assert noise.drawn == [(0, query.std)]
    assert query.std == pytest.approx(math.sqrt(most) * 2.0)
    out, before = (most * stats.norm.sf((least - 1.5) / query.std) for least in (query.threshold, query.threshold - 1))
    assert out <= delta < before * (1 + 1e-9)
    assert (query.event(), query.own_delta) == (dpa.GaussianDpEvent(2.0), delta)
    assert (phrases().event(), phrases().own_delta) == (dpa.NonPrivateDpEvent(), 0.0)


def test_phrases_come_out_by_their_noisy_counts_and_only_above_the_threshold() -> None:
    query = phrases(1.0, 1)
    rows = [PrivateRow(word, "refund") for word in ("lamp", "oven") for _ in range(query.threshold - 3)]
    assert query.run(rows, Noted(2)) == []  # type: ignore[arg-type]
    assert query.run([*rows, PrivateRow("oven", "refund")], Noted(2)) == [(0, "oven", query.threshold)]  # type: ignore[arg-type]


def test_every_count_has_noise_of_its_own() -> None:
    """One number for all would show their differences exactly."""

    class Rising(Noted):
        def whole_normal(self, size: int, std: float) -> np.ndarray:
            return np.arange(size)

    query = phrases(1.0, 1)
    rows = [PrivateRow(word, "refund") for word in ("lamp", "oven") for _ in range(query.threshold)]
    least = query.threshold
    assert query.run(rows, Rising()) == [(0, "oven", least + 1), (0, "lamp", least)]  # type: ignore[arg-type]


@pytest.mark.parametrize("most", [1, 2])
def test_the_order_of_rows_does_not_show(most) -> None:
    query = phrases(most=most)
    for data in DATA:
        assert query.run(rows_in(data), NoiseSource()) == query.run(rows_in(data, backwards=True), NoiseSource())


def test_it_is_for_persons_and_stored() -> None:
    assert is_registered(phrases(1.0))
    assert is_for_persons(phrases(1.0))
    assert phrases(1.0).stores_answer  # type: ignore[attr-defined]


@pytest.mark.parametrize("changes", [{"sigma": -1.0}, {"sigma": 1.0, "delta": 0.0}, {"most": 0}, {"sigma": math.nan}])
def test_numbers_that_the_argument_does_not_hold_for_are_refused(changes: Any) -> None:
    with pytest.raises(ValueError, match="must be"):
        phrases(**changes)
