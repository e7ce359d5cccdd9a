"""The numbers of the audits of the rows: what stands beside what."""

import pytest
from report_world import membership as attacks
from report_world import page_of, results, svg, text_membership, world_of_audits, world_receipts

from palimpsest.audit.inconclusive import Inconclusive
from palimpsest.report.sections import fidelity, membership, memorisation, utility
from palimpsest.report.summary import uncovered_claims

RESULTS = results(world_of_audits()["metrics"])


def test_members_stand_beside_records_that_were_never_read() -> None:
    rows = [row for row in membership.phantoms(RESULTS) if row["variant"] == "dp3"]
    assert [(row["order"], row["side"], row["count"]) for row in rows] == [
        (1, "members", 12), (1, "never read", 9), (2, "members", 6), (2, "never read", 4),
    ]  # fmt: skip


def test_kinds_of_personal_data_that_occur_nowhere_are_left_out() -> None:
    rows = [row for row in memorisation.repeats(RESULTS) if row["variant"] == "inf"]
    assert [row["what"] for row in rows] == ["near-duplicates", "name", "secrets, exact", "secrets, near"]
    assert [(row["members"], row["never read"]) for row in rows] == [(30, 0), (1, 0), (30, 0), (30, 0)]


def test_risks_carry_their_cap_and_whether_they_say_anything() -> None:
    rows = [row for row in membership.risks(RESULTS) if row["variant"] == "dp3"]
    assert [(row["attack"], row["risk"], row["cap"], row["informed"]) for row in rows] == [
        ("singling out: singling_out", 0.1, 0.9, True), ("linkability: linkability", 0.1, 0.9, False),
    ]  # fmt: skip


def test_a_place_lies_between_the_floor_and_public_text() -> None:
    found = {row["measure"]: row["place"] for row in fidelity.fidelity(RESULTS) if row["variant"] == "dp3"}
    assert found["frechet"] == (0.5 - 0.2) / (0.9 - 0.2)
    assert found["coverage"] == (0.6 - 0.9) / (0.3 - 0.9)
    assert (found["precision"], found["length"]) == (None, None)


def test_measures_that_tell_nothing_apart_keep_their_lines() -> None:
    metrics = world_of_audits()["metrics"]
    for body in metrics.values():
        for one in body["fidelity"]["measures"].values() if "fidelity" in body else ():
            one["public"] = one["floor"]
    (figure,) = (one for one in fidelity.SECTION.figures(page_of(metrics, world_receipts())) if "as sets" in one.title)
    assert {row["place"] for row in figure.rows} == {None}
    assert "frechet" in svg(figure.chart)
    assert figure.alt == "No measure can tell public text from private."


def test_the_bracket_shows_the_stronger_of_the_attacks() -> None:
    metrics = world_of_audits()["metrics"]
    metrics["dp3"]["text_membership"] = text_membership("dp3", 0.1, 2.98, 9, right=190)
    rows = utility.bracket(page_of(metrics, world_receipts()).summary)
    shown = {row["kind"]: row["epsilon"] for row in rows if row["variant"] == "dp3"}
    assert shown[utility.ATTACKED] == pytest.approx(2.208, abs=1e-3)  # of two audits


def test_every_audit_that_is_called_conclusive_could_refute_beside_all_others_of_its_claim() -> None:
    """Each by itself could refute 3.6: of the three of one release none can, and of a release with two both."""
    metrics = world_of_audits()["metrics"]
    alone = page_of({"dp3": {"membership": attacks("dp3", 0.05, 3.6, 11, right=200)}}, world_receipts())
    assert [row["verdict"] for row in membership.hard_gates(alone.summary)] == ["refuted"]
    metrics["dp3"] = {name: attacks("dp3", 0.05, 3.6, 11, right=200) for name in ("membership", "shadow_membership")}
    pair = membership.hard_gates(page_of(metrics, world_receipts()).summary)
    assert [row["verdict"] for row in pair] == ["refuted", "refuted"]
    metrics["dp3"]["text_membership"] = text_membership("dp3", 0.1, 3.6, 9, right=200)
    gates = membership.hard_gates(page_of(metrics, world_receipts()).summary)
    assert [row["seen"] for row in gates] == ["the model", "the rows alone", "the model beside shadow models"]
    assert [row["verdict"] for row in gates] == ["inconclusive"] * 3
    assert {row["eps_max"] < 3.6 for row in gates} == {True}


def test_an_audit_without_a_result_keeps_its_share_and_has_its_line() -> None:
    metrics = world_of_audits()["metrics"]
    metrics["dp3"] = {name: attacks("dp3", 0.05, 3.6, 11, right=200) for name in ("membership", "shadow_membership")}
    metrics["dp3"]["text_membership"] = Inconclusive("nobody may be guessed about", "Wait.", failed=False).document
    page = page_of(metrics, world_receipts())
    gates = membership.hard_gates(page.summary)
    assert [row["verdict"] for row in gates] == ["inconclusive"] * 3
    assert [row["lower"] is None for row in gates] == [False, False, True]
    assert {row["eps_max"] < 3.6 for row in gates if row["eps_max"] is not None} == {True}
    (claim,) = uncovered_claims(page.results)
    assert claim.status == "not covered"
    assert claim.sentence == "Audit text membership of dp3: inconclusive, because nobody may be guessed about."


def test_an_attack_that_succeeds_on_everybody_is_in_no_figure_and_has_its_line() -> None:
    metrics = world_of_audits()["metrics"]
    one = metrics["dp3"]["anonymity"]["attacks"]["linkability"]
    one |= {"risk": None, "control": one["control"] | {"rate": 1.0}}
    page = page_of(metrics, world_receipts())
    assert [row["attack"] for row in membership.risks(page.results) if row["variant"] == "dp3"] == [
        "singling out: singling_out"
    ]
    (row,) = membership.undefined_risks(page.results)
    assert (row["variant"], row["attack"], row["verdict"]) == ("dp3", "linkability: linkability", "inconclusive")
    (table,) = membership.ANONYMITY.tables(page)
    assert "because the attack succeeds on all that were never read too" in str(table.columns[-1].cell(row))
    assert list(membership.ANONYMITY.figures(page))
