"""Whose rows are whose: every small world, with and without one whole person, in every order."""

from collections.abc import Iterator
from itertools import combinations_with_replacement, permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.privacy.rows import PrivateRow, group_by_person, select_one_each

PEOPLE = tuple(letter * 64 for letter in "abc")
SAYINGS = (("hot", "x"), ("hot", "y"), ("cold", None))
ROWS = st.lists(
    st.builds(PrivateRow, st.sampled_from("tuv"), st.sampled_from("xy") | st.none(), st.sampled_from((*PEOPLE, None)))
)


def said(person: str | None) -> list[tuple[PrivateRow, ...]]:
    """All that one may have said: nothing to two rows."""
    rows = [PrivateRow(*saying, person) for saying in SAYINGS]
    return [own for count in range(3) for own in combinations_with_replacement(rows, count)]


def worlds() -> Iterator[list[PrivateRow]]:
    """Two persons and a record that is one alone, in every order of their rows."""
    for first, second, alone in product(said(PEOPLE[0]), said(PEOPLE[1]), ((), (PrivateRow("hot", "x"),))):
        yield from ([*each] for each in set(permutations((*first, *second, *alone))))


def without(rows: list[PrivateRow], person: str) -> list[PrivateRow]:
    return [row for row in rows if row.person != person]


def test_without_a_person_the_groups_of_all_others_stay():
    count = 0
    for rows in worlds():
        for person in PEOPLE[:2]:
            whole, fewer = group_by_person(rows), group_by_person(without(rows, person))
            assert fewer == [own for own in whole if own[0].person != person]
            assert len(whole) - len(fewer) == any(row.person == person for row in rows)
            count += 1
    assert count > 1000


def test_without_a_person_the_rows_that_stand_for_all_others_stay():
    for rows in worlds():
        for person in PEOPLE[:2]:
            whole, fewer = select_one_each(rows), select_one_each(without(rows, person))
            assert fewer == [row for row in whole if row.person != person]
            assert len(whole) - len(fewer) == any(row.person == person for row in rows)


def test_which_row_stands_for_a_person_follows_from_theirs_alone_whatever_their_order():
    own = [PrivateRow(text, label, PEOPLE[0]) for text, label in SAYINGS]
    others = [PrivateRow(text, label, PEOPLE[1]) for text, label in SAYINGS]
    chosen = {
        row
        for rows in permutations(own)
        for more in ([], others)
        for row in select_one_each([*more, *rows])
        if row.person == PEOPLE[0]
    }
    assert len(chosen) == 1
    assert chosen <= set(own)


@given(ROWS)
def test_every_row_is_in_one_group_and_each_group_is_of_one_unit(rows: list[PrivateRow]):
    groups = group_by_person(rows)
    assert sorted(map(id, (row for own in groups for row in own))) == sorted(map(id, rows))
    named = [own[0].person for own in groups if own[0].person is not None]
    assert len(set(named)) == len(named)
    for own in groups:
        assert len({row.person for row in own}) == 1
        assert len(own) == 1 or own[0].person is not None
        assert select_one_each(own)[0] in own


def test_records_that_name_nobody_stand_for_themselves_also_where_they_are_equal():
    rows = [PrivateRow("t", "x")] * 3
    assert group_by_person(rows) == [[row] for row in rows]
    assert select_one_each(rows) == rows


def test_the_choice_follows_the_key_and_not_the_words():
    """Another person's id, which is what the asset's key made of a name, chooses another of the same rows."""
    chosen = [
        select_one_each([PrivateRow(text, None, f"{number:064x}") for text in ("a", "b")])[0].text
        for number in range(4000)
    ]
    # 4000 fair draws: five standard deviations are 158.
    assert abs(chosen.count("a") - 2000) < 158


@pytest.mark.parametrize("row", [PrivateRow("SECRET"), PrivateRow("t", "SECRET"), PrivateRow("t", "l", "SECRET")])
def test_a_row_shows_nothing_of_itself(row: PrivateRow):
    assert "SECRET" not in f"{row!r} {row} {[row]}"
