"""Checks whether synthetic JSON records parse and conform to their public schema. No private row is read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palimpsest.audit.statistics import Rate
from palimpsest.plain import PlainFile
from palimpsest.records.conformity import conforms
from palimpsest.records.structured import members_of


@dataclass(frozen=True)
class StructureAudit(PlainFile):
    """The result of the check, a function of only the synthetic texts and the public schema."""

    parsed: Rate  # texts that are one JSON object, of all
    valid: Rate  # texts that conform to the schema, of all


def audit_structure(texts: Sequence[str], schema: Mapping[str, Any]) -> StructureAudit:
    """Parse every text and validate it against the public JSON schema (draft 2020-12) of a record."""
    valid, objects = conforms(schema), [found for text in texts if (found := members_of(text)) is not None]
    return StructureAudit(
        parsed=Rate.wilson(len(objects), len(texts)), valid=Rate.wilson(sum(map(valid, objects)), len(texts))
    )
