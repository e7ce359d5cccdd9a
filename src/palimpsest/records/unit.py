"""Who is behind a row: a keyed id of the person, and at most k rows of each."""

from collections import defaultdict
from collections.abc import Sequence
from heapq import nsmallest

from palimpsest import validate
from palimpsest.records.keyed import digest
from palimpsest.records.private import RawRow


def cap_rows(rows: Sequence[RawRow], key: bytes, max_rows: int) -> list[RawRow]:
    """Keep, in input order, the `max_rows` rows of each person with the smallest keyed hash.

    Equal rows of one person have equal hashes and are interchangeable; the first ones are kept.

    Guarantee: which rows of a person stay depends on that person's rows and the key alone. Adding or removing a person
    adds or removes that person's kept rows, at most `max_rows`, and changes no other row (1-stable for persons). It is
    not stable for records: one row more of a person at the cap may take another one's place.

    Args:
        rows: private rows whose `unit` names the person.
        key: 32 secret bytes.
        max_rows: public cap k.
    """
    validate.positive(max_rows=max_rows)
    by_unit: defaultdict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        by_unit[_named(row)].append(index)
    kept = {index for indices in by_unit.values() for index in _smallest(rows, indices, key, max_rows)}
    return [row for index, row in enumerate(rows) if index in kept]


def person_id(row: RawRow, key: bytes) -> str:
    """The keyed id of the person behind a row: 64 hexadecimal digits.

    It stands for the exact value of the unit column, and for one of that data set alone: another asset has another key,
    so people are not known across data sets. Without the key it is an unrelated random word, and it is itself a
    key for what is drawn from one person's rows alone (`privacy.rows.one_each`).
    """
    return digest(key, "person", _named(row)).hex()


def _named(row: RawRow) -> str:
    if row.unit is None:
        raise ValueError("a row without a unit belongs to nobody: drop it first")
    return row.unit


def _smallest(rows: Sequence[RawRow], indices: Sequence[int], key: bytes, max_rows: int) -> Sequence[int]:
    if len(indices) <= max_rows:
        return indices
    return nsmallest(max_rows, indices, key=lambda index: _rank(rows[index], key))


def _rank(row: RawRow, key: bytes) -> bytes:
    # The person is part of the hash: a phrase that many people wrote is then kept by some, not by all or none.
    return digest(key, "unit", row.unit, row.text, row.label)
