"""Releases of several texts, and of conversations: the original columns leave, and another machine checks them."""

from typing import Any

import pyarrow.parquet as pq
import pytest

import stages.release
from palimpsest.files import read_json
from palimpsest.records.record import Record
from palimpsest.records.write import write_synthetic
from palimpsest.report.release.bundle import CROISSANT, README
from palimpsest.report.release.check import verify_release
from tests.report.release_world import VARIANT, copied, inside, released

TALK = [{"role": "user", "content": "Where is it?"}, {"role": "assistant", "content": "On its way."}]


@pytest.mark.parametrize(
    ("text", "joined", "own"),
    [
        ("title; body", "The grill || It hums at night.", {"title": "The grill", "body": "It hums at night."}),
        ("turns(messages)", "user || Where is it? || assistant || On its way.", {"messages": TALK}),
    ],
)
def test_a_release_has_the_original_columns(
    tmp_path_factory: pytest.TempPathFactory, text: str, joined: str, own: dict[str, Any]
) -> None:
    made = copied(released(), tmp_path_factory.mktemp("texts"))
    made.edit("dataset", text=text)
    data = made.params.dataset
    rows = [Record(joined, "returns")] * 12
    write_synthetic(rows, made.folder / f"data/synthetic/{VARIANT}", data.text, data.label)
    made.lock()
    with inside(made):
        stages.release.run()
    folder = made.folder / "release"
    assert verify_release(folder).problems == []
    assert pq.read_table(folder / "data" / f"{VARIANT}.parquet").to_pylist()[0] == {**own, "label": "returns"}
    (records,) = read_json(folder / CROISSANT)["recordSet"]
    assert [one["source"]["extract"]["column"] for one in records["field"]] == [*own, "label"]
    assert all(f"* {name}: " in (folder / README).read_text(encoding="utf-8") for name in own)
