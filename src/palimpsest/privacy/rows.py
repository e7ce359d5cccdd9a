"""The private row and its person. Generators may not import this module: an import contract keeps them out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from palimpsest.records.keyed import KeyedRow, digest, told_fields

_AnyRow = TypeVar("_AnyRow", bound=KeyedRow)


@dataclass(frozen=True, slots=True)
class PrivateRow:
    """One private record, as a registered query's `run` sees it. `repr` shows no content.

    Attributes:
        person: the keyed id of its person (`records.preprocess.person_id`); None where the record is the unit.
        fields: the cells of its fields (`records.fields.encode_cells`); empty where the data set has none.
    """

    text: str
    label: str | None = None
    person: str | None = None
    fields: str = ""

    def __repr__(self) -> str:
        return "PrivateRow(...)"


def group_by_person(rows: Sequence[_AnyRow]) -> list[list[_AnyRow]]:
    """Return the rows of each unit of privacy, in order of its first row: a person's rows together, and a record
    without a person by itself.

    Guarantee: adding or removing a unit adds or removes one list and changes no other.
    """
    units: dict[str | int, list[_AnyRow]] = {}  # keyed by the person, or by the index of a row without one
    for place, row in enumerate(rows):
        units.setdefault(place if row.person is None else row.person, []).append(row)
    return list(units.values())


def select_one_each(rows: Sequence[_AnyRow]) -> Sequence[_AnyRow]:
    """Return one row of each unit: a record itself, or the row of a person with the smallest keyed hash.

    Guarantee: which row stands for a person is a function of that person's rows and of the secret key behind the
    person's id alone, so adding or removing a unit adds or removes one row of the result and changes no other.
    """
    if all(row.person is None for row in rows):
        return rows  # no copy, however many rows there are
    return [own[0] if len(own) == 1 else min(own, key=_rank) for own in group_by_person(rows)]


def sort_unit(unit: Sequence[_AnyRow]) -> list[_AnyRow]:
    """Sort the rows of one unit by their keyed hashes, an order that no file and no other unit influences."""
    return list(unit) if len(unit) == 1 else sorted(unit, key=_rank)


def _rank(row: KeyedRow) -> bytes:
    assert row.person is not None  # only a person has several rows
    return digest(bytes.fromhex(row.person), "one row", row.text, row.label, *told_fields(row))
