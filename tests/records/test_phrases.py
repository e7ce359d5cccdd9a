"""Phrases are words and pairs of neighbours, found by public rules; none is a way to reach somebody."""

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from palimpsest.methods.shared.postprocess import Candidate, PersonalData
from palimpsest.records.phrases import PublicWords
from palimpsest.records.record import Record

PUBLIC = PublicWords.of(["the hall and the roof", "the hall", "the cellar", "the hall's roof"], 0.5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Roof leaks", {"roof", "leaks", "roof leaks"}),
        ("roof, leaks", {"roof", "leaks"}),
        ("roof (leaks)", {"roof", "leaks"}),
        ("roof the leaks", {"roof", "leaks"}),
        ("the", set()),
        ("roof 2 leaks b2b a", {"roof", "leaks"}),
        ("write to ann@notes.org, @ann or www.notes.org/ann", {"write", "to", "write to", "or"}),
        ("don't well-known", {"don't", "well-known", "don't well-known"}),
        ("ROOF roof", {"roof", "roof roof"}),
        ("", set()),
    ],
)
def test_which_phrases_a_text_has(text, expected) -> None:
    assert PUBLIC.phrases(text) == expected


def test_a_word_of_too_many_public_texts_tells_nothing() -> None:
    assert PUBLIC.counts["the"] == 4
    assert PUBLIC.counts["hall"] == 2
    assert PUBLIC.phrases("the hall") == {"hall"}
    assert PublicWords.of(["the hall"] * 4, 1.0).phrases("the hall") == {"the", "hall", "the hall"}


def test_rare_words_surprise_and_those_of_a_pair_add_up() -> None:
    assert PUBLIC.surprise("hall") == pytest.approx(math.log(5 / 3))
    assert PUBLIC.surprise("unheard") == pytest.approx(math.log(5))
    assert PUBLIC.surprise("unheard hall") == pytest.approx(math.log(5) + math.log(5 / 3))
    assert PublicWords.of([], 0.1).surprise("any") == 0.0


@given(st.text(st.sampled_from("ab@.:/+-'() 019"), max_size=40))
@example("mail ann@notes.org or +44 20 7946 0958, 4111 1111 1111 1111, https://ann:pw@notes.org")
@settings(max_examples=200, deadline=None)
def test_no_phrase_looks_like_personal_data(text) -> None:
    found = sorted(PUBLIC.phrases(text))
    assert all(PersonalData().keeps([Candidate(Record(phrase), math.nan) for phrase in [*found, ", ".join(found)]]))
    assert not any(sign.isdigit() or sign == "@" for phrase in found for sign in phrase)
