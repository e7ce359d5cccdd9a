"""Writes a blinded sheet for people who judge rows, and reads filled ones; a program of the private zone, no stage."""

import csv
import io
from pathlib import Path

from palimpsest.errors import DataError
from palimpsest.files import read_json, write_json, write_text
from palimpsest.params.load import load
from palimpsest.params.schema import Params
from palimpsest.privacy.receipt import read_receipt
from palimpsest.records.picked import pick_rows
from palimpsest.report.formats import number, percent
from palimpsest.workspace import RATINGS, RECEIPTS
from palimpsest_lab.audits.ratings import COLUMNS, make_blind_sheet, ratings, read_sheet
from stages.audited import written
from stages.common import start
from stages.samples import AT_EPSILON_0, select_variants

_SHEET, _KEY, _RESULT = RATINGS / "sheet.csv", RATINGS / "key.json", RATINGS / "ratings.json"


def run(what: str, *told: str) -> None:
    """`sheet COUNT VARIANT...` -> reports/ratings/sheet.csv and key.json; `read SHEET...` -> ratings.json, printed.

    Raises:
        ParamsError: params.yaml has no such variant.
        DataError: there are no rows for it, there is a sheet already or no key, or a sheet cannot be read.
    """
    if what == "sheet":
        _write(int(told[0]), told[1:])
    else:
        _read([Path(path) for path in told])


def _write(count: int, names: tuple[str, ...]) -> None:
    if _SHEET.exists() or _KEY.exists():
        raise DataError(
            "There is a sheet already, and people may have copies of it that its key alone can read.",
            f"Move {_SHEET} and {_KEY.name} away together, or delete both if no answer is still to be read.",
        )
    params = load()
    rows = {name: written(params, name) for name in _select_for_sheet(params, names)}
    some = {name: pick_rows(own, count, by_label=False, seed=params.seed) for name, own in rows.items()}
    lines, key = make_blind_sheet({name: [row.text for row in own] for name, own in some.items()}, params.seed)
    table = io.StringIO()
    csv.writer(table).writerows([COLUMNS, *((item, text, "") for item, text in lines)])
    write_text(_SHEET, table.getvalue())
    write_json(_KEY, {"zone": "private", "key": key})


def _select_for_sheet(params: Params, names: tuple[str, ...]) -> list[str]:
    """Return the named variants, or all whose rows are not private: sheets are given out."""
    there = select_variants(params, names)
    private = [name for name in there if _is_private(name)]
    if names and private:
        print(f"Rows of {', '.join(private)} are private. Give the sheet to those alone who may see them.", flush=True)
    shown = there if names else [name for name in there if name not in private]
    if not shown:
        raise DataError(
            f"All rows that there are, of {', '.join(there)}, are private.",
            "Make others with `palimpsest run`, or name a variant for those who may see private rows.",
        )
    return shown


def _is_private(name: str) -> bool:
    """Tell by the receipt that came with the rows; those at epsilon 0 have none."""
    return name not in AT_EPSILON_0 and not read_receipt(RECEIPTS / f"{name}.json").private


def _read(paths: list[Path]) -> None:
    if not _KEY.is_file():
        raise DataError("There is no key of a sheet.", "Write a sheet with `palimpsest rate --sheet 20` first.")
    key = read_json(_KEY)["key"]
    found = ratings(key, [read_sheet(path, key) for path in paths])
    write_json(_RESULT, {"zone": "private"} | found.to_json())
    for variant, share in found.readable.items():
        print(f"{variant}: readable {percent(share.value)} ({percent(share.low)} to {percent(share.high)})", flush=True)
    told = "not known" if found.agreement is None else number(found.agreement)
    print(f"{found.raters} raters; agreement (Krippendorff's alpha): {told}", flush=True)


if __name__ == "__main__":
    start(run)
