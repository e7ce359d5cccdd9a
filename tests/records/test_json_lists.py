"""A JSON list is read like lines of JSON, piece by piece."""

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from palimpsest.errors import DataError
from palimpsest.records import formats
from palimpsest.records.faults import RecordError
from palimpsest.records.formats import Wanted, cells, names
from palimpsest.records.read import ColumnNames, check, read_rows


def read(folder: Path, text: str, *columns: str | None, name: str = "list.json") -> list[Any]:
    """The rows of a list, each of its wanted cells."""
    path = folder / name
    content = text.encode("utf-8", "surrogateescape")
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return [tuple(row) for _, row in cells(path, [Wanted(column) for column in columns or ("a",)])]


@pytest.fixture(params=[1 << 20, 1, 7])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of some sizes: a value may begin in one and end in another."""
    monkeypatch.setattr(formats, "_PIECE", request.param)


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[]", []), (" [ ] ", []), ('[{"a": 1}]', [1]), ('\n[\n{"a": "x]"} ,\r\n{"a": [2, {}]}\t]\n', ["x]", [2, {}]]),
        ('\ufeff[{"a": "\u00e9 \\u00e9"}]', ["é é"]), ('[{"a": "\udcff"}]', ["\udcff"]), ('[{"a": null}]', [None]),
    ],
)  # fmt: skip
def test_a_list_is_read_in_pieces_of_any_size(text: str, found: list[object], tmp_path: Path) -> None:
    assert read(tmp_path, text) == [(each,) for each in found]
    assert read(tmp_path, text, name="list.json.gz") == [(each,) for each in found]


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("text", ["", "{}", '{"a": 1}\n{"a": 1}', "[,]", '["a', '[{"a": 1, "a": 1}]', "12", "\ufeff"])
def test_what_does_not_begin_as_a_list_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not begin as a JSON list"):
        read(tmp_path, text)


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize(
    "end",
    [
        ', {"a": 1}',
        ",",
        ",]",
        "]]",
        "] x",
        ' {"a": 1}]',
        ', {"a": 1, "a": 2}]',
        ', {"a": {"b": 1, "b": 2}}]',
        ", {'a': 1}]",
        ", 1",
    ],
)
def test_a_list_that_does_not_go_on_or_end_well_stops_there(end: str, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="row 2") as told:
        read(tmp_path, '[{"a": "a secret"}' + end)
    assert "secret" not in str(told.value)


@pytest.mark.usefixtures("pieces")
def test_rows_of_another_form_are_told_apart_from_a_broken_list(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text('[{"a": "x"}, 12, "y", {"b": 1}, {"a": 1.5}, {"a": "z"}, {"a": ')
    found = check(path, ColumnNames("a"), 10, None)
    assert [fault.row for fault in found.faults] == [2, 3, 4, 5, 7]
    assert found.rows == 2


def test_a_row_may_be_a_record_and_a_key_may_lack_where_it_is_optional(tmp_path: Path) -> None:
    assert read(tmp_path, '[{"a": 1, "b": 2}]', None) == [({"a": 1, "b": 2},)]
    assert names(tmp_path / "list.json") == ["a", "b"]
    rows = [{"a": "x", "who": "me"}, {"a": "y"}]
    (tmp_path / "list.json").write_text(json.dumps(rows))
    read_ = read_rows(tmp_path / "list.json", ColumnNames("a", unit="who", nobody=True), 10)
    assert [(row.text, row.unit) for row in read_] == [("x", "me"), ("y", None)]


def test_of_a_long_list_a_piece_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "_PIECE", 1 << 12)
    path = tmp_path / "list.json"
    path.write_text(json.dumps([{"a": "some words " * 10}] * 30_000))
    tracemalloc.start()
    count = sum(1 for _ in cells(path, [Wanted("a")]))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 30_000
    assert peak < 1 << 20 < path.stat().st_size


def test_a_value_without_end_is_not_read_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "_LINE_LIMIT", 1 << 16)
    with pytest.raises(RecordError, match="row 2"):
        read(tmp_path, '[{"a": 1}, {"a": "' + "x" * (1 << 19))
