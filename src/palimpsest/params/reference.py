"""The reference page of params.yaml, written from its schema."""

import json
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from palimpsest.params.schema import Params

_HEAD = """# params.yaml

Every knob of a workspace. This page is written from the schema that checks the file: a key without a default must be
there, no key may be there that is not listed, and a wrong value is named before any stage starts. `<name>` stands for
names of one's own. YAML anchors and merge keys (`<<: *anchor`) may be used.

| Key | Type | Allowed | Default | Description |
| --- | --- | --- | --- | --- |
"""
_LONGEST = 60  # characters of a default; the words of a prompt are longer
_SIGNS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
_WORDS = {int: "integer", float: "number", str: "text", bool: "true or false", NoneType: "null", Any: "anything"}


class _Row(NamedTuple):
    key: str
    kind: str
    allowed: str
    default: str
    words: str


def render() -> str:
    """The page as Markdown: one row per key of the schema, sections before what they hold."""
    return _HEAD + "".join(f"| {' | '.join(row)} |\n" for row in _rows(Params, ""))


def _rows(section: type[BaseModel], prefix: str) -> Iterator[_Row]:
    for name, field in section.model_fields.items():
        key, inner = f"{prefix}{name}", list(_sections(field.annotation))
        if not inner:
            words = _cell(field.description or "")
            yield _Row(f"`{key}`", _type(field.annotation), _allowed(field), _default(field), words)
            continue
        below = f"{key}.<name>" if get_origin(field.annotation) is not None and _is_mapping(field.annotation) else key
        words = _cell(field.description or _summary(inner[0]))
        yield _Row(f"`{key}`", _type(field.annotation), "", _default(field), words)
        yield from _merged([row for section in inner for row in _rows(section, f"{below}.")])


def _merged(rows: list[_Row]) -> Iterator[_Row]:
    """One row for each key of sections that stand for one another, with all the types that it may have."""
    types: dict[str, list[str]] = {}
    for row in rows:
        types.setdefault(row.key, []).append(row.kind)
    told: set[str] = set()
    for row in rows:
        if row.key not in told:
            told.add(row.key)
            yield row._replace(kind=" or ".join(dict.fromkeys(types[row.key])))


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    """The sections that a key may hold, directly, by name, or unless it is null."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    for part in get_args(annotation):
        yield from _sections(part)


def _type(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if annotation in _WORDS:
        return _WORDS[annotation]
    if origin is Literal:
        return "one of " + ", ".join(f"`{part}`" for part in parts)
    if origin in (Union, UnionType):
        return " or ".join(_type(part) for part in parts)
    if origin is tuple:
        return f"list of {_type(parts[0])}" if parts[-1] is Ellipsis else f"{len(parts)} × {_type(parts[0])}"
    if _is_mapping(annotation):
        return f"{_type(parts[0])} → {_type(parts[1])}"
    return "section"


def _is_mapping(annotation: Any) -> bool:
    origin = get_origin(annotation)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _allowed(field: FieldInfo) -> str:
    """The ranges that the schema sets on one key."""
    found = []
    for rule in field.metadata:
        found += [f"{sign} {getattr(rule, name)}" for name, sign in _SIGNS.items() if hasattr(rule, name)]
        if least := getattr(rule, "min_length", None):
            found.append("not empty" if least == 1 else f"at least {least} long")
        if pattern := getattr(rule, "pattern", None):
            found.append(f"`{pattern}`")
        if getattr(rule, "allow_inf_nan", None) is False:
            found.append("finite")
    return ", ".join(found)


def _default(field: FieldInfo) -> str:
    """What holds where the file does not say; a section's default is that of its keys."""
    if field.is_required() or isinstance(field.default, BaseModel):
        return ""
    value = json.dumps(field.default, ensure_ascii=False)
    return _cell(f"`{value if len(value) <= _LONGEST else value[:_LONGEST] + '…'}`")


def _summary(section: type[BaseModel]) -> str:
    return (section.__doc__ or "").strip().partition("\n")[0]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
