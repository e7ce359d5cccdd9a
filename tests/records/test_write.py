import json
from itertools import compress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.errors import DataError
from palimpsest.records import write
from palimpsest.records.private import SplitRow
from palimpsest.records.read import ColumnNames, read_rows
from palimpsest.records.record import Record
from palimpsest.records.write import (
    Counts,
    counts_of,
    differences,
    draw_mask,
    read_drawn,
    read_guessed,
    read_public,
    read_split,
    read_synthetic,
    shuffle_rows,
    split_texts,
    write_public,
    write_split,
    write_synthetic,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
WITHOUT_NUL = TEXT.filter(lambda text: "\0" not in text)
LABEL = TEXT | st.none()


@given(rows=st.lists(st.builds(SplitRow, TEXT, LABEL, st.booleans())))
def test_a_split_survives(rows: list[SplitRow], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("split") / "train.parquet"
    write_split(path, rows)
    assert read_split(path) == rows
    assert pq.read_schema(path).names == ["text", "label", "guess", "person"]


@given(rows=st.lists(st.builds(SplitRow, TEXT, LABEL, st.booleans()), max_size=20), most=st.integers(0, 25))
def test_some_rows_of_a_split_are_read_without_the_others(
    rows: list[SplitRow], most: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("split") / "train.parquet"
    write_split(path, rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write, "_AT_ONCE", 3)
        assert list(split_texts(path)) == [row.text for row in rows]
        assert read_guessed(path) == [row for row in rows if row.guess]
        assert read_drawn(path, most, 7) == [*compress(rows, draw_mask(len(rows), most, 7))]


@given(rows=st.integers(0, 40), most=st.integers(0, 50), seed=st.integers(0, 5))
def test_as_many_rows_are_drawn_as_there_may_be(rows: int, most: int, seed: int) -> None:
    assert draw_mask(rows, most, seed).sum() == min(rows, most)
    assert len({tuple(np.flatnonzero(draw_mask(40, 20, other))) for other in (seed, seed, seed + 1)}) == 2


@given(rows=st.lists(st.builds(Record, TEXT, LABEL)))
def test_public_rows_survive(rows: list[Record], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("public") / "train.parquet"
    write_public(path, rows)
    assert read_public(path) == rows
    assert ("label" in pq.read_schema(path).names) == any(row.label is not None for row in rows)


@given(records=st.lists(st.builds(Record, WITHOUT_NUL, st.sampled_from("ab")), min_size=1))
def test_synthetic_rows_read_back_like_the_input(
    records: list[Record], tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = tmp_path_factory.mktemp("synthetic") / "dp0.5"
    paths = write_synthetic(iter(records), base, "review", "stars")
    assert [path.name for path in paths] == ["dp0.5.jsonl", "dp0.5.parquet"]
    for path in paths:
        rows = read_rows(path, ColumnNames("review", "stars"), 10_000, ("a", "b"))
        assert [Record(row.text, row.label) for row in rows] == records
    assert sorted(path.name for path in base.parent.iterdir()) == sorted(path.name for path in paths)


def test_without_a_label_column_there_is_only_text(tmp_path: Path) -> None:
    lines, table = write_synthetic([Record("ünï\u2028x", "a"), Record("")], tmp_path / "dp3", "body", None)
    assert [json.loads(line) for line in lines.read_text("utf-8").split("\n")[:-1]] == [
        {"body": "ünï\u2028x"},
        {"body": ""},
    ]
    assert pq.read_table(table).to_pydict() == {"body": ["ünï\u2028x", ""]}


def test_a_free_label_is_written_beside_its_text(tmp_path: Path) -> None:
    rows = [Record("a film", "drama"), Record("another", None), Record("", "")]
    lines, _ = write_synthetic(rows, tmp_path / "dp3", "query", "genre")
    assert [json.loads(line) for line in lines.read_text().splitlines()] == [
        {"query": "a film", "genre": "drama"}, {"query": "another", "genre": None}, {"query": "", "genre": ""},
    ]  # fmt: skip
    assert read_synthetic(tmp_path / "dp3", "query", "genre") == rows
    assert [row.label for row in read_rows(lines, ColumnNames("query", "genre"), 100)] == ["drama", None, ""]


def test_records_are_lines_and_the_table_holds_every_text(tmp_path: Path) -> None:
    whole = ['{"b": 1.50, "a": "ü\\u2028"}', '{"other":\n[null]}', "{}"]
    broken = ["", "words", '{"a": "cut', "[1]", '{"a": 1, "a": 2}', '{"a": NaN}', '{"a": "\\ud800"}']
    texts = [*whole[:1], *broken, *whole[1:]]
    lines, table = write_synthetic(map(Record, texts), tmp_path / "dp3", "*", None)
    found = lines.read_text("utf-8").split("\n")
    assert found == ['{"b": 1.5, "a": "ü\u2028"}', '{"other": [null]}', "{}", ""]
    assert pq.read_table(table).to_pydict() == {"text": texts}
    assert [row.text for row in read_synthetic(tmp_path / "dp3", "*", None)] == texts
    assert read_rows(lines, ColumnNames("*", keys=("a", "b")), 100)[0].text == '{"a": "ü\u2028", "b": 1.5}'


def test_records_of_a_column_stay_text(tmp_path: Path) -> None:
    texts = ['{"a": 1}', "words"]
    lines, _ = write_synthetic(map(Record, texts), tmp_path / "dp3", "body", None)
    assert [json.loads(line) for line in lines.read_text().splitlines()] == [{"body": text} for text in texts]


def test_no_rows_still_make_two_files_with_columns(tmp_path: Path) -> None:
    lines, table = write_synthetic([], tmp_path / "dp3", "body", "label")
    assert lines.read_text() == ""
    assert pq.read_schema(table).types == [pa.string(), pa.string()]


def test_a_failure_leaves_the_old_files_and_nothing_else(tmp_path: Path) -> None:
    old = {path: path.read_bytes() for path in write_synthetic([Record("old")], tmp_path / "dp3", "body", None)}

    def broken():
        yield Record("new")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_synthetic(broken(), tmp_path / "dp3", "body", None)
    with pytest.raises(UnicodeEncodeError):
        write_synthetic([Record("\ud800")], tmp_path / "dp3", "body", None)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == old


def test_a_public_file_from_another_writer(tmp_path: Path) -> None:
    label, text = (pa.array([value], pa.large_string()) for value in ("a", "t"))
    pq.write_table(pa.table({"id": [1], "label": label, "text": text}), tmp_path / "train.parquet")
    assert read_public(tmp_path / "train.parquet") == [Record("t", "a")]


def test_a_folder_name_is_not_a_column(tmp_path: Path) -> None:
    write_split(tmp_path / "label=private" / "train.parquet", [SplitRow("t", None)])
    assert read_split(tmp_path / "label=private" / "train.parquet") == [SplitRow("t", None)]


@pytest.mark.parametrize("read", [read_split, read_public])
@pytest.mark.parametrize("kind", ["missing", "empty", "garbage", "folder", "other columns"])
def test_what_is_not_a_split_is_refused(tmp_path: Path, read, kind: str) -> None:
    path = tmp_path / "train.parquet"
    makers = {
        "missing": lambda: None,
        "empty": lambda: path.write_bytes(b""),
        "garbage": lambda: path.write_bytes(b"secret" * 100),
        "folder": lambda: path.mkdir(),
        "other columns": lambda: pq.write_table(pa.table({"secret": ["secret"]}), path),
    }
    makers[kind]()
    with pytest.raises(DataError, match=r"train\.parquet") as caught:
        read(path)
    assert "secret" not in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


def test_rows_do_not_show_their_text() -> None:
    assert "secret" not in repr(SplitRow("secret", "secret"))


OBJECTS = ('{"year": 1, "title": "A"}', '{"title": "A", "ye', "words", '{"title": "\u2028"}', "3", '{"year": true}')


@pytest.mark.parametrize(
    ("text", "label", "columns"), [("*", None, ["text"]), ("text", None, ["text"]), ("body", "team", ["body", "team"])]
)
def test_both_files_of_rows_are_compared(tmp_path: Path, text: str, label: str | None, columns: list[str]) -> None:
    """With the text column `*`, a text that is no JSON object has no line."""
    records = [Record(one, "a" if number else None) for number, one in enumerate(OBJECTS)]
    lines, _ = write_synthetic(records, tmp_path / "dp3", text, label)
    assert differences(tmp_path / "dp3", columns, text == "*") == (counts_of(records, text), [])
    assert counts_of(records, text) == Counts(6, 3 if text == "*" else 6)
    written = lines.read_text(encoding="utf-8").split("\n")[:-1]
    assert len(written) == (3 if text == "*" else 6)
    wrongs = [written[1:], written[:-1], [*written, written[0]], [*reversed(written)]]
    wrongs += [[*written[:-1], written[-1].replace("true", "1").replace("A", "B")]] if text == "*" else []
    for wrong in wrongs:
        lines.write_text("".join(f"{line}\n" for line in wrong), encoding="utf-8")
        counts, (problem,) = differences(tmp_path / "dp3", columns, text == "*")
        assert counts.rows == 6
        assert problem.endswith("of dp3.jsonl is not the row that dp3.parquet has there")
    assert differences(tmp_path / "dp3", [*columns, "more"], text == "*")[1]


def test_lines_of_records_do_not_pass_for_those_of_plain_text(tmp_path: Path) -> None:
    """Else words could be left out of the lines of any release."""
    write_synthetic(map(Record, OBJECTS), tmp_path / "dp3", "*", None)
    assert differences(tmp_path / "dp3", ["text"], whole=False)[1]


def test_rows_are_shuffled_alike_each_time_and_none_is_lost() -> None:
    rows = [Record(f"text {number}", "ab"[number // 50]) for number in range(100)]
    shuffled = shuffle_rows(iter(rows))
    assert shuffled == shuffle_rows(rows)
    assert sorted(row.text for row in shuffled) == sorted(row.text for row in rows)
    assert {row.label for row in shuffled[:10]} == {"a", "b"}
