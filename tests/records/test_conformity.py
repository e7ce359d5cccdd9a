"""Which mappings are the JSON schema of a record, and which values conform to one."""

import re
import socket
from datetime import date
from typing import Any

import pytest

from palimpsest.records.conformity import DIALECT, conforms, record_problem, schema_problem

FILM: dict[str, Any] = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "year": {"$ref": "#/$defs/year"}},
    "required": ["title"],
    "additionalProperties": False,
    "$defs": {"year": {"type": "integer", "minimum": 1880}},
}


def test_a_schema_of_an_object_is_usable() -> None:
    assert schema_problem(FILM) is None
    assert schema_problem(FILM | {"$schema": DIALECT}) is None


def nested(keyword: str, times: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(times):
        schema = {keyword: schema}
    return schema


USABLE = {
    "data with the name of a reference": {
        "examples": [{"$ref": "other.json"}], "enum": [{"$ref": 3}], "const": {"$ref": "no"}, "default": {"$ref": "a"},
    },
    "keys with the name of a reference": {"properties": {"$ref": {"type": "string"}, "examples": {"type": "integer"}}},
    "another base": {
        "$id": "https://example.com/year", "$ref": "#/$defs/number", "$defs": {"number": {"type": "integer"}},
    },
    "itself": {"$ref": "#/$defs/year"},
    "an anchor": {"$anchor": "here", "items": {"$ref": "#here"}},
    "truth": {"$ref": "#/$defs/year/not", "not": True},
    "60 lists": nested("items", 60),
}  # fmt: skip


@pytest.mark.parametrize("year", USABLE.values(), ids=USABLE.keys())
def test_whatever_is_a_schema_may_stand_in_one(year: dict[str, Any]) -> None:
    schema = FILM | {"$defs": {"year": year}}
    assert schema_problem(schema) is None
    assert conforms(schema)({"title": "A"}) is True
    conforms(schema)({"title": "A", "year": 1998})


UNUSABLE = {
    "nothing": ({}, "needs `type: object`"),
    "another type": (FILM | {"type": ["object", "null"]}, "needs `type: object`"),
    "no properties": (FILM | {"properties": {}}, "needs `type: object` and `properties`"),
    "no schema": (FILM | {"required": "title"}, r"no JSON schema at \$.required"),
    "no pattern": (FILM | {"properties": {"a": {"pattern": "("}}}, r"no JSON schema at \$.properties.a.pattern"),
    "another draft": (FILM | {"$schema": "http://json-schema.org/draft-07/schema#"}, "another dialect"),
    "a number as key": (FILM | {"properties": {1: {}}}, "JSON has not"),
    "a date": (FILM | {"default": date(2000, 1, 1)}, "JSON has not"),
    "an infinity": (FILM | {"maximum": float("inf")}, "JSON has not"),
    "a reference to nothing": (FILM | {"$defs": {}}, "refers to '#/\\$defs/year'"),
    "a reference to elsewhere": (FILM | {"$ref": "https://example.com/film.json"}, "refers to 'https://example.com"),
    "a reference to a text": (
        FILM | {"title": "a", "$defs": {"year": {"$ref": "#/title"}}},
        "which is no schema",
    ),
    "a reference to a list": (FILM | {"$defs": {"year": {"$ref": "#/required"}}}, "'#/required', which is no schema"),
    "a reference into a list": (FILM | {"$defs": {"year": {"$ref": "#/required/a"}}}, "'#/required/a', which is not"),
    "a reference by way of data": (
        FILM | {"examples": [{"$ref": "other.json"}], "$ref": "#/examples/0"},
        "refers to 'other.json'",
    ),
    "150 lists": (FILM | {"$defs": {"year": nested("items", 150)}}, "is nested too deeply: more than 64 "),
    "5000 lists": (FILM | {"$defs": {"year": nested("items", 5000)}}, "is nested too deeply: more than 64 "),
    "80 objects": (FILM | {"$defs": {"year": nested("not", 80)}}, "is nested too deeply: more than 64 "),
    "a deep one": (FILM | {"allOf": [{"not": {"$ref": "other.json"}}]}, "refers to 'other.json'"),
}


@pytest.mark.parametrize(("schema", "problem"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_what_is_no_schema_of_a_record_is_refused(
    schema: dict[str, Any], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(socket, "socket")  # nothing is fetched
    found = schema_problem(schema)
    assert found is not None
    assert re.search(problem, found)


JUDGED = {
    "no value twice": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
    "all but one": {"type": "string", "not": {"const": "a"}},
    "one of two": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
    "one of two, and any": {"oneOf": [{"minimum": 3}, {"maximum": 1}], "anyOf": [{"type": "integer"}]},
    "one of them": {"type": "array", "items": {"type": "integer"}, "contains": {"const": 1}},
    "if another is there": {"type": "object", "properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}},
}


@pytest.mark.parametrize("year", JUDGED.values(), ids=JUDGED.keys())
def test_what_no_grammar_follows_is_judged_afterwards(year: dict[str, Any]) -> None:
    assert record_problem(FILM | {"properties": FILM["properties"] | {"year": year}}) is None
    assert record_problem(FILM | {"$defs": {"year": year}, "required": ["title", "year"]}) is None


UNWRITABLE = {
    "nothing": {"type": "integer", "minimum": 2, "maximum": 1},
    "a number of many digits": {"enum": [10**40]},
}


@pytest.mark.parametrize("year", UNWRITABLE.values(), ids=UNWRITABLE.keys())
def test_what_no_record_can_be_held_to_while_it_is_written_is_refused(year: dict[str, Any]) -> None:
    schema = FILM | {"$defs": {"year": year}, "required": ["title", "year"]}
    assert schema_problem(schema) is None
    assert str(record_problem(schema)).startswith("holds what no record can be held to while it is written: ")
    assert record_problem(FILM) is None


def test_a_problem_of_the_schema_itself_comes_first() -> None:
    assert record_problem({}) == schema_problem({})


@pytest.mark.parametrize(
    ("value", "valid"),
    [
        ({"title": "A", "year": 1880}, True),
        ({"title": "A"}, True),
        ({"year": 1880}, False),
        ({"title": "A", "year": 1879}, False),
        ({"title": "A", "year": "1880"}, False),
        ({"title": "A", "year": 1880.0}, True),
        ({"title": "A", "other": 1}, False),
        (["title"], False),
        (None, False),
    ],
)
def test_conforming(value: Any, valid: bool) -> None:
    assert conforms(FILM)(value) is valid


def test_a_format_is_a_remark() -> None:
    assert conforms(FILM | {"properties": {"title": {"format": "date"}}})({"title": "no date"})


def test_what_cannot_be_decided_does_not_conform() -> None:
    endless = conforms(FILM | {"$ref": "#"})
    assert not endless({"title": "A"})
    huge = conforms({"type": "object", "properties": {"a": {"multipleOf": 0.01}}})
    assert not huge({"a": 10**400})
    assert huge({"a": 2.5})
