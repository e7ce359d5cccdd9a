"""What a workspace holds of private rows, or made of them, is not public: by its path, its links or its content."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from palimpsest.errors import DataError
from palimpsest.records.vouched import (
    Own,
    PublicSource,
    contents_of,
    files_of,
    fingerprint_of,
    require_public,
    sha256,
    weights,
    weights_of,
)

MODEL = PublicSource("models.lm", "model", "named")
FILES = {
    "data/private/train.parquet": "rows", "data/synthetic/inf.jsonl": "a reference's", "data/raw/public.jsonl": "",
    "data/raw/facts.json": "facts", "models/inf/lm/model.safetensors": "weights",
    "models/inf/lm/tokenizer.json": "words",
    "models/inf/head.safetensors": "head", "models/base/model.safetensors": "base", "reports/internal.html": "page",
    "models/checkpoints/a.safetensors": "half way",
}  # fmt: skip


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Own:
    """A workspace that has run, and is the working directory; its private file lies beside it."""
    for name, content in FILES.items():
        (tmp_path / "home" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "home" / name).write_text(content)
    (tmp_path / "tickets.csv").write_text("raw rows")
    monkeypatch.chdir(tmp_path / "home")
    return Own(Path(), (tmp_path / "tickets.csv",))


@pytest.fixture
def public(tmp_path: Path, own: Own) -> Path:
    """A folder elsewhere with a model that is public."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "model.safetensors").write_text("public!")  # as long as the private weights
    shutil.copy("models/inf/lm/tokenizer.json", folder)  # a fitted model keeps the public tokenizer
    shutil.copy("models/base/model.safetensors", folder / "more.safetensors")  # and the base may be the model as it is
    (folder / "empty").touch()
    Path("data/private/empty").touch()
    return folder


def refused(own: Own, place: Path | str) -> str:
    """Why: for its path, or as a copy; "" where it is not."""
    try:
        require_public(MODEL, Path(place), own)
    except DataError as error:
        assert_told(error)
        return "copy" if "copy" in error.problem else "path"
    return ""


def assert_told(error: DataError) -> None:
    assert error.problem.startswith("models.lm in params.yaml points at")
    assert error.remedy


@pytest.mark.parametrize(
    "place",
    [
        "models/inf/lm", "models/inf", "./models/inf/../inf/lm", "models", "models/later", "models/base",
        "data/private/train.parquet", "data/private", "data/synthetic/inf.jsonl", "data/raw/facts.json", "data", ".",
        "..", "reports", ".dvc/cache/files", "../tickets.csv", "../home/models/inf/lm", "/",
    ],
)  # fmt: skip
@pytest.mark.parametrize("absolute", [True, False])
def test_what_the_workspace_holds_is_not_public(own: Own, place: str, absolute: bool):
    assert refused(own, Path(place).absolute() if absolute else place) == "path"


def link_of_it(public: Path) -> Path:
    (public.parent / "link").symlink_to("home/models/inf/lm")
    return public.parent / "link"


def link_of_a_link(public: Path) -> Path:
    (public.parent / "second").symlink_to(link_of_it(public))
    return public.parent / "second"


def link_above_it(public: Path) -> Path:
    (public.parent / "link").symlink_to("home")
    return public.parent / "link/models/inf/lm"


def linked_file(public: Path) -> Path:
    (public / "weights").symlink_to(Path("models/checkpoints/a.safetensors").absolute())
    return public


def linked_folder(public: Path) -> Path:
    (public / "inner").symlink_to(Path("models/inf").absolute())
    return public


@pytest.mark.parametrize("linked", [link_of_it, link_of_a_link, link_above_it, linked_file, linked_folder])
def test_links_lead_nowhere_else(own: Own, public: Path, linked: Callable[[Path], Path]):
    assert refused(own, linked(public)) == "path"


def test_what_a_link_in_the_workspace_leads_to_is_a_copy(own: Own, public: Path):
    shutil.move("models/inf", public.parent / "moved")
    Path("models/inf").symlink_to(public.parent / "moved")
    assert refused(own, public.parent / "moved/lm") == "copy"


def test_a_workspace_behind_a_link_is_the_same_workspace(own: Own, public: Path):
    (public.parent / "other").symlink_to("home")
    assert refused(Own(public.parent / "other", own.inputs), Path("models/inf/lm").absolute()) == "path"
    assert refused(Own(Path.cwd(), own.inputs), public.parent / "other/models/inf/lm") == "path"


@pytest.mark.parametrize(
    "file",
    [
        "models/inf/lm/model.safetensors", "models/inf/head.safetensors", "models/checkpoints/a.safetensors",
        "data/private/train.parquet", "data/synthetic/inf.jsonl", "data/raw/facts.json", "../tickets.csv",
    ],
)  # fmt: skip
@pytest.mark.parametrize("copied", [shutil.copy, os.link])
def test_a_copy_elsewhere_is_not_public(own: Own, public: Path, file: str, copied: Callable[[str, Path], object]):
    copied(file, public / "renamed.bin")
    assert refused(own, public) == "copy"
    assert refused(own, public / "renamed.bin") == "copy"


def emptied_of_its_head(copy: Path) -> Path:
    (copy / "head.safetensors").unlink()
    return copy


def with_more_beside_it(copy: Path) -> Path:
    (copy / "more.safetensors").write_text("public!")
    return copy


@pytest.mark.parametrize(
    "place", [lambda copy: copy, lambda copy: copy / "lm", emptied_of_its_head, with_more_beside_it]
)
def test_a_copy_of_a_fitted_model_that_is_gone_is_known_by_its_weights(
    own: Own, public: Path, place: Callable[[Path], Path]
):
    shutil.copytree("models/inf", public / "inf")
    fitted = frozenset(map(sha256, weights_of(Path("models/inf").rglob("*"))))
    shutil.rmtree("models/inf")
    found = place(public / "inf")
    assert not refused(own, found)
    assert refused(Own(Path(), own.inputs, fitted), found) == "copy"


def test_what_is_public_is_not_refused(own: Own, public: Path):
    assert not refused(own, public)
    assert not refused(own, "data/raw/public.jsonl")
    assert not refused(own, public / "nothing/here")
    assert not refused(own, "someone/model")


def test_a_model_s_fingerprint_covers_what_its_folders_are_linked_to(tmp_path: Path):
    """As encoders lie in a hub's cache; a digest that does not enter a link would never see other weights."""
    for folder in ("model", "shared"):
        (tmp_path / folder).mkdir()
    (tmp_path / "model/modules.json").write_text("[]")
    (tmp_path / "model/0_Transformer").symlink_to(tmp_path / "shared")
    (tmp_path / "shared/model.safetensors").write_bytes(b"one")
    before = [of(tmp_path / "model") for of in (fingerprint_of, contents_of, weights)]
    (tmp_path / "shared/model.safetensors").write_bytes(b"two")
    after = [of(tmp_path / "model") for of in (fingerprint_of, contents_of, weights)]
    assert all(one != other for one, other in zip(before, after, strict=True))


def test_links_in_a_circle_come_to_an_end(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/file").touch()
    (tmp_path / "a/again").symlink_to(tmp_path)
    assert [path.name for path in files_of(tmp_path)] == ["file"]
