"""Each row beside the nearest private one: the search against a plain one, and which words are marked."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.audit.beside import longest_runs, mark_runs, pair_nearest
from palimpsest.records.segment import words


def test_the_nearest_has_the_largest_cosine() -> None:
    rng = np.random.default_rng(5)
    rows, candidates = rng.normal(size=(40, 8)) * 3, rng.normal(size=(70, 8))
    units = [vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (rows, candidates)]
    cosines = units[0] @ units[1].T
    found = pair_nearest(rows, candidates)
    assert found.places.tolist() == cosines.argmax(axis=1).tolist()
    assert found.cosines == pytest.approx(cosines.max(axis=1))


def test_a_vector_without_a_direction_and_a_search_among_none_find_nothing() -> None:
    rows = np.array([[0.0, 0.0], [np.nan, 1.0], [2.0, 0.0]])
    some, none = pair_nearest(rows, np.eye(2)), pair_nearest(rows, np.zeros((0, 2)))
    assert (some.places.tolist(), none.places.tolist()) == ([-1, -1, 0], [-1, -1, -1])
    assert np.isnan([*some.cosines[:2], *none.cosines]).all()
    assert len(pair_nearest(rows[:0], np.eye(2)).places) == 0


TEXTS = st.lists(st.sampled_from(["The", "lid", "is", "shut", "now,", "é"]), max_size=9).map(" ".join)


@settings(deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=4), st.lists(TEXTS, max_size=4))
def test_the_longest_run_is_that_of_a_plain_search(texts: list[str], others: list[str]) -> None:
    def runs(text: str, size: int) -> set[tuple[str, ...]]:
        own = words(text)
        return {tuple(own[start : start + size]) for start in range(len(own) - size + 1)}

    plain = [
        max((size for size in range(1, 10) for other in others if runs(text, size) & runs(other, size)), default=0)
        for text in texts
    ]
    assert longest_runs(texts, others).tolist() == plain


@settings(deadline=None)
@given(TEXTS, TEXTS, st.integers(1, 4))
def test_pieces_are_the_text_and_every_second_one_is_shared(text: str, other: str, size: int) -> None:
    pieces = mark_runs(text, other, size)
    assert ("".join(pieces), len(pieces) % 2) == (text, 1)
    shortest = min(size, len(words(other)))
    assert all(len(words(piece)) >= shortest > 0 for piece in pieces[1::2])
    assert all(set(words(piece)) <= set(words(other)) for piece in pieces[1::2])
    assert not longest_runs([piece for piece in pieces[::2]], [other]).max() >= size


@pytest.mark.parametrize(
    ("text", "other", "size", "pieces"),
    [
        ("a b c d", "x b c y", 2, ("a ", "b c", " d")),
        ("a b c d", "x b c y", 3, ("a b c d",)),
        ("a b c d", "c d, a b", 2, ("", "a b", " ", "c d", "")),
        ("a b c d", "a b c y c d", 2, ("", "a b c d", "")),
        ("A  B!", "b, a b", 2, ("", "A  B", "!")),
        ("fine. Yes", "YES", 3, ("fine. ", "Yes", "")),
        ("a b", "", 2, ("a b",)),
        ("", "a b", 2, ("",)),
        ("\ud800 a b", "a b", 2, ("\ud800 ", "a b", "")),
        ("ﬁne day 👍 too", "fine day", 2, ("", "ﬁne day", " 👍 too")),
    ],
)
def test_marked_words(text: str, other: str, size: int, pieces: tuple[str, ...]) -> None:
    assert mark_runs(text, other, size) == pieces
