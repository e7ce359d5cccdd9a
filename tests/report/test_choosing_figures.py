"""What is shown of rows that private rows chose, round by round."""

import pytest
from report_world import distances, evolution, page_of, results, svg, world_of_choosing

from palimpsest.report.sections import gallery, generation
from palimpsest_lab.audits.rounds import EvolutionAudit
from palimpsest_lab.sections import rounds


def test_each_round_is_a_row_for_each_measure() -> None:
    rows = rounds.distances(results({"evolve3": {"evolution": evolution("evolve3", [0.3, 0.2])}, "dp3": {}}))
    assert [(row["measure"], row["round"]) for row in rows] == [
        (measure, number) for number in (1, 2) for measure in ("frechet", "energy", "wasserstein")
    ]
    assert [row["value"] for row in rows] == pytest.approx([0.3, 0.09, 1.2, 0.2, 0.06, 0.8])
    assert {row["n"] for row in rows} == {900}


def test_each_measure_has_a_figure_with_its_floor() -> None:
    found = gallery(page_of(*world_of_choosing().values()))
    titles = {figure.title: figure for figure in found if figure.section == "Fidelity"}
    names = ("Fréchet", "Energy", "Wasserstein")
    assert list(titles) == [f"{name} distance, round by round" for name in names]
    figure = titles["Fréchet distance, round by round"]
    assert {row["floor"] for row in figure.rows} == {0.06}
    assert "evolve3 2 0.2" in figure.alt


def test_the_floor_is_drawn_dashed() -> None:
    audit = EvolutionAudit.of_texts([distances(0.3 / n)[:1] for n in (1, 2)])
    rows = rounds.distances(results({"a": {"evolution": audit.to_json("a")}}))
    assert 'stroke-dasharray="4,4"' in svg(rounds.distances_chart(rows))


def test_only_variants_that_were_chosen_are_in_the_table() -> None:
    page = page_of(*world_of_choosing().values())
    rows = generation.chosen_variants(page.results, page.receipts)
    assert [(row["variant"], row["rounds"], row["sigma"]) for row in rows] == [
        ("evolve3", 2, 3.25), ("pick3", None, 1.36),
    ]  # fmt: skip
