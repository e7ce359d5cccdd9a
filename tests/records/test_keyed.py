import os
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.privacy.ledger.records import Run
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.keyed import digest, fingerprint, likeness, normalise, sorted_digests
from palimpsest.records.private import SplitRow

KEY = bytes(range(32))
TEXT = st.text(max_size=5)
PARTS = st.lists(TEXT | st.none(), max_size=4)
ROWS = st.lists(st.builds(PrivateRow, TEXT, TEXT | st.none(), TEXT | st.none()), max_size=8)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The  Cat", " the\u00a0cat\n"),
        ("ﬁne", "FINE"),
        ("e\u0301", "É"),
        ("Straße", "STRASSE"),
        ("１２", "12"),
        ("\u1e9e", "ss"),
    ],
)
def test_spellings_of_one_text_are_equal(one: str, other: str) -> None:
    assert normalise(one) == normalise(other)


@given(TEXT)
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


def test_different_words_stay_different() -> None:
    assert len({normalise(text) for text in ("a b", "ab", "a, b", "a", "")}) == 5


@given(PARTS, PARTS)
def test_digests_are_equal_only_for_equal_parts(one: list[str | None], other: list[str | None]) -> None:
    assert (digest(KEY, "x", *one) == digest(KEY, "x", *other)) == (one == other)


def test_parts_cannot_run_into_each_other() -> None:
    splits = [("ab", "c"), ("a", "bc"), ("abc",), ("a\1bc",), ("a", "", "bc"), ("a", None, "bc"), ("a\0\1bc",)]
    assert len({digest(KEY, "x", *parts) for parts in splits}) == len(splits)


def test_digests_depend_on_key_and_purpose() -> None:
    values = {digest(key, purpose, "t") for key in (KEY, os.urandom(32)) for purpose in ("split", "unit")}
    assert len(values) == 4


@pytest.mark.parametrize("size", [0, 31, 33, 64])
def test_a_key_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        digest(bytes(size), "x", "t")


@given(ROWS, st.randoms(use_true_random=False))
def test_the_fingerprint_is_that_of_a_multiset(rows: list[PrivateRow], shuffler: random.Random) -> None:
    shuffled = list(rows)
    shuffler.shuffle(shuffled)
    assert fingerprint(shuffled, KEY) == fingerprint(rows, KEY)
    one, two = [*rows, PrivateRow("t")], [*rows, PrivateRow("t"), PrivateRow("t")]
    assert len({fingerprint(each, KEY) for each in (rows, one, two)}) == 3


def test_the_fingerprint_sees_text_label_person_and_the_key() -> None:
    row = PrivateRow("t", "l")
    others = [
        PrivateRow("T", "l"), PrivateRow("t", "L"), PrivateRow("t"), PrivateRow("tl"), PrivateRow("t", ""),
        PrivateRow("t", "l", "p"), PrivateRow("t", "l", "q"), PrivateRow("t", "l", ""), PrivateRow("t", None, "l"),
    ]  # fmt: skip
    values = {fingerprint([each], KEY) for each in (row, *others)} | {fingerprint([row], bytes(32))}
    assert len(values) == len(others) + 2


def test_the_fingerprint_is_of_what_a_query_sees() -> None:
    """Not of whether an attack guesses about the row."""
    for person in (None, "p"):
        rows = [PrivateRow("t", "l", person), *(SplitRow("t", "l", guess, person) for guess in (True, False))]
        assert len({fingerprint([row], KEY) for row in rows}) == 1


@given(st.lists(TEXT, max_size=6), st.lists(TEXT, max_size=6))
def test_texts_are_known_again_as_a_multiset_of_what_a_reader_calls_the_same(one: list[str], other: list[str]) -> None:
    alike = sorted(map(normalise, one)) == sorted(map(normalise, other))
    assert (likeness(one, KEY) == likeness(other, KEY)) == alike
    assert likeness(one, KEY) != likeness(one, bytes(32))


def test_how_long_the_longest_text_may_be_does_not_matter_to_who_is_known_again() -> None:
    assert likeness(["x" * 100 + "tail"], KEY) == likeness(["x" * 100], KEY) != likeness(["x" * 99], KEY)


def test_digests_are_sorted_as_bytes_are_zeros_at_their_ends_too():
    digests = [os.urandom(32) for _ in range(200)]
    digests += [bytes(32), b"a" + bytes(31), b"a" * 31 + b"\0", b"\xff" * 32, b"\x7f" * 32] * 2
    assert sorted_digests(iter(digests)) == b"".join(sorted(digests))


def test_what_ledgers_know_rows_by_is_as_it_was():
    """Another hash of the same rows would be another run, and charged again."""
    rows = [PrivateRow("a lamp", "returns"), PrivateRow("A  lamp", None, "who"), PrivateRow("a lamp", "returns")]
    known = "9037e325e4ee23bf3675de8d7ed693e8656e92e4b37fccaaabc961917f9edee0"
    assert {fingerprint(each, KEY) for each in (rows, rows[::-1])} == {known}
    texts = [row.text for row in rows]
    assert likeness(texts, KEY) == "4bca29799ceb38c4955c56fe0520d545f56873d7877181115a34261dfd78e8ea"
    run = Run("select", "a", "release", known, "plan")
    assert run.key == "f9c06b0b05d23a14dda6f1cb0bb3aaa6b1abcf3b80e0ac1d098df5af8164def9"
