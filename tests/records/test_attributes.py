"""Records with several labels: one list that rows do not change, one column a label in files, one label inside."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from palimpsest.errors import DataError
from palimpsest.params.file import FILE
from palimpsest.params.load import load, loads
from palimpsest.params.schema import Dataset
from palimpsest.records import schema
from palimpsest.records.faults import POLICIES
from palimpsest.records.read import ColumnNames, read_rows
from palimpsest.records.record import Record
from palimpsest.records.write import Counts, differences, read_synthetic, write_synthetic
from stages import downstream_eval
from stages.downstream_eval import Judges, Part
from tests.settings_file import edit_settings

BOTH = "kind; stars"
LABELS = ("bar; 1", "bar; 2", "inn; 1", "inn; 2")
LISTS = {"kind": {"bar": "a bar", "inn": "an inn"}, "stars": {"1": "bad", "2": "good"}}
COLUMNS = ColumnNames("text", BOTH)
ROWS = [("dry beer", "bar", "2"), ("damp bed", "inn", "1")]

word = st.text(st.characters(exclude_characters=";", exclude_categories=("Cs",)), min_size=1, max_size=5)


@given(st.lists(word, min_size=1, max_size=4))
def test_what_is_joined_comes_apart(found: list[str]) -> None:
    column = schema.join_parts([f"c{number}" for number in range(len(found))])
    assert schema.parts(schema.join_cells(found), column) == tuple(found)


@given(st.lists(st.lists(word, min_size=1, max_size=3, unique=True), min_size=2, max_size=3))
def test_the_list_is_every_combination_and_leads_back_to_each_list(lists: list[list[str]]) -> None:
    column = schema.join_parts([f"c{number}" for number in range(len(lists))])
    listed = schema.combine_labels([dict.fromkeys(each, "") for each in lists])
    assert len(listed) == len(set(listed)) == len(lists[0]) * len(lists[1]) * len((lists[2:] or [[""]])[0])
    assert list(schema.values(tuple(listed), column).values()) == [tuple(each) for each in lists]
    assert schema.problem(tuple(listed), column) is None


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_cells_become_one_label(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"own.{suffix}"
    names = ("stars", "text", "kind")
    cells = [(stars, text, kind) for text, kind, stars in ROWS]
    lines = [",".join(names), *map(",".join, cells)]
    objects = [json.dumps(dict(zip(names, row, strict=True))) for row in cells]
    path.write_text("\n".join(lines if suffix == "csv" else objects) + "\n")
    assert [(row.text, row.label) for row in read_rows(path, COLUMNS, 100, LABELS)] == [
        ("dry beer", "bar; 2"), ("damp bed", "inn; 1"),
    ]  # fmt: skip


@pytest.mark.parametrize("row", ["x,bar,", "x,bar,3", "x,bar; 1,", "x,2,bar", 'x,"bar; 1","1"'])
def test_a_row_that_lacks_a_listed_label_is_refused_without_its_value(tmp_path: Path, row: str) -> None:
    path = tmp_path / "own.csv"
    path.write_text(f"text,kind,stars\ngood,bar,1\n{row}\n")
    with pytest.raises(DataError, match="not one of the 4 public labels") as caught:
        read_rows(path, COLUMNS, 100, LABELS)
    assert "bar" not in str(caught.value)
    assert len(read_rows(path, COLUMNS, 100, LABELS, bad=POLICIES["drop"])) == 1


def test_synthetic_files_have_a_column_for_each(tmp_path: Path) -> None:
    rows = [Record("dry beer", "bar; 2"), Record("damp bed", "inn; 1"), Record("no label", None)]
    lines, _ = write_synthetic(rows, tmp_path / "dp3", "text", BOTH)
    assert json.loads(lines.read_text().splitlines()[0]) == {"text": "dry beer", "kind": "bar", "stars": "2"}
    assert read_synthetic(tmp_path / "dp3", "text", BOTH) == rows
    assert differences(tmp_path / "dp3", ["text", "kind", "stars"], False) == (Counts(3, 3), [])


def dataset(**changes: object) -> Dataset:
    body = load().dataset.model_dump() | {"label": ["kind", "stars"], "labels": LISTS} | changes
    return Dataset.model_validate(body)


def test_lists_and_joined_labels_are_the_same_settings() -> None:
    told = dataset()
    assert (told.label, tuple(told.labels)) == (BOTH, LABELS)
    assert told.labels["inn; 1"] == "an inn; bad"
    assert dataset(label=BOTH, labels=dict(told.labels)) == told
    assert dataset(labels=dict(reversed(LISTS.items()))) == told  # the columns' order counts
    some = {label: label for label in LABELS[:3]}
    assert tuple(dataset(labels=some).labels) == LABELS[:3]  # those that are given, where not all make sense


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"labels": {"bar": "", "inn": ""}}, "has 1 part, and there are 2 label columns"),
        ({"labels": {**LISTS, "kind": {"bar; inn": "", "inn": ""}}}, "which none may hold"),
        ({"label": ["kind", "kind"], "labels": {"a; b": "", "b; a": ""}}, "each column is named once"),
        ({"label": ["kind", "text"], "text": "text", "labels": {"a; b": "", "b; a": ""}}, "name the same column"),
        ({"task": "span", "labels": {}}, "only with public lists"),
    ],
)
def test_what_cannot_be_told_apart_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        dataset(**changes)


def test_each_label_is_scored_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words tell the kind, and nothing tells the stars."""
    (tmp_path / FILE).write_text(Path(FILE).read_text())
    edit_settings(tmp_path, "dataset", label=["kind", "stars"], labels=LISTS)
    edit_settings(tmp_path, "utility", evaluators=["tfidf_lr"])
    params = loads((tmp_path / FILE).read_text())
    assert tuple(params.dataset.labels) == LABELS
    said = {"bar": "beer and ale", "inn": "bed and room"}
    rows = [Record(f"{said[kind]} {n % 7}", f"{kind}; {1 + n % 2}") for n in range(60) for kind in said]
    train, test = Part(rows[:80], asset=False), Part(rows[80:], asset=True)
    monkeypatch.setattr(downstream_eval, "resolve_vouched", None)
    found = {name: one.scored for name, one in Judges(params).score(train, test).evaluations.items()}
    assert list(found) == ["tfidf_lr", "tfidf_lr: kind", "tfidf_lr: stars"]
    assert found["tfidf_lr: kind"].accuracy.value == found["tfidf_lr: kind"].macro_f1 == 1.0
    assert found["tfidf_lr: stars"].accuracy.value < 0.8
    assert [set(one.per_class) for one in found.values()] == [set(LABELS), {"bar", "inn"}, {"1", "2"}]
