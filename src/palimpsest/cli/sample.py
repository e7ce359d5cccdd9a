"""`palimpsest sample`: rows of a synthetic variant, read where the run left them."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from palimpsest.errors import DataError, ParamsError
from palimpsest.params.load import read
from palimpsest.params.schema import Params
from palimpsest.params.sources import describe_public_rows
from palimpsest.privacy.receipt import read_receipt
from palimpsest.records.picked import pick_rows
from palimpsest.records.record import Record
from palimpsest.records.write import read_synthetic
from palimpsest.workspace import RECEIPTS, SYNTHETIC

_ROWS = 3


def show_sample(
    workspace: Path,
    variant: str | None = None,
    *,
    rows: int = _ROWS,
    label: str | None = None,
    seed: int | None = None,
    reference: bool = False,
    as_json: bool = False,
) -> None:
    """Print some rows of a variant, under each label.

    Guarantee: rows whose receipt does not let them leave, such as a reference's, are shown only on a terminal, and
    there on the owner's word.

    Args:
        variant: the variant of the rows; None for the one that may be shown.
        rows: how many of each label, or in all where there are no labels.
        label: only rows of this label.
        seed: the same rows each time; None for others.
        reference: the owner's word for rows that are private.

    Raises:
        ParamsError: no such variant, or no such label.
        DataError: it has no rows yet, or they may not be shown.
    """
    params = read(workspace)
    name = variant or _find_only(params, workspace)
    require_there(params, workspace, name)
    _require_shown(workspace, name, reference=reference)
    data = params.dataset
    records = read_synthetic(workspace / SYNTHETIC / name, data.text, data.label)
    if label is not None:
        records = [record for record in records if record.label == label]
        if not records:
            known = f"Its labels are {', '.join(data.labels)}." if data.labels else "Leave --label out."
            raise ParamsError(f"--label is {label!r}: no row of {name} has it.", known)
    chosen = pick_rows(records, rows, by_label=bool(data.labels), seed=seed)
    if as_json:
        print(json.dumps([asdict(record) for record in chosen], indent=2, ensure_ascii=False))
        return
    _print(chosen)
    if copied := describe_public_rows(params, [name]):
        print(f"note: {copied}")


def list_showable(params: Params, workspace: Path) -> list[str]:
    """Return the variants that are meant for release and have rows with a receipt that lets them be shown."""
    there = [name for name in params.may_leave if _file(workspace, name).is_file()]
    return [name for name in there if _receipt(workspace, name).is_file() and _may_be_shown(workspace, name)]


def _may_be_shown(workspace: Path, name: str) -> bool:
    """Whether rows may be shown, by the receipt that came with them: params.yaml may name another purpose since."""
    return read_receipt(_receipt(workspace, name)).private


def on_a_terminal() -> bool:
    """Whether a person reads the output now, and it lands in no file."""
    return sys.stdout.isatty()


def _file(workspace: Path, name: str) -> Path:
    return workspace / SYNTHETIC / f"{name}.parquet"


def _receipt(workspace: Path, name: str) -> Path:
    return workspace / RECEIPTS / f"{name}.json"


def _find_only(params: Params, workspace: Path) -> str:
    there = list_showable(params, workspace)
    if len(there) != 1:
        raise ParamsError(
            f"VARIANT is missing; {_describe_rows(there)}.", "Name one, or make them with `palimpsest run`."
        )
    return there[0]


def _describe_rows(there: Sequence[str]) -> str:
    return f"rows have: {', '.join(there)}" if there else "none has rows yet that may be shown"


def require_there(params: Params, workspace: Path, name: str) -> None:
    """Raise ParamsError where there is no such variant, DataError where it has no rows yet."""
    if name not in params.run.evaluate:
        raise ParamsError(
            f"VARIANT is {name!r}, which params.yaml does not have.", f"Name one of {', '.join(params.run.evaluate)}."
        )
    if not _file(workspace, name).is_file():
        raise DataError(
            f"{name} has no rows yet; {_describe_rows(list_showable(params, workspace))}.", "Run `palimpsest run`."
        )


def require_shareable(workspace: Path, name: str, word: str) -> None:
    """Raise DataError if a receipt does not let its rows leave; `word` says how to see them all the same."""
    if not _may_be_shown(workspace, name):
        raise DataError(
            f"The rows of {name} are not differentially private: they are a reference's, or their noise was fixed.",
            f"They stay in the private zone. If you may see the private rows, {word}.",
        )


def _require_shown(workspace: Path, name: str, *, reference: bool) -> None:
    if not reference:
        require_shareable(workspace, name, "--reference shows them on your terminal")
    elif not _may_be_shown(workspace, name) and not on_a_terminal():
        raise DataError(f"The rows of {name} are private, and standard output is no terminal.", "Look at them on one.")


def _print(records: Sequence[Record]) -> None:
    """Print each row on a line, under its label, without characters that would control a terminal."""
    heading = None
    for record in records:
        if record.label != heading:
            print(f"{_strip_controls(record.label or '')}:")
            heading = record.label
        print(f"  {_strip_controls(record.text)}")
    sys.stdout.flush()


def _strip_controls(text: str) -> str:
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
