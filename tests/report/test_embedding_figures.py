"""What is shown of embeddings that evolve, of their decoder, and of answers behind demonstrations."""

import json
from typing import Any

import pytest
from report_world import (
    decoder,
    in_context,
    page_of,
    receipt,
    results,
    svg,
    world_metrics,
    world_of_choosing,
    world_of_embedding,
    world_receipts,
)

from palimpsest.report.sections import gallery, generation, utility
from palimpsest.report.sections import generation as of_decoder
from palimpsest.report.sections.base import Figure
from palimpsest_lab.sections import incontext, rounds


def shown(world: dict[str, dict[str, dict[str, Any]]]) -> dict[str, Figure]:
    return {figure.title: figure for figure in gallery(page_of(*world.values()))}


WORLD = world_of_embedding()
RESULTS, RECEIPTS = results(WORLD["metrics"]), WORLD["receipts"]
FIGURES = shown(WORLD)


# Distances.


def test_parents_are_a_line_of_their_own_with_their_own_floor() -> None:
    figure = FIGURES["Wasserstein distance, round by round"]
    found = [(row["series"], row["round"], row["value"], row["floor"]) for row in figure.rows]
    assert found == [
        ("embed3", 1, pytest.approx(1.2), pytest.approx(0.24)),
        ("embed3", 2, pytest.approx(0.8), pytest.approx(0.24)),
        ("embed3", 3, pytest.approx(0.6), pytest.approx(0.24)),
        ("embed3, parents", 2, pytest.approx(0.72), pytest.approx(0.36)),
        ("embed3, parents", 3, pytest.approx(0.48), pytest.approx(0.36)),
    ]
    drawn = svg(figure.chart)
    assert drawn.count('aria-roledescription="point"') == 5
    assert drawn.count('stroke-dasharray="4,4"') == 2
    assert "Of embed3, all candidates of a round are drawn" in figure.caption
    assert "embed3, parents 3 0.48" in figure.alt


def test_a_method_without_parents_says_nothing_of_them() -> None:
    caption = shown(world_of_choosing())["Fréchet distance, round by round"].caption
    assert caption.endswith("to be below it is no sign of copies.")


# Votes and parents.


def test_the_spread_of_votes_is_drawn_for_all_labels_and_for_each() -> None:
    figure = FIGURES["How votes spread, round by round"]
    assert [(row["round"], row["variance"]) for row in figure.rows if row["label"] == rounds.ALL_LABELS] == [
        (1, 12.0), (2, 6.0), (3, 2.0),
    ]  # fmt: skip
    assert len(figure.rows) == 9
    assert list(figure.columns) == ["variant", "round", "label", "candidates", "mean", "variance"]
    drawn = svg(figure.chart)
    assert drawn.count('aria-roledescription="point"') == 3
    assert drawn.count('aria-roledescription="line mark"') == 3  # two labels, and both together
    assert "embed3 2 all labels 6" in figure.alt


def test_votes_of_a_task_without_labels_are_one_line() -> None:
    rows = [row for row in rounds.votes(RESULTS) if row["label"] == rounds.ALL_LABELS]
    assert svg(rounds.votes_chart(rows)).count('aria-roledescription="line mark"') == 1


def test_parents_are_counted_before_and_after_the_check() -> None:
    figure = FIGURES["Parents, round by round"]
    found = [(row["round"], row["what"], row["parents"]) for row in figure.rows]
    assert found == [
        (1, "selected", 60), (1, "readable too", 60), (2, "selected", 48), (2, "readable too", 30),
        (3, "selected", 0), (3, "readable too", 0),
    ]  # fmt: skip
    drawn = svg(figure.chart)
    assert drawn.count('aria-roledescription="line mark"') == 2
    assert drawn.count('aria-roledescription="point"') == 6


def test_rounds_of_texts_have_no_votes_to_show() -> None:
    found = results(world_of_choosing()["metrics"])
    assert rounds.votes(found) == rounds.parents(found) == []
    assert "Parents, round by round" not in shown(world_of_choosing())


# Tables.


def test_chosen_rows_have_the_noise_of_their_method() -> None:
    rows = generation.chosen_variants(RESULTS, RECEIPTS)
    assert [(row["variant"], row["method"], row["sigma"], row["rounds"]) for row in rows] == [
        ("embed3", "embed", 2.75, 3), ("deep3", "sentdp", 0.87, None),
    ]  # fmt: skip


def test_replaced_words_have_an_epsilon_in_words() -> None:
    (row,) = generation.replaced_variants(RESULTS, RECEIPTS)
    assert row == {
        "variant": "words", "epsilon": "3 per word (not per record)", "neighbours": 20, "vocabulary": 20_000,
        "kept": 891,
    }  # fmt: skip


def test_samples_say_whether_they_were_kept() -> None:
    rows = of_decoder.filtered_samples(RESULTS)
    assert [(row["variant"], row["kept"], row["perplexity"]) for row in rows] == [
        ("embed3", True, 41.5), ("embed3", False, 987.0),
    ]  # fmt: skip
    assert of_decoder.filtered_samples(results(world_of_choosing()["metrics"])) == []


def test_a_decoder_is_its_reconstruction_and_its_samples() -> None:
    found = results({}, decoders={"a": decoder(), "b": decoder(0.8)})
    assert [(row["name"], row["cosine"], row["rows"], row["readable_share"]) for row in of_decoder.decoders(found)] == [
        ("a", 0.914, 500, 0.875), ("b", 0.8, 500, 0.875),
    ]  # fmt: skip
    assert [(row["name"], row["cosine"]) for row in of_decoder.decoded_texts(found)] == [("a", 0.93), ("b", 0.93)]


def test_a_method_of_words_is_a_level_and_never_a_point_at_an_epsilon() -> None:
    figure = FIGURES["Usefulness for its privacy, by tfidf_lr"]
    (own,) = (row for row in figure.rows if row["variant"] == "words")
    assert own["epsilon"] == "3 per word (not per record)"
    text = json.dumps(figure.chart.to_dict())
    assert "per word" not in text
    assert svg(figure.chart).count('aria-roledescription="point"') == 1  # dp3
    summary = page_of(*WORLD.values()).summary
    assert [row["epsilon"] for row in utility.frontier(summary, "tfidf_lr") if row["variant"] == "words"] == [None]
    assert {row.variant: row.token_epsilon for row in summary.rows if row.token_epsilon} == {"words": 3.0}


# Answers.


def test_zero_shot_comes_first_then_real_rows_then_public_ones() -> None:
    rows = incontext.in_context_rows(RESULTS, RECEIPTS)
    assert [(row["variant"], row["shots"]) for row in rows[:5]] == [
        ("zero-shot", 0), ("real", 1), ("real", 6), ("public_only", 1), ("public_only", 6),
    ]  # fmt: skip
    epsilons = {row["variant"]: row["epsilon"] for row in rows}
    assert epsilons == {
        "zero-shot": 0.0, "real": "∞", "public_only": 0.0, "inf": "∞", "words": "3 per word (not per record)",
        "embed3": 2.99, "deep3": 3.0,
    }  # fmt: skip


def test_the_deviation_is_between_draws_and_one_draw_has_none() -> None:
    zero, first, *_ = incontext.in_context_rows(RESULTS, RECEIPTS)
    assert (zero["deviation"], zero["draws"], first["draws"]) == (None, 1, 5)
    assert first["deviation"] == pytest.approx(0.0158, abs=1e-4)


def test_zero_shot_levels_that_differ_are_both_shown() -> None:
    metrics = {name: {"incontext": in_context(name, {1: 0.5}, zero)} for name, zero in (("real", 0.4), ("dp3", 0.3))}
    rows = incontext.in_context_rows(results(metrics), {"dp3": receipt("dp3", 1.0)})
    assert [(row["variant"], row["accuracy"]) for row in rows[:2]] == [("zero-shot", 0.4), ("zero-shot", 0.3)]


def test_rows_are_folded_by_their_number_of_demonstrations() -> None:
    lines = incontext.group_by_variant(incontext.in_context_rows(RESULTS, RECEIPTS))
    assert [line["variant"] for line in lines[:3]] == ["zero-shot", "real", "public_only"]
    assert {number: row["accuracy"] for number, row in lines[1]["shots"].items()} == pytest.approx({1: 0.54, 6: 0.6})


def test_no_demonstrations_alone_are_no_figure() -> None:
    metrics = world_metrics() | {"real": {"incontext": in_context("real", {})}}
    assert "Answers behind demonstrations" not in shown({"metrics": metrics, "receipts": world_receipts()})


def test_the_drawing_has_no_place_for_zero_shot_but_its_level() -> None:
    figure = FIGURES["Answers behind demonstrations"]
    spec = figure.chart.to_dict()
    data = spec["datasets"][spec["layer"][1]["data"]["name"]]
    assert {row["shots"] for row in data} == {1, 6}
    assert spec["datasets"][spec["layer"][0]["data"]["name"]] == [{"level": 0.42}]
