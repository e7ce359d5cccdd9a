"""A cut vocabulary spells every text, keeps what public text uses, and is the same every time."""

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, normalizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

from palimpsest.errors import ModelError
from palimpsest.models.lm import load_lm
from palimpsest.models.tokens import train_tokenizer
from palimpsest.models.vocabulary import cut_vocabulary
from tests.families import family

PUBLIC = ["the lamp hums in the hall and the lamp hums", "a kettle leaks in the hall"]
OTHER = ["ein völlig anderer Satz über Schrauben", "noch ein anderer Satz, länger als der erste"]


def byte_level() -> PreTrainedTokenizerFast:
    """As GPT-2's, Llama 3's and Qwen's."""
    return train_tokenizer([*PUBLIC, *OTHER], 340, 32)


def by_fallback() -> PreTrainedTokenizerFast:
    """As Gemma's and Llama 2's: spaces are a mark, unknown characters are bytes."""
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = Tokenizer(BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    trainer = BpeTrainer(vocab_size=380, special_tokens=["<eos>", "<unk>", *bytes_], show_progress=False)
    tokenizer.train_from_iterator([*PUBLIC, *OTHER], trainer)
    described = json.loads(tokenizer.to_str())
    described["added_tokens"] = described["added_tokens"][:2]  # the bytes are tokens, and no special ones
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(described)), eos_token="<eos>")


@pytest.mark.parametrize("make", [byte_level, by_fallback])
@pytest.mark.parametrize("kind", ["gemma3_text", "phi"])
@torch.no_grad()
def test_a_cut_model_says_the_same_of_the_tokens_it_kept(make, kind: str, tmp_path: Path) -> None:
    tokenizer = make()
    model = family(kind, len(tokenizer), 8, 64)
    model.save_pretrained(tmp_path / "whole")
    tokenizer.save_pretrained(tmp_path / "whole")
    count = cut_vocabulary(tmp_path / "whole", PUBLIC, len(tokenizer) - 30, tmp_path / "cut")
    assert count <= len(tokenizer) - 30
    smaller, own = load_lm(tmp_path / "cut")
    assert len(own) == count == smaller.config.vocab_size == len(smaller.get_output_embeddings().weight)
    new = {
        number: own.get_vocab()[token] for token, number in tokenizer.get_vocab().items() if token in own.get_vocab()
    }
    for text in PUBLIC:
        before = tokenizer(text, add_special_tokens=False)["input_ids"]
        after = own(text, add_special_tokens=False)["input_ids"]
        assert after == [new[token] for token in before]
        logits = [m(torch.tensor([ids])).logits[0] for m, ids in ((model, before), (smaller, after))]
        torch.testing.assert_close(logits[1][:, list(new.values())], logits[0][:, list(new)])
    for text in OTHER:
        assert own.decode(own(text, add_special_tokens=False)["input_ids"]) == text
    assert own.eos_token_id == smaller.config.eos_token_id == new[tokenizer.eos_token_id]
    cut_vocabulary(tmp_path / "whole", PUBLIC, len(tokenizer) - 30, tmp_path / "whole")
    for file in ("tokenizer.json", "model.safetensors", "config.json"):
        assert (tmp_path / "cut" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_what_cannot_be_cut_says_so(tmp_path: Path) -> None:
    tokenizer = byte_level()
    family("phi", len(tokenizer), 8, 64).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="no room for the 259"):
        cut_vocabulary(tmp_path, PUBLIC, 258, tmp_path / "cut")
    described = json.loads((tmp_path / "tokenizer.json").read_text())
    described["model"]["vocab"].pop("!")
    described["model"]["merges"] = []
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    with pytest.raises(ModelError, match="cannot spell every text"):
        cut_vocabulary(tmp_path, PUBLIC, 300, tmp_path / "cut")
