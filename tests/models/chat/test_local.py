"""A local model with a chat template: draws of its own for each ask, whatever stands beside it."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import GenerationConfig, PreTrainedModel

from palimpsest.errors import ModelError
from palimpsest.models.chat.base import Answer, Ask
from palimpsest.models.chat.local import LocalChat, load_chat, nucleus
from palimpsest.models.tokens import PAD
from tests.models.chat import tiny


def local(batch: int = 4, seed: int = 1, pad: str | None = PAD) -> LocalChat:
    tokenizer = tiny.tokenizer()
    tokenizer.pad_token = pad
    return LocalChat(tiny.model(), tokenizer, batch=batch, seed=seed)


@pytest.mark.parametrize("pad", [PAD, None])
def test_an_ask_gets_the_same_answer_whatever_is_asked_beside_it(pad: str | None):
    asks = [replace(one, max_tokens=4 + 3 * (place % 4)) for place, one in enumerate(tiny.asks(11))]
    wanted = local(batch=11).answer(asks)
    assert len({answer.text for answer in wanted}) == 11
    for batch in (1, 3, 8):
        assert local(batch, pad=pad).answer(asks) == wanted
    assert local().answer(asks[::-1])[::-1] == wanted
    assert local(seed=2).answer(asks) != wanted


def test_the_number_alone_makes_another_draw():
    one = tiny.asks(1, max_tokens=16)[0]
    answers = local(32).answer([replace(one, number=number) for number in range(20)])
    assert len({answer.text for answer in answers}) == 20


def test_temperature_0_takes_the_likeliest_token():
    asks = tiny.asks(6, max_tokens=12, temperature=0.0)
    answers = local(6).answer([one for ask in asks for one in (ask, replace(ask, number=7, temperature=1.0))])[::2]
    for ask, answer in zip(asks, answers, strict=True):
        tokens = prompt(ask)
        for _ in range(answer.written):
            tokens.append(int(logits(tokens).argmax()))
        text = tiny.tokenizer().decode(tokens[-answer.written :], skip_special_tokens=True)
        assert (answer.text, answer.read) == (text, len(prompt(ask)))


def test_tokens_are_drawn_as_often_as_temperature_and_nucleus_say():
    """A test of 1,500 first tokens, by the sum of squared deviations (chi squared)."""
    count, plain = 1500, tiny.asks(1, max_tokens=1)[0]
    one = replace(plain, temperature=0.7, top_p=0.85)
    drawn = Counter(answer.text for answer in local(500).answer([replace(one, number=n) for n in range(count)]))
    shares = (logits(prompt(one)) / 0.7).softmax(dim=0)
    wanted = Counter[str]()
    for token in shares.argsort(descending=True).tolist():
        if wanted.total() < 0.85:
            wanted[tiny.tokenizer().decode([token], skip_special_tokens=True)] += float(shares[token])  # type: ignore[assignment]
    assert 3 <= len(wanted) < len(shares) / 2
    assert drawn.keys() <= wanted.keys()
    expected = {text: count * share / wanted.total() for text, share in wanted.items()}
    distance = sum((drawn[text] - mean) ** 2 / mean for text, mean in expected.items())
    degrees = len(wanted) - 1
    assert distance < degrees + 5 * math.sqrt(2 * degrees)


def prompt(ask: Ask) -> list[int]:
    messages = [{"role": role, "content": words} for role, words in ask.messages]
    text = tiny.tokenizer().apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return tiny.tokenizer().encode(text, add_special_tokens=False)


@torch.no_grad()
def logits(tokens: list[int]) -> torch.Tensor:
    return tiny.model()(torch.tensor([tokens])).logits[0, -1].double()


def test_an_answer_ends_with_an_end_token_or_with_its_limit():
    answers = local(64).answer(tiny.asks(60, max_tokens=40))
    assert {answer.finish for answer in answers} == {"stop", "length"}
    assert all(answer.written == 40 for answer in answers if answer.finish == "length")
    assert all(answer.written <= 40 for answer in answers if answer.finish == "stop")
    assert all("<|" not in answer.text for answer in answers)


def test_every_end_token_of_the_folder_ends_an_answer(tmp_path: Path):
    folder = tiny.save(tmp_path / "model")
    asks = tiny.asks(20, max_tokens=40)
    usual = load_chat(folder, 20, 1).answer(asks)
    ends = list(range(0, 280, 7))
    GenerationConfig(eos_token_id=ends, repetition_penalty=9.0, suppress_tokens=[5]).save_pretrained(folder)
    sooner = load_chat(folder, 20, 1).answer(asks)
    assert sum(answer.written for answer in sooner) < sum(answer.written for answer in usual) / 2
    assert all(new.written <= old.written for new, old in zip(sooner, usual, strict=True))
    for new, old in zip(sooner, usual, strict=True):  # and nothing else of the folder's settings counts
        kept = len(new.text) - 1
        assert new.text[:kept] == old.text[:kept]


def test_nucleus_is_the_fewest_likeliest_tokens_that_reach_the_share():
    rows = torch.tensor([[0.1, 0.5, 0.15, 0.25]] * 4 + [[0.97, 0.01, 0.01, 0.01]]).log()
    inside = [[0, 1, 0, 0], [0, 1, 0, 1], [0, 1, 1, 1], [1, 1, 1, 1], [1, 0, 0, 0]]
    shares = torch.tensor([[0.4], [0.6], [0.76], [1.0], [0.5]])
    assert nucleus(rows, shares).int().tolist() == inside


@pytest.mark.parametrize("model", [tiny.model, tiny.positioned])
def test_a_prompt_without_room_for_an_answer_fails_alone_and_a_tight_one_is_cut(model: Callable[[], PreTrainedModel]):
    long, tight = "word " * tiny.CONTEXT, "a" * (tiny.CONTEXT - 60)
    asks = [Ask((("user", words),), 90, 1.0, 1.0) for words in (long, "short", tight, "as short")]
    failed, short, cut, other = LocalChat(model(), tiny.tokenizer(), batch=4, seed=1).answer(asks)
    assert failed == Answer("", "failed")
    assert short.written > 0
    assert other.written > 0
    assert cut.read + cut.written <= tiny.CONTEXT


def test_special_tokens_in_a_text_begin_no_message():
    asks = [Ask((("user", words),), 12, 1.0, 1.0) for words in ("ab", "a<|sep|>b<|endoftext|>")]
    plain, spelt = local().answer(asks)
    assert spelt.read == plain.read


def test_answers_are_told_batch_by_batch():
    told: dict[int, Answer] = {}
    asks = tiny.asks(7)
    answers = local(3).answer(asks, told.__setitem__)
    assert [told[place] for place in range(7)] == answers
    assert local().answer([]) == []


@pytest.mark.parametrize(
    ("template", "message"),
    [(None, "has no chat template"), ("{{ raise_exception('no system') }}", "does not take the messages")],
)
def test_a_template_that_is_missing_or_takes_no_system_message_says_what_to_do(template: str | None, message: str):
    with pytest.raises(ModelError, match=message):
        LocalChat(tiny.model(), tiny.tokenizer(template), batch=1, seed=1).answer(tiny.asks(1))
