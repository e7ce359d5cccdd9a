"""Fields that are read: an answer follows from the text alone, and the file needs no such column."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.models.reader import read_fields
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.tables import FieldTables
from palimpsest.records.fields import Read, decode_cells, describe_field, domains_of, list_read, parse_fields
from palimpsest.records.private import RawRow
from palimpsest.records.read import ColumnNames, read_rows

FIELDS = {"tone": "read(angry|calm)", "size": ["small", "large"], "about": "read(parcel|bill|garden)"}
WORDS = ("angry", "calm", "parcel", "bill", "garden")


def encode(texts: Sequence[str]) -> np.ndarray:
    """Unit vectors: one direction for each known word, and one that all texts share."""
    found = np.array([[1e-3, *(float(word in text) for word in WORDS)] for text in texts]).reshape(len(texts), 6)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def answers(rows: Sequence[RawRow]) -> list[tuple[int, ...]]:
    return [decode_cells(row.fields) for row in read_fields(rows, FIELDS, encode)]


def test_a_reader_takes_the_nearest_words_and_leaves_columns_as_they_are() -> None:
    texts = ["an angry note on a bill", "a calm garden", "nothing of that"]
    rows = [RawRow(text, "a", "p", fields=f"2,{at % 2},3") for at, text in enumerate(texts)]
    assert answers(rows) == [(0, 0, 1), (1, 1, 2), (0, 0, 0)]
    kept = list(read_fields(rows, FIELDS, encode))
    assert [(row.text, row.label, row.unit) for row in kept] == [(text, "a", "p") for text in texts]


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8), st.data())
def test_an_answer_is_a_function_of_that_text_alone(words: list[str], data: st.DataObject) -> None:
    rows = [RawRow(f"on {word}", fields="2,0,3") for word in words]
    at = data.draw(st.integers(0, len(rows) - 1))
    every = answers(rows)
    assert every[at : at + 1] == answers([rows[at]])
    assert every[:at] + every[at + 1 :] == answers(rows[:at] + rows[at + 1 :])


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8), st.data())
def test_a_record_whose_fields_are_read_moves_all_tables_together_by_at_most_one(
    words: list[str], data: st.DataObject
) -> None:
    rows = [RawRow(f"on {word}", fields=f"2,{at % 2},3") for at, word in enumerate(words)]
    at = data.draw(st.integers(0, len(rows) - 1))
    query = FieldTables((), tuple(domain.size + 1 for domain in domains_of(FIELDS)), ((0,), (2,), (0, 1), (0, 2)), 0.0)

    def answer(some: Sequence[RawRow]) -> np.ndarray:
        own = [PrivateRow(row.text, fields=row.fields) for row in read_fields(some, FIELDS, encode)]
        return np.concatenate(query.run(own, NoiseSource())) / len(query.tables) ** 0.5

    moved = float(np.linalg.norm(answer(rows) - answer([*rows[:at], *rows[at + 1 :]])))
    assert 0.99 < moved <= 1.0


def test_a_field_that_is_read_is_declared_in_one_line_and_has_no_column(tmp_path: Path) -> None:
    fields = parse_fields("tone:read(angry| calm), size:category(small|large)")
    assert fields == {"tone": "read(angry| calm)", "size": ("small", "large")}
    assert list_read(fields) == {"tone": Read(("angry", "calm"))}
    assert describe_field("tone", fields["tone"]).endswith("an encoder read it from the text.")
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"text": "hello", "size": "large", "tone": "ZANZIBAR"}) + "\n", encoding="utf-8")
    assert list(read_rows(path, ColumnNames("text", fields=fields), 100)) == [RawRow("hello", fields="2,1")]


def test_more_than_ten_are_refused() -> None:
    assert len(domains_of({f"f{n}": "read(a|b)" for n in range(10)})) == 10
    with pytest.raises(ValueError, match="more than 10 fields are read from the text; keep those"):
        domains_of({f"f{n}": "read(a|b)" for n in range(11)})
    with pytest.raises(ValueError, match="needs a public list of different words"):
        domains_of({"f": "read(a|a)"})
