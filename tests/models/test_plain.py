"""A model's folder is read as data: its code never runs, whatever is typed, and it cannot send to another folder."""

import io
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from palimpsest.audit.finetune import FinetuneSettings, score_finetuned
from palimpsest.errors import ModelError
from palimpsest.models.encoder import Encoder
from palimpsest.models.lm import load_lm
from palimpsest_lab.twins.attacks import save_base, save_encoder

MARKER = "ran"
CODE = """
from pathlib import Path
Path({marker!r}).touch()
from transformers import GPT2Config, GPT2LMHeadModel
class Config(GPT2Config):
    model_type = "unheard_of"
class Model(GPT2LMHeadModel):
    config_class = Config
"""
MAP = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model", "AutoModel": "own.Model"}
SETTINGS = FinetuneSettings(seeds=[1], epochs=1, batch=2, learning_rate=1e-3, max_tokens=8)


def classify(folder: Path) -> Any:
    return score_finetuned(folder, ["a b", "b a"], ["x", "y"], ["a"], ["x"], ["x", "y"], SETTINGS)


LOADERS: dict[str, Callable[[Path], Any]] = {"lm": load_lm, "encoder": Encoder, "classifier": classify}


@pytest.fixture(params=LOADERS)
def load(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Any]:
    """Load a folder, with somebody who says yes to every question."""
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 9))
    return LOADERS[request.param]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A language model of two words."""
    save_base(["a", "b"], 1.0, 1, tmp_path / "model")
    return tmp_path / "model"


def edited(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_code_in_the_folder_never_runs(load: Callable[[Path], Any], folder: Path):
    marker = folder.parent / MARKER
    (folder / "own.py").write_text(CODE.format(marker=str(marker)))
    edited(folder / "config.json", auto_map=MAP, model_type="unheard_of")
    with pytest.raises(ModelError) as told:
        load(folder)
    assert told.value.remedy
    assert not marker.exists()


def test_code_beside_a_known_architecture_does_not_run_either(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 9))
    marker = folder.parent / MARKER
    (folder / "own.py").write_text(CODE.format(marker=str(marker)))
    edited(folder / "config.json", auto_map=MAP)
    edited(folder / "tokenizer_config.json", auto_map={"AutoTokenizer": ["own.Tokenizer", None]})
    load_lm(folder)
    assert not marker.exists()


class _Marks:
    """A pickle that leaves a marker when it is opened."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self._path,)


def test_pickled_weights_are_not_opened(load: Callable[[Path], Any], folder: Path):
    marker = folder.parent / MARKER
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(_Marks(marker)))
    with pytest.raises(ModelError):
        load(folder)
    assert not marker.exists()


def test_an_adapter_cannot_name_another_model(load: Callable[[Path], Any], folder: Path):
    """The library would load the model that the adapter is of, from wherever it says that lies."""
    redirect = folder.parent / "redirect"
    redirect.mkdir()
    (redirect / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(folder)}))
    with pytest.raises(ModelError, match="holds an adapter"):
        load(redirect)


def test_a_folder_that_is_broken_says_what_to_name(load: Callable[[Path], Any], folder: Path):
    (folder / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(ModelError) as told:
        load(folder)
    assert "Name a folder" in told.value.remedy


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    """A sentence encoder of two words."""
    save_encoder(["a", "b"], tmp_path / "encoder")
    return tmp_path / "encoder"


def modules(encoder: Path, **values: str) -> None:
    path = encoder / "modules.json"
    path.write_text(json.dumps([module | values for module in json.loads(path.read_text())]))


@pytest.mark.parametrize(
    "kind",
    ["own.Module", "sentence_transformers.base.modules.router.Router", "sentence_transformersx.Pooling", "os.abort"],
)
def test_modules_of_others_are_refused(encoder: Path, kind: str, monkeypatch: pytest.MonkeyPatch):
    marker = encoder.parent / MARKER
    (encoder / "own.py").write_text(CODE.format(marker=str(marker)))
    monkeypatch.syspath_prepend(encoder)
    modules(encoder, type=kind)
    with pytest.raises(ModelError, match="has a module of type"):
        Encoder(encoder)
    assert not marker.exists()


@pytest.mark.parametrize("place", ["../other", "/other"])
def test_a_module_lies_in_its_own_folder(encoder: Path, place: str):
    shutil.copytree(encoder, encoder.parent / "other")
    modules(encoder, path=place)
    with pytest.raises(ModelError, match="has a module in another folder"):
        Encoder(encoder)


def test_an_adapter_of_a_module_is_refused(encoder: Path):
    shutil.copytree(encoder, encoder / "inner")
    (encoder / "inner" / "adapter_config.json").write_text("{}")
    modules(encoder, path="inner")
    with pytest.raises(ModelError, match="has an adapter on top"):
        Encoder(encoder)


def test_a_module_hands_no_options_to_the_library(encoder: Path):
    (encoder / "sentence_bert_config.json").write_text('{"model_args": {"adapter_kwargs": {"path": "elsewhere"}}}')
    with pytest.raises(ModelError, match="hands options to"):
        Encoder(encoder)


def test_a_module_without_safetensors_is_refused(encoder: Path):
    (encoder / "model.safetensors").rename(encoder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="has pickled weights"):
        Encoder(encoder)
