"""Rows that are odd but no error, and a row more or less: what the private stages make of them."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

import stages.dp_train
import stages.preprocess
from palimpsest.files import read_json
from palimpsest.records.write import read_split
from tests.pipeline.place import MARKER, VARIANT, Place

pytestmark = [pytest.mark.xdist_group("pipeline"), pytest.mark.timeout(900)]

PARTS = ("train", "holdout", "test")
Table = list[list[str]]
Preprocess = Callable[[Table], tuple[Place, str]]
LABEL = 2


@pytest.fixture
def preprocessed(again: Place) -> Preprocess:
    """Run the stage preprocess on a file of these rows."""

    def run(rows: Table) -> tuple[Place, str]:
        file = again.home / "rows.csv"
        with file.open("w", newline="") as stream:
            csv.writer(stream).writerows([["id", "body", "team"], *rows])
        again.edit("dataset", private=str(file))
        code, output = again.stage(stages.preprocess)
        assert code == 0, output
        return again, output

    return run


@pytest.fixture
def table(ran: Place) -> Table:
    """The user's rows: id, body, team."""
    with ran.private.open(newline="") as stream:
        return list(csv.reader(stream))[1:]


def parts() -> dict[str, list[tuple[str, str | None]]]:
    """Part -> its records, in their order."""
    return {part: [(row.text, row.label) for row in read_split(f"data/private/{part}.parquet")] for part in PARTS}


@pytest.mark.parametrize("part", PARTS)
def test_a_row_less_moves_no_other_row(preprocessed: Preprocess, table: Table, part: str):
    whole = parts()
    public = Path("data/public/train.parquet").read_bytes()
    gone = next(row for row in table if whole[part].count((row[1], row[2])) == 1)
    preprocessed([row for row in table if row is not gone])
    expected = {**whole, part: [record for record in whole[part] if record != (gone[1], gone[2])]}
    assert parts() == expected
    assert len(expected[part]) == len(whole[part]) - 1
    assert Path("data/public/train.parquet").read_bytes() == public


LONG = f"{MARKER} " * 1_200_000  # 10 MB
ODD: dict[str, tuple[Callable[[Table], Table], str]] = {
    "a very long row": (lambda rows: [["0", LONG, "returns"], *rows], "1 texts were cut at 1000 characters."),
    "an empty text": (lambda rows: [["0", "", "returns"], *rows], "1 texts are empty."),
    "one label": (lambda rows: [[*row[:LABEL], "returns"] for row in rows], "All rows have the same label."),
    "few rows": (lambda rows: rows[:10], "are fewer than one batch of 32."),
}


OF_THE_FIRST_RUN = 8  # charges: two for each fitted model, four for the variant that is written


@pytest.mark.parametrize("name", ODD)
def test_odd_rows_run_with_a_warning_for_their_owner(preprocessed: Preprocess, table: Table, name: str):
    change, warning = ODD[name]
    place, output = preprocessed(change(table))
    report = read_json("data/private/report.json")
    assert report["zone"] == "private"
    assert any(line.endswith(warning) for line in report["warnings"])
    assert "what the data's owner should know is in data/private/report.json" in output
    assert MARKER not in output
    assert warning not in output
    assert len(place.charges) == OF_THE_FIRST_RUN


@pytest.mark.parametrize("name", ["one label", "few rows"])
def test_odd_rows_train(preprocessed: Preprocess, table: Table, name: str):
    place, _ = preprocessed(ODD[name][0](table))
    code, output = place.stage(stages.dp_train, VARIANT)
    assert code == 0, output
    receipt = read_json(f"reports/receipts/models/{VARIANT}.json")
    assert receipt["run"] == 1
    assert [charge.state for charge in place.charges] == ["committed"] * (OF_THE_FIRST_RUN + 2)
