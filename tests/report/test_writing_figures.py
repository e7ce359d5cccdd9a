"""What is shown of rows that were asked behind demonstrations, that should be JSON, or that private contexts wrote."""

import math
from typing import Any

import pytest
from report_world import (
    generation,
    in_context,
    page_of,
    predicted,
    receipt,
    results,
    shots_written,
    structure,
    svg,
    world_metrics,
    world_of_writing,
    world_receipts,
)

from palimpsest.report.results import Results
from palimpsest.report.sections import fidelity as of_structure
from palimpsest.report.sections import gallery
from palimpsest.report.sections import generation as written
from palimpsest.report.sections.base import Figure
from palimpsest_lab.sections import incontext

TITLES = ("Answers behind demonstrations", "Rows that are JSON, and rows that conform")


def drawn(metrics: dict[str, Any], receipts: dict[str, Any]) -> dict[str, Figure]:
    return {figure.title: figure for figure in gallery(page_of(metrics, receipts)) if figure.title in TITLES}


def asked(**rows: dict[str, Any]) -> Results:
    return results({name: {"incontext": found} for name, found in rows.items()})


def test_each_number_of_demonstrations_is_a_row_with_both_intervals() -> None:
    found = asked(dp3=in_context("dp3", {4: 0.5, 8: math.nan}, zero=0.4))
    _, row = incontext.in_context_rows(found, {"dp3": receipt("dp3", 2.98)})
    assert row == pytest.approx(
        {"variant": "dp3", "epsilon": 2.98, "shots": 4, "draws": 5, "accuracy": 0.5, "low": 0.45, "high": 0.55}
        | {"deviation": 0.0158114, "gain": 0.1, "gain_low": 0.06, "gain_high": 0.14, "zero_shot": 0.4}
    )


def test_what_was_not_answered_is_told_with_its_reason() -> None:
    real = in_context("real", {4: 0.5, 8: math.nan})
    few = in_context("dp3", {4: math.nan, 8: math.nan}, lacks="demonstrations")
    missing = incontext.unanswered_rows(asked(real=real, dp3=few))
    assert [tuple(row.values()) for row in missing] == [
        ("real", 8, "context"), ("dp3", 4, "demonstrations"), ("dp3", 8, "demonstrations"),
    ]  # fmt: skip


def test_without_a_zero_shot_level_there_is_no_gain_and_no_line() -> None:
    rows = incontext.in_context_rows(asked(dp3=in_context("dp3", {4: 0.5}, zero=None)))
    assert [rows[0][key] for key in ("gain", "gain_low", "gain_high", "zero_shot")] == [None] * 4
    marks = [layer["mark"]["type"] for layer in incontext.chart(rows).to_dict()["layer"]]
    assert marks == ["line", "rule", "point"]
    metrics = world_metrics() | {"real": {"incontext": in_context("real", {4: 0.5}, zero=None)}}
    assert "Without demonstrations nothing was answered." in drawn(metrics, world_receipts())[TITLES[0]].caption


def test_answers_are_a_line_a_row_over_the_level_without_demonstrations() -> None:
    figure = drawn(**world_of_writing())[TITLES[0]]
    spec = figure.chart.to_dict()
    assert [layer["mark"]["type"] for layer in spec["layer"]] == ["rule", "line", "rule", "point"]
    assert spec["datasets"][spec["layer"][0]["data"]["name"]] == [{"level": 0.42}]
    assert svg(figure.chart).count('aria-roledescription="point"') == len(figure.rows) - 1 == 9
    assert svg(figure.chart).count('aria-roledescription="line mark"') == 3
    assert "95% intervals" in figure.caption
    assert "Dashed: without demonstrations, 42.0%." in figure.caption
    assert "16 of real, public_only, predict3 (the model's context is too short)" in figure.caption
    assert "predict3 8 0.55" in figure.alt
    assert figure.rows == incontext.in_context_rows(
        results(world_of_writing()["metrics"]), world_of_writing()["receipts"]
    )
    assert (figure.rows[0]["variant"], figure.rows[0]["shots"], figure.rows[0]["accuracy"]) == ("zero-shot", 0, 0.42)


@pytest.mark.parametrize("judges", [True, False])
def test_a_model_that_cannot_judge_is_named_before_its_figures(judges: bool) -> None:
    metrics = world_metrics() | {"real": {"incontext": in_context("real", {4: 0.4}, judges=judges)}}
    caption = drawn(metrics, world_receipts())[TITLES[0]].caption
    assert caption.startswith("Real demonstrations do not beat no demonstrations") != judges


def test_shares_of_structure_are_those_of_the_file() -> None:
    rows = of_structure.structure(results({"dp3": {"structure": structure("dp3", 100, 40)}}))
    shares = [(row["what"], row["count"], row["total"], row["share"]) for row in rows]
    assert shares == [(of_structure.PARSED, 100, 200, 0.5), (of_structure.VALID, 40, 200, 0.2)]
    assert [(row["low"], row["high"]) for row in rows] == [(0.45, 0.55), pytest.approx((0.15, 0.25))]


def test_structure_is_drawn_with_intervals() -> None:
    figure = drawn(**world_of_writing())[TITLES[1]]
    assert svg(figure.chart).count('aria-roledescription="point"') == 2
    assert [layer["mark"]["type"] for layer in figure.chart.to_dict()["layer"]] == ["rule", "point"]
    assert figure.alt == "Share of rows: predict3 is JSON 0.95; predict3 conforms to the schema 0.855."
    assert "Wilson" in figure.caption


def test_no_rows_have_no_shares() -> None:
    """Their rate is no number, which a page cannot hold."""
    metrics = world_metrics() | {"dp3": {"structure": structure("dp3", 0, 0, total=0)}}
    assert drawn(metrics, world_receipts()) == {}


def test_what_was_written_is_plan_and_count() -> None:
    receipts = {"p": predicted("p"), "free": predicted("free", None), "shots": shots_written("shots")}
    receipts |= {"dp3": receipt("dp3", 2.98)}
    rows = written.written_variants(results({name: {"generation": generation(name)} for name in receipts}), receipts)
    keys = ("variant", "method", "clip", "batch_tokens", "batches")
    assert [tuple(row[key] for key in keys) for row in rows] == [
        ("p", "predict", 0.731, 96, 40), ("free", "predict", None, 96, 40), ("shots", "fewshot", None, None, None),
    ]  # fmt: skip
    assert {key: rows[0][key] for key in ("tokens", "private_share", "drawn", "kept", "removed")} == {
        "tokens": 12_345, "private_share": 0.837, "drawn": 412, "kept": 381, "removed": {"near": 27, "public": 4},
    }  # fmt: skip


def test_what_was_not_measured_has_no_figure_and_no_line() -> None:
    assert drawn(world_metrics(), world_receipts()) == {}
    assert written.written_variants(results(world_metrics()), world_receipts()) == []
