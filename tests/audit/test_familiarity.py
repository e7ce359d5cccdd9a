"""What a model has read before is likely and shared: both are measured beside public texts of the same lengths."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from palimpsest.audit.finetune import Reading, read_beginnings
from palimpsest.audit.statistics import Bootstrap
from palimpsest.errors import DataError
from palimpsest.models.lm import text_losses
from palimpsest.models.tokens import train_tokenizer
from palimpsest_lab.audits.familiarity import MOST, Familiarity, cut_alike, familiarity

DRAWS = Bootstrap(resamples=100, seed=3)
PUBLIC = [f"the {number} th lamp of the long hall hums and glows at night but never in the day" for number in range(40)]
OWN = [f"somebody says that {number} doors of a house are shut for ever" for number in range(30)]


def fluent(texts: Sequence[str]) -> Reading:
    """A model for which a character of a text with lamps costs one bit, and of any other two."""
    sizes = np.array(list(map(len, texts)), dtype=float)
    bits = np.array([1.0 if "lamp" in text else 2.0 for text in texts])
    return Reading(right=sizes / 4, losses=bits * sizes * math.log(2), tokens=sizes / 2)


def test_what_the_public_text_has_is_known_and_what_it_has_not_is_not() -> None:
    met, new = (familiarity(fluent, test, PUBLIC, PUBLIC, DRAWS) for test in (PUBLIC[:20], OWN))
    assert [one.test.bits.value for one in (met, new)] == pytest.approx([1.0, 2.0])
    assert [set(one.value for one in found.test.shared.values()) for found in (met, new)] == [{1.0}, {0.0}]
    assert (new.test.guessed.value, new.public.bits.value) == pytest.approx((0.5, 1.0))
    assert list(met.test.shared) == ["5", "8", "13"]
    assert list(new.test.shared) == ["5", "8"]  # no row has 13 words
    assert Familiarity.from_json(met.to_json("base")) == met


def test_public_texts_are_cut_to_the_lengths_and_no_more_are_read_than_may_be() -> None:
    read: list[Sequence[str]] = []

    def reader(texts: Sequence[str]) -> Reading:
        read.append(texts)
        return fluent(texts)

    many = PUBLIC * 20
    familiarity(reader, [text[: 20 + number % 7] for number, text in enumerate(many)], many, PUBLIC, DRAWS)
    test, beside = read
    assert len(test) == len(beside) == MOST
    assert [len(text) for text in test] == [len(text) for text in beside]


def test_no_text_is_read_twice() -> None:
    read: list[Sequence[str]] = []
    numbered = [f"{number:03} " + "word " * (number % 9) for number in range(300)]
    familiarity(lambda texts: read.append(texts) or fluent(texts), OWN * 9, numbered, PUBLIC, DRAWS)  # type: ignore[func-returns-value]
    assert all(len({text[:3] for text in beside}) == len(beside) for beside in read[1:])
    assert cut_alike(["a long one"], ["ab"]) == (["a "], ["ab"])


def test_nothing_to_read_is_an_error() -> None:
    for test, heldout in (([], PUBLIC), (OWN, [])):
        with pytest.raises(DataError, match="no texts to read"):
            familiarity(fluent, test, heldout, PUBLIC, DRAWS)


def test_a_beginning_is_read_without_an_end() -> None:
    tokenizer = train_tokenizer(PUBLIC, 300, 64)
    torch.manual_seed(0)
    size = {"vocab_size": len(tokenizer), "n_positions": 64, "n_embd": 16, "n_layer": 1, "n_head": 2}
    model = GPT2LMHeadModel(GPT2Config(**size, bos_token_id=0, eos_token_id=0)).eval()
    found, lengths = read_beginnings(model, tokenizer, OWN[:3]), [len(tokenizer(text)["input_ids"]) for text in OWN[:3]]
    assert found.tokens.tolist() == lengths
    rows = [[0, *tokenizer(text)["input_ids"]] for text in OWN[:3]]
    logits = [model(torch.tensor([row])).logits[0, :-1].log_softmax(dim=-1) for row in rows]
    wanted = [-one[range(len(row) - 1), row[1:]].sum().item() for one, row in zip(logits, rows, strict=True)]
    assert found.losses == pytest.approx(wanted, rel=1e-4)
    assert (text_losses(model, tokenizer, OWN[:3], 64, 8) * (np.array(lengths) + 1) > found.losses).all()
