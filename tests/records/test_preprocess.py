import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.records.duplicates import marks
from palimpsest.records.preprocess import Preprocessed, preprocess
from palimpsest.records.private import RawRow, SplitRow
from palimpsest.records.read import ColumnNames, read_rows
from palimpsest.records.schema import PublicSchema

KEY = bytes(range(32))
LABELS = {"a": "first", "b": "second"}
SCHEMA: dict[str, Any] = {
    "asset": "x",
    "task": "classify",
    "text": "text",
    "label": "label",
    "labels": LABELS,
    "n_public": 100,
    "max_length": 50,
}
PUBLIC = (
    "task",
    "label",
    "labels",
    "n_public",
    "unit_column",
    "max_rows_per_unit",
    "n_persons",
    "json_schema",
    "fields",
)
SECRET = "ZANZIBAR-7731"


def unique(texts: list[str], persons: list[str] | None, _asked: np.ndarray) -> np.ndarray:
    counts = Counter(texts)
    return np.array([counts[text] == 1 for text in texts], dtype=bool)


def run(rows: list[RawRow], test_rows: list[RawRow] | None = None, **changes: Any) -> Preprocessed:
    settings = {"key": KEY, "audit_size": 40, "test_rate": 0.2, "batch_size": 10, "guessable": unique}
    public = {name: changes.pop(name) for name in PUBLIC if name in changes}
    return preprocess(rows, test_rows, schema=PublicSchema(**SCHEMA | public), **settings | changes)


def tickets(count: int) -> list[RawRow]:
    return [RawRow(f"{SECRET} {i}", "ab"[i % 2], f"person {i % 9}") for i in range(count)]


def parts(result: Preprocessed) -> Counter[tuple[str, SplitRow]]:
    split = result.split
    return Counter((name, row) for name in ("train", "holdout", "test") for row in getattr(split, name))


def test_an_ordinary_data_set_has_no_warnings() -> None:
    result = run(tickets(100))
    report = result.report
    assert report["zone"] == "private"
    assert report["warnings"] == []
    assert report["labels"] == {"a": {"count": 50, "share": 0.5}, "b": {"count": 50, "share": 0.5}}
    rows = report["rows"]
    assert rows["read"] == 100 == rows["train"] + rows["holdout"] + rows["test"]
    assert rows["audit"] == rows["members"] + rows["nonmembers"]
    assert rows["nonmembers"] == rows["holdout"]
    assert min(rows["train"], rows["holdout"], rows["test"], rows["members"]) > 0


def test_a_test_file_is_the_test_part_whole_and_the_input_gives_none() -> None:
    given_rows = [RawRow("x", "a"), RawRow("y", "b")]
    result = run(tickets(100), given_rows)
    assert result.split.test == [SplitRow("x", "a"), SplitRow("y", "b")]
    assert len(result.split.train) + len(result.split.holdout) == 100


@pytest.mark.parametrize(
    ("rows", "changes", "warning"),
    [
        ([*tickets(99), RawRow("x" * 50, "a", cut=True)], {}, "1 texts were cut at 50 characters"),
        ([*tickets(98), RawRow("", "a"), RawRow(" ", "a")], {}, "2 texts are empty"),
        (tickets(99)[::2] * 2, {}, "All rows have the same label"),
        (tickets(100), {"batch_size": 500}, "fewer than one batch of 500"),
        (tickets(100), {"n_public": 1000}, "100 rows were read; n_public says 1000"),
        (tickets(100), {"n_public": 50}, "100 rows were read; n_public says 50"),
        (
            tickets(100),
            {"unit_column": "who", "max_rows_per_unit": 10, "n_persons": 40},
            "rows were left out: more than 10",
        ),
        (tickets(100), {"unit_column": "who", "n_persons": 40}, "Rows of 9 persons were read; unit.persons says 40"),
        ([*tickets(99), RawRow("x", "a")], {"unit_column": "who", "n_persons": 40}, "1 rows were left out: they name"),
        (
            tickets(100),
            {"unit_column": "who", "max_rows_per_unit": 99, "n_persons": 40},
            "training persons are fewer than one batch of 10",
        ),
        ([], {}, "0 rows were read"),
        ([], {}, "2 of the 2 labels have no row"),
        ([RawRow("", "a")], {}, "All rows have the same label"),
        ([*tickets(100)[::2], RawRow("x", "b")], {}, "1 of the 2 labels have fewer than 10 rows"),
    ],
)
def test_what_looks_odd_runs_with_a_warning(rows: list[RawRow], changes: dict[str, Any], warning: str) -> None:
    report = run(rows, **changes).report
    assert any(warning in line for line in report["warnings"])


def test_a_free_label_is_one_partition_and_may_be_missing() -> None:
    rows = [
        RawRow(f"query {i}", label) for i, label in enumerate([f"{SECRET} {i}" for i in range(97)] + ["", " ", None])
    ]
    result = run(rows, task="span", labels={})
    assert (result.report["labels"], result.report["one_label"]) == ({}, False)
    assert result.report["rows"]["unlabelled"] == 3
    assert result.report["warnings"] == ["3 rows have no label."]
    assert SECRET not in json.dumps(result.report)
    split = result.split
    kept = [(row.text, row.label) for row in (*split.train, *split.holdout, *split.test)]
    assert sorted(kept, key=str) == sorted(((row.text, row.label) for row in rows), key=str)


def test_texts_that_are_public_as_well_are_counted_for_the_owner_alone() -> None:
    rows = [*tickets(96), *(RawRow(text, "a") for text in ("Thank  you!", "thank you", "Lost", ""))]
    split, report = (made := run(rows, public=marks(["THANK YOU.", "lost", "found", ""]))).split, made.report
    assert report["rows"]["public"] == 3
    assert next(line for line in report["warnings"] if "public" in line).startswith("3 rows have a text that")
    assert next(line for line in report["told"] if "public" in line).startswith("Some rows have a text that")
    assert sum(parts(made).values()) == 100 == len(split.train) + len(split.holdout) + len(split.test)
    assert parts(made) == parts(run(rows)), "what is public moves no record"


def test_the_label_is_part_of_what_places_a_record() -> None:
    rows = [RawRow("the same query", f"label {i}") for i in range(200)]
    split = run(rows, task="span", labels={}).split
    assert min(len(split.train), len(split.holdout), len(split.test)) > 0


def test_records_that_do_not_conform_are_counted_and_kept() -> None:
    schema = {"type": "object", "properties": {"year": {"type": "integer"}}, "required": ["year"]}
    texts = [f'{{"year": {i}}}' for i in range(96)] + ['{"year": "1"}', "{}", '{"year": 1', ""]
    result = run([RawRow(text) for text in texts], task="json", label=None, labels={}, json_schema=schema)
    assert result.report["rows"]["invalid"] == 4
    assert "4 records do not conform to the JSON schema." in result.report["warnings"]
    assert result.report["rows"]["unlabelled"] == 0
    assert sum(parts(result).values()) == 100


def test_values_without_a_public_cell_are_counted_for_each_field_and_told_without_counts() -> None:
    fields = {"priority": ["low", "high"], "age": "number(0..10, 5)", "sent": "date(2024..2025, year)"}
    rows = [RawRow(f"t {i}", "ab"[i % 2], fields=f"{i % 3},{2 * (i < 7)},0") for i in range(100)]
    report = run(rows, fields=fields).report
    assert report["fields"] == {
        "priority": {"without": 33, "share": 0.33}, "age": {"without": 7, "share": 0.07},
        "sent": {"without": 0, "share": 0.0},
    }  # fmt: skip
    what = "values of field {} are missing, or in none of its public cells."
    assert report["warnings"] == [f"33 {what.format('priority')}", f"7 {what.format('age')}"]
    assert report["told"] == [f"Some {what.format('priority')}", f"Some {what.format('age')}"]
    assert run(tickets(100)).report["fields"] == {}


def test_the_report_is_json_and_shows_no_text() -> None:
    rows = [*tickets(30), RawRow(SECRET, "a", cut=True), RawRow("", "b")]
    printed = json.dumps(run(rows, unit_column="who", n_persons=40).report, allow_nan=False)
    assert SECRET not in printed
    assert not re.search(r"person \d", printed)


@given(st.lists(st.builds(RawRow, st.text("ab", max_size=3), st.sampled_from("ab")), min_size=1), st.data())
def test_removing_one_record_moves_no_training_row(rows: list[RawRow], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(rows) - 1))
    whole, without = (
        Counter((name, row.text, row.label) for name, row in parts(run(each)).elements())
        for each in (rows, rows[:index] + rows[index + 1 :])
    )
    assert without <= whole
    assert (whole - without).total() == 1


def test_how_many_rows_there_are_moves_none() -> None:
    """Also with more rows than the audit subset is to have."""
    rows = tickets(120)
    half, whole = (parts(run(some)) for some in (rows[::2], rows))
    assert half <= whole
    assert {name for name, _ in half} == {"train", "holdout", "test"}


def test_from_a_file_with_everything_odd_at_once(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("text,label\n" + "x" * 10_000_000 + ",a\n" + '"",a\n' + "dup,a\nDUP,a\n")
    rows = read_rows(path, ColumnNames("text", "label"), 50, tuple(LABELS))
    report = run(rows).report
    assert (report["rows"]["cut"], report["rows"]["empty"], report["one_label"]) == (1, 1, True)
    assert len(report["warnings"]) == 5
