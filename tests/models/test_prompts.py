"""Prompts of every set of words stand for themselves in tokens; a record is shown behind the public prompt."""

from typing import get_args

import pytest

from palimpsest.errors import ParamsError
from palimpsest.models.settings import BARE, Named, Words, words_of
from palimpsest.models.tokens import Frame, blind_of, frames, heads_of, require_slots, specials
from palimpsest.prediction.prompts import prompter
from tests.prediction.tiny import tokenizer

LABELS = {"praise": "nice words", "a complaint": "harsh words"}
IDS = specials(tokenizer())


def encoded(words: str) -> tuple[int, ...]:
    return tuple(tokenizer().encode(words, add_special_tokens=False))


@pytest.mark.parametrize("name", get_args(Named))
@pytest.mark.parametrize("labels", [LABELS, {}], ids=["labels", "no labels"])
def test_each_set_has_every_prompt(name: Named, labels: dict[str, str]) -> None:
    words, labelled = words_of(name), bool(labels)
    for shows in (words.prompt_with_example, words.paraphrase, words.blanks):
        require_slots(name, shows(labelled), 1)
    head = heads_of(tokenizer(), words.prompt(labelled), labels)
    made = prompter(
        tokenizer(), words.prompt_with_example(labelled), words.prompt(labelled), labels, chat=False, text_tokens=9
    )
    for label, public in head.items():
        told = f"{words.label}: {labels[label]}\n" if labelled else ""
        assert tokenizer().decode(public[1:]) == f"{told}{words.text}:\n"
        assert made.public[label] == made.private[label].before == public  # a record adds itself, and nothing before it
        assert made.private[label].after[-len(public) + 1 :] == public[1:]
    assert words.question.count("{text}") == 1


def test_a_label_is_told_by_its_description_and_braces_are_refused() -> None:
    assert Words(text="Recipe", label="Cuisine").prompt(labelled=True) == "Cuisine: {description}\nRecipe:\n"
    with pytest.raises(ValueError, match="pattern"):
        Words(text="{label}")


@pytest.mark.parametrize(
    ("template", "before", "after"),
    [
        (BARE, "", (IDS.sep,)),
        ("Kind: {description}, {label}\nText:\n", "Kind: ", encoded(", \nText:\n")),
        ("Text:\n", "Text:\n", ()),
    ],
)
def test_a_stand_in_takes_the_place_of_the_label(template: str, before: str, after: tuple[int, ...]) -> None:
    assert blind_of(tokenizer(), template) == Frame((IDS.bos, *encoded(before)), after)
    known = frames(tokenizer(), template, LABELS)["praise"]
    assert set(known.before[: len(encoded(before)) + 1]) == {IDS.bos, *encoded(before)}


def test_a_prompt_without_a_text_names_none() -> None:
    with pytest.raises(ParamsError, match=r"names \{text\} 1 times"):
        require_slots("training", "{label}: {text}", 0)
