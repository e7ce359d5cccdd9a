"""What the sample browser is made of: what stages left, read in a process of its own, in a file for the owner alone."""

import json
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from palimpsest.cli.main import app
from palimpsest.errors import DataError, ParamsError
from palimpsest.files import write_json
from palimpsest.graph.render import document
from palimpsest.graph.stage import Feature
from palimpsest.params.load import load
from palimpsest.records.evolved import EvolvedRound, write_evolved
from palimpsest.records.private import SplitRow
from palimpsest.records.record import Record
from palimpsest.records.write import write_public, write_rounds, write_split, write_synthetic
from palimpsest.workspace import RATINGS, SAMPLES
from palimpsest_lab.stages import ratings
from stages import samples
from tests.receipts import a_receipt
from tests.settings_file import demo, write_settings

ROOT = Path(__file__).parents[2]
LID, BILL, VASE = "the lid is shut", "my bill is wrong", "a vase in shards"
PUBLIC = ["lid lid lid", "bill bill bill"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def encode(texts: Sequence[str]) -> np.ndarray:
    """How often each letter stands in a text."""
    return np.array([[text.count(letter) for letter in LETTERS] for text in texts], dtype=np.float32).reshape(-1, 26)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with what stages leave of three variants, in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(samples, "measuring_encoder", lambda params: SimpleNamespace(rows=encode, others=encode))
    write_settings(tmp_path, demo())
    write_split("data/private/train.parquet", [SplitRow(LID, "helpline"), SplitRow(BILL, "accounts")])
    write_split("data/private/holdout.parquet", [SplitRow(VASE, "returns")])
    write_public("data/public/train.parquet", [Record(text) for text in PUBLIC])
    with Path("data/public/embeddings.npz").open("wb") as file:
        labels = np.array(list(demo()["dataset"]["labels"]))
        np.savez(file, texts=encode(PUBLIC), descriptions=encode(PUBLIC), labels=labels)
    rows("select3", "Now the lid is shut", "bill, my bill")
    return tmp_path


def rows(name: str, *texts: str, **receipt: Any) -> None:
    """Synthetic rows of a variant, and its receipt."""
    write_synthetic([Record(text, "returns") for text in texts], f"data/synthetic/{name}", "text", "label")
    write_json(f"reports/receipts/{name}.json", a_receipt(variant=name, **receipt).to_json())


def shown(*names: str, most: int = 100) -> dict[str, Any]:
    """Name -> what the page's script reads of a variant."""
    samples.run(str(most), *names)
    html = SAMPLES.read_text(encoding="utf-8")
    data = html.partition('id="data">')[2].partition("</script>")[0]
    return {one["name"]: one for one in json.loads(data)}


def test_each_row_stands_beside_the_nearest_row_that_was_read(place: Path) -> None:
    one = shown()["select3"]
    first, second = one["rows"]
    assert (first["text"], first["longest"]) == (["Now ", LID, ""], 4)
    assert (first["near"]["text"], first["near"]["label"]) == (["", LID, ""], "helpline")
    assert second["near"]["text"] == [BILL]
    assert 0 < second["unread"] < second["near"]["cosine"] < 1
    assert one["role"] == "select at epsilon 2.98, for release"


def test_the_file_is_its_owners_alone(place: Path) -> None:
    shown()
    assert stat.S_IMODE((place / SAMPLES).stat().st_mode) == 0o600


def test_no_stage_writes_it_and_no_flow_knows_it() -> None:
    written = json.dumps(document(frozenset(Feature)), default=str)
    flows = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "flows").glob("*.py"))
    assert "reports/internal.html" in written
    assert "samples.html" not in written + flows
    assert "PAGE" in flows
    assert "SAMPLES" not in flows


def test_a_person_is_named_by_the_beginning_of_the_keyed_id_where_persons_are_protected(place: Path) -> None:
    write_split("data/private/train.parquet", [SplitRow(LID, "helpline", person="ab" * 32)])
    assert shown()["select3"]["rows"][0]["near"]["person"] == "abababab"


def test_rows_without_labels_and_without_a_holdout(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    params = load()
    data = params.dataset.model_copy(update={"label": None, "labels": {}})
    monkeypatch.setattr(samples, "load", lambda: params.model_copy(update={"dataset": data}))
    write_split("data/private/train.parquet", [SplitRow(LID), SplitRow(BILL)])
    write_split("data/private/holdout.parquet", [])
    write_synthetic([Record(BILL)], "data/synthetic/select3", "text", None)
    (one,) = shown()["select3"]["rows"]
    assert (one["label"], one["near"]["text"], one["near"]["cosine"], one["unread"]) == ("", ["", BILL, ""], 1.0, None)


def test_of_many_rows_some_are_drawn_and_the_page_says_so(place: Path) -> None:
    rows("select3", *(f"row {number}" for number in range(50)))
    one = shown(most=20)["select3"]
    assert (one["total"], len(one["rows"])) == (50, 20)


def test_what_was_removed_is_what_generation_json_noted(place: Path) -> None:
    noted = {"length": [{"text": "short", "label": "returns"}]}
    unreadable = [{"text": "lid lid", "label": None, "perplexity": 90.0}]
    counts = {"drawn": 9, "rows": 2, "removed": {"length": 5, "duplicates": 0, "unreadable": 2, "perplexity": 1}}
    path = "reports/metrics/select3/generation.json"
    write_json(path, counts | {"removed_samples": noted, "unreadable_samples": unreadable})
    found = {
        one["filter"]: (one["count"], [row["text"] for row in one["rows"]]) for one in shown()["select3"]["removed"]
    }
    assert found == {"length": (5, ["short"]), "unreadable": (2, ["lid lid"]), "perplexity": (1, [])}


def test_rounds_of_texts_are_shown_one_after_another_and_filtered_again(place: Path) -> None:
    one, two, short = (Record(text, "returns") for text in ("lid one", "lid two", "x"))
    rows("evolve3", "lid two", method="evolve")
    write_rounds("data/evolved/evolve3.parquet", [[one, one], [two, short]])
    write_json("reports/metrics/evolve3/generation.json", {"drawn": 2, "rows": 1, "removed": {"length": 1}})
    found = shown("evolve3")["evolve3"]
    told = [
        [[(row["text"], row["times"]) for row in each[side]] for side in ("before", "after")]
        for each in found["rounds"]
    ]
    assert told == [[[], [("lid one", 2)]], [[("lid one", 2)], [("lid two", 1), ("x", 1)]]]
    assert not found["stands"]
    assert [[row["text"] for row in each["rows"]] for each in found["removed"]] == [["x"]]


def test_public_texts_stand_for_embeddings(place: Path) -> None:
    rows("embed3", "lid", method="embed")
    population, chosen = encode(["lid", "bill", "did"]) / 2, np.array([1])
    one = EvolvedRound({"returns": population}, {"returns": chosen}, {"returns": np.array([True])})
    write_evolved("data/evolved/embed3.npz", [one])
    found = shown("embed3")["embed3"]
    (told,) = found["rounds"]
    assert {row["text"]: row["times"] for row in told["before"]} == {PUBLIC[0]: 2, PUBLIC[1]: 1}
    assert [row["text"] for row in told["after"]] == [PUBLIC[1]]
    assert found["stands"]


def test_none_named_are_all_that_have_rows(place: Path) -> None:
    write_synthetic([Record("lid", "returns")], "data/synthetic/public_only", "text", "label")
    assert [(name, one["role"]) for name, one in shown().items()] == [
        ("select3", "select at epsilon 2.98, for release"),
        ("public_only", "public text alone"),
    ]
    assert list(shown("public_only")) == ["public_only"]


def test_a_reference_is_called_one(place: Path) -> None:
    rows("select3", "lid", purpose="reference", epsilon=None)
    assert shown()["select3"]["role"] == "select, reference, never released"


def test_what_is_not_there_is_told_in_two_parts(place: Path) -> None:
    with pytest.raises(ParamsError, match="'real', which"):
        samples.run("5", "real")
    with pytest.raises(DataError, match="no rows yet of evolve3"):
        samples.run("5", "select3", "evolve3")
    for path in Path("data/synthetic").iterdir():
        path.unlink()
    with pytest.raises(DataError, match="There are no rows yet"):
        samples.run("5")
    assert not SAMPLES.exists()


@pytest.mark.parametrize(("code", "told"), [(0, "Samples (private zone): "), (1, "")])
def test_the_command_starts_it_as_stages_are_started_and_prints_the_path(
    place: Path, monkeypatch: pytest.MonkeyPatch, code: int, told: str
) -> None:
    started: list[Sequence[str]] = []
    monkeypatch.setattr("palimpsest.work.look.run_command", lambda command, *_: started.append(command) or code)
    done = CliRunner().invoke(app, ["samples", "select3", "--rows", "7"])
    assert (done.exit_code, done.stdout.startswith(told) and bool(done.stdout) == bool(told)) == (code, True)
    assert started == [[sys.executable, "-P", "-m", "stages.samples", "7", "select3"]]


# Sheets for people who judge rows.

SHEET, KEY = RATINGS / "sheet.csv", RATINGS / "key.json"


def on_sheet(*names: str, count: int = 2) -> set[str]:
    """Write a sheet; the variants of its key."""
    ratings.run("sheet", str(count), *names)
    return set(json.loads(KEY.read_text(encoding="utf-8"))["key"].values())


def test_a_sheet_of_an_earlier_key_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows("evolve3", "lid one", "lid two")
    on_sheet("select3")
    earlier = SHEET.rename("earlier.csv")
    filled = earlier.read_text(encoding="utf-8").replace(",\n", ",yes\n")
    earlier.write_text(filled, encoding="utf-8")
    ratings.run("read", str(earlier))
    assert capsys.readouterr().out.startswith("select3: readable 100.0%")
    KEY.unlink()
    on_sheet("evolve3")
    with pytest.raises(DataError, match="items that the key lacks"):
        ratings.run("read", str(earlier))


def test_a_sheet_and_its_key_are_not_written_over(place: Path) -> None:
    on_sheet("select3")
    SHEET.write_text(SHEET.read_text(encoding="utf-8").replace(",\n", ",yes\n"), encoding="utf-8")
    filled, key = SHEET.read_bytes(), KEY.read_bytes()
    with pytest.raises(DataError, match="a sheet already") as raised:
        on_sheet("select3", count=1)
    assert raised.value.remedy
    assert (SHEET.read_bytes(), KEY.read_bytes()) == (filled, key)
    SHEET.unlink()  # given away: the key is what reads it
    with pytest.raises(DataError, match="a sheet already"):
        on_sheet("select3", count=1)
    assert KEY.read_bytes() == key


def test_what_stands_beside_a_filled_sheet_is_refused(place: Path) -> None:
    done = CliRunner().invoke(app, ["rate", "--read", "anna.csv", "ben.csv"])
    assert done.exit_code == 1
    assert "--read is given with a VARIANT" in done.stderr
    assert "what to do: Give it alone" in done.stderr


def test_private_rows_are_on_a_sheet_by_name_alone_which_is_said(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows("evolve3", "lid one", purpose="reference", epsilon=None)
    rows("embed3", "lid two", noise_fixed=True)
    write_synthetic([Record("lid", "returns")], "data/synthetic/public_only", "text", "label")
    assert on_sheet() == {"select3", "public_only"}
    assert not capsys.readouterr().out
    SHEET.unlink()
    KEY.unlink()
    assert on_sheet("select3", "evolve3") == {"select3", "evolve3"}
    assert capsys.readouterr().out.startswith("Rows of evolve3 are private.")


def test_a_sheet_of_private_rows_alone_is_refused_unless_they_are_named(place: Path) -> None:
    rows("select3", "lid", purpose="reference", epsilon=None)
    with pytest.raises(DataError, match="of select3, are private") as raised:
        on_sheet()
    assert raised.value.remedy
    assert not SHEET.exists()
