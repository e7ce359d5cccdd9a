"""A small world of authors from the private file to the pages: one coin, one guess and one count a person."""

import csv
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from palimpsest.files import read_json, write_json
from palimpsest.generators.dp_lm.artifact import DpLmArtifact
from palimpsest.generators.dp_lm.model import new_model
from palimpsest.generators.dp_lm.serialise import serialiser
from palimpsest.models.lm import train
from palimpsest.params.load import LEDGER_VARIABLE, load
from palimpsest.params.schema import Params
from palimpsest.records.private import SplitRow
from palimpsest.records.record import Record
from palimpsest.records.write import read_split, write_synthetic
from stages.audited import guessed, one_row_each
from stages.common import BASE_LM, METRICS, MODELS, RECEIPTS, SYNTHETIC
from stages.downstream_eval import private_test
from stages.shadow_mia import prompted
from tests.pipeline.conftest import MOST_ROWS, N_PUBLIC, PERSONS
from tests.pipeline.place import VARIANT, Place
from tests.receipts import a_receipt

pytestmark = [pytest.mark.xdist_group("pipeline"), pytest.mark.timeout(900)]

PARTS = ("train", "holdout", "test")
GUESSED = 120  # persons, about
SELECTED = "select0_5"
MODELLED = {"mia": "membership", "shadow_mia": "shadow_membership"}
BY_ROWS = {
    "text_mia": "text_membership", "anonymity_audit": "anonymity", "memorisation_audit": "memorisation",
    "ngram_audit": "ngrams", "fidelity_audit": "fidelity",
}  # fmt: skip


@pytest.fixture(scope="module")
def place(made_for_persons: Place, copy: Callable[[Place], Place]) -> Iterator[Place]:
    """The workspace after a whole `dvc repro`, with a model and rows beside it that give their members away."""
    place = copy(made_for_persons)
    place.edit("audit", size=GUESSED)
    nothing: dict[str, object] = {"dp_train": [], "dp_lm": {}, "teach_similar": [], "private_predict": {}}
    place.edit("run", **nothing, select=[SELECTED], twins=["select"], evaluate=[SELECTED], audit=[SELECTED])
    place.edit("run", embedding_audit=["base"])
    place.edit("variants", SELECTED, "select", rows=60, batch=64)
    code, output = place.run("dvc", "repro")
    assert code == 0, output
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place.workspace)
        patch.setenv(LEDGER_VARIABLE, str(place.books))
        place.edit("privacy", "budget", delta=1e-6)  # so few guesses could refute nothing at a larger one
        leak(load())
        yield place


def leak(params: Params) -> None:
    """A model that learned the training rows by heart, rows that repeat one of every second person, and a receipt."""
    rows = [Record(row.text, row.label) for row in read_split("data/private/train.parquet")]
    model, tokenizer = new_model(BASE_LM, len(params.dataset.labels), 1, params.seed)
    sequences = prompted(serialiser(tokenizer, tuple(params.dataset.labels), 24, "text"), rows)
    settings = params.models.prompts.model_copy(update={"epochs": 60, "learning_rate": 0.01})
    train(model.lm.train(), sequences, settings, 0, private=True)
    model.lm.eval()
    shares = dict.fromkeys(params.dataset.labels, 1.0 / len(params.dataset.labels))
    DpLmArtifact(model, tokenizer, shares, 24, "text").save(MODELS / VARIANT)
    copied = [Record(row.text, row.label) for row in one_row_each("train")[::2]]
    write_synthetic(copied, SYNTHETIC / VARIANT, params.dataset.text, params.dataset.label)
    write_json(RECEIPTS / f"{VARIANT}.json", a_receipt(variant=VARIANT, epsilon=0.5).to_json())


@pytest.fixture(scope="module")
def metrics(place: Place) -> dict[str, dict[str, Any]]:
    """Metric file -> what the audits wrote."""
    for name in MODELLED:
        assert place.stage(import_module(f"stages.{name}"), VARIANT, VARIANT)[0] == 0
    for name in BY_ROWS:
        code, output = place.stage(import_module(f"stages.{name}"), VARIANT)
        assert code == 0, output
    files = [*MODELLED.values(), *BY_ROWS.values()]
    return {name: read_json(METRICS / VARIANT / f"{name}.json") for name in files}


def splits() -> dict[str, list[SplitRow]]:
    return {part: read_split(f"data/private/{part}.parquet") for part in PARTS}


def persons(rows: list[SplitRow]) -> set[str | None]:
    return {row.person for row in rows}


def test_all_rows_of_a_person_are_in_one_part_and_at_most_so_many(place: Place):
    parts = splits()
    everyone = [row.person for rows in parts.values() for row in rows]
    assert None not in everyone
    assert sum(len(persons(rows)) for rows in parts.values()) == len(set(everyone)) == PERSONS
    assert max(Counter(everyone).values()) == MOST_ROWS
    assert len(everyone) < N_PUBLIC


def test_ids_are_keyed_and_name_nobody(place: Place):
    with place.private.open(newline="") as stream:
        names = {row["customer"] for row in csv.DictReader(stream)}
    found = {person for rows in splits().values() for person in persons(rows)}
    assert len(found) == len(names)
    assert found.isdisjoint(names)
    files = [path for path in Path("data/private").glob("*.parquet")]
    assert not any(name.encode() in path.read_bytes() for path in files for name in names)


def test_every_audit_counts_persons(metrics: dict[str, dict[str, Any]]):
    guess = guessed()
    members, others = guess.units.members, len(guess.units) - guess.units.members
    assert {name: audit["unit"] for name, audit in metrics.items()} == dict.fromkeys(metrics, "person")
    for name in ("membership", "shadow_membership", "text_membership", "anonymity"):
        assert (metrics[name]["members"], metrics[name]["nonmembers"]) == (members, others)
    for name in ("membership", "shadow_membership", "text_membership"):
        assert metrics[name]["epsilon_lower"]["canaries"] == members + others < len(guess.units.owner)
    for evidence in metrics["anonymity"]["attacks"].values():
        assert (evidence["main"]["n"], evidence["control"]["n"]) == (members, others)
    repeated = metrics["memorisation"]["near_duplicates"]["records"]
    assert (repeated["exposed"]["n"], repeated["control"]["n"]) == (members, others)


def test_leaks_are_found_across_the_rows_of_a_person(metrics: dict[str, dict[str, Any]]):
    for name in ("membership", "text_membership"):
        assert metrics[name]["epsilon_lower"]["value"] > metrics[name]["claim"]
    assert metrics["memorisation"]["near_duplicates"]["records"]["excess"]["p"] < 1e-3
    assert metrics["ngrams"]["orders"]["7"]["excess"]["p"] < 0.01


def test_a_released_variant_is_charged_and_stated_for_persons(place: Place):
    document = read_json("reports/statement.json")
    assert document["unit"]["name"] == "person", document["unit"]
    receipt = read_json(f"reports/receipts/{SELECTED}.json")
    assert (receipt["unit"], receipt["epsilon"] <= 0.5) == ("person", True)
    for audit in BY_ROWS.values():
        assert read_json(METRICS / SELECTED / f"{audit}.json")["unit"] == "person"
    assert (place.ledger.asset("tickets").unit, place.ledger.asset("tickets").unit_column) == ("person", "customer")


def test_the_twins_of_such_a_workspace_are_records_of_their_own(place: Place):
    assert read_json(METRICS / "twins" / "select.json")["verdict"] == "not refuted"


def test_evaluations_read_one_row_a_person(place: Place):
    assert [row.person for row in one_row_each("train")] == list(dict.fromkeys(row.person for row in splits()["train"]))
    assert len(private_test()) == len(persons(splits()["test"])) < len(splits()["test"])
