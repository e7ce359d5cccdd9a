"""The drawings of hidden states: what is drawn is what the table shows, and the table stays small."""

import math
import re
from typing import Any

import numpy as np
import pytest
from report_world import LABELS, audited, page_of, results, svg, world_metrics, world_models, world_receipts

from palimpsest.audit.statistics import Estimate
from palimpsest.report.drawing import Rows
from palimpsest.report.sections import gallery
from palimpsest.report.sections.base import Figure
from palimpsest_lab.audits.separation import Projection, Separation, SeparationAudit
from palimpsest_lab.sections import separation

RESULTS = results({}, models=world_models())


def projected(**drawings: Projection) -> Rows:
    """The rows of one model's drawings."""
    audit = SeparationAudit(Separation(Estimate(0.5, 0.4, 0.6), (0.5,), 0.3, 10, 10), None, drawings)
    return separation.projection(results({}, models={"base": audit.to_json("base")}))


def separations(models: dict[str, dict[str, Any]]) -> list[Figure]:
    """The section's figures."""
    return list(separation.SECTION.figures(page_of({}, {}, models)))


def test_scores_are_rows_of_their_models() -> None:
    rows = separation.separation(RESULTS)
    assert [row["name"] for row in rows] == ["base", "dp3", "inf"]
    assert rows[1] == {"name": "dp3", "accuracy": 0.78, "low": 0.75, "high": 0.81, "chance": 0.24, "lm_loss": 3.5}


def test_every_panel_goes_from_0_to_1() -> None:
    rows = separation.projection(RESULTS)
    assert list(rows[0]) == ["name", "method", "x", "y", "label"]
    for name in world_models():
        for method in ("pca", "umap"):
            panel = [row for row in rows if (row["name"], row["method"]) == (name, method)]
            assert len(panel) == 40
            for axis in ("x", "y"):
                assert (min(row[axis] for row in panel), max(row[axis] for row in panel)) == (0, 1)


def test_stretching_keeps_proportions_and_labels() -> None:
    rows = projected(pca=Projection.of(np.array([[2.0, 5.0], [4.0, 5.0], [10.0, 5.0]]), ["a", "b", "a"]))
    assert [(row["x"], row["y"], row["label"]) for row in rows] == [(0, 0.5, "a"), (0.25, 0.5, "b"), (1, 0.5, "a")]


@pytest.mark.parametrize(("count", "shown"), [(299, 299), (300, 300), (301, 300), (5000, 300)])
def test_a_panel_shows_at_most_300_points_from_all_over_the_rows(count: int, shown: int) -> None:
    drawn = Projection.of(np.repeat(np.arange(count), 2).reshape(-1, 2), [str(index) for index in range(count)])
    rows = projected(pca=drawn, umap=drawn)
    kept = [int(row["label"]) for row in rows]
    assert kept[:shown] == kept[shown:] == sorted(set(kept))
    assert (kept[0], kept[shown - 1]) == (0, count - 1)
    assert max(np.diff(kept[:shown])) <= math.ceil(count / shown)


def test_models_come_with_two_figures_with_words() -> None:
    scores, dots = separations(world_models())
    assert {figure.section for figure in (scores, dots)} == {"Separation"}
    assert scores.alt == "Accuracy of the forest: base 0.61; dp3 0.78; inf 0.9."
    assert "never the text" in scores.caption
    assert "private zone" in dots.caption
    assert all(word in dots.alt for word in ("base, dp3, inf", "pca, umap", *LABELS))
    assert (scores.rows, dots.rows) == (separation.separation(RESULTS), separation.projection(RESULTS))


def test_scores_are_drawn_with_interval_and_chance() -> None:
    chart = separation.scores_chart(separation.separation(RESULTS))
    marks = [layer["mark"]["type"] for layer in chart.to_dict()["layer"]]
    assert marks == ["tick", "rule", "point"]
    assert svg(chart).count('aria-roledescription="point"') == 3


def test_every_point_is_drawn_in_its_place_inside_its_panel() -> None:
    rows = separation.projection(RESULTS)
    chart = separation.projections_chart(rows)
    found = re.findall(r'aria-roledescription="point" transform="translate\(([\d.]+),([\d.]+)\)"', svg(chart))
    places = np.array(found, dtype=float) / [300, chart.to_dict()["height"] / 3]  # in panels from the top left
    columns, lines = ["pca", "umap"], ["base", "dp3", "inf"]
    panels = np.array([[columns.index(row["method"]), lines.index(row["name"])] for row in rows])
    inside = places - panels
    assert np.allclose(inside, [[(row[axis] + 0.06) / 1.12 for axis in "xy"] for row in rows], atol=0.01)
    assert ((inside > 0.05) & (inside < 0.95)).all()


def test_many_labels_differ_in_colour_or_shape() -> None:
    rows = [{"name": "base", "method": "pca", "x": 0.5, "y": 0.5, "label": f"label {i:02}"} for i in range(30)]
    encoding = separation.projections_chart(rows).to_dict()["layer"][0]["encoding"]
    looks = zip(*(encoding[channel]["scale"]["range"] for channel in ("color", "shape")), strict=True)
    assert len(set(looks)) == 30


def test_what_was_not_measured_has_no_figure() -> None:
    assert separations({}) == []
    (scores,) = separations({"base": audited("base", 0.6, 0, methods=())})
    assert scores.title.startswith("Labels")


def test_the_gallery_shows_models_only_where_it_is_given_some() -> None:
    without, with_models = (
        [(figure.section, figure.title) for figure in gallery(page_of(world_metrics(), world_receipts(), models))]
        for models in ({}, world_models())
    )
    assert "Separation" not in {section for section, _ in without}
    assert [figure for figure in with_models if figure[0] != "Separation"] == without
    assert sum(section == "Separation" for section, _ in with_models) == 2
