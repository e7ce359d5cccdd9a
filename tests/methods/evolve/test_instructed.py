"""The instructed author: what it asks, what it makes of answers, and that it does the same again."""

import re
from collections.abc import Callable, Sequence
from random import Random
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from palimpsest.errors import BackendError, ParamsError
from palimpsest.methods.evolve.author import Author
from palimpsest.methods.evolve.instructed import InstructedAuthor, expected_calls, mean_words
from palimpsest.methods.evolve.prompting import (
    REASONS,
    Request,
    asked_words,
    clean,
    echoes,
    fault,
    judge_answer,
    refuses,
    whole_sentences,
    with_blanks,
)
from palimpsest.models.chat.base import Answer, Ask
from palimpsest.models.chat.settings import Length, LocalChatSettings, Price, Prompts
from palimpsest.records.record import Record
from palimpsest.records.segment import split_parts

LABELS = {"praise": "a guest was happy", "complaint": "a guest was not"}
PROMPTS: dict[str, Any] = {
    "system": "Answer with the text alone.",
    "random": "Write a {label} ({description}) about {keyword}, {style}, of {words} words.",
    "vary": "paraphrase",
    "paraphrase": "Paraphrase this {label}, {style}, in {words} words: {text}",
    "blanks": "Fill in each {blank} of this {label}, {words} words: {text}",
    "blank": "_",
    "masked": 0.5,
    "keywords": {"praise": ("beds", "breakfast", "views"), "*": ("noise", "dust")},
    "styles": ("briefly", "warmly", "with an example"),
}
LENGTH: dict[str, Any] = {"typical": 12, "least": 5, "spread": 4.0, "tokens_a_word": 1.5, "cap": 40}
RECORDS = [
    Record("The beds were soft and the staff was kind.", "praise"),
    Record("Dust lay on each shelf.", "complaint"),
]
ASK = Ask((("user", "?"),), 20, 1.0, 1.0)


def settings(
    prompts: dict[str, Any] | None = None, length: dict[str, Any] | None = None, **changes: Any
) -> LocalChatSettings:
    given: dict[str, Any] = {
        "kind": "local", "model": "tiny", "batch": 4, "temperature": 1.1, "top_p": 0.9, "tries": 3,
        "prompts": {**PROMPTS, **(prompts or {})}, "length": {**LENGTH, **(length or {})},
    }  # fmt: skip
    return LocalChatSettings.model_validate({**given, **changes})


def story(ask: Ask) -> str:
    """A text that hangs on the whole request and is like no other."""
    draw = Random(repr(ask))
    return " ".join("".join(draw.choices("bdfglmnprstv", k=6)) for _ in range(8)) + "."


class Writer:
    """A model that writes by a script and keeps what it was asked."""

    def __init__(self, script: Callable[[Ask], str | Answer] = story) -> None:
        self.asks: list[Ask] = []
        self.calls = 0
        self._script = script

    def answer(self, asks: Sequence[Ask]) -> list[Answer]:
        self.asks += asks
        self.calls += 1
        answers = [self._script(ask) for ask in asks]
        return [one if isinstance(one, Answer) else Answer(one, "stop", 10, 5) for one in answers]


def author(chat: Writer, seed: int = 3, **changes: Any) -> InstructedAuthor:
    return InstructedAuthor(settings(**changes), chat, LABELS, seed)


def prompts_of(chat: Writer) -> list[str]:
    return [ask.messages[-1][1] for ask in chat.asks]


def wanted(**changes: Any) -> Request:
    given = {"ask": ASK, "label": "praise", "words": 10, "instruction": "Say it in other words, a guest was happy."}
    return Request(**{**given, **changes})


# New texts.


def test_each_new_text_is_one_request_with_a_label_keyword_style_and_length_of_its_own() -> None:
    chat = Writer()
    one: Author = author(chat)
    written = one.random({"praise": 40, "complaint": 30})
    assert [record.label for record in written] == ["praise"] * 40 + ["complaint"] * 30
    assert len(chat.asks) == 70
    told = [
        re.fullmatch(r"Write a (\w+) \((.*)\) about (\w+), (.*), of (\d+) words\.", one) for one in prompts_of(chat)
    ]
    seen = [found.groups() for found in told if found]
    assert len(seen) == 70
    assert {(label, description) for label, description, *_ in seen} == set(LABELS.items())
    assert {keyword for label, _, keyword, *_ in seen if label == "praise"} == {"beds", "breakfast", "views"}
    assert {keyword for label, _, keyword, *_ in seen if label == "complaint"} == {"noise", "dust"}
    assert {style for *_, style, _ in seen} == set(PROMPTS["styles"])
    lengths = [int(number) for *_, number in seen]
    assert min(lengths) >= 5
    assert len(set(lengths)) > 8
    assert fmean(lengths) == pytest.approx(12, abs=1.5)
    assert [ask.max_tokens for ask in chat.asks] == [min(int(1.5 * words), 40) for words in lengths]
    assert {(ask.temperature, ask.top_p, ask.messages[0]) for ask in chat.asks} == {
        (1.1, 0.9, ("system", "Answer with the text alone."))
    }


def test_no_system_message_where_there_is_none() -> None:
    chat = Writer()
    author(chat, prompts={"system": None}).random({"praise": 1})
    assert [role for role, _ in chat.asks[0].messages] == ["user"]


def test_equal_prompts_are_told_apart_by_their_number() -> None:
    chat = Writer()
    same = {"random": "Write a {label}.", "keywords": {}}
    written = author(chat, prompts=same).random({"praise": 50})
    assert len(set(prompts_of(chat))) == 1
    assert len({ask.number for ask in chat.asks}) == 50
    assert len(set(written)) == 50


def test_a_task_without_labels_has_texts_without_one() -> None:
    chat = Writer()
    plain = {"random": "Write {words} words.", "keywords": {}, "paraphrase": "Anew: {text}"}
    one = InstructedAuthor(settings(plain), chat, {}, 0)
    written = one.random({"": 2})
    assert [record.label for record in written] == [None, None]
    assert [record.label for (record,) in one.vary(written, 1, 0)] == [None, None]


def test_texts_that_cannot_be_used_are_replaced_and_counted() -> None:
    chat = Writer(lambda ask: story(ask) if ask.number % 2 else "I'm sorry, but I can't help with that.")
    one = author(chat)
    written = one.random({"praise": 60})
    assert len(written) == 60
    assert one.counts.unusable == {"refused": len(chat.asks) - 60}
    assert one.counts.asked == len(chat.asks) > 80
    assert (one.counts.read, one.counts.written) == (10 * len(chat.asks), 5 * len(chat.asks))


def test_a_model_that_never_writes_is_asked_tries_times_for_each_text_and_no_more() -> None:
    chat = Writer(lambda _: Answer("", "failed"))
    one = author(chat)
    assert one.random({"praise": 7, "complaint": 2}) == []
    assert one.vary(RECORDS, 2, 0) == [[], []]
    assert len(chat.asks) == 3 * 9 + 3 * 4
    assert len(set(chat.asks)) == len(chat.asks)
    assert one.counts.unusable == {"failed": 39}


def test_nothing_wanted_asks_nothing() -> None:
    chat = Writer()
    one = author(chat)
    assert one.random({"praise": 0}) == []
    assert one.vary([], 3, 0) == []
    assert one.vary(RECORDS, 0, 0) == [[], []]
    assert chat.calls == 0


# Variations.


def test_variations_keep_their_label_and_follow_the_length_of_their_text() -> None:
    chat = Writer()
    long = Record(" ".join(["word"] * 60), "praise")
    varied = author(chat, length={"cap": 90}).vary([*RECORDS, long], 30, 0)
    assert [len(one) for one in varied] == [30, 30, 30]
    assert [{record.label for record in one} for one in varied] == [{"praise"}, {"complaint"}, {"praise"}]
    found = [re.search(r"in (\d+) words: (.*)", prompt) for prompt in prompts_of(chat)]
    lengths: dict[str, list[int]] = {}
    for one in found:
        assert one is not None
        lengths.setdefault(one[2], []).append(int(one[1]))
    assert set(lengths) == {*(record.text for record in RECORDS), long.text}
    assert fmean(lengths[long.text]) == pytest.approx(60, abs=3)
    assert min(lengths[RECORDS[1].text]) == 5
    assert max(ask.max_tokens for ask in chat.asks) == 90


def test_equal_records_repeated_turns_and_times_are_all_varied_apart() -> None:
    chat = Writer()
    one = author(chat, prompts={"styles": ["so"]}, length={"spread": 0.0})
    first = one.vary([RECORDS[0], RECORDS[0]], 3, 0)
    second = one.vary([RECORDS[0], RECORDS[0]], 3, 1)
    assert len(set(prompts_of(chat))) == 1
    assert len({record.text for group in [*first, *second] for record in group}) == 12


def test_the_same_seed_asks_the_same_and_another_seed_does_not() -> None:
    def asked(seed: int) -> tuple[list[Ask], list[Record], list[list[Record]]]:
        chat = Writer(lambda ask: story(ask) if ask.number % 3 else "")
        one = author(chat, seed)
        return chat.asks, one.random({"praise": 9}), one.vary(RECORDS, 4, 2)

    assert asked(1) == asked(1)
    assert not {ask.number for ask in asked(1)[0]} & {ask.number for ask in asked(2)[0]}


def test_variations_of_a_record_do_not_hang_on_the_others_of_the_call() -> None:
    together, alone = Writer(), Writer()
    both = author(together).vary(RECORDS, 3, 5)
    assert [author(alone).vary([record], 3, 5)[0] for record in RECORDS] == both


def test_a_copy_is_asked_for_again_with_another_request_and_at_last_left_out() -> None:
    chat = Writer(lambda ask: ask.messages[-1][1].partition(": ")[2].upper())
    one = author(chat)
    assert one.vary(RECORDS[:1], 2, 0) == [[]]
    assert len(set(chat.asks)) == len(chat.asks) == 6
    assert one.counts.unusable == {"copy": 6}


def test_blanks_stand_for_masked_words_and_may_not_stay() -> None:
    def fill(ask: Ask) -> str:
        return ask.messages[-1][1].partition(": ")[2].replace("_", "green", -1 if ask.number % 2 else 1)

    chat = Writer(fill)
    one = author(chat, prompts={"vary": "blanks"})
    (varied,) = one.vary(RECORDS[:1], 40, 0)
    shown = [prompt.partition(": ")[2] for prompt in prompts_of(chat)]
    source = RECORDS[0].text.split()
    assert all(mark in ("_", word) for text in shown for mark, word in zip(text.split(), source, strict=True))
    masked = [text.split().count("_") for text in shown]
    assert min(masked) >= 1
    assert fmean(masked) == pytest.approx(0.5 * len(source), abs=0.6)
    assert one.counts.unusable["blank"] > 5
    assert not any("_" in record.text for record in varied)


SHOTS = {
    "praise": ("The pool was clean and the bar was open late.", "Our room was large and very quiet.", "Lovely food."),
    "*": ("Nobody came to mend it at all.", "The walls were thin and damp.", "It was a sad sight."),
}


@pytest.mark.parametrize("shots", [1, 3])
def test_worked_examples_of_the_label_stand_before_a_request_masked_anew_for_each(shots: int) -> None:
    chat = Writer()
    one = author(chat, prompts={"vary": "blanks", "shots": shots, "examples": SHOTS})
    one.vary(RECORDS, 40, 0)
    masked: list[tuple[str, str]] = []
    for ask in chat.asks:
        assert [role for role, _ in ask.messages] == ["system", *["user", "assistant"] * shots, "user"]
        told = [words for _, words in ask.messages[1:-1]]
        assert len(set(told[1::2])) == shots
        masked += zip((words.partition(": ")[2] for words in told[::2]), told[1::2], strict=True)
        kind = "praise" if " praise, " in ask.messages[-1][1] else "*"
        assert set(told[1::2]) <= set(SHOTS[kind])
    assert {whole for _, whole in masked} == {text for texts in SHOTS.values() for text in texts}
    pairs = [(mark, word) for shown, whole in masked for mark, word in zip(shown.split(), whole.split(), strict=True)]
    assert all(mark in ("_", word) for mark, word in pairs)
    assert fmean(mark == "_" for mark, _ in pairs) == pytest.approx(0.5, abs=0.06)
    assert len(set(masked)) > len(masked) / 4, "each request masks anew"


def test_an_answer_that_copies_a_worked_example_is_asked_for_again() -> None:
    chat = Writer(lambda ask: ask.messages[2][1])
    one = author(chat, prompts={"vary": "blanks", "shots": 1, "examples": SHOTS})
    assert one.vary(RECORDS[:1], 2, 0) == [[]]
    assert one.counts.unusable == {"copy": 6}


def test_braces_and_slots_in_texts_labels_and_keywords_stay_as_they_are() -> None:
    chat = Writer()
    strange = "Use {words} and {0} or {text!r}, } here {"
    odd = {"random": "{{x}} {label} {keyword}", "keywords": {"a{b": ["{style}"]}, "paraphrase": "{text}{{y}}"}
    one = InstructedAuthor(settings(odd), chat, {"a{b": "}{"}, 0)
    one.random({"a{b": 1})
    one.vary([Record(strange, "a{b")], 1, 0)
    assert prompts_of(chat) == ["{x} a{b {style}", strange + "{y}"]


def test_an_unreachable_model_is_the_callers_error() -> None:
    def lost(_: Ask) -> str:
        raise BackendError("It is gone.", "Start it.")

    with pytest.raises(BackendError):
        author(Writer(lost)).random({"praise": 1})


def test_a_model_that_loses_answers_is_noticed() -> None:
    class Forgetful(Writer):
        def answer(self, asks: Sequence[Ask]) -> list[Answer]:
            return super().answer(asks)[1:]

    with pytest.raises(ValueError, match="argument"):
        author(Forgetful()).random({"praise": 2})


@pytest.mark.parametrize("keywords", [{"praise": ("beds",)}, {"prise": ("beds",), "*": ("dust",)}])
def test_keywords_for_other_labels_are_refused(keywords: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(ParamsError, match=r"complaint|prise"):
        author(Writer(), prompts={"keywords": keywords})


@pytest.mark.parametrize(
    "prompts",
    [{"paraphrase": "{text}"}, {"random": "{words}"}, {"vary": "blanks", "random": "{words}", "paraphrase": "{text}"}],
)
def test_prompts_that_name_labels_are_refused_for_a_task_without(prompts: dict[str, str]) -> None:
    keywords = {"*": ["dust"]} if "random" not in prompts else {}
    with pytest.raises(ParamsError, match="without labels"):
        InstructedAuthor(settings({"keywords": keywords, **prompts}), Writer(), {}, 0)
    assert InstructedAuthor(settings({"keywords": keywords, **prompts}), Writer(), LABELS, 0)


# Lengths and masks.


@given(st.integers(1, 80), st.integers(1, 60), st.floats(0, 30), st.integers())
def test_the_words_asked_for_are_never_fewer_than_the_least(around: int, least: int, spread: float, seed: int) -> None:
    length = Length.model_validate({**LENGTH, "least": least, "spread": spread})
    assert asked_words(length, around, Random(seed)) >= least
    assert asked_words(length.model_copy(update={"spread": 0.0}), around, Random(seed)) == max(least, around)


@given(st.text(), st.floats(0.01, 0.99), st.integers())
def test_masking_replaces_whole_words_only(text: str, masked: float, seed: int) -> None:
    shown = with_blanks(text, masked, "<?>", Random(seed))
    words = [re.escape(part) if part.isspace() else rf"(?:{re.escape(part)}|<\?>)" for part in split_parts(text)]
    assert re.fullmatch("".join(words), shown)
    assert ("<?>" in shown) == bool(text.split())


def test_masking_leaves_signs_of_a_script_without_blanks() -> None:
    shown = with_blanks("这手机很好用但是电池坏了", 0.5, "_", Random(0))
    assert 3 <= shown.count("_") <= 9
    assert len(shown) == 12


# Cleaning.

WRAPPED = {
    "quotes": '"{}"',
    "curly quotes": "“{}”",
    "a quote that never closes": '"{}',
    "a fence": "```\n{}\n```",
    "a fence with a language": "```text\n{}\n```",
    "a fence that never closes": "```\n{}",
    "courtesy": "Sure, here is a paraphrase of the text:\n\n{}",
    "courtesy on one line": "Certainly! Here's the rewritten version: {}",
    "courtesy and an offer": "Of course! I'd be happy to help with that!\n{}",
    "courtesy alone": "Sure!\n\n{}",
    "an announcement": "Here is the review you asked for:\n{}",
    "courtesy, quotes, label": 'Sure, here you go. Here is the text:\n"Label: praise\n{}"',
    "the label": "Label: praise\n{}",
    "the label in bold": "**Sentiment:** Praise\n\n{}",
    "the label as a head": "Praise: {}",
    "the label behind": "{}\nLabel: praise",
    "a name": "Rewritten text: {}",
    "a name in bold": "**Paraphrase:** {}",
    "bold": "**{}**",
    "a count": "{} (9 words)",
    "a count on a line": "{}\n\nWord count: 9",
    "an offer": "{}\n\nLet me know if you would like changes!",
    "thoughts": "<think>\nThe user wants praise.\n</think>\n\n{}",
    "an object": '{{"label": "praise", "text": "{}"}}',
}
KEPT = [
    'She said "yes" and he said "no"',
    '"Great" beds and "soft" pillows: "lovely"',
    "Here is the thing: it rained all day.",
    "Sure, the pool was cold, but who cares?",
    "'Twas a fine stay, wasn't it? 'Twas.",
    "Okay so I went there twice\nand came back once.",
    "Praiseworthy: all of it.",
    "I paid 200 (two hundred) for 12 words of thanks.",
    "Types: many. Labels: none.",
]
LINES = st.lists(st.text("abcdefghij ", min_size=1), min_size=1).map(lambda parts: " ".join(" ".join(parts).split()))


@pytest.mark.parametrize("name", WRAPPED)
def test_wrappings_come_off(name: str) -> None:
    text = "The beds were soft, and it's the best inn of all."
    assert clean(WRAPPED[name].format(text), "praise") == text


@given(st.sampled_from(sorted(WRAPPED)), LINES.filter(bool))
def test_plain_words_come_out_of_any_wrapping_as_they_went_in(name: str, text: str) -> None:
    assert clean(WRAPPED[name].format(text), "praise") == text


@pytest.mark.parametrize("text", KEPT)
def test_texts_that_only_look_wrapped_are_kept(text: str) -> None:
    assert clean(text, "praise") == text


PIECES = st.sampled_from(
    ['"', "'", "“", "”", "`", "```", "\n", " ", "**", "_", "Sure", "! ", "Here is the text", ":", "Label: ", "praise",
     "{", "}", '{"a": "b"}', "[", "]", "<think>", "</think>", "(9 words)", "Word count: 3", "Let me know", "ok", "."]
)  # fmt: skip


@given(st.one_of(st.text(), st.lists(PIECES, max_size=25).map("".join)), st.sampled_from(["praise", "", "a(b", "1"]))
def test_cleaning_twice_is_cleaning_once_and_adds_nothing(text: str, label: str) -> None:
    once = clean(text, label)
    assert clean(once, label) == once
    assert once == once.strip()
    assert len(once) <= len(text)


@given(st.text(), st.text())
def test_whole_sentences_are_a_beginning_of_the_text(text: str, more: str) -> None:
    kept = whole_sentences(text)
    assert text.startswith(kept)
    assert whole_sentences(kept) == kept
    assert whole_sentences(text + ". " + more.replace(".", "")).startswith(text + ".")


# Judging.

ADVICE = "Say it in other words and keep to the kind of text that it is."
FAULTS = {
    "empty": [("", {}), ('""', {}), ("Sure, here is the text:", {}), ("<think>I never", {})],
    "garbage": [
        ("?! 123 ...", {}), ('{"a": "x", "b": "y"}', {}), ('["one", "two"]', {}), ('{"text": "It was so', {}),
    ],
    "refused": [
        ("I'm sorry, but I can't assist with that.", {}), ("I’m sorry, but I can’t.", {}),
        ("I am sorry, but I cannot fulfill this request.", {}), ("I cannot create content of this kind, that is.", {}),
        ("As an AI language model, I have no beds.", {}), ("Alas! I'm just an AI, and I never sleep.", {}),
        ("I apologize, but I'm unable to provide reviews.", {}),
    ],
    "echo": [
        ("Praise!", {}),
        ("Say it in other words, and keep to the kind of text that it is. Soft beds.", {"instruction": ADVICE}),
        ("Keep to the kind of text", {"instruction": ADVICE}),
    ],
    "copy": [("the beds were SOFT", {"source": "The beds were soft!"})],
    "blank": [("The beds _ soft", {"source": "The beds were soft", "blank": "_"})],
}  # fmt: skip
FINE = [
    ("The beds were soft.", {}),
    ("I'm sorry, but I can't recommend this film to anyone.", {}),
    ("As an AI researcher I doubt that.", {}),
    ("I can't help but love it.", {}),
    ("Das Bett war weich.", {}),
    ("床很软。", {}),
    ("The beds were soft", {"source": "The beds were _ soft", "blank": "_"}),
    ("A snake_case word", {"source": "One snake_case word", "blank": "_"}),
    ("A _ word", {"source": "One word"}),
    ("Keep the other words of it, that is what a guest wants", {"instruction": ADVICE}),
]


@pytest.mark.parametrize(("reason", "text", "changes"), [(why, *one) for why, some in FAULTS.items() for one in some])
def test_what_cannot_be_used_is_named(reason: str, text: str, changes: dict[str, Any]) -> None:
    assert judge_answer(Answer(text, "stop"), wanted(**changes)) == ("", reason)
    assert reason in REASONS


@pytest.mark.parametrize(("text", "changes"), FINE)
def test_what_can_be_used_is(text: str, changes: dict[str, Any]) -> None:
    assert judge_answer(Answer(text, "stop"), wanted(**changes)) == (text, None)
    assert fault(text, wanted(**changes)) is None


@pytest.mark.parametrize("finish", ["refused", "failed"])
def test_an_answer_that_ended_badly_is_not_read(finish: Any) -> None:
    assert judge_answer(Answer("The beds were soft.", finish), wanted()) == ("", finish)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The beds were soft. The view was", ("", "cut off")),
        ("The beds were very soft. The view was", ("The beds were very soft.", None)),
        ('"The beds were very soft. The view was', ("The beds were very soft.", None)),
        ("The beds were very soft and the view", ("", "cut off")),
        ("The beds were very, very soft.", ("The beds were very, very soft.", None)),
        ("", ("", "cut off")),
    ],
)
def test_a_cut_off_answer_keeps_its_whole_sentences_if_they_are_half_of_it(text: str, found: tuple[str, Any]) -> None:
    assert judge_answer(Answer(text, "length"), wanted(words=10)) == found


def test_a_long_run_of_the_instruction_is_an_echo_in_a_long_text_and_a_short_one_is_not() -> None:
    told, story_of_it = ADVICE.split(), "We came late, slept well and left early. " * 6
    assert not echoes(story_of_it + " ".join(told[:7]), ADVICE)
    assert echoes(story_of_it + " ".join(told[:8]), ADVICE)


def test_a_model_that_repeats_its_prompt_is_never_used() -> None:
    chat = Writer(lambda ask: ask.messages[-1][1])
    one = author(
        chat, prompts={"random": "Write a {label} as a guest might, {style}; use {words} words.", "keywords": {}}
    )
    assert one.random({"praise": 5}) == []
    assert one.counts.unusable == {"echo": 15}


def test_a_new_text_that_is_there_already_is_asked_for_again() -> None:
    chat = Writer(lambda ask: f"We liked the {'view' if ask.number % 3 else 'rooms'} best.")
    one = author(chat, tries=20)
    assert {record.text for record in one.random({"praise": 2})} == {
        f"We liked the {what} best." for what in ("view", "rooms")
    }
    assert one.counts.unusable["repeat"] == one.counts.asked - 2


def test_keywords_and_sources_are_no_instruction() -> None:
    phrase = "the long queue in front of the only lift each morning"
    chat = Writer(lambda _: f"We hated {phrase}.")
    one = author(chat, prompts={"keywords": {"*": [phrase]}})
    assert len(one.random({"praise": 1})) == 1
    assert one.vary([Record(f"They hated {phrase}.", "praise")], 1, 0)[0]


@given(st.text())
def test_any_answer_is_a_text_or_has_a_reason(text: str) -> None:
    for finish in ("stop", "length"):
        found, reason = judge_answer(Answer(text, finish), wanted(source="The beds were soft.", blank="_"))  # type: ignore[arg-type]
        assert (reason in REASONS and not found) or (reason is None and any(letter.isalpha() for letter in found))
    assert not (refuses(text) and echoes(text, "")) or text


# What it will cost.


def test_the_expected_cost_is_about_what_a_run_asks() -> None:
    for prompts in ({}, {"vary": "blanks"}, {"vary": "blanks", "shots": 2, "examples": {"*": SHOTS["praise"]}}):
        chat, one = Writer(), settings(prompts)
        texts = [Record(" ".join(["word"] * 12), label) for label in LABELS for _ in range(100)]
        writing = InstructedAuthor(one, chat, LABELS, 0)
        writing.random(dict.fromkeys(LABELS, 100))
        writing.vary(texts, 2, 0)
        read = sum(len(" ".join(words for _, words in ask.messages).split()) for ask in chat.asks)
        expected = expected_calls(one, LABELS, 200, 400)
        assert expected.requests == len(chat.asks) == 600
        assert expected.read == pytest.approx(4 / 3 * read, rel=0.02)
        asked = sum(ask.max_tokens for ask in chat.asks) / 1.5
        assert expected.written == pytest.approx(4 / 3 * asked, rel=0.05)
        price = Price(read=2.0, written=6.0, most=None)
        assert expected.cost(price) == pytest.approx((2 * expected.read + 6 * expected.written) / 1e6)


def test_no_answer_is_expected_to_pass_the_cap() -> None:
    assert expected_calls(settings(length={"cap": 3}), LABELS, 10, 0).written == 30
    assert expected_calls(settings(), LABELS, 0, 0).written == 0


@pytest.mark.parametrize(("around", "least", "spread"), [(12, 5, 4.0), (5, 20, 10.0), (30, 30, 8.0), (9, 4, 0.0)])
def test_the_mean_of_the_words_is_that_of_the_draws(around: int, least: int, spread: float) -> None:
    length = Length.model_validate({**LENGTH, "least": least, "spread": spread})
    draw = Random(1)
    drawn = fmean(max(least, around + draw.gauss(0, spread)) for _ in range(40_000))
    assert mean_words(length, around) == pytest.approx(drawn, rel=0.02)


# Settings.

REFUSED = {
    "unknown slot": ({"random": "Write {words} words on {topic} and {keyword}."}, r"random names \['topic'\]"),
    "a new text has no source": ({"random": "{keyword} {text}"}, r"random names \['text'\]"),
    "keyword in a variation": ({"paraphrase": "{text} {keyword}"}, r"paraphrase names \['keyword'\]"),
    "blank outside blanks": ({"paraphrase": "{text} {blank}"}, r"paraphrase names \['blank'\]"),
    "no text": ({"paraphrase": "Say it anew."}, "paraphrase must name {text} once"),
    "text twice": ({"blanks": "{text} {text}"}, "blanks must name {text} once"),
    "a brace alone": ({"random": "{keyword} {"}, "a brace alone"),
    "an unnamed slot": ({"random": "{} {keyword}"}, r"random names \[''\]"),
    "a part of a slot": ({"paraphrase": "{text} {label.__class__}"}, "paraphrase names"),
    "a layout": ({"random": "{keyword:>9}"}, "laid out"),
    "a conversion": ({"paraphrase": "{text!r}"}, "laid out"),
    "keywords unused": ({"random": "{words}"}, "must name {keyword}"),
    "no keywords": ({"keywords": {}}, "must name {keyword}"),
    "a label without keywords": ({"keywords": {"praise": (), "*": ("x",)}}, "needs at least one"),
    "a blank of two words": ({"blank": "a b"}, "blank"),
    "shots without examples": ({"vary": "blanks", "shots": 1}, "needs as many texts, got 0"),
    "more shots than examples": ({"vary": "blanks", "shots": 2, "examples": {"*": ("x",)}}, "as many texts, got 1"),
    "shots of a paraphrase": ({"shots": 1, "examples": {"*": ("x",)}}, "only vary blanks shows worked examples"),
    "a blank example": ({"examples": {"*": (" ",)}}, "a text under examples is blank"),
    "no style": ({"styles": ()}, "styles"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_prompts_that_cannot_be_filled_are_refused(name: str) -> None:
    changes, told = REFUSED[name]
    with pytest.raises(ValidationError, match=told):
        Prompts.model_validate({**PROMPTS, **changes})


def test_the_default_prompts_are_whole_varied_and_public() -> None:
    prompts = Prompts()
    assert len(set(prompts.styles)) == len(prompts.styles) >= 12
    assert prompts.keywords == {}
    for vary in ("paraphrase", "blanks"):
        chat = Writer()
        one = author(chat, prompts={**prompts.model_dump(), "vary": vary})
        assert len(one.random({"praise": 30})) == 30
        assert all(len(group) == 5 for group in one.vary(RECORDS, 5, 0))
        assert not any(re.search(r"\{|\}", prompt) for prompt in prompts_of(chat))
        echo = author(Writer(lambda ask: ask.messages[-1][1]), prompts={**prompts.model_dump(), "vary": vary})
        assert echo.random({"praise": 5}) == []
        assert echo.vary(RECORDS, 3, 0) == [[], []]
