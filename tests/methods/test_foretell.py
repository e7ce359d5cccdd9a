"""A plan says from public numbers whether noise decides; a run that would pay for noise needs a word."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dp_accounting import GaussianDpEvent

from palimpsest.methods.dp_lm.plan import plan as plan_training
from palimpsest.methods.dp_lm.plan import plan_discriminator
from palimpsest.methods.dp_lm.settings import DiscriminatorTrain, DpLmTrain
from palimpsest.methods.evolve.declaration import EvolveMeans
from palimpsest.methods.evolve.plan import plan as plan_evolve
from palimpsest.methods.predict.declaration import PredictSettings
from palimpsest.methods.predict.plan import plan as plan_prediction
from palimpsest.methods.select.declaration import SelectSettings
from palimpsest.methods.shared.base import Budget, Plan, foretell_means
from palimpsest.methods.shared.means import plan_means
from palimpsest.params.load import loads
from palimpsest.records.schema import PublicSchema
from palimpsest.settings import Settings, Stated
from stages.spenders import Prices, spenders
from tests.methods.evolve.evolving import evolve_settings

ROOT = Path(__file__).parents[2]


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


# Trainings and private prediction


def filled(kind: type[Settings], public: PublicSchema, **written: object) -> Any:
    """Settings with the defaults of a new workspace."""
    return kind.model_validate(written, context=Stated("classify", "a", True, public.n_units, None, True))


def trained(public: PublicSchema, epsilon: float, **written: object) -> Plan:
    settings = filled(DpLmTrain, public, **{"discriminator_weight": 0.0, "label_counts": "prior", **written})
    return plan_training(settings, public, Budget(epsilon, 1e-5))


def judged(public: PublicSchema, epsilon: float, **written: object) -> Plan:
    settings = filled(DiscriminatorTrain, public, **written)
    return plan_discriminator(settings, public, Budget(epsilon, 1e-5), GaussianDpEvent(1e3))


def predicted(public: PublicSchema, epsilon: float, **written: object) -> Plan:
    return plan_prediction(
        filled(PredictSettings, public, prompt={}, filters={}, **written), public, Budget(epsilon, 1e-5)
    )


WAYS = pytest.mark.parametrize("way", [trained, judged, predicted])


@WAYS
def test_a_method_says_more_with_epsilon_and_records_and_less_with_labels(way: Callable[..., Plan]) -> None:
    def ratios(*settings: tuple[int, int, float]) -> list[float]:
        return [way(schema(labels, units), epsilon).foretold[0].ratio for labels, units, epsilon in settings]

    for found in (ratios(*((4, 128, epsilon) for epsilon in (0.5, 1.0, 2.0))),
                  ratios(*((4, units, 1.0) for units in (64, 128, 256))),
                  ratios(*((labels, 256, 1.0) for labels in (16, 8, 4)))):  # fmt: skip
        assert found == sorted(set(found))


@WAYS
def test_a_hopeless_setting_of_a_method_is_lost_and_a_reference_is_not(way: Callable[..., Plan]) -> None:
    public = schema(20, 200)
    plan = way(public, 1.0)
    assert plan.lost
    assert "public_only, at epsilon 0, does as well" in plan.told[0]
    free = way(public, math.inf, **({"tokens": 4, "clip": None} if way is predicted else {}))
    assert not free.lost
    assert not any("public_only" in line for line in free.told)


@pytest.mark.parametrize(
    "written", [{"lora_rank": 4}, {"soft_prompt": 4}, {"discriminator_weight": 1.0}, {"prompt": "A text: "}]
)
def test_of_trainings_that_were_not_measured_nothing_is_foretold(written: dict[str, object]) -> None:
    assert not trained(schema(20, 200), 1.0, **written).foretold
    assert not judged(schema(20, 200), 1.0, reads="both").foretold
    assert not predicted(schema(20, 200), 1.0, class_means=None).foretold
    assert not trained(schema(2, 4000), 3.0).foretold


@pytest.mark.parametrize("file", ["params.yaml", "params.full.yaml"])
def test_nothing_of_the_demo_is_lost(file: str) -> None:
    params = loads((ROOT / file).read_text(encoding="utf-8"))
    plans = [Prices(params).plan_of(each.name) for each in spenders(params)]
    assert {plan.method for plan in plans} >= {"dp_lm", "predict", "select"}
    assert not [plan for plan in plans if plan.lost]
