"""A release of rows with fields: what is said of their columns, and that every value lies in the public cells."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import stages.release
from palimpsest.errors import PalimpsestError
from palimpsest.files import read_json, write_json
from palimpsest.records.fields import describe_field
from palimpsest.records.record import Record
from palimpsest.records.write import write_synthetic
from palimpsest.report.release.bundle import CARD, CROISSANT, README
from palimpsest.report.release.check import verify_release
from palimpsest.report.release.keys import load_key
from tests.report.release_world import VARIANT, Workspace, copied, inside, released
from tests.report.test_release_check import resign

FIELDS = {
    "priority": ["low", "high"],
    "age": "number(0..120, 5)",
    "paid": "number(0..1, 0.25)",
    "sent": "date(2024-01..2026-12, month)",
}
VALUES: list[tuple[Any, ...]] = [("high", 17, 0.31, "2024-02-29"), (None, None, None, None)]


def as_rows(values: list[tuple[Any, ...]]) -> list[Record]:
    return [
        Record(f"The grill hums at night, request {number}.", "returns", tuple(zip(FIELDS, own, strict=True)))
        for number, own in enumerate(values)
    ]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    own = copied(released(), tmp_path_factory.mktemp("fields"))
    own.edit("dataset", fields=FIELDS)
    data = own.params.dataset
    write_synthetic(as_rows(VALUES * 6), own.folder / f"data/synthetic/{VARIANT}", data.text, data.label)
    own.lock()
    with inside(own):
        stages.release.run()
    return own


@pytest.fixture
def folder(made: Workspace, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made.folder / "release", tmp_path / "release"))


@pytest.fixture
def key(made: Workspace) -> Ed25519PrivateKey:
    return load_key(made.key)


def test_a_release_of_rows_with_fields_holds(folder: Path):
    assert verify_release(folder).problems == []
    assert pq.read_table(folder / "data" / f"{VARIANT}.parquet").to_pylist()[0] | {"text": ""} == {
        "text": "", "label": "returns", "priority": "high", "age": 17, "paid": 0.31, "sent": "2024-02-29"
    }  # fmt: skip


@pytest.mark.parametrize(("place", "value"), [(0, "my name"), (1, 900), (3, "1999-01-01")])
def test_rows_with_a_value_outside_the_public_cells_do_not_leave(
    made: Workspace, tmp_path_factory: pytest.TempPathFactory, place: int, value: Any
):
    own, odd = copied(made, tmp_path_factory.mktemp("odd")), list(VALUES[0])
    odd[place] = value
    data = own.params.dataset
    rows = as_rows([*VALUES * 5, tuple(odd)])
    write_synthetic(rows, own.folder / f"data/synthetic/{VARIANT}", data.text, data.label)
    own.lock()
    with inside(own), pytest.raises(PalimpsestError, match="outside its public cells") as caught:
        stages.release.run()
    assert str(value) not in str(caught.value)


def test_cards_say_what_a_field_is_and_show_its_values(folder: Path):
    lines = (folder / README).read_text(encoding="utf-8").splitlines()
    assert f"* priority, of {VARIANT}: One of a public list: low, high. Empty: no value of the list." in lines
    (records,) = read_json(folder / CROISSANT)["recordSet"]
    told = {one["source"]["extract"]["column"]: one for one in records["field"]}
    assert list(told) == ["text", "label", *FIELDS]
    assert [told[name]["dataType"] for name in FIELDS] == ["sc:Text", "sc:Integer", "sc:Float", "sc:Date"]
    assert {name: (told[name]["cells"], told[name]["description"]) for name in FIELDS} == {
        name: (cells, describe_field(name, cells)) for name, cells in FIELDS.items()
    }
    assert "cells" not in told["label"]
    assert "priority: high, age: 17, paid: 0.31, sent: 2024-02-29" in (folder / CARD).read_text(encoding="utf-8")


def test_a_variant_without_fields_declares_none(made: Workspace):
    body = read_json(released().folder / "release" / CROISSANT)
    assert not any("cells" in one for one in body["recordSet"][0]["field"])


def test_an_edited_column_is_found(folder: Path):
    path = folder / "data" / f"{VARIANT}.parquet"
    table = pq.read_table(path).to_pandas()
    table["priority"] = "low"
    table.to_parquet(path)
    assert verify_release(folder).problems == [f"'data/{VARIANT}.parquet' was changed"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("priority", "lots"), ("age", 121), ("age", -1), ("age", 17.5), ("paid", 1.01), ("sent", "2023-12-31"),
        ("sent", "2027-01-01"), ("sent", "2024-02-30"), ("sent", "2024-02-29T10:00"),
    ],
)  # fmt: skip
def test_a_signed_value_outside_the_public_cells_is_found(folder: Path, key: Ed25519PrivateKey, name: str, value: Any):
    """Whoever signs it: the promise is that a value is drawn from a cell that anyone may know."""
    place = list(FIELDS).index(name)
    rows = [(*own[:place], value, *own[place + 1 :]) for own in VALUES * 6]
    write_synthetic(as_rows(rows), folder / "data" / VARIANT, "text", "label")
    sign_rows(folder, key)
    assert verify_release(folder).problems == [f"column {name} of {VARIANT} has a value outside its public cells"]


def test_values_in_the_public_cells_hold_whatever_they_are(folder: Path, key: Ed25519PrivateKey):
    rows = [("low", 0, 0.0, "2024-01-01"), ("high", 120, 1.0, "2026-12-31")] * 6
    write_synthetic(as_rows(rows), folder / "data" / VARIANT, "text", "label")
    sign_rows(folder, key)
    assert verify_release(folder).problems == []


def sign_rows(folder: Path, key: Ed25519PrivateKey) -> None:
    """Sign rows that were changed, with a description that names the new files."""
    from palimpsest.report.release.bundle import digests

    body, found = read_json(folder / CROISSANT), digests(folder)
    for one in body["distribution"]:
        one["sha256"] = found[one["@id"]]
    write_json(folder / CROISSANT, body)
    resign(folder, key)


def widened(field: dict[str, Any]) -> None:
    field["cells"] = "number(0..200, 5)"


def reworded(field: dict[str, Any]) -> None:
    field["description"] = "A number."


@pytest.mark.parametrize("change", [widened, reworded])
def test_a_field_that_is_described_by_other_cells_is_found(
    folder: Path, key: Ed25519PrivateKey, change: Callable[[dict[str, Any]], None]
):
    body = read_json(folder / CROISSANT)
    change(next(one for one in body["recordSet"][0]["field"] if one["name"] == f"{VARIANT}/age"))
    write_json(folder / CROISSANT, body)
    resign(folder, key)
    assert verify_release(folder).problems == [
        f"{README} or {CROISSANT} describes column age of {VARIANT} by other cells"
    ]


def test_cells_that_are_none_are_a_problem_and_no_crash(folder: Path, key: Ed25519PrivateKey):
    body = read_json(folder / CROISSANT)
    body["recordSet"][0]["field"][-1]["cells"] = "number(1..0, 5)"
    (folder / CROISSANT).write_text(json.dumps(body), encoding="utf-8")
    resign(folder, key)
    assert verify_release(folder).problems == ["a document cannot be read (ValueError)"]
