"""What is shown of prompts: what the judge knows of its own demonstration stands before what it knows of members."""

import pytest
from report_world import page_of, prompt_membership, svg, world_metrics, world_receipts

from palimpsest.report.sections import gallery, membership
from palimpsest.report.sections.base import Page
from palimpsest_lab.sections import prompts

OWN, BEHIND = "A member in the prompt, dp3", "One row of dp3 in the prompt"


def page(known: float) -> Page:
    """The world with an attack on the prompts of dp3, whose judge knows a demonstration by so much."""
    metrics = world_metrics()
    metrics["dp3"]["prompt_membership"] = prompt_membership("dp3", known)
    return page_of(metrics, world_receipts())


@pytest.mark.parametrize(("known", "verdict"), [(3.0, "not refuted"), (0.0, "inconclusive")])
def test_a_judge_that_knows_no_demonstration_decides_nothing(known: float, verdict: str) -> None:
    shown = page(known)
    (found,) = (row.audits["prompt_membership"] for row in shown.summary.rows if row.variant == "dp3")
    assert found is not None
    assert found.verdict == verdict
    control, attack = prompts.attacks(shown.results)
    assert (control["behind"], control["control"] == "works") == (prompts.ITSELF, known > 0)
    assert (attack["behind"], attack["control"]) == (prompts.SYNTHETIC, None)
    gates = {row["seen"]: row["verdict"] for row in membership.hard_gates(shown.summary) if row["variant"] == "dp3"}
    assert gates["the rows in a judge's prompt"] == verdict


def test_both_densities_are_drawn_with_their_tables() -> None:
    figures = {figure.title: figure for figure in gallery(page(3.0))}
    own, behind = figures[OWN], figures[BEHIND]
    assert own.alt == "How likely a judge finds the own label of members and of others; on average members 0.97, " + (
        "never read 0.50."
    )
    assert sum(row["share"] for row in behind.rows if row["side"] == prompts.MEMBERS) == pytest.approx(1.0)
    assert {(row["from"], row["to"]) for row in behind.rows[:2]} == {(0.0, 0.05), (0.05, 0.1)}
    assert svg(own.chart).count("members") > 0


def test_a_page_without_the_attack_says_nothing_of_it() -> None:
    bare = page_of(world_metrics(), world_receipts())
    assert not [figure.title for figure in gallery(bare) if "in the prompt" in figure.title]
    (table,) = prompts.SECTION.tables(bare)
    assert not table.lines
