"""Statements are found by public rules, sentence by sentence, and changed in place."""

import pytest

from palimpsest.records.statements import Attribute, restate_text, statements

PRODUCT = Attribute("product", {}, r"[A-Z][a-z]+ \d")
TROUBLE = Attribute("trouble", {"hums at night": ("hums at night", "humming at night"), "leaks": ("leaks", "leaking")})
BOTH = (PRODUCT, TROUBLE)


def told(text: str) -> list[tuple[str, ...]]:
    return [one.values for one in statements(text, BOTH)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("My Abra 2 hums at night.", [("Abra 2", "hums at night")]),
        ("Humming at night is what my Abra 2 does", [("Abra 2", "hums at night")]),
        ("The Abra 2 LEAKS! The Cedo 3 keeps leaking.", [("Abra 2", "leaks"), ("Cedo 3", "leaks")]),
        ("My Abra 2 is fine. It leaks.", []),
        ("My Abra 2 next to the Cedo 3 leaks and hums at night.", [("Abra 2", "leaks")]),
        ("My Abra 2 leaksome", []),
        ("abra 2 leaks", []),
        ("", []),
    ],
)
def test_a_sentence_states_the_first_value_of_each_attribute(text, expected) -> None:
    assert told(text) == expected


def test_values_that_overlap_state_nothing() -> None:
    assert statements("a b c", [Attribute("one", {"a b": ("a b",)}), Attribute("two", {"b c": ("b c",)})]) == []


def test_of_two_values_that_begin_alike_the_longer_counts() -> None:
    either = Attribute("either", {"leaks": ("leaks",), "leaks at the base": ("leaks at the base",)})
    assert [one.values for one in statements("it leaks at the base", [either])] == [("leaks at the base",)]


LISTED = ("ısınma", "iade", "İade2", "is noisy", "humſ", "µ-fault", "straße", "ﬁt", "\u212a2")


@pytest.mark.parametrize("form", LISTED)
def test_a_listed_form_is_found_in_its_cases_and_in_letters_that_match_without_case(form: str) -> None:
    """Without regard to case more letters match than lowering makes equal: none of them stops what reads the rows."""
    found = [Attribute("trouble", {form: (form,), "other": ("other",)})]
    assert [one.values for one in statements(f"so {form} now", found)] == [(form,)]
    letters = "iIıİsSſkK\u212akµμΜßẞﬁ"
    for near in (form.upper(), form.capitalize(), *(form.replace(old, new) for old in letters for new in letters)):
        assert [one.values for one in statements(f"so {near} now", found)] in ([], [(form,)])


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("My Abra 2 keeps humming at night.", ("Cedo 3", "leaks"), "My Cedo 3 keeps leaking."),
        ("Humming at night, my Abra 2!", ("Abra 2", "leaks"), "Leaking, my Abra 2!"),
        ("My Abra 2 leaks.", ("Abra 2", "leaks"), "My Abra 2 leaks."),
        ("So. My Abra 2 leaks; why?", ("Longername 9", "hums at night"), "So. My Longername 9 hums at night; why?"),
    ],
)
def test_a_statement_is_changed_where_it_stands_and_in_its_form(text, values, expected) -> None:
    (one,) = statements(text, BOTH)
    assert restate_text(text, BOTH, [(one, values)]) == expected
    assert told(expected) == [values]


def test_several_statements_of_a_text_are_changed_at_once() -> None:
    text = "My Abra 2 leaks. The Cedo 3 hums at night."
    first, second = statements(text, BOTH)
    changed = restate_text(text, BOTH, [(first, ("Cedo 3", "hums at night")), (second, ("Abra 2", "leaks"))])
    assert changed == "My Cedo 3 hums at night. The Abra 2 leaks."
