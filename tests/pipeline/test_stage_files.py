"""What stages keep beside their outputs: receipts tied to weights, shards tied to settings."""

import stat
from pathlib import Path

import pytest

from palimpsest.errors import LedgerError
from palimpsest.files import write_json
from stages.pplm_generate import shard_folder
from stages.report import read_stages
from stages.resuming import receipt_of, weights
from tests.receipts import a_receipt

ROOT = Path(__file__).parents[2]


@pytest.fixture
def fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model's folder and its receipt, in the working directory."""
    monkeypatch.chdir(tmp_path)
    folder = Path("models/m")
    (folder / "lm").mkdir(parents=True)
    (folder / "lm" / "model.safetensors").write_bytes(b"weights")
    (folder / "head.safetensors").write_bytes(b"head")
    write_json("reports/receipts/models/m.json", a_receipt(model="m", weights=weights(folder)).to_json())
    return folder


def test_a_receipt_is_that_of_the_weights_beside_it(fitted: Path):
    assert receipt_of("m").model == "m"


@pytest.mark.parametrize("name", ["lm/model.safetensors", "head.safetensors", "another.safetensors"])
def test_other_weights_have_another_receipt(fitted: Path, name: str):
    (fitted / name).write_bytes(b"of another run")
    with pytest.raises(LedgerError, match="other weights"):
        receipt_of("m")


def test_a_receipt_that_names_no_weights_is_of_others(fitted: Path):
    write_json("reports/receipts/models/m.json", a_receipt(model="m").to_json())
    with pytest.raises(LedgerError, match="other weights"):
        receipt_of("m")


def test_shards_of_other_settings_go_and_those_of_these_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for settings in ("old", "same"):
        write_json(shard_folder("v", settings) / "0.json", [settings])
    again = shard_folder("v", "same")
    assert [path.name for path in again.parent.iterdir()] == ["same"]
    assert (again / "0.json").is_file()
    assert stat.S_IMODE(again.stat().st_mode) == 0o700


def test_the_page_knows_what_is_built_on_what():
    needs = {stage["name"]: set(stage["deps"]) for stage in read_stages(ROOT / "dvc.yaml")}
    assert needs["discriminator"] == {"dp_train", "preprocess"}
    assert "discriminator" in needs["pplm_generate"]
    assert all("pplm_generate" in needs[name] for name in ("downstream_eval", "ngram_audit", "text_mia"))
