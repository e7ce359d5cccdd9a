"""Reads the rows of audits (members, holdout, and synthetic ones) and saves an audit's result."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from palimpsest.audit.inconclusive import inconclusive
from palimpsest.audit.units import Guessed
from palimpsest.errors import DataError
from palimpsest.files import read_json, write_json
from palimpsest.params.schema import Params
from palimpsest.privacy.rows import one_each
from palimpsest.records.private import SplitRow
from palimpsest.records.record import Record
from palimpsest.records.write import read_drawn, read_guessed, read_split, read_synthetic
from palimpsest.workspace import METRICS, PRIVATE, SYNTHETIC


def guessed() -> Guessed:
    """Read the rows of the audit subset that may be guessed about: members in train, the others in holdout."""
    return Guessed.of(*(read_guessed(PRIVATE / f"{part}.parquet") for part in ("train", "holdout")))


def one_row_each(part: str) -> Sequence[SplitRow]:
    """Read a private split, with one row for each person where persons are the unit.

    Comparisons of sets of rows, and counts of right answers, take rows for independent draws. The rows of one person
    are not: they would make a floor too low and an interval too narrow.
    """
    return one_each(read_split(PRIVATE / f"{part}.parquet"))


def one_guessed_each(part: str) -> Sequence[SplitRow]:
    """Read those rows of `one_row_each` that may be guessed about."""
    return one_each(read_guessed(PRIVATE / f"{part}.parquet"))


def records_of(part: str) -> list[Record]:
    """Return the texts and labels of `one_row_each`."""
    return [Record(row.text, row.label) for row in one_row_each(part)]


def real_rows(params: Params) -> Sequence[SplitRow]:
    """Read private training rows, as many as classifiers may learn from."""
    return read_drawn(PRIVATE / "train.parquet", params.utility.most_rows, params.seed)


def written(params: Params, name: str) -> list[Record]:
    """Read the synthetic rows of a variant, or of a row at epsilon 0."""
    return read_synthetic(SYNTHETIC / name, params.dataset.text, params.dataset.label)


def metric(name: str, kind: str) -> Path:
    """Return the path of the metric file of a variant, or of another row of the results."""
    return METRICS / name / f"{kind}.json"


def save(name: str, kind: str, document: Mapping[str, Any]) -> None:
    """Write a metric file."""
    write_json(metric(name, kind), document)


def read_result(path: Path) -> dict[str, Any]:
    """Read another audit's result that this audit builds on.

    Raises:
        DataError: the other audit came to no result.
    """
    body = dict(read_json(path))
    if why := inconclusive(body):
        raise DataError(f"What this is compared with is inconclusive, because {why.inconclusive}.", why.remedy)
    return body
