"""Attacks on a model find members that were planted, or the audit says that they cannot judge."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from bench.scripts import GRAMMARS, draw_records
from palimpsest.audit.units import find_planted, finds_copies
from palimpsest.errors import DataError
from palimpsest.methods.dp_lm.model import DpLmArtifact, new_model
from palimpsest.models.lm import load_lm, pretrain_lm, save_lm
from palimpsest.models.settings import EmbeddedLm
from stages.mia import attack_planted

SHARES = {"good": 0.5, "bad": 0.5}
SMALL = EmbeddedLm(layers=2, width=32, heads=2, vocabulary=500, context=128, epochs=2, batch=16, learning_rate=0.01)


def artifact(folder: Path) -> DpLmArtifact:
    """A model as public text left it."""
    return DpLmArtifact(*new_model(folder, 2, 1, 0), SHARES, max_tokens=96, loss_on="text")


@pytest.mark.parametrize("script", ["English", "Chinese", "Arabic"])
def test_attacks_on_a_model_find_the_members_that_it_was_taught(script: str, tmp_path: Path) -> None:
    records = draw_records(GRAMMARS[script], 400, np.random.default_rng(1))
    public = [row.text for row in records[200:]]
    pretrain_lm(public, public[:20], SMALL, 0, tmp_path / "base")
    fitted = artifact(tmp_path / "base")
    found = find_planted(attack_planted(fitted, fitted.model, records[:200], 0), "lm")
    assert {name for name, auc in found.items() if finds_copies(auc)} == {"loss", "reference", "zlib", "min_k"}


def test_a_model_whose_tokenizer_cannot_read_the_texts_judges_nothing(tmp_path: Path) -> None:
    """Every word is unknown to it, so that all texts of one length are one text."""
    pretrain_lm(["one two"] * 20, ["one two"], SMALL, 0, tmp_path / "small")
    reads = Tokenizer(WordLevel({"<unk>": 0, "<end>": 1, "one": 2, "two": 3}, unk_token="<unk>"))
    reads.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=reads, eos_token="<end>", sep_token="<end>")
    save_lm(load_lm(tmp_path / "small")[0], tokenizer, tmp_path / "base")
    fitted = artifact(tmp_path / "base")
    records = draw_records(GRAMMARS["Hindi"], 200, np.random.default_rng(1))
    with pytest.raises(DataError, match="planted") as caught:
        find_planted(attack_planted(fitted, fitted.model, records, 0), "lm")
    assert "models.lm" in caught.value.remedy
