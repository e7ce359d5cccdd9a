"""A fault of a model's folder is told from its files, in the words that `init` and a run share."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, BertJapaneseTokenizer, BertModel

from palimpsest.errors import ModelError
from palimpsest.files import read_json, write_json
from palimpsest.models.encoder import Encoder
from palimpsest.models.sources import embedded_folder, find_cut, require_usable
from palimpsest_lab.twins.attacks import save_base, save_encoder
from tests.families import FAMILIES, family

WORDS = ("lamp", "kettle", "hums", "leaks")
TABLE, NORM = "transformer.wte.weight", "transformer.ln_f.weight"
WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
Edit = Callable[[Path], object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_base(WORDS, 0.5, 1, tmp_path / "model")
    return tmp_path / "model"


def gone(*names: str) -> Edit:
    return lambda folder: [(folder / name).unlink() for name in names]


def told(name: str, **values: Any) -> Edit:
    return lambda folder: write_json(folder / name, read_json(folder / name) | values)


def weights(change: Callable[[dict[str, torch.Tensor]], Mapping[str, torch.Tensor]]) -> Edit:
    return lambda folder: save_file(dict(change(load_file(folder / WHOLE))), folder / WHOLE, {"format": "pt"})


def broken(name: str, value: float, dtype: torch.dtype = torch.float32) -> Edit:
    def change(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        tensors[name].view(-1)[-1] = value
        return {key: tensor.to(dtype) for key, tensor in tensors.items()}

    return weights(change)


def fewer_rows(folder: Path) -> None:
    weights(lambda tensors: tensors | {TABLE: tensors[TABLE][:-1].clone()})(folder)
    told("config.json", vocab_size=len(WORDS) + 3)(folder)


def padded(folder: Path) -> None:
    """As by `add_special_tokens` without `resize_token_embeddings`."""
    added = read_json(folder / "tokenizer.json")["added_tokens"]
    new = added[0] | {"id": len(WORDS) + 4, "content": "[PAD]"}
    told("tokenizer.json", added_tokens=[*added, new])(folder)
    told("tokenizer_config.json", pad_token="[PAD]")(folder)


def in_parts(folder: Path, parts: int) -> None:
    """Two files of weights, as large models have them, of which the first `parts` are there."""
    tensors = load_file(folder / WHOLE)
    places = {name: f"model-{number % 2 + 1:05}-of-00002.safetensors" for number, name in enumerate(sorted(tensors))}
    for part in sorted(set(places.values()))[:parts]:
        save_file({name: tensors[name] for name in places if places[name] == part}, folder / part)
    write_json(folder / INDEX, {"metadata": {}, "weight_map": places})
    (folder / WHOLE).unlink()


def cut(folder: Path) -> None:
    (folder / WHOLE).write_bytes((folder / WHOLE).read_bytes()[:-1])


def of_pieces(count: int) -> Edit:
    """Files of sentencepiece alone: each piece a message in the first field, then the settings in the second."""

    def change(folder: Path) -> None:
        texts = [b"\n" + bytes([size]) + b"a" * size for size in (number % 120 + 1 for number in range(count - 1))]
        texts += [b"\n\xac\x02" + b"b" * 300]  # a size of more than seven bits
        pieces = [text + b"\x15\x00\x00\x80\xbf" for text in texts]
        (folder / "tokenizer.json").unlink()
        (folder / "tokenizer.model").write_bytes(b"".join(map(framed, pieces)) + b"\x12\x02\x18\x03")

    return change


def framed(message: bytes) -> bytes:
    size = len(message)
    return b"\n" + (bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])) + message


def bert(model: type[BertModel] | type[BertForMaskedLM]) -> Edit:
    config = BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, vocab_size=8)
    return lambda folder: model(config).save_pretrained(folder)


FAULTS: dict[str, tuple[Edit, str]] = {
    "no tokenizer": (gone("tokenizer.json", "tokenizer_config.json"), "has no tokenizer"),
    "a tokenizer of settings alone": (gone("tokenizer.json"), "has no tokenizer"),
    "more tokens than embeddings": (fewer_rows, "has 8 tokens in its tokenizer, and embeddings of 7"),
    "more pieces than embeddings": (of_pieces(9), "has 9 tokens in its tokenizer, and embeddings of 8"),
    "a padding token without an embedding": (padded, "has 9 tokens in its tokenizer, and embeddings of 8"),
    "an encoder": (bert(BertModel), "is a BertModel, which continues no text"),
    "an encoder with a head": (bert(BertForMaskedLM), "is a BertForMaskedLM, which continues no text"),
    "a classifier": (told("config.json", architectures=["GPT2ForSequenceClassification"]), "continues no text"),
    "an encoder and a decoder": (told("config.json", is_encoder_decoder=True), "continues no text"),
    "no weights": (gone(WHOLE), "has no weights"),
    "a part of the weights": (lambda folder: in_parts(folder, 1), "no whole file 'model-00002-of-00002.safetensors'"),
    "a file that is cut off": (cut, "no whole file 'model.safetensors'"),
    "no file of weights": (lambda folder: (folder / WHOLE).write_text("lfs"), "no whole file 'model.safetensors'"),
    "NaN": (broken(TABLE, np.nan), f"no finite number, in '{TABLE}'"),
    "an infinite number": (broken(NORM, -np.inf), f"no finite number, in '{NORM}'"),
    "NaN in half precision": (broken(TABLE, np.nan, torch.float16), f"no finite number, in '{TABLE}'"),
    "beyond half precision": (broken(NORM, 1e6, torch.float16), f"no finite number, in '{NORM}'"),
    "NaN in bfloat16": (broken(NORM, np.nan, torch.bfloat16), f"no finite number, in '{NORM}'"),
    "a short context": (lambda _: None, "has 24 positions, too few for a prompt and a text of 24 tokens"),
}


@pytest.mark.parametrize(("edit", "problem"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_told(edit: Edit, problem: str, folder: Path) -> None:
    require_usable(folder, writes=True, tokens=23)
    edit(folder)
    with pytest.raises(ModelError) as caught:
        require_usable(folder, writes=True, tokens=24)
    assert problem in caught.value.problem
    assert str(folder) in caught.value.problem
    assert caught.value.remedy


def beside_a_checkpoint(folder: Path) -> None:
    """As a training leaves them below its folder; the loader does not look there."""
    shutil.copytree(folder, folder / "checkpoint-5")
    broken(TABLE, np.nan)(folder / "checkpoint-5")


SOUND: dict[str, Edit] = {
    "a broken checkpoint below it": beside_a_checkpoint,
    "weights in parts": lambda folder: in_parts(folder, 2),
    "an index of parts that were joined": lambda folder: write_json(folder / INDEX, {"weight_map": {"a": "gone"}}),
    "large numbers": broken(TABLE, 1e38, torch.bfloat16),
    "no sizes in the settings": lambda folder: (folder / "config.json").write_text("{}"),
    "another tokenizer's file": lambda folder: (folder / "tokenizer.json").rename(folder / "tokenizer.model"),
    "as many pieces as embeddings": of_pieces(8),
    "a model of pieces that is cut off": lambda folder: (
        (folder / "tokenizer.json").rename(folder / "a.model") and ((folder / "a.model").write_bytes(b"\n\xff"))
    ),
    "a decoder that is called a bert": told("config.json", model_type="bert", is_decoder=True),
}


@pytest.mark.parametrize("edit", SOUND.values(), ids=SOUND.keys())
def test_what_can_be_loaded_is_not_refused(edit: Edit, folder: Path) -> None:
    edit(folder)
    require_usable(folder, writes=True)


def test_a_token_that_no_text_has_may_lie_beyond_the_embeddings(folder: Path) -> None:
    """As that for images in models which read them, too."""
    padded(folder)
    told("tokenizer_config.json", pad_token=None)(folder)
    require_usable(folder, writes=True)


@pytest.mark.parametrize("kind", FAMILIES)
def test_no_family_of_causal_models_is_refused(kind: str, folder: Path) -> None:
    family(kind, len(WORDS) + 4, 8, 24).save_pretrained(folder)
    require_usable(folder, writes=True, tokens=23)


def test_numbers_are_looked_at_up_to_a_bound(folder: Path) -> None:
    broken(TABLE, np.nan)(folder)
    with (folder / WHOLE).open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        end = json.loads(file.read(length))[TABLE]["data_offsets"][1]
    require_usable(folder, writes=True, most=7 + length + end)
    with pytest.raises(ModelError, match="no finite number"):
        require_usable(folder, writes=True, most=8 + length + end)


def test_sentence_encoders_are_looked_at_as_well(tmp_path: Path) -> None:
    require_usable(embedded_folder(), writes=False)
    save_encoder(WORDS, tmp_path)
    require_usable(tmp_path, writes=False)
    (weights,) = tmp_path.rglob(WHOLE)
    weights.write_bytes(weights.read_bytes()[:-4] + np.float32(np.nan).tobytes())
    with pytest.raises(ModelError, match="no finite number"):
        require_usable(tmp_path, writes=False)


def save_slow_encoder(folder: Path, positions: int = 32) -> None:
    """An encoder whose tokenizer is not of the library `tokenizers`, so that it tells no places of its tokens."""
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    BertModel(BertConfig(vocab_size=9, max_position_embeddings=positions, **sizes)).save_pretrained(folder)
    BertJapaneseTokenizer(
        str(folder / "vocab.txt"), word_tokenizer_type="basic", model_max_length=positions
    ).save_pretrained(folder)


def test_an_encoder_that_cannot_read_in_windows_is_known_by_its_folder(tmp_path: Path) -> None:
    save_slow_encoder(tmp_path / "slow")
    require_usable(tmp_path / "slow", writes=False)
    assert find_cut(tmp_path / "slow") == 32
    long = [" ".join([WORDS[0]] * 60 + [end] * 60) for end in WORDS[1:3]]
    short = [" ".join([WORDS[0]] * 20 + [end] * 5) for end in WORDS[1:3]]
    encode = Encoder(tmp_path / "slow").encode
    np.testing.assert_allclose(*encode(long))  # it reads the beginnings alone
    assert np.abs(np.subtract(*encode(short))).max() > 1e-4
    save_encoder(WORDS, tmp_path / "fast")
    assert find_cut(tmp_path / "fast") is find_cut(embedded_folder()) is None
