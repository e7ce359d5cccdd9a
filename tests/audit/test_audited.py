"""What the audits read of the private splits."""

from pathlib import Path

import pytest

from palimpsest.records.private import SplitRow
from palimpsest.records.write import write_split
from palimpsest.workspace import PRIVATE
from stages.audited import load_guessed, read_one_each, records_of

PERSONS = ["3a" * 32, "c5" * 32]


@pytest.fixture(autouse=True)
def splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write([[SplitRow(f"{part} {place}", "x", True, PERSONS[part]) for place in range(3)] for part in range(2)])


def write(sides: list[list[SplitRow]]) -> None:
    for part, rows in zip(("train", "holdout"), sides, strict=True):
        write_split(PRIVATE / f"{part}.parquet", rows)
    write_split(PRIVATE / "test.parquet", [row for rows in sides for row in rows])


def test_a_split_is_read_with_one_row_a_person():
    assert [row.person for row in read_one_each("test")] == PERSONS
    assert len(records_of("test")) == 2
    assert len(read_one_each("train")) == 1


def test_which_row_it_is_does_not_hang_on_their_order():
    before = read_one_each("test")
    write([[SplitRow(f"{part} {place}", "x", True, PERSONS[part]) for place in (2, 0, 1)] for part in range(2)])
    assert read_one_each("test") == before


def test_a_record_that_is_the_unit_is_read_with_all_others():
    rows = [SplitRow(f"text {place}", "x", place != 2) for place in range(4)]
    write([rows, rows])
    assert read_one_each("train") == rows
    guess = load_guessed()
    assert guess.texts == (["text 0", "text 1", "text 3"],) * 2 == guess.documents
    assert (guess.units.kind, len(guess.units), guess.units.members) == ("record", 6, 3)


def test_all_rows_of_a_person_are_guessed_about_together():
    guess = load_guessed()
    assert guess.documents == (["0 0\n0 1\n0 2"], ["1 0\n1 1\n1 2"])
    assert (guess.units.kind, guess.units.owner.tolist()) == ("person", [0, 0, 0, 1, 1, 1])
