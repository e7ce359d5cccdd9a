"""Small made files of each published form are read; what is not of the form is an error without a value."""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from palimpsest.errors import DataError
from palimpsest_lab.datasets import readers
from palimpsest_lab.datasets.declaration import Item
from palimpsest_lab.datasets.known import KNOWN
from palimpsest_lab.datasets.prepare import find, items
from tests.datasets.published import CASES, TABLE, TREEBANK, written


@pytest.mark.parametrize(("name", "files", "wanted"), CASES, ids=[f"{case[0]}-{len(case[1])}" for case in CASES])
def test_a_published_form_is_read(
    tmp_path: Path, name: str, files: Mapping[str, str], wanted: Mapping[str, list[Item]]
) -> None:
    found = find(KNOWN[name], written(tmp_path, files))
    assert {part: list(items(found, part)) for part in found.paths if part in wanted} == wanted


def test_every_data_set_has_a_case() -> None:
    assert {case[0] for case in CASES} == set(KNOWN)


def test_the_files_of_the_hub_and_gzipped_lines_are_read(tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    for part in ("train", "validation"):
        table = pa.table({"idx": [0], "sentence": ["fine "], "label": [1]})
        pq.write_table(table, tmp_path / "hub" / f"{part}-00000-of-00001.parquet")
    found = find(KNOWN["sst2"], tmp_path / "hub")
    assert list(items(found, "test")) == [Item("fine", ("positive",))]
    (tmp_path / "trec_train.jsonl.gz").write_bytes(gzip.compress(b'{"text": "Who ?", "label": "human"}\n'))
    found = find(KNOWN["trec"], tmp_path)
    assert list(items(found, "train")) == [Item("Who ?", ("human",))]
    assert set(found.paths) == {"train"}


def test_latin_1_is_read(tmp_path: Path) -> None:
    files = {"train_5500.label": "LOC:city Where is Malm\u00f6 ?\n", "TREC_10.label": "NUM:dist How far ?\n"}
    found = find(KNOWN["trec"], written(tmp_path, files, "latin-1"))
    assert next(items(found, "train")).text == "Where is Malm\u00f6 ?"


def test_missing_files_are_named_with_where_they_come_from(tmp_path: Path) -> None:
    partly = {name: text for name, text in TREEBANK.items() if name != "dictionary.txt"}
    with pytest.raises(DataError) as missing:
        find(KNOWN["sst2"], written(tmp_path, partly))
    for said in ("nlp.stanford.edu/sentiment", "dictionary.txt", "stsa.binary.train", "nothing is fetched"):
        assert said in missing.value.remedy


SECRET = "Sibylle"
FAULTY = {
    "a class that is none": ("agnews", {"train.csv": f"5,{SECRET},b\n", "test.csv": "1,a,b\n"}, "its label"),
    "another form": ("agnews", {"train.csv": f"1,{SECRET}\n", "test.csv": "1,a,b\n"}, "2 fields"),
    "a broken quote": ("agnews", {"train.csv": f'1,"{SECRET}" b,c\n', "test.csv": "1,a,b\n"}, "quoting"),
    "a label that is none": ("yelp", {"train.csv": f"{TABLE}a,{SECRET},b\n", "test.csv": TABLE}, "its label"),
    "no such column": ("pubmed", {"train.csv": f"{SECRET}\na\n", "test.csv": "text\n"}, "column 'text'"),
    "no JSON": ("yelp_reviews", {"yelp_academic_dataset_review.json": f'{{"text": "{SECRET}\n'}, "record 1"),
    "no list": ("wikimovies", {"movies.json": f'{{"title": "{SECRET}"}}'}, "not a list"),
    "no tab": ("sst2", {"train.tsv": f"sentence\tlabel\n{SECRET}\n", "dev.tsv": "sentence\tlabel\n"}, "record 2"),
}


@pytest.mark.parametrize("kind", FAULTY)
def test_what_is_not_of_the_form_is_an_error_without_a_value(tmp_path: Path, kind: str) -> None:
    name, files, said = FAULTY[kind]
    found = find(KNOWN[name], written(tmp_path, files))
    with pytest.raises(DataError, match=said) as error:
        list(items(found, "train"))
    chain = (error.value, error.value.__cause__, error.value.__context__)
    assert not any(SECRET in f"{each} {vars(each)}" for each in chain if each is not None)


def test_bytes_that_are_no_utf_8_are_an_error(tmp_path: Path) -> None:
    found = find(
        KNOWN["pubmed"], written(tmp_path, {"train.csv": "text\nMalm\u00f6\n", "test.csv": "text\n"}, "latin-1")
    )
    with pytest.raises(DataError, match="record 1: it is not valid UTF-8"):
        list(items(found, "train"))


def test_the_page_names_every_data_set() -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "datasets.md").read_text(encoding="utf-8")
    named = [
        name for line in page.splitlines() if line.startswith("| `") for name in line.split("|")[1].split("`")[1::2]
    ]
    assert set(KNOWN) <= set(named)


def test_reviews_that_name_nobody_are_of_nobody_and_not_of_one_person(tmp_path: Path) -> None:
    path = tmp_path / "reviews.json"
    review = {"text": "Fine.", "stars": 4}
    path.write_text("".join(f"{json.dumps(review | own)}\n" for own in ({}, {"user_id": None}, {"user_id": "u"})))
    assert [item.person for item in readers.read_reviews([path], "train")] == ["", "", "u"]
    path.write_text(json.dumps(review | {"stars": True}))
    with pytest.raises(DataError, match="record 1"):
        list(readers.read_reviews([path], "train"))
