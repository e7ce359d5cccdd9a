"""Training, holdout and test rows: each unit's part is drawn from a keyed hash of only that unit.

The unit of privacy is one record, or the person behind it where a column names one: then a keyed id stands for the
person, who keeps at most k rows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import numpy as np

from palimpsest import validate
from palimpsest.records.keyed import digest, normalise
from palimpsest.records.packed import Chosen, Mapped
from palimpsest.records.private import RawRow, SplitRow

Part = Literal["train", "holdout", "test"]

_PARTS: tuple[Part, ...] = get_args(Part)
_AUDIT = len(_PARTS)
_DRAW_BYTES = 8


@dataclass(frozen=True, slots=True)
class Assignment:
    """The part that one unit goes to, and whether a fair coin chose between train and holdout."""

    part: Part
    audit: bool


@dataclass(frozen=True)
class Split:
    """The three parts, each in input order.

    Attributes:
        train: rows that generators are fitted on; the members of the audit are its rows with `guess`.
        holdout: rows that nothing is fitted on; the non-members are its rows with `guess`.
        test: rows that only evaluations read; no row has `guess`.
        audit_size: number of units whose coins were flipped, in train and holdout together.
    """

    train: Sequence[SplitRow]
    holdout: Sequence[SplitRow]
    test: Sequence[SplitRow]
    audit_size: int


def audit_rate(size: int, n_units: int) -> float:
    """Return the public probability of entering an audit subset of about `size` of `n_units` units."""
    validate.require_positive(n_units=n_units)
    validate.require_in_range(0, n_units, size=size)
    return size / n_units


def assign(row: RawRow, key: bytes, audit_rate: float, test_rate: float) -> Assignment:
    """Draw one unit's place: first the test part, then the audit subset, then a fair coin.

    Guarantee: the three draws are a keyed hash of the unit alone: of the person where the row names one, so that all
    rows of a person go the same way whatever they say, else of the record's normalised text and label. Adding or
    removing a unit moves no other one (1-stable). Records with equal normalised text and label share their draws.

    Args:
        row: a private row.
        key: 32 secret bytes, as for all that is drawn here.
        audit_rate: public probability of entering the audit subset, given not in the test part.
        test_rate: public probability of entering the test part; 0 where a test file is given.
    """
    test, audit, coin = _uniforms(_draws(row, key))
    if test < test_rate:
        return Assignment("test", audit=False)
    if audit >= audit_rate:
        return Assignment("train", audit=False)
    return Assignment("train" if coin < 0.5 else "holdout", audit=True)


def _draws(row: RawRow, key: bytes) -> bytes:
    """Return the bits of a unit's three draws."""
    if row.unit is not None:
        return digest(key, "split person", row.unit, size=3 * _DRAW_BYTES)
    return digest(key, "split", normalise(row.text), row.label, size=3 * _DRAW_BYTES)


def _uniforms(drawn: bytes) -> list[float]:
    """Return numbers in [0, 1) with 53 bits, one per 8 bytes."""
    words = (drawn[start : start + _DRAW_BYTES] for start in range(0, len(drawn), _DRAW_BYTES))
    return [(int.from_bytes(word, "big") >> 11) * 2.0**-53 for word in words]


def split_rows(rows: Sequence[RawRow], key: bytes, audit_rate: float, test_rate: float, guessable: np.ndarray) -> Split:
    """Split all rows; every row lands in exactly one part and none is dropped.

    Guarantee: as for `assign`. The mask may depend on many rows: it decides only what the audit guesses about, never
    what a generator is fitted on.

    Args:
        rows: private rows, all of which name their person, or none.
        guessable: (len(rows),) bool, made without sight of the fair coins; False for the rows of a unit that has a
            near-duplicate in another one, and wherever no coin is flipped.
    """
    validate.require_in_range(0, 1, audit_rate=audit_rate, test_rate=test_rate)
    if np.shape(guessable) != (len(rows),):
        raise ValueError(f"guessable must have shape {(len(rows),)}, got {np.shape(guessable)}")
    if len({row.unit is None for row in rows}) > 1:
        raise ValueError("rows of one data set must all name their person, or none of them")
    places = np.fromiter((_code(assign(row, key, audit_rate, test_rate)) for row in rows), dtype=np.int8)
    audit = places >= _AUDIT
    guess = audit & guessable
    chosen = [places % _AUDIT == code for code, _ in enumerate(_PARTS)]
    train, holdout, test = (Mapped(partial(_split_row, key), Chosen(rows, mask), guess[mask]) for mask in chosen)
    return Split(train, holdout, test, count_units(Chosen(rows, audit), key))


def _code(place: Assignment) -> int:
    """Return a small number for an assignment, so that many fit in memory."""
    return _PARTS.index(place.part) + _AUDIT * place.audit


def _split_row(key: bytes, row: RawRow, guess: np.bool_) -> SplitRow:
    person = None if row.unit is None else person_id(row, key)
    return SplitRow(row.text, row.label, bool(guess), person, row.fields)


def persons(rows: Iterable[RawRow], key: bytes) -> np.ndarray:
    """Return a keyed digest of the person behind each row, which every row names: 32 bytes each, dtype S32, (N,)."""
    return np.fromiter((digest(key, "person", _require_unit(row)) for row in rows), dtype="S32")


def count_units(rows: Sequence[RawRow], key: bytes) -> int:
    """Count the units of privacy of the rows, all of which name their person, or none."""
    return len(rows) if not rows or rows[0].unit is None else len(np.unique(persons(rows, key)))


def cap_rows(rows: Sequence[RawRow], key: bytes, max_rows: int) -> Sequence[RawRow]:
    """Keep, in input order, the `max_rows` rows of each person with the smallest keyed hash.

    Equal rows of one person have equal hashes and are interchangeable; the first ones are kept.

    Guarantee: which rows of a person stay depends on that person's rows and the key alone. Adding or removing a person
    adds or removes that person's kept rows, at most `max_rows`, and changes no other row (1-stable for persons). It is
    not stable for records: one row more of a person at the cap may take another one's place.

    Every row names its person; `max_rows` is public.
    """
    validate.require_positive(max_rows=max_rows)
    owners = persons(rows, key)
    # The person is part of the hash: a phrase that many people wrote is then kept by some, not by all or none.
    ranks = np.fromiter((digest(key, "unit", row.unit, row.text, row.label) for row in rows), dtype="S32")
    order = np.lexsort((ranks, owners))
    owners = owners[order]
    kept = np.ones(len(owners), dtype=bool)
    kept[order[max_rows:][owners[max_rows:] == owners[:-max_rows]]] = False
    return Chosen(rows, kept)


def person_id(row: RawRow, key: bytes) -> str:
    """Return the keyed id of the person behind a row: 64 hexadecimal digits.

    It stands for the exact value of the unit column, in that data set only: another asset has another key, so people
    are not recognised across data sets. Without the key it is an unrelated random word. It is itself a key for what is
    drawn only from one person's rows (`privacy.rows.select_one_each`).
    """
    return digest(key, "person", _require_unit(row)).hex()


def _require_unit(row: RawRow) -> str:
    if row.unit is None:
        raise ValueError("a row without a unit belongs to nobody: drop it first")
    return row.unit
