"""Few-shot generation as a generator: its plan keeps the budget, and a fit asks one query for each label."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from palimpsest.errors import ModelError, ParamsError
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.filters import refuse_perplexity
from palimpsest.privacy.accounting import epsilon, is_private
from palimpsest.records.schema import PublicSchema
from palimpsest_lab.methods.fewshot.declaration import FewShotSettings
from palimpsest_lab.methods.fewshot.fit import FewShot
from palimpsest_lab.methods.fewshot.plan import plan as planned
from palimpsest_lab.shots import WriteShots
from tests.methods.predict_settings import few_settings, opened

BUDGET, REFERENCE = Budget(1.0, 1e-3), Budget(math.inf, 1e-3)


def fit_of(
    plan: Plan, schema: PublicSchema, folder: Path, settings: FewShotSettings, kept: Path | None = None
) -> FewShot:
    return FewShot(settings, schema, plan, folder, kept, refuse_perplexity)


def test_a_plan_keeps_the_budget_for_every_record(schema) -> None:
    plan = planned(few_settings(), schema, BUDGET)
    assert 0.99 * BUDGET.epsilon <= epsilon(plan.event, BUDGET.delta) <= BUDGET.epsilon
    assert [query.partition[1] for query in plan.queries if query.partition] == list(schema.labels)
    assert all(query.steps == 2 * 4 for query in plan.queries)
    assert plan.numbers["sampling_rate"] == pytest.approx(2 * 2 / 50)


def test_rates_follow_the_public_prior_and_the_largest_is_charged(schema, base) -> None:
    settings = few_settings(prior={"praise": 3.0, "a complaint": 1.0})
    asked: list[WriteShots] = []

    class View:
        def ask(self, query: Any) -> Any:
            asked.append(query)

    fit_of(planned(settings, schema, REFERENCE), schema, base, settings).ask(View())
    assert [query.sampling.rate for query in asked] == pytest.approx([4 / 75, 4 / 25])
    assert [query.sampling.charged_rate for query in asked] == pytest.approx([4 / 25] * 2)


def test_a_task_without_labels_reads_all_records() -> None:
    plain = PublicSchema("tiny", "text", "text", n_public=100, max_length=200)
    plan = planned(few_settings(), plain, REFERENCE)
    assert [query.partition for query in plan.queries] == [None]
    assert plan.numbers["sampling_rate"] == pytest.approx(4 / 100)


def test_more_records_in_prompts_than_there_are_cannot_work(schema) -> None:
    plan = planned(few_settings(prompts=30), schema, BUDGET)
    assert (plan.feasible, plan.queries) == (False, ())
    assert "lower prompts or shots" in plan.notes[0]
    with pytest.raises(ParamsError, match="cannot work"):
        fit_of(plan, schema, Path("unread"), few_settings(prompts=30))


def test_a_plan_that_rounding_would_spoil_is_refused(schema) -> None:
    plan = planned(few_settings(rounding=2.0), schema, BUDGET)
    assert (plan.feasible, plan.queries) == (False, ())
    assert "set rounding to null" in plan.notes[0]
    fine = planned(few_settings(rounding=1e-4), schema, BUDGET)
    assert fine.numbers["rounding"] == 1e-4


def test_rates_count_persons(schema) -> None:
    persons = replace(schema, unit_column="author", n_persons=50, max_rows_per_unit=4)
    plan = planned(few_settings(), persons, BUDGET)
    assert plan.numbers["sampling_rate"] == pytest.approx(2 * 2 / 25)


def test_settings_that_do_not_fit_are_refused(schema) -> None:
    with pytest.raises(ParamsError, match="public labels"):
        planned(few_settings(prior={"praise": 1.0}), schema, BUDGET)
    with pytest.raises(ValidationError):
        few_settings(prior={"praise": 1.0, "a complaint": 0.0})


def test_a_fit_asks_each_label_once(ledger, schema, base, tmp_path) -> None:
    settings = few_settings()
    plan = planned(settings, schema, BUDGET)
    fit = fit_of(plan, schema, base, settings, tmp_path / "kept")
    with opened(ledger, schema, plan) as view:
        found = fit.ask(view)
    assert [(charge.query, charge.state) for charge in ledger.charges("tiny")] == [
        (f"fewshot {label}", "committed") for label in schema.labels
    ]
    assert [batch["label"] for batch in found.batches] == list(schema.labels)
    assert all(len(batch["examples"]) == 2 for batch in found.batches)
    assert found.private_share == 1.0


def test_a_reference_adds_no_noise(ledger, schema, base) -> None:
    settings = few_settings()
    plan = planned(settings, schema, REFERENCE)
    fit = fit_of(plan, schema, base, settings)
    assert all(not is_private(query.event) for query in plan.queries)
    with opened(ledger, schema, plan, "reference") as view:
        assert list(fit.ask(view).examples)


def test_a_prompt_that_does_not_fit_spends_nothing(ledger, schema, base) -> None:
    settings = few_settings(max_tokens=40)
    plan = planned(settings, schema, REFERENCE)
    fit = fit_of(plan, schema, base, settings)
    with pytest.raises(ModelError, match="positions"), opened(ledger, schema, plan, "reference") as view:
        fit.ask(view)
    assert {charge.state for charge in ledger.charges("tiny")} == {"refunded"}
