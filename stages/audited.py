"""Shared by audits: the rows they read, and a result or the reason for having none."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

from palimpsest.audit.inconclusive import Inconclusive, read_inconclusive
from palimpsest.audit.units import Guessed
from palimpsest.errors import DataError
from palimpsest.files import read_json, write_json
from palimpsest.params.schema import Params
from palimpsest.privacy.rows import select_one_each
from palimpsest.records.private import SplitRow
from palimpsest.records.record import Record
from palimpsest.records.write import read_drawn, read_guessed, read_split, read_synthetic
from palimpsest.workspace import METRICS, PRIVATE, SYNTHETIC

P = ParamSpec("P")


def load_guessed() -> Guessed:
    """Read the rows of the audit subset that may be guessed about: members in train, the others in holdout."""
    return Guessed.of(*(read_guessed(PRIVATE / f"{part}.parquet") for part in ("train", "holdout")))


def read_one_each(part: str) -> Sequence[SplitRow]:
    """Read a private split, with one row for each person where persons are the unit.

    Comparisons of sets of rows, and counts of right answers, take rows for independent draws. The rows of one person
    are not: they would make a floor too low and an interval too narrow.
    """
    return select_one_each(read_split(PRIVATE / f"{part}.parquet"))


def read_guessed_each(part: str) -> Sequence[SplitRow]:
    """Read those rows of `read_one_each` that may be guessed about."""
    return select_one_each(read_guessed(PRIVATE / f"{part}.parquet"))


def records_of(part: str) -> list[Record]:
    """Return the texts and labels of `read_one_each`."""
    return [Record(row.text, row.label) for row in read_one_each(part)]


def real_rows(params: Params) -> Sequence[SplitRow]:
    """Read private training rows, as many as classifiers may learn from."""
    return read_drawn(PRIVATE / "train.parquet", params.utility.most_rows, params.seed)


def written(params: Params, name: str) -> list[Record]:
    """Read the synthetic rows of a variant, or of a row at epsilon 0."""
    data = params.dataset
    return read_synthetic(SYNTHETIC / name, data.text, data.label, data.fields)


def metric(name: str, kind: str) -> Path:
    """Return the path of the metric file of a variant, or of another row of the results."""
    return METRICS / name / f"{kind}.json"


def save(name: str, kind: str, document: Mapping[str, Any]) -> None:
    """Write a metric file."""
    write_json(metric(name, kind), document)


def read_result(path: Path) -> dict[str, Any]:
    """Read another audit's result that this audit builds on. Raises DataError if the other audit came to no result."""
    body = dict(read_json(path))
    if why := read_inconclusive(body):
        raise DataError(f"What this is compared with is inconclusive, because {why.inconclusive}.", why.remedy)
    return body


def conclude_on_error(writes: Callable[..., Iterable[Path]]) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Make an audit write `Inconclusive` into its files when it raises any error, and end normally.

    Stops from outside still stop it: Ctrl-C, a signal, a disk that does not take even that.

    Args:
        writes: the audit's arguments -> all files that it writes.
    """

    def decorate(audit: Callable[P, None]) -> Callable[P, None]:
        @wraps(audit)
        def concluded(*args: P.args, **kwargs: P.kwargs) -> None:
            files = list(writes(*args, **kwargs))
            try:
                audit(*args, **kwargs)
            except Exception as error:
                conclude(Inconclusive.of(error), files)

        return concluded

    return decorate


def conclude(why: Inconclusive, files: Iterable[Path]) -> None:
    """Write into every file that there is no result, and say so."""
    for path in files:
        write_json(path, why.document)
    print(f"{'error: ' if why.failed else ''}{why.lines}", file=sys.stderr, flush=True)


def metric_of_subject(kind: str) -> Callable[..., Iterable[Path]]:
    """Return the file that an audit writes whose first argument is a subject: that subject's metric file."""
    return lambda name, *_: [metric(name, kind)]
