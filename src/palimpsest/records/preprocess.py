"""Preprocessing of raw private rows to training, holdout and test rows, with a report for the private zone.

Each unit's part is drawn from a keyed hash of only that unit. The unit of privacy is one record, or the person behind
it where a column names one: then a keyed id stands for the person, who keeps at most k rows.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from palimpsest import validate
from palimpsest.records.conformity import conforms
from palimpsest.records.duplicates import marks
from palimpsest.records.fields import decode_cells, domains_of
from palimpsest.records.keyed import digest, normalise, told_fields
from palimpsest.records.private import RawRow, SplitRow
from palimpsest.records.schema import PublicSchema
from palimpsest.records.structured import members_of
from palimpsest.records.write import Chosen, Mapped
from palimpsest.workspace import Zone

Part = Literal["train", "holdout", "test"]

_PARTS: tuple[Part, ...] = get_args(Part)
_AUDIT = len(_PARTS)
_DRAW_BYTES = 8
Guessable = Callable[[Sequence[str], np.ndarray | None, np.ndarray], np.ndarray]

# Declared numbers may be approximate; farther off than this factor, noise and sampling rate no longer suit the data.
_FEW = 10  # rows of a label: noise of any usual epsilon hides them
_DECLARED_FACTOR = 1.25


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
    return Split(train, holdout, test, _count_units(Chosen(rows, audit), key))


def _code(place: Assignment) -> int:
    """Return a small number for an assignment, so that many fit in memory."""
    return _PARTS.index(place.part) + _AUDIT * place.audit


def _split_row(key: bytes, row: RawRow, guess: np.bool_) -> SplitRow:
    person = None if row.unit is None else person_id(row, key)
    return SplitRow(row.text, row.label, bool(guess), person, row.fields)


def persons(rows: Iterable[RawRow], key: bytes) -> np.ndarray:
    """Return a keyed digest of the person behind each row, which every row names: 32 bytes each, dtype S32, (N,)."""
    return np.fromiter((digest(key, "person", _require_unit(row)) for row in rows), dtype="S32")


def _count_units(rows: Sequence[RawRow], key: bytes) -> int:
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
    ranks = np.fromiter(
        (digest(key, "unit", row.unit, row.text, row.label, *told_fields(row)) for row in rows), dtype="S32"
    )
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


class Oddity(NamedTuple):
    """Something that the owner of the data should know: with its counts for the private report, and without them."""

    counted: str
    told: str


@dataclass(frozen=True)
class Preprocessed:
    """The result of preprocessing.

    Attributes:
        split: the rows of the three private files.
        report: counts and warnings, JSON-able; private zone. `told` has the warnings without their counts, for the
            terminal of the data's owner.
    """

    split: Split
    report: dict[str, Any]


def preprocess(
    rows: Sequence[RawRow],
    test_rows: Sequence[RawRow] | None,
    *,
    schema: PublicSchema,
    key: bytes,
    audit_size: int,
    test_rate: float,
    batch_size: int,
    guessable: Guessable,
    public: Set[int] = frozenset(),
) -> Preprocessed:
    """Leave out rows of nobody, cap the rows per person, split them, and count what the owner of the data should know.

    In this order: a row that names no person is left out by itself, then each person keeps at most the public cap of
    rows, then one draw per person places all the rest of theirs. Without a unit column it does not matter whom a row
    names.

    Nothing found in the rows is an error here: an error would itself tell something. What looks odd becomes a warning.

    Guarantee: adding or removing one unit of privacy (a record; a person with all their rows where there is a unit
    column) adds or removes that unit's kept rows, all in one part, and changes no other row's part, text, label or
    person (1-stable). Only marks of whom the audit may guess about can change for others.

    Args:
        rows: the private input.
        test_rows: the rows of a separate test file, or None: then the test part is cut from `rows`.
        key: 32 secret bytes, from the operating system's entropy.
        audit_size: public; expected number of units in the audit subset.
        test_rate: public probability of the test part; not used where a test file is given.
        batch_size: public; expected batch size, for a warning.
        guessable: (texts, digest of each one's person or None, mask of those asked about) -> (len(texts),) bool: the
            rows asked about whose units have no near-duplicate in another unit.
        public: marks of the public file's texts (`duplicates.marks`), for a warning.
    """
    kept = _select_kept(rows, schema, key)
    owners = None if schema.unit_column is None else persons(kept, key)
    rate = audit_rate(audit_size, schema.n_units)
    cut = test_rate if test_rows is None else 0.0
    audited = np.fromiter((assign(row, key, rate, cut).audit for row in kept), dtype=bool, count=len(kept))
    split = split_rows(kept, key, rate, cut, guessable(Mapped(attrgetter("text"), kept), owners, audited))
    if test_rows is not None:
        split = replace(split, test=Mapped(_make_test_row, test_rows))
    return Preprocessed(split, _report(rows, kept, split, schema, key, batch_size, public))


def _make_test_row(row: RawRow) -> SplitRow:
    return SplitRow(row.text, row.label, fields=row.fields)


def _select_kept(rows: Sequence[RawRow], schema: PublicSchema, key: bytes) -> Sequence[RawRow]:
    """Return the rows that are split; where the unit of privacy is one record, they name nobody."""
    if schema.unit_column is None:
        return Mapped(_drop_unit, rows)
    named = np.fromiter((row.unit is not None for row in rows), dtype=bool)
    return cap_rows(Chosen(rows, named), key, schema.max_rows_per_unit)


def _drop_unit(row: RawRow) -> RawRow:
    return row if row.unit is None else replace(row, unit=None)


def _report(
    rows: Sequence[RawRow],
    kept: Sequence[RawRow],
    split: Split,
    schema: PublicSchema,
    key: bytes,
    batch_size: int,
    public: Set[int],
) -> dict[str, Any]:
    counts = _counts(rows, kept, split, schema, key) | {"public": sum(bool(marks([row.text]) & public) for row in rows)}
    carried = Counter(row.label for row in kept)
    # Nothing where labels are free text, because they then are part of the record.
    labels = {label: carried[label] for label in schema.label_names}
    without = _count_without(kept, schema)
    one_label = len(labels) > 1 and sum(count > 0 for count in labels.values()) == 1
    odd = [
        *_odd_rows(counts, schema),
        *odd_sizes(counts["read"], counts["persons"], schema),
        *_odd_training(counts["train_units"], schema, batch_size),
        *odd_labels(labels),
        *_odd_fields(without),
        *odd_public(counts["public"]),
    ]
    return {
        "zone": Zone.PRIVATE,
        "n_public": schema.n_public,
        "n_persons": schema.n_persons,
        "rows": counts,
        "labels": {label: {"count": count, "share": count / max(len(kept), 1)} for label, count in labels.items()},
        "one_label": one_label,
        "fields": {name: {"without": count, "share": count / max(len(kept), 1)} for name, count in without.items()},
        "warnings": [each.counted for each in odd],
        "told": [each.told for each in odd],
    }


def _counts(
    rows: Sequence[RawRow], kept: Sequence[RawRow], split: Split, schema: PublicSchema, key: bytes
) -> dict[str, int]:
    nobody = 0 if schema.unit_column is None else sum(row.unit is None for row in rows)
    return {
        "read": len(rows),
        "nobody": nobody,
        "over_cap": len(rows) - nobody - len(kept),
        "persons": 0 if schema.unit_column is None else _count_units(kept, key),
        "cut": sum(row.cut for row in rows),
        "empty": sum(not row.text.strip() for row in rows),
        "train": len(split.train),
        "train_units": _units(split.train),
        "holdout": len(split.holdout),
        "test": len(split.test),
        "audit": split.audit_size,
        "members": _units([row for row in split.train if row.guess]),
        "nonmembers": _units([row for row in split.holdout if row.guess]),
        "unlabelled": sum(not (row.label or "").strip() for row in rows) if schema.free_label else 0,
        "invalid": 0 if schema.json_schema is None else _count_invalid(rows, schema.json_schema),
    }


def _units(rows: Sequence[SplitRow]) -> int:
    """Count the units of privacy of the rows."""
    named = np.fromiter((row.person.encode() for row in rows if row.person is not None), dtype="S64")
    return len(rows) - len(named) + len(np.unique(named))


def _count_invalid(rows: Sequence[RawRow], json_schema: Mapping[str, Any]) -> int:
    """Count the records that do not conform to the public JSON schema; a text that was cut does not conform."""
    valid = conforms(json_schema)
    return sum(not valid(members_of(row.text)) for row in rows)


def _count_without(rows: Sequence[RawRow], schema: PublicSchema) -> dict[str, int]:
    """Count for each field the rows without a cell of it."""
    cells = [decode_cells(row.fields) for row in rows]
    domains = zip(schema.fields, domains_of(schema.fields), strict=True)
    return {name: sum(own[at] == domain.size for own in cells) for at, (name, domain) in enumerate(domains)}


def _odd_rows(counts: dict[str, int], schema: PublicSchema) -> Iterator[Oddity]:
    problems = {
        "cut": f"texts were cut at {schema.max_length} characters",
        "empty": "texts are empty",
        "unlabelled": "rows have no label",
        "invalid": "records do not conform to the JSON schema",
        "nobody": "rows were left out: they name no person",
        "over_cap": f"rows were left out: more than {schema.max_rows_per_unit} of one person",
    }
    for name, problem in problems.items():
        if counts[name]:
            yield Oddity(f"{counts[name]} {problem}.", f"Some {problem}.")


def odd_sizes(rows: int, persons: int, schema: PublicSchema) -> Iterator[Oddity]:
    """Yield sizes that are far from the declared ones, by which noise and sampling rates were chosen."""
    if _is_far(rows, schema.n_public):
        told = "The number of rows is far from dataset.n_public, which noise and sampling rates follow from."
        yield Oddity(f"{rows} rows were read; n_public says {schema.n_public}.", told)
    if schema.n_persons is not None and _is_far(persons, schema.n_persons):
        told = "The number of persons is far from dataset.unit.persons, which noise and delta follow from."
        yield Oddity(f"Rows of {persons} persons were read; unit.persons says {schema.n_persons}.", told)


def _odd_training(train_units: int, schema: PublicSchema, batch_size: int) -> Iterator[Oddity]:
    if train_units < batch_size:
        units = f"training {'rows' if schema.unit == 'record' else 'persons'}"
        counted = f"{train_units} {units} are fewer than one batch of {batch_size}."
        yield Oddity(counted, f"The {units} are fewer than one batch.")


def odd_labels(labels: Mapping[str, int]) -> Iterator[Oddity]:
    """Yield a warning about listed labels that no row, or hardly any, has, from label -> its number of rows."""
    absent, few = (sum(least <= count < most for count in labels.values()) for least, most in ((0, 1), (1, _FEW)))
    if len(labels) > 1 and absent == len(labels) - 1:
        yield Oddity("All rows have the same label.", "All rows have the same label.")
    elif absent:
        yield Oddity(f"{absent} of the {len(labels)} labels have no row.", "A listed label has no row.")
    elif few:
        told = "A listed label has so few rows that noise decides what is made for it."
        yield Oddity(f"{few} of the {len(labels)} labels have fewer than {_FEW} rows.", told)


def _odd_fields(without: Mapping[str, int]) -> Iterator[Oddity]:
    for name, count in without.items():
        if count:
            what = f"values of field {name} are missing, or in none of its public cells"
            yield Oddity(f"{count} {what}.", f"Some {what}.")


def odd_public(shared: int) -> Iterator[Oddity]:
    """Yield a warning about texts that are also in the public file."""
    if shared:
        told = "have a text that the public file has, too, and public texts may be released as they are."
        yield Oddity(f"{shared} rows {told}", f"Some rows {told}")


def _is_far(count: int, declared: int) -> bool:
    return not 1 / _DECLARED_FACTOR <= count / declared <= _DECLARED_FACTOR
