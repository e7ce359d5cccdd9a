"""Tasks span and json: what preprocessing writes for them, and what is asked of rows that should be JSON."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from palimpsest.cli.main import app
from palimpsest.files import read_json, write_json
from palimpsest.params.load import LEDGER_VARIABLE, read
from palimpsest.records.record import Record
from palimpsest.records.write import read_public, read_split, write_synthetic
from palimpsest.workspace import FAULT
from stages import baseline_eval, downstream_eval, next_token_base, preprocess, public_only, structure_audit
from tests.pipeline.place import Place
from tests.receipts import a_receipt

SECRET = "ZANZIBAR-7731"
FILM = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "year": {"type": "integer"}},
    "required": ["title", "year"],
}


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A folder for the workspace of a test, its ledger in the environment."""
    made = Place(tmp_path)
    made.workspace.mkdir()
    monkeypatch.chdir(made.workspace)
    monkeypatch.setenv(LEDGER_VARIABLE, str(made.books))
    return made


def init(place: Place, data: Path, *options: object) -> None:
    public = lines(place.home / "public.jsonl", [{"text": f"Plain public text {i}."} for i in range(40)])
    common = ["--public", public, "--rows-about", 60, "--asset", "rows", "--workspace", place.workspace]
    done = CliRunner().invoke(app, [str(part) for part in ("init", data, *options, *common)])
    assert done.exit_code == 0, done.output


def private_rows() -> list[tuple[str, str | None]]:
    parts = (read_split(f"data/private/{part}.parquet") for part in ("train", "holdout", "test"))
    return sorted(((row.text, row.label) for rows in parts for row in rows), key=str)


def test_a_span_is_kept_beside_its_text_and_may_be_missing(place: Place):
    queries = [{"text": f"query {i}", "label": f"{SECRET} {i}"} for i in range(57)]
    odd = [{"text": "none"}, {"text": "null", "label": None}, {"text": "empty", "label": ""}]
    init(place, lines(place.home / "q.jsonl", [*queries, *odd]), "--task", "span", "--text", "text", "--label", "label")
    code, output = place.stage(preprocess)
    assert (code, SECRET in output) == (0, False)
    wanted = [(row["text"], row.get("label")) for row in [*queries, *odd]]
    assert private_rows() == sorted(wanted, key=str)
    report = read_json("data/private/report.json")
    assert (report["rows"]["unlabelled"], report["warnings"]) == (3, ["3 rows have no label."])
    assert SECRET not in json.dumps(report)


def films(place: Place, rows: list[dict[str, Any]], *options: object) -> None:
    write_json(place.home / "film.json", FILM)
    data = lines(place.home / "films.jsonl", rows)
    init(place, data, "--task", "json", "--json-schema", place.home / "film.json", "--text", "*", *options)


def test_a_line_is_read_as_its_canonical_record(place: Place):
    rows = [{"year": 1900 + i, "id": SECRET, "title": f"Été {i}"} for i in range(58)]
    films(place, [*rows, {"title": SECRET}, {"title": SECRET, "year": "1998"}])
    code, output = place.stage(preprocess)
    assert (code, SECRET in output) == (0, False)
    wanted = [f'{{"title": "Été {i}", "year": {1900 + i}}}' for i in range(58)]
    wanted += [f'{{"title": "{SECRET}"}}', f'{{"title": "{SECRET}", "year": "1998"}}']
    assert private_rows() == sorted(((text, None) for text in wanted), key=str)
    report = read_json("data/private/report.json")
    assert report["rows"]["invalid"] == 2
    assert SECRET not in json.dumps(report)
    public = read_public("data/public/train.parquet")
    assert {row.text for row in public} <= {f"Plain public text {i}." for i in range(40)}


def test_a_test_file_is_read_like_the_private_one(place: Place):
    test = lines(place.home / "test.jsonl", [{"year": 1998, "id": 1, "title": "A"}])
    films(place, [{"year": 1900, "title": "B"}], "--test", test)
    assert place.stage(preprocess)[0] == 0
    assert [row.text for row in read_split("data/private/test.parquet")] == ['{"title": "A", "year": 1998}']


def test_a_line_that_is_no_record_is_named_by_its_number_in_the_private_zone(place: Place):
    films(place, [{"title": "A", "year": 1}] * 60)
    with (place.home / "films.jsonl").open("a") as stream:
        stream.write(f'{{"title": "{SECRET}", "year": NaN}}\n')
    code, output = place.stage(preprocess)
    told = (place.workspace / FAULT).read_text()
    assert (code, "row 61" in output, SECRET in output) == (1, False, False)
    assert ("row 61" in told, SECRET in told) == (True, False)


@pytest.mark.parametrize(
    ("changes", "zone"),
    [({}, "dp"), ({"purpose": "reference", "epsilon": None}, "internal"), ({"noise_fixed": True}, "internal")],
)
def test_rows_are_held_against_the_public_schema(place: Place, changes: dict[str, Any], zone: str):
    films(place, [{"title": "A", "year": 1}])
    texts = ['{"title": "A", "year": 1}', '{"title": "A"}', '{"title": "A", "ye', "words"]
    write_synthetic(map(Record, texts), "data/synthetic/dp3", "*", None)
    write_json("reports/receipts/dp3.json", a_receipt(**changes).to_json())
    assert place.stage(structure_audit, "dp3") == (0, "")
    found = read_json("reports/metrics/dp3/structure.json")
    assert (found["variant"], found["zone"]) == ("dp3", zone)
    assert [(found[kind]["count"], found[kind]["n"]) for kind in ("parsed", "valid")] == [(2, 4), (1, 4)]


def test_rows_of_another_task_have_no_structure(place: Place):
    data = lines(place.home / "q.jsonl", [{"text": "a", "label": "b"}])
    init(place, data, "--task", "span", "--text", "text", "--label", "label")
    code, output = place.stage(structure_audit, "dp3")
    assert (code, "no JSON schema" in output) == (0, True)


def test_text_without_labels_is_measured_beside_the_real_rows_and_public_text(place: Place):
    rows = [{"text": f"{SECRET} says that {i} doors of the house are shut."} for i in range(60)]
    init(place, lines(place.home / "t.jsonl", rows), "--task", "text", "--text", "text")
    small = {"layers": 1, "width": 16, "heads": 2, "vocabulary": 280, "context": 40, "epochs": 1}
    place.edit("models", embedded_lm=small)
    place.edit("utility", next_token={"epochs": 2, "batch": 8})
    (name,) = read().run.evaluate
    assert place.stage(preprocess)[0] == 0
    write_synthetic([Record(f"Somebody says that {i} doors of a house are shut.", None) for i in range(30)],
                    f"data/synthetic/{name}", "text", None)  # fmt: skip
    for module, *whose in ((next_token_base,), (public_only,), (baseline_eval,), (downstream_eval, name)):
        code, output = place.stage(module, *whose)
        sizes = re.findall(r"(?<![\d.])60(?![\d.])", output)  # a rate may hold the digits
        assert (code, SECRET in output, sizes) == (0, False, []), output
    found = {row: read_json(f"reports/metrics/{row}/utility.json") for row in ("real", "public_only", name)}
    scores = {row: body["evaluators"]["next_token"] for row, body in found.items()}
    assert scores["real"]["perplexity"]["value"] < scores["public_only"]["perplexity"]["value"]
    assert "gap_closed" in scores[name]
    assert all(scores[row]["per_class"] == {} for row in scores)
