"""Private prediction: what a budget buys, what a fit asks, and that no setting of the model's own forbids a token."""

import json
import math
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from palimpsest.errors import ModelError, ParamsError
from palimpsest.methods.predict.declaration import PredictSettings
from palimpsest.methods.predict.fit import Predict, shape_of
from palimpsest.methods.predict.plan import (
    Spending,
    break_even,
    divide_at_least_one,
    mechanisms,
    notes,
    size_for,
    spend,
)
from palimpsest.methods.predict.plan import plan as planned
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.filters import refuse_perplexity
from palimpsest.methods.shared.method import Encoders
from palimpsest.methods.shared.predicted import Predicted, allowed_tokens, ends_of
from palimpsest.methods.shared.settings import Filters
from palimpsest.models.lm import load_lm
from palimpsest.prediction.mechanism import Rounding, token_rho
from palimpsest.privacy.accounting import epsilon, is_private, total_rho, zcdp_rho
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema
from tests.methods.encoders import encoding
from tests.methods.predict_settings import DIFFERENCE, ROWS, VECTOR, opened, predict_settings
from tests.prediction.world import freeze

BUDGET = Budget(10.0, 1e-3)
TABLE = {
    1.0: {127: 31, 255: 126, 511: 508, 1023: 2039},
    3.0: {127: 238, 255: 962, 511: 3866, 1023: 15494},
    10.0: {127: 1986, 255: 8007, 511: 32155, 1023: 128871},
}


# What a budget buys.


@pytest.mark.parametrize(("target", "size"), [(target, size) for target in TABLE for size in TABLE[target]])
def test_tokens_of_a_batch_are_those_of_the_table(target: float, size: int) -> None:
    settings, rho = predict_settings(batch_size=size), zcdp_rho(target, 1e-6)
    found = spend(settings, rho)
    assert found == Spending(TABLE[target][size], 10.0)
    clipping, _ = mechanisms(settings, found.clip)
    assert found.tokens * clipping.rho <= rho < (found.tokens + 1) * clipping.rho


@pytest.mark.parametrize("vector", [None, VECTOR])
@pytest.mark.parametrize(("clip", "tokens"), [(10.0, None), (None, 100)])
def test_a_batch_never_passes_its_rho(vector, clip, tokens) -> None:
    settings = predict_settings(batch_size=511, clip=clip, tokens=tokens, sparse_vector=vector)
    rho = zcdp_rho(3.0, 1e-6)
    found = spend(settings, rho)
    clipping, round_of = mechanisms(settings, found.clip)
    spent = found.tokens * (clipping.rho + (round_of.rho if round_of else 0.0))
    assert spent <= rho
    assert spent > rho * (1 - 1e-6) or tokens is None


def test_a_sparse_vector_costs_its_rounds() -> None:
    settings, rho = predict_settings(batch_size=511, sparse_vector=VECTOR), zcdp_rho(1.0, 1e-6)
    token = 0.5 * (10 / (511 * 2)) ** 2 + 2 / (511 * 0.2) ** 2
    assert spend(settings, rho).tokens == int(rho / token) == 101


def test_a_sparse_vector_breaks_even_at_a_fifth() -> None:
    assert break_even(predict_settings(sparse_vector=VECTOR), 10.0) == pytest.approx(0.2)
    assert break_even(predict_settings(), 10.0) == 0.0


@pytest.mark.parametrize(("size", "tokens", "temperature"), [(32, 100, 1.0), (8, 1, 1.1), (2047, 4000, 0.5)])
def test_tokens_leave_a_clip(size: int, tokens: int, temperature: float) -> None:
    settings = predict_settings(**DIFFERENCE | {"batch_size": size, "tokens": tokens, "temperature": temperature})
    rho = zcdp_rho(3.0, 1e-6)
    wanted = size * temperature * math.sqrt(2 * rho / tokens)
    found = spend(settings, rho)
    assert (found.tokens, found.clip) == (tokens, pytest.approx(wanted, rel=1e-6))
    assert found.clip <= wanted


@pytest.mark.parametrize("vector", [None, VECTOR])
@pytest.mark.parametrize(("clip", "tokens"), [(10.0, None), (None, 100)])
def test_a_batch_pays_for_rounding_and_never_passes_its_rho(vector, clip, tokens) -> None:
    settings = predict_settings(batch_size=511, clip=clip, tokens=tokens, sparse_vector=vector)
    rho, rounding = zcdp_rho(3.0, 1e-6), Rounding(1e-4, 4)
    found, exact = spend(settings, rho, rounding), spend(settings, rho)
    assert found.tokens * token_rho(*mechanisms(settings, found.clip), rounding) <= rho
    assert exact.tokens * token_rho(*mechanisms(settings, exact.clip), rounding) > rho
    assert (found.tokens + (tokens is None)) * token_rho(*mechanisms(settings, found.clip), rounding) > rho * (1 - 1e-6)


def test_a_reference_clips_nothing_that_matters() -> None:
    assert spend(predict_settings(), math.inf).clip >= 1e4


# What is said before anything is spent.


def said(settings, spending: Spending) -> str:
    return " / ".join(notes(settings, spending))


def test_notes_say_what_the_user_should_know() -> None:
    assert said(predict_settings(), Spending(100, 10.0)) == ""
    assert "fewer than a typical example" in said(predict_settings(), Spending(3, 10.0))
    assert "fewer than 20.0% of the tokens are private" in said(
        predict_settings(sparse_vector=VECTOR), Spending(100, 10.0)
    )
    assert "nearly what the public prompt" in said(predict_settings(**DIFFERENCE), Spending(6, 0.01))
    assert said(predict_settings(**DIFFERENCE), Spending(6, 1.0)) == ""


@pytest.mark.parametrize(("mode", "way"), [({}, -1), (DIFFERENCE, 1)])
def test_a_plan_says_which_size_would_write_the_rows_wanted(schema, mode: dict[str, Any], way: int) -> None:
    """The next size, smaller at a fixed clip and larger at fixed tokens, writes fewer."""

    def plan(size: int, rows: int | None) -> Plan:
        return planned(predict_settings(**mode, batch_size=size, rows=rows), schema, BUDGET)

    before = int(plan(24, None).numbers["expected_examples"])
    assert plan(24, None).notes == plan(24, before).notes == ()
    size = size_for(predict_settings(**mode), schema, BUDGET, before + 5)
    assert size is not None
    assert plan(24, before + 5).notes == (
        f"{before + 5} examples are wanted, and batch_size 24 writes about {before}: batch_size {size} would write "
        "them",
    )
    assert plan(size, before + 5).notes == ()
    assert int(plan(size + way, None).numbers["expected_examples"]) < before + 5
    assert "no batch_size would write them, raise" in plan(24, 10**9).notes[0]


@pytest.mark.parametrize(
    "changes",
    [{}, {"sparse_vector": VECTOR}, {"clip": None, "tokens": 500, "sparse_vector": VECTOR, "typical_tokens": 1}],
)
def test_a_plan_that_cannot_work_says_so_and_which_size_would(schema, changes) -> None:
    plan = planned(predict_settings(**changes), schema, Budget(0.2, 1e-6))
    assert (plan.feasible, plan.queries) == (False, ())
    (note,) = plan.notes
    size = int(note.split("raise batch_size above ")[1].split(",")[0])
    larger = predict_settings(**changes, batch_size=size + 1)
    rho = zcdp_rho(0.2, 1e-6)
    assert spend(larger, rho).tokens >= larger.typical_tokens
    assert spend(predict_settings(**changes, batch_size=size // 2), rho).tokens < larger.typical_tokens
    with pytest.raises(ParamsError, match="cannot work"):
        fit_of(plan, schema, Path("unread"), predict_settings(**changes))


@pytest.mark.parametrize("changes", [{}, DIFFERENCE, {"sparse_vector": VECTOR}])
@pytest.mark.parametrize("label_counts", ["prior", "noisy"])
def test_a_plan_keeps_the_budget(schema, changes, label_counts: str) -> None:
    settings = predict_settings(**changes, label_counts=label_counts)
    plan = planned(settings, schema, BUDGET)
    assert epsilon(plan.event, BUDGET.delta) <= BUDGET.epsilon
    assert epsilon(plan.event, BUDGET.delta) > 0.9 * BUDGET.epsilon
    waves = [query for query in plan.queries if query.steps]
    assert len(waves) == plan.numbers["waves"] == 2
    assert len({query.partition for query in waves}) == 2
    assert len(plan.queries) == 2 + (label_counts == "noisy")
    assert plan.numbers["batches"] == schema.n_public // settings.batch_size


@pytest.mark.parametrize("changes", [{}, DIFFERENCE, {"sparse_vector": VECTOR}])
def test_a_plan_with_rounding_keeps_the_budget_and_says_so(schema, changes) -> None:
    """Charged for all batches of a wave, which are read together."""
    plans = [planned(predict_settings(**changes, rounding=error), schema, BUDGET) for error in (None, 1e-3)]
    assert epsilon(plans[1].event, BUDGET.delta) <= BUDGET.epsilon
    assert [plan.numbers.get("rounding") for plan in plans] == [None, 1e-3]
    assert plans[1].numbers["tokens"] * plans[1].numbers["clip"] < plans[0].numbers["tokens"] * plans[0].numbers["clip"]
    wave = next(query for query in plans[1].queries if query.steps)
    clipping, vector = mechanisms(predict_settings(**changes), plans[1].numbers["clip"])
    assert total_rho(wave.event) == pytest.approx(wave.steps * token_rho(clipping, vector, Rounding(1e-3, 2)))


def test_a_plan_that_rounding_would_spoil_is_refused(schema) -> None:
    plan = planned(predict_settings(rounding=0.5), schema, BUDGET)
    assert (plan.feasible, plan.queries) == (False, ())
    assert "rounding of 0.5 nats" in plan.notes[0]
    assert "set rounding to null" in plan.notes[0]
    fine = planned(predict_settings(**DIFFERENCE, rounding=1e-6), schema, BUDGET)
    assert fine.feasible


def test_with_persons_waves_hold_fewer_batches_and_read_more_contexts(schema) -> None:
    """Public numbers count persons; memory and forward passes the rows that they may have."""
    persons = replace(schema, unit_column="author", n_persons=schema.n_public, max_rows_per_unit=4)
    plans = [planned(predict_settings(), each, BUDGET).numbers for each in (schema, persons)]
    assert plans[1]["batches"] == plans[0]["batches"]
    assert plans[1]["clip"] == plans[0]["clip"]
    assert plans[1]["tokens"] == plans[0]["tokens"]
    assert plans[1]["waves"] == 2 * plans[0]["waves"] == 4
    assert plans[1]["forward_tokens"] == plans[0]["forward_tokens"] * (4 * 24 + 1) / (24 + 1)


def test_a_reference_plan_is_not_private(schema) -> None:
    plan = planned(predict_settings(), schema, Budget(math.inf, 1e-3))
    assert all(not is_private(query.event) for query in plan.queries)


@pytest.mark.parametrize(
    ("changes", "message"), [({"prior": {"praise": 1.0}}, "public labels"), ({"batches": 1}, "fewer than the 2 labels")]
)
def test_settings_that_do_not_fit_the_schema_are_refused(schema, changes, message: str) -> None:
    with pytest.raises(ParamsError, match=message):
        planned(predict_settings(**changes), schema, BUDGET)


@pytest.mark.parametrize(
    "changes",
    [
        {"clip": 1.0, "tokens": 3}, {"clip": None}, {**DIFFERENCE, "sparse_vector": VECTOR},
        {"prior": {"a": -1.0, "b": 2.0}}, {"prior": {"a": 0.0}},
    ],
)  # fmt: skip
def test_settings_that_contradict_each_other_are_refused(changes) -> None:
    with pytest.raises(ValidationError):
        predict_settings(**changes)


def test_every_label_gets_a_batch() -> None:
    assert divide_at_least_one(10, {"a": 0.9, "b": 0.1}) == {"a": 8, "b": 2}
    assert divide_at_least_one(2, {"a": 1.0, "b": 0.0}) == {"a": 1, "b": 1}


# A fit.


def fit_of(
    plan: Plan,
    schema: PublicSchema,
    folder: Path,
    settings: PredictSettings,
    kept: Path | None = None,
    encoders: Encoders | None = None,
) -> Predict:
    return Predict(settings, schema, plan, folder, bytes(32), kept, refuse_perplexity, encoders)


def fitted(ledger, schema, folder: Path, settings, budget: Budget = BUDGET, kept: Path | None = None) -> Predicted:
    plan = planned(settings, schema, budget)
    with opened(ledger, schema, plan, "reference" if math.isinf(budget.epsilon) else "release") as view:
        return fit_of(plan, schema, folder, settings, kept).ask(view)


@pytest.mark.parametrize(
    "changes", [{}, DIFFERENCE, {"sparse_vector": VECTOR, "most_tokens": 30}, {"precision": "bf16"}]
)
def test_a_fit_asks_what_was_planned_and_writes_from_every_batch(ledger, schema, base, changes, tmp_path) -> None:
    settings = predict_settings(**changes, label_counts="noisy")
    found = fitted(ledger, schema, base, settings, kept=tmp_path / "kept")
    charges = ledger.charges("tiny")
    assert [charge.query for charge in charges] == ["label_histogram", "predict wave 0", "predict wave 1"]
    assert {charge.state for charge in charges} == {"committed"}
    assert ledger.balance("tiny").spent <= 1.3 * BUDGET.epsilon  # a filter over fixed orders
    assert len(found.batches) == 4
    assert {batch["label"] for batch in found.batches} == set(schema.labels)
    assert 0 < found.private_share <= 1.0
    assert found.drawn == sum(batch["drawn"] for batch in found.batches)
    records = list(found.examples)
    assert records
    assert {record.label for record in records} <= set(schema.labels)
    assert all(record.text for record in records)


def test_a_reference_writes_without_a_charge_against_the_total(ledger, schema, base) -> None:
    assert list(fitted(ledger, schema, base, predict_settings(**DIFFERENCE), Budget(math.inf, 1e-3)).examples)
    assert ledger.balance("tiny").spent == 0.0


def test_a_fit_that_cannot_read_its_prompts_spends_nothing(ledger, schema, base) -> None:
    with pytest.raises(ModelError, match="positions"):
        fitted(ledger, schema, base, predict_settings(max_tokens=40))
    assert {charge.state for charge in ledger.charges("tiny")} == {"refunded"}


def test_unfinished_examples_are_rows_where_they_are_wanted() -> None:
    batches = ({"label": "a", "examples": ["one", ""], "rest": "two", "drawn": 3, "private": 2},)
    assert list(Predicted(batches, True).examples) == [Record("one", "a"), Record("two", "a")]
    assert list(Predicted(batches, False).examples) == [Record("one", "a")]
    assert Predicted(batches, True).private_share == pytest.approx(2 / 3)


def test_of_free_labels_what_has_none_is_counted_as_removed() -> None:
    """Else fewer rows would be said to be drawn than were, and nothing would say why."""
    texts = ["sad | a film", "no joint", "glad |", "glad | a short one", "sad | a"]
    written = Predicted(({"label": "", "examples": texts, "rest": "", "drawn": 1, "private": 1},), False)
    filters = Filters(chain=("length",), min_words=2)
    made = written.made(filters, refuse_perplexity, " | ", None)
    assert (made.rows, made.drawn) == ([Record("a film", "sad"), Record("a short one", "glad")], 5)
    assert list(made.removed.items()) == [("joint", 2), ("length", 1)]
    made = written.made(filters, refuse_perplexity, None, None)
    assert (len(made.rows), made.drawn, made.removed) == (4, 5, {"length": 1})


# The model's own settings.


@pytest.fixture
def narrowed(base: Path, tmp_path: Path) -> Path:
    """The model in a folder whose own settings would forbid most tokens."""
    folder = tmp_path / "narrowed"
    shutil.copytree(base, folder)
    path = folder / "generation_config.json"
    body = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**body, "do_sample": True, "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.3}))
    return folder


def drawn_from(folder: Path, schema: PublicSchema, settings) -> Sequence[torch.Tensor]:
    """Scores of every draw of a fit whose draws are frozen."""

    class View:
        def ask(self, query: Any) -> Any:
            class Meter:
                charge, begun, limit, resumed, lasting = "", 0, query.steps, False, False

                def begin(self, steps: int) -> None:
                    self.begun += steps

            return query.run_steps(ROWS, NoiseSource(0), Meter())

    with pytest.MonkeyPatch.context() as patch:
        frozen = freeze(patch)
        fit_of(planned(settings, schema, BUDGET), schema, folder, settings).ask(View())
    return [scores for _, scores in frozen.draws()]


@pytest.mark.parametrize("changes", [{"clip": None, "tokens": 5}, DIFFERENCE])
def test_settings_of_the_models_own_are_told_and_ignored(schema, base, narrowed, changes) -> None:
    settings = predict_settings(**changes)
    with pytest.warns(UserWarning, match="is ignored") as told:
        narrow = drawn_from(narrowed, schema, settings)
    found = " ".join(str(warning.message) for warning in told)
    assert all(words in found for words in ("top_p=0.9", "top_k=20", "repetition_penalty=1.3"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = drawn_from(base, schema, settings)
    assert len(plain) == len(narrow)
    assert all(torch.equal(one, two) and bool(one.isfinite().all()) for one, two in zip(plain, narrow, strict=True))


def test_all_tokens_but_control_tokens_may_be_drawn(base) -> None:
    model, tokenizer = load_lm(base)
    ends = ends_of(model, tokenizer, "eos")
    allowed = allowed_tokens(model, tokenizer, ends)
    assert (~allowed).nonzero().squeeze(1).tolist() == sorted(set(tokenizer.all_special_ids) - ends)
    assert ends == {tokenizer.eos_token_id}
    lines = ends_of(model, tokenizer, "line") - ends
    assert lines
    assert all("\n" in tokenizer.decode([token]) for token in lines)


def test_two_waves_never_hold_one_record(schema) -> None:
    """What composes in parallel is disjoint: each record is in the part of one planned wave."""
    plan = planned(predict_settings(batch_size=10), schema, BUDGET)
    bounds = [tuple(map(int, query.partition[1].split(" to "))) for query in plan.queries if query.partition]
    assert bounds[0][0] == 0
    assert all(before[1] == after[0] for before, after in pairwise(bounds))
    assert bounds[-1][1] == plan.numbers["batches"]


# Class means beside the text.


def encode(texts: Sequence[str]) -> np.ndarray:
    """Vectors of three letters' counts."""
    return np.array([[1.0 + text.count("a"), 1.0 + text.count("e"), 1.0 + text.count("o")] for text in texts])


MEANS = {"share": 0.2, "keep": 0.5, "domain": 1.0, "batch": 1}


@pytest.mark.parametrize("label_counts", ["prior", "noisy"])
def test_class_means_come_out_of_the_same_budget(schema, label_counts: str) -> None:
    settings = predict_settings(class_means=MEANS, label_counts=label_counts, **DIFFERENCE)
    plan = planned(settings, schema, BUDGET)
    names = [query.name for query in plan.queries if query.partition is None]
    assert names == [*(["label_histogram"] if label_counts == "noisy" else []), "class_means"]
    assert 0.98 * BUDGET.epsilon < epsilon(plan.event, BUDGET.delta) <= BUDGET.epsilon
    without = planned(predict_settings(label_counts=label_counts, **DIFFERENCE), schema, BUDGET)
    assert plan.numbers["clip"] < without.numbers["clip"]


def test_a_fit_with_class_means_asks_for_them_once(ledger, schema, base) -> None:
    settings = predict_settings(class_means=MEANS, **DIFFERENCE)
    plan = planned(settings, schema, BUDGET)
    with opened(ledger, schema, plan) as view:
        found = fit_of(plan, schema, base, settings, encoders=encoding(encode, 3)).ask(view)
    assert found.sums is not None
    assert (found.sums.labels, found.sums.sums.shape) == (schema.label_names, (len(schema.label_names), 3))


@pytest.mark.parametrize(("means", "encoders"), [(MEANS, None), (None, encoding(encode, 3))])
def test_class_means_and_an_encoder_go_together(schema, means, encoders) -> None:
    settings = predict_settings(class_means=means, **DIFFERENCE)
    with pytest.raises(ValueError, match="go together"):
        fit_of(planned(settings, schema, BUDGET), schema, Path("unread"), settings, encoders=encoders)


def test_class_means_need_two_labels(schema) -> None:
    alone = replace(schema, labels={})
    with pytest.raises(ParamsError, match="means needs two labels"):
        planned(predict_settings(class_means=MEANS), alone, BUDGET)


def test_class_means_leave_something_for_the_text() -> None:
    with pytest.raises(ValidationError, match="leave nothing of the budget"):
        predict_settings(class_means={**MEANS, "share": 0.96})


def test_a_processor_reads_few_rows_of_public_widths_and_other_devices_many_of_one() -> None:
    assert shape_of(256, 139, 64, processor=True).widths == [32, 64, 128, 139]
    assert (shape_of(256, 139, 64, processor=True).rows, shape_of(7, 20, 64, processor=True).rows) == (32, 7)
    assert shape_of(7, 20, 64, processor=True).widths == [20]
    assert (shape_of(256, 139, 64, processor=False).rows, shape_of(256, 139, 64, processor=False).widths) == (
        256,
        [139],
    )
