import json
from typing import Any

import pytest
from report_world import results, utility, world_ledger, world_metrics, world_receipts

from palimpsest.audit.statistics import Estimate
from palimpsest.errors import DataError
from palimpsest.report.results import FinalTable, Fraction, Score
from palimpsest.report.summary import summarise


def test_releases_come_first_and_baselines_last() -> None:
    summary = summarise(results(world_metrics()), world_receipts(), world_ledger())
    assert [row.variant for row in summary.rows] == ["dp3", "inf", "real", "public_only"]
    assert [row.role for row in summary.rows] == ["release", "reference", "real", "public_only"]
    assert summary.evaluators == ("tfidf_lr", "minilm_lr")


def score_of(metrics: dict[str, dict[str, Any]], variant: str = "dp3") -> Score:
    rows = {row.variant: row for row in summarise(results(metrics), world_receipts(), world_ledger()).rows}
    score = rows[variant].score("tfidf_lr")
    assert score is not None
    return score


def test_retention_and_gap_are_those_of_the_evaluation_with_their_intervals() -> None:
    metrics = world_metrics()
    found = metrics["dp3"]["utility"]["evaluators"]["tfidf_lr"]
    found |= {
        "retention": {"value": 0.8, "low": 0.7, "high": 0.9},
        "gap_closed": {"value": 0.5, "low": 0.4, "high": 0.6},
    }
    score = score_of(metrics)
    assert score.retention == Estimate(0.8, 0.7, 0.9)
    assert score.gap_closed == Estimate(0.5, 0.4, 0.6)
    assert score.gap_note is None


def test_no_gap_where_public_text_does_as_well_as_real_rows() -> None:
    metrics = world_metrics() | {"dp3": {"utility": utility("dp3", 0.7, 0, public=0.9)}}
    score = score_of(metrics)
    assert score.gap_closed is None
    assert score.gap_note == "the gap between public_only and real is within its 95% interval"


def test_a_missing_gap_always_has_its_reason() -> None:
    alone = {"dp3": world_metrics()["dp3"]}
    del alone["dp3"]["utility"]["evaluators"]["tfidf_lr"]["gap_closed"]
    assert score_of(alone).gap_note == "needs both the real and the public_only row"
    assert score_of(world_metrics() | alone).gap_note == "not compared with the baselines"


def test_baselines_are_compared_with_the_real_row_and_close_no_gap() -> None:
    real, public = score_of(world_metrics(), "real"), score_of(world_metrics(), "public_only")
    assert real.retention is not None
    assert public.retention is not None
    assert real.retention.value == 1.0 > public.retention.value
    assert (real.gap_closed, public.gap_closed) == (None, None)


def test_the_strongest_attack_is_shown() -> None:
    row = summarise(results(world_metrics()), world_receipts(), world_ledger()).of("reference")[0]
    attacks = world_metrics()["inf"]["membership"]["attacks"]
    assert row.audits["membership"].auc.value == max(attack["auc"] for attack in attacks.values())


def test_what_was_not_measured_is_none() -> None:
    metrics = {"dp3": {"facts": world_metrics()["dp3"]["facts"]}}
    row = summarise(results(metrics), world_receipts(), world_ledger()).rows[0]
    assert (row.audits, row.ngram_excess, row.scores, row.rows) == ({}, None, (), None)
    assert row.canaries_leaked == Fraction(0, 20)


def test_a_measured_variant_needs_a_receipt() -> None:
    with pytest.raises(DataError, match="'stray'"):
        summarise(results({"stray": {"facts": world_metrics()["dp3"]["facts"]}}), world_receipts(), world_ledger())


def test_it_is_kept_and_read_back_whole() -> None:
    table = summarise(results(world_metrics()), world_receipts(), world_ledger()).table(
        {"dp3": "Better."}, ["mia (dp3)"]
    )
    kept = json.loads(json.dumps(table.to_json()))
    assert (kept["zone"], kept["rows"][0]["epsilon_proved"]) == ("internal", 2.98)
    assert FinalTable.from_json(kept) == table
