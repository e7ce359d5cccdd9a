"""Reads a model's folder as data: its code never runs, no pickle is opened, and it cannot refer to another folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from palimpsest.errors import ModelError
from palimpsest.files import read_json

_ADAPTER = "adapter_config.json"  # names a base model, which the library would load from wherever that is
_OWN = "sentence_transformers."
_MODULES = (
    "Transformer", "Pooling", "Normalize", "Dense", "LayerNorm", "Dropout", "StaticEmbedding", "WeightedLayerPooling",
)  # fmt: skip
_OPTIONS = ("model_args", "model_kwargs", "tokenizer_args", "processor_kwargs", "config_args", "config_kwargs")


@contextmanager
def loading(folder: Path, kind: str, remedy: str) -> Iterator[None]:
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
