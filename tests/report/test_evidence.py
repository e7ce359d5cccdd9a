"""The numbers of the audits of the rows: what stands beside what."""

from report_world import world_ledger, world_of_audits, world_receipts

from palimpsest.report import evidence, tables
from palimpsest.report.summary import summarise

METRICS = world_of_audits()["metrics"]


def test_members_stand_beside_records_that_were_never_read() -> None:
    rows = [row for row in evidence.phantoms(METRICS) if row["variant"] == "dp3"]
    assert [(row["order"], row["side"], row["count"]) for row in rows] == [
        (1, "members", 12), (1, "never read", 9), (2, "members", 6), (2, "never read", 4),
    ]  # fmt: skip


def test_kinds_of_personal_data_that_occur_nowhere_are_left_out() -> None:
    rows = [row for row in evidence.repeats(METRICS) if row["variant"] == "inf"]
    assert [row["what"] for row in rows] == ["near-duplicates", "name", "secrets, exact", "secrets, near"]
    assert [(row["members"], row["never read"]) for row in rows] == [(30, 0), (1, 0), (30, 0), (30, 0)]


def test_risks_carry_their_cap_and_whether_they_say_anything() -> None:
    rows = [row for row in evidence.risks(METRICS) if row["variant"] == "dp3"]
    assert [(row["attack"], row["risk"], row["cap"], row["informed"]) for row in rows] == [
        ("singling out: singling_out", 0.1, 0.9, True), ("linkability: linkability", 0.1, 0.9, False),
    ]  # fmt: skip


def test_a_place_lies_between_the_floor_and_public_text() -> None:
    found = {row["measure"]: row["place"] for row in evidence.fidelity(METRICS) if row["variant"] == "dp3"}
    assert found["frechet"] == (0.5 - 0.2) / (0.9 - 0.2)
    assert found["coverage"] == (0.6 - 0.9) / (0.3 - 0.9)
    assert (found["precision"], found["length"]) == (None, None)


def test_the_bracket_shows_the_stronger_of_the_attacks() -> None:
    metrics = world_of_audits()["metrics"]
    metrics["dp3"]["text_membership"]["epsilon_lower"]["value"] = 1.75
    rows = tables.bracket(summarise(metrics, world_receipts(), world_ledger()))
    shown = {row["kind"]: row["epsilon"] for row in rows if row["variant"] == "dp3"}
    assert shown[tables.ATTACKED] == 1.75


def test_a_claim_is_refuted_by_all_tests_together_more_rarely_than_by_one() -> None:
    metrics, receipts = world_of_audits()["metrics"], world_receipts()
    tests = ("membership", "text_membership", "shadow_membership")
    metrics["dp3"]["shadow_membership"] = dict(metrics["dp3"]["membership"])
    for kind, p in zip(tests, (0.01, 0.04, 0.001), strict=True):
        metrics["dp3"][kind] |= {"p": p, "verdict": "refuted"}
    rows = tables.hard_gates(summarise(metrics, receipts, world_ledger()))
    assert [(row["seen"], row["refuted"]) for row in rows] == [
        ("the model", True), ("the rows alone", True), ("the model beside shadow models", True),
    ]  # fmt: skip
    metrics["dp3"]["membership"] |= {"p": 0.03}
    rows = tables.hard_gates(summarise(metrics, receipts, world_ledger()))
    assert [row["refuted"] for row in rows] == [False, False, True]
    metrics["dp3"]["shadow_membership"] |= {"verdict": "inconclusive"}
    rows = tables.hard_gates(summarise(metrics, receipts, world_ledger()))
    assert [row["refuted"] for row in rows] == [False, False, None]
