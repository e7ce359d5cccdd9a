"""What leaves and what does not: a real run of the stage, and each reason to refuse one."""

import json
import os
import re
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from hashlib import md5
from pathlib import Path
from typing import Any

import dp_accounting as dpa
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_world import world_ledger
from ruamel.yaml import YAML

import palimpsest.report.twins
import stages.release
from palimpsest.cli.release import list_history
from palimpsest.errors import DataError, LedgerError, PalimpsestError, ParamsError
from palimpsest.files import read_json, write_json
from palimpsest.graph.taint import Flow, Node
from palimpsest.params.schema import ReleaseSettings
from palimpsest.privacy.ledger.records import Run
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.receipt import Receipt
from palimpsest.records import keyed
from palimpsest.records.record import Record
from palimpsest.records.vouched import sha256
from palimpsest.records.world.facts import load_facts
from palimpsest.records.write import read_synthetic, write_synthetic
from palimpsest.report.release import bundle, gates, word
from palimpsest.report.release.bundle import (
    ENVELOPE,
    PREDICATE,
    MeasuredDocuments,
    audit_document,
    digests,
    replace_folder,
)
from palimpsest.report.release.card import CONTEXT, read_epsilons
from palimpsest.report.release.check import verify_release
from palimpsest.report.release.extract import asset_of, caps_of, charges_of, extract, renumber_run, run_numbers
from palimpsest.report.release.keys import load_key, unseal
from palimpsest.report.release.prov import Inputs, provenance
from palimpsest.report.twins import read_shipped
from palimpsest.workspace import RELEASES, Zone
from tests.reading import EVERYTHING
from tests.receipts import a_receipt
from tests.report.release_world import (
    FILES,
    PRIVATE_HASHES,
    PUBLIC_HASHES,
    REFERENCE,
    SECRET,
    STAGES,
    VARIANT,
    Workspace,
    copied,
    graph,
    inside,
    released,
    settings,
)

Change = Callable[[Workspace], Any]
METRICS = f"reports/metrics/{VARIANT}"
RECEIPT = f"reports/receipts/{VARIANT}.json"


@pytest.fixture(scope="session")
def made() -> Workspace:
    return released()


@pytest.fixture
def own(made: Workspace, tmp_path: Path) -> Workspace:
    """A copy without its release."""
    found = copied(made, tmp_path)
    shutil.rmtree(found.folder / "release")
    return found


def texts(folder: Path) -> dict[str, str]:
    """Every file as text, whatever it is."""
    return {path.name: path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file()}


# What is in it.


def test_a_release_has_its_files_and_no_other(made: Workspace):
    found = {path.relative_to(made.folder / "release").as_posix() for path in (made.folder / "release").rglob("*")}
    assert found == {*FILES, "data", f"data/{VARIANT}.jsonl", f"data/{VARIANT}.parquet"}


def test_a_release_holds(made: Workspace):
    found = verify_release(made.folder / "release")
    assert (found.problems, found.pinned, len(found.checks)) == ([], False, 6)


@pytest.mark.parametrize("licence", [None, "CC-BY-4.0"])
def test_that_rows_are_public_texts_is_said_in_the_first_lines(licence: str | None, own: Workspace):
    own.edit("dataset", public_license=licence)
    with inside(own):
        stages.release.run()
    folder = own.folder / "release"
    said = (
        f"Rows of {VARIANT} are texts of the public file word for word. People may have written them, and no epsilon "
        f"covers these people. Licence of that file: {licence or 'not stated'}."
    )
    *_, text = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    assert text.split("\n")[1:4] == ["# Tickets, invented", "", said]
    described = read_json(folder / "croissant.json")
    assert described["description"].startswith(f"{said} Synthetic rows, computed")
    assert said in described["rai:personalSensitiveInformation"][0]
    page = (folder / "card.html").read_text(encoding="utf-8")
    assert page.partition("<nav")[0].count(said) == 1
    assert (page.count(said), "may be invented" in page) == (2, False)
    assert verify_release(folder).problems == []


def test_nothing_of_the_private_zone_is_in_it(made: Workspace):
    told = texts(made.folder / "release")
    private = [SECRET, "the vase arrived in shards", "7654321", "5123457", "987654", *PRIVATE_HASHES.values()]
    private += [made.ledger.asset("demo").key.hex(), str(made.folder)]
    assert [(name, what) for name, text in told.items() for what in private if what in text] == []


def test_the_private_input_goes_by_its_keyed_hash(made: Workspace):
    entities = read_json(made.folder / "release/prov.json")["entity"]
    (own,) = {charge.fingerprint for charge in made.ledger.charges("demo")}
    paid = [charge.id for charge in made.ledger.charges("demo") if charge.variant == VARIANT]
    mark = keyed.digest(made.ledger.asset("demo").key, "release", *sorted(paid), own).hex()
    assert entities["p:input/private"] == {"p:zone": "private", "p:keyed_hash": [mark]}
    assert entities["p:input/private-test"] == {"p:zone": "private"}
    assert entities["p:data/private/train.parquet"] == {}
    assert {name: entities[f"p:{name}"]["p:md5"] for name in PUBLIC_HASHES} == PUBLIC_HASHES
    told = texts(made.folder / "release")
    assert [name for name, text in told.items() if mark in text] == ["prov.json"]
    assert [name for name, text in told.items() if own in text] == []  # two equal ones tell that nobody came


def test_provenance_leads_from_the_input_to_the_rows(made: Workspace):
    found = read_json(made.folder / "release/prov.json")
    links = [*found["used"].values(), *found["wasGeneratedBy"].values()]
    assert all(link["prov:entity"] in found["entity"] and link["prov:activity"] in found["activity"] for link in links)
    used = {(link["prov:activity"], link["prov:entity"]) for link in found["used"].values()}
    made_by = {(link["prov:entity"], link["prov:activity"]) for link in found["wasGeneratedBy"].values()}
    assert ("p:preprocess", "p:input/private") in used
    assert ("p:data/private/train.parquet", "p:preprocess") in made_by
    assert (f"p:select@{VARIANT}", "p:data/private/train.parquet") in used
    assert ("p:release", f"p:data/synthetic/{VARIANT}.parquet") in used
    assert (f"p:release/data/{VARIANT}.parquet", "p:release") in made_by
    assert ("p:data/inputs", "p:inputs") in made_by
    assert ("p:public_eval", "p:data/inputs") in used
    assert not [name for name in found["entity"] if name.startswith("p:data/inputs/")]  # one file has one name
    assert found["activity"][f"p:select@{VARIANT}"]["p:metered"] is True
    assert not any(REFERENCE in name or "mia" in name for name in found["activity"])


def test_no_path_outside_the_workspace_and_no_private_hash_is_told():
    nodes = (
        Node("split", Zone.PRIVATE, ("/home/ann/rows.csv", "/shared/public.csv", "../other.csv"), ("data/private/a",)),
        Node("fit", Zone.PRIVATE, ("data/private/a",), ("models/fit",), receipt=True),
        Node("pack", Zone.DP, ("models/fit",), ("release",)),
    )
    flow = Flow(nodes, ("/home/ann/rows.csv",), frozenset({"fit"}), door=("data/private/a",))
    paths = ("/home/ann/rows.csv", "/shared/public.csv", "../other.csv", "data/private/a")
    lock = {"split": {"cmd": "x", "deps": [{"path": path, "md5": f"{n}" * 32} for n, path in enumerate(paths)]}}
    inputs = Inputs({"/home/ann/rows.csv": "input/private"}, {"/shared/public.csv": "input/public"}, {})
    found = json.dumps(provenance(flow, nodes[-1], lock, inputs, {}, "signer"))
    assert "ann" not in found
    assert "shared" not in found
    assert "other.csv" not in found
    assert ["0" * 32 in found, "1" * 32 in found, "2" * 32 in found, "3" * 32 in found] == [False, True, False, False]


def test_rows_leave_as_they_are_and_alone(own: Workspace, made: Workspace):
    data = made.params.dataset
    before = read_synthetic(made.folder / f"data/synthetic/{VARIANT}", data.text, data.label)
    assert read_synthetic(made.folder / f"release/data/{VARIANT}", data.text, data.label) == before
    table = pq.read_table(own.folder / f"data/synthetic/{VARIANT}.parquet")
    table = table.append_column("source", pa.array([SECRET] * len(table))).replace_schema_metadata({"note": SECRET})
    pq.write_table(table, own.folder / f"data/synthetic/{VARIANT}.parquet")
    (own.folder / f"data/synthetic/{VARIANT}.jsonl").write_text(json.dumps({"text": SECRET}) + "\n")
    with inside(own):
        rows = read_synthetic(f"data/synthetic/{VARIANT}", data.text, data.label)
        write_synthetic(rows, "again", data.text, data.label)
    for suffix in (".jsonl", ".parquet"):
        assert sha256(own.folder / f"again{suffix}") == sha256(made.folder / f"release/data/{VARIANT}{suffix}")


def test_the_audit_has_what_may_be_published(made: Workspace):
    found = read_json(made.folder / "release/audit.json")
    assert found["variants"][VARIANT]["generation"] == {"drawn": 15, "removed": {"length": 3}, "rows": 12}
    assert found["utility"]["variants"][VARIANT]["tfidf_lr"] == {"accuracy": 0.8125, "low": 0.78, "high": 0.84}
    (audit,), (told,) = found["end_to_end"].values(), read_json(made.folder / "release/statement.json")["end_to_end"]
    assert audit == {name: value for name, value in read_shipped()["select"].items() if name != "zone"}
    assert (told["method"], told["verdict"]) == ("select", "not refuted")
    for name in ("statement.json", "card.html"):
        assert told["sentence"] in (made.folder / "release" / name).read_text()
    assert found["scans"] == {"personal_data": {"rows": 12, "found": 0}, "planted_secrets": {"rows": 12, "found": 0}}
    assert "seconds" not in found["variants"][VARIANT]["receipt"]


def test_the_data_set_card_states_the_epsilon(made: Workspace):
    text = (made.folder / "release/README.md").read_text()
    assert read_epsilons(text) == {VARIANT: (read_json(made.folder / RECEIPT)["epsilon"], "record")}
    with pytest.raises(DataError):
        read_epsilons("# No front matter")


def test_croissant_describes_the_files(made: Workspace):
    found = read_json(made.folder / "release/croissant.json")
    assert found["@context"] == json.loads(json.dumps(CONTEXT))
    assert {"name", "description", "license", "url", "creator", "datePublished", "citeAs"} <= found.keys()
    files = {file["@id"]: file["sha256"] for file in found["distribution"]}
    assert files == {
        name: sha256(made.folder / "release" / name) for name in (f"data/{VARIANT}.jsonl", f"data/{VARIANT}.parquet")
    }
    (records,) = found["recordSet"]
    columns = {field["source"]["extract"]["column"] for field in records["field"]}
    table = pq.read_schema(made.folder / "release" / records["field"][0]["source"]["fileObject"]["@id"])
    assert columns == set(table.names)
    asked = ("dataCollection", "dataLimitations", "dataBiases", "dataUseCases", "personalSensitiveInformation")
    assert all(found[f"rai:{name}"] for name in asked)


def test_the_extract_tells_neither_the_data_nor_the_time(made: Workspace):
    found = read_json(made.folder / "release/ledger.json")
    own, reference = found["charges"]
    assert [(line["variant"], line["run_key"], len(line["day"])) for line in (own, reference)] == [
        (VARIANT, "run 1", 10), (REFERENCE, "run 2", 10),
    ]  # fmt: skip
    for line in (own, reference):
        assert {"fingerprint", "time", "steps", "steps_begun"}.isdisjoint(line)
    assert "key" not in found["asset"]
    assert all(len(cap["day"]) == 10 for cap in found["caps"])
    asset, charges = asset_of(found), charges_of(found)
    totals = {"shown_head": found["head"]} | {name: found[name] for name in ("spent_epsilon", "left_epsilon")}
    assert extract(asset, charges, replace(world_ledger(), **totals, caps=tuple(caps_of(found)))) == found


def leaving(made: Workspace, home: Path, *looks: str) -> dict[str, str]:
    """The texts of a release after another variant asked over each of these states of the rows, hashes apart."""
    home.mkdir()
    own, before = copied(made, home), made.ledger.charges("demo")
    for rows in looks:
        own.ledger.know_rows("demo", rows)
        run = Run("select", "another3", "release", fingerprint=rows, plan="p")
        asked = own.ledger.reserve("demo", run, [PlannedQuery("sums", dpa.GaussianDpEvent(60.0))], again=EVERYTHING)
        own.ledger.begin(asked.charges[0])
        own.ledger.commit(asked)
    own.ledger.know_rows("demo", f"{looks[-1]}, a test row more")
    with inside(own):
        stages.release.run()
    assert len(own.ledger.charges("demo")) == len(before) + len(looks)
    assert verify_release(own.folder / "release").problems == []
    told = texts(own.folder / "release")
    assert [name for name, text in told.items() if own.ledger.head() in text] == []
    return {
        name: re.sub(r"[0-9a-f]{32,}|\"payload\": ?\"[^\"]+\"|\"sig\": ?\"[^\"]+\"", "·", text)
        for name, text in told.items()
    }


def test_nothing_that_leaves_tells_whether_rows_changed_between_two_runs(made: Workspace, tmp_path: Path):
    """The charges are as many either way: that there is a second one is the statement's to name."""
    same, other = leaving(made, tmp_path / "a", "rows", "rows"), leaving(made, tmp_path / "b", "rows", "one more")
    assert [name for name, text in same.items() if text != other[name]] == []
    charges = json.loads(same["ledger.json"])["charges"]
    assert [(line["seq"], line["run"], line["run_key"]) for line in charges] == [
        (place, place, f"run {place}") for place in range(1, len(charges) + 1)
    ]


def test_the_receipt_that_leaves_has_the_run_of_the_extract(own: Workspace):
    """The repetition of a run of one key is another run there, as one of other rows is."""
    charges = own.ledger.charges("demo")
    receipt = Receipt.from_json(read_json(own.folder / RECEIPT))
    last = next(charge for charge in charges if charge.id == receipt.queries[-1].charge)
    again = [replace(charge, id=f"second {charge.id}", run=2) for charge in charges if charge.run_key == last.run_key]
    assert run_numbers([*charges, *again])[again[-1].id] == len({charge.run_key for charge in charges}) + 1
    assert renumber_run(replace(receipt, run=7), charges).run == run_numbers(charges)[last.id]


def test_every_look_and_every_cap_is_shown(own: Workspace):
    """What does not count is a look, too: a reference, a refund, and a run that began and was lost."""
    ledger, first = own.ledger, own.ledger.asset("demo").epsilon
    asked = [PlannedQuery("histogram", dpa.GaussianDpEvent(50.0))]
    run = partial(Run, "select", fingerprint="f")
    ledger.refund(ledger.reserve("demo", run(VARIANT, "release", plan="given back"), asked).charges)
    ledger.refund(ledger.reserve("demo", run(REFERENCE, "reference", plan="given back"), asked).charges)
    ledger.begin(ledger.reserve("demo", run(VARIANT, "release", plan="lost"), asked).charges[0])
    ledger.amend("demo", first + 2.5)
    with inside(own):
        stages.release.run()
    found = verify_release(own.folder / "release")
    assert found.problems == []
    assert [(charge.purpose, charge.state, charge.counted) for charge in found.charges] == [
        ("release", "committed", True), ("reference", "committed", False), ("release", "refunded", False),
        ("reference", "refunded", False), ("release", "begun", True),
    ]  # fmt: skip
    assert [cap.epsilon for cap in found.caps] == [first, first + 2.5]
    told, today = "\n".join(list_history(found)), found.caps[-1].time
    assert f"the cap was raised to epsilon {first + 2.5:g} on {today}" in told
    assert len(re.findall(r" of \d{4}-\d\d-\d\d: ", told)) == len(found.charges)
    assert "reference, refunded, not counted" in told
    assert "release, begun, counted" in told


# What is refused.


def refused(own: Workspace, chosen: ReleaseSettings | None = None) -> PalimpsestError:
    """The error with which the stage ends; no part of a folder is left, and the old one is untouched."""
    before = sorted(path.name for path in own.folder.iterdir())
    with inside(own), pytest.raises(PalimpsestError) as caught:
        stages.release.publish(own.params, chosen or settings())
    assert sorted(path.name for path in own.folder.iterdir()) == before
    assert caught.value.remedy
    return caught.value


def test_without_a_key_nothing_leaves(own: Workspace):
    own.key.unlink()
    assert "palimpsest keys new" in refused(own).remedy


@pytest.mark.parametrize("chosen", [[], [REFERENCE], ["unknown"], [VARIANT, "public_only"]])
def test_only_variants_with_purpose_release_leave(own: Workspace, chosen: list[str]):
    assert isinstance(refused(own, settings(variants=chosen)), ParamsError)


def test_fixed_noise_never_leaves(own: Workspace):
    own.edit("testing", noise_seed=1)
    assert "noise_seed" in refused(own).problem
    own.edit("testing", noise_seed=None)
    own.charge(seed=1)
    assert "fixed by a seed" in refused(own).problem
    own.change(RECEIPT, noise_fixed=False)
    assert "does not cover" in refused(own).problem


def smuggled(own: Workspace) -> None:
    """A reference run's receipt that says it is a release."""
    body = own.read(f"reports/receipts/{REFERENCE}.json")
    queries = [query | {"purpose": "release"} for query in body["queries"]]
    write_json(
        own.folder / RECEIPT, body | {"variant": VARIANT, "model": VARIANT, "purpose": "release", "queries": queries}
    )


def built(own: Workspace) -> None:
    """A release that names a reference's charge beside its own."""
    other = own.read(f"reports/receipts/{REFERENCE}.json")["queries"]
    own.change(RECEIPT, queries=[*other, *own.read(RECEIPT)["queries"]])


def built_quietly(own: Workspace) -> None:
    """The same, and its receipt says of that charge that it is a release's."""
    other = own.read(f"reports/receipts/{REFERENCE}.json")["queries"]
    own.change(RECEIPT, queries=[*({**line, "purpose": "release"} for line in other), *own.read(RECEIPT)["queries"]])


def forgotten(own: Workspace) -> None:
    """An older copy of the ledger is put back."""
    shutil.copytree(own.folder / ".palimpsest", own.folder / ".old")
    own.charge()
    shutil.rmtree(own.folder / ".palimpsest")
    (own.folder / ".old").rename(own.folder / ".palimpsest")


def second(own: Workspace) -> None:
    """The same variant was asked again, and its receipt is the first one's with the second one's charge."""
    first = own.read(RECEIPT)
    own.change(RECEIPT, queries=[own.charge()["queries"][0] | {"charge": first["queries"][0]["charge"]}], run=1)
    own.change(RECEIPT, epsilon=first["epsilon"] * 0.9)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (smuggled, "does not cover"),
        (built, "reference run"),
        (built_quietly, "is of a reference run, outside the total"),
        (forgotten, "lacks 1 of the entries"),
        (second, "does not cover"),
        (lambda own: own.change(RECEIPT, purpose="reference"), "reference run"),
        (lambda own: own.change(RECEIPT, epsilon=0.5), "epsilon is"),
        (lambda own: own.change(RECEIPT, delta=1e-9), "delta must be"),
        (lambda own: own.change(RECEIPT, curve={"alpha": [0, 1], "beta": [1, 0]}), "curve"),
        (lambda own: own.change(RECEIPT, group=[{"k": 2, "epsilon": 1.0}]), "groups"),
        (lambda own: own.change(RECEIPT, queries=[]), "does not know a charge"),
        (lambda own: own.change(RECEIPT, queries=own.read(RECEIPT)["queries"] * 2), "names a charge twice"),
        (lambda own: own.change(RECEIPT, epsilon_target=0.1), "above its target"),
    ],
)
def test_what_the_ledger_does_not_cover_never_leaves(own: Workspace, change: Change, told: str):
    change(own)
    error = refused(own)
    assert isinstance(error, LedgerError)
    assert told in error.problem


KINDS = (
    "membership", "text_membership", "shadow_membership", "memorisation", "fidelity", "anonymity", "ngrams", "utility",
    "facts",
)  # fmt: skip
PRIVATE = (
    *(f"reports/metrics/{name}/{kind}.json" for name in (VARIANT, REFERENCE, "real") for kind in KINDS),
    *(f"data/private/{name}" for name in ("train.parquet", "holdout.parquet", "test.parquet", "manifest.json")),
    "data/private/baselines.json", "data/raw/private.jsonl", "data/raw/test.jsonl", "reports/internal.html",
    f"data/synthetic/{REFERENCE}.parquet", f"reports/receipts/{REFERENCE}.json", "reports/summary.json",
)  # fmt: skip


def says(verdict: str) -> Change:
    return lambda own: _fill(own, f'{{"zone": "internal", "verdict": "{verdict}", "auc": 0.9}}')


def _fill(own: Workspace, text: str) -> None:
    for path in PRIVATE:
        (own.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (own.folder / path).write_text(text)
    word.record(own.folder, [VARIANT], True, text)
    lock = own.folder / "dvc.lock"
    lock.write_text(re.sub(r"(a[1-5])\1{15}", md5(text.encode()).hexdigest(), lock.read_text()))


def nothing_private(own: Workspace) -> None:
    for path in PRIVATE:
        (own.folder / path).unlink(missing_ok=True)


class Noon(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: Any = None) -> "Noon":
        return cls(2031, 5, 4, 12, tzinfo=tz)


def left(own: Workspace) -> dict[str, str]:
    """What a release leaves, file by file."""
    with inside(own), pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages.release, "datetime", Noon)
        stages.release.run()
    return digests(own.folder / "release")


STATES: dict[str, Change] = {
    "refuted": says("refuted"),
    "not refuted": says("not refuted"),
    "unreadable": lambda own: _fill(own, "\0 no document"),
    "absent": nothing_private,
}


@pytest.fixture(scope="session")
def undisturbed(made: Workspace, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files that a release leaves at that hour, where nothing was changed."""
    found = copied(made, tmp_path_factory.mktemp("usual"))
    shutil.rmtree(found.folder / "release", ignore_errors=True)
    return left(found)


@pytest.mark.parametrize("change", STATES.values(), ids=STATES)
def test_no_file_of_the_private_zone_can_stop_or_change_a_release(
    own: Workspace, undisturbed: dict[str, str], change: Change
):
    """A refusal would be an answer about private rows, and a draw after it another one, that nobody paid for."""
    shutil.rmtree(own.folder / "release", ignore_errors=True)
    change(own)
    assert left(own) == undisturbed


@pytest.mark.parametrize("given", [None, "", "no", "YES"])
@pytest.mark.parametrize("change", [*STATES.values(), lambda own: own.key.unlink()], ids=[*STATES, "no key"])
def test_without_the_owner_s_word_nothing_leaves(own: Workspace, given: str | None, change: Change):
    """The refusal is always the same one, whatever else would have been refused."""
    change(own)
    with inside(own), pytest.MonkeyPatch.context() as patch:
        patch.delenv(word.VARIABLE)
        if given is not None:
            patch.setenv(word.VARIABLE, given)
        with pytest.raises(DataError) as caught:
            stages.release.run()
    assert caught.value.problem == "Nothing was released: the owner of the data has not given their word for it."
    assert "PALIMPSEST_RELEASE=yes" in caught.value.remedy
    assert not (own.folder / "release").exists()


def test_the_public_record_of_the_word_is_one_sentence(made: Workspace):
    public = load_key(made.key).public_key()
    said = unseal((made.folder / "release" / ENVELOPE).read_bytes(), public).predicate
    assert said["word"] == "The owner of the data gave their word for this release."
    assert set(said) == set(PREDICATE)


def test_who_gave_the_word_and_why_is_for_the_owner_s_eyes(tmp_path: Path):
    umask = os.umask(0)
    try:
        word.record(tmp_path, ["dp3"], True, "a reason")
        word.record(tmp_path, ["dp3", "dp1"], False, None)
    finally:
        os.umask(umask)
    path = tmp_path / RELEASES
    first, second = map(json.loads, path.read_text().splitlines())
    assert (first["variants"], first["given"], first["reason"]) == (["dp3"], True, "a reason")
    assert (second["variants"], second["given"], second["reason"]) == (["dp3", "dp1"], False, None)
    assert first["who"]
    assert first["time"].endswith("+00:00")
    assert [stat.S_IMODE(one.stat().st_mode) for one in (path, path.parent)] == [0o600, 0o700]


def ships(own: Workspace, patch: pytest.MonkeyPatch, **audits: Any) -> None:
    """Let palimpsest come with these end-to-end audits."""
    write_json(own.folder.parent / "results.json", audits)
    patch.setattr(palimpsest.report.twins, "FILE", own.folder.parent / "results.json")


@pytest.mark.parametrize("zone", ["publishable", "internal"])
def test_code_that_was_refuted_end_to_end_releases_nothing(own: Workspace, zone: str, monkeypatch: pytest.MonkeyPatch):
    ships(own, monkeypatch, select={**read_shipped()["select"], "verdict": "refuted", "zone": zone})
    assert "method select refuted" in refused(own).problem


@pytest.mark.parametrize(
    "audits",
    [
        {},
        {"select": read_shipped()["select"] | {"verdict": "fine"}},
        {"select": read_shipped()["select"] | {"versions": {"encoder": 0}}},
    ],
)
def test_code_that_was_not_examined_end_to_end_releases_nothing(
    own: Workspace, audits: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    """No result, one without a verdict, and one of other code than is installed show nothing."""
    ships(own, monkeypatch, **audits)
    error = refused(own)
    assert error.problem == "Nothing was released. The installed code of method select was not examined end to end."
    assert "make twins" in error.remedy


def test_every_method_that_runs_must_be_examined_and_one_that_cannot_be_is_left_to_the_statement():
    audits = read_shipped()
    assert list(gates.check_attacks(["choose", "custext", *audits], audits)) == []
    (error,) = gates.check_attacks(["choose", "dp_lm", "select"], {"select": audits["select"]})
    assert "method dp_lm" in error.problem


def test_a_statement_that_promises_nothing_is_refused():
    for status in ("UNVERIFIED", "NOT PRIVATE", "NOTHING RELEASED"):
        (error,) = gates.check_promise({"status": status, "reasons": ["A reason."]})
        assert "A reason." in error.problem
    assert list(gates.check_promise({"status": "DIFFERENTIALLY PRIVATE", "reasons": []})) == []


def unmetered(own: Workspace) -> None:
    stage = graph()["select"]
    own.graph({"select": stage | {"meta": {"zone": "private"}}})


def unexplained(own: Workspace) -> None:
    stages = {name: stage for name, stage in graph().items() if name != "public_eval"}
    with (own.folder / "dvc.yaml").open("w", encoding="utf-8") as file:
        YAML(typ="safe", pure=True).dump({"stages": stages}, file)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (unmetered, f"world -> preprocess -> select@{VARIANT} -> "),
        (unexplained, "reports/metrics/public.json -> release"),
        (
            lambda own: own.graph({"release": {**STAGES["release"], "outs": ["elsewhere"]}}),
            "No stage of dvc.yaml writes",
        ),
        (
            lambda own: own.graph({"public_eval": {**STAGES["public_eval"], "deps": ["data/private/test.parquet"]}}),
            "preprocess -> public_eval -> release",
        ),
    ],
)
def test_a_way_past_the_meter_stops_the_release(own: Workspace, change: Change, told: str):
    change(own)
    assert told in refused(own).problem


def test_only_the_charges_of_what_leaves_are_meters_on_its_way(own: Workspace):
    """The variant that is a reference now was once a release: that charge cleared other rows than today's."""
    own.charge(REFERENCE)
    with inside(own):
        receipts = stages.report.read_receipts([VARIANT])
        assert stages.release.ledgered_nodes(own.ledger.charges("demo"), receipts) == {f"select@{VARIANT}"}


@pytest.mark.parametrize(
    ("text", "label", "told"),
    [
        ("Write to ann.smith@example.com today", "returns", "reach one person"),
        ("Call +44 20 7946 0958", "returns", "reach one person"),
        ("All is well", "ann.smith@example.com", "reach one person"),
        ('{"a": "ann.smith\\u0040example.com"}', "returns", "reach one person"),
        ('{"a": [{"ann.smith\\u0040example.com": 1}]}', "returns", "reach one person"),
        (f"My code is {SECRET.upper()}.", "returns", "planted secret"),
        (f'{{"a": "{SECRET.replace("z", chr(92) + "u007a")}"}}', "returns", "planted secret"),
    ],
)
def test_a_row_that_gives_someone_away_stops_the_release(own: Workspace, text: str, label: str, told: str):
    world = load_facts(own.folder / "data/raw/facts.json")
    (error,) = gates.check_rows(VARIANT, [Record("Fine", "a"), Record(text, label)], world)
    assert told in error.problem
    assert "rows 2." in error.problem
    assert not {"ann", "7946", SECRET, SECRET.upper()} & set(f"{error.problem} {error.remedy}".split())


def test_rows_are_looked_through_before_they_leave(own: Workspace):
    own.rows("Fine", "Write to ann.smith@example.com today", f"It is {SECRET}")
    error = refused(own)
    assert "rows 2." in error.problem
    assert "failed beside it: 1." in error.problem
    own.rows()
    assert "no rows" in refused(own).problem


def test_the_planted_secrets_of_the_workspace_stop_a_row(own: Workspace):
    own.rows("Fine", f"It is {SECRET}")
    assert "planted secret" in refused(own).problem


def test_a_secret_in_a_document_stops_the_release_and_the_old_one_stays(
    made: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    own = copied(made, tmp_path)
    before = {path: sha256(own.folder / "release" / path) for path in FILES}
    ships(own, monkeypatch, select={**read_shipped()["select"], "test": SECRET})
    error = refused(own)
    assert "'audit.json' would hold a planted secret" in error.problem
    assert {path: sha256(own.folder / "release" / path) for path in FILES} == before


@pytest.mark.parametrize(("least", "refuses"), [(0.81, False), (0.82, True)])
def test_a_variant_must_be_as_useful_as_asked(own: Workspace, least: float, refuses: bool):
    scores = own.read("reports/metrics/public.json")
    assert bool(list(gates.check_accuracy(scores, [VARIANT], least))) is refuses
    assert list(gates.check_accuracy(scores, [VARIANT], None)) == []
    assert list(gates.check_accuracy(None, [VARIANT], least))


# The allow-list.


MARK = st.integers(10**11, 10**12).map(lambda number: number + 0.5)
NAMES = st.sampled_from(
    ["accuracy", "low", "high", "rows", "test_rows", "variants", "twins", "correct", "drawn", "removed", VARIANT,
     "tfidf_lr", "public_only", "claim", "fault", "other", "zone"]
)  # fmt: skip
DOCUMENTS = st.recursive(
    MARK, lambda inner: st.dictionaries(NAMES, inner, max_size=4) | st.lists(inner, max_size=3), max_leaves=12
)
FIXED = a_receipt(variant=VARIANT)


@given(st.dictionaries(NAMES, DOCUMENTS), st.sampled_from(["internal", "private", None, "Publishable", 1.0]))
def test_a_document_of_the_private_zone_contributes_no_number(document: dict[str, Any], zone: Any):
    internal = document | {"zone": zone}
    measured = MeasuredDocuments({VARIANT: FIXED}, {VARIANT: internal}, internal, {"select": internal}, {})
    found = audit_document(measured, {"status": "DIFFERENTIALLY PRIVATE"}, world_ledger())
    assert ".5" not in json.dumps(found)
    assert (found["utility"], found["end_to_end"], found["variants"][VARIANT]["generation"]) == (None, {}, None)


@given(DOCUMENTS.filter(lambda one: isinstance(one, dict)))
def test_a_part_that_says_it_is_internal_contributes_no_number(part: dict[str, Any]):
    inner = part | {"zone": "internal"}
    outer = {"zone": "publishable", "variants": {VARIANT: inner}, "rows": inner, "twins": [inner], "removed": inner}
    for shape in (bundle.SCORES_SHAPE, bundle.TWINS_SHAPE, bundle.GENERATION_SHAPE):
        assert ".5" not in json.dumps(bundle.copy_publishable(outer | {"twins": []}, shape, "it"))


def test_a_receipt_with_what_it_may_not_have_never_leaves(own: Workspace):
    for change in ({"note": "a row's text"}, {"queries": [own.read(RECEIPT)["queries"][0] | {"note": "a row's text"}]}):
        own.change(RECEIPT, **change)
        error = refused(own)
        assert "note is not known" in error.problem
        assert "a row's text" not in str(error)


def test_a_receipt_whose_words_are_long_never_leaves(own: Workspace):
    own.change(RECEIPT, plan={"sigma": "a row's text " * 20})
    assert "plan.sigma has not the form" in refused(own).problem


def test_a_field_that_is_not_named_stays():
    document = {"zone": "dp", "drawn": 3, "rows": 2, "kept_samples": [{"text": "a row"}], "seconds": 1.5}
    assert bundle.copy_publishable(document, bundle.GENERATION_SHAPE, "it") == {"drawn": 3, "rows": 2}


@pytest.mark.parametrize("value", ["a row's text", ["x"], {"a": 1}, float("nan")])
def test_a_number_is_a_number(value: Any):
    with pytest.raises(DataError, match=r"it\.drawn has not the form"):
        bundle.copy_publishable({"zone": "dp", "drawn": value}, bundle.GENERATION_SHAPE, "it")


@pytest.mark.parametrize("value", ["x" * 121, "two\nlines", 3, ["x"]])
def test_a_word_is_a_word(value: Any):
    with pytest.raises(DataError, match="has not the form"):
        bundle.copy_fields({"method": value}, bundle.TWINS_SHAPE, "it")


def test_scores_are_those_of_what_leaves(own: Workspace):
    own.edit("dataset", public_test=None)
    with inside(own):
        assert stages.report.read_scores(own.params) is None
    scores = own.read("reports/metrics/public.json")
    scores["variants"]["dp9"] = scores["variants"][VARIANT]
    measured = MeasuredDocuments({VARIANT: FIXED}, {}, scores, {}, {})
    found = audit_document(measured, {"status": ""}, world_ledger())["utility"]
    assert set(found["variants"]) == {VARIANT, "public_only"}


def test_measurements_that_became_internal_are_left_out_of_a_release(own: Workspace):
    own.change("reports/metrics/public.json", zone="internal", rows={VARIANT: 31415926})
    own.change(f"{METRICS}/generation.json", zone="internal", drawn=16180339)
    with inside(own):
        stages.release.run()
    told = texts(own.folder / "release")
    assert [name for name, text in told.items() for number in ("31415926", "16180339") if number in text] == []
    assert verify_release(own.folder / "release").holds


# The folder.


def test_a_folder_that_fails_is_not_there_and_the_old_one_is(tmp_path: Path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").touch()
    with pytest.raises(FileNotFoundError), replace_folder(tmp_path / "out") as draft:
        (draft / "new" / "file").touch()
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["out", "out/old"]
    with replace_folder(tmp_path / "out") as draft:
        (draft / "new").touch()
        assert (tmp_path / "out" / "old").exists()
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["out", "out/new"]


@pytest.mark.parametrize(
    "values", [{"variants": ["a", "a"]}, {"title": ""}, {"title": "a\nb"}, {"gates": {"accuracy": 2}}, {"more": 1}]
)
def test_settings_are_checked(values: dict[str, Any]):
    with pytest.raises(ValueError, match="validation error"):
        settings(**values)


def test_rows_that_no_stage_wrote_are_refused(own: Workspace):
    data = own.params.dataset
    write_synthetic(
        [Record("Rows of another run.", "returns")], own.folder / f"data/synthetic/{VARIANT}", data.text, data.label
    )
    found = refused(own).problem
    assert f"'data/synthetic/{VARIANT}.parquet' is not the file that its stage wrote" in found
    (own.folder / "dvc.lock").unlink()
    assert "is not the file that its stage wrote" in refused(own).problem


def test_the_answer_key_of_an_invented_world_may_not_be_missing(own: Workspace):
    (own.folder / "data/raw/facts.json").unlink()
    assert "answer key of the invented world is missing" in refused(own).problem


def test_naming_nothing_takes_the_old_release_away(made: Workspace, tmp_path: Path):
    own = copied(made, tmp_path)
    own.edit("release", variants=[])
    with inside(own):
        stages.release.run()
    assert list((own.folder / "release").iterdir()) == []


def test_a_receipt_of_the_other_unit_stops_a_release_in_two_parts(made: Workspace):
    asset, charges = made.ledger.asset("demo"), made.ledger.charges("demo")
    receipts = {VARIANT: Receipt.from_json(made.read(RECEIPT))}
    assert list(gates.check_coverage(asset, charges, receipts)) == []
    (error,) = gates.check_coverage(asset, charges, {VARIANT: replace(receipts[VARIANT], unit="person")})
    assert "bounds one person; the unit of privacy of 'demo' is one record" in error.problem
    assert "make it again" in error.remedy
