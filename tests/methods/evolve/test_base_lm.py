"""A base model's texts: beginnings kept, gaps filled, each a function of the seed, the turn and the text."""

import json
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from transformers import CTRLTokenizer, GPT2Config, GPT2LMHeadModel

from palimpsest.errors import ModelError, ParamsError
from palimpsest.methods.evolve.authors import Base
from palimpsest.methods.evolve.base_lm import BaseAuthor
from palimpsest.models.lm import learn_prompts, load_lm, save_lm
from palimpsest.models.settings import PromptWarmUp
from palimpsest.models.sources import require_usable
from palimpsest.models.writing import Start
from palimpsest.records.conformity import conforms
from palimpsest.records.record import Record
from palimpsest.records.structured import members_of
from tests.methods.two_classes import WORDS, two_class_records

RECORDS = two_class_records()[::8]
CONTROL = ("<|endoftext|>", "<|pad|>", "<|sep|>")


class Given:
    """An author whose texts are known."""

    def __init__(self, texts: Mapping[str, Sequence[str]]) -> None:
        self._texts = texts

    def random(self, counts: Mapping[str, int]) -> list[Record]:
        return [Record(text, label or None) for label in counts for text in self._texts[label][: counts[label]]]

    def vary(self, records: Sequence[Record], times: int, turn: int) -> list[list[Record]]:
        raise AssertionError("only new texts begin with others")


def settings(**changes: object) -> Base:
    usual = {
        "kind": "base", "vary": "suffix", "kept": (0.3, 0.7), "masked": 0.4, "start": "prompt", "temperature": 1.2,
        "top_p": 0.95, "max_tokens": 30, "batch": 8,
    }  # fmt: skip
    return Base(**{**usual, **changes})


@pytest.fixture(scope="module")
def taught(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that knows what stands before the separator."""
    folder = tmp_path_factory.mktemp("taught") / "lm"
    save_lm(*load_lm(base), folder)
    how = PromptWarmUp(epochs=20, batch=16, learning_rate=0.01, max_tokens=24)
    learn_prompts(
        folder, [each.text for each in two_class_records()], [str(each.label) for each in two_class_records()], how, 1
    )
    return folder


def flat(found: Sequence[Sequence[Record]]) -> list[Record]:
    return [record for group in found for record in group]


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_new_texts_carry_the_label_of_their_prompt(taught: Path, precision: str) -> None:
    found = BaseAuthor(settings(temperature=1.0, precision=precision), taught, 3).random(dict.fromkeys(WORDS, 30))
    assert {record.label for record in found} == set(WORDS)
    assert found == sorted(found, key=lambda record: list(WORDS).index(record.label))
    assert 30 <= len(found) == len(set(found)) <= 60
    own, other = (
        np.mean([any(word in each.text for word in WORDS[name]) == (name == each.label) for each in found])
        for name in WORDS
    )
    assert min(own, other) > 0.75


def test_new_texts_are_asked_for_until_each_label_has_its_own(taught: Path, monkeypatch) -> None:
    """A model writes an empty text, or one that is there, again and again; one that knows no other ends soon."""
    author, asked = BaseAuthor(settings(), taught, 3), []
    texts = (text for number in count() for text in ("", "a", f"a {number}"))

    def written(drafts: Sequence[Any], _write: object) -> list[str]:
        asked.extend(draft.label for draft in drafts)
        return ["the same" if draft.label == "b" else next(texts) for draft in drafts]

    monkeypatch.setattr(author, "_opening", lambda *_given: [0])
    monkeypatch.setattr(author, "_write_drafts", written)
    found = author.random({"a": 12, "b": 2})
    assert [record.label for record in found] == ["a"] * 12 + ["b"]
    assert len(set(found)) == 13
    assert asked.count("b") < 12


@pytest.mark.parametrize("vary", ["suffix", "infill"])
def test_texts_are_a_function_of_the_seed_the_turn_and_the_text(taught: Path, vary: str) -> None:
    one, other = (
        BaseAuthor(settings(vary=vary, batch=batch, temperature=5.0, top_p=1.0), taught, 3) for batch in (16, 3)
    )
    found = one.vary(RECORDS, 3, 2)
    assert [len(group) for group in found] == [3] * len(RECORDS)
    assert found == one.vary(RECORDS, 3, 2) == other.vary(RECORDS, 3, 2)
    assert found[::-1] == other.vary(RECORDS[::-1], 3, 2)
    assert found[4:5] == one.vary(RECORDS[4:5], 3, 2)
    assert [group[:2] for group in found] == one.vary(RECORDS, 2, 2)
    for changed in (
        one.vary(RECORDS, 3, 1),
        BaseAuthor(settings(vary=vary, temperature=5.0), taught, 4).vary(RECORDS, 3, 2),
    ):
        assert sum(set(a).isdisjoint(b) for a, b in zip(found, changed, strict=True)) > len(RECORDS) / 2
    counts = dict.fromkeys(WORDS, 5)
    assert one.random(counts) == other.random(counts)
    assert one.random({"praise": 5}) == [record for record in one.random(counts) if record.label == "praise"]


@pytest.mark.parametrize("vary", ["suffix", "infill"])
def test_variations_keep_their_label_and_never_say_the_same(taught: Path, vary: str) -> None:
    found = BaseAuthor(settings(vary=vary, temperature=0.5), taught, 3).vary(RECORDS, 12, 0)
    assert sum(map(len, found)) < 12 * len(RECORDS)  # at this temperature some say the same
    for record, group in zip(RECORDS, found, strict=True):
        assert {each.label for each in group} <= {record.label}
        assert len({each.text for each in group} - {record.text, ""}) == len(group)


def test_a_suffix_is_written_behind_the_first_words(taught: Path) -> None:
    text = "The lamp is great and lovely and so very fine."
    author = BaseAuthor(settings(kept=(0.4, 0.4), temperature=2.0), taught, 3)
    found = author.vary([Record(text, "praise")], 40, 0)[0]
    assert len(found) > 30
    assert all(each.text.startswith("The lamp is great") for each in found)
    assert sum(each.text.startswith("The lamp is great and") for each in found) < len(found)
    drawn = BaseAuthor(settings(kept=(0.1, 0.9), temperature=2.0), taught, 3).vary([Record(text, "praise")], 40, 0)[0]
    kept = {sum(each.text.startswith(text[:cut]) for cut in (4, 9, 12, 18)) for each in drawn}
    assert (min(kept) < 2, max(kept), len(kept) > 2) == (True, 4, True)
    assert all(each.text.startswith("The") for each in drawn)


def test_a_suffix_is_about_as_long_as_what_it_replaces(taught: Path) -> None:
    author, tokenizer = BaseAuthor(settings(kept=(0.2, 0.2), temperature=1.5), taught, 3), load_lm(taught)[1]
    short, long = "The lamp is fine.", "The lamp is great and the radio is poor and the kettle is lovely."
    for text in (short, long):
        size, kept = len(tokenizer.encode(text)), len(tokenizer.encode(text.split()[0]))
        sizes = [len(tokenizer.encode(each.text)) for each in author.vary([Record(text, "praise")], 30, 0)[0]]
        assert min(sizes) >= 0.7 * size
        assert max(sizes) <= size + 0.5 * (size - kept) + 9


def test_infilling_keeps_the_words_that_are_not_masked(taught: Path) -> None:
    texts = [Record(f"{thing} one two three four five six seven.", "praise") for thing in ("lamp", "radio")]
    found_by = {}
    for share in (0.1, 0.8):
        how = settings(vary="infill", masked=share, temperature=2.0, max_tokens=40)
        found_by[share] = flat(BaseAuthor(how, taught, 3).vary(texts, 30, 0))
    few, many = found_by.values()
    kept = [np.mean([len(set(each.text.split()) & {"one", "two", "three", "four", "five", "six"}) for each in found])
            for found in (few, many)]  # fmt: skip
    assert kept[0] > 4
    assert kept[1] < 2.5
    assert all(each.text.endswith(".") for each in many)  # the sentence is closed as it was
    for each in few:
        words = [word for word in each.text.split() if word in ("one", "two", "three", "four", "five", "six")]
        assert words == sorted(words, key=["one", "two", "three", "four", "five", "six"].index)


def test_what_follows_a_gap_chooses_what_fills_it(taught: Path) -> None:
    """Behind "is" and before "and" stands an adjective."""
    author = BaseAuthor(settings(vary="infill", masked=0.15, temperature=3.0, top_p=1.0), taught, 3)
    texts = [Record(f"The {thing} is great and lovely.", "praise") for thing in ("lamp", "radio", "kettle")]
    found = [each.text for each in flat(author.vary(texts, 60, 0))]
    filled = [text for text in found if text.startswith(("The lamp is ", "The radio is ", "The kettle is "))
              and text.endswith(" and lovely.")]  # fmt: skip
    assert len(filled) > 10
    known = [
        text.split(" is ")[1].removesuffix(" and lovely.") in {*WORDS["praise"], *WORDS["a complaint"]}
        for text in filled
    ]
    assert np.mean(known) > 0.4, filled


def test_new_texts_may_begin_with_public_ones(base: Path) -> None:
    texts = {
        "praise": ["The lamp is great and fine.", "The radio is lovely and splendid."],
        "": ["The kettle is poor."],
    }
    author = BaseAuthor(settings(start="corpus", temperature=2.0), base, 3, Given(texts))
    found = author.random({"praise": 12, "": 3})
    assert [record.label for record in found] == ["praise"] * (len(found) - 3) + [None] * 3
    assert len(found) > 10
    assert {record.text.split()[0] for record in found} == {"The"}
    assert not {record.text for record in found} & {*texts["praise"], *texts[""]}
    begun = {record.text.split()[1] for record in found}
    assert {"lamp", "radio"} <= begun
    assert author.random({"praise": 0}) == author.random({}) == []
    assert BaseAuthor(settings(start="corpus"), base, 3, Given({"praise": []})).random({"praise": 2}) == []


def test_public_beginnings_must_be_there(base: Path) -> None:
    with pytest.raises(ParamsError, match="no public file"):
        BaseAuthor(settings(start="corpus"), base, 3)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose tokenizer is written in Python, so that it tells no places of its tokens."""
    folder = tmp_path_factory.mktemp("slow")
    signs = [piece for sign in "abcdefghijklmnopqrstuvwxyz" for piece in (f"{sign}@@", sign)]
    vocabulary = {piece: number for number, piece in enumerate(("<unk>", ".", *signs))}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version\n")
    CTRLTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), eos_token=".").save_pretrained(folder)
    sizes = GPT2Config(vocab_size=len(vocabulary), n_positions=128, n_embd=8, n_layer=1, n_head=1)
    GPT2LMHeadModel(sizes).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(("vary", "kept"), [("suffix", ["the", "lamp"]), ("infill", ["one", "two"])])
def test_a_tokenizer_that_tells_no_places_keeps_words_too(slow: Path, vary: str, kept: Sequence[str]) -> None:
    require_usable(slow, writes=True)
    text = "the lamp has one two three four five six"
    author = BaseAuthor(settings(vary=vary, kept=(0.3, 0.3), masked=0.2, max_tokens=60), slow, 3)
    tokens = load_lm(slow)[1].encode(text, add_special_tokens=False)
    assert [token for word in author._words(text) for token in word] == tokens  # noqa: SLF001
    found = author.vary([Record(text, "praise")], 30, 0)[0]
    assert len(found) > 20
    shares = [set(kept) <= set(each.text.split()) for each in found]
    assert np.mean(shares) == 1.0 if vary == "suffix" else 0.3 < np.mean(shares) < 1.0


@pytest.mark.parametrize("vary", ["suffix", "infill"])
def test_short_long_and_empty_texts(taught: Path, vary: str) -> None:
    """The model reads 48 tokens."""
    author, tokenizer = BaseAuthor(settings(vary=vary, max_tokens=500), taught, 3), load_lm(taught)[1]
    long = "The lamp is great and lovely. " * 60
    texts = ["", "  ", "Great", long, "x" * 4000, "The lamp is fine."]
    found = author.vary([Record(text, "praise") for text in texts], 3, 0)
    assert [bool(group) for group in found] == [False, False, True, True, False, True]
    assert max(len(tokenizer.encode(each.text)) for each in found[3]) <= 48
    assert min(len(tokenizer.encode(each.text)) for each in found[3]) > 20
    short = BaseAuthor(settings(vary=vary, max_tokens=7), taught, 3).vary([Record(long, "praise")], 20, 0)[0]
    assert max(len(tokenizer.encode(each.text)) for each in short) <= 7
    assert author.vary([], 3, 0) == []
    assert author.vary(RECORDS[:2], 0, 0) == [[], []]


@pytest.mark.parametrize("vary", ["suffix", "infill"])
def test_equal_records_get_variations_of_their_own(taught: Path, vary: str) -> None:
    author = BaseAuthor(settings(vary=vary, temperature=5.0, top_p=1.0), taught, 3)
    once, again = author.vary([RECORDS[3], RECORDS[3]], 4, 0)
    assert once == author.vary([RECORDS[3]], 4, 0)[0]
    assert len(set(once) | set(again)) > len(once) + 2


def test_whole_public_texts_may_be_the_new_ones(base: Path) -> None:
    texts = {"praise": ["a fine film", "a dull one"]}
    author = BaseAuthor(settings(start="whole"), base, 3, Given(texts))
    started = author.random({"praise": 2})
    assert started == [Record(text, "praise") for text in texts["praise"]]
    assert all(found.text.startswith("a") for found in flat(author.vary(started, 2, 0)))


@pytest.mark.parametrize("start", ["prompt", "corpus"])
@pytest.mark.parametrize("vary", ["suffix", "infill"])
def test_a_tokenizer_without_begin_and_separator_will_do(taught: Path, tmp_path: Path, vary: str, start: str) -> None:
    model, tokenizer = load_lm(taught)
    tokenizer.bos_token = tokenizer.sep_token = tokenizer.pad_token = None
    save_lm(model, tokenizer, tmp_path / "bare")
    assert load_lm(tmp_path / "bare")[1].bos_token_id is None
    author = BaseAuthor(
        settings(vary=vary, start=start, temperature=30.0, top_p=1.0),
        tmp_path / "bare",
        3,
        Given({"praise": [RECORDS[0].text]}),
    )
    found = [*author.random({"praise": 9}), *flat(author.vary(RECORDS, 3, 0))]
    assert len(found) > 3 * len(RECORDS)
    assert not any("<|endoftext|>" in record.text for record in found)


@pytest.mark.parametrize("vary", ["suffix", "infill"])
def test_control_tokens_never_occur_even_when_spelt_out(taught: Path, vary: str) -> None:
    author = BaseAuthor(settings(vary=vary, temperature=30.0, top_p=1.0), taught, 3)
    spelt = [Record(f"The <|sep|>lamp<|endoftext|> is {number} <|pad|> fine.", "praise") for number in range(20)]
    found = [*author.random({"praise": 40}), *flat(author.vary(spelt, 3, 0))]
    assert len(found) > 80
    assert not any(token in record.text for record in found for token in CONTROL)
    assert any("lamp" in record.text for record in found)


def test_a_label_must_leave_room(taught: Path) -> None:
    with pytest.raises(ModelError, match="no room"):
        BaseAuthor(settings(), taught, 3).random({"a label " * 30: 1})


def test_the_first_word_stays_and_a_text_that_finds_no_end_is_cut(taught: Path) -> None:
    tokenizer = load_lm(taught)[1]
    author = BaseAuthor(settings(kept=(0.0, 0.0), temperature=30.0, top_p=1.0), taught, 3)
    found = author.vary([Record("The lamp is", "praise")], 60, 0)[0]
    assert all(each.text.startswith("The") for each in found)
    cut = len(tokenizer.encode("The lamp is")) - len(tokenizer.encode("The"))
    assert max(len(tokenizer.encode(each.text.removeprefix("The"))) for each in found) <= 1.5 * cut + 9


def opened(author: BaseAuthor, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What texts are written behind, as the model reads it; to be filled."""
    seen: list[str] = []
    write = author._writer.go_on  # noqa: SLF001

    def go_on(starts: Sequence[Start]) -> list[list[int]]:
        seen.extend(author._tokenizer.decode(start.tokens[1:]) for start in starts)  # noqa: SLF001
        return write(starts)

    monkeypatch.setattr(author._writer, "go_on", go_on)  # noqa: SLF001
    return seen


def test_prompts_in_words_show_public_examples_and_the_text_to_vary(base: Path, monkeypatch) -> None:
    known, labels = ["The lamp is fine.", "The radio is fine."], {"praise": "nice"}
    words = {"prompt": "{description}:\n", "paraphrase": "{text} =\n", "blanks": "{text} ?\n", "ends": "line"}
    how = {"max_tokens": 12, "masked": 0.6, **words}
    author = BaseAuthor(settings(**how, examples=1), base, 3, Given({"praise": known}), labels)
    seen = opened(author, monkeypatch)
    author.random({"praise": 20})
    assert set(seen) == {f"nice:\n{text}\n\nnice:\n" for text in known}
    for vary, shown in (("paraphrase", "The lamp is fine. =\n"), ("blanks", " ?\n")):
        author = BaseAuthor(settings(**how, vary=vary, temperature=3.0), base, 3, None, labels)
        seen = opened(author, monkeypatch)
        (found,) = author.vary([Record("The lamp is fine.", "praise")], 30, 0)
        assert all(each.endswith(shown) for each in seen)
        assert (len(set(seen)) > 3) == (vary == "blanks")
        assert all(" _" in each or "The lamp is fine." in each for each in seen)
        assert len(found) > 20
        assert not any("\n" in each.text for each in found)
        assert author.vary([Record("The lamp is fine.", "praise")], 30, 0) == [found]


@pytest.mark.parametrize(("most", "shown"), [(6, 2), (20, 1), (30, 0), (60, 0)])
def test_examples_leave_room_for_the_text(base: Path, monkeypatch, most: int, shown: int) -> None:
    """The model reads 48 tokens."""
    how = settings(prompt="{description}:\n", ends="line", examples=4, max_tokens=most)
    author = BaseAuthor(how, base, 3, Given({"praise": ["The lamp is fine."] * 4}), {"praise": "nice"})
    seen = opened(author, monkeypatch)
    author.random({"praise": 3})
    assert {each.count("The lamp is fine.") for each in seen} == {shown}


def test_worked_examples_are_public_texts_masked_anew_and_then_whole(base: Path, monkeypatch) -> None:
    known, labels = ["The radio is fine.", "The lamp is fine."], {"praise": "nice"}
    how = {"prompt": "{description}:\n", "blanks": ":{text} ?\n", "ends": "line", "max_tokens": 12}
    given = settings(**how, masked=0.6, vary="blanks", shots=1, temperature=3.0)
    author = BaseAuthor(given, base, 3, Given({"praise": known}), labels)
    seen = opened(author, monkeypatch)
    (found,) = author.vary([Record("The lamp is fine.", "praise")], 30, 0)
    parts = [each.split("\n\n") for each in seen]
    assert all(len(each) == 2 and each[1].endswith(" ?\n") for each in parts)
    worked = [part.split("\n") for each in parts for part in each[:1]]
    assert {whole for _, whole in worked} == set(known)
    assert all(asked.startswith(":") and asked.endswith(" ?") for asked, _ in worked)
    assert len({asked for asked, _ in worked}) > 10
    assert found
    assert author.vary([Record("The lamp is fine.", "praise")], 30, 0) == [found]


def test_worked_examples_need_public_texts_and_blanks(base: Path) -> None:
    with pytest.raises(ParamsError, match="begins new texts with public ones"):
        BaseAuthor(settings(max_tokens=12, vary="blanks", blanks="{text} ?", shots=1), base, 3, None, {})
    with pytest.raises(ValidationError, match="only vary blanks shows worked examples"):
        settings(max_tokens=12, vary="suffix", shots=1)


def test_a_variation_by_a_prompt_needs_that_prompt() -> None:
    with pytest.raises(ValueError, match="give paraphrase"):
        settings(vary="paraphrase")


def test_variations_of_a_record_are_records_and_begin_as_it_does(taught: Path) -> None:
    schema = {"type": "object", "properties": {"by": {"type": "string"}}, "required": ["by"]}
    author = BaseAuthor(settings(kept=(0.4, 0.6), temperature=2.0), taught, 3, json_schema=schema)
    text = '{"by": "the lamp hums in the hall"}'
    found = [one.text for one in author.vary([Record(text, "praise")], 8, 0)[0]]
    new = [one.text for one in author.random({"praise": 8})]
    assert min(len(found), len(new)) > 3
    assert all(map(conforms(schema), map(members_of, [*found, *new])))
    assert all(one.startswith('{"by": "the') for one in found)
