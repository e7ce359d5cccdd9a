"""What is private and named as public is refused: by the commands before a charge, and by the stage that loads it."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import palimpsest_lab.stages.incontext_eval
import stages.downstream_eval
import stages.inputs
import stages.next_token_base
import stages.preprocess
import stages.pretrain
import stages.public_eval
import stages.tools
from palimpsest.cli.main import app
from palimpsest.errors import DataError, ModelError
from palimpsest.files import read_json
from palimpsest.methods.evolve.declaration import EVOLVE
from palimpsest.methods.shared.method import Reads
from palimpsest.params.load import load
from palimpsest.params.schema import Params
from palimpsest_lab.audits.incontext_settings import InContext
from palimpsest_lab.twins.attacks import save_base, save_encoder
from stages.resuming import note_fitted
from stages.spenders import Spender
from stages.tools import Artifacts
from stages.vouching import describe_sources, require_vouched, resolve_vouched
from tests.models.chat.asked import LENGTH, PROMPTS
from tests.pipeline.place import Place

pytestmark = [pytest.mark.xdist_group("pipeline"), pytest.mark.timeout(900)]

REFERENCE = Path("models/inf/lm")
AUTHOR = {
    "kind": "local", "batch": 1, "temperature": 1.0, "top_p": 1.0, "tries": 1, "prompts": PROMPTS, "length": LENGTH,
}  # fmt: skip


@pytest.fixture(scope="module")
def furnished(made: Place, copy: Callable[[Place], Place]) -> Place:
    """A workspace with a reference's weights in it, and an encoder beside it; nothing has run."""
    place = copy(made)
    save_base(["a", "b"], 1.0, 1, place.workspace / REFERENCE)
    save_encoder(["a", "b"], place.home / "encoder")
    return place


@pytest.fixture
def place(furnished: Place, copy: Callable[[Place], Place], entered: Callable[[Place], Place]) -> Place:
    """A test's own copy of it, entered."""
    return entered(copy(furnished))


def models(key: str) -> Callable[[Place, str], None]:
    return lambda place, path: place.edit("models", **{key: path})


def judge(place: Place, path: str) -> None:
    place.edit("models", judge={"kind": "local", "model": path})


def author(place: Place, path: str) -> None:
    place.edit("authors", here={**AUTHOR, "model": path})


def text(key: str) -> Callable[[Place, str], None]:
    return lambda place, path: place.edit("dataset", **{key: path})


def _classify(params: Params) -> None:
    nothing = stages.downstream_eval.Part([], asset=False)
    stages.downstream_eval.Judges(params)._finetuned(nothing, nothing, ())  # noqa: SLF001


def written_by_here(params: Params) -> Artifacts:
    """What a variant is built with whose author is `here`."""
    method = replace(EVOLVE, reads=frozenset({Reads.AUTHOR}))
    target = next(row for row in params.charged.values() if row.purpose == "release")
    return Artifacts(params, Spender("v", "here", method, None, target), resolve_vouched)


# Key of params.yaml -> how to set it, what is private, and the code of the stage that loads it.
SOURCES: dict[str, tuple[Callable[[Place, str], None], str, Callable[[Params], Any]]] = {
    "models.lm": (models("lm"), "models", lambda _: stages.pretrain.run()),
    "models.encoder": (models("encoder"), "models", stages.tools.encoders),
    "models.classifier": (models("classifier"), "models", _classify),
    "models.judge.model": (
        judge, "models", lambda params: palimpsest_lab.stages.incontext_eval.judge_of(params, InContext(), "real"),
    ),
    "models.next_token": (models("next_token"), "models", lambda _: stages.next_token_base.run()),
    "authors.here.model": (author, "models", lambda params: written_by_here(params).author_model()),
    "dataset.public": (text("public"), "rows", stages.preprocess.write_public_rows),
    "dataset.public_test": (text("public_test"), "rows", stages.public_eval.public_test),
}  # fmt: skip


def own(place: Place, key: str) -> Path:
    """What is private and could be named there."""
    return REFERENCE.absolute() if SOURCES[key][1] == "models" else place.private


def elsewhere(place: Place, key: str) -> Path:
    """A copy of it under another name."""
    source, target = own(place, key), place.home / "innocent"
    return Path(shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target))


def linked(place: Place, key: str) -> Path:
    (place.home / "linked").symlink_to(own(place, key))
    return place.home / "linked"


PLACES = {"itself": own, "a link": linked, "a copy": elsewhere}
# Each key once; how it comes to something private is found out by one code for all models, and one for all rows.
NAMED = [("itself", key) for key in SOURCES]
NAMED += [(how, key) for how in ("a link", "a copy") for key in ("models.lm", "dataset.public")]


@pytest.fixture(params=NAMED, ids="-".join)
def key(request: pytest.FixtureRequest, place: Place) -> str:
    """A key of params.yaml, which names something private in the workspace of the test."""
    how, key = request.param
    SOURCES[key][0](place, str(PLACES[how](place, key)))
    return str(key)


def test_the_commands_refuse_it_before_anything_is_charged(place: Place, key: str, monkeypatch: pytest.MonkeyPatch):
    head = place.ledger.head()
    monkeypatch.delattr("palimpsest.work.run.forget_failed")  # with which `run` begins once its checks have passed
    for command in ("run", "plan"):
        done = CliRunner().invoke(app, [command, "--workspace", str(place.workspace)])
        assert done.exit_code == 1
        assert done.stderr.startswith(f"error: {key} in params.yaml points at ")
        assert "\n  what to do: " in done.stderr
    assert place.ledger.head() == head
    assert not place.files("data", "reports")


def test_the_stage_that_loads_it_refuses_it(place: Place, key: str):
    with pytest.raises(DataError, match=f"{key} in params.yaml points at"):
        SOURCES[key][2](load())
    assert not place.files("data/public", "models/base")


def test_the_first_stage_refuses_it(place: Place, key: str):
    code, output = place.stage(stages.inputs)
    assert code == 1
    assert f"error: {key} in params.yaml points at" in output


def test_init_refuses_it(place: Place, tmp_path: Path):
    options = ["--text", "body", "--label", "team", "--labels", "a,b", "--rows-about", "400", "--asset", "another"]
    shutil.copy(place.private, tmp_path / "innocent.csv")
    (tmp_path / "linked.csv").symlink_to(place.private)
    itself, copied = "error: --public is the same file as DATA", "error: --public points at a copy of private rows"
    refused = {place.private: itself, tmp_path / "linked.csv": itself, tmp_path / "innocent.csv": copied}
    for public, said in refused.items():
        own = ["--epsilon", "1", "--workspace", str(tmp_path / "new"), "--public", str(public)]
        done = CliRunner().invoke(app, ["init", str(place.private), *options, *own])
        assert (done.exit_code, done.stderr[: len(said)]) == (1, said)
    assert not (tmp_path / "new").exists()


def test_a_workspace_is_checked_from_wherever_one_stands(place: Place, monkeypatch: pytest.MonkeyPatch):
    place.edit("models", lm=REFERENCE.as_posix())
    params = load()
    monkeypatch.chdir(place.home)
    with pytest.raises(DataError):
        require_vouched(params, place.workspace)


def test_a_fitted_model_that_is_gone_is_known_by_its_weights(place: Place):
    place.edit("models", lm=str(elsewhere(place, "models.lm")))
    note_fitted(Path("models/inf"))
    note_fitted(Path("models/base"))  # what was noted before stays
    shutil.rmtree("models/inf")
    with pytest.raises(DataError):
        resolve_vouched(load(), "models.lm")


def test_what_is_public_is_loaded(place: Place):
    place.edit("models", encoder=str(place.home / "encoder"))
    require_vouched(load())
    assert resolve_vouched(load(), "models.encoder") == place.home / "encoder"
    assert resolve_vouched(load(), "dataset.public").read_text() == place.public.read_text()


def test_a_hub_model_without_a_commit_is_refused_before_anything_runs(place: Place):
    place.edit("models", encoder="someone/encoder")
    with pytest.raises(ModelError, match="not pinned to a commit"):
        require_vouched(load())
    place.edit("models", encoder=f"someone/encoder@{'0' * 40}", classifier="someone/nobody-reads-it")
    require_vouched(load())


# What is written down of it.


def test_a_folder_that_changes_is_told_to_the_stages_that_read_it_alone(place: Place):
    place.edit("models", encoder=str(place.home / "encoder"))
    assert place.stage(stages.inputs)[0] == 0
    before = stages.inputs.contents()
    assert read_json("data/inputs/sources/models.encoder.json")["name"] == str(place.home / "encoder")
    save_encoder(["a", "c"], place.home / "encoder")
    after = stages.inputs.contents()
    assert stages.inputs.is_outdated(Path())
    assert [path for path in after if before[path] != after[path]] == ["data/inputs/sources/models.encoder.json"]


def test_what_a_method_does_not_declare_is_not_handed_out(place: Place):
    author(place, str(place.home / "author"))
    with pytest.raises(ValueError, match="evolve does not declare that it reads the public language model"):
        written_by_here(load()).base()


def test_the_statement_is_not_told_where_a_source_lies(place: Place):
    place.edit("models", encoder=str(place.home / "encoder"))
    found = {source["source"]: source for source in describe_sources(load())}
    assert found["models.encoder"]["name"] == "a local model"
    assert found["dataset.public"]["name"] == "a local text"
    assert len(found["dataset.public"]["sha256"]) == len(found["models.encoder"]["sha256"]) == 64
    assert str(place.home) not in json.dumps(list(found.values()))
