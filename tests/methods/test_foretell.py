"""A plan says from public numbers whether noise decides; a run that would pay for noise needs a word."""

import math

import pytest

from palimpsest.methods.evolve.declaration import EvolveMeans
from palimpsest.methods.evolve.plan import plan as plan_evolve
from palimpsest.methods.select.declaration import SelectSettings
from palimpsest.methods.shared.base import Budget
from palimpsest.methods.shared.foretell import foretell_means
from palimpsest.methods.shared.means import plan_means
from palimpsest.records.schema import PublicSchema
from tests.methods.evolve.evolving import evolve_settings


def schema(labels: int, units: int) -> PublicSchema:
    named = {f"label{number}": "" for number in range(labels)}
    return PublicSchema("a", "classify", "text", units, 100, label="label", labels=named)


@pytest.mark.parametrize(
    ("labels", "units", "epsilon", "word"),
    [(150, 3000, 3.0, "lost"), (150, 30_000, 3.0, "good"), (2, 4000, 3.0, "good"), (13, 260, 3.0, "weak"),
     (13, 130, 1.0, "lost")],
)  # fmt: skip
def test_a_plan_says_in_a_word_what_noise_leaves(labels: int, units: int, epsilon: float, word: str) -> None:
    plan = plan_means("select", SelectSettings(), schema(labels, units), Budget(epsilon, 1e-5))
    assert f", {word};" in plan.told[0]
    assert plan.lost == (word == "lost")


def test_a_reference_has_no_noise_to_speak_of() -> None:
    plan = plan_means("select", SelectSettings(), schema(4, 100), Budget(math.inf, 1e-5))
    assert not plan.told
    assert not plan.lost


@pytest.mark.parametrize(("units", "word"), [(40_000, "good"), (2000, "weak"), (200, "lost")])
def test_votes_are_foretold_too_and_class_means_beside_them_save_a_plan(units: int, word: str) -> None:
    votes, public = evolve_settings(rows=2000, rounds=1, expand=1, class_means=None), schema(2, units)
    plan = plan_evolve(votes, public, Budget(3.0, 1e-5))
    assert f", {word};" in plan.told[0]
    assert plan.lost == (word == "lost")
    assert not plan_evolve(
        evolve_settings(rows=2000, class_means=EvolveMeans(share=0.5)), public, Budget(3.0, 1e-5)
    ).lost


@pytest.mark.parametrize(("units", "noted"), [(50_000, False), (600, True)])
def test_counts_that_noise_moves_are_noted(units: int, noted: bool) -> None:
    wanted = SelectSettings(label_counts="noisy")
    told = plan_means("select", wanted, schema(20, units), Budget(3.0, 1e-5)).told
    assert any("label_counts prior" in line for line in told) == noted


def test_the_word_falls_with_labels_and_noise_and_rises_with_records() -> None:
    order = ["lost", "weak", "good"]
    for units in (50, 200, 800, 3200):
        by_noise = [order.index(foretell_means(schema(8, units), sigma).word) for sigma in (0.1, 0.5, 2.0, 8.0)]
        by_labels = [order.index(foretell_means(schema(labels, units), 1.0).word) for labels in (2, 8, 32, 128)]
        assert by_noise == sorted(by_noise, reverse=True)
        assert by_labels == sorted(by_labels, reverse=True)
