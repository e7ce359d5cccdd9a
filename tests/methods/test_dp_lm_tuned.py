"""A whole language model as the filter: exact by record, charged with the model below it, which it leaves alone."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from dp_accounting import ComposedDpEvent, GaussianDpEvent

from palimpsest.errors import ModelError
from palimpsest.methods.dp_lm.discriminator import Discriminator, TunedDiscriminator
from palimpsest.methods.dp_lm.judge_declaration import DISCRIMINATOR
from palimpsest.methods.dp_lm.likelihood import WHOLE, discriminator_loss, judge_of
from palimpsest.methods.dp_lm.model import DpLmArtifact, add_soft_prompt
from palimpsest.methods.dp_lm.plan import plan_discriminator as planned
from palimpsest.methods.dp_lm.sampling import Sampler
from palimpsest.methods.dp_lm.settings import DiscriminatorTrain
from palimpsest.methods.shared.base import Budget
from palimpsest.methods.shared.postprocess import FilterChain, Label
from palimpsest.privacy.accounting import epsilon
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.schema import PublicSchema
from palimpsest.training.bookkeeping import BookkeepingEngine
from tests.methods.blind_models import blind_model
from tests.methods.two_classes import UNEVEN, two_class_records

BUDGET = Budget(3.0, 1e-3)
BEFORE = GaussianDpEvent(2.0)


def settings(**changes: object) -> DiscriminatorTrain:
    found = {
        "epochs": 2.0, "batch": 50, "learning_rate": 0.005, "warmup": 0.0, "clipping_norm": 1.0, "max_tokens": 24,
        "micro_batch": 50, "reads": "tuned",
    }  # fmt: skip
    return DiscriminatorTrain(**{**found, **changes})


def tuned(train: DiscriminatorTrain, schema, fitted: DpLmArtifact, budget: Budget = BUDGET) -> TunedDiscriminator:
    return TunedDiscriminator(train, schema, planned(train, schema, budget, BEFORE), fitted, 3, None)


def query_of(generator: TunedDiscriminator):
    return vars(TunedDiscriminator)["_training_query"](generator, 1.0)


@pytest.fixture
def below(base, untrained) -> DpLmArtifact:
    """A model that writes both classes whatever its prompt says."""
    return replace(untrained, model=blind_model(base, "hidden")[0])


@pytest.mark.parametrize(("rank", "rate"), [(0, 0.002), (4, 0.01)])
def test_it_learns_judges_and_leaves_the_model_as_it_was(
    schema, below, open_view, make_generate, tmp_path: Path, rank: int, rate: float
) -> None:
    before = {name: value.clone() for name, value in below.model.state_dict().items()}
    train = settings(epochs=14.0, learning_rate=rate, clipping_norm=10.0, lora_rank=rank)
    generator = tuned(train, schema, below, Budget(math.inf, 1e-3))
    with open_view(generator.plan, "reference") as view:
        generator.ask(view).save(tmp_path / "model")
    artifact = DpLmArtifact.load(tmp_path / "model", torch.bfloat16)
    assert all(torch.equal(value, before[name]) for name, value in below.model.state_dict().items())
    kept = DpLmArtifact.load(tmp_path / "model").model.state_dict()
    assert all(torch.equal(kept[name], value) for name, value in before.items())
    assert artifact.judging.lm.dtype == torch.float32
    records = two_class_records()
    judged = judge_of(artifact.judging, artifact.serialiser(), None)([record.text for record in records])
    guessed = [schema.label_names[which] for which in judged.argmax(axis=1)]
    assert sum(guess == record.label for guess, record in zip(guessed, records, strict=True)) > 0.9 * len(records)
    sampler = Sampler(make_generate(filters={"chain": ("label",)}), "filter", 5, FilterChain([Label(0.5)]))
    rows = list(sampler.sample(artifact, {"praise": 2, "a complaint": 2}))
    again = judge_of(artifact.judging, artifact.serialiser(), None)([row.text for row in rows])
    assert (again[range(4), [0, 0, 1, 1]] > 0.5).all()


@pytest.mark.parametrize("rank", [0, 2])
def test_its_gradients_are_each_records_own(schema, untrained, rank: int) -> None:
    """The engine's sums over a batch are those of a loop over records, each read alone by plain autograd."""
    query = query_of(tuned(settings(lora_rank=rank), schema, untrained))
    rows = [PrivateRow(row.text, row.label) for row in [*UNEVEN, replace(UNEVEN[0], label="a stranger")]]
    model, trained = query.model, {name: one for name, one in query.model.named_parameters() if one.requires_grad}
    (found,) = BookkeepingEngine(model).clipped_sums(
        lambda: query.losses(model, query.encode(rows)), len(rows), query.plan.clipping_norm
    )
    wanted, norms = dict.fromkeys(trained, 0.0), []
    for row in rows:
        loss = discriminator_loss(model, query.encode([row]), WHOLE).sum()
        alone = torch.autograd.grad(loss, list(trained.values()), allow_unused=True, materialize_grads=True)
        norms.append(float(torch.cat([gradient.flatten() for gradient in alone]).norm()))
        factor = min(1.0, query.plan.clipping_norm / (norms[-1] or 1.0))
        wanted = {name: wanted[name] + factor * own for name, own in zip(trained, alone, strict=True)}
    assert max(norms) > 1.0  # so that clipping shows
    assert (norms[2], norms[-1]) == (0.0, 0.0)  # no text, and a label that is not public
    for name, gradient in found.gradients.items():
        torch.testing.assert_close(gradient.float(), wanted[name], atol=1e-5, rtol=1e-3)


def test_nothing_trains_that_its_loss_does_not_read(schema, untrained) -> None:
    """Noise alone would move it."""
    query = query_of(tuned(settings(), schema, untrained))
    losses = query.losses(query.model, query.encode([PrivateRow(row.text, row.label) for row in two_class_records()]))
    trained = {name: one for name, one in query.model.named_parameters() if one.requires_grad}
    found = torch.autograd.grad(losses[0].sum(), list(trained.values()), allow_unused=True)
    assert [name for name, gradient in zip(trained, found, strict=True) if gradient is None] == []
    assert not [name for name in trained if ".wte." in name or ".wpe." in name or "lm_head" in name]
    assert {name.partition(".")[0] for name in trained} == {"lm", "head"}


def test_the_budget_holds_for_the_model_and_its_filter_together(schema, untrained, open_view) -> None:
    """The view refuses a query whose event is not the planned one."""
    generator = tuned(settings(), schema, untrained)
    whole = epsilon(ComposedDpEvent([BEFORE, generator.plan.event]), BUDGET.delta)
    assert 0.99 * BUDGET.epsilon <= whole <= BUDGET.epsilon
    assert generator.assumptions() == ()
    with open_view(generator.plan, "release") as view:
        artifact = generator.ask(view)
    assert artifact.judge is not None
    assert all(value.isfinite().all() for value in artifact.judge.parameters())


def test_texts_that_are_too_long_are_told_before_anything_is_spent(schema, untrained) -> None:
    with pytest.raises(ModelError, match="positions"):
        tuned(settings(max_tokens=48), schema, untrained).assumptions()


def test_it_reads_behind_a_soft_prompt_of_the_model_below(schema, untrained) -> None:
    model = query_of(tuned(settings(), schema, untrained)).model
    assert model.soft is None
    add_soft_prompt(model, 3, 1)
    query = query_of(tuned(settings(), schema, replace(untrained, model=model)))
    assert torch.equal(query.model.soft.weight, model.soft.weight)
    assert query.model.soft is not model.soft


@dataclass
class Given:
    """What a discriminator is built with."""

    folder: Path
    schema: PublicSchema
    seed: int = 3
    kept: None = None

    def fitted(self) -> Path:
        return self.folder


@pytest.mark.parametrize(("reads", "kind"), [("tuned", TunedDiscriminator), ("last", Discriminator)])
def test_what_it_reads_decides_what_is_trained(schema, untrained, tmp_path, reads: str, kind: type) -> None:
    untrained.save(tmp_path / "below")
    train = settings(reads=reads)
    plan = planned(train, schema, BUDGET, BEFORE)
    assert isinstance(DISCRIMINATOR.build(train, plan, Given(tmp_path / "below", schema)), kind)


def test_adapters_are_of_a_model_that_is_tuned() -> None:
    with pytest.raises(ValueError, match="lora_rank is for a language model that is tuned"):
        settings(reads="both", lora_rank=2)


def test_its_trial_has_the_widths_of_prompts_with_fields(schema, untrained) -> None:
    fields = {"o": ("x", "long")}
    query = query_of(tuned(settings(), replace(schema, fields=fields), replace(untrained, fields=fields)))
    assert {own.fields for own in query.shapes} == {"0", "1"}
    assert {own.fields for own in query.probe} == {"1"}
