"""Prompts: slots become words or tokens, a record stays inside its own, and what is wrong is told."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palimpsest.errors import ModelError, ParamsError
from palimpsest.models.tokens import specials, train_tokenizer
from palimpsest.prediction.prompts import Prompter, few_shot_prompter, prompter, split_record
from tests.prediction.tiny import CONTEXT, VOCABULARY, tokenizer

LABELS = {"praise": "Nice words.", "a complaint": "Harsh words."}
IDS = specials(tokenizer())
CHAT = (
    "{% for message in messages %}<|sep|>{{ message.role }}: {{ message.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|sep|>assistant:{% endif %}"
)


def encoded(words: str) -> list[int]:
    return tokenizer().encode(words, add_special_tokens=False)


def made(private: str, public: str = "{label}:", *, chat: bool = False, joint: str | None = None, **labels) -> Prompter:
    return prompter(
        labels.get("tokenizer", tokenizer()), private, public, labels.get("labels", LABELS), chat=chat, text_tokens=12,
        joint=joint,
    )  # fmt: skip


def test_slots_become_words_and_tokens() -> None:
    found = made("{label} is {description}{separator}{text}{end}{{so}}", "{description}{separator}")
    wanted = [IDS.bos, *encoded("praise is Nice words."), IDS.sep, *encoded("a lamp"), IDS.eos, *encoded("{so}")]
    assert found.contexts("praise", ["a lamp"]) == [wanted]
    assert found.public["a complaint"] == (IDS.bos, *encoded("Harsh words."), IDS.sep)
    assert found.contexts("praise", []) == []


def test_braces_in_labels_and_texts_are_words() -> None:
    found = made("{label}|{text}", labels={"{text}": "{}"})
    assert found.contexts("{text}", ["{label}"]) == [[IDS.bos, *encoded("{text}|"), *encoded("{label}")]]


def test_a_task_without_labels_has_the_one_empty_label() -> None:
    found = made("Text: {text}{separator}", "Text: ", labels={})
    assert list(found.private) == list(found.public) == [""]


def test_a_text_is_cut_and_its_prompt_has_a_most() -> None:
    found = made("{label}:{text}{separator}")
    (long,) = found.contexts("a complaint", ["ab cd ef " * 30])
    assert len(long) == found.longest
    assert long[-1] == IDS.sep
    assert found.longest_with_head == found.longest + len(found.public["a complaint"])


@settings(deadline=None)
@given(st.lists(st.sampled_from(["<|endoftext|>", "<|sep|>", "<|pad|>", "{text}", "x", "\n", "é", "\x00"]), max_size=9))
def test_a_record_cannot_leave_its_slot(parts) -> None:
    found = made("{label}{separator}{text}{separator}")
    (context,) = found.contexts("praise", ["".join(parts)])
    frame = found.private["praise"]
    inner = context[len(frame.before) : len(context) - len(frame.after)]
    assert context == [*frame.before, *inner, *frame.after]
    assert not set(inner) & IDS.control
    assert len(inner) <= 12


@pytest.mark.parametrize("label", LABELS)
def test_chat_templates_stand_around_both_prompts(label: str) -> None:
    chatty = train_tokenizer(["the lamp hums in the hall", "a kettle leaks"], VOCABULARY, CONTEXT)
    chatty.chat_template = CHAT
    found = made("Like {text}{separator}of {label}", "Of {label}", chat=True, tokenizer=chatty)
    answer = [IDS.sep, *encoded("assistant:")]
    before, after = [IDS.sep, *encoded("user: Like ")], [IDS.sep, *encoded(f"of {label}"), *answer]
    assert found.contexts(label, ["a lamp"]) == [[*before, *encoded("a lamp"), *after]]
    assert found.public[label] == (IDS.sep, *encoded(f"user: Of {label}"), *answer)


def test_a_model_without_chat_template_is_refused() -> None:
    with pytest.raises(ModelError, match="no chat template"):
        made("{text}", chat=True)


@pytest.mark.parametrize(
    ("private", "public", "message"),
    [
        ("no slot", "{label}", "names {text} 0 times"),
        ("{text}{text}", "{label}", "names {text} 2 times"),
        ("{text}", "{text}", "names {text} 1 times"),
        ("{text}{nothing}", "{label}", "nothing"),
        ("{text}{}", "{label}", "which there are not"),
        ("{text", "{label}", "brace alone"),
        ("{text}}", "{label}", "brace alone"),
        ("{text}", "{", "brace alone"),
    ],
)
def test_templates_that_cannot_be_filled_in_are_refused(private: str, public: str, message: str) -> None:
    with pytest.raises(ParamsError) as caught:
        made(private, public)
    assert message in str(caught.value)


def test_a_public_prompt_of_nothing_is_refused() -> None:
    """The beginning of a text is something; what a chat template leaves out is not."""
    assert made("{text}", "{label}", labels={}).public == {"": (IDS.bos,)}
    silent = train_tokenizer(["a"], VOCABULARY, CONTEXT)
    silent.chat_template = "{% if messages[0].content != 'quiet' %}{{ messages[0].content }}{% endif %}"
    with pytest.raises(ParamsError, match="empty"):
        made("{text}", "quiet", chat=True, tokenizer=silent)


# Free labels.


def test_a_free_label_comes_first_so_that_a_cut_takes_the_text() -> None:
    found = made("{text}{separator}", "A text: ", joint=" | ", labels={})
    assert found.join_record("a lamp", "comedy") == "comedy | a lamp"
    assert found.join_record("a lamp", None) == " | a lamp"
    assert made("{text}").join_record("a lamp", "comedy") == "a lamp"


WORDS = st.text(min_size=1).map(str.strip).filter(bool)


@settings(deadline=None)
@given(WORDS.filter(lambda words: "|" not in words), WORDS, st.sampled_from([" | ", "|", " ||| "]))
def test_what_was_joined_is_parsed(label, text, joint) -> None:
    joined = made("{text}", "A text: ", joint=joint, labels={}).join_record(text, label)
    if not text.startswith("|"):
        assert split_record(joined, joint) == (text, label)


@pytest.mark.parametrize("text", ["comedy", "comedy |", "| a film", " | ", ""])
def test_what_lacks_a_part_is_no_record(text: str) -> None:
    assert split_record(text, " | ") is None


def test_a_joint_of_white_space_parts_as_it_is() -> None:
    assert split_record("comedy\na film\nof two lines", "\n") == ("a film\nof two lines", "comedy")


# Several records in a prompt.


def test_shots_follow_one_head() -> None:
    found = few_shot_prompter(tokenizer(), "Of {label}{separator}", "{text}{end}", LABELS, text_tokens=5)
    assert found.public["praise"] == (IDS.bos, *encoded("Of praise"), IDS.sep)
    assert found.contexts("praise", ["a lamp", ""]) == [[*encoded("a lamp")[:5], IDS.eos], [IDS.eos]]


@pytest.mark.parametrize(
    ("head", "shot"), [("{text}", "{text}"), ("Of", "none"), ("Of", "{text}{text}"), ("{x}", "{text}")]
)
def test_few_shot_templates_that_cannot_be_filled_in_are_refused(head: str, shot: str) -> None:
    with pytest.raises(ParamsError):
        few_shot_prompter(tokenizer(), head, shot, LABELS, text_tokens=5)
