"""`dp_lm` where records have fields: they stand in a record's own prompt, and rows are drawn under noisy tables."""

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from palimpsest.errors import ParamsError
from palimpsest.methods.dp_lm import sampling
from palimpsest.methods.dp_lm.fit import DpLm, shapes
from palimpsest.methods.dp_lm.model import DpLmArtifact
from palimpsest.methods.dp_lm.plan import plan as planned
from palimpsest.methods.dp_lm.serialise import serialiser
from palimpsest.methods.shared.base import Budget
from palimpsest.methods.shared.postprocess import FilterChain
from palimpsest.models.tokens import train_tokenizer
from palimpsest.privacy.accounting import epsilon, is_private
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.ledger.records import Run
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.session import metered
from palimpsest.records.fields import domains_of, encode_cells
from palimpsest.records.record import Record
from tests.methods.two_classes import two_class_records
from tests.reading import EVERYTHING, reading

BUDGET = Budget(3.0, 1e-3)
FIELDS = {"thing": ("lamp", "radio", "kettle"), "age": "number(0..100, 50)"}
LABELS = {"a": "A", "quite a long one": "B"}


@pytest.fixture
def schema(schema):
    return replace(schema, fields=FIELDS)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["thing: lamp, age: 0 to 50. I say what a word I say is, a word.\n"] * 9, 330, 96)


def private_rows(fields: dict[str, Any]) -> list[PrivateRow]:
    """What a text is about is its one field."""
    domains = domains_of(fields)
    return [
        PrivateRow(one.text, one.label, None, encode_cells([one.text.split()[1]], domains))
        for one in two_class_records()
    ]


def test_tables_take_the_place_of_the_histogram_and_the_plan_meets_its_budget(make_train, schema) -> None:
    plan = planned(make_train(), schema, BUDGET)
    assert [query.name for query in plan.queries] == ["field_tables", "train"]
    assert 0.99 * BUDGET.epsilon <= epsilon(plan.event, BUDGET.delta) <= BUDGET.epsilon
    more = planned(make_train(fields_share=0.4), schema, BUDGET)
    assert more.numbers["tables_sigma"] == pytest.approx(plan.numbers["tables_sigma"] / 2)
    assert more.numbers["noise_multiplier"] > plan.numbers["noise_multiplier"]
    assert not any(is_private(query.event) for query in planned(make_train(), schema, Budget(math.inf, 1e-3)).queries)


def test_too_many_combinations_are_refused(make_train, schema) -> None:
    wide = replace(schema, fields={name: "number(0..1000, 1)" for name in ("one", "two")})
    with pytest.raises(ParamsError, match="combinations"):
        planned(make_train(), wide, BUDGET)


def test_a_prompt_tells_the_records_own_fields_and_the_discriminators_tells_none(tokenizer) -> None:
    rows = serialiser(tokenizer, LABELS, 24, "text", fields=FIELDS)
    some = [PrivateRow("a word", "a", None, "0,1"), PrivateRow("a word", "a", None, "3,2"), Record("a word", "a")]
    batch = rows.batch(some)
    told = [tokenizer.decode(own[~mask]) for own, mask in zip(batch.prompted, batch.counted, strict=True)]
    assert ["thing: lamp, age: 50 to 100" in own for own in told] == [True, False, False]
    assert ["thing: -, age: -" in own for own in told] == [False, True, False]
    assert all("thing" not in tokenizer.decode(own) for own in batch.blinded)
    for row, own in zip(some, batch.prompted, strict=True):
        alone = rows.batch([row]).prompted[0]
        shared = min(len(alone), len(own))
        assert own[:shared].tolist() == alone[:shared].tolist()


@pytest.mark.parametrize("odd", ["9,0", "0", "0,0,0", ""])
def test_cells_that_there_are_not_stand_in_no_prompt(tokenizer, odd: str) -> None:
    rows = serialiser(tokenizer, LABELS, 24, "text", fields=FIELDS)
    with_odd, without = rows.batch([PrivateRow("a word", "a", None, odd)]), rows.batch([Record("a word", "a")])
    assert with_odd.prompted.tolist() == without.prompted.tolist()


@pytest.mark.parametrize("most", [21, 32])
def test_the_trial_has_each_width_that_a_row_with_fields_can_have(tokenizer, most: int) -> None:
    rows = serialiser(tokenizer, LABELS, most, "text", fields=FIELDS)
    tried = Counter(rows.widths(shapes(tuple(LABELS), most, rows.tried_cells)))
    cells = [f"{one},{other}" for one in range(4) for other in range(3)]
    texts = [" ".join(["word"] * many) + "Z" * more for many in range(most) for more in (0, 1)]
    every = [PrivateRow(text, label, None, own) for text in texts for label in LABELS for own in cells]
    assert max(rows.widths(every)) <= rows.longest_prompt + most + 1
    assert {*rows.widths(every)} <= {*tried}


def test_a_fit_keeps_its_joint_and_rows_are_written_behind_the_fields_that_they_get(
    make_train, make_generate, schema, base, ledger, tmp_path, monkeypatch
) -> None:
    fields = {"o": FIELDS["thing"]}
    settings, schema = make_train(epochs=1.0, discriminator_weight=0.0, max_tokens=20), replace(schema, fields=fields)
    plan, rows = planned(settings, schema, Budget(math.inf, 1e-3)), private_rows(fields)
    run = reading(Run("dp_train", "v", "reference", "", "p"), ledger, schema.asset, rows)
    with metered(ledger, schema, run, plan.queries, lambda: rows, NoiseSource(), again=EVERYTHING) as session:
        DpLm(settings, schema, plan, base, 5, None).ask(session.view).save(tmp_path / "model")
    artifact = DpLmArtifact.load(tmp_path / "model")
    assert artifact.joint is not None
    assert np.abs(artifact.joint - [[1 / 6, 1 / 6, 1 / 6, 0]] * 2).max() < 0.01  # each thing as often, none without
    heads: list[str] = []

    def noted(variant: str, model: Any, prompts: Any, *rest: Any) -> Any:
        heads.extend(artifact.tokenizer.decode(prompt) for prompt in prompts)
        return walk_of(variant, model, prompts, *rest)

    walk_of = sampling.walk_of
    monkeypatch.setattr(sampling, "walk_of", noted)
    drawn = list(sampling.Sampler(make_generate(rows=60), "plain", 1, FilterChain(())).sample(artifact, {"praise": 60}))
    things = [dict(row.fields)["o"] for row in drawn]
    assert all(abs(Counter(things)[thing] - 20) <= 1 for thing in FIELDS["thing"])
    assert [f"praise<|sep|>o: {thing}<|sep|>" in head for thing, head in zip(things, heads, strict=True)] == [True] * 60


def test_shares_of_labels_that_are_public_stay_public(make_train, schema, base, ledger) -> None:
    fields, prior = {"o": FIELDS["thing"]}, {"praise": 0.9, "a complaint": 0.1}
    settings = make_train(epochs=1.0, discriminator_weight=0.0, max_tokens=20, label_counts="prior", prior=prior)
    schema, rows = replace(schema, fields=fields), private_rows(fields)
    plan = planned(settings, schema, Budget(math.inf, 1e-3))
    run = reading(Run("dp_train", "v", "reference", "", "p"), ledger, schema.asset, rows)
    with metered(ledger, schema, run, plan.queries, lambda: rows, NoiseSource(), again=EVERYTHING) as session:
        assert DpLm(settings, schema, plan, base, 5, None).ask(session.view).shares == pytest.approx(prior)
