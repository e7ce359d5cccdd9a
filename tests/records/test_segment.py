"""One segmentation reads every script: words keep their marks, and scripts without spaces are read sign by sign."""

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.methods.shared.postprocess import Candidate, LengthFilter
from palimpsest.records.keyed import normalise
from palimpsest.records.record import Record
from palimpsest.records.segment import WORD, count_parts, find_words, split_parts, wording, words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Don't stop -- 3x!", ["don", "t", "stop", "3x"]),
        ("बैटरी २०२४ में टूट गई।", ["बैटरी", "२०२४", "में", "टूट", "गई"]),
        ("手机iPhone15很好，2024年。", ["手", "机", "iphone15", "很", "好", "2024", "年"]),
        ("スマホが壊れた", ["ス", "マ", "ホ", "が", "壊", "れ", "た"]),
        ("นี้ดี มาก", ["นี้", "ดี", "ม", "า", "ก"]),
        ("ល្អណាស់។", ["ល្", "អ", "ណា", "ស់"]),
        ("می‌رود، گفت", ["می‌رود", "گفت"]),
        ("휴대폰이 좋아요!", ["휴대폰이", "좋아요"]),
        ("ДОБРЫЙ ДЕНЬ: ёж", ["добрый", "день", "ёж"]),
        ("שָׁלוֹם עולם", ["שָׁלוֹם", "עולם"]),
    ],
)
def test_words_of_a_script(text: str, found: list[str]) -> None:
    assert words(text) == [normalise(word) for word in found]
    assert wording(text) == " ".join(words(text))


@given(st.text())
def test_words_are_where_they_are_found_and_ascii_is_no_case_of_its_own(text: str) -> None:
    assert all(0 <= start < end <= len(text) for start, end in find_words(text))
    assert words(text) == regex.findall(f"(?V1){WORD}", normalise(text))


@given(st.text())
def test_parts_joined_are_the_text(text: str) -> None:
    parts = split_parts(text)
    assert "".join(parts) == text
    assert count_parts(text) == sum(not part.isspace() for part in parts)


@given(st.text(st.characters(max_codepoint=0x24F, exclude_categories=["Cc"])))
def test_parts_with_blanks_between_are_what_a_split_finds(text: str) -> None:
    assert [part for part in split_parts(text) if not part.isspace()] == text.split()
    assert count_parts(text) == len(text.split())


@pytest.mark.parametrize("text", ["电池又坏了", "バッテリー", "เสียแล้ว", "ខូចហើយ"])
def test_a_short_text_without_spaces_is_no_single_word(text: str) -> None:
    assert LengthFilter(3, None).keeps([Candidate(Record(text), 1.0)]) == [True]
