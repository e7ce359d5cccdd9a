"""A tokenizer and a small model from public text, through the folder that every other model comes in."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from palimpsest.errors import ModelError
from palimpsest.models.descent import rise_and_cosine
from palimpsest.models.lm import load_lm, mean_loss, pretrain_lm, text_losses
from palimpsest.models.settings import EmbeddedLm
from palimpsest.models.tokens import encode_texts, specials, train_tokenizer
from palimpsest.prediction.contexts import give_dtype
from tests.families import family

TEXTS = [f"The {thing} {verb} in the {place}." for thing in ("lamp", "kettle", "radio") for verb in ("hums", "leaks")
         for place in ("hall", "kitchen", "garden", "office")]  # fmt: skip
SETTINGS = EmbeddedLm(
    layers=1, width=32, heads=2, vocabulary=300, context=24, epochs=30, batch=8, learning_rate=0.01,
    weight_decay=0.0,
)  # fmt: skip


def test_pretraining_learns_and_is_reproducible(tmp_path: Path) -> None:
    measured = pretrain_lm(TEXTS, TEXTS[::5], SETTINGS, 1, tmp_path / "a")
    again = pretrain_lm(TEXTS, TEXTS[::5], SETTINGS, 1, tmp_path / "b")
    assert measured == again
    assert measured["heldout_loss"] < 0.5 * math.log(measured["vocabulary"])
    model, tokenizer = load_lm(tmp_path / "a")
    ids = specials(tokenizer)
    rows = [[ids.bos, *text, ids.eos] for text in encode_texts(tokenizer, TEXTS[::5], 22)]
    assert mean_loss(model, rows, 3) == pytest.approx(measured["heldout_loss"], rel=1e-4)
    assert len({ids.bos, ids.sep, ids.pad}) == 3


def test_a_tokenizer_without_a_new_line_separates_by_its_end() -> None:
    words = Tokenizer(WordLevel({"<end>": 0, "lamp": 1, "?": 2}, unk_token="?"))
    words.pre_tokenizer = Whitespace()
    ids = specials(PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>"))
    assert (ids.sep, ids.eos) == (0, 0)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory):
    """A model of one short training, and its tokenizer."""
    folder = tmp_path_factory.mktemp("lm") / "small"
    pretrain_lm(TEXTS, TEXTS[:1], SETTINGS.model_copy(update={"epochs": 2.0}), 1, folder)
    return load_lm(folder)


@torch.no_grad()
def test_a_texts_loss_is_its_own_mean_over_tokens_and_end(small) -> None:
    """Whatever is scored beside it; of an empty text the end alone counts, of a long one what is kept and the end."""
    model, tokenizer = small
    texts = [TEXTS[0], "", "Zx!", "lamp hall" * 6, TEXTS[7], "The"]
    found = text_losses(model, tokenizer, texts, 9, 100)
    assert found.dtype == np.float64
    ids = specials(tokenizer)
    for text, loss in zip(texts, found, strict=True):
        tokens = [ids.bos, *tokenizer.encode(text)[:9], ids.eos]
        log_probs = model(torch.tensor([tokens])).logits[0].log_softmax(dim=-1)
        wanted = [-float(log_probs[place, token]) for place, token in enumerate(tokens[1:])]
        assert loss == pytest.approx(sum(wanted) / len(wanted), rel=1e-5)
    for batch in (1, 2, 5):
        np.testing.assert_allclose(text_losses(model, tokenizer, texts, 9, batch), found, rtol=1e-5)
    np.testing.assert_allclose(text_losses(model, tokenizer, texts[::-1], 9, 2), found[::-1], rtol=1e-5)
    assert len(set(found.round(4))) == len(texts)


def test_texts_like_the_training_texts_have_less_loss(small) -> None:
    model, tokenizer = small
    known, strange = text_losses(model, tokenizer, [TEXTS[3], "qQ7 zzv@ %%k"], 20, 2)
    assert known < strange - 1
    assert text_losses(model, tokenizer, [], 20, 2).shape == (0,)


def test_any_bytes_survive_the_tokenizer() -> None:
    tokenizer = train_tokenizer(TEXTS, 300, 24)
    text = "ärger\n☂ 42"
    assert tokenizer.decode(encode_texts(tokenizer, [text], 100)[0]) == text


def test_special_tokens_spelt_out_in_a_text_are_dropped() -> None:
    tokenizer = train_tokenizer(TEXTS, 300, 24)
    found = encode_texts(tokenizer, ["a<|endoftext|>b<|sep|>c"], 100)[0]
    assert tokenizer.decode(found) == "abc"


def test_no_public_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no public text"):
        pretrain_lm([], [], SETTINGS, 1, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_folder_without_a_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no causal language model"):
        load_lm(tmp_path)


def test_loading_switches_dropout_off(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=300, n_positions=8, bos_token_id=0, eos_token_id=0)
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    train_tokenizer(TEXTS, 300, 8).save_pretrained(tmp_path)
    model = load_lm(tmp_path)[0].train()
    tokens = torch.tensor([[5, 6, 7]])
    assert torch.equal(model(tokens).logits, model(tokens).logits)


def test_loading_fuses_gpt2s_activation_and_changes_no_number(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=300, n_positions=8, bos_token_id=0, eos_token_id=0)
    saved = GPT2LMHeadModel(config).eval()
    saved.save_pretrained(tmp_path)
    train_tokenizer(TEXTS, 300, 8).save_pretrained(tmp_path)
    model = load_lm(tmp_path)[0]
    tokens = torch.tensor([[5, 6, 7]])
    assert "NewGELU" in repr(saved)
    assert "NewGELU" not in repr(model)
    torch.testing.assert_close(model(tokens).logits, saved(tokens).logits)


@pytest.mark.parametrize("kind", ["gemma3_text", "qwen3", "phi"])
def test_weights_that_are_given_a_type_are_those_that_would_have_been_read_in_it(kind: str, tmp_path: Path) -> None:
    """Positions as well: 200 of them turn by frequencies that keep their digits."""
    family(kind, 300, 32, 256).save_pretrained(tmp_path)
    train_tokenizer(TEXTS, 300, 8).save_pretrained(tmp_path)
    (given, _), (read, _) = load_lm(tmp_path), load_lm(tmp_path, torch.bfloat16)
    give_dtype(given, torch.bfloat16)
    tokens = torch.arange(200)[None]
    assert torch.equal(given(tokens).logits, read(tokens).logits)
    assert given.dtype == torch.bfloat16


def test_the_learning_rate_rises_and_falls_by_half_a_cosine() -> None:
    assert rise_and_cosine(0, 200) == pytest.approx(0.1)
    assert rise_and_cosine(10, 200) == pytest.approx(1.0)
    assert rise_and_cosine(105, 200) == pytest.approx(0.5)
