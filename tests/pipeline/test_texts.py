"""Two texts, and a conversation, from the file to the rows of a method and to those who read them."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from palimpsest import api
from palimpsest.cli.main import app
from palimpsest.files import make_folder, read_json
from palimpsest.methods.shared.base import Made
from palimpsest.params.load import LEDGER_VARIABLE, read
from palimpsest.records.record import Record
from palimpsest.records.write import read_split
from stages import encode_public, fit, inputs, preprocess
from tests.pipeline.place import Place

MADE = "select3"


def talk(number: int) -> dict[str, Any]:
    said = f"My {['vase', 'lamp'][number % 2]} || of day {number} broke."
    turns = [{"role": "user", "content": said}, {"role": "assistant", "content": "Send it back."}]
    return {"title": f"Day {number}", "body": said, "messages": turns, "team": "ab"[number % 2]}


@pytest.mark.parametrize(
    ("option", "setting", "names"),
    [("body,title", "body; title", ("body", "title")), ("messages", "turns(messages)", ("messages",))],
)
def test_rows_that_come_out_have_the_columns_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, setting: str, names: tuple[str, ...]
) -> None:
    place = Place(tmp_path)
    place.workspace.mkdir()
    monkeypatch.chdir(place.workspace)
    monkeypatch.setenv(LEDGER_VARIABLE, str(place.books))
    known = [talk(number) for number in range(200, 400)]
    for name, own in (("data", [talk(number) for number in range(200)]), ("public", known)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in own), encoding="utf-8")
    options = {
        "text": option, "label": "team", "labels": "a,b", "public": tmp_path / "public.jsonl", "rows-about": 200,
        "asset": "talks", "workspace": place.workspace,
    }  # fmt: skip
    command = ["init", tmp_path / "data.jsonl", *(part for name, one in options.items() for part in (f"--{name}", one))]
    done = CliRunner().invoke(app, [str(part) for part in command])
    assert done.exit_code == 0, done.output
    assert read().dataset.text == setting
    assert (place.stage(inputs)[0], place.stage(preprocess)[0]) == (0, 0)
    assert all(" ||| of day " in row.text and " || " in row.text for row in read_split("data/private/train.parquet"))
    assert place.stage(encode_public)[0] == 0
    code, output = place.stage(fit, MADE)
    assert code == 0, output
    rows = [json.loads(line) for line in Path(f"data/synthetic/{MADE}.jsonl").read_text(encoding="utf-8").splitlines()]
    allowed = [{name: row[name] for name in names} for row in known]
    assert rows
    assert all({name: row[name] for name in names} in allowed for row in rows)
    assert set(rows[0]) == {*names, "team"}
    assert read_json(f"reports/metrics/{MADE}/generation.json")["rows"] == len(rows)
    assert list(api.open(place.workspace).samples(MADE).columns) == [*names, "team"]


def test_rows_that_do_not_come_apart_are_left_out_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_folder(tmp_path / "data/synthetic")
    settings = SimpleNamespace(dataset=SimpleNamespace(text="title; body", label=None))
    drawn = [Record("A lamp || It broke."), Record("A lamp"), Record("a || b || c")]
    told = fit._write(settings, MADE, Made(drawn, 5, {"length": 2}))  # type: ignore[arg-type]  # noqa: SLF001
    assert told["counts"] == {"drawn": 5, "removed": {"length": 2, "parts": 2}, "rows": 1}
    line = Path(f"data/synthetic/{MADE}.jsonl").read_text(encoding="utf-8")
    assert json.loads(line) == {"title": "A lamp", "body": "It broke."}
