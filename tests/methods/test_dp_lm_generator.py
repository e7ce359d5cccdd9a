"""Plans meet their budget, fits ask what was planned, and what they leave is whole."""

import json
import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from palimpsest.errors import ModelError, ParamsError
from palimpsest.methods.dp_lm import fit, likelihood
from palimpsest.methods.dp_lm.fit import HEAD, DpLm, optimiser_of, shapes
from palimpsest.methods.dp_lm.model import DpLmArtifact, new_model
from palimpsest.methods.dp_lm.plan import plan as planned
from palimpsest.methods.dp_lm.plan import training_plan
from palimpsest.methods.dp_lm.sampling import Sampler
from palimpsest.methods.dp_lm.serialise import serialiser
from palimpsest.methods.shared.base import Budget
from palimpsest.methods.shared.postprocess import FilterChain
from palimpsest.models.tokens import train_tokenizer
from palimpsest.privacy.accounting import epsilon, is_private
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema
from palimpsest.training.engine import EngineError
from palimpsest.training.plan import eta
from palimpsest.training.team import join_team
from tests.methods.two_classes import WORDS, two_class_records
from tests.team import together

BUDGET = Budget(3.0, 1e-3)


@pytest.mark.parametrize(("clipping", "label_counts"), [("joint", "noisy"), ("separate", "noisy"), ("joint", "prior")])
def test_plan_spends_the_budget_and_no_more(make_train, schema, clipping: str, label_counts: str) -> None:
    settings = make_train(clipping=clipping, label_counts=label_counts)
    plan = planned(settings, schema, BUDGET)
    assert 0.99 * BUDGET.epsilon <= epsilon(plan.event, BUDGET.delta) <= BUDGET.epsilon
    assert [query.name for query in plan.queries][-1] == "train"
    assert len(plan.queries) == (2 if label_counts == "noisy" else 1)


def test_separate_clipping_needs_sqrt_2_more_noise(make_train, schema) -> None:
    noise = {}
    for clipping in ("joint", "separate"):
        settings = make_train(clipping=clipping, label_counts="prior")
        noise[clipping] = planned(settings, schema, BUDGET).numbers["noise_multiplier"]
    assert noise["separate"] / noise["joint"] == pytest.approx(math.sqrt(2), rel=0.005)


@pytest.mark.parametrize(("clipping", "lm", "head"), [("joint", 1.0, 0.25), ("separate", 0.25, 0.25)])
def test_a_discriminator_has_its_own_learning_rate(make_train, base, clipping: str, lm: float, head: float) -> None:
    """Of its loss where losses are clipped apart, else of its weights; the language model's own loss keeps its rate."""
    train = make_train(clipping=clipping, learning_rate=0.004, discriminator_learning_rate=0.001)
    share, second = optimiser_of(train).share, 1 if clipping == "separate" else 0
    model, _ = new_model(base, 2, 16, 3)
    own = {name for name, _ in model.named_parameters() if name.startswith(HEAD)}
    assert own == {f"head.{name}" for name, _ in model.head.named_parameters()}
    assert {share(second, name) for name in own} == {head}
    assert {share(second, name) for name, _ in model.named_parameters() if name not in own} == {lm}
    assert share(0, "lm.weight") == 1.0
    assert optimiser_of(make_train(clipping=clipping)).share(second, "head.weight") == 1.0


def test_a_learning_rate_of_no_discriminator_is_refused(make_train) -> None:
    with pytest.raises(ValueError, match="discriminator_learning_rate needs a discriminator_weight > 0"):
        make_train(discriminator_weight=0.0, discriminator_learning_rate=0.001)


def test_plan_reads_public_numbers_only(make_train, schema) -> None:
    plan = planned(make_train(), schema, BUDGET)
    assert plan.numbers["sampling_rate"] == 20 / schema.n_public
    assert plan.numbers["steps"] == 10
    assert plan.numbers["expected_batch"] == 20


def test_reference_plan_is_not_private(make_train, schema) -> None:
    plan = planned(make_train(), schema, Budget(math.inf, 1e-3))
    assert plan.numbers["noise_multiplier"] == 0
    assert all(not is_private(query.event) for query in plan.queries)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"batch": 101}, "larger than the 100 records"),
        ({"label_counts": "prior", "prior": {"praise": 1.0}}, "public labels"),
    ],
)
def test_settings_that_cannot_work_are_refused(make_train, schema, train, message: str) -> None:
    with pytest.raises(ParamsError, match=message):
        planned(make_train(**train), schema, BUDGET)


@pytest.mark.parametrize("clipping", ["joint", "separate"])
def test_fit_save_load_sample(make_train, schema, base, open_view, tmp_path, clipping: str) -> None:
    plan = planned(make_train(clipping=clipping), schema, BUDGET)
    generator = DpLm(make_train(clipping=clipping), schema, plan, base, 5, None)
    with open_view(plan, "release") as view:
        generator.ask(view).save(tmp_path / "model")
    files = {path.name for path in (tmp_path / "model").rglob("*") if path.is_file()}
    assert {"artifact.json", "head.json", "head.safetensors", "model.safetensors", "tokenizer.json"} <= files
    assert not [name for name in files if name.endswith((".bin", ".pt", ".pkl"))]
    artifact = DpLmArtifact.load(tmp_path / "model")
    assert sum(artifact.shares.values()) == pytest.approx(1.0)
    assert min(artifact.shares.values()) > 0
    assert sum(artifact.counts(11).values()) == 11
    assert artifact.model.state_dict().keys() == DpLmArtifact.load(tmp_path / "model").model.state_dict().keys()
    assert artifact.model.head.shape.reads == "hidden"


def test_a_fit_without_noise_learns_the_labels(make_train, make_generate, schema, base, open_view) -> None:
    settings = make_train(epochs=20.0, batch=50, clipping_norm=1.0, micro_batch=50)
    plan = planned(settings, schema, Budget(math.inf, 1e-3))
    generator = DpLm(settings, schema, plan, base, 5, None)
    with open_view(plan, "reference") as view:
        artifact = generator.ask(view)
    assert artifact.shares == {"praise": 0.5, "a complaint": 0.5}
    sampler = Sampler(make_generate(), "multitask", 5, FilterChain([]))
    rows = list(sampler.sample(artifact, {"praise": 20, "a complaint": 20}))
    assert sum(_says(row) for row in rows) >= 36


def test_a_head_that_trains_is_read_in_as_few_rows_as_its_logits_leave_room_for(
    make_train, schema, base, monkeypatch
) -> None:
    """By public numbers: the longest row, the vocabulary. A frozen head's logits are never there together."""
    plan = planned(make_train(), schema, BUDGET)
    for frozen, most, rows in [(False, 1 << 26, 8), (False, 3 * 320 * 40, 3), (False, 1, 1), (True, 1, 8)]:
        monkeypatch.setattr(fit, "_MOST_LOGITS", most)
        generator = DpLm(make_train(freeze_embeddings=frozen), schema, plan, base, 5, None)
        query, _ = vars(DpLm)["_training_query"](generator, 1.0)
        assert query.micro_batch == rows


@pytest.mark.parametrize("adapters", [{}, {"lora_rank": 2, "freeze_embeddings": True}])
def test_two_processes_end_at_the_weights_of_one(make_train, schema, base, tmp_path, adapters) -> None:
    """Without noise, on the same batches and the same stand-ins of labels."""
    train = make_train(clipping="separate", epochs=1.0, **adapters)
    generator = DpLm(train, schema, planned(train, schema, BUDGET), base, 5, None)
    query, _ = vars(DpLm)["_training_query"](generator, 0.0)
    query = replace(query, encode=query.encode_probe)
    rows = [PrivateRow(record.text, record.label) for record in two_class_records()]

    def take_part(rank: int) -> None:
        with join_team():
            model = query.follow(rows) if rank else query.run(rows, NoiseSource(seed=3))
        save_file(dict(model.named_parameters()), tmp_path / f"{rank}.safetensors")

    assert together(take_part) == [0, 0]
    alone = dict(query.run(rows, NoiseSource(seed=3)).named_parameters())
    moved = [name for name, start in query.model.named_parameters() if (alone[name] - start).abs().max() > 1e-3]
    assert len(moved) >= len(alone) / 10
    for rank in range(2):
        found = load_file(tmp_path / f"{rank}.safetensors")
        assert found.keys() == alone.keys()
        assert max(float((found[name] - alone[name]).detach().abs().max()) for name in alone) <= 1e-5


@pytest.mark.parametrize("adapters", [{}, {"lora_rank": 2, "freeze_embeddings": True}])
def test_half_precision_and_noise_correction_fit_too(make_train, schema, base, open_view, adapters) -> None:
    """Weights that only stay are half as wide while adapters train; what trains, and what is saved, is float32."""
    changes = {"precision": "bf16", "noise_correction": True, "adam_eps": 1e-3, "label_counts": "prior", **adapters}
    plan = planned(make_train(**changes), schema, BUDGET)
    generator = DpLm(make_train(**changes), schema, plan, base, 5, None)
    query, _ = vars(DpLm)["_training_query"](generator, 1.0)
    kinds = {(parameter.dtype, parameter.requires_grad) for parameter in query.model.parameters()}
    assert kinds == ({(torch.bfloat16, False), (torch.float32, True)} if adapters else {(torch.float32, True)})
    with open_view(plan, "release") as view:
        artifact = generator.ask(view)
    assert all(parameter.dtype == torch.float32 for parameter in artifact.model.parameters())
    assert all(parameter.isfinite().all() for parameter in artifact.model.parameters())


@pytest.mark.parametrize(
    ("kind", "more", "message"),
    [
        ("granite", {"logits_scaling": 8.0}, "behind its head"),
        ("lfm2", {"layer_types": ["conv", "full_attention"]}, "its past"),  # no text could be drawn from it
    ],
)
def test_models_that_are_not_supported_are_refused_before_anything_is_charged(
    make_train, schema, tmp_path, kind: str, more: dict, message: str
) -> None:
    """A run asks for `assumptions` before it reserves."""
    tokenizer = train_tokenizer(["Some public text.\n"], 300, 64)
    tokenizer.save_pretrained(tmp_path / kind)
    config = AutoConfig.for_model(
        kind, vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64, bos_token_id=0, eos_token_id=0,
        pad_token_id=0, **more,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / kind)
    generator = DpLm(make_train(), schema, planned(make_train(), schema, BUDGET), tmp_path / kind, 5, None)
    with pytest.raises(ModelError, match=message):
        generator.assumptions()


def test_losses_that_mix_the_rows_of_a_batch_are_refused_before_anything_is_charged(
    make_train, schema, base, monkeypatch
) -> None:
    def mixed(model, batch, **settings):
        return tuple(loss + loss.mean() for loss in joint(model, batch, **settings))

    joint = likelihood.joint_losses
    monkeypatch.setattr(likelihood, "joint_losses", mixed)
    generator = DpLm(make_train(), schema, planned(make_train(), schema, BUDGET), base, 5, None)
    with pytest.raises(EngineError, match="depends on another example"):
        generator.assumptions()


@pytest.mark.parametrize("most", [8, 13, 21, 29, 32])
@pytest.mark.parametrize("labels", [{"a": "A"}, {"a": "A", "b": "B"}, {"a": "A", "quite a long one": "B"}])
def test_two_public_records_have_each_width_that_a_row_can_have(most: int, labels: dict[str, str]) -> None:
    rows = serialiser(train_tokenizer(["I say what a word I say is, a word.\n"] * 9, 320, 64), labels, most, "text")
    tried = Counter(rows.widths(shapes(tuple(labels), most)))
    words = [" ".join(["word"] * many) + "Z" * more for many in range(most) for more in (0, 1)]
    assert {*rows.widths([Record(text, label) for text in words for label in labels])} <= {*tried}
    assert min(many for width, many in tried.items() if width > min(tried)) > 1  # of the least, only "" may be


def test_gpt2_without_separator_and_padding(make_train, make_generate, schema, open_view, tmp_path) -> None:
    tokenizer = train_tokenizer(["Some public text.\n"], 300, 64)
    tokenizer.pad_token = tokenizer.sep_token = None
    tokenizer.save_pretrained(tmp_path / "gpt2")
    config = GPT2Config(
        n_layer=6, n_embd=24, n_head=2, n_positions=64, vocab_size=len(tokenizer), bos_token_id=0, eos_token_id=0
    )
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt2")
    frozen = {"freeze_last": 2, "freeze_first": 1, "freeze_embeddings": True}
    plan = planned(make_train(**frozen), schema, BUDGET)
    generator = DpLm(make_train(**frozen), schema, plan, tmp_path / "gpt2", 5, None)
    with open_view(plan, "release") as view:
        artifact = generator.ask(view)
    start = GPT2LMHeadModel.from_pretrained(tmp_path / "gpt2").state_dict()
    moved = {name for name, value in artifact.model.lm.state_dict().items() if not value.equal(start[name])}
    assert {name.split(".")[2] for name in moved if ".h." in name} == {"1", "2", "3"}
    assert not {name for name in moved if ".wte." in name or ".wpe." in name or "lm_head" in name}
    rows = Sampler(make_generate(), "multitask", 5, FilterChain([])).sample(artifact, {"praise": 1, "a complaint": 3})
    assert len(list(rows)) == 4


def test_task_without_labels(make_train, base, schema) -> None:
    unlabelled = PublicSchema("tiny", "text", "text", n_public=100, max_length=200)
    settings = make_train(discriminator_weight=0.0)
    plan = planned(settings, unlabelled, BUDGET)
    assert [query.name for query in plan.queries] == ["train"]
    with pytest.raises(ParamsError, match="two labels"):
        planned(make_train(), unlabelled, BUDGET)


def test_a_public_fault_shows_before_anything_is_spent(make_train, schema, base, ledger, open_view) -> None:
    plan = planned(make_train(max_tokens=47), schema, BUDGET)
    generator = DpLm(make_train(max_tokens=47), schema, plan, base, 0, None)
    with pytest.raises(ModelError, match="positions"), open_view(plan, "release") as view:
        generator.ask(view)
    assert {charge.state for charge in ledger.charges("tiny")} == {"refunded"}


def test_artifact_json_holds_no_counts(untrained, tmp_path) -> None:
    untrained.save(tmp_path / "model")
    assert json.loads((tmp_path / "model" / "artifact.json").read_text()) == {
        "method": "dp_lm", "shares": {"praise": 0.75, "a complaint": 0.25}, "max_tokens": 24, "loss_on": "text",
        "template": "{label}{separator}", "descriptions": {},
    }  # fmt: skip
    assert untrained.counts(10) == {"praise": 8, "a complaint": 2}


def _says(row: Record) -> bool:
    return any(word in row.text for word in WORDS[row.label or ""])


def test_the_rate_and_the_refusals_are_in_persons(make_train, schema) -> None:
    persons = replace(schema, unit_column="author", max_rows_per_unit=4, n_persons=50)
    assert training_plan(make_train(batch=20), persons, 1.0).rate == 20 / 50
    assert training_plan(make_train(batch=20), schema, 1.0).rate == 20 / 100
    with pytest.raises(ParamsError, match="50 persons"):
        training_plan(make_train(batch=51), persons, 1.0)


def test_a_plan_charges_the_rounding_of_its_sums(make_train, schema) -> None:
    assert training_plan(make_train(batch=20), schema, 1.0).eta == eta(20) > 0
