"""Sheets for people: blinded, read back, and counted by hand."""

import csv
import re
from pathlib import Path

import pytest

from palimpsest.errors import DataError
from palimpsest_lab.audits.ratings import COLUMNS, agreement, make_blind_sheet, ratings, read_sheet

TEXTS = {"a": ["one", "two"], "b": ["three", "four"]}


def test_a_sheet_has_every_text_once_and_no_variant() -> None:
    lines, key = make_blind_sheet(TEXTS, 3)
    assert [item for item, _ in lines] == list(key)
    assert [item.partition("-")[2] for item in key] == ["1", "2", "3", "4"]
    assert {text: key[item] for item, text in lines} == {"one": "a", "two": "a", "three": "b", "four": "b"}
    assert make_blind_sheet(TEXTS, 3) == (lines, key)
    assert any(make_blind_sheet(TEXTS, seed)[1] != key for seed in range(9))


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n", "\r\n", "\t="])
def test_no_spreadsheet_computes_a_text(sign: str) -> None:
    assert [text for _, text in make_blind_sheet({"a": [f"{sign}1+1"]}, 3)[0]] == [f" {sign}1+1"]


def test_no_sheet_of_other_texts_is_read_with_the_key(tmp_path: Path) -> None:
    _, key = make_blind_sheet(TEXTS, 3)
    for other in ({"a": ["one", "two"], "b": ["three", "five"]}, {"b": ["one", "three"], "a": ["two", "four"]}):
        _, newer = make_blind_sheet(other, 3)
        with pytest.raises(DataError, match="items that the key lacks"):
            read_sheet(filled(tmp_path / "s.csv", dict.fromkeys(key, "yes")), newer)


def test_no_spreadsheet_takes_an_item_for_a_number_a_date_or_a_formula() -> None:
    items = {item for seed in range(99) for item in make_blind_sheet(TEXTS, seed)[1]}
    assert {item for item in items if not re.fullmatch("[^aeiouy0-9+=@-]{6}-[1-4]", item)} == set()


def filled(path: Path, answers: dict[str, str]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *((item, "text", answer) for item, answer in answers.items())])
    return path


def test_shares_count_each_text_alike(tmp_path: Path) -> None:
    key = {"1": "a", "2": "a", "3": "b", "4": "c"}
    told = [{"1": "Yes", "2": "no", "3": "yes"}, {"1": " yes", "2": "yes", "3": ""}]
    sheets = [read_sheet(filled(tmp_path / f"{n}.csv", one), key) for n, one in enumerate(told)]
    found = ratings(key, sheets)
    assert found.raters == 2
    assert {name: one.value for name, one in found.readable.items()} == {"a": 0.75, "b": 1.0}
    assert found.agreement == pytest.approx(0.0)  # two pairs, one of which differs: 1 - 3 * 2 / (2 * 3 * 1)


def test_alpha_is_that_of_a_worked_example() -> None:
    """Ten texts, two raters: the binary example of Krippendorff (2011), alpha .095 with ten texts."""
    first, second = "0100000000", "1110010010"
    pairs = [[a == "1", b == "1"] for a, b in zip(first, second, strict=True)]
    assert agreement(pairs) == pytest.approx(0.095, abs=5e-4)
    assert agreement([[True, True], [True]]) is None


@pytest.mark.parametrize(
    ("answers", "problem"), [({"9": "yes"}, "items that the key lacks"), ({"1": "maybe"}, "other answers")]
)
def test_what_is_no_filled_sheet_is_refused(answers: dict[str, str], problem: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=problem) as raised:
        read_sheet(filled(tmp_path / "s.csv", answers), {"1": "a"})
    assert raised.value.remedy
    (tmp_path / "other.csv").write_text("x\n1\n")
    with pytest.raises(DataError, match="cannot be read"):
        read_sheet(tmp_path / "other.csv", {"1": "a"})
