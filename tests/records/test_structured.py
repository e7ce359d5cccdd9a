"""What is a JSON record and what is its one text; no error shows a value."""

import json
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.records.structured import canonical_text, members_of, parse_value, plain_text

SECRET = "ZANZIBAR-7731"
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(NUMBERS | TEXT, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=8)


@given(JSON)
def test_what_json_writes_is_parsed(value: object) -> None:
    assert parse_value(json.dumps(value)) == parse_value(json.dumps(value, ensure_ascii=False)) == value


NO_JSON = [
    "", " ", SECRET, "{", f'{{"a": "{SECRET}"', f'{{"a": 1, "a": "{SECRET}"}}', '{"a": {"b": 1, "b": 1}}', "NaN",
    '{"a": -Infinity}', "{} {}", "1e999", '"\\ud800"', f'{{"a": "{SECRET}\\udc00"}}', "[" * 100_000, "9" * 5000,
    "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_JSON, ids=range(len(NO_JSON)))
def test_what_readers_would_disagree_about_is_no_json(text: str) -> None:
    with pytest.raises(ValueError, match="not a JSON value") as caught:
        parse_value(text)
    assert members_of(text) is None
    assert caught.value.__context__ is None
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@given(st.dictionaries(st.sampled_from("abcd"), JSON))
def test_the_canonical_text_depends_on_neither_order_nor_spelling(value: dict[str, object]) -> None:
    other = dict(reversed(value.items()))
    text = canonical_text(value, ("c", "a", "b"))
    assert (
        text == canonical_text(other, ("c", "a", "b")) == canonical_text(json.dumps(other, indent=3), ("c", "a", "b"))
    )
    assert list(json.loads(text)) == [key for key in "cab" if key in value]
    assert json.loads(text) == {key: member for key, member in value.items() if key != "d"}
    assert text == canonical_text(text, ("c", "a", "b"))


def test_members_keep_their_values_and_letters() -> None:
    record = {"title": "Ça 🦑 \u2028", "cast": ["B", "A"], "more": {"z": 1, "a": None}}
    assert canonical_text(record, ("more", "cast", "title")) == (
        '{"more": {"z": 1, "a": null}, "cast": ["B", "A"], "title": "Ça 🦑 \u2028"}'
    )


@pytest.mark.parametrize("value", [None, 3, SECRET, f'["{SECRET}"]', [SECRET], {"a": float("nan")}, {"a": {SECRET}}])
def test_what_is_no_object_has_no_canonical_text(value: object) -> None:
    with pytest.raises(ValueError, match="not a JSON object") as caught:
        canonical_text(value, ("a",))
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("just words", "just words"),
        ("[1]", "[1]"),
        ('{"a": 1}', None),
        ({"text": "just words", "id": 3}, "just words"),
        ({"text": "a record's own", "a": 1}, None),
        ({"text": 3}, None),
        ({}, None),
        (None, None),
    ],
)
def test_a_public_file_may_hold_plain_text(value: object, text: str | None) -> None:
    assert plain_text(value, ("a", "b")) == text
