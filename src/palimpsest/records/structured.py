"""Records that are JSON objects: the canonical text of each, and which texts are JSON."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from palimpsest.records.record import Record

WHOLE_ROW = "*"  # stands for the text column where the row itself is the record
PLAIN = "text"  # the column of plain text beside records, and of records in a table


def parse_value(text: str) -> Any:
    """Parse the whole text as one JSON value.

    Stricter than Python: a key that occurs twice, NaN, an infinity and half a surrogate pair are refused, as other
    readers of the same text would disagree about them.

    Raises:
        ValueError: the text is no JSON value; neither the error nor what is chained to it holds the text.

    >>> parse_value('{"year": 1998}')
    {'year': 1998}
    """
    with suppress(ValueError, RecursionError):
        value = json.loads(text, object_pairs_hook=unique_members)
        _dump_json(value).encode()
        return value
    raise ValueError("not a JSON value")


def unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of an object; ValueError where a key occurs twice."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError
    return members


def canonical_text(value: Any, keys: Sequence[str]) -> str:
    """Return a record's canonical text: the members under `keys`, in that order; missing members are left out.

    Args:
        value: a JSON object, or the text of one.
        keys: the public keys; a member under another is dropped.

    Raises:
        ValueError: the value is neither; neither the error nor what is chained to it holds the value.

    >>> canonical_text({"year": 1998, "id": 7, "title": "Été"}, ("title", "year"))
    '{"title": "Été", "year": 1998}'
    """
    members = members_of(value) if isinstance(value, str) else value
    if isinstance(members, Mapping):
        with suppress(TypeError, ValueError, RecursionError):
            return _dump_json({key: members[key] for key in keys if key in members})
    raise ValueError("not a JSON object")


def plain_text(value: Any, keys: Sequence[str]) -> str | None:
    """Return the plain text that a public file may hold instead of a record; None where the value is not one.

    Args:
        value: a cell, or a whole row.
        keys: the public keys of records. A row with any of them is a record.
    """
    if isinstance(value, Mapping):
        text = None if any(key in value for key in keys) else value.get(PLAIN)
        return text if isinstance(text, str) else None
    return value if isinstance(value, str) and members_of(value) is None else None


def form_of(schema: Mapping[str, Any]) -> str:
    """Return the text of a record with every key of a public schema: the first of its examples, else a stand-in.

    >>> cast = {"type": "array", "items": {"type": "integer"}}
    >>> form_of({"properties": {"title": {"type": "string"}, "year": {"examples": [1998]}, "cast": cast}})
    '{"title": "...", "year": 1998, "cast": [0]}'
    """
    return _dump_json({key: _stand_in(inner) for key, inner in schema["properties"].items()})


def _stand_in(schema: Any) -> Any:
    """Return the first value that a schema shows, else one of its type; text where it names no type or several."""
    known = schema if isinstance(schema, Mapping) else {}
    for shown in (known.get("examples"), known.get("enum")):
        if shown:
            return shown[0]
    match known.get("type"):
        case "object":
            return {key: _stand_in(inner) for key, inner in known.get("properties", {}).items()}
        case "array":
            return [_stand_in(known.get("items"))]
        case "integer" | "number":
            return 0
        case "boolean":
            return True
    return "..."


def members_of(text: str) -> dict[str, Any] | None:
    """Return the members of a text that is a JSON object; None where it is none."""
    with suppress(ValueError):
        value = parse_value(text)
        return value if isinstance(value, dict) else None
    return None


def texts_of(record: Record) -> list[str]:
    """Return every text of a row and, for a row that is a JSON object, its keys and values as a reader decodes them.

    >>> texts_of(Record('{"mail": "a\\\\u0040b.org"}', "a note"))[1:]
    ['a note', 'mail', 'a@b.org']
    """
    members = members_of(record.text)
    return [record.text, *([] if record.label is None else [record.label]), *_strings(members)]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _strings([part for item in value.items() for part in item])
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def _dump_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
