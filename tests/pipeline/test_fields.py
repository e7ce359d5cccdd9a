"""Fields beside a text, from the file to the measurement of a variant that has them, and of one that has none."""

import json
from itertools import combinations
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from palimpsest.cli.main import app
from palimpsest.files import read_json
from palimpsest.params.load import LEDGER_VARIABLE, read
from palimpsest.records.fields import decode_cells
from palimpsest.records.record import Record
from palimpsest.records.write import read_split, write_synthetic
from stages import fields_audit, preprocess, tools
from tests.pipeline.place import Place

WORDS = ("vase", "lamp")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A workspace of records whose text names their part; every fifth has none, or one that is not listed."""
    made = Place(tmp_path)
    made.workspace.mkdir()
    monkeypatch.chdir(made.workspace)
    monkeypatch.setenv(LEDGER_VARIABLE, str(made.books))
    rows = [
        {"text": f"My {WORDS[n % 2]} broke on day {n}.", "team": "ab"[n // 2 % 2], "part": WORDS[n % 2], "age": n % 10}
        for n in range(200)
    ]
    for row in [*rows[::10], *rows[1::10], *rows[2::10]]:
        row["part"] = "secret ZANZIBAR"
    for name, own in (("data", rows), ("public", [{"text": f"Plain text {n}."} for n in range(40)])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in own), encoding="utf-8")
    fields = "part:category(vase|lamp), age:number(0..10, 5), about:read(a vase|a lamp)"
    options = {
        "text": "text", "label": "team", "labels": "a,b", "fields": fields, "public": tmp_path / "public.jsonl",
        "rows-about": 200, "asset": "parts", "workspace": made.workspace,
    }  # fmt: skip
    command = ["init", tmp_path / "data.jsonl", *(part for name, one in options.items() for part in (f"--{name}", one))]
    done = CliRunner().invoke(app, [str(part) for part in command])
    assert done.exit_code == 0, done.output
    return made


def test_each_text_is_read_by_itself(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, known = [], tools.encoders
    monkeypatch.setattr(tools, "encoders", lambda params, batch=None: asked.append(batch) or known(params, batch))
    assert place.stage(preprocess)[0] == 0
    assert asked == [1]


def test_fields_are_measured_where_a_variant_has_them(place: Place) -> None:
    code, output = place.stage(preprocess)
    assert (code, "ZANZIBAR" in output, "of field part" in output) == (0, False, False)
    report = read_json("data/private/report.json")
    none = {"without": 0, "share": 0.0}
    assert report["fields"] == {"part": {"without": 60, "share": 0.3}, "age": none, "about": none}
    for part in ("train", "holdout", "test"):  # what is read is right also where the column says nothing
        for row in read_split(f"data/private/{part}.parquet"):
            assert decode_cells(row.fields)[2] == WORDS.index(next(word for word in WORDS if word in row.text))
    below, name = read().run.evaluate
    values = [(("part", WORDS[n % 2]), ("age", n % 11), ("about", f"a {WORDS[n % 2]}")) for n in range(120)]
    told = [Record(f"My {WORDS[n % 2]} broke.", "ab"[n // 2 % 2], own) for n, own in enumerate(values)]
    write_synthetic(told, f"data/synthetic/{name}", "text", "team")
    write_synthetic([Record("Plain.", "a")], f"data/synthetic/{below}", "text", "team")
    for one in (below, name):
        assert place.stage(fields_audit, one) == (0, "")
    found = read_json(f"reports/metrics/{name}/fields.json")
    assert (found["variant"], found["zone"], found["rows"]) == (name, "internal", 120)
    tables = {tuple(one["axes"]): one for one in found["tables"]}
    axes = ("team", "part", "age", "about")
    assert list(tables) == [some for ways in (1, 2) for some in combinations(axes, ways)]
    assert tables["part",]["synthetic"] > 0.0  # no row without a part was written
    named = {one["target"]: one for one in found["learned"]}
    assert named["part"]["synthetic"]["value"] > 0.4  # .7 is expected
    assert read_json(f"reports/metrics/{below}/fields.json")["tables"] == []


@pytest.mark.usefixtures("place")
def test_the_stage_is_there_for_every_variant() -> None:
    found = YAML(typ="safe").load(Path("dvc.yaml").read_text(encoding="utf-8"))["stages"]
    assert found["fields_audit"]["matrix"] == {"variant": "${run.evaluate}"}
