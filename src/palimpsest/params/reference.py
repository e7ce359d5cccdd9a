"""The reference page of params.yaml, written from its schema."""

import json
from collections.abc import Iterable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from palimpsest.methods.dp_lm.settings import DpLmGenerate
from palimpsest.methods.registry import CHARGED
from palimpsest.params.file import Runs
from palimpsest.params.resolve import ORIGINS, WAYS
from palimpsest.params.schema import DiscriminatorSettings, DpLmVariant, Entry, Params
from palimpsest.settings import descriptions, rule_of

_HEAD = """# params.yaml

What a person decides. This page is written from the schema that checks the file: a key without a default must be there,
no key may be there that is not listed, and a wrong value is named before any stage starts. `<name>` stands for names of
one's own. YAML anchors and merge keys (`<<: *anchor`) may be used.

The settings of a language model, a discriminator or a variant stand beside what it is, without a level between:
`select3: {method: select, epsilon: 3, rows: 2000}`. Of a section that is written in part, the other keys keep their
defaults. What runs follows from the variants: each runs where its method does, on what its `from` names, with the
models that it needs, and is evaluated and audited without being named again. `palimpsest render` writes every value
into `params.resolved.yaml`, which stages depend on; `run` and `plan` do so first. `palimpsest params --all` prints all.

"""
_TABLE = """| Key | Type | Allowed | Default | Description |
| --- | --- | --- | --- | --- |
"""
_METHOD = """
## Settings of variants of method `{method}`

"""
_JUDGED = ("", "Its language model, a key of `lms`.")
_VARIANT = "variants.<name>."
_METHODS = "one of " + ", ".join(f"`{name}`" for name in WAYS)
_LONGEST = 60  # characters of a default; the words of a prompt are longer
_SIGNS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
_WORDS = {int: "integer", float: "number", str: "text", bool: "true or false", NoneType: "null", Any: "anything"}


class _Row(NamedTuple):
    key: str
    kind: str
    allowed: str
    default: str
    words: str


def settings_by_method() -> dict[str, type[BaseModel]]:
    """Return the settings of each method of a variant."""
    return {"dp_lm": DpLmGenerate, **{known.name: known.settings for known in CHARGED}}


def render() -> str:
    """The page as Markdown: one row per key, sections before what they hold, and a table of each method's settings."""
    page = _HEAD + _TABLE + _format_rows(_rows(Params, ""))
    for method, section in settings_by_method().items():
        page += _METHOD.format(method=method) + _TABLE + _format_rows(_rows(section, ""))
    return page


def _format_rows(rows: Iterable[_Row]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _rows(section: type[BaseModel], prefix: str) -> Iterator[_Row]:
    for name, field in section.model_fields.items():
        key, inner, told = f"{prefix}{name}", list(_sections(field.annotation)), descriptions(section)[name]
        if section is Params and name == "run":
            yield _Row("`runs`", "section", "", "", _cell(_summary(Runs)))
            yield from _rows(Runs, "runs.")
        elif issubclass(section, Entry) and name == section.holds:  # the file has them next to its own keys
            yield from () if prefix == _VARIANT else _rows(inner[0], prefix)  # a method's have a table of their own
        elif inner:
            yield from _section(field, key, inner, told)
        else:
            kind = _METHODS if key == f"{_VARIANT}method" else _type(field.annotation)
            yield _Row(f"`{key}`", kind, _allowed_ranges(field), _default(field), _cell(told))


def _section(field: FieldInfo, key: str, inner: list[type[BaseModel]], described: str) -> Iterator[_Row]:
    named = get_origin(field.annotation) is not None and _is_mapping(field.annotation)
    yield _Row(f"`{key}`", _type(field.annotation), "", _default(field), _cell(described or _summary(inner[0])))
    below = f"{key}.<name>" if named else key
    if DiscriminatorSettings in inner:
        yield _Row(f"`{below}.from`", "text", "", *_JUDGED)
    if DpLmVariant in inner:
        yield _Row(f"`{below}.from`", "text", "", *_describe_from())
    yield from _merge_types([row for section in inner for row in _rows(section, f"{below}.")])


def _describe_from() -> tuple[str, str]:
    """Return the default and the description of a variant's `from`."""
    usual = {"own": "its own name", "base": '`"base"`'}
    defaults = _group_methods({name: usual[way.source] for name, way in WAYS.items() if way.source in usual})
    allowed = [f"{line}. " for line in _group_methods({name: origin.words for name, origin in ORIGINS.items()})]
    others = ", ".join(name for name in WAYS if name not in ORIGINS)
    return "; ".join(defaults), f"What it is drawn from. {''.join(allowed)}{others} take none."


def _group_methods(words: Mapping[str, str]) -> list[str]:
    """Return one line for each group of methods with the same words."""
    return [
        f"{', '.join(name for name in words if words[name] == told)}: {told}" for told in dict.fromkeys(words.values())
    ]


def _merge_types(rows: list[_Row]) -> Iterator[_Row]:
    """Yield one row for each key of sections that are alternatives, with all the types that it may have."""
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


def _allowed_ranges(field: FieldInfo) -> str:
    """The ranges that the schema sets on one key."""
    found = []
    for rule in field.metadata:
        found += [f"{sign} {getattr(rule, name)}" for name, sign in _SIGNS.items() if hasattr(rule, name)]
        if least := getattr(rule, "min_length", None):
            found.append("not empty" if least == 1 else f"at least {least} long")
        if pattern := getattr(rule, "pattern", None):
            found.append(_cell(f"`{pattern}`"))
        if getattr(rule, "allow_inf_nan", None) is False:
            found.append("finite")
    return ", ".join(found)


def _default(field: FieldInfo) -> str:
    """Return the default of a key; a section's default is that of its keys."""
    if rule := rule_of(field):
        return _cell(rule.words)
    if field.is_required() or isinstance(field.default, BaseModel):
        return ""
    value = json.dumps(field.default, ensure_ascii=False)
    return _cell(f"`{value if len(value) <= _LONGEST else value[:_LONGEST] + '…'}`")


def _summary(section: type[BaseModel]) -> str:
    return (section.__doc__ or "").strip().partition("\n")[0]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
