"""A discriminator behind a fitted model: its budget counts both, its features are each record's own, it learns."""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from dp_accounting import ComposedDpEvent, GaussianDpEvent, NonPrivateDpEvent
from pydantic import ValidationError

from palimpsest.errors import LedgerError, ModelError, ParamsError
from palimpsest.methods.dp_lm.discriminator import Discriminator, TunedDiscriminator, _Features, _losses, _StateReader
from palimpsest.methods.dp_lm.fit import DpLm
from palimpsest.methods.dp_lm.judge_declaration import DISCRIMINATOR
from palimpsest.methods.dp_lm.model import DiscriminatorHead, DpLmArtifact, HeadShape, new_head, new_model, with_reads
from palimpsest.methods.dp_lm.plan import plan as planned_model
from palimpsest.methods.dp_lm.plan import plan_discriminator as planned
from palimpsest.methods.dp_lm.plan import training_plan
from palimpsest.methods.dp_lm.serialise import serialiser
from palimpsest.methods.dp_lm.settings import DiscriminatorTrain
from palimpsest.methods.shared.base import Budget
from palimpsest.methods.shared.method import Basis
from palimpsest.models.vectors import KeptVectors
from palimpsest.privacy.accounting import epsilon, is_private
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema
from tests.methods.two_classes import WORDS, two_class_records

BUDGET = Budget(3.0, 1e-3)
BEFORE = GaussianDpEvent(2.0)
LABELS = tuple(WORDS)


def settings(**changes: object) -> DiscriminatorTrain:
    found = {
        "epochs": 20.0, "batch": 100, "learning_rate": 0.05, "schedule": "linear", "warmup": 0.0, "betas": (0.9, 0.98),
        "adam_eps": 1e-8, "noise_correction": False, "clipping_norm": 1.0, "max_tokens": 24,
        "micro_batch": 32, "checkpoint_steps": 50, "reads": "both", "width": 0, "prefix_step": 2,
        "person": "joint",
    }  # fmt: skip
    return DiscriminatorTrain(**{**found, **changes})


def encode(texts: list[str]) -> np.ndarray:
    """A public encoder: unit vectors that say which adjectives a text has."""
    words = [word for group in WORDS.values() for word in group]
    found = np.array([[text.count(word) + 0.01 for word in words] for text in texts])
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def trained_loss(artifact: DpLmArtifact, generator: Discriminator) -> float:
    """Mean loss of the saved head on the rows that it learned from, behind stand-ins that are drawn anew."""
    rows = serialiser(artifact.tokenizer, LABELS, 24, "text")
    features = _Features(generator._reader(artifact.model, rows, generator.encode), LABELS)
    return _losses(artifact.model.head, features.batch(private(two_class_records())))[0].mean().item()


@pytest.mark.parametrize("before", [BEFORE, ComposedDpEvent([BEFORE, GaussianDpEvent(5.0)])])
def test_the_budget_holds_for_the_model_and_its_discriminator_together(schema, before) -> None:
    plan = planned(settings(), schema, BUDGET, before)
    whole = epsilon(ComposedDpEvent([before, plan.event]), BUDGET.delta)
    assert 0.99 * BUDGET.epsilon <= whole <= BUDGET.epsilon
    assert epsilon(plan.event, BUDGET.delta) < BUDGET.epsilon - 0.3
    assert [(query.name, query.steps) for query in plan.queries] == [("discriminator", 20)]


def test_the_budget_counts_what_the_model_takes_of_delta_by_itself(schema) -> None:
    basis = Basis(BEFORE, own_delta=BUDGET.delta / 2)
    plan = DISCRIMINATOR.plan(settings(), schema, BUDGET, basis)
    whole = epsilon(ComposedDpEvent([BEFORE, plan.event]), BUDGET.delta - basis.own_delta)
    assert 0.99 * BUDGET.epsilon <= whole <= BUDGET.epsilon


@pytest.mark.parametrize("value", [math.inf, math.nan])
@pytest.mark.parametrize("key", ["epochs", "learning_rate", "clipping_norm", "adam_eps"])
def test_a_training_s_numbers_are_finite(key: str, value: float) -> None:
    with pytest.raises(ValidationError, match=key):
        settings(**{key: value})


def test_a_dearer_model_leaves_more_noise(schema) -> None:
    noise = [
        planned(settings(), schema, BUDGET, GaussianDpEvent(sigma)).numbers["noise_multiplier"]
        for sigma in (8.0, 2.0, 1.5)
    ]
    assert noise[0] < noise[1] < noise[2]


def test_a_model_that_leaves_nothing_is_refused(schema) -> None:
    with pytest.raises(ParamsError, match="leaves nothing"):
        planned(settings(), schema, BUDGET, GaussianDpEvent(0.9))


def test_a_reference_adds_no_noise(schema) -> None:
    plan = planned(settings(), schema, Budget(math.inf, 1e-3), NonPrivateDpEvent())
    assert plan.numbers["noise_multiplier"] == 0
    assert not is_private(plan.event)


def test_one_label_needs_no_discriminator() -> None:
    unlabelled = PublicSchema("tiny", "text", "text", n_public=100, max_length=200)
    with pytest.raises(ParamsError, match="two labels"):
        planned(settings(), unlabelled, BUDGET, BEFORE)


@pytest.mark.parametrize(("reads", "epochs"), [("hidden", 300.0), ("last", 200.0), ("both", 150.0), ("encoder", 100.0)])
def test_it_learns_and_leaves_the_model_as_it_was(
    schema, untrained, open_view, tmp_path, reads: str, epochs: float
) -> None:
    before = {name: value.clone() for name, value in untrained.model.state_dict().items()}
    train = settings(reads=reads, epochs=epochs)
    plan = planned(train, schema, Budget(math.inf, 1e-3), BEFORE)
    generator = Discriminator(train, schema, plan, untrained, 3, encode if reads == "encoder" else None, None)
    with open_view(plan, "reference") as view:
        generator.ask(view).save(tmp_path / "model")
    artifact = DpLmArtifact.load(tmp_path / "model")
    assert trained_loss(artifact, generator) < 0.66  # of .69 for a head that knows nothing
    assert artifact.shares == untrained.shares
    assert artifact.model.head.shape.reads == reads
    assert all(torch.equal(value, before[name]) for name, value in untrained.model.state_dict().items())
    lm = artifact.model.lm.state_dict()
    assert all(torch.equal(lm[name], value) for name, value in untrained.model.lm.state_dict().items())


@pytest.mark.parametrize(("reads", "given"), [("encoder", None), ("both", encode)])
def test_an_encoder_is_there_where_it_is_read_and_nowhere_else(schema, untrained, reads: str, given) -> None:
    plan = planned(settings(reads=reads), schema, BUDGET, BEFORE)
    with pytest.raises(ModelError, match="encoder"):
        Discriminator(settings(reads=reads), schema, plan, untrained, 3, given, None)


def test_texts_that_are_too_long_for_the_model_are_told_before_anything_is_spent(
    schema, untrained, open_view, ledger
) -> None:
    plan = planned(settings(max_tokens=48), schema, BUDGET, BEFORE)
    generator = Discriminator(settings(max_tokens=48), schema, plan, untrained, 3, None, None)
    with pytest.raises(ModelError, match="positions"), open_view(plan, "release") as view:
        generator.ask(view)
    assert {charge.state for charge in ledger.charges("tiny")} == {"refunded"}


def test_it_asks_for_what_was_planned_and_nothing_else(schema, untrained, open_view) -> None:
    plan = planned(settings(), schema, BUDGET, BEFORE)
    cheaper = planned(settings(), schema, BUDGET, GaussianDpEvent(8.0))
    generator = Discriminator(settings(), schema, cheaper, untrained, 3, None, None)
    with pytest.raises(LedgerError, match="no reservation"), open_view(plan, "release") as view:
        generator.ask(view)


class Counting:
    """A reader that notes what it is asked to read."""

    def __init__(self, reader: _StateReader) -> None:
        self.reader, self.asked = reader, []

    def read(self, texts: Sequence[str]):
        self.asked += texts
        return self.reader.read(texts)


@pytest.fixture
def reader(untrained) -> _StateReader:
    rows = replace(serialiser(untrained.tokenizer, LABELS, 24, "text"), entropy=bytes)
    return _StateReader(with_reads(untrained.model, "both"), rows, 2)


def private(records: Sequence[Record]) -> list[PrivateRow]:
    return [PrivateRow(record.text, record.label) for record in records]


def test_a_record_s_loss_is_its_own(reader) -> None:
    rows = private([*two_class_records()[:5], Record("A longer text, to pad all others with much nothing.", "praise")])
    head = head_of(reader)
    together = _losses(head, _Features(reader, LABELS).batch(rows))[0]
    for index, row in enumerate(rows):
        alone = _losses(head, _Features(reader, LABELS).batch([row]))[0]
        torch.testing.assert_close(together[index], alone[0], atol=1e-5, rtol=1e-5)
    assert together.std() > 0


def head_of(reader: _StateReader) -> DiscriminatorHead:
    return new_head(HeadShape("both", reader.read(["A text."])[0].features.shape[1], 0, 2), 1)


def test_an_unknown_label_has_no_loss_and_no_gradient(reader) -> None:
    head = head_of(reader)
    for label in ("a stranger", None):
        loss = _losses(head, _Features(reader, LABELS).batch([PrivateRow("The lamp is great.", label)]))[0]
        assert loss.item() == 0.0
        assert all(not gradient.any() for gradient in torch.autograd.grad(loss.sum(), list(head.parameters())))


def test_a_text_is_read_once_as_far_as_memory_allows(reader, monkeypatch) -> None:
    rows = private(two_class_records()[:6])
    counting = Counting(reader)
    features = _Features(counting, LABELS)
    first, again = features.batch(rows), features.batch(rows[::-1])
    assert len(counting.asked) == 6
    torch.testing.assert_close(first.features, again.features.flip(0))
    monkeypatch.setattr("palimpsest.methods.dp_lm.discriminator._MEMORY", 0)
    counting.asked, forgetful = [], _Features(counting, LABELS)
    forgetful.batch(rows)
    torch.testing.assert_close(forgetful.batch(rows).features, first.features)
    assert len(counting.asked) == 12


@pytest.mark.parametrize("first", [10, 1, 0])
def test_the_first_reading_alone_tells_how_far_it_is(reader, capsys, first: int) -> None:
    rows = private(two_class_records()[:12])
    features = _Features(reader, LABELS, shown=True)
    features.widths(rows[:first])
    assert [line.split(" eta ")[0] for line in capsys.readouterr().err.splitlines()] == [
        f"progress read {percent}%" for percent in (25, 50, 75, 100)
    ]
    features.batch(rows)
    assert not capsys.readouterr().err


def test_an_empty_text_is_a_row_without_weight(reader) -> None:
    batch = _Features(reader, LABELS).batch(private([Record("", "praise"), Record("Fine.", "praise")]))
    losses = _losses(head_of(reader), batch)[0]
    assert losses[0].item() == 0.0
    assert losses[1].item() > 0.0


def test_a_language_model_alone_trains_no_head(make_train, schema, base, open_view) -> None:
    plan = planned_model(make_train(discriminator_weight=0.0), schema, BUDGET)
    generator = DpLm(make_train(discriminator_weight=0.0), schema, plan, base, 5, None)
    with open_view(plan, "release") as view:
        artifact = generator.ask(view)
    fresh = new_model(base, 2, 16, 5)[0].head.state_dict()
    assert all(torch.equal(value, fresh[name]) for name, value in artifact.model.head.state_dict().items())


def test_a_text_s_features_are_the_same_in_every_process(untrained) -> None:
    reader = _StateReader(with_reads(untrained.model, "both"), serialiser(untrained.tokenizer, LABELS, 24, "text"), 2)
    rows = private(two_class_records()[:7])
    here, there = _Features(reader, LABELS), _Features(reader, LABELS)
    there.batch(rows[3:])
    torch.testing.assert_close(here.batch(rows).features, there.batch(rows).features)


@dataclass
class Noting:
    """What a discriminator is built with; it notes how many texts the encoder reads at once, and which."""

    folder: Path
    schema: PublicSchema
    seed: int = 3
    kept: None = None
    private: list[list[str]] = field(default_factory=list)
    public: list[str] = field(default_factory=list)

    def fitted(self) -> Path:
        return self.folder / "fitted"

    def encoders(self, batch: int) -> "Noting":
        self.rows = KeptVectors(self._noted, encode([""]).shape[1], self.folder / "vectors", "public", batch)
        return self

    def _noted(self, texts: list[str]) -> np.ndarray:
        self.private.append(texts)
        return encode(texts)

    def fresh(self, texts: list[str]) -> np.ndarray:
        self.public += texts
        return encode(texts)


def test_an_encoder_never_sees_two_texts_at_once(schema, untrained, open_view, tmp_path) -> None:
    """One that mixes texts, or rounds one by what stands beside it, then has nothing to mix."""
    tools, train = Noting(tmp_path, schema), settings(reads="encoder")
    untrained.save(tools.fitted())
    plan = planned(train, schema, BUDGET, BEFORE)
    generator = DISCRIMINATOR.build(train, plan, tools)
    generator.assumptions()
    assert (tools.private, bool(tools.public)) == ([], True)  # the trial reads what nobody keeps
    with open_view(plan, "release") as view:
        generator.ask(view)
    assert {len(texts) for texts in tools.private} == {1}
    assert len(list((tmp_path / "vectors").iterdir())) == 1  # handed over together, read one by one


def test_features_are_a_text_s_own_to_the_last_bit(reader) -> None:
    rows = private(two_class_records()[:9])
    together = _Features(reader, LABELS)
    together.batch(rows)
    for row, width in zip(rows, together.widths(rows), strict=True):
        alone = _Features(reader, LABELS)
        here, there = together.batch([row]), alone.batch([row])
        assert torch.equal(here.features, there.features)
        assert here.features.shape[1] == width
        assert alone.widths([row]) == [width]


@pytest.mark.parametrize("made", ["model", "head", "tuned"])
def test_what_a_training_of_persons_is_tried_on_are_persons(schema, untrained, make_train, base, made: str) -> None:
    """Without the shapes of persons' rows, their widths and a probe the trial passes where the training would not."""
    persons = replace(schema, unit_column="who", n_persons=100, max_rows_per_unit=7)
    if made == "model":
        generator = DpLm(make_train(), persons, planned_model(make_train(), persons, BUDGET), base, 5, None)
        query, _ = generator._training_query(1.0)
    elif made == "head":
        generator = Discriminator(
            settings(), persons, planned(settings(), persons, BUDGET, BEFORE), untrained, 3, None, None
        )
        query = generator._training_query(untrained.model, 1.0, None)
    else:
        train = settings(reads="tuned")
        generator = TunedDiscriminator(train, persons, planned(train, persons, BUDGET, BEFORE), untrained, 3, None)
        query = generator._training_query(1.0)
    rows = private(query.shapes)
    assert query.most_rows == 7
    assert len(query.probe) == 3
    assert len(set(query.widths(rows))) > 1
    assert len(rows) > 2 * len(set(query.widths(rows)))


@pytest.mark.parametrize(
    ("rows", "micro_batch", "fits"), [(1, 1, True), (64, 1, False), (64, 2, True), (256, 7, False)]
)
def test_a_step_takes_no_more_passes_than_the_allowance_for_rounding_covers(
    schema, rows: int, micro_batch: int, fits: bool
) -> None:
    """At most 4 * 100 + 64 units of so many rows, in at most 2^14 micro-batches."""
    persons = replace(schema, unit_column="who", n_persons=100, max_rows_per_unit=rows)
    train = settings(micro_batch=micro_batch)
    assert fits == ((4 * 100 + 64) * rows <= micro_batch * 2**14)
    with nullcontext() if fits else pytest.raises(ParamsError, match="may take more passes than the 16384"):
        training_plan(train, persons, 1.0)
