import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import dp_accounting as dpa
import pytest
from jsonschema import Draft202012Validator
from report_world import charge, query, receipt, world_ledger, world_receipts, world_schema, world_stages

from palimpsest.privacy.fourier import Bracket
from palimpsest.privacy.ledger.total import Total
from palimpsest.privacy.planned import ASSUMPTIONS
from palimpsest.privacy.receipt import Curve, Receipt
from palimpsest.report.formats import Unit
from palimpsest.report.page import public_claims
from palimpsest.report.release.card import privacy
from palimpsest.report.sections.base import digest
from palimpsest.report.statement import NOT_COVERED, STATEMENT_VERSION, SWEPT, layers, schema, statement

CHECK = Draft202012Validator(schema())
TESTS = Path(__file__).parents[1]


def made(**receipts: Receipt) -> dict[str, Any]:
    return statement(world_receipts() | receipts, world_ledger(), world_schema(), world_stages())


def test_the_statement_lists_what_released_receipts_assume_of_the_machine() -> None:
    def listed(**receipts: Receipt) -> dict[str, str]:
        found = made(**receipts)
        CHECK.validate(json.loads(json.dumps(found)))
        return {item["id"]: item["holds"] for item in found["assumptions"] if item["id"] in ASSUMPTIONS}

    assert listed() == {}
    assert listed(inf=receipt("inf", None, 2, assumptions=ASSUMPTIONS)) == {}
    assert listed(dp3=receipt("dp3", 2.98, 1, assumptions=ASSUMPTIONS[:1])) == {ASSUMPTIONS[0]: "assumed"}
    assert listed(dp3=receipt("dp3", 2.98, 1, assumptions=ASSUMPTIONS)) == dict.fromkeys(ASSUMPTIONS, "assumed")


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(schema())


TOTALS = (
    Total("renyi", 1e-5, 1.0, None, 10.0, raised=False, holds=True),
    Total("gdp", 1e-5, 1.0, 3.0, 10.0, raised=False, holds=True),
    Total("gdp", 1e-5, 1.0, None, 10.0, raised=True, holds=True),
)


def test_the_fixed_sentences_are_those_of_the_version() -> None:
    """Who checks a release compares them word for word. Where they change, the version counts up, and so does this."""
    units = [Unit.from_statement(made()), Unit.from_statement(of_persons())]
    fixed = [NOT_COVERED, SWEPT, made()["assumptions"], *([one.not_covered, one.assumption] for one in units)]
    fixed += [layers([], total, one) for one in units for total in TOTALS] + [privacy(made()), privacy(of_persons())]
    assert (STATEMENT_VERSION, digest({"fixed": fixed})) == (
        9, "63868f740905ca3d42351285ad3089abcd9120a1b37d543ba98e745ec61cb884",
    )  # fmt: skip


def test_the_statement_is_valid_after_its_file() -> None:
    CHECK.validate(json.loads(json.dumps(made())))
    assert made()["status"] == "DIFFERENTIALLY PRIVATE"


@pytest.mark.parametrize("language", ["en", "pt-BR"])
def test_the_statement_names_the_language_of_the_texts(language: str) -> None:
    """It came with a field of its own: a release that was made before has none, and is checked as it is."""
    facts = world_receipts(), world_ledger(), world_schema(), world_stages()
    found = json.loads(json.dumps(statement(*facts, language=language)))
    CHECK.validate(found)
    assert found.pop("language") == language
    CHECK.validate(found)


@pytest.mark.parametrize("field", schema()["required"])
def test_no_field_may_be_missing(field: str) -> None:
    found = made()
    del found[field]
    assert not CHECK.is_valid(found)


@pytest.mark.parametrize("field", schema()["$defs"]["release"]["required"])
def test_no_field_of_a_release_may_be_missing(field: str) -> None:
    found = made()
    del found["releases"][0][field]
    assert not CHECK.is_valid(found)


@pytest.mark.parametrize("change", [{"noise_fixed": True}, {"epsilon": None}, {"epsilon": None, "epsilon_rdp": None}])
def test_fixed_noise_or_no_epsilon_is_not_private(change: dict[str, Any]) -> None:
    found = made(dp3=replace(receipt("dp3", 2.98), **change))
    assert found["status"] == "NOT PRIVATE"
    assert found["releases"][0]["meaning"] is None
    CHECK.validate(found)
    assert not CHECK.is_valid(found | {"status": "DIFFERENTIALLY PRIVATE", "reasons": []})


def promised(document: dict[str, Any]) -> set[str]:
    """What of a statement, and of the claims that are made of it, says that an epsilon holds."""
    claims = public_claims(document, world_receipts(), world_ledger())
    total, *_ = document["layers"]
    said = {claim.id for claim in claims if claim.status == "proved"}
    said |= {total["name"]} if total["status"] == "proved" else set()
    return said | {f"meaning of {one['variant']}" for one in document["releases"] if one["meaning"]}


def test_a_statement_that_holds_promises_every_epsilon() -> None:
    names = {one["variant"] for one in made()["releases"]}
    own = {f"{mark}{name}" for name in names for mark in ("P-", "meaning of ")}
    assert promised(made()) == {"P-total", "Epsilon and delta", *own}


def test_a_release_that_builds_on_a_reference_is_not_private() -> None:
    body = receipt("dp3", 2.98)
    first, *others = body.queries
    found = made(dp3=replace(body, queries=(replace(first, purpose="reference"), *others)))
    assert (found["status"], found["reasons"]) == ("NOT PRIVATE", ["dp3 builds on a reference run."])
    assert promised(found) == set()


def test_a_broken_ledger_is_not_relied_on() -> None:
    found = statement(world_receipts(), replace(world_ledger(), verified=False), world_schema(), world_stages())
    assert found["status"] == "UNVERIFIED"
    assert promised(found) == set()
    CHECK.validate(found)
    assert not CHECK.is_valid(found | {"status": "DIFFERENTIALLY PRIVATE", "reasons": []})


def test_a_data_set_whose_ledger_was_lost_has_no_total() -> None:
    document = statement(world_receipts(), replace(world_ledger(), after_loss=True), world_schema(), world_stages())
    assert document["status"] == "UNVERIFIED"
    assert promised(document) == set()
    assert any("lost" in reason for reason in document["reasons"])


def test_references_alone_are_no_release() -> None:
    found = statement({"inf": receipt("inf", None)}, world_ledger(), world_schema(), world_stages())
    assert (found["status"], found["releases"], found["references"]) == ("NOTHING RELEASED", [], ["inf"])
    CHECK.validate(found)


def test_every_stage_is_covered_public_or_not_covered() -> None:
    found = {access["stage"]: access for access in made()["data_accesses"]}
    assert list(found) == [stage["name"] for stage in world_stages()]
    expected = {
        "fit@dp3": "covered", "fit@inf": "not covered", "pretrain": "public", "sample@dp3": "covered",
        "preprocess": "not covered", "membership@dp3": "not covered",
    }  # fmt: skip
    assert {name: found[name]["coverage"] for name in expected} == expected
    assert found["fit@dp3"]["charges"] == [1, 2]


def test_a_release_that_stood_beside_others_in_a_sweep_says_what_the_choice_leaves_out() -> None:
    found = statement(world_receipts(), world_ledger(), world_schema(), world_stages(), swept={"dp3", "inf", "other"})
    CHECK.validate(json.loads(json.dumps(found)))
    told = {item["id"]: item["sentence"] for item in found["not_covered"]}
    assert found["swept"] == ["dp3"]  # a reference leaves nothing
    assert "The choice of dp3 among the points of a sweep" in told["sweep"]
    assert "sweep" not in {item["id"] for item in made()["not_covered"]}
    assert "swept" not in made()


def test_a_release_that_was_chosen_for_a_charge_says_that_its_epsilon_counts_the_choice() -> None:
    def told(method: str) -> str:
        receipts = {"dp3": replace(world_receipts()["dp3"], method=method)}
        found = statement(receipts, world_ledger(), world_schema(), world_stages())
        CHECK.validate(json.loads(json.dumps(found)))
        return " ".join(layer["sentence"] for layer in found["layers"])

    sentence = "The rows of dp3 were chosen among several variants: its epsilon counts all of them and the choice."
    assert sentence in told("choose")
    assert "chosen among" not in told("dp_lm")


def test_a_stage_of_both_kinds_says_that_its_references_are_not_covered() -> None:
    folded = [{"name": "fit", "desc": "", "zone": "private", "deps": []}]
    (access,) = statement(world_receipts(), world_ledger(), world_schema(), folded)["data_accesses"]
    assert (access["coverage"], access["charges"]) == ("covered", [1, 2, 5])
    assert "reference runs are not covered" in access["note"]


def test_a_refunded_charge_covers_nothing() -> None:
    ledger = world_ledger()
    ledger = replace(ledger, charges=tuple(replace(line, state="refunded") for line in ledger.charges))
    found = statement(world_receipts(), ledger, world_schema(), world_stages())
    assert {a["stage"]: a["coverage"] for a in found["data_accesses"]}["fit@dp3"] == "not covered"
    assert found["ledger"]["charges"] == 0


def test_the_group_table_has_the_sizes_of_the_statement() -> None:
    assert [row["k"] for row in made()["releases"][0]["group"]] == [1, 2, 5, 10]


def of_persons(**receipts: Receipt) -> dict[str, Any]:
    books = {name: replace(one, unit="person") for name, one in (world_receipts() | receipts).items()}
    found = statement(books, world_ledger("person"), world_schema("person"), world_stages())
    CHECK.validate(json.loads(json.dumps(found)))
    return found


def test_with_a_column_the_person_is_the_unit() -> None:
    unit = of_persons()["unit"]
    assert (unit["name"], unit["column"], unit["n_persons"], unit["max_rows_per_person"]) == (
        "person", "customer", 2000, 3,
    )  # fmt: skip
    assert unit["description"].startswith("One person: all of their rows in this data set")
    assert "exact value of column 'customer'" in unit["note"]
    assert of_persons()["status"] == "DIFFERENTIALLY PRIVATE"


def test_without_a_column_nothing_bounds_the_rows_of_a_person_and_that_is_said() -> None:
    found = made()
    assert {found["unit"][name] for name in ("column", "n_persons", "max_rows_per_person")} == {None}
    assert "Nothing bounds the rows" in found["unit"]["note"]
    holds = {item["id"]: item["holds"] for item in found["assumptions"]}
    assert holds["one-row"] == "assumed"
    assert "one-value" not in holds
    assert "run-person" not in holds


def test_who_a_person_is_is_assumed_and_what_that_leaves_out_is_named() -> None:
    found = of_persons()
    holds = {item["id"]: item["holds"] for item in found["assumptions"]}
    assert holds["one-value"] == "assumed"
    assert "one-row" not in holds
    own = {"mentioned", "two-values", "two-assets"}
    assert own <= {item["id"] for item in found["not_covered"]}
    assert not own & {item["id"] for item in made()["not_covered"]}


@pytest.mark.parametrize(("found", "units"), [(made(), "records"), (of_persons(), "persons")])
def test_changing_a_row_costs_what_a_group_of_two_does(found: dict[str, Any], units: str) -> None:
    (release,) = found["releases"]
    two = next(row["epsilon"] for row in release["group"] if row["k"] == 2)
    assert (release["changed_row"]["k"], release["changed_row"]["epsilon"]) == (2, two)
    assert two > release["epsilon"]
    assert f"a group of two {units} does: ε ≤ 5.96." in release["changed_row"]["sentence"]


TRAINING = dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(0.01, dpa.GaussianDpEvent(1.1)), 1000)


@pytest.mark.parametrize(("cells", "less"), [((None,), True), ((("labels", "a"), ("labels", "b")), False)])
def test_a_changed_row_costs_less_than_two_only_where_it_cannot_move_to_another_part(
    cells: tuple[tuple[str, str] | None, ...], less: bool
) -> None:
    """At rate 0.001, noise 1 and 100 steps, what two parts tell has 1.45 times the delta at epsilon 1."""
    lines = tuple(query("dp3", "train", str(index), cell, event=TRAINING) for index, cell in enumerate(cells))
    (release,) = made(dp3=receipt("dp3", 2.98, queries=lines))["releases"]
    two = next(row["epsilon"] for row in release["group"] if row["k"] == 2)
    assert (release["changed_row"]["epsilon"] < two) == less


def test_the_promise_to_a_person_is_none_of_the_same_size_for_a_row() -> None:
    assert "does not imply the same ε for one row" in of_persons()["releases"][0]["changed_row"]["sentence"]
    none = {"group": tuple(replace(row, epsilon=None) for row in receipt("dp3", 2.98).group)}
    assert "no finite ε" in of_persons(dp3=receipt("dp3", 2.98, **none))["releases"][0]["changed_row"]["sentence"]


def test_delta_is_held_against_the_number_of_units() -> None:
    between = receipt("dp3", 2.98, delta=1 / 3000)  # 5,000 rows of 2,000 persons
    for found, flagged in ((of_persons(dp3=between), False), (made(dp3=between), True)):
        holds = {item["id"]: item["holds"] for item in found["assumptions"]}
        assert holds["run-delta"] == ("no" if flagged else "yes")
        assert any("delta" in flag for flag in found["releases"][0]["flags"]) == flagged


def test_a_receipt_of_the_other_unit_promises_nothing() -> None:
    for own, other in (("person", "record"), ("record", "person")):
        books = {name: replace(one, unit=other) for name, one in world_receipts().items()}
        found = statement(books, world_ledger(own), world_schema(own), world_stages())
        assert found["status"] == "NOT PRIVATE"
        assert found["reasons"] == [f"dp3 was charged for one {other}; the unit here is one {own}."]


@pytest.mark.parametrize("part", ["column", "n_persons", "max_rows_per_person"])
def test_the_schema_has_a_person_with_its_terms_and_a_record_without(part: str) -> None:
    persons, records = of_persons(), made()
    persons["unit"][part] = None
    records["unit"][part] = "customer" if part == "column" else 3
    assert not CHECK.is_valid(persons)
    assert not CHECK.is_valid(records)


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        ({"task": "classify", "label": "topic"}, "One record: its text and its label."),
        ({"task": "text", "label": None, "labels": {}}, "One record: its text."),
        ({"task": "span", "label": "intent", "labels": {}}, "its text and its label, which is free text and protected"),
        ({"task": "json", "label": None, "labels": {}}, "One record: all of its JSON object."),
    ],
)
def test_the_unit_is_all_that_belongs_to_a_record(facts: dict[str, Any], wanted: str) -> None:
    found = statement(world_receipts(), world_ledger(), world_schema() | facts, world_stages())
    CHECK.validate(found)
    assert wanted in found["unit"]["description"]


def test_stages_that_write_and_ask_have_their_line() -> None:
    zones = {"teach_similar": "public", "private_predict": "private", "incontext_baseline": "private"}
    zones |= {"incontext_eval": "private", "structure_audit": "dp"}
    stages = [{"name": name, "desc": "", "zone": zone, "deps": []} for name, zone in zones.items()]
    own = replace(charge(6, "predict3", "predict wave 0", "committed", "release", 3.0), stage="private_predict")
    ledger = replace(world_ledger(), charges=(*world_ledger().charges, own))
    found = {a["stage"]: a for a in statement(world_receipts(), ledger, world_schema(), stages)["data_accesses"]}
    assert {name: access["coverage"] for name, access in found.items()} == {
        "teach_similar": "public", "private_predict": "covered", "incontext_baseline": "not covered",
        "incontext_eval": "not covered", "structure_audit": "covered",
    }  # fmt: skip
    assert found["private_predict"]["charges"] == [6]
    assert "Metered" in found["private_predict"]["note"]
    assert "public or protected already" in found["structure_audit"]["note"]
    assert "stay in the private zone" in found["incontext_eval"]["note"]


def test_what_writing_rests_on_is_assumed_or_tested() -> None:
    found = {item["id"]: item for item in made()["assumptions"]}
    assert (found["batches"]["holds"], found["contexts"]["holds"]) == ("yes", "yes")
    assert "keyed hash" in found["batches"]["sentence"]
    assert "tried on public prompts" in found["contexts"]["sentence"]


def test_the_curve_grants_an_attack_the_deltas_beside_the_events() -> None:
    body = receipt("dp3", 1.0986122886681098, curve=Curve((0.0, 0.25, 1.0), (1.0, 0.25, 0.0)))
    failing = replace(body, queries=tuple(replace(line, own_delta=1e-6) for line in body.queries))
    lost = 1e-6 * len(body.queries)
    assert made(dp3=body)["releases"][0]["curve"] == {"alpha": [0.0, 0.25, 1.0], "beta": [1.0, 0.25, 0.0]}
    assert made(dp3=failing)["releases"][0]["curve"]["beta"] == [1.0 - lost, 0.25 - lost, 0.0]
    CHECK.validate(json.loads(json.dumps(made(dp3=failing))))


def test_words_follow_the_curve() -> None:
    """Randomised response with epsilon ln 3 finds 3 % at 1 %."""
    curve = Curve((0.0, 0.25, 1.0), (1.0, 0.25, 0.0))
    found = made(dp3=receipt("dp3", 1.0986122886681098, curve=curve))["releases"][0]["meaning"]
    assert found["true_positive_rate"] == pytest.approx(0.03, abs=1e-4)
    assert "at most 3.01 in 100" in found["sentence"]


@pytest.mark.parametrize(
    ("accountant", "name", "agree"),
    [("pld", "Privacy-loss distributions", True), ("zcdp", "zCDP, tight conversion", True), ("rdp", "Rényi DP", None)],
)
def test_the_accountant_is_named_and_one_alone_agrees_with_nobody(
    accountant: str, name: str, agree: bool | None
) -> None:
    found = made(dp3=receipt("dp3", 2.98, accountant=accountant))
    accounting = found["releases"][0]["accounting"]
    assert (accounting["name"], accounting["epsilon"], accounting["agree"]) == (name, 2.98, agree)
    assert not found["releases"][0]["flags"]
    CHECK.validate(found)
    accounting["agree"] = None if agree else True
    assert not CHECK.is_valid(found)


def parted() -> Receipt:
    """A release with queries of the whole data set, of three parts under one scheme and of one under another."""
    cells = [*(("keyed batches", cell) for cell in "0012"), ("labels", "a")]
    lines = tuple(query("dp3", "votes", f"{i}", cell) for i, cell in enumerate(cells))
    body = receipt("dp3", 2.98, accountant="zcdp")
    return replace(body, queries=body.queries + lines)


def test_parts_of_the_data_set_are_told_with_what_counts() -> None:
    found = made(dp3=parted())
    CHECK.validate(json.loads(json.dumps(found)))
    (batch, label) = found["releases"][0]["partitions"]
    assert (batch["scheme"], batch["cells"], batch["queries"]) == ("keyed batches", 3, 4)
    assert (label["scheme"], label["cells"], label["queries"]) == ("labels", 1, 1)
    assert "4 queries over 3 disjoint parts of the data set, each record in one by a keyed hash" in batch["sentence"]
    assert batch["sentence"].endswith("the largest cell counts.")
    assert "each record in one by its label" in label["sentence"]
    assert [line["partition"] for line in found["releases"][0]["mechanisms"]][1:3] == [None, ["keyed batches", "0"]]


def test_without_parts_nothing_is_said_of_them() -> None:
    assert made()["releases"][0]["partitions"] == []


def test_the_same_scheme_of_the_model_below_is_told_apart() -> None:
    body = parted()
    below = tuple(replace(line, model="below") for line in body.queries)
    found = made(dp3=replace(body, queries=below + body.queries))["releases"][0]["partitions"]
    assert [(part["model"], part["cells"]) for part in found] == [("below", 3), ("below", 1), ("dp3", 3), ("dp3", 1)]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"delta": 1e-3}, "delta"),
        ({"epsilon_rdp": 2.0}, "accountants"),
        ({"epsilon": 9.0, "epsilon_rdp": 9.5, "curve": Curve((0.0, 1.0), (0.0, 0.0))}, "weak"),
    ],
)
def test_what_a_reader_must_not_miss_is_flagged(change: dict[str, Any], word: str) -> None:
    assert not made()["releases"][0]["flags"]
    assert any(word in flag for flag in made(dp3=replace(receipt("dp3", 2.98), **change))["releases"][0]["flags"])


@pytest.mark.parametrize("found", [made(), of_persons()])
def test_an_assumption_holds_only_with_a_test_that_exists(found: dict[str, Any]) -> None:
    for item in found["assumptions"]:
        if not item["id"].startswith("run-"):
            assert item["holds"] in ("yes", "untested", "owner", "assumed")
            assert (item["holds"] == "yes") == (item["test"] is not None)
        if item["test"]:
            path, name = item["test"].split("::")
            assert re.search(rf"def {name}\(", (TESTS.parent / path).read_text(encoding="utf-8")), item["id"]


def with_second(bracket: Bracket | None, **receipts: Receipt) -> dict[str, Any]:
    books = world_receipts() | receipts
    return statement(books, world_ledger(), world_schema(), world_stages(), {"dp3": bracket, "inf": None})


@pytest.mark.parametrize(
    ("low", "high", "agree"),
    [
        (2.96, 2.97, True),
        (2.97, 3.03, True),
        (2.97, 3.05, False),
        (8.9, 9.0, False),
        (2.98, 2.99, True),
        (2.9801, 2.99, False),
        (2.9801, 2.9802, False),
    ],
)
def test_a_second_accountant_that_finds_more_by_either_end_is_a_contradiction(
    low: float, high: float, agree: bool
) -> None:
    promise = with_second(Bracket(low, high))
    CHECK.validate(json.loads(json.dumps(promise)))
    (release,) = promise["releases"]
    assert (release["accounting"]["epsilon_fourier"], release["accounting"]["agree"]) == (high, agree)
    assert any("contradict" in flag for flag in release["flags"]) == (not agree)
    doubts = [] if agree else ["The accountants contradict each other on dp3."]
    assert (promise["status"], promise["reasons"]) == ("DIFFERENTIALLY PRIVATE" if agree else "UNVERIFIED", doubts)


def test_a_stated_zero_is_contradicted_by_more_than_the_own_error_of_the_second() -> None:
    free = {"dp3": replace(receipt("dp3", 2.98), epsilon=0.0)}
    assert with_second(Bracket(0.0, 9e-5), **free)["status"] == "DIFFERENTIALLY PRIVATE"
    assert with_second(Bracket(0.0, 2e-4), **free)["status"] == "UNVERIFIED"


def test_no_second_opinion_is_no_contradiction() -> None:
    assert with_second(None) == made()
    assert made()["releases"][0]["accounting"]["epsilon_fourier"] is None


def test_rdp_below_the_stated_epsilon_is_not_relied_on() -> None:
    found = made(dp3=receipt("dp3", 2.98, epsilon_rdp=2.0))
    assert (found["status"], found["reasons"]) == ("UNVERIFIED", ["The accountants contradict each other on dp3."])
    CHECK.validate(found)


def test_an_epsilon_that_rdp_states_can_be_contradicted_too() -> None:
    stated = {"dp3": receipt("dp3", 2.98, accountant="rdp")}
    assert with_second(Bracket(2.5, 2.6), **stated)["status"] == "DIFFERENTIALLY PRIVATE"
    found = with_second(Bracket(3.1, 3.2), **stated)
    assert (found["status"], found["releases"][0]["accounting"]["agree"]) == ("UNVERIFIED", None)
    CHECK.validate(found)


def test_whether_to_release_is_named_as_part_of_the_choice() -> None:
    (choice,) = (item["sentence"] for item in made()["not_covered"] if item["id"] == "choice")
    assert "of whether to release" in choice


@pytest.mark.parametrize(("named", "status"), [((), "tested"), (ASSUMPTIONS[:1], "assumed"), (ASSUMPTIONS, "assumed")])
def test_rounding_is_charged_or_its_assumptions_are_named(named: tuple[str, ...], status: str) -> None:
    found = {one["name"]: one for one in made(dp3=receipt("dp3", 2.98, assumptions=named))["layers"]}["Floating point"]
    assert found["status"] == status
    assert [name for name in ASSUMPTIONS if name in found["sentence"]] == list(named)


def test_noise_that_is_not_exact_is_assumed_and_not_tested() -> None:
    layers = made(dp3=receipt("dp3", 2.98, method="predict"))["layers"]
    found = {one["name"]: one for one in layers}["Floating point"]
    assert found["status"] == "assumed"
    assert "draws" in found["sentence"]


def test_every_layer_has_its_status() -> None:
    assert {layer["status"] for layer in made()["layers"]} == {"proved", "tested", "assumed", "not covered"}


SOURCES = [
    {"source": "models.lm", "kind": "model", "name": "someone/model@abc", "sha256": "5e" * 32},
    {"source": "authors.cloud.model", "kind": "endpoint", "name": "writer-9", "sha256": None},
]


def test_what_is_public_is_so_on_the_owners_word() -> None:
    receipts = world_receipts()
    document = statement(receipts, world_ledger(), world_schema(), world_stages(), sources=SOURCES)
    CHECK.validate(document)
    (word,) = (item for item in document["assumptions"] if item["holds"] == "owner")
    assert word["sentence"] == "Public models, prompts and texts were not derived from these rows."
    assert word["sources"] == SOURCES
    (claim,) = (one for one in public_claims(document, receipts, world_ledger()) if one.id == "H-public-sources")
    assert claim.status == "assumed"
    assert "models.lm (someone/model@abc, 5e5e5e5e5e5e); authors.cloud.model (writer-9, no hash)" in claim.evidence
