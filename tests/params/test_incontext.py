"""Settings of the in-context evaluation that mean nothing are refused."""

import pytest
from pydantic import ValidationError

from palimpsest.errors import ParamsError
from palimpsest_lab.audits.incontext_settings import InContext

SETTINGS = {
    "shots": (0, 4, 16), "draws": 3, "items": 300, "batch": 16, "demonstration_tokens": 32, "item_tokens": 64,
    "instruction": "", "item": "Text: {text}\nAnswer:", "answer": " {label}\n", "verbalisers": None,
    "answer_tokens": 8,
}  # fmt: skip
REFUSED = {
    "no zero-shot": ({"shots": (4, 16)}, "ascends from 0"),
    "a number twice": ({"shots": (0, 4, 4)}, "names each number once"),
    "not ascending": ({"shots": (0, 16, 4)}, "ascends from 0"),
    "zero-shot alone": ({"shots": (0,)}, "at least 2"),
    "too many items": ({"items": 301}, "less than or equal to 300"),
    "no place for the text": ({"item": "Text:"}, "item must hold {text} once"),
    "two places for the label": ({"answer": "{label} {label}"}, "answer must hold {label} once"),
    "nothing before the label": ({"item": "Text: {text}"}, "something must stand"),
    "one word for two labels": ({"verbalisers": {"a": "yes", "b": " yes"}}, "a word of its own"),
    "a label without a word": ({"verbalisers": {"a": "yes", "b": " "}}, "a word of its own"),
    "unknown key": ({"shot": 3}, "Extra inputs"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    changes, told = REFUSED[name]
    with pytest.raises(ValidationError) as caught:
        InContext.model_validate({**SETTINGS, **changes})
    assert told in str(caught.value)


def test_a_break_before_the_label_is_enough() -> None:
    assert InContext.model_validate({**SETTINGS, "item": "{text}", "answer": "\n{label}\n"}).item == "{text}"


def test_words_follow_the_order_of_the_labels() -> None:
    settings = InContext.model_validate({**SETTINGS, "verbalisers": {"a": "yes", "b": "no"}})
    assert settings.words(["b", "a"]) == ("no", "yes")
    assert InContext.model_validate(SETTINGS).words(["b", "a"]) == ("b", "a")


@pytest.mark.parametrize("labels", [["a"], ["a", "b", "c"]])
def test_words_for_other_labels_are_refused(labels: list[str]) -> None:
    settings = InContext.model_validate({**SETTINGS, "verbalisers": {"a": "yes", "b": "no"}})
    with pytest.raises(ParamsError, match=r"'b'|'c'"):
        settings.words(labels)
