"""A soft prompt trains alone, exactly and by record; it stands before all that the fitted model reads or writes."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from palimpsest.errors import ModelError
from palimpsest.methods.dp_lm.decoding import uniforms, write
from palimpsest.methods.dp_lm.fit import DpLm
from palimpsest.methods.dp_lm.likelihood import joint_losses, record_losses, separate_losses
from palimpsest.methods.dp_lm.model import (
    ConditionalLm,
    DpLmArtifact,
    HeadShape,
    add_soft_prompt,
    new_head,
    new_model,
    require_context,
    with_head,
    with_reads,
)
from palimpsest.methods.dp_lm.plan import plan as planned
from palimpsest.methods.dp_lm.sampling import Sampler, walk_of
from palimpsest.methods.dp_lm.serialise import serialiser
from palimpsest.methods.shared.base import Budget
from palimpsest.methods.shared.postprocess import FilterChain
from palimpsest.training.bookkeeping import BookkeepingEngine
from tests.families import family
from tests.methods.blind_models import LABELS, chosen, control_of, prompts_of
from tests.methods.two_classes import UNEVEN, two_class_records

NEAR = {"atol": 1e-4, "rtol": 0.0}
SIZE = 5
TUNED = {
    "soft_prompt": SIZE, "freeze_embeddings": True, "discriminator_weight": 0.0, "label_counts": "prior",
    "learning_rate": 0.05,
}  # fmt: skip


@pytest.fixture(scope="module")
def parts(base: Path):
    model, tokenizer = new_model(base, 2, 16, 3, "last")
    add_soft_prompt(model, SIZE, 4)
    with torch.no_grad():
        model.soft.weight.mul_(3.0)  # no token's any more
    return model, replace(serialiser(tokenizer, LABELS, 24, "text"), entropy=bytes)


def whole(model: ConditionalLm, tokens: list[int]) -> torch.Tensor:
    """Last hidden states (time, width) of tokens behind the soft prompt, read at once and without a cache."""
    embedded = torch.cat([model.soft.weight, model.lm.get_input_embeddings()(torch.tensor(tokens))])
    return model.lm.base_model(inputs_embeds=embedded[None], use_cache=False).last_hidden_state[0, SIZE:]


@torch.no_grad()
def test_it_stands_before_every_row_and_its_states_are_left_out(parts) -> None:
    model, rows = parts
    batch = rows.batch(UNEVEN)
    hidden = model.hidden(batch.prompted)
    assert hidden.shape == (*batch.prompted.shape, 32)
    for row, tokens in enumerate(batch.prompted.tolist()):
        torch.testing.assert_close(hidden[row], whole(model, tokens), **NEAR)
    without = ConditionalLm(model.lm, model.head, 1.0).hidden(batch.prompted)
    assert (hidden - without).abs().max() > 0.1


@torch.no_grad()
@pytest.mark.parametrize("variant", ["plain", "pplm", "fudge"])
def test_texts_are_written_behind_it(parts, make_generate, variant: str) -> None:
    """Prompts differ in length, so that padding stands before it; no variant steers here."""
    model, rows = parts
    how = make_generate(iterations=0, strength=0.0, candidates=400)
    prompts, texts = prompts_of(rows), [[], [], [], []]
    walk = walk_of(variant, model, prompts, [0, 1, 0, 1], rows.ids, how)
    for _ in range(4):
        noted: list[torch.Tensor] = []
        control = control_of(rows.ids)
        tokens = walk.step(chosen([3, 1, 2, 3], control, noted)).tolist()
        for row, found in enumerate(noted[0]):
            logits = model.logits(whole(model, [*prompts[row], *texts[row]])[-1])
            wanted = logits.index_fill(0, torch.tensor(control), -torch.inf).log_softmax(dim=-1)
            torch.testing.assert_close(found.sort().values, wanted.sort().values, **NEAR)
            texts[row].append(tokens[row])


@torch.no_grad()
@pytest.mark.parametrize("kind", ["gemma3_text", "phi3", "qwen3"])
def test_families_read_and_write_behind_it(kind: str, make_generate) -> None:
    """Tables that multiply their rows, and windows that it leaves."""
    lm = family(kind, 70, 8, 32)
    model = ConditionalLm(lm, new_head(HeadShape("hidden", 8, 0, 2), 1), 1.0)
    add_soft_prompt(model, SIZE, 4)
    hidden = model.hidden(torch.tensor([[5, 7, 9, 11]]))
    torch.testing.assert_close(hidden[0], whole(model, [5, 7, 9, 11]), **NEAR)
    walk = walk_of("plain", model, [[5, 7], [8, 5, 7]], [0, 0], _Ids(), make_generate())
    noted: list[torch.Tensor] = []
    walk.step(chosen([0, 0], [], noted))
    for found, prompt in zip(noted[0], ([5, 7], [8, 5, 7]), strict=True):
        torch.testing.assert_close(found, model.logits(whole(model, prompt)[-1]).log_softmax(dim=-1), **NEAR)


class _Ids:
    pad = 1


@pytest.mark.parametrize("losses", [joint_losses, separate_losses])
def test_its_gradients_are_each_records_own(parts, losses) -> None:
    """The engine's sums over a batch are those of a loop over records, each read alone by plain autograd."""
    model, rows = parts
    trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
    assert {name.partition(".")[0] for name in trained} == {"soft", "head"}
    batch = rows.batch(UNEVEN)
    found = BookkeepingEngine(model).clipped_sums(lambda: losses(model, batch, 1.0, 2), len(UNEVEN), 0.05)
    for which, summed in enumerate(found):
        wanted, longest = dict.fromkeys(trained, 0.0), 0.0
        for row in UNEVEN:
            loss = losses(model, rows.batch([row]), 1.0, 2)[which].sum()
            alone = torch.autograd.grad(loss, list(trained.values()), allow_unused=True, materialize_grads=True)
            norm = float(torch.cat([gradient.flatten() for gradient in alone]).norm())
            factor, longest = min(1.0, 0.05 / (norm or 1.0)), max(longest, norm)
            wanted = {name: wanted[name] + factor * own for name, own in zip(trained, alone, strict=True)}
        assert longest > 0.1  # so that clipping shows
        assert summed.gradients["soft.weight"].any()
        for name, gradient in summed.gradients.items():
            torch.testing.assert_close(gradient.float(), wanted[name], atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_it_alone_is_fitted_under_noise_and_what_was_saved_is_loaded(
    make_train, make_generate, schema, base, open_view, tmp_path, precision: str
) -> None:
    train = make_train(**TUNED, precision=precision)
    plan = planned(train, schema, Budget(3.0, 1e-3))
    generator = DpLm(train, schema, plan, base, 5, None)
    with open_view(plan, "release") as view:
        fitted = generator.ask(view)
    fitted.save(tmp_path / "model")
    found, start = DpLmArtifact.load(tmp_path / "model"), new_model(base, 2, 16, 5)[0]
    exact = {name: value.to(torch.bfloat16).float() for name, value in start.lm.state_dict().items()}
    same = start.lm.state_dict() if precision == "float32" else exact
    assert all(torch.equal(value, same[name]) for name, value in found.model.lm.state_dict().items())
    assert torch.equal(found.model.soft.weight, fitted.model.soft.weight)
    assert found.model.soft.weight.shape == (SIZE, 32)
    add_soft_prompt(start, SIZE, 5)
    assert not torch.allclose(found.model.soft.weight, start.soft.weight, atol=1e-3)
    for artifact in (found, DpLmArtifact.load(tmp_path / "model", torch.bfloat16)):
        rows = list(Sampler(make_generate(), "plain", 5, FilterChain([])).sample(artifact, {"praise": 2}))
        assert [row.label for row in rows] == ["praise"] * 2


def test_without_noise_it_learns(make_train, schema, base, open_view) -> None:
    train = make_train(**TUNED, epochs=30.0, batch=50, clipping_norm=1.0, micro_batch=50)
    plan = planned(train, schema, Budget(math.inf, 1e-3))
    with open_view(plan, "reference") as view:
        artifact = DpLm(train, schema, plan, base, 5, None).ask(view)
    records, rows = two_class_records(), artifact.serialiser()
    before = new_model(base, 2, 16, 5)[0]
    add_soft_prompt(before, SIZE, 5)
    start, learned = (record_losses(model, rows, records, 32).mean() for model in (before, artifact.model))
    assert learned < start - 0.1


@torch.no_grad()
def test_another_head_reads_the_model_behind_its_soft_prompt(parts) -> None:
    model, rows = parts
    batch = rows.batch(UNEVEN)
    other = with_head(model, new_head(HeadShape("last", 32, 0, 2), 1))
    for one in (other, with_reads(model, "last")):
        found = one.prefix_features(batch.blinded, batch.text)
        torch.testing.assert_close(found, model.prefix_features(batch.blinded, batch.text))


def test_it_takes_its_own_positions_of_the_context(parts) -> None:
    model, _ = parts
    require_context(model, 48 - SIZE)
    with pytest.raises(ModelError, match="up to 49 positions; the model has 48"):
        require_context(model, 49 - SIZE)


def test_it_begins_with_tokens_of_its_seed_and_touches_no_other_randomness(base) -> None:
    before, found = torch.random.get_rng_state(), []
    for seed in (5, 5, 6):
        model, _ = new_model(base, 2, 16, 3)
        add_soft_prompt(model, SIZE, seed)
        found.append(model.soft.weight)
        assert all((row == model.embedding).all(dim=1).any() for row in model.soft.weight)
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@torch.no_grad()
def test_a_text_is_the_same_alone_and_beside_others(parts, make_generate) -> None:
    model, rows = parts
    how, prompts = make_generate(max_tokens=8), prompts_of(rows)
    coins = np.stack([uniforms(4, 0, number, 8) for number in range(4)])
    together = write(walk_of("plain", model, prompts, [0] * 4, rows.ids, how), rows.ids, how, coins)
    for row, prompt in enumerate(prompts):
        walk = walk_of("plain", model, [prompt], [0], rows.ids, how)
        assert write(walk, rows.ids, how, coins[row : row + 1]) == [together[row]]


@pytest.mark.parametrize(
    "other", [{"lora_rank": 2}, {"freeze_first": 1}, {"freeze_last": 1}, {"freeze_embeddings": False}]
)
def test_it_trains_alone(make_train, other: dict) -> None:
    with pytest.raises(ValueError, match=r"soft_prompt trains no weight|lora_rank trains adapters"):
        make_train(**{**TUNED, **other})
