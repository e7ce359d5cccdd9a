"""Checking a release: every change of any byte is found, and so is a signer's own nonsense."""

import base64
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from palimpsest.errors import DataError
from palimpsest.files import read_json, write_json
from palimpsest.privacy.ledger.total import Total
from palimpsest.privacy.shown import up
from palimpsest.records.record import Record
from palimpsest.records.write import counts_of, write_synthetic
from palimpsest.report.formats import JSON_ROW, at_most, number
from palimpsest.report.release.bundle import (
    AUDIT,
    CARD,
    CROISSANT,
    ENVELOPE,
    KEY,
    LEDGER,
    README,
    STATEMENT,
    TRADEOFF,
    digests,
)
from palimpsest.report.release.card import PROMISE, Described, croissant, readme
from palimpsest.report.release.check import Checked, total_check, verify_release
from palimpsest.report.release.keys import (
    PAYLOAD_TYPE,
    Signed,
    fingerprint,
    load_key,
    load_public,
    new_key,
    pae,
    public_pem,
    seal,
    unseal,
)
from palimpsest.report.statement import STATEMENT_VERSION, read_total
from tests.report.release_world import FILES, VARIANT, Workspace, released, settings

NAMES = (*FILES, f"data/{VARIANT}.jsonl", f"data/{VARIANT}.parquet")


@pytest.fixture(scope="session")
def made() -> Workspace:
    return released()


@pytest.fixture
def folder(made: Workspace, tmp_path: Path) -> Path:
    """A copy of the release alone: on another machine there is nothing else."""
    return Path(shutil.copytree(made.folder / "release", tmp_path / "release"))


@pytest.fixture
def key(made: Workspace) -> Ed25519PrivateKey:
    return load_key(made.key)


def test_a_release_holds_without_its_workspace(folder: Path, key: Ed25519PrivateKey):
    name = fingerprint(key.public_key())
    found = verify_release(folder)
    assert (found.holds, found.pinned, found.fingerprint) == (True, False, name)
    (folder.parent / "their.pub").write_bytes(public_pem(key.public_key()))
    for pin in (name, name.removeprefix("SHA256:"), name.upper(), str(folder.parent / "their.pub")):
        found = verify_release(folder, pin)
        assert (found.holds, found.pinned, found.fingerprint) == (True, True, name)


def test_another_key_is_noticed(folder: Path):
    other = new_key(folder.parent / "other.pem")
    (folder.parent / "other.pub").write_bytes(public_pem(load_key(folder.parent / "other.pem").public_key()))
    for pin in (other, str(folder.parent / "other.pub")):
        assert not verify_release(folder, pin).holds


def test_a_key_that_cannot_be_read_is_said(folder: Path):
    (folder.parent / "bad.pub").write_text("no key")
    with pytest.raises(DataError, match="no public ed25519 key"):
        verify_release(folder, str(folder.parent / "bad.pub"))
    with pytest.raises(DataError, match="There is no folder"):
        verify_release(folder / "none")


@pytest.mark.parametrize("name", NAMES)
def test_any_byte_that_changes_is_found(folder: Path, name: str):
    whole = (folder / name).read_bytes()
    step = max(1, len(whole) // 12)
    for place in (*range(0, len(whole), step), len(whole) - 1):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        (folder / name).write_bytes(bytes(changed))
        assert not verify_release(folder).holds, place
    for changed_length in (whole[:-1], whole + b"\n", b""):
        (folder / name).write_bytes(changed_length)
        assert not verify_release(folder).holds
    (folder / name).write_bytes(whole)
    assert verify_release(folder).holds


def removed(folder: Path) -> None:
    (folder / AUDIT).unlink()


def added(folder: Path) -> None:
    (folder / "more.txt").touch()


def hidden(folder: Path) -> None:
    (folder / "data" / ".more").touch()


def further_folder(folder: Path) -> None:
    (folder / "empty").mkdir()


def renamed(folder: Path) -> None:
    (folder / TRADEOFF).rename(folder / "curves.json")


def swapped_files(folder: Path) -> None:
    (folder / AUDIT).rename(folder / "aside")
    (folder / LEDGER).rename(folder / AUDIT)
    (folder / "aside").rename(folder / LEDGER)


def linked(folder: Path) -> None:
    """A link to a file with the signed content."""
    shutil.copy(folder / AUDIT, folder.parent / "aside.json")
    (folder / AUDIT).unlink()
    (folder / AUDIT).symlink_to(folder.parent / "aside.json")


def linked_folder(folder: Path) -> None:
    (folder / "data").rename(folder.parent / "aside")
    (folder / "data").symlink_to(folder.parent / "aside")


def further_link(folder: Path) -> None:
    (folder / "loop").symlink_to(folder)


def linked_key(folder: Path) -> None:
    (folder / KEY).rename(folder.parent / "aside.pub")
    (folder / KEY).symlink_to(folder.parent / "aside.pub")


def linked_envelope(folder: Path) -> None:
    (folder / ENVELOPE).rename(folder.parent / "aside.json")
    (folder / ENVELOPE).symlink_to(folder.parent / "aside.json")


def pipe(folder: Path) -> None:
    """A pipe would hang whoever opens it."""
    (folder / AUDIT).unlink()
    os.mkfifo(folder / AUDIT)


def folder_for_file(folder: Path) -> None:
    (folder / AUDIT).unlink()
    (folder / AUDIT).mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        removed, added, hidden, further_folder, renamed, swapped_files, linked, linked_folder, further_link, linked_key,
        linked_envelope, pipe, folder_for_file,
    ],
)  # fmt: skip
def test_every_other_change_of_the_folder_is_found(folder: Path, damage: Callable[[Path], None]):
    damage(folder)
    assert not verify_release(folder).holds


def test_all_that_differs_is_named(folder: Path):
    for damage in (removed, added, further_folder):
        damage(folder)
    told = ["there is a further folder 'empty'", "there is a further file 'more.txt'", "'audit.json' is missing"]
    assert sorted(verify_release(folder).problems) == sorted(told)


@pytest.mark.parametrize("name", ["../their.txt", "/etc/hostname", "data/../audit.json", "data//more", "a\\b"])
def test_a_signed_name_that_leads_elsewhere_is_refused(folder: Path, key: Ed25519PrivateKey, name: str):
    (folder.parent / "their.txt").write_text("elsewhere")
    body = json.loads((folder / ENVELOPE).read_text())
    payload = json.loads(base64.b64decode(body["payload"]))
    payload["subject"].append({"name": name, "digest": {"sha256": "0" * 64}})
    raw = json.dumps(payload, separators=(",", ":")).encode()
    body["payload"] = base64.b64encode(raw).decode()
    body["signatures"][0]["sig"] = base64.b64encode(key.sign(pae(PAYLOAD_TYPE, raw))).decode()
    (folder / ENVELOPE).write_text(json.dumps(body, indent=2) + "\n")
    assert verify_release(folder).problems == [
        "What is signed is no list of a release's files: a name leads elsewhere, occurs twice, or has no hash."
    ]


def test_whoever_signs_anew_with_another_key_is_found_by_the_pin_alone(folder: Path, key: Ed25519PrivateKey):
    theirs = Ed25519PrivateKey.generate()
    (folder / KEY).write_bytes(public_pem(theirs.public_key()))
    resign(folder, theirs, key)
    assert verify_release(folder).holds
    assert not verify_release(folder, fingerprint(key.public_key())).holds


# A signer's own nonsense: the files are the signed ones, and do not fit each other.


def resign(folder: Path, key: Ed25519PrivateKey, before: Ed25519PrivateKey | None = None, **predicate: Any) -> None:
    """Sign the folder as it is now."""
    said = unseal((folder / ENVELOPE).read_bytes(), (before or key).public_key()).predicate
    (folder / ENVELOPE).unlink()
    (folder / ENVELOPE).write_bytes(seal(Signed(digests(folder), {**said, **predicate}), key))


def edited(folder: Path, key: Ed25519PrivateKey, name: str, change: Callable[[Any], Any]) -> Checked:
    """What comes of a document that was changed and signed."""
    body = read_json(folder / name)
    change(body)
    write_json(folder / name, body)
    resign(folder, key)
    return verify_release(folder)


def receipt_of(body: Any) -> Any:
    return body["variants"][VARIANT]["receipt"]


Edit = Callable[[Any], Any]
EDITS: list[tuple[str, Edit, str]] = [
    (STATEMENT, lambda body: body["releases"][0].update(epsilon=0.5), "epsilons are not its receipt's"),
    (STATEMENT, lambda body: body["releases"][0]["group"][1].update(epsilon=0.5), "epsilons are not its receipt's"),
    (STATEMENT, lambda body: body["releases"][0]["curve"].update(beta=[0.9] * 41), "stated trade-off curve"),
    (STATEMENT, lambda body: body["releases"][0].update(mechanisms=[]), "lists other mechanisms"),
    (STATEMENT, lambda body: body["ledger"].update(spent_epsilon=0.1), "the total is"),
    (STATEMENT, lambda body: body["ledger"].update(head="0" * 64), "another ledger"),
    (STATEMENT, lambda body: body.update(status="UNVERIFIED", reasons=["A reason."]), "status is 'UNVERIFIED'"),
    (STATEMENT, lambda body: body.pop("unit"), "breaks the schema"),
    (STATEMENT, lambda body: body.update(swept=["another"]), "names a sweep of what is not released"),
    (STATEMENT, lambda body: body.update(swept=[VARIANT]), "leaves out, or adds, what is not covered"),
    (STATEMENT, lambda body: body.update(releases=[]), "different variants"),
    (LEDGER, lambda body: body["charges"][0]["event"].update(sigma=40.0), "another name, model, purpose, event"),
    (LEDGER, lambda body: body["charges"][0]["event"].update(sigma=3.0), "the total is"),
    (LEDGER, lambda body: body["charges"][0].update(noise_fixed=True), "noise_fixed must be True"),
    (LEDGER, lambda body: body["charges"][0].update(purpose="reference"), "of a reference run"),
    (LEDGER, lambda body: body["charges"][0].update(state="begun"), "is begun, not committed"),
    (LEDGER, lambda body: body["charges"].append(body["charges"][0] | {"id": "f" * 32}), "every charge of its runs"),
    (LEDGER, lambda body: body.update(charges=[]), "does not know a charge"),
    (LEDGER, lambda body: body.update(charges=[{}]), "has not its form"),
    (LEDGER, lambda body: body["asset"].update(delta=1e-4), "delta must be"),
    (LEDGER, lambda body: body.update(spent_epsilon=0.1), "the total is"),
    (AUDIT, lambda body: body["variants"][VARIANT]["receipt"].update(epsilon=0.5), "by the charges"),
    (AUDIT, lambda body: body["variants"][VARIANT]["receipt"].update(epsilon_rdp=0.5), "by the charges"),
    (AUDIT, lambda body: body["variants"].update(other={}), "different variants"),
    (AUDIT, lambda body: body["variants"][VARIANT]["receipt"].pop("purpose"), "field purpose is missing"),
    (AUDIT, lambda body: receipt_of(body)["queries"][0].pop("purpose"), "queries.purpose is missing"),
    (AUDIT, lambda body: receipt_of(body).update(seconds=61.0), "seconds is not known"),
    (AUDIT, lambda body: body["variants"][VARIANT]["generation"].update(rows=13), "audit.json gives other numbers"),
    (AUDIT, lambda body: body["utility"]["rows"].update({VARIANT: 13}), "audit.json gives other numbers"),
    (AUDIT, lambda body: body["scans"]["personal_data"].update(rows=11), "were searched"),
    (AUDIT, lambda body: body.update(scans={}), "were searched"),
    (AUDIT, lambda body: body.update(status="UNVERIFIED"), "audit.json gives another status"),
    (AUDIT, lambda body: body["ledger"].update(spent_epsilon=0.001), "audit.json gives another status or other totals"),
    (CROISSANT, lambda body: body.update({PROMISE: "Epsilon 0.1."}), "croissant.json promises other things"),
    (CROISSANT, lambda body: body["distribution"][0].update(sha256="0" * 64), "lists other files of rows"),
    (STATEMENT, lambda body: body.update(setting="Local: nobody holds the rows."), "another setting"),
    (STATEMENT, lambda body: body.update(final_output="Rows and models."), "another setting"),
    (LEDGER, lambda body: body["asset"].update(n_public=0), "cannot be read (ZeroDivisionError)"),
    (CROISSANT, lambda body: body["recordSet"][0].update(description="13 rows"), "croissant.json gives other numbers"),
    (STATEMENT, lambda body: body["unit"].update(name="person"), "another unit"),
    (STATEMENT, lambda body: body["ledger"].update(charges=0), "counts other charges"),
    (STATEMENT, lambda body: body["ledger"].update(refunded=1), "counts other charges"),
    (LEDGER, lambda body: body["asset"].update(unit="person", unit_column="name"), "another unit"),
    (LEDGER, lambda body: body.update(caps=[]), "caps do not lead"),
    (LEDGER, lambda body: body["caps"][0].update(epsilon=99.0), "caps do not lead"),
    (LEDGER, lambda body: body.pop("caps"), "has not its form"),
    (TRADEOFF, lambda body: body[VARIANT].update(beta=[0.9] * 41), "stated trade-off curve"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "change", "told"), EDITS, ids=[f"{name}-{place}" for place, (name, *_) in enumerate(EDITS)]
)
def test_a_signed_document_that_does_not_follow_from_the_events_is_found(
    folder: Path, key: Ed25519PrivateKey, name: str, change: Edit, told: str
):
    found = edited(folder, key, name, change)
    assert not found.holds
    assert any(told in problem for problem in found.problems), found.problems


# A release of persons.


@pytest.fixture
def persons(tmp_path: Path) -> Path:
    return Path(shutil.copytree(released("person").folder / "release", tmp_path / "persons"))


@pytest.fixture
def their_key() -> Ed25519PrivateKey:
    return load_key(released("person").key)


def test_a_release_of_persons_holds_and_says_so(persons: Path):
    assert verify_release(persons).problems == []
    statement, asset = read_json(persons / STATEMENT), read_json(persons / LEDGER)["asset"]
    assert (statement["unit"]["name"], statement["unit"]["column"]) == ("person", "customer")
    assert (asset["unit"], asset["unit_column"]) == ("person", "customer")
    assert asset["n_public"] == statement["unit"]["n_persons"] == 2500
    assert "unit: person" in (persons / README).read_text()


MIXES: list[tuple[str, Edit, str]] = [
    (AUDIT, lambda body: receipt_of(body).update(unit="record"), "unit must be 'person'; the receipt says 'record'"),
    (LEDGER, lambda body: body["asset"].update(unit_column="name"), "about another unit than the ledger"),
    (LEDGER, lambda body: body["asset"].update(n_public=9999), "about another unit than the ledger"),
    (LEDGER, lambda body: body["asset"].update(unit="record"), "has not its form"),
    (STATEMENT, lambda body: body["unit"].update(column="name"), "about another unit than the ledger"),
    (STATEMENT, lambda body: body["unit"].update(n_persons=9999), "about another unit than the ledger"),
    (STATEMENT, lambda body: body["unit"].update(name="record"), "about another unit than the ledger"),
    (STATEMENT, lambda body: body["unit"].update(max_rows_per_person=1), "describes another unit"),
    (STATEMENT, lambda body: body["unit"].update(note="One row is protected."), "describes another unit"),
    (STATEMENT, lambda body: body["unit"].update(description="One record: its text."), "describes another unit"),
    (STATEMENT, lambda body: body["releases"][0].pop("changed_row"), "breaks the schema"),
    (STATEMENT, lambda body: body["releases"][0]["changed_row"].update(epsilon=0.5), "changed_row is not what follows"),
    (STATEMENT, lambda body: body["releases"][0]["changed_row"].update(sentence="Free."), "changed_row is not what"),
    (STATEMENT, lambda body: body["releases"][0]["group"].pop(), "breaks the schema"),
    (STATEMENT, lambda body: body["releases"][0]["meaning"].update(sentence="Of 100 records."), "meaning is not what"),
    (STATEMENT, lambda body: body["releases"][0]["meaning"].update(belief=0.01), "meaning is not what"),
    (STATEMENT, lambda body: body["releases"][0].update(flags=["Fine."]), "flags is not what follows"),
    (STATEMENT, lambda body: body["not_covered"].pop(), "what is not covered"),
    (STATEMENT, lambda body: body["layers"].pop(), "layers are not those"),
    (STATEMENT, lambda body: body["end_to_end"][0].update(verdict="inconclusive"), "of the end-to-end audits"),
    (STATEMENT, lambda body: body["end_to_end"].clear(), "of the end-to-end audits"),
    (AUDIT, lambda body: body["end_to_end"].clear(), "of the end-to-end audits"),
    (STATEMENT, lambda body: body["assumptions"].pop(0), "assumptions are not those"),
    (STATEMENT, lambda body: body["assumptions"].pop(), "assumptions are not those"),
    (AUDIT, lambda body: receipt_of(body).update(assumptions=["batch-bits"]), "assumptions are not those"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "change", "told"), MIXES, ids=[f"{name}-{place}" for place, (name, *_) in enumerate(MIXES)]
)
def test_no_word_about_persons_can_be_another_than_follows(
    persons: Path, their_key: Ed25519PrivateKey, name: str, change: Edit, told: str
):
    found = edited(persons, their_key, name, change)
    assert any(told in problem for problem in found.problems), found.problems


@pytest.mark.parametrize("name", [README, CARD])
@pytest.mark.parametrize(("said", "instead"), [("a group of two persons", "one person"), ("1 in 100 persons", "1 row")])
def test_the_pages_repeat_the_statements_sentences(
    persons: Path, their_key: Ed25519PrivateKey, name: str, said: str, instead: str
):
    text = (persons / name).read_text()
    assert said in text
    (persons / name).write_text(text.replace(said, instead))
    resign(persons, their_key)
    told = {README: "says other things about privacy than the statement", CARD: "lacks a sentence of the statement"}
    assert f"{name} {told[name]}" in verify_release(persons).problems


def test_the_cards_unit_is_the_statements(persons: Path, their_key: Ed25519PrivateKey):
    text = (persons / README).read_text()
    (persons / README).write_text(text.replace("unit: person", "unit: record"))
    resign(persons, their_key)
    assert any("another epsilon or unit" in problem for problem in verify_release(persons).problems)


@pytest.mark.parametrize("version", [STATEMENT_VERSION - 1, STATEMENT_VERSION + 1, None])
def test_a_statement_of_another_version_is_named_and_not_judged(
    folder: Path, key: Ed25519PrivateKey, version: int | None
):
    (problem,) = edited(folder, key, STATEMENT, lambda body: body.update(statement_version=version)).problems
    assert (
        f"statement.json is of version {version!r}, and this palimpsest checks version {STATEMENT_VERSION}" in problem
    )
    assert "use the palimpsest that made the release" in problem


@pytest.mark.parametrize("said", [{"word": "They did."}, {"word": None}, {"reason": "The attack failed."}])
def test_an_envelope_says_that_the_owner_gave_their_word_and_no_more(
    folder: Path, key: Ed25519PrivateKey, said: dict[str, Any]
):
    resign(folder, key, **said)
    (problem,) = verify_release(folder).problems
    assert "says other things than it may" in problem


@pytest.mark.parametrize("name", [STATEMENT, LEDGER, AUDIT, TRADEOFF])
@pytest.mark.parametrize("content", ["", "[]", "null", "3", "[" * 100_000])
def test_a_signed_document_that_is_none_is_a_problem_and_no_crash(
    folder: Path, key: Ed25519PrivateKey, name: str, content: str
):
    (folder / name).write_text(content)
    resign(folder, key)
    assert not verify_release(folder).holds


def test_the_pages_give_the_statements_epsilon(folder: Path, key: Ed25519PrivateKey):
    epsilon = read_json(folder / STATEMENT)["releases"][0]["epsilon"]
    for name, said in ((README, str(epsilon)), (CARD, f'<td class="n">{at_most(epsilon, 4)}</td>')):
        whole = (folder / name).read_text(encoding="utf-8")
        assert said in whole
        (folder / name).write_text(whole.replace(said, said.replace("0.", "0.1")), encoding="utf-8")
        resign(folder, key)
        assert any(name in problem for problem in verify_release(folder).problems)
        (folder / name).write_text(whole, encoding="utf-8")


@pytest.mark.parametrize("name", [README, CARD])
def test_the_pages_give_the_statements_total(folder: Path, key: Ed25519PrivateKey, name: str):
    total = read_total(read_json(folder / STATEMENT))
    whole = (folder / name).read_text(encoding="utf-8")
    for said in (total.sentence, *([f"ε ≤ {at_most(total.epsilon)}"] if name == CARD else [])):
        assert said in whole
        (folder / name).write_text(whole.replace(said, "ε ≤ 0.001"), encoding="utf-8")
        resign(folder, key)
        assert any(problem.startswith(name) for problem in verify_release(folder).problems)


# --- totals that are counted in Gaussian DP ------------------------------------------------------------------------

MILESTONES = (0.5, 2.0, 4.0)  # the one charge takes the total to some 1.1


@pytest.fixture(params=[MILESTONES, ()], ids=["milestones", "cap"])
def gaussian(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A release whose total is counted in Gaussian DP."""
    return Path(shutil.copytree(released(milestones=request.param).folder / "release", tmp_path / "gaussian"))


def gaussian_key(folder: Path) -> Ed25519PrivateKey:
    found = tuple(read_json(folder / LEDGER)["asset"]["milestones"])
    return load_key(released(milestones=found).key)


def test_a_release_states_a_milestone_or_the_cap_and_never_where_a_gaussian_filter_stands(gaussian: Path):
    assert verify_release(gaussian).problems == []
    statement = read_json(gaussian / STATEMENT)
    total, cap = read_total(statement), statement["ledger"]["cap_epsilon"]
    stated = 2.0 if read_json(gaussian / LEDGER)["asset"]["milestones"] else cap
    assert (total.epsilon, total.cap, total.status) == (stated, cap, "proved")
    assert 0.5 < statement["ledger"]["spent_epsilon"] == total.stands_at < 2.0
    card = (gaussian / CARD).read_text(encoding="utf-8")
    assert f"<b>ε ≤ {number(stated)}</b>" in card
    for text in (card, (gaussian / README).read_text(encoding="utf-8"), statement["layers"][0]["sentence"]):
        assert total.sentence in text
        assert f"The filter stands at {up(total.stands_at)}, which is no bound." in text
        assert f"≤ {at_most(total.stands_at)}" not in text.replace(at_most(statement["releases"][0]["epsilon"]), "")


def understate(body: dict[str, Any]) -> None:
    """All that a statement says of its total, one milestone too low."""
    before = Total(**body["ledger"]["total"])
    after = before._replace(milestone=MILESTONES[0])
    body["ledger"]["total"] = after._asdict()
    body["layers"][0]["sentence"] = after.sentence


def as_if_proved_where_it_stands(body: dict[str, Any]) -> None:
    before = Total(**body["ledger"]["total"])
    after = before._replace(counted="renyi", milestone=None)
    body["ledger"]["total"] = after._asdict()
    body["layers"][0]["sentence"] = after.sentence


@pytest.mark.parametrize("change", [understate, as_if_proved_where_it_stands])
def test_a_total_that_does_not_follow_from_the_charges_is_found(gaussian: Path, change: Callable[[Any], None]):
    problems = edited(gaussian, gaussian_key(gaussian), STATEMENT, change).problems
    assert "what is said of all releases together does not follow from the extract" in problems


def test_milestones_that_no_data_set_can_have_are_found(gaussian: Path):
    """Each takes a part of delta, so twenty that lie close together would state where the filter stands."""
    many = [1.0 + 0.05 * number for number in range(20)]
    found = edited(gaussian, gaussian_key(gaussian), LEDGER, lambda body: body["asset"].update(milestones=many))
    assert any("the extract has milestones are at most 3 epsilons" in problem for problem in found.problems)


def test_a_release_whose_total_cannot_be_seen_does_not_pass_for_one_that_proved_it(gaussian: Path):
    assert total_check(gaussian).problems == ()
    (gaussian / LEDGER).unlink()
    assert total_check(gaussian).problems == ("a document cannot be read (FileNotFoundError)",)


@pytest.mark.parametrize("counted", ["gdp", "renyi"])
def test_a_release_of_before_is_told_what_it_did_not_prove(
    counted: str, gaussian: Path, folder: Path, key: Ed25519PrivateKey
):
    of, own = (gaussian, gaussian_key(gaussian)) if counted == "gdp" else (folder, key)
    problems = edited(of, own, STATEMENT, lambda body: body.update(statement_version=7)).problems
    told = [problem for problem in problems if "where the filter stood, which is no bound" in problem]
    assert len(told) == (counted == "gdp")
    assert all("kept to its highest cap, epsilon 10.000 at delta" in problem for problem in told)


def test_a_signed_file_that_no_release_has_is_found(folder: Path, key: Ed25519PrivateKey):
    (folder / "more.html").write_text("<p>ε ≤ 0.001</p>", encoding="utf-8")
    resign(folder, key)
    assert "no release has a file 'more.html'" in verify_release(folder).problems


def test_the_card_gives_the_numbers_of_rows(folder: Path, key: Ed25519PrivateKey):
    whole = (folder / README).read_text(encoding="utf-8")
    for said, other in ((": 12 rows.", ": 13 rows."), ("* `data/", "* see `data/")):
        assert said in whole
        (folder / README).write_text(whole.replace(said, other), encoding="utf-8")
        resign(folder, key)
        assert verify_release(folder).problems == ["README.md gives other numbers of rows than the files have"]


OBJECTS = [*(f'{{"title": "Film {number}"}}' for number in range(10)), '{"title": "Fil', '["Film"]']
TEXTS = {"*": ["text"], "text": ["text"], "body": ["body"]}  # text column -> columns of the table


def of_json(folder: Path, key: Ed25519PrivateKey, made: Workspace, text: str) -> None:
    """Make it a release of JSON objects, as far as its rows and what describes them go."""
    schema = {"type": "object", "properties": {"title": {"type": "string"}}}
    data = replace(
        made.params.schema_of_data, task="json", text=text, label=None, labels={}, json_schema=schema, unit_column=None
    )
    records = [Record(one) for one in OBJECTS]
    statement = read_json(folder / STATEMENT)
    statement["unit"] |= {"row": JSON_ROW}
    counts = {VARIANT: counts_of(records, text)}
    described = Described(settings(), data, statement, counts, "SHA256:0a", "1.0", "2031-05-04")
    write_synthetic(records, folder / "data" / VARIANT, data.text, data.label)
    files = {name: digest for name, digest in digests(folder).items() if name.startswith("data/")}
    write_json(folder / STATEMENT, statement)
    write_json(folder / CROISSANT, croissant(described, files, dict.fromkeys(files, 1)))
    (folder / README).write_text(readme(described), encoding="utf-8")
    resign(folder, key)


def of_rows(folder: Path) -> list[str]:
    """What is wrong with the rows and what is said of them."""
    return [problem for check in verify_release(folder).checks for problem in check.problems if "rows" in check.name]


@pytest.mark.parametrize("text", TEXTS)
def test_json_objects_in_a_column_of_any_name_and_alone_are_told_apart(
    folder: Path, key: Ed25519PrivateKey, made: Workspace, text: str
):
    of_json(folder, key, made, text)
    assert of_rows(folder) == []
    whole = text == "*"
    fields = read_json(folder / CROISSANT)["recordSet"][0]
    assert [(one["source"]["extract"]["column"], one["description"]) for one in fields["field"]] == [
        (column, "A text drawn to be a JSON object.") for column in TEXTS[text]
    ]
    said = ["12 rows.", "10 of them that are JSON objects"] if whole else ["12 rows."]
    assert all(words in (folder / README).read_text(encoding="utf-8") for words in said)
    assert fields["description"].startswith(f"12 synthetic rows of {VARIANT}.")
    assert ("10 of them are JSON objects" in fields["description"]) == whole


@pytest.mark.parametrize(("name", "said"), [(README, "the 10 of them that"), (CROISSANT, " 10 of them are")])
def test_both_counts_of_json_objects_are_checked(
    folder: Path, key: Ed25519PrivateKey, made: Workspace, name: str, said: str
):
    of_json(folder, key, made, "*")
    before = (folder / name).read_text(encoding="utf-8")
    assert said in before
    (folder / name).write_text(before.replace(said, said.replace("10", "12")), encoding="utf-8")
    resign(folder, key)
    assert of_rows(folder) == [f"{name} gives other numbers of rows than the files have"]


def first_line(change: Callable[[dict[str, Any]], Any]) -> Callable[[list[str]], list[str]]:
    def edit(lines: list[str]) -> list[str]:
        row = json.loads(lines[0])
        change(row)
        return [json.dumps(row) + "\n", *lines[1:]]

    return edit


LINES = f"{VARIANT}.jsonl is not the row that {VARIANT}.parquet has there"


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[:-1],
        lambda lines: [*lines, lines[0]],
        lambda lines: [lines[1], lines[0], *lines[2:]],
        lambda lines: ["\n", *lines[1:]],
        first_line(lambda row: row.update(text="Another text.")),
        first_line(lambda row: row.update(note="more")),
        first_line(lambda row: row.popitem()),
    ],
)
def test_a_line_that_is_not_its_row_is_found(
    folder: Path, key: Ed25519PrivateKey, change: Callable[[list[str]], list[str]]
):
    path = folder / "data" / f"{VARIANT}.jsonl"
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))
    resign(folder, key)
    assert any(LINES in problem or "cannot be read" in problem for problem in verify_release(folder).problems)


def test_rows_with_other_columns_or_of_another_variant_are_found(folder: Path, key: Ed25519PrivateKey):
    path = folder / "data" / f"{VARIANT}.parquet"
    table = pq.read_table(path)
    pq.write_table(table.append_column("source", pa.array(["x"] * len(table))), path)
    resign(folder, key)
    assert any("has not the declared columns" in problem for problem in verify_release(folder).problems)
    pq.write_table(table, path)
    pq.write_table(table.slice(1), folder / "data" / "other.parquet")
    resign(folder, key)
    assert any("rows of other variants" in problem for problem in verify_release(folder).problems)


def test_the_envelopes_summary_is_the_statements(folder: Path, key: Ed25519PrivateKey):
    for wrong in (
        {"releases": []},
        {"releases": [{"variant": VARIANT, "epsilon": 0.1, "delta": 0.1}]},
        {"ledger_head": ""},
        {"asset": "another"},
        {"status": "NOT PRIVATE"},
    ):
        before = (folder / ENVELOPE).read_bytes()
        resign(folder, key, **wrong)
        assert not verify_release(folder).holds
        (folder / ENVELOPE).write_bytes(before)
    assert verify_release(folder).holds


def test_the_key_in_the_folder_is_the_signers(made: Workspace, key: Ed25519PrivateKey):
    own = load_public((made.folder / "release" / KEY).read_bytes())
    assert fingerprint(own) == fingerprint(key.public_key())
