"""A named language model reaches the workspace byte for byte; what a copy of it learned lies beside it."""

from pathlib import Path

import numpy as np
import pytest

import stages.pretrain
from palimpsest.files import read_json
from palimpsest.methods.shared.method import Reads
from palimpsest.models.lm import suited_rate
from palimpsest.params.load import load, loads, render_params
from palimpsest.records.record import Record
from palimpsest.records.vouched import fingerprint_of, sha256
from palimpsest.records.write import write_public
from palimpsest.work.decisions import DataSource, params_text
from palimpsest.workspace import BASE_LM, EMBEDDINGS, METRICS, PUBLIC, UNTOUCHED
from palimpsest_lab.twins.attacks import save_base
from stages.spenders import spenders
from stages.tools import Artifacts
from stages.vouching import resolve_vouched
from tests.settings_file import edit_settings

WORDS = ("lamp", "kettle", "hums", "leaks")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace of `init --lm FOLDER --method dp_lm`, with public texts that were embedded."""
    home = tmp_path / "workspace"
    home.mkdir()
    monkeypatch.chdir(home)
    save_base(WORDS, 0.5, 1, tmp_path / "model")
    source = DataSource(
        data=tmp_path / "own.csv", text="body", public=tmp_path / "public.csv", n_public=600, asset="notes",
        label="team", labels={"a": "A", "b": "B"}, wanted="dp_lm", lm=str(tmp_path / "model"),
    )  # fmt: skip
    (home / "params.yaml").write_text(params_text(source))
    edit_settings(home)
    texts = [f"{first} {second}" for first in WORDS for second in WORDS]
    for part in ("train", "heldout"):
        write_public(PUBLIC / f"{part}.parquet", [Record(text, None) for text in texts])
    vectors = np.eye(len(texts), dtype=np.float32)
    np.savez(EMBEDDINGS, texts=vectors, descriptions=vectors[:2], labels=np.array(["a", "b"]))
    return home


def weights(folder: Path) -> str:
    return sha256(folder / "model.safetensors")


def base_of(home: Path) -> Artifacts:
    (who,) = (one for one in spenders(load(home)) if Reads.BASE in one.method.reads)
    return Artifacts(load(home), who, resolve_vouched)


def test_pretrain_leaves_a_named_model_byte_for_byte(workspace: Path) -> None:
    stages.pretrain.run()
    given = workspace.parent / "model"
    assert fingerprint_of(BASE_LM) == fingerprint_of(given)
    assert {path.name for path in BASE_LM.iterdir()} == {path.name for path in given.iterdir()}
    assert not UNTOUCHED.exists()
    assert base_of(workspace).untouched() == BASE_LM
    assert read_json(METRICS / "pretrain.json")["source"] == str(given)


def test_a_copy_learns_prompts_where_that_is_asked_for(workspace: Path) -> None:
    edit_settings(workspace, "models", prompts={"epochs": 1, "batch": 4}, words=None)
    stages.pretrain.run()
    given = workspace.parent / "model"
    assert weights(UNTOUCHED) == weights(given) != weights(BASE_LM)
    tools = base_of(workspace)
    assert (tools.base(), tools.untouched()) == (BASE_LM, UNTOUCHED)


def test_a_run_of_a_named_model_is_known_by_what_its_owner_gave(workspace: Path) -> None:
    """And not by the copy of it that our code made: another version may make another."""
    stages.pretrain.run()
    before = base_of(workspace).provenance()
    save_base(WORDS, 0.5, 2, BASE_LM)
    assert base_of(workspace).provenance() == before
    save_base(WORDS, 0.5, 2, workspace.parent / "model")
    assert base_of(workspace).provenance() != before


def test_rates_fit_the_size_of_a_model() -> None:
    rates = [suited_rate(size) for size in (5_000_000, 124_000_000, 270_000_000, 7_000_000_000)]
    assert rates == sorted(rates, reverse=True)
    assert rates[2] == 5e-5
    assert suited_rate(10) == 0.002


def test_the_named_models_workspace_is_prompted_in_words_and_the_papers_is_not(workspace: Path) -> None:
    assert load(workspace).models.words == "texts"
    source = DataSource(
        data=Path("/d.csv"), text="t", public=Path("/p.csv"), n_public=600, asset="a", lm="/m", wanted="predict"
    )
    params = loads(params_text(source))
    assert (params.run.private_predict, params.taught, params.models.prompts) == ({"predict3": "base"}, {}, None)
    assert "prompts: null" in render_params(params)
    paper = DataSource(**{**vars(source), "wanted": None, "preset": "paper-000"})
    assert loads(params_text(paper)).models.words is None
