"""A small workspace made the user's way and run once; every test works on a copy of it."""

import csv
import dataclasses
import json
import math
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.torch import save_file
from typer.testing import CliRunner

from palimpsest.cli.main import app
from palimpsest.models.sources import embedded_folder
from palimpsest.params.load import LEDGER_VARIABLE
from palimpsest.privacy.ledger.witness import VARIABLE as WITNESSES
from tests.pipeline.place import MARKER, VARIANT, WRITTEN, Place
from tools.world.generate import CUSTOMER, WorldSettings, make_world
from tools.world.grammar import LABELS

N_PUBLIC, PERSONS, MOST_ROWS = 400, 160, 4
_WORLD = WorldSettings(
    seed=3, private_rows=N_PUBLIC, test_rows=100, public_rows=200, public_test_rows=100, products=4, public_products=12,
    facts=8, support_low=10, support_high=60, public_pairs=40, canaries=4, canary_repeats=(1, 2, 4),
)  # fmt: skip


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first layer of the embedded encoder's six: a real one that reads a text in a sixth of the time."""
    folder = tmp_path_factory.mktemp("encoder") / "model"
    shutil.copytree(embedded_folder(), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1}))
    with safe_open(weights := folder / "model.safetensors", "pt") as stored:
        kept = {name: stored.get_tensor(name) for name in stored.keys() if not re.search(r"layer\.[1-5]\.", name)}  # noqa: SIM118
        save_file(kept, weights, stored.metadata())
    return folder


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory, encoder: Path) -> Place:
    """A workspace after `palimpsest init`, with settings small enough for a test; nothing has run."""
    return _initialised(Place(tmp_path_factory.mktemp("made")), _WORLD, encoder)


@pytest.fixture(scope="session")
def made_for_persons(tmp_path_factory: pytest.TempPathFactory, encoder: Path) -> Place:
    """The same on a world of authors, most of whom have several tickets: the person is the unit of privacy."""
    unit = {"unit": CUSTOMER, "max-rows": MOST_ROWS, "persons": PERSONS}
    place = Place(tmp_path_factory.mktemp("persons"))
    return _initialised(place, dataclasses.replace(_WORLD, authors=PERSONS), encoder, **unit)


def _initialised(place: Place, settings: WorldSettings, encoder: Path, **unit: object) -> Place:
    """Write the user's files and run `palimpsest init` with these options beside the usual ones."""
    world = make_world(settings)
    texts = [f"{row.text} {MARKER}" if number % 50 == 0 else row.text for number, row in enumerate(world.private)]
    with place.private.open("w", newline="") as stream:
        rows = csv.writer(stream)
        columns: dict[str, Sequence[object]] = {
            "id": range(len(texts)),
            "body": texts,
            "team": [row.label for row in world.private],
        }
        if settings.authors is not None:
            columns[CUSTOMER] = world.customers["private"]
        rows.writerow(columns)
        rows.writerows(zip(*columns.values(), strict=True))
    place.public.write_text("".join(json.dumps({"body": row.text}) + "\n" for row in world.public))
    options = {
        "text": "body", "label": "team", "labels": ",".join(LABELS), "public": place.public, "n-public": N_PUBLIC,
        "asset": "tickets", "epsilon": 0.5, "budget": 20, "method": "dp_lm", "workspace": place.workspace, **unit,
    }  # fmt: skip
    arguments = [str(part) for name, value in options.items() for part in (f"--{name}", value)]
    own = {LEDGER_VARIABLE: str(place.books), WITNESSES: str(place.home / "witnesses")}
    done = CliRunner().invoke(app, ["init", str(place.private), *arguments], env=own)
    assert done.exit_code == 0, done.output
    _shrink(place)
    place.edit("models", encoder=str(encoder))
    return place


def _shrink(place: Place) -> None:
    place.edit("models", "embedded_lm", layers=1, width=32, vocabulary=512, epochs=1)
    place.edit("models", "prompts", epochs=1, max_tokens=24)
    training = {"epochs": 1, "batch": 32, "prefix_step": 4, "max_tokens": 24}
    drawing = {"rows": 30, "iterations": 1, "max_tokens": 16}
    place.edit("lms", VARIANT, **training)
    place.edit("lms", inf={"epsilon": math.inf, **training})
    place.edit("variants", VARIANT, **drawing)
    place.edit("variants", inf={"method": "dp_lm", **drawing})
    place.edit("public_only", rows=50)
    place.edit("utility", evaluators=["tfidf_lr"])
    place.edit("audit", resamples=100)
    place.edit("audit", "separation", rows=40, trees=10, projections=["pca"])
    place.edit("taught", "similar", epochs=1, neighbours=1, max_tokens=16)
    written = {"method": "predict", "epsilon": 0.5, "from": "taught/similar", "batch_size": 40, "tokens": 16}
    place.edit("variants", **{WRITTEN: {**written, "max_tokens": 8, "together": 200}})
    place.edit("variants", WRITTEN, prompt={"text_tokens": 16}, class_means={"batch": 64, "share": 0.9})
    place.edit("runs", audit=[VARIANT], embedding_audit=["base", VARIANT])


@pytest.fixture(scope="session")
def ran(made: Place, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The same workspace after its first whole `dvc repro`, whose output is kept in `output.log`."""
    place = _copy(made, tmp_path_factory.mktemp("ran"))
    code, output = place.run("dvc", "repro")
    assert code == 0, output
    return place


def _copy(place: Place, home: Path) -> Place:
    shutil.copytree(place.home, home, dirs_exist_ok=True, symlinks=True)
    return Place(home)


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Place], Place]:
    """Make a copy of a place, cache and ledger included; params.yaml goes on naming the files of the first one."""
    return lambda place: _copy(place, tmp_path_factory.mktemp("copy"))


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> Callable[[Place], Place]:
    """Make a place the working directory and its ledger the ledger, as for a process started there."""

    def enter(place: Place) -> Place:
        monkeypatch.chdir(place.workspace)
        monkeypatch.setenv(LEDGER_VARIABLE, str(place.books))
        return place

    return enter


@pytest.fixture
def again(ran: Place, copy: Callable[[Place], Place], entered: Callable[[Place], Place]) -> Place:
    """A copy of the workspace that has run, entered."""
    return entered(copy(ran))
