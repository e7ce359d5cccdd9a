"""Labels of several values: a list is one label inside, and a list again in files."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from palimpsest.cli.main import app
from palimpsest.params.load import LEDGER_VARIABLE, read
from palimpsest.records.faults import POLICIES
from palimpsest.records.read import ColumnNames, read_rows
from palimpsest.records.record import Record
from palimpsest.records.schema import join_cells, join_values, parts, problem
from palimpsest.records.write import differences, read_synthetic, write_synthetic

TAGS = "list(tags)"
LABELS = ("late", "angry + late", "angry")


@given(st.lists(st.sampled_from(["late", "angry", "two words", "a+b"]), min_size=1))
def test_a_list_comes_back_sorted_and_each_value_once(values: list[str]) -> None:
    label = join_values(values)
    assert parts(label, TAGS) == (sorted(set(values)),)
    assert join_cells(parts(label, TAGS)) == label


def test_lists_are_read_from_json_and_csv(tmp_path: Path) -> None:
    rows = [{"text": "x", "tags": ["late", "angry", "late"]}, {"text": "y", "tags": "late"}]
    lines, table = tmp_path / "rows.jsonl", tmp_path / "rows.csv"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    table.write_text('text,tags\nx,"[""late"", ""angry""]"\ny,late\n', encoding="utf-8")
    for path in (lines, table):
        assert [row.label for row in read_rows(path, ColumnNames("text", TAGS), 9, LABELS)] == ["angry + late", "late"]


@pytest.mark.parametrize("tags", [["ZANZIBAR"], [], [["late"]], "[late", {"late": 1}])
def test_any_other_combination_is_left_out_or_an_error_that_quotes_nothing(tags: object, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [{"text": "x", "tags": ["late"]}, {"text": "y", "tags": tags}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert [row.text for row in read_rows(path, ColumnNames("text", TAGS), 9, LABELS, bad=POLICIES["drop"])] == ["x"]
    with pytest.raises(Exception, match=r"row 2|line 2") as caught:
        read_rows(path, ColumnNames("text", TAGS), 9, LABELS)
    assert "ZANZIBAR" not in str(caught.value)


def test_rows_that_come_out_have_lists(tmp_path: Path) -> None:
    records = [Record("x", "angry + late"), Record("y", "late")]
    lines, _ = write_synthetic(records, tmp_path / "out", "text", TAGS)
    assert [json.loads(line)["tags"] for line in lines.read_text().splitlines()] == [["angry", "late"], ["late"]]
    assert differences(tmp_path / "out", ["text", "tags"], whole=False)[1] == []
    assert read_synthetic(tmp_path / "out", "text", TAGS) == records


def test_a_public_list_is_written_as_lists_are_read() -> None:
    assert problem(LABELS, TAGS) is None
    assert problem(["late + angry"], TAGS) == "label 'late + angry' is no list as it is read: write 'angry + late'"


def test_a_file_of_lists_is_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(LEDGER_VARIABLE, str(tmp_path / "ledger" / "ledger.db"))
    rows = [{"text": f"It broke, {n}.", "tags": [["late"], ["late", "angry"]][n % 2]} for n in range(40)]
    for name in ("data", "public"):
        Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        rows = [row | {"text": f"Quite another {n}."} for n, row in enumerate(rows)]
    command = ["init", "data.jsonl", "--text", "text", "--label", TAGS, "--labels", "late,angry + late"]
    rest = ["--public", "public.jsonl", "--rows-about", "40", "--asset", "x", "--workspace", "work"]
    done = CliRunner().invoke(app, [*command, *rest])
    assert done.exit_code == 0, done.output
    assert list(read(tmp_path / "work").dataset.labels) == ["late", "angry + late"]
    assert not (tmp_path / "work/data/private/check.json").exists()  # there is no fault
