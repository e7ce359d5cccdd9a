"""Single values of params.yaml set for a run, as if its owner had written them there."""

import io
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML

from palimpsest.errors import ParamsError
from palimpsest.params.file import FILE
from palimpsest.params.load import loads
from palimpsest.params.text import WIDTH

# How rows are made and measured. The rest is for the data's owner to write: what is protected and on what terms, what
# counts as public, and every key that names a place to send something to, such as an author's endpoint or a store.
SETTABLE = (
    "variants", "lms", "discriminators", "taught", "decoders", "public_only", "public_lm", "utility", "audit", "compute"
)  # fmt: skip


def overridden(text: str, values: Mapping[str, Any]) -> str:
    """The text of a params.yaml with other values; its comments stay.

    Args:
        text: params.yaml.
        values: a key with dots, as `variants.select3.epsilon`, and its value.

    Raises:
        ParamsError: a key is only for the owner, lies under something that holds no keys, or the whole is not valid.
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
    if section not in SETTABLE or not last:
        raise ParamsError(
            f"A run may not set {key!r} of {FILE}.",
            f"Name a key with dots below one of {', '.join(SETTABLE)}; the rest is for its owner to write there.",
        )
    for name in (section, *inner):
        body = body.setdefault(name, {})
        if not isinstance(body, Mapping):
            raise ParamsError(f"{key!r}: {name!r} of {FILE} holds no keys.", "Name a key that is there.")
    body[last] = value
