"""Several texts, and conversations: one text by a public form inside, columns of their own in files."""

import json
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from palimpsest.errors import DataError
from palimpsest.params.load import load
from palimpsest.params.schema import Dataset
from palimpsest.records import texts
from palimpsest.records.faults import POLICIES
from palimpsest.records.read import ColumnNames, read_rows
from palimpsest.records.record import Record
from palimpsest.records.write import Counts, differences, read_synthetic, write_synthetic

BOTH, TURNS = "title; body", "turns(messages)"
TALK = [{"role": "user", "content": "Where is it?"}, {"role": "assistant", "content": "a || b"}]

part = st.lists(st.sampled_from(["||", "|||", "|", "a", "é", " ", "\n", "\u3000", "\x1c", "user"]), max_size=8).map(
    "".join
)


@given(st.lists(part, min_size=2, max_size=4), st.sampled_from([str, lambda text: " ".join(text.split())]))
def test_what_is_joined_comes_apart(parts: list[str], tidy: object) -> None:
    wanted = [tidy(one.strip()) for one in parts]  # type: ignore[operator]
    joined = tidy(texts.join(parts))  # type: ignore[operator]
    assert texts.split(joined) == (wanted if any(wanted) else [""])


@given(st.lists(st.tuples(st.sampled_from(texts.ROLES), part), min_size=1, max_size=4))
def test_turns_come_apart(turns: list[tuple[str, str]]) -> None:
    told = [{"role": role, "content": content} for role, content in turns]
    wanted = [one | {"content": one["content"].strip()} for one in told]
    assert texts.split_turns(texts.join_turns(told)) == texts.split_turns(texts.join_turns(json.dumps(told))) == wanted


@pytest.mark.parametrize("columns", [BOTH, TURNS])
@given(text=part)
def test_whatever_was_drawn_is_written_and_read_again(columns: str, text: str) -> None:
    again = texts.text_of(texts.cells_of(text, columns), columns)
    assert again.split() == text.split() or texts.comes_apart(text, columns)
    assert texts.comes_apart(again, columns) == texts.comes_apart(text, columns)


def test_files_have_the_columns_again(tmp_path: Path) -> None:
    for columns, text, own in (
        (BOTH, "A lamp || It | broke", {"title": "A lamp", "body": "It | broke"}),
        (TURNS, "user || Where is it? || assistant || a ||| b", {"messages": TALK}),
    ):
        rows = [Record(text, "bills"), Record("no part", "bills")]
        lines, table = write_synthetic(rows, tmp_path / "dp3", columns, "team")
        assert json.loads(lines.read_text().splitlines()[0]) == {**own, "team": "bills"}
        assert read_synthetic(tmp_path / "dp3", columns, "team") == rows
        assert differences(tmp_path / "dp3", [*own, "team"], whole=False) == (Counts(2, 2), [])
        told = pd.read_parquet(table).iloc[0].to_dict()
        assert {name: list(cell) if name == "messages" else cell for name, cell in told.items()} == {
            **own,
            "team": "bills",
        }
        kept, lost = texts.keep_whole(rows, columns)
        assert (kept, lost) == (rows[:1], {"parts": 1})
    assert texts.keep_whole(rows, "body") == (rows, {})


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_cells_become_one_text(tmp_path: Path, suffix: str) -> None:
    path, told = tmp_path / f"own.{suffix}", json.dumps(TALK) if suffix == "csv" else TALK
    frame = pd.DataFrame({"body": ["It broke"], "title": ["A || lamp "], "messages": [told]})
    if suffix == "jsonl":
        path.write_text(frame.to_json(orient="records", lines=True))
    else:
        frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    assert [row.text for row in read_rows(path, ColumnNames(BOTH), 100)] == ["A ||| lamp || It broke"]
    joined = "user || Where is it? || assistant || a ||| b"
    assert [row.text for row in read_rows(path, ColumnNames(TURNS), 100)] == [joined]


@pytest.mark.parametrize(
    "cell", ["ZANZIBAR", [{"role": "ZANZIBAR", "content": "x"}], [{"role": "user", "content": 3}], ["ZANZIBAR"], 3,
             [{"role": ["ZANZIBAR"], "content": "x"}], [{"role": "user", "content": "x", "tool_calls": []}]],
)  # fmt: skip
def test_a_cell_that_is_no_conversation_is_refused_without_its_value(tmp_path: Path, cell: object) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps({"messages": one}) + "\n" for one in (TALK, cell)))
    with pytest.raises(DataError, match="not a list of turns") as caught:
        read_rows(path, ColumnNames(TURNS), 100)
    assert "ZANZIBAR" not in str(caught.value)
    assert len(read_rows(path, ColumnNames(TURNS), 100, bad=POLICIES["drop"])) == 1


def dataset(**changes: object) -> Dataset:
    return Dataset.model_validate(load().dataset.model_dump() | changes)


def test_a_list_and_a_joined_name_are_the_same_setting() -> None:
    assert dataset(text=["title", "body"]) == dataset(text=BOTH)
    for wrong, problem in (
        (["title", "title"], "named once"), (["title", load().dataset.label], "same column"), (["title", ""], "once"),
    ):  # fmt: skip
        with pytest.raises(ValidationError, match=problem):
            dataset(text=wrong)
