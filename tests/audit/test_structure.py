"""How many of a few texts are a JSON object, and how many are the record that the schema asks for."""

import json

import pytest

from palimpsest.audit.statistics import wilson
from palimpsest.audit.structure import StructureAudit, audit_structure

FILM = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "year": {"type": "integer"}},
    "required": ["title"],
    "additionalProperties": False,
}
VALID = ['{"title": "A"}', ' {"year": 1998,\n "title": "A"} ']
OBJECTS = ['{"title": 1}', '{"year": 1998}', '{"title": "A", "cast": []}']
NONE = [
    "", "A film.", '{"title": "A"', '{"title": "A", "title": "B"}', '{"title": NaN}', '{"title": "A"} and more',
    "[]", '"title"', "null", "12", '[{"title": "A"}]',
]  # fmt: skip


def test_texts_are_counted_by_what_they_are():
    audit = audit_structure([*VALID, *NONE, *OBJECTS], FILM)
    assert (audit.parsed.count, audit.parsed.n) == (5, 16)
    assert (audit.valid.count, audit.valid.n) == (2, 16)
    assert (audit.valid.low, audit.valid.high) == wilson(2, 16, 0.95)


@pytest.mark.parametrize(
    ("text", "parsed", "valid"),
    [*((text, 1, 1) for text in VALID), *((text, 1, 0) for text in OBJECTS), *((text, 0, 0) for text in NONE)],
)
def test_one_text(text: str, parsed: int, valid: int):
    audit = audit_structure([text], FILM)
    assert (audit.parsed.count, audit.valid.count) == (parsed, valid)


def test_no_rows_tell_nothing():
    audit = audit_structure([], FILM)
    assert (audit.valid.n, audit.valid.low, audit.valid.high) == (0, 0.0, 1.0)


def test_json_has_the_published_shape():
    document = audit_structure(VALID, FILM).to_json("dp3", "dp")
    assert (document["variant"], document["zone"]) == ("dp3", "dp")
    assert document.keys() == {"variant", "zone", "parsed", "valid"}
    assert StructureAudit.from_json(json.loads(json.dumps(document))).to_json("dp3", "dp") == document
    low, high = wilson(2, 2, 0.95)
    assert document["valid"] == {"count": 2, "n": 2, "rate": 1.0, "low": low, "high": high}
