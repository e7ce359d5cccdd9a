"""The public JSON schema of records: whether it can be used, and which records conform to it.

Nothing is fetched: a schema may refer to itself only.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_REFERENCES = ("$ref", "$dynamicRef")


def schema_problem(schema: Mapping[str, Any]) -> str | None:
    """What keeps a mapping from being the JSON schema (draft 2020-12) of a record; None where nothing does."""
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
    return _unresolved(schema)


def conforms(schema: Mapping[str, Any]) -> Callable[[Any], bool]:
    """A test of parsed JSON values: whether each conforms to the schema; `format` is not checked, as drafted."""
    validator = Draft202012Validator(schema, registry=Registry())

    def test(value: Any) -> bool:
        with suppress(RecursionError, ArithmeticError):  # nested beyond the stack; a multiple of too large numbers
            return bool(validator.is_valid(value))
        return False

    return test


def _is_json(schema: Mapping[str, Any]) -> bool:
    """True where the mapping is the same after a way through JSON: no date, no key but text, no infinity."""
    with suppress(TypeError, ValueError, RecursionError):
        return bool(json.loads(json.dumps(schema, allow_nan=False)) == schema)
    return False


def _unresolved(schema: Mapping[str, Any]) -> str | None:
    resolver = Registry().resolver_with_root(DRAFT202012.create_resource(schema))
    for reference in _references(schema):
        try:
            resolver.lookup(reference)
        except Unresolvable:
            return f"refers to {reference!r}, which is not in it"
    return None


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from (value[key] for key in _REFERENCES if isinstance(value.get(key), str))
    members = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for member in members:
        yield from _references(member)
