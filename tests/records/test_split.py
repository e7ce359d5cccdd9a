import os
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, chisquare

from palimpsest.records.preprocess import Split, assign, audit_rate, split_rows
from palimpsest.records.private import RawRow, SplitRow

KEY = bytes(range(32))
RATE = st.floats(0, 1)
ROWS = st.lists(st.builds(RawRow, st.text("aAb ", max_size=4), st.sampled_from("xy") | st.none()), max_size=20)


def everything(split: Split) -> Counter[tuple[str, SplitRow]]:
    parts = {"train": split.train, "holdout": split.holdout, "test": split.test}
    return Counter((name, row) for name, rows in parts.items() for row in rows)


def no_mask(rows: list[RawRow]) -> np.ndarray:
    return np.ones(len(rows), dtype=bool)


@given(ROWS.filter(bool), RATE, RATE, st.data())
def test_removing_one_row_moves_no_other(rows: list[RawRow], audit: float, test: float, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(rows) - 1))
    fewer = rows[:index] + rows[index + 1 :]
    whole = everything(split_rows(rows, KEY, audit, test, no_mask(rows)))
    without = everything(split_rows(fewer, KEY, audit, test, no_mask(fewer)))
    assert without <= whole
    assert [row.text for _, row in (whole - without).elements()] == [rows[index].text]


@given(ROWS, RATE, RATE, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(rows: list[RawRow], audit: float, test: float, shuffler) -> None:
    shuffled = list(rows)
    shuffler.shuffle(shuffled)
    mask = no_mask(rows)
    assert everything(split_rows(shuffled, KEY, audit, test, mask)) == everything(
        split_rows(rows, KEY, audit, test, mask)
    )


@given(ROWS, RATE, RATE, st.data())
def test_the_mask_decides_about_guesses_and_nothing_else(
    rows: list[RawRow], audit: float, test: float, data: st.DataObject
) -> None:
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))), dtype=bool)
    masked, free = (split_rows(rows, KEY, audit, test, each) for each in (mask, no_mask(rows)))
    for part in ("train", "holdout", "test"):
        assert [(r.text, r.label) for r in getattr(masked, part)] == [(r.text, r.label) for r in getattr(free, part)]
    assert masked.audit_size == free.audit_size
    guesses = Counter((row.text, row.label) for _, row in everything(masked).elements() if row.guess)
    unmasked = [row for row, may in zip(rows, mask, strict=True) if may]
    assert guesses == Counter((row.text, row.label) for row in unmasked if assign(row, KEY, audit, test).audit)


@given(ROWS, RATE, RATE)
def test_every_row_lands_once_and_coins_are_counted(rows: list[RawRow], audit: float, test: float) -> None:
    split = split_rows(rows, KEY, audit, test, no_mask(rows))
    landed = Counter((row.text, row.label) for _, row in everything(split).elements())
    assert landed == Counter((row.text, row.label) for row in rows)
    assert not any(row.guess for row in split.test)
    assert all(row.guess for row in split.holdout)
    assert split.audit_size == len(split.holdout) + sum(row.guess for row in split.train)


@pytest.mark.parametrize("text", ["the  CAT sat", " The cat\nsat ", "Ｔhe cat sat"])
def test_duplicates_share_their_draws_and_labels_do_not(text: str) -> None:
    for key in (os.urandom(32) for _ in range(50)):
        assert assign(RawRow(text, "x"), key, 0.7, 0.2) == assign(RawRow("the cat sat", "x"), key, 0.7, 0.2)
    labels = [assign(RawRow(text, str(label)), KEY, 0.7, 0.2) for label in range(50)]
    assert len(set(labels)) == 4


def test_the_cut_mark_does_not_matter() -> None:
    for person in (None, *map(str, range(20))):
        assert len({assign(RawRow("t", "x", person, cut), KEY, 0.7, 0.2) for cut in (True, False)}) == 1


def test_rates_and_the_coin_are_what_they_claim() -> None:
    places = Counter(assign(RawRow(str(i)), KEY, 0.4, 0.25) for i in range(20_000))
    counts = Counter({(place.part, place.audit): count for place, count in places.items()})
    cells = [("test", False), ("train", False), ("train", True), ("holdout", True)]
    assert set(counts) == set(cells)
    expected = [0.25 * 20_000, 0.45 * 20_000, 0.15 * 20_000, 0.15 * 20_000]
    assert chisquare([counts[cell] for cell in cells], expected).pvalue > 1e-6
    heads, coins = counts["train", True], counts["train", True] + counts["holdout", True]
    assert binomtest(heads, coins, 0.5).pvalue > 1e-6


def test_draws_of_two_keys_are_independent() -> None:
    other = bytes(32)
    rows = [RawRow(str(i)) for i in range(4000)]
    agree = sum(assign(row, KEY, 1, 0).part == assign(row, other, 1, 0).part for row in rows)
    assert binomtest(agree, len(rows), 0.5).pvalue > 1e-6


@pytest.mark.parametrize(
    ("audit", "test", "expected"), [(0, 0, {"train"}), (1, 1, {"test"}), (0, 1, {"test"}), (1, 0, {"train", "holdout"})]
)
def test_rates_of_zero_and_one_are_exact(audit: float, test: float, expected: set[str]) -> None:
    places = {assign(RawRow(str(i)), KEY, audit, test) for i in range(300)}
    assert {place.part for place in places} == expected
    assert {place.audit for place in places} == {expected == {"train", "holdout"}}


def test_the_audit_rate_is_public() -> None:
    assert audit_rate(500, 5000) == 0.1
    assert audit_rate(0, 10) == 0
    with pytest.raises(ValueError, match="size"):
        audit_rate(11, 10)


def test_rates_and_masks_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="test_rate"):
        split_rows([], KEY, 0.5, 1.5, np.ones(0, dtype=bool))
    with pytest.raises(ValueError, match="guessable"):
        split_rows([RawRow("t")], KEY, 0.5, 0.5, np.ones(2, dtype=bool))
