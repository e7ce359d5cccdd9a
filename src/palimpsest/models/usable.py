"""Finds what is wrong with a model's folder by its files alone, so that `init` and a run say it at once."""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from palimpsest.errors import ModelError
from palimpsest.files import read_json
from palimpsest.models.sources import guard_loading

_WHOLE = "model.safetensors"  # stands before parts that an index lists
_TOKENIZERS = ("tokenizer.*", "vocab*", "*.model", "*.spm", "*.tiktoken", "tekken.json")
_SENTENCEPIECE = ("*.model", "*.spm")  # read where there is no tokenizer.json
_FRAMES = ("bos_token", "eos_token", "pad_token", "sep_token")
_WRITERS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "Model")  # ends of names of architectures
_EXPONENTS = {"F64": (8, 0x7FF << 52), "F32": (4, 0xFF << 23), "F16": (2, 0x1F << 10), "BF16": (2, 0xFF << 7)}


def require_usable(folder: Path, *, writes: bool, tokens: int = 0, most: float = math.inf) -> None:
    """Refuse a model's folder with a fault that a run would tell late, badly or never. Nothing is loaded.

    Args:
        writes: whether it has to be a causal language model.
        tokens: of the longest text that it will write or read.
        most: bytes of a file of weights that are looked at.

    Raises:
        ModelError: the first fault.
    """
    config = _read_settings(folder / "config.json")
    sizes, kinds = config.get("text_config") or config, config.get("architectures") or []
    encodes = config.get("is_encoder_decoder") or (
        "bert" in str(config.get("model_type")) and not config.get("is_decoder")
    )
    find = folder.rglob if (folder / "modules.json").is_file() else folder.glob  # a sentence encoder has parts
    known, rows = _count_tokens(folder), sizes.get("vocab_size") or math.inf
    context = count_positions(folder)
    if writes and (encodes or not all(kind.endswith(_WRITERS) for kind in kinds)):
        named = ", ".join(kinds) or config.get("model_type")
        _refuse(folder, f"is a {named}, which continues no text", "Name a causal LM, such as GPT-2, Llama or Qwen.")
    if not any(True for kind in _TOKENIZERS for _ in find(kind)):
        _refuse(folder, "has no tokenizer", "Save the tokenizer that belongs to it into the folder, as tokenizer.json.")
    if known > rows:
        remedy = "Name a folder whose tokenizer and weights belong together."
        _refuse(folder, f"has {known} tokens in its tokenizer, and embeddings of {rows}", remedy)
    _check_weights(folder, find, most)
    if context <= tokens:
        remedy = "Name one with a longer context, or give --no-check and lower max_tokens in params.yaml."
        _refuse(folder, f"has {context} positions, too few for a prompt and a text of {tokens} tokens", remedy)


def count_positions(folder: Path) -> float:
    """Return how many tokens a model can read and write together; infinity where its folder does not tell."""
    config = _read_settings(folder / "config.json")
    sizes = config.get("text_config") or config
    return sizes.get("max_position_embeddings") or sizes.get("n_positions") or math.inf


def find_cut(folder: Path) -> int | None:
    """Return after how many tokens an encoder cuts a text, or None where it reads long ones in windows.

    Windows need a tokenizer that tells where in a text its tokens stand: one of a tokenizer.json does, others may not.

    Raises:
        ModelError: the tokenizer cannot be loaded.
    """
    if any(True for _ in folder.rglob("tokenizer.json")):
        return None
    from transformers import AutoTokenizer  # takes seconds, and few folders need it

    place = next((path.parent for path in sorted(folder.rglob("tokenizer_config.json"))), folder)
    with guard_loading(folder, "tokenizer", "Save the tokenizer that belongs to the model into its folder."):
        tokenizer = AutoTokenizer.from_pretrained(place, trust_remote_code=False, local_files_only=True)
    most = _read_settings(place / "sentence_bert_config.json").get("max_seq_length") or tokenizer.model_max_length
    return None if tokenizer.is_fast else int(most)


def _refuse(folder: Path, problem: str, remedy: str) -> NoReturn:
    raise ModelError(f"The model in {str(folder)!r} {problem}.", remedy)


def _read_settings(path: Path) -> dict[str, Any]:
    """Return {} where there are none; what cannot be read the loader of the model refuses."""
    try:
        return dict(read_json(path))
    except (OSError, ValueError, TypeError):
        return {}


def _count_tokens(folder: Path) -> int:
    """Return one more than the highest token of a text or its frame; others, as for images, may have no embedding."""
    if not (folder / "tokenizer.json").is_file():
        return max((_count_pieces(path) for kind in _SENTENCEPIECE for path in folder.glob(kind)), default=0)
    body, told = (_read_settings(folder / name) for name in ("tokenizer.json", "tokenizer_config.json"))
    vocab, frames = body.get("model", {}).get("vocab", ()), str([told.get(key) for key in _FRAMES])
    added = [one["id"] for one in body.get("added_tokens", ()) if not one["special"] or one["content"] in frames]
    return 1 + max([*(vocab.values() if isinstance(vocab, dict) else range(len(vocab))), *added], default=-1)


def _count_pieces(path: Path) -> int:
    """Count the pieces of a sentencepiece model: they are the first field of its message; 0 for a file without any."""
    content, pieces, place = path.read_bytes(), 0, 0
    while content[place : place + 1] == b"\n":
        ends = next((end for end in range(place + 1, len(content)) if content[end] < 0x80), len(content))
        size = sum((byte & 0x7F) << 7 * number for number, byte in enumerate(content[place + 1 : ends + 1]))
        pieces, place = pieces + 1, ends + 1 + size
    return pieces


def _check_weights(folder: Path, find: Callable[[str], Iterator[Path]], most: float) -> None:
    indexes = [one for one in find("model.safetensors.index.json") if not (one.parent / _WHOLE).is_file()]
    parts = {one.parent / name for one in indexes for name in _read_settings(one).get("weight_map", {}).values()}
    weights = sorted(parts.union(find(_WHOLE)))
    if not weights:
        _refuse(folder, "has no weights", "Save them as model.safetensors; pickled ones are not loaded.")
    for path in weights:
        try:
            content = np.memmap(path, np.uint8, "r")
            begins = 8 + int(content[:8].view("<u8")[0])
            tensors = json.loads(content[8:begins].tobytes())
            tensors.pop("__metadata__", None)
            places = {name: slice(*np.add(begins, told["data_offsets"])) for name, told in tensors.items()}
            whole = max(place.stop for place in places.values()) <= len(content)
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            whole = False
        if not whole:
            _refuse(folder, f"has no whole file {path.name!r}, which holds weights", "Copy or download it again.")
        for name, place in places.items():
            width, exponent = _EXPONENTS.get(tensors[name]["dtype"], (0, 0))
            if width and place.stop <= most and (content[place].view(f"<u{width}") & exponent == exponent).any():
                remedy = "Copy or download it again, or take an earlier checkpoint."
                _refuse(folder, f"has a weight that is no finite number, in {name!r}", remedy)
