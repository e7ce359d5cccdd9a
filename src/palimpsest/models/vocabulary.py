"""Cuts a vocabulary to the tokens that public text uses: a smaller table, and rare words spelt in shorter tokens.

Public models know hundreds of thousands of tokens, and each costs memory and time wherever logits are computed. The
kept tokens are a function of only the model's own files and public text, so the cut is as public as they are: counts
decide, and the tokens' own order where counts are equal.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from palimpsest.errors import ModelError
from palimpsest.files import atomic_path, read_json, write_json
from palimpsest.models.lm import load_lm, save_lm

_FILE = "tokenizer.json"
_BATCH = 1000  # texts that are tokenised together
_IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id")


def cut_vocabulary(source: Path, texts: Sequence[str], size: int, folder: Path) -> int:
    """Write the model in `source` to `folder` with the `size` tokens most used in public texts; return their number.

    Special tokens, all bytes, and the pieces that a kept token is merged from are always kept, so every text can still
    be spelt. A text whose tokens are all kept has the same tokens as before.

    Args:
        texts: public texts.
        size: the most tokens that are kept.

    Raises:
        ModelError: the folder's tokenizer is not a byte-pair encoding that spells every text, or `size` is too small.
    """
    model, tokenizer = load_lm(source)
    described = _read_tokenizer(source)
    kept = sorted(_choose_tokens(described, tokenizer, _uses(tokenizer, texts), size))
    new = {old: number for number, old in enumerate(kept)}
    with atomic_path(folder) as draft:
        save_lm(_cut(model, kept, new), tokenizer, draft)
        write_json(draft / _FILE, _renumber(described, new))
    return len(kept)


def _read_tokenizer(folder: Path) -> dict[str, Any]:
    """Read the tokenizer's file; raise ModelError unless its tokens can be cut."""
    described: dict[str, Any] = read_json(folder / _FILE) if (folder / _FILE).is_file() else {}
    kind = described.get("model", {}).get("type", "another kind")
    if kind != "BPE":
        raise ModelError(
            f"The vocabulary of a tokenizer of {kind} cannot be cut.",
            "Set models.vocabulary to null, or name a model with a tokenizer.json of byte-pair encoding.",
        )
    return described


def _uses(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> Counter[int]:
    """Token -> how often the texts use it."""
    found: Counter[int] = Counter()
    for start in range(0, len(texts), _BATCH):
        part = list(texts[start : start + _BATCH])
        for ids in tokenizer(part, add_special_tokens=False, verbose=False)["input_ids"]:
            found.update(ids)
    return found


def _choose_tokens(
    described: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase, uses: Mapping[int, int], size: int
) -> set[int]:
    """Choose the required tokens, then the most used ones, each with the pieces that it is merged from."""
    vocabulary: dict[str, int] = described["model"]["vocab"]
    spelt = {number: piece for piece, number in vocabulary.items()}
    ranks = {pair: rank for rank, pair in reversed(list(enumerate(_merges(described))))}
    kept = _required_tokens(described, tokenizer)
    if len(kept) > size:
        raise ModelError(
            f"A vocabulary of {size} tokens has no room for the {len(kept)} that must be kept.",
            "Raise models.vocabulary.",
        )
    for token in sorted(uses, key=lambda token: (-uses[token], token)):
        pieces = _pieces(spelt[token], ranks) if token in spelt else set()
        more = {token, *(vocabulary[piece] for piece in pieces if piece in vocabulary)} - kept
        if len(kept) + len(more) <= size:
            kept |= more
    return kept


def _required_tokens(described: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Special tokens that are in use, and the bytes."""
    vocabulary: dict[str, int] = described["model"]["vocab"]
    by_bytes = [f"<0x{byte:02X}>" for byte in range(256)]
    spelling = by_bytes if described["model"].get("byte_fallback") else ByteLevel.alphabet()
    if not set(spelling) <= vocabulary.keys():
        raise ModelError(
            "The model's tokenizer cannot spell every text in bytes, so its vocabulary cannot be cut.",
            "Set models.vocabulary to null, or name a model with a byte-level tokenizer.",
        )
    template = str(tokenizer.chat_template or "")
    added = {entry["id"] for entry in described["added_tokens"] if entry["content"] in template}
    unknown = described["model"].get("unk_token")
    kept = {vocabulary[piece] for piece in spelling} | added | set(tokenizer.all_special_ids)
    return kept | {number for number in _framing_tokens(described)} | ({vocabulary[unknown]} if unknown else set())


def _merges(described: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The pairs that are merged, the first ones first; files write them in two ways."""
    for pair in described["model"]["merges"]:
        left, right = pair.split(" ") if isinstance(pair, str) else pair
        yield left, right


def _pieces(token: str, ranks: Mapping[tuple[str, str], int]) -> set[str]:
    """Every piece on the way from a token's characters to the token, as byte-pair encoding merges them."""
    parts, found = list(token), set(token)
    while len(parts) > 1:
        known = [(ranks[pair], place) for place, pair in enumerate(pairwise(parts)) if pair in ranks]
        if not known:
            break
        place = min(known)[1]
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
        found.add(parts[place])
    return found


def _cut(model: PreTrainedModel, kept: Sequence[int], new: Mapping[int, int]) -> PreTrainedModel:
    """The model with these rows of its table and of its head, in place."""
    rows = torch.tensor(kept)
    layers = (model.get_input_embeddings(), model.get_output_embeddings())
    few = [[weight.detach()[rows].clone() for weight in layer.parameters()] for layer in layers]
    model.resize_token_embeddings(len(kept), mean_resizing=False)
    layers = (model.get_input_embeddings(), model.get_output_embeddings())
    for layer, values in zip(layers, few, strict=True):
        for weight, value in zip(layer.parameters(), values, strict=True):
            weight.data = value
    model.tie_weights()
    for config in (model.config, model.generation_config):
        for name in _IDS:
            if (token := getattr(config, name, None)) is not None:
                setattr(config, name, _map_token(token, new))
    return model


def _map_token(token: int | list[int], new: Mapping[int, int]) -> int | list[int] | None:
    """A configuration's token under its new number; those that are gone are left out."""
    if isinstance(token, int):
        return new.get(token)
    return [new[one] for one in token if one in new]


def _renumber(described: Mapping[str, Any], new: Mapping[int, int]) -> dict[str, Any]:
    """The tokenizer's file with only the kept tokens."""
    model = described["model"]
    vocabulary = {piece: new[number] for piece, number in model["vocab"].items() if number in new}
    merges = [[a, b] for a, b in _merges(described) if {a, b, a + b} <= vocabulary.keys()]
    added = [entry | {"id": new[entry["id"]]} for entry in described["added_tokens"] if entry["id"] in new]
    for token in _specials(described):
        token["ids"] = [new[number] for number in token["ids"]]
    return {**described, "added_tokens": added, "model": model | {"vocab": vocabulary, "merges": merges}}


def _framing_tokens(described: Mapping[str, Any]) -> set[int]:
    """Tokens that the tokenizer puts around a text."""
    return {number for token in _specials(described) for number in token["ids"]}


def _specials(described: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The special tokens of the file's templates.

    Raises:
        ModelError: texts are framed in a way of another kind.
    """
    frame = described.get("post_processor") or {}
    for part in frame.get("processors", [frame]):
        if part.get("type") == "TemplateProcessing":
            yield from part["special_tokens"].values()
        elif part.get("type") not in (None, "ByteLevel"):
            raise ModelError(
                f"The tokenizer frames texts by {part['type']}, whose vocabulary cannot be cut.",
                "Set models.vocabulary to null, or name a model whose tokenizer frames texts by a template.",
            )
