from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.records.preprocess import cap_rows
from palimpsest.records.private import RawRow

KEY = bytes(range(32))
PEOPLE = ("ann", "bob", "cyd")
ROW = st.builds(RawRow, st.sampled_from("abcdef"), st.sampled_from("xy"), st.sampled_from(PEOPLE))
ROWS = st.lists(ROW, max_size=30)
CAP = st.integers(1, 5)


@given(ROWS, CAP)
def test_nobody_keeps_more_than_the_cap_and_nobody_loses_more_than_needed(rows: list[RawRow], cap: int) -> None:
    had, kept = Counter(row.unit for row in rows), Counter(row.unit for row in cap_rows(rows, KEY, cap))
    assert kept == {unit: min(count, cap) for unit, count in had.items()}


@given(ROWS, CAP, st.sampled_from(PEOPLE))
def test_removing_a_person_moves_no_row_of_another(rows: list[RawRow], cap: int, person: str) -> None:
    kept = cap_rows(rows, KEY, cap)
    without = cap_rows([row for row in rows if row.unit != person], KEY, cap)
    assert without == [row for row in kept if row.unit != person]


@given(ROWS, CAP, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(rows: list[RawRow], cap: int, shuffler) -> None:
    shuffled = list(rows)
    shuffler.shuffle(shuffled)
    assert Counter(cap_rows(shuffled, KEY, cap)) == Counter(cap_rows(rows, KEY, cap))


@given(ROWS, CAP)
def test_the_rows_kept_are_rows_in_their_order(rows: list[RawRow], cap: int) -> None:
    remaining = iter(rows)
    assert all(row in remaining for row in cap_rows(rows, KEY, cap))


def test_the_choice_follows_the_key_and_the_person() -> None:
    texts = [str(i) for i in range(20)]
    rows = [RawRow(text, unit=person) for person in PEOPLE for text in texts]
    choices = {
        (key, person): tuple(row.text for row in cap_rows(rows, key, 5) if row.unit == person)
        for key in (KEY, bytes(32))
        for person in PEOPLE
    }
    assert len(set(choices.values())) == len(choices)


def test_every_row_of_a_person_is_as_likely_to_be_kept() -> None:
    rows = [RawRow(str(i), unit=f"person {n}") for n in range(2000) for i in range(4)]
    counts = Counter(row.text for row in cap_rows(rows, KEY, 1))
    # 2000 draws of probability 1/4: five standard deviations are 97.
    assert all(abs(counts[str(i)] - 500) < 97 for i in range(4))


def test_the_cap_must_be_positive() -> None:
    with pytest.raises(ValueError, match="max_rows"):
        cap_rows([], KEY, 0)
