"""Reads the private and the public file, draws the audit subset, and writes the splits."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from palimpsest.errors import DataError
from palimpsest.files import read_json, write_json
from palimpsest.params.load import ledger_url, load
from palimpsest.params.schema import Params
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import require_unit
from palimpsest.records.duplicates import SHINGLE, find_guessable, marks
from palimpsest.records.faults import POLICIES, RecordError
from palimpsest.records.fields import list_read
from palimpsest.records.keyed import fingerprint, likeness
from palimpsest.records.preprocess import preprocess
from palimpsest.records.private import RawRow
from palimpsest.records.read import ColumnNames, nobody_error, read_rows
from palimpsest.records.record import Record
from palimpsest.records.write import Packed, write_public, write_split
from palimpsest.workspace import FAULT, GIVEN, MANIFEST, ORIGINS, PRIVATE, PUBLIC, ROWS_REPORT, Zone
from stages.common import start
from stages.public import public_rows

_HELDOUT_SHARE, _HELDOUT_MOST = 0.05, 2000  # of the public rows


def run() -> None:
    """dataset files -> data/private, data/public."""
    FAULT.unlink(missing_ok=True)
    params = load()
    ledger = Ledger.open(ledger_url(params))
    asset = ledger.asset(params.dataset.asset)
    require_unit(asset, params.schema_of_data)
    public = write_public_rows(params)
    rows, test_rows = answer_fields(params, *read_private(params))
    column = params.dataset.unit.column
    if column is not None and all(row.unit is None for row in rows):
        raise nobody_error(params.dataset.private, column)
    if params.world is None:
        ledger.know_rows(asset.name, likeness((row.text for row in rows), ledger.books().rows_key))
    done = preprocess(
        rows,
        test_rows,
        schema=params.schema_of_data,
        key=asset.key,
        audit_size=params.audit.size,
        test_rate=params.dataset.test_share,
        batch_size=max((model.train.batch for model in params.fitted.values()), default=1),
        guessable=partial(find_guessable, similarity=params.audit.similarity, shingle=SHINGLE),
        public=public,
    )
    for part in ("train", "holdout", "test"):
        write_split(PRIVATE / f"{part}.parquet", getattr(done.split, part), fields=bool(params.dataset.fields))
    write_json(ROWS_REPORT, done.report)
    manifest = {"zone": Zone.PRIVATE, "fingerprint": fingerprint(done.split.train, asset.key)}
    write_json(MANIFEST, manifest | {"origins": read_origins(params)})
    # Always: the presence of warnings is a function of the rows.
    print(f"preprocess: what the data's owner should know is in {ROWS_REPORT} (private zone)")


def answer_fields(
    params: Params, rows: Sequence[RawRow], test: Sequence[RawRow] | None
) -> tuple[Sequence[RawRow], Sequence[RawRow] | None]:
    """Return the rows with the fields answered that are read from texts."""
    fields = params.dataset.fields
    if not list_read(fields):
        return rows, test
    from palimpsest.models.reader import read_fields  # with torch, which other files do not need here
    from palimpsest.privacy.means import encode_ahead
    from stages.tools import encoders

    encode = encoders(params, 1).rows  # each text by itself: an answer then depends on no other
    encode_ahead(encode, [row.text for some in (rows, test or ()) for row in some])
    own, others = (Packed.of(RawRow, read_fields(some, fields, encode)) for some in (rows, test or ()))
    return own, None if test is None else others


def read_origins(params: Params) -> dict[str, Any]:
    """Return name of a copy that is read -> where `init` had it from. No stage runs again for these alone."""
    known = read_json(ORIGINS) if ORIGINS.is_file() else {}
    named = [value for value in vars(params.dataset).values() if isinstance(value, str)]
    return {name: origin for name, origin in known.items() if str((GIVEN / name).resolve()) in named}


def read_private(params: Params) -> tuple[Sequence[RawRow], Sequence[RawRow] | None]:
    """Read the private file's rows, and the test file's where there is one.

    Raises:
        DataError: a file, or one of its records, cannot be read. Only the private zone has the record and the reason:
            its row number would otherwise stand in a log.
    """
    try:
        return _read_private(params)
    except RecordError as fault:
        write_json(FAULT, {"zone": Zone.PRIVATE, "told": [f"{fault.problem} {fault.remedy}"]})
    raise DataError("A private record cannot be read.", f"{str(FAULT)!r} has its file, its place and what to do.")


def _read_private(params: Params) -> tuple[Sequence[RawRow], Sequence[RawRow] | None]:
    data = params.dataset
    keys = params.schema_of_data.keys
    columns = ColumnNames(
        data.text, data.label, data.unit.column, keys, nobody=data.unit.missing == "drop", fields=data.fields
    )
    read = partial(
        read_rows, max_length=data.max_length, labels=tuple(data.labels) or None, bad=POLICIES[data.bad_rows]
    )
    test = ColumnNames(data.text, data.label, keys=keys, fields=data.fields)
    return read(data.private, columns), None if data.test is None else read(data.test, test)


def write_public_rows(params: Params) -> set[int]:
    """Cut the public file into rows to train on and rows to measure on; return the marks of its texts."""
    data = params.dataset
    label = data.label if data.public_labels else None
    columns = ColumnNames(data.text, label, keys=params.schema_of_data.keys, plain=True)
    rows = public_rows(params, "dataset.public", columns)
    train, heldout = split_public([Record(row.text, row.label) for row in rows], params.seed)
    write_public(PUBLIC / "train.parquet", train)
    write_public(PUBLIC / "heldout.parquet", heldout)
    return marks(row.text for row in rows)


def split_public(rows: Sequence[Record], seed: int) -> tuple[list[Record], list[Record]]:
    """Split public rows into (train, held-out): one in twenty, at most 2,000, is held out. Empty texts are dropped."""
    kept = [row for row in rows if row.text.strip()]
    order = np.random.default_rng(seed).permutation(len(kept))
    heldout = set(order[: min(_HELDOUT_MOST, int(len(kept) * _HELDOUT_SHARE) + 1)].tolist())
    train = [row for index, row in enumerate(kept) if index not in heldout]
    return train, [row for index, row in enumerate(kept) if index in heldout]


if __name__ == "__main__":
    start(run)
