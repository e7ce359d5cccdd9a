from dataclasses import replace
from typing import Any

import pytest
from report_world import results, world_ledger, world_metrics, world_receipts

from palimpsest.audit.statistics import Estimate
from palimpsest.report.results import Membership, Row, Score, overall_verdict
from palimpsest.report.summary import conclusions, public_conclusions, summarise


def said(**changes: object) -> str:
    """What is said of a release that differs in these fields from a measured one."""
    summary = summarise(results(world_metrics()), world_receipts(), world_ledger())
    own = replace(summary.of("release")[0], **changes)  # type: ignore[arg-type]
    own = replace(own, verdict=overall_verdict(own.audits.values()))
    rows = tuple(own if row.role == "release" else row for row in summary.rows)
    return conclusions(replace(summary, rows=rows))["dp3"]


def release() -> Row:
    return summarise(results(world_metrics()), world_receipts(), world_ledger()).of("release")[0]


def gap(low: float, high: float) -> tuple[Score, ...]:
    return (replace(release().scores[0], gap_closed=Estimate((low + high) / 2, low, high)),)


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0.5, 0.61, "closes 50% to 61% of the gap"),
        (-0.1, 0.2, "No gain over public text alone that this test could show"),
        (-0.3, -0.1, "Worse than public text alone"),
    ],
)
def test_a_gain_is_one_only_where_its_interval_is_above_zero(low: float, high: float, words: str) -> None:
    assert words in said(scores=gap(low, high))


def attacked(verdict: str, **changes: Any) -> Membership:
    found = release().audits["membership"]
    return replace(found, **{"verdict": verdict, "eps_max": 4.06} | changes)


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        ("refuted", "An attack refuted its privacy claim"),
        ("not refuted", "No attack refuted its claim; a perfect one could have refuted a claim of up to ε = 4.06."),
        ("inconclusive", "No attack was strong enough"),
    ],
)
def test_an_attack_that_could_not_have_refuted_is_never_said_to_have_failed(verdict: str, words: str) -> None:
    assert words in said(audits={"membership": attacked(verdict)})


def test_one_audit_that_refutes_is_enough() -> None:
    assert overall_verdict([attacked("not refuted"), None, attacked("refuted")]) == "refuted"
    assert overall_verdict([attacked("inconclusive"), attacked("not refuted")]) == "not refuted"
    assert overall_verdict([attacked("inconclusive"), None]) == "inconclusive"
    assert overall_verdict([None, None]) is None


def test_an_attack_without_a_result_passes_nothing() -> None:
    assert overall_verdict([None, None], unsettled=True) == "inconclusive"
    assert overall_verdict([attacked("not refuted")], unsettled=True) == "not refuted"
    why = {"text_membership": "nobody may be guessed about", "utility": "no row has a label"}
    alone = said(audits={}, scores=(), unsettled=why)
    assert alone == (
        "Its usefulness is inconclusive, because no row has a label. "
        "Its text membership attack is inconclusive, because nobody may be guessed about."
    )
    beside = said(audits={"membership": attacked("not refuted")}, unsettled=why)
    assert "No attack refuted its claim" in beside
    assert beside.endswith("Its text membership attack is inconclusive, because nobody may be guessed about.")


@pytest.mark.parametrize(("low", "blind"), [(0.49, True), (0.51, False)])
def test_attacks_that_find_nothing_without_noise_either_are_said_to(low: float, blind: bool) -> None:
    summary = summarise(results(world_metrics()), world_receipts(), world_ledger())
    (reference,) = summary.of("reference")
    seen = replace(reference.audits["membership"], auc=Estimate(0.55, low, 0.6))
    own = replace(reference, audits={"membership": seen})
    told = conclusions(replace(summary, rows=(*summary.of("release"), own)))["dp3"]
    assert ("The attacks tell no members of inf either, which is not private." in told) == blind
    other = replace(own, method="embed", audits={"membership": replace(seen, auc=Estimate(0.5, 0.4, 0.6))})
    assert "The attacks tell" not in conclusions(replace(summary, rows=(*summary.of("release"), other)))["dp3"]


def test_the_power_of_an_audit_that_came_to_nothing_is_not_told() -> None:
    weak, none = attacked("not refuted", eps_max=3.5), attacked("inconclusive", eps_max=6.0)
    assert "a claim of up to ε = 3.5." in said(audits={"membership": weak, "text_membership": none})


def test_what_an_audit_showed_whose_control_failed_is_not_told() -> None:
    failed = attacked("inconclusive", control_passed=False, epsilon_lower=3.9)
    changes = {"audits": {"membership": failed}}
    assert "The controls of all attacks failed: they say nothing." in said(**changes)
    row = replace(release(), **changes)  # type: ignore[arg-type]
    assert (row.epsilon_lower, row.strongest) == (None, None)


def test_what_was_not_measured_is_said() -> None:
    told = said(audits={}, scores=())
    assert told == "Its usefulness was not measured. It was not attacked."


@pytest.mark.parametrize(
    ("own", "words"), [((0.7, 0.8), "learns more"), ((0.5, 0.62), "No difference"), ((0.2, 0.3), "learns less")]
)
def test_the_card_compares_intervals_on_the_public_file(own: tuple[float, float], words: str) -> None:
    def scored(low: float, high: float) -> dict[str, dict[str, float]]:
        return {"tfidf_lr": {"accuracy": (low + high) / 2, "low": low, "high": high}}

    scores = {"variants": {"dp3": scored(*own), "public_only": scored(0.4, 0.6)}}
    assert words in public_conclusions(scores, ["dp3", "other"])["dp3"]
    assert public_conclusions(None, ["dp3"]) == {}
    other = {"variants": {"dp3": {"minilm_lr": scored(*own)["tfidf_lr"]}, "public_only": scored(0.4, 0.6)}}
    assert public_conclusions(other, ["dp3"]) == {}
