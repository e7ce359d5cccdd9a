"""A small world of authors from the private file to the pages: one coin, one guess and one count a person."""

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import stages.fit
from palimpsest.audit.utility import ClassifierAudit
from palimpsest.cli.main import app
from palimpsest.cli.release import verify_workspace
from palimpsest.files import read_json, write_json
from palimpsest.methods.dp_lm.model import DpLmArtifact, new_model
from palimpsest.methods.dp_lm.serialise import serialiser
from palimpsest.models.lm import train
from palimpsest.params.load import load
from palimpsest.params.schema import Params
from palimpsest.records.private import SplitRow
from palimpsest.records.record import Record
from palimpsest.records.write import read_split, write_synthetic
from palimpsest.report.release import keys, word
from palimpsest.report.statement import STATEMENT_VERSION
from palimpsest.workspace import BASE_LM, CLASSIFIER_METRICS, METRICS, MODEL_RECEIPTS, MODELS, PAGE, RECEIPTS, SYNTHETIC
from palimpsest_lab.stages.shadow_mia import encode_prompted
from stages.audited import load_guessed, read_one_each, records_of
from tests.pipeline.conftest import MOST_ROWS, N_PUBLIC, PERSONS
from tests.pipeline.place import VARIANT, WRITTEN, Place
from tests.receipts import a_receipt

pytestmark = [pytest.mark.xdist_group("pipeline"), pytest.mark.timeout(900)]

PARTS = ("train", "holdout", "test")
GUESSED = 120  # persons, about
LEAK = "leak"
SELECTED, EVOLVED, DEEP, JUDGE = "select0_5", "evolve0_5", "sentdp0_5", "judge0_5"
RELEASED = (VARIANT, EVOLVED)
MADE = {
    VARIANT: ["discriminator", "label_histogram", "train"],
    WRITTEN: ["class_means", "label_histogram", *(f"predict wave {number}" for number in range(4))],
    SELECTED: ["class_means", "label_histogram"],
    EVOLVED: ["class_means", "label_histogram", "vote rounds"],
    DEEP: ["depth_picks", "label_histogram"],
}  # fmt: skip
MODELLED = {"stages.mia": "membership", "palimpsest_lab.stages.shadow_mia": "shadow_membership"}
BY_ROWS = {
    "text_mia": "text_membership", "anonymity_audit": "anonymity", "memorisation_audit": "memorisation",
    "ngram_audit": "ngrams", "fidelity_audit": "fidelity",
}  # fmt: skip


@pytest.fixture(scope="module")
def ran(made_for_persons: Place, copy: Callable[[Place], Place]) -> Place:
    """The workspace after all stages of a variant of each kind, released under a key of its own."""
    place = copy(made_for_persons)
    place.edit("audit", size=GUESSED)
    _judged(place)
    place.edit("variants", WRITTEN, batch_size=8, tokens=24, **{"from": "base"})
    place.edit("variants", WRITTEN, "class_means", keep=0.9)
    votes = {"neighbours": 3, "threshold": 0.0, "selection": "rank"}
    place.edit("authors", base={"kind": "base", "max_tokens": 12})
    own = {
        SELECTED: {"method": "select", "rows": 60},
        EVOLVED: {"method": "evolve", "rows": 40, "rounds": 2, "expand": 2, "votes": votes},
        DEEP: {"method": "sentdp", "rows": 40, "directions": 10},
    }
    place.edit("variants", **{name: {**said, "epsilon": 0.5, "batch": 64} for name, said in own.items()})
    place.edit("runs", evaluate=list(MADE), audit=[WRITTEN], embedding_audit=["base"])
    place.edit("release", variants=list(RELEASED))
    keys.new_key(place.home / "release.pem")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(word.VARIABLE, word.YES)
        patch.setenv(keys.VARIABLE, str(place.home / "release.pem"))
        place.everything()
    return place


def _judged(place: Place) -> None:
    """The language model has half of epsilon, a discriminator on the public encoder the rest."""
    place.edit("lms", VARIANT, epsilon=0.25)
    training = {"epochs": 2, "batch": PERSONS, "max_tokens": 24, "micro_batch": 64}
    place.edit("discriminators", **{JUDGE: {"from": VARIANT, "epsilon": 0.5, **training}})
    place.edit("variants", VARIANT, variant="filter", best_of=2, **{"from": JUDGE})


@pytest.fixture(scope="module")
def place(ran: Place, copy: Callable[[Place], Place]) -> Iterator[Place]:
    """A copy, entered, with a model and rows beside the others that give their members away."""
    place = copy(ran)
    with place.entered():
        place.edit("privacy", "budget", delta=1e-6)  # so few guesses could refute nothing at a larger one
        leak(load())
        yield place


def leak(params: Params) -> None:
    """A model that learned the training rows by heart, rows that repeat one of every second person, and a receipt."""
    rows = [Record(row.text, row.label) for row in read_split("data/private/train.parquet")]
    model, tokenizer = new_model(BASE_LM, len(params.dataset.labels), 1, params.seed)
    sequences = encode_prompted(serialiser(tokenizer, tuple(params.dataset.labels), 24, "text"), rows)
    settings = params.models.prompts.model_copy(update={"epochs": 60, "learning_rate": 0.01})
    train(model.lm.train(), sequences, settings, 0, private=True)
    model.lm.eval()
    shares = dict.fromkeys(params.dataset.labels, 1.0 / len(params.dataset.labels))
    DpLmArtifact(model, tokenizer, shares, 24, "text").save(MODELS / LEAK)
    copied = [Record(row.text, row.label) for row in read_one_each("train")[::2]]
    write_synthetic(copied, SYNTHETIC / LEAK, params.dataset.text, params.dataset.label)
    write_json(RECEIPTS / f"{LEAK}.json", a_receipt(variant=LEAK, epsilon=0.5).to_json())


@pytest.fixture(scope="module")
def metrics(place: Place) -> dict[str, dict[str, Any]]:
    """Metric file -> what the audits wrote."""
    for name in MODELLED:
        assert place.stage(import_module(name), LEAK, LEAK)[0] == 0
    for name in BY_ROWS:
        code, output = place.stage(import_module(f"stages.{name}"), LEAK)
        assert code == 0, output
    files = [*MODELLED.values(), *BY_ROWS.values()]
    return {name: read_json(METRICS / LEAK / f"{name}.json") for name in files}


def shown(page: Path) -> str:
    """The text of a page, without its scripts and styles."""
    without = re.sub(r"<(script|style|svg)\b.*?</\1>", " ", page.read_text(), flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", without).split())


def splits() -> dict[str, list[SplitRow]]:
    return {part: read_split(f"data/private/{part}.parquet") for part in PARTS}


def persons(rows: list[SplitRow]) -> set[str | None]:
    return {row.person for row in rows}


def test_a_private_classifier_is_scored_on_one_row_a_person_at_its_epsilon(ran: Place):
    found = ClassifierAudit.from_json(read_json(ran.workspace / CLASSIFIER_METRICS / f"{JUDGE}.json"))
    receipt = read_json(ran.workspace / MODEL_RECEIPTS / f"{JUDGE}.json")
    known = read_json(ran.workspace / METRICS / VARIANT / "utility.json")
    assert (found.epsilon, found.beside) == (receipt["epsilon"], "tfidf_lr")
    assert found.epsilon is not None
    assert 0.4 < found.epsilon <= 0.5
    assert found.test_rows == known["test_rows"]
    assert found.scored.retention is not None
    assert JUDGE in shown(ran.workspace / PAGE)


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
    guess = load_guessed()
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


def test_every_variant_is_charged_for_persons(ran: Place):
    asset = ran.ledger.asset("tickets")
    assert (asset.unit, asset.unit_column) == ("person", "customer")
    for name, queries in MADE.items():
        receipt = read_json(ran.workspace / f"reports/receipts/{name}.json")
        assert (receipt["unit"], receipt["adjacency"], receipt["epsilon"] <= 0.5) == ("person", "add_remove", True)
        assert sorted(query["name"] for query in receipt["queries"]) == queries
        assert [group["k"] for group in receipt["group"]] == [1, 2, 5, 10]


def test_the_audits_of_its_rows_count_persons(ran: Place):
    for audit in BY_ROWS.values():
        assert read_json(ran.workspace / METRICS / WRITTEN / f"{audit}.json")["unit"] == "person"


def test_statement_and_pages_speak_of_persons(ran: Place):
    document = read_json(ran.workspace / "reports/statement.json")
    assert (document["statement_version"], document["unit"]["name"]) == (STATEMENT_VERSION, "person")
    for page in ("reports/internal.html", "reports/card.html", "release/card.html"):
        text = shown(ran.workspace / page)
        assert "one person with all of their rows" in text
        assert not re.findall(r"one (?:whole )?record|records? of one person|A person with \d", text)


def test_the_release_is_signed_and_holds(ran: Place, entered: Callable[[Place], Place]):
    place = entered(ran)
    key = keys.fingerprint(keys.load_key(place.home / "release.pem").public_key())
    done = CliRunner().invoke(app, ["verify", str(place.workspace / "release"), "--key", key])
    assert done.exit_code == 0, done.output
    assert verify_workspace(place.workspace) == 0
    assert read_json(place.workspace / "release/statement.json")["unit"]["max_rows_per_person"] == MOST_ROWS


def test_nothing_goes_on_when_the_unit_column_is_taken_away(
    ran: Place, copy: Callable[[Place], Place], entered: Callable[[Place], Place]
):
    place = entered(copy(ran))
    place.edit("dataset", unit={"column": None, "max_rows": 1, "persons": None, "missing": "drop"})
    before = place.charges
    planned = CliRunner().invoke(app, ["plan", "--workspace", str(place.workspace)])
    code, output = place.stage(stages.fit, SELECTED)
    assert (planned.exit_code, code) == (1, 1)
    assert "unit" in output
    assert place.charges == before


def test_evaluations_read_one_row_a_person(place: Place):
    assert [row.person for row in read_one_each("train")] == list(
        dict.fromkeys(row.person for row in splits()["train"])
    )
    assert len(records_of("test")) == len(persons(splits()["test"])) < len(splits()["test"])
