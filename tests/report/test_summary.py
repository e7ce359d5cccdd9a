import json

import pytest
from report_world import utility, world_ledger, world_metrics, world_receipts

from palimpsest.errors import DataError
from palimpsest.report.summary import Share, summarise


def test_releases_come_first_and_baselines_last() -> None:
    summary = summarise(world_metrics(), world_receipts(), world_ledger())
    assert [row.variant for row in summary.rows] == ["dp3", "inf", "real", "public_only"]
    assert [row.role for row in summary.rows] == ["release", "reference", "real", "public_only"]
    assert summary.evaluators == ("tfidf_lr", "minilm_lr")


def test_retention_and_gap_are_ratios_of_accuracies() -> None:
    metrics = {
        name: {"utility": utility(name, value, 0)}
        for name, value in (("dp3", 0.7), ("real", 0.9), ("public_only", 0.5))
    }
    score = summarise(metrics, world_receipts(), world_ledger()).rows[0].score("tfidf_lr")
    assert score is not None
    assert score.retention == pytest.approx(0.69 / 0.89)
    assert score.gap_closed == pytest.approx(0.5)


def test_no_gap_where_public_text_does_as_well_as_real_rows() -> None:
    metrics = {
        name: {"utility": utility(name, value, 0)}
        for name, value in (("dp3", 0.7), ("real", 0.9), ("public_only", 0.88))
    }
    score = summarise(metrics, world_receipts(), world_ledger()).rows[0].score("tfidf_lr")
    assert score is not None
    assert score.gap_closed is None
    assert score.gap_note is not None


def test_the_strongest_attack_is_shown() -> None:
    row = summarise(world_metrics(), world_receipts(), world_ledger()).of("reference")[0]
    attacks = world_metrics()["inf"]["membership"]["attacks"]
    assert row.membership is not None
    assert row.membership.auc.value == max(attack["auc"] for attack in attacks.values())


def test_what_was_not_measured_is_none() -> None:
    metrics = {"dp3": {"facts": world_metrics()["dp3"]["facts"]}}
    row = summarise(metrics, world_receipts(), world_ledger()).rows[0]
    assert (row.membership, row.ngram_excess, row.scores, row.rows) == (None, None, (), None)
    assert row.canaries_leaked == Share(0, 20)


def test_a_measured_variant_needs_a_receipt() -> None:
    with pytest.raises(DataError, match="'stray'"):
        summarise({"stray": {}}, world_receipts(), world_ledger())


def test_json_holds_plain_values() -> None:
    found = summarise(world_metrics(), world_receipts(), world_ledger()).to_json()
    assert json.loads(json.dumps(found))["rows"][0]["epsilon_proved"] == 2.98
    assert found["zone"] == "internal"
