"""Reading params.yaml. Only stages, flows, the command line and `palimpsest.api` do this."""

import io
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from platformdirs import user_data_path
from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from palimpsest.devices import AUTO, VARIABLE
from palimpsest.errors import ParamsError
from palimpsest.files import workspace_of
from palimpsest.params.file import FILE, RESOLVED, File
from palimpsest.params.resolve import Parts, resolve, shorten, to_file_key, to_plain
from palimpsest.params.schema import Dataset, Params
from palimpsest.params.text import WIDTH, flow, to_yaml
from palimpsest.privacy.ledger.database import sqlite_path
from palimpsest.shards import DASK, PROCESSES, RUNNER

HEAD = (
    "# Every value that params.yaml stands for, defaults included. `palimpsest render` writes this file and nobody\n"
    "# edits it: DVC compares it, so that a changed default is a change.\n"
)
LEDGER_VARIABLE = "PALIMPSEST_LEDGER"
_SQLITE = "sqlite:///"
_OF_A_PACKAGE = "What a package brings needs that package: install it, and nothing is lost."
_SECTION = "allowed are `key: value` lines below it"
_WORDS = {
    "dict_type": _SECTION, "mapping_type": _SECTION, "model_type": _SECTION, "model_attributes_type": _SECTION,
    "int_parsing": "allowed is a whole number", "int_type": "allowed is a whole number",
    "float_parsing": "allowed is a number", "float_type": "allowed is a number",
    "bool_parsing": "allowed is true or false", "bool_type": "allowed is true or false",
    "string_type": "allowed is a text",
}  # fmt: skip
_LARGEST = 1 << 20  # bytes of params.yaml: reading YAML takes a thousand times as much
# How rows are made and measured. The rest is for the data's owner to write: what is protected and on what terms, what
# counts as public, and every key that names a place to send something to, such as an author's endpoint or a store.
SETTABLE = (
    "variants", "lms", "discriminators", "taught", "decoders", "public_only", "public_lm", "utility", "audit", "compute"
)  # fmt: skip


def load(workspace: Path | str = ".") -> Params:
    """Return everything that the workspace's params.yaml stands for, after checking it against the file DVC compares.

    Raises:
        ParamsError: also where the file with every value belongs to another params.yaml.
    """
    params = read(workspace)
    path = Path(workspace) / RESOLVED
    if not path.is_file() or path.read_bytes() != render_params(params).encode():
        raise ParamsError(
            f"{RESOLVED} does not hold what {FILE} stands for.",
            "Run `palimpsest render`, which writes it; nothing was charged and no row was read.",
        )
    return params


def read(workspace: Path | str = ".") -> Params:
    """Return everything that the workspace's params.yaml stands for, whether or not it is rendered."""
    return loads(_read_text(workspace))


def read_written(workspace: Path | str = ".") -> File:
    """Return what a person wrote into the workspace's params.yaml."""
    return file_of(_read_text(workspace))


def device_of(workspace: Path | str = ".") -> str:
    """Return the device that the environment, or else params.yaml, names for the workspace's stages; see `devices`."""
    return os.environ.get(VARIABLE) or str(_read_compute(workspace).get("device", AUTO))


def runner_of(workspace: Path | str = ".") -> str:
    """Return the stages' runner by the environment, or else by params.yaml; see `shards`."""
    if RUNNER in os.environ:
        return os.environ[RUNNER]
    said = _read_compute(workspace)
    runner, workers = said.get("runner", PROCESSES), said.get("workers")
    return f"{runner}:{workers}" if runner == DASK and workers else str(runner)


def _read_compute(workspace: Path | str) -> Mapping[str, Any]:
    """Return what params.yaml says of the machine, unchecked: `load` reports what is wrong."""
    if not (Path(workspace) / FILE).is_file():
        return {}
    body = _parse_yaml(_read_text(workspace))
    compute = body.get("compute") if isinstance(body, Mapping) else None
    return compute if isinstance(compute, Mapping) else {}


def render_params(params: Params) -> str:
    """Every value as text, for the file that DVC compares."""
    return HEAD + to_yaml(to_plain(params), folded=False)


def texts(params: Params) -> dict[str, str]:
    """Return file name -> text for settings made by code: as a person would write them, and rendered."""
    return {FILE: to_yaml(shorten(params)), RESOLVED: render_params(params)}


def loads(text: str) -> Params:
    """Return everything that the text of a params.yaml stands for."""
    return resolve_params(file_of(text))


@lru_cache(maxsize=1)  # a command reads it several times, and nobody can change what it is given
def file_of(text: str) -> File:
    """Return what a person wrote."""
    with _report_invalid():
        return File.model_validate(_parse_yaml(text))


def _read_text(workspace: Path | str) -> str:
    path = Path(workspace) / FILE
    try:
        if path.stat().st_size > _LARGEST:
            raise ParamsError(f"{FILE} is larger than {_LARGEST} bytes.", "Leave in it what a person decides.")
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ParamsError(
            f"There is no {FILE} here.", "Run this in a workspace, or make one with `palimpsest init`."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ParamsError(f"{FILE} cannot be read ({type(error).__name__}).", "Save it as UTF-8 text.") from None


def _parse_yaml(text: str) -> Any:
    try:
        return YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, RecursionError) as error:  # a number of thousands of digits, a list in a list in a
        place = getattr(error, "problem_mark", None)
        where = f" at line {place.line + 1}" if place else ""
        raise ParamsError(f"{FILE} cannot be read{where} ({type(error).__name__}).", "Correct the YAML.") from None


def resolve_params(file: File) -> Params:
    """Return everything that a file stands for."""
    with _report_invalid(lambda parts: to_file_key(_strip_schema_tag(parts))):
        return resolve(file)


def parse(body: Any) -> Params:
    """Check values, each at its place in `Params`."""
    with _report_invalid(_strip_schema_tag):
        return Params.model_validate(body)


def ledger_url(params: Params, workspace: Path | str = ".") -> str:
    """Return the address of the ledger: PALIMPSEST_LEDGER, else privacy.ledger, else in the user's data folder.

    Raises:
        ParamsError: if it is a file inside the workspace, or another, and the data are not the invented world.
    """
    place = os.environ.get(LEDGER_VARIABLE) or params.privacy.ledger
    if place is None:
        place = str(user_data_path("palimpsest") / "ledger.db")
    home = Path(workspace).resolve()
    url = place if "://" in place else f"{_SQLITE}{home / Path(place).expanduser()}"
    path = sqlite_path(url)
    if path is None:
        return place
    path = path.resolve()
    if params.world is None and (path.is_relative_to(home) or workspace_of(path) is not None):
        raise ParamsError(
            f"The ledger would be inside the workspace, at {str(path)!r}: a second copy of the workspace would start "
            "with a full budget.",
            f"Set privacy.ledger or {LEDGER_VARIABLE} to an absolute path outside it, or to a database URL.",
        )
    return place if "://" in place else f"{_SQLITE}{path}"


@contextmanager
def _report_invalid(key_of: Callable[[Parts], Parts] = tuple) -> Iterator[None]:
    """Raise a failed validation as a user's error; `key_of` gives a key as the file has it."""
    try:
        yield
    except ValidationError as error:
        title = f"{error.title.lower()}." if error.title == Dataset.__name__ else ""  # the only one checked by itself
        problems = [_problem(item, title + ".".join(map(str, key_of(item["loc"])))) for item in error.errors()]
        unknown = any(item["type"] == "extra_forbidden" for item in error.errors())
        remedy = "Correct the values; `palimpsest params --keys` describes every key."
        remedy += f" {_OF_A_PACKAGE}" if unknown else ""
        raise ParamsError(f"{FILE}: {'; '.join(problems)}.", remedy) from None


def _strip_schema_tag(parts: Parts) -> Parts:
    """A key without the method or the kind that its schema was chosen by."""
    if len(parts) > 2 and (parts[0] in ("variants", "authors") or parts[:2] == ("models", "judge")):
        return parts[:2] + parts[3:]
    return parts


def _problem(item: Any, key: str) -> str:
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "value_error" or not key:
        return f"{key}: {message}" if key else message
    if item["type"] == "missing":
        return f"{key} is missing"
    if item["type"] == "extra_forbidden":
        return f"{key} is not a key of params.yaml"
    said = repr(item["input"]) if isinstance(item["input"], str) else _format_value(item["input"])
    return f"{key} is {said}: {_WORDS.get(item['type'], message[0].lower() + message[1:])}"


def _format_value(value: Any) -> str:
    """Return a value as YAML has it; one that YAML cannot hold is named by its type."""
    try:
        return flow(value)
    except TypeError:
        return f"a {type(value).__name__}"


def override_values(text: str, values: Mapping[str, Any]) -> str:
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
