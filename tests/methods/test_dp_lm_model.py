"""The head reads what it says, the folder holds it all, and what is frozen or adapted is only that."""

from pathlib import Path

import pytest
import torch

from palimpsest.errors import ModelError
from palimpsest.methods.dp_lm.likelihood import discriminator_loss, lm_loss
from palimpsest.methods.dp_lm.model import (
    ConditionalLm,
    DiscriminatorHead,
    HeadShape,
    add_adapters,
    freeze,
    merge_adapters,
    new_head,
    new_model,
    require_context,
    with_reads,
)
from palimpsest.methods.dp_lm.serialise import Batch, serialiser
from tests.methods.two_classes import WORDS, two_class_records

TOKENS = torch.tensor([[0, 40, 2, 50, 51, 52, 53, 0], [0, 41, 2, 60, 61, 0, 1, 1]])
TEXT = torch.tensor([[False] * 3 + [True] * 4 + [False], [False] * 3 + [True] * 2 + [False] * 3])


@pytest.mark.parametrize(("width", "weights"), [(0, [(3, 8)]), (5, [(5, 8), (3, 5)])])
def test_the_heads_shape(width: int, weights: list[tuple[int, int]]) -> None:
    head = DiscriminatorHead(HeadShape("hidden", 8, width, 3))
    assert [tuple(weight.shape) for weight in head.parameters() if weight.dim() == 2] == weights
    assert head(torch.zeros(2, 4, 8)).shape == (2, 4, 3)


def test_a_head_without_width_is_linear() -> None:
    head = new_head(HeadShape("hidden", 8, 0, 3), 1)
    left, right = torch.randn(2, 5, 8)
    torch.testing.assert_close(head(left) + head(right), head(left + right) + head(torch.zeros(8)))


def test_a_new_head_comes_from_its_seed_and_touches_no_other_randomness() -> None:
    before = torch.random.get_rng_state()
    weights = [torch.cat([each.flatten() for each in new_head(HeadShape("both", 8, 4, 3), s).parameters()])
               for s in (1, 1, 2)]  # fmt: skip
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@torch.no_grad()
@pytest.mark.parametrize("reads", ["hidden", "last", "both"])
def test_prefix_features_by_hand(base, reads: str) -> None:
    """`last` takes no mean; `both` puts the scaled embeddings first; neither prompt nor padding counts."""
    model, _ = new_model(base, 2, 0, 3, reads)
    found = model.prefix_features(TOKENS, TEXT)
    assert found.shape == (2, 8, model.head.shape.inputs)
    for row, length in ((0, 1), (0, 4), (1, 2)):
        hidden = model.lm.base_model(input_ids=TOKENS[row : row + 1, : 3 + length]).last_hidden_state[0, 3:]
        embedded = model.embedding[TOKENS[row, 3 : 3 + length]].mean(0) * model.scale
        both = torch.cat([embedded, hidden.mean(0)])
        wanted = {"hidden": hidden.mean(0), "last": hidden[-1], "both": both}[reads]
        torch.testing.assert_close(found[row, 2 + length], wanted, atol=1e-5, rtol=0)
    assert not found[:, :3].any()


def test_scaled_embeddings_are_of_one_size_with_hidden_states(base) -> None:
    """The last layer norm makes hidden states about 1; the table's entries are far smaller."""
    model, _ = new_model(base, 2, 0, 3, "both")
    scaled = model.embedding.detach() * model.scale
    assert float(scaled.square().mean()) == pytest.approx(1.0, rel=1e-4)
    assert float(model.scale) != pytest.approx(1.0, abs=0.1)


def test_another_reading_of_the_same_model(base) -> None:
    model, _ = new_model(base, 2, 16, 3, "hidden")
    other = with_reads(model, "both")
    assert other.lm is model.lm
    assert other.prefix_features(TOKENS, TEXT).shape[-1] == 2 * model.head.shape.inputs
    torch.testing.assert_close(other.prefix_features(TOKENS, TEXT)[..., 32:], model.prefix_features(TOKENS, TEXT))


@torch.no_grad()
@pytest.mark.parametrize(("width", "reads"), [(16, "hidden"), (0, "hidden"), (7, "last"), (7, "both"), (0, "both")])
def test_what_was_saved_is_loaded(base, tmp_path: Path, width: int, reads: str) -> None:
    model, tokenizer = new_model(base, 3, width, 3, reads)
    model.lm.get_input_embeddings().weight.mul_(1.5)  # training moved the table: the scale stays that of the base
    model.save(tmp_path, tokenizer)
    found, same = ConditionalLm.load(tmp_path)
    assert found.head.shape == model.head.shape == HeadShape(reads, 64 if reads == "both" else 32, width, 3)
    assert found.scale == model.scale
    assert found.state_dict().keys() == model.state_dict().keys()
    assert all(torch.equal(weight, found.state_dict()[name]) for name, weight in model.state_dict().items())
    assert torch.equal(found.logits(found.hidden(TOKENS)), model.logits(model.hidden(TOKENS)))
    means = [each.head(each.prefix_features(TOKENS, TEXT)) for each in (found, model)]
    assert torch.equal(*means)
    assert same.get_vocab() == tokenizer.get_vocab()
    assert not found.training
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".bin", ".pt", ".pkl")]


def test_the_embeddings_that_the_head_reads_train_nothing_in_the_table(base) -> None:
    """With weights on nothing but them, the head alone has a gradient."""
    model, tokenizer = new_model(base, 2, 0, 3, "both")
    with torch.no_grad():
        model.head.net[0].weight[:, 32:] = 0.0
    discriminator_loss(model, _batch(tokenizer), 2).sum().backward()
    assert model.head.net[0].weight.grad[:, :32].any()
    assert not model.embedding.grad.any()
    with torch.no_grad():
        model.head.net[0].weight[:, 32:] = 1.0
    discriminator_loss(model, _batch(tokenizer), 2).sum().backward()
    assert model.embedding.grad.any()  # through the hidden states it does learn


def test_adapters_alone_train_and_only_in_the_matrices(base) -> None:
    model, tokenizer = new_model(base, 2, 16, 3)
    start = {name: weight.clone() for name, weight in model.lm.state_dict().items()}
    before = model.logits(model.hidden(TOKENS))
    add_adapters(model, 2, 5)
    torch.testing.assert_close(model.logits(model.hidden(TOKENS)), before, atol=1e-6, rtol=0)
    training = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert {name for name in training if name.startswith("lm.")} == {name for name in training if "lora_" in name}
    assert {name.partition(".")[0] for name in training} == {"lm", "head"}
    places = {name.split(".lora_")[0].split(".h.")[1] for name in training if "lora_" in name}
    parts = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
    assert places == {f"{block}.{part}" for block in (0, 1) for part in parts}
    _train(model, tokenizer)
    after = model.lm.state_dict()
    same = {name: after[name if name in after else _wrapped(name)] for name in start}
    assert all(torch.equal(weight, start[name]) for name, weight in same.items())
    assert not torch.allclose(model.logits(model.hidden(TOKENS)), before, atol=1e-2)


@torch.no_grad()
def test_merged_adapters_leave_the_base_models_kind_and_the_same_logits(base, tmp_path: Path) -> None:
    model, tokenizer = new_model(base, 2, 16, 3)
    names, start = list(model.state_dict()), model.logits(model.hidden(TOKENS))
    add_adapters(model, 2, 5)
    with torch.enable_grad():
        _train(model, tokenizer)
    trained = model.logits(model.hidden(TOKENS))
    merge_adapters(model)
    merged = model.logits(model.hidden(TOKENS))
    torch.testing.assert_close(merged, trained, atol=1e-5, rtol=0)
    assert not torch.allclose(merged, start, atol=1e-2)
    assert list(model.state_dict()) == names
    model.save(tmp_path, tokenizer)
    found, _ = ConditionalLm.load(tmp_path)
    torch.testing.assert_close(found.logits(found.hidden(TOKENS)), trained, atol=1e-5, rtol=0)


def test_adapters_come_from_their_seed_and_touch_no_other_randomness(base) -> None:
    before, found = torch.random.get_rng_state(), []
    for seed in (5, 5, 6):
        model, _ = new_model(base, 2, 16, 3)
        add_adapters(model, 2, seed)
        found.append(torch.cat([each.flatten() for name, each in model.named_parameters() if "lora_A" in name]))
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_merging_without_adapters_changes_nothing(base) -> None:
    model, _ = new_model(base, 2, 16, 3)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    merge_adapters(model)
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())


def test_what_is_frozen_wants_no_gradient(base) -> None:
    model, _ = new_model(base, 2, 16, 3)
    freeze(model, 1, 0, True)
    frozen = {name for name, weight in model.named_parameters() if not weight.requires_grad}
    assert {name.split(".h.")[1][0] for name in frozen if ".h." in name} == {"0"}
    assert {name for name in frozen if ".h." not in name} == {"lm.transformer.wte.weight", "lm.transformer.wpe.weight"}


def test_more_blocks_than_there_are_cannot_be_frozen(base) -> None:
    model, _ = new_model(base, 2, 16, 3)
    with pytest.raises(ModelError, match="2 first and 1 last blocks cannot be frozen: the model has 2"):
        freeze(model, 2, 1, False)


def test_a_sequence_must_fit_the_context(base) -> None:
    model, _ = new_model(base, 2, 16, 3)
    require_context(model, 48)
    with pytest.raises(ModelError, match="up to 49 positions; the model has 48"):
        require_context(model, 49)


def _batch(tokenizer) -> Batch:
    return serialiser(tokenizer, tuple(WORDS), 24, "text").batch(two_class_records()[::12])


def _train(model: ConditionalLm, tokenizer) -> None:
    """A few large steps of whatever trains."""
    optimizer = torch.optim.Adam([weight for weight in model.parameters() if weight.requires_grad], 0.05)
    for _ in range(5):
        batch = _batch(tokenizer)
        (lm_loss(model, batch) + discriminator_loss(model, batch, 2)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def _wrapped(name: str) -> str:
    """What an adapted matrix or bias is called."""
    place, _, kind = name.rpartition(".")
    return f"{place}.base_layer.{kind}"
