"""Single values of params.yaml set for a run, as if its owner had written them there."""

import io
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML

from palimpsest.errors import ParamsError
from palimpsest.params.file import FILE, File
from palimpsest.params.load import loads
from palimpsest.params.text import WIDTH

# What is protected, on what terms and what leaves is for the data's owner to write; so is what counts as public.
OWNERS = ("version", "preset", "seed", "dataset", "world", "privacy", "models", "release", "sweeps", "testing")


def overridden(text: str, values: Mapping[str, Any]) -> str:
    """The text of a params.yaml with other values; its comments stay.

    Args:
        text: params.yaml.
        values: a key with dots, as `variants.select3.epsilon`, and its value.

    Raises:
        ParamsError: a key is for the owner alone, lies under something that holds no keys, or the whole is not valid.
    """
    editor = YAML()
    editor.width, editor.preserve_quotes = WIDTH, True
    body = editor.load(text)
    for key, value in values.items():
        _set(body, key, value)
    written = io.StringIO()
    editor.dump(body, written)
    loads(written.getvalue())
    return written.getvalue()


def _set(body: Any, key: str, value: Any) -> None:
    section, *inner, last = [*key.split(".")] if "." in key else [key, ""]
    allowed = [name for name in File.model_fields if name not in OWNERS]
    if section not in allowed or not last:
        raise ParamsError(
            f"A run may not set {key!r} of {FILE}.",
            f"Name a key with dots below one of {', '.join(allowed)}; the rest is for the data's owner to write there.",
        )
    for name in (section, *inner):
        body = body.setdefault(name, {})
        if not isinstance(body, Mapping):
            raise ParamsError(f"{key!r}: {name!r} of {FILE} holds no keys.", "Name a key that is there.")
    body[last] = value
