"""What becomes of a record with a fault, and that leaving it out touches no other record."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palimpsest.errors import DataError
from palimpsest.records.faults import POLICIES, Kind, RecordError
from palimpsest.records.private import RawRow
from palimpsest.records.read import ColumnNames, check, iter_rows, read_rows

SECRET = "ZANZIBAR-7731"
COLUMNS, LABELS = ColumnNames("text", "label", "who", nobody=True), ("a", "b")
# A line of a CSV, and whether `drop` keeps it.
LINES = {
    b"plain,a,p\n": True,
    b'"two\nlines",b,q\n': True,
    b"nobody,a,\n": True,
    b",a,p\n": False,
    b'"  ",b,p\n': False,
    b"unknown,c,p\n": False,
    b"case,A,q\n": False,
    b"bytes \xff,a,p\n": False,
    b"nul \0,b,q\n": False,
    b"name,a,\xff\n": False,
}


def rows_of(folder: Path, lines: list[bytes], policy: str = "drop") -> list[RawRow]:
    path = folder / "rows.csv"
    path.write_bytes(b"text,label,who\n" + b"".join(lines))
    return list(iter_rows(path, COLUMNS, 100, LABELS, bad=POLICIES[policy]))


@given(lines=st.lists(st.sampled_from(list(LINES)), min_size=1, max_size=7))
def test_whether_a_record_is_dropped_is_a_function_of_it_alone(
    lines: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All neighbours: a data set without any one record reads as the rest does beside it."""
    folder = tmp_path_factory.mktemp("rows")
    alone = {line: rows_of(folder, [line]) for line in set(lines)}
    assert {line: bool(rows) for line, rows in alone.items()} == {line: LINES[line] for line in alone}
    for world in [lines, *(lines[:out] + lines[out + 1 :] for out in range(len(lines)))]:
        if world:
            assert Counter(rows_of(folder, world)) == Counter(row for line in world for row in alone[line])


@pytest.mark.parametrize("line", [line for line, kept in LINES.items() if not kept])
def test_stop_keeps_an_empty_text_and_stops_at_the_rest(tmp_path: Path, line: bytes) -> None:
    if line.startswith((b",", b'" ')):
        assert len(rows_of(tmp_path, [line], "stop")) == 1
    else:
        with pytest.raises(RecordError, match="row 1 "):
            rows_of(tmp_path, [line], "stop")


STRUCTURE = {
    "a quote that swallows its neighbours": ("rows.csv", f'"{SECRET},a,p\nnext,b,q\n', Kind.QUOTE),
    "too few fields": ("rows.csv", f"{SECRET},a\n", Kind.FIELDS),
    "no object": ("rows.jsonl", f'["{SECRET}"]\n', None),
    "half a line": ("rows.jsonl", f'{{"text": "{SECRET}\n', Kind.LINE),
    "no key": ("rows.jsonl", f'{{"text": "{SECRET}", "who": "p"}}\n', Kind.KEY),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("name", "content", "kind"), STRUCTURE.values(), ids=STRUCTURE.keys())
def test_a_fault_of_structure_always_stops(
    tmp_path: Path, policy: str, name: str, content: str, kind: Kind | None
) -> None:
    path = tmp_path / name
    path.write_text(("text,label,who\n" if name == "rows.csv" else "") + content)
    with pytest.raises(DataError) as caught:
        read_rows(path, COLUMNS, 100, LABELS, bad=POLICIES[policy])
    assert getattr(caught.value, "kind", None) == kind
    assert SECRET not in str(caught.value)


def test_a_missing_person_is_a_choice_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("text,label,who\nt,a,\n")
    with pytest.raises(RecordError, match="is empty"):
        read_rows(path, ColumnNames("text", "label", "who"), 100, LABELS, bad=POLICIES["drop"])


def test_a_check_goes_to_the_end_and_holds_no_value(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    lines = [f'"{SECRET}\n",a,p', f"{SECRET},{SECRET},q", "", "short", f"{SECRET * 9},b,q", ",a,"]
    path.write_text("text,label,who\n" + "\n".join(lines) + "\n")
    found = check(path, COLUMNS, 50, LABELS)
    assert [(each.kind, each.row, each.line) for each in found.faults] == [
        (Kind.LABEL, 2, 4), (Kind.FIELDS, 4, 6), (Kind.LONG, 5, 7), (Kind.EMPTY, 6, 8),
    ]  # fmt: skip
    assert (found.rows, found.persons, found.labels) == (3, 2, {"a": 2, "b": 1})
    assert SECRET not in json.dumps(found.faults)


def test_a_check_ends_at_a_broken_quote(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f'text,label,who\nt,a,p\n"{SECRET},a,p\nt,c,p\n')
    assert [(each.kind, each.line) for each in check(path, COLUMNS, 50, LABELS).faults] == [(Kind.QUOTE, 3)]


def test_lines_of_json_are_checked_past_a_broken_one(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"text": "t", "label": "a", "who": 1}\n{\n\n3\n{"text": "t"}\n{"text": 1, "label": "a", "who": 1}\n'
    )
    found = check(path, COLUMNS, 50, LABELS)
    assert [(each.kind, each.line) for each in found.faults] == [
        (Kind.LINE, 2), (Kind.LINE, 4), (Kind.KEY, 5), (Kind.TYPE, 6),
    ]  # fmt: skip
