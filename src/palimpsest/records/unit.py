"""At most k rows per person, so that a guarantee for one person follows from one for k records."""

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
    changes the result by that person's rows, at most `max_rows` (group privacy; Dwork and Roth 2014, Theorem 2.2).

    Args:
        rows: private rows whose `unit` names the person.
        key: 32 secret bytes.
        max_rows: public cap k.
    """
    validate.positive(max_rows=max_rows)
    by_unit: defaultdict[str | None, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        by_unit[row.unit].append(index)
    kept = {index for indices in by_unit.values() for index in _smallest(rows, indices, key, max_rows)}
    return [row for index, row in enumerate(rows) if index in kept]


def _smallest(rows: Sequence[RawRow], indices: Sequence[int], key: bytes, max_rows: int) -> Sequence[int]:
    if len(indices) <= max_rows:
        return indices
    return nsmallest(max_rows, indices, key=lambda index: _rank(rows[index], key))


def _rank(row: RawRow, key: bytes) -> bytes:
    # The person is part of the hash: a phrase that many people wrote is then kept by some, not by all or none.
    return digest(key, "unit", row.unit, row.text, row.label)
