"""Whether synthetic records that should be JSON are, and conform to their public schema. No private row is read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palimpsest.audit.statistics import Rate, wilson
from palimpsest.plain import PlainFile
from palimpsest.records.conformity import conforms
from palimpsest.records.structured import parsed


@dataclass(frozen=True)
class StructureAudit(PlainFile):
    """A function of the synthetic texts and the public schema alone.

    Attributes:
        parsed: texts that are one JSON value, of all.
        valid: texts that conform to the schema, of all.
    """

    parsed: Rate
    valid: Rate


def audit_structure(texts: Sequence[str], schema: Mapping[str, Any], confidence: float) -> StructureAudit:
    """Parse every synthetic text and hold it against the schema.

    Args:
        texts: the synthetic texts.
        schema: the public JSON schema (draft 2020-12) of a record.
        confidence: of the Wilson intervals.
    """
    valid = conforms(schema)
    verdicts = [_verdict(text, valid) for text in texts]
    return StructureAudit(
        parsed=_rate([is_json for is_json, _ in verdicts], confidence),
        valid=_rate([is_valid for _, is_valid in verdicts], confidence),
    )


def _verdict(text: str, valid: Callable[[Any], bool]) -> tuple[bool, bool]:
    """(is JSON, conforms)."""
    try:
        value = parsed(text)
    except ValueError:
        return False, False
    return True, valid(value)


def _rate(hits: Sequence[bool], confidence: float) -> Rate:
    return Rate(sum(hits), len(hits), *wilson(sum(hits), len(hits), confidence))
