"""A tiny random BERT from a local folder is fine-tuned without a network."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from palimpsest.audit import finetune
from palimpsest.audit.finetune import FinetuneSettings, score_finetuned
from palimpsest.errors import ModelError

LABELS = ("cold", "warm")
WORDS = ["ice", "snow", "fire", "sun", *(f"w{number}" for number in range(20))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny-bert")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(special + WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **dict(zip(names, special, strict=True))).save_pretrained(path)
    config = BertConfig(
        vocab_size=len(special) + len(WORDS),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
    )
    torch.manual_seed(0)
    BertModel(config).save_pretrained(path)
    return path


def rows(count, seed):
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, count)
    signal = [("ice", "snow") if label == 0 else ("fire", "sun") for label in truth]
    texts = [f"w{rng.integers(20)} {words[rng.integers(2)]} w{rng.integers(20)}" for words in signal]
    return texts, [LABELS[label] for label in truth]


def settings(epochs, seeds=(0,)):
    return FinetuneSettings(seeds=seeds, epochs=epochs, batch=16, learning_rate=3e-3, max_tokens=16)


def test_it_learns_and_leaves_the_global_generator_alone(folder):
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    evaluation = score_finetuned(folder, *rows(200, 0), *rows(100, 1), LABELS, settings(epochs=8, seeds=(0, 1)))
    assert evaluation.correct.shape == (2, 100)
    assert evaluation.scored.accuracy.value > 0.9
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_checkpoint_in_half_precision_learns_in_float32(folder, tmp_path, monkeypatch):
    """In its own precision Adam's small steps would be rounded off most weights, and off every layer norm."""
    half, seen = tmp_path / "half", []
    shutil.copytree(folder, half)
    BertModel.from_pretrained(folder, dtype=torch.bfloat16).save_pretrained(half)

    def look(model, last):
        seen.extend((name, weight, weight.detach().clone()) for name, weight in model.named_parameters())

    monkeypatch.setattr(finetune, "freeze", look)
    small = replace(settings(epochs=1), learning_rate=5e-5)
    score_finetuned(half, *rows(32, 0), *rows(8, 1), LABELS, small)
    assert {before.dtype for _, _, before in seen} == {torch.float32}
    norms = [(weight, before) for name, weight, before in seen if "LayerNorm.weight" in name]
    assert norms
    assert not any(torch.equal(weight, before) for weight, before in norms)


def test_the_last_blocks_stay_as_they_are(folder):
    tuned, trained = settings(epochs=1), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finetune, "_predict", lambda model, *_: trained.update(model.state_dict()) or np.zeros((4, 2)))
        score_finetuned(folder, *rows(20, 0), *rows(4, 1), LABELS, replace(tuned, freeze_last=1))
    before = BertModel.from_pretrained(folder).state_dict()
    same = {name for name, weight in before.items() if torch.equal(weight, trained[f"bert.{name}"])}
    assert {name for name in before if name.startswith("encoder.layer.0.")} <= same
    assert "embeddings.word_embeddings.weight" not in same


def test_more_blocks_than_there_are_cannot_be_frozen(folder):
    with pytest.raises(ModelError, match=r"2 last blocks of the classifier cannot be frozen: it has 1\."):
        score_finetuned(folder, *rows(20, 0), *rows(4, 1), LABELS, replace(settings(epochs=1), freeze_last=2))


def test_the_same_seed_gives_the_same_predictions(folder):
    runs = [score_finetuned(folder, *rows(40, 0), *rows(60, 1), LABELS, settings(epochs=1)) for _ in range(2)]
    assert np.array_equal(runs[0].correct, runs[1].correct)
    assert runs[0].scored.ece == pytest.approx(runs[1].scored.ece)
