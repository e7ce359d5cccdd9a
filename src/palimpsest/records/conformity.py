"""Checks of the public JSON schema of records: whether it can be used, and which records conform to it.

Nothing is fetched: a schema may refer to itself only.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REFERENCES = ("$ref", "$dynamicRef")
_DEEPEST = 64  # mappings and lists within each other: far below what Python's stack takes of them
# What no grammar follows while a record is written, so what is written is judged by it alone.
_JUDGED = frozenset((
    "not", "uniqueItems", "contains", "minContains", "maxContains", "if", "then", "else", "dependentSchemas",
    "dependentRequired", "propertyNames", "unevaluatedProperties", "unevaluatedItems",
))  # fmt: skip
_NAMED, _LISTED = ("properties", "patternProperties", "$defs"), ("anyOf", "allOf", "prefixItems")  # keys of schemas
_SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}  # as canonical texts have it


def schema_problem(schema: Mapping[str, Any]) -> str | None:
    """Return what keeps a mapping from being the JSON schema (draft 2020-12) of a record; None where nothing does."""
    if _is_deeper(schema, _DEEPEST):
        return f"is nested too deeply: more than {_DEEPEST} mappings and lists within each other"
    if not _is_json(schema):
        return "holds what JSON has not: quote dates and keys that are numbers"
    if schema.get("$schema", DIALECT) != DIALECT:
        return f"is written in another dialect: `$schema` is {DIALECT}, or is left out"
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return f"is no JSON schema at {error.json_path}: {error.message}"
    if schema.get("type") != "object" or not schema.get("properties"):
        return "needs `type: object` and `properties`"
    return _reference_problem(schema)


def record_problem(schema: Mapping[str, Any]) -> str | None:
    """Return what keeps records from being written by a schema: it is none, or holds what no grammar can ask for."""
    if problem := schema_problem(schema):
        return problem
    from llguidance import LLMatcher  # a few megabytes that no other task needs

    try:
        problem = LLMatcher.validate_grammar(grammar_of(schema))
    except ValueError as error:  # a number of more than 64 bits
        problem = str(error)
    return f"holds what no record can be held to while it is written: {problem.strip()}" if problem else None


def grammar_of(schema: Mapping[str, Any], whole: bool = False) -> str:
    """Return the grammar of canonical texts of records that conform, as `llguidance` reads it.

    Members come in the schema's order, with the spaces of `structured.canonical_text` and no control character as it
    is. An object has no member that `properties` does not list, unless it allows others by name: they would be dropped,
    and might come twice. With `whole` every listed member is there, and a list has an item. Where a schema asks for
    what no grammar follows, as `uniqueItems` or one of several, the grammar asks for less: `conforms` judges the rest.
    """
    from llguidance import LLMatcher

    return LLMatcher.grammar_from_json_schema(_close(_relax(schema), whole), overrides=_SPACING)  # type: ignore[arg-type]


def conforms(schema: Mapping[str, Any]) -> Callable[[Any], bool]:
    """Make a test of whether a parsed JSON value conforms to the schema; `format` is not checked, as drafted."""
    validator = Draft202012Validator(schema, registry=Registry())

    def test(value: Any) -> bool:
        with suppress(RecursionError, ArithmeticError):  # nested beyond the stack; a multiple of too large numbers
            return bool(validator.is_valid(value))
        return False

    return test


def _relax(schema: Any) -> Any:
    """Return a schema that asks for no more: without what is judged afterwards, and with any of several for one."""
    if not isinstance(schema, Mapping):
        return schema
    kept = {key: value for key, value in schema.items() if key not in _JUDGED}
    if "oneOf" in kept:
        several = {"anyOf": kept.pop("oneOf")}
        kept = kept | several if "anyOf" not in kept else kept | {"allOf": [*kept.get("allOf", []), several]}
    for key in kept.keys() & {*_NAMED, *_LISTED, "items", "additionalProperties"}:
        value = kept[key]
        if key in _NAMED:
            kept[key] = {name: _relax(inner) for name, inner in value.items()}
        else:
            kept[key] = [_relax(inner) for inner in value] if key in _LISTED else _relax(value)
    return kept


def _close(schema: Any, whole: bool) -> Any:
    """Return the schema without members that it does not list, in the object and in those in its members and items."""
    if not isinstance(schema, Mapping):
        return schema
    closed = dict(schema)
    if "properties" in schema:
        closed["properties"] = {key: _close(inner, whole) for key, inner in schema["properties"].items()}
        closed = {"additionalProperties": False} | closed | ({"required": list(schema["properties"])} if whole else {})
    if "items" in schema:
        closed = ({"minItems": 1} if whole else {}) | closed | {"items": _close(schema["items"], whole)}
    return closed


def _is_json(schema: Mapping[str, Any]) -> bool:
    """Return whether a round trip through JSON keeps the mapping: no date, no key but text, no infinity."""
    with suppress(TypeError, ValueError, RecursionError):
        return bool(json.loads(json.dumps(schema, allow_nan=False)) == schema)
    return False


def _is_deeper(value: Any, most: int) -> bool:
    """Return whether more than `most` mappings and lists are nested, without a recursive call for each."""
    level = [value]
    for _ in range(most + 1):
        level = [member for one in level for member in _members(one)]
    return bool(level)


def _members(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()


def _reference_problem(schema: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a reference. Only schemas have them: a value under `const` or `examples` is data."""
    root = DRAFT202012.create_resource(schema)
    waiting, seen = [(Registry().resolver_with_root(root), root)], set[int]()
    while waiting:
        resolver, resource = waiting.pop()
        if id(resource.contents) in seen:
            continue
        seen.add(id(resource.contents))
        waiting += [(resolver.in_subresource(part), part) for part in resource.subresources()]
        for reference in _references(resource.contents):
            try:
                found = resolver.lookup(reference)
            except (Unresolvable, ValueError, LookupError, TypeError):  # the last three: a pointer into a list or text
                return f"refers to {reference!r}, which is not in it"
            if not _is_schema(found.contents):
                return f"refers to {reference!r}, which is no schema"
            waiting.append((found.resolver, DRAFT202012.create_resource(found.contents)))
    return None


def _references(schema: Any) -> list[str]:
    return [schema[key] for key in _REFERENCES if key in schema] if isinstance(schema, Mapping) else []


def _is_schema(value: Any) -> bool:
    with suppress(SchemaError):
        Draft202012Validator.check_schema(value)
        return True
    return False
