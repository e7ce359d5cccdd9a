"""The engine against a loop over examples, against Opacus, and against neighbouring batches."""

import dataclasses
import functools
import itertools
import math
import subprocess
import sys
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from palimpsest.training import ghost
from palimpsest.training.bookkeeping import BookkeepingEngine
from palimpsest.training.engine import EngineError
from palimpsest.training.ghost import ghost_is_cheaper
from tests.training.lm_loss import per_example_lm_loss

VOCABULARY, WIDTH = 17, 8
ALWAYS, NEVER = (lambda *_: True), (lambda *_: False)


class Tagger(nn.Module):
    """A small GPT-2 with a label head on its hidden states."""

    def __init__(self, tied: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.lm = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=VOCABULARY, n_positions=16, n_embd=WIDTH, n_layer=2, n_head=2, resid_pdrop=dropout,
                embd_pdrop=dropout, attn_pdrop=dropout, tie_word_embeddings=tied, bos_token_id=0, eos_token_id=0,
                use_cache=False,
            )
        )  # fmt: skip
        self.hidden = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 3, bias=False)

    def label_logits(self, ids: torch.Tensor, attention: torch.Tensor) -> torch.Tensor:
        states = self.lm.transformer(ids, attention_mask=attention).last_hidden_state
        return self.head(self.norm(torch.tanh(self.hidden(states.mean(1)))))


def make_model(tied: bool, dtype: torch.dtype, frozen: str = "nothing") -> Tagger:
    torch.manual_seed(3)
    model = Tagger(tied).to(dtype)
    with torch.no_grad():  # generic weights: fresh ones have zero biases and equal gains
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not FROZEN[frozen](name))
    return model


FROZEN = {
    "nothing": lambda name: False,
    "table": lambda name: "wte" in name or "lm_head" in name,
    "lower half": lambda name: "wte" in name or "wpe" in name or "h.0." in name,
    "weights": lambda name: not name.endswith("bias"),
}


def make_batch(tokens: int, examples: int = 4) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    lengths = torch.arange(examples) % tokens + 1
    return {
        "ids": torch.randint(VOCABULARY, (examples, tokens), generator=generator),
        "targets": torch.randint(VOCABULARY, (examples, tokens), generator=generator),
        "mask": torch.arange(tokens)[None] < lengths[:, None],
        "label": torch.randint(3, (examples,), generator=generator),
    }


def rows(batch: dict[str, torch.Tensor], which) -> dict[str, torch.Tensor]:
    return {key: value[which] for key, value in batch.items()}


def lm_loss(model: Tagger, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    logits = model.lm(batch["ids"], attention_mask=batch["mask"].long()).logits
    return per_example_lm_loss(logits, batch["targets"], batch["mask"])


def both_losses(model: Tagger, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Every weight of the language model is used twice: on the text and on a copy with another first token."""
    changed = batch["ids"].clone()
    changed[:, 0] = (changed[:, 0] + 5) % VOCABULARY
    logits = model.label_logits(changed, batch["mask"].long())
    return lm_loss(model, batch) + 0.7 * nn.functional.cross_entropy(logits, batch["label"], reduction="none")


LOSSES = {"one loss": lm_loss, "used twice": both_losses}


def example_gradients(model: nn.Module, loss, batch) -> torch.Tensor:
    """(B, P): the plain loop, one example at a time."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = []
    for index in range(len(batch["ids"])):
        value = loss(model, rows(batch, [index])).sum()
        parts = torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True)
        gradients.append(torch.cat([part.flatten() for part in parts]))
    return torch.stack(gradients)


def clipped(gradients: torch.Tensor, clipping_norm: float) -> torch.Tensor:
    return (gradients * (clipping_norm / gradients.norm(dim=1, keepdim=True)).clamp(max=1.0)).sum(0)


def one_sum(model, losses, size, clipping_norm, prefer_ghost=ghost_is_cheaper):
    """The engine's answer for one loss, with zeros written out."""
    (found,) = BookkeepingEngine(model, prefer_ghost).clipped_sums(lambda: (losses(),), size, clipping_norm)
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    gradients = {name: found.gradients.get(name, torch.zeros_like(parameter)) for name, parameter in trained}
    return dataclasses.replace(found, gradients=gradients)


def flat(result) -> torch.Tensor:
    return torch.cat([gradient.flatten() for gradient in result.gradients.values()])


def dropped(found):
    return int((~torch.isfinite(found.norms)).sum())


def engine_sum(model, loss, batch, clipping_norm, prefer_ghost=ghost_is_cheaper):
    return one_sum(model, lambda: loss(model, batch), len(batch["ids"]), clipping_norm, prefer_ghost)


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@functools.cache
def truth(tied: bool, loss: str, tokens: int, frozen: str) -> torch.Tensor:
    return example_gradients(make_model(tied, torch.float64, frozen), LOSSES[loss], make_batch(tokens))


@pytest.mark.parametrize("prefer_ghost", [ALWAYS, NEVER], ids=["ghost", "keep"])
@pytest.mark.parametrize("frozen", FROZEN)
@pytest.mark.parametrize("tokens", [7, 1], ids=["padding", "one token"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_equals_the_loop_over_examples(tied, loss, tokens, frozen, prefer_ghost):
    expected = truth(tied, loss, tokens, frozen)
    middle = float(expected.norm(dim=1).median())
    for dtype, tolerance in [(torch.float64, 1e-12), (torch.float32, 1e-5)]:
        model = make_model(tied, torch.float64, frozen).to(dtype)
        for clipping_norm in (1e-3, middle, math.inf):
            found = engine_sum(model, LOSSES[loss], make_batch(tokens), clipping_norm, prefer_ghost)
            assert relative_error(found.norms.double(), expected.norm(dim=1)) <= tolerance
            assert relative_error(flat(found).double(), clipped(expected, clipping_norm)) <= tolerance
            assert dropped(found) == 0


def test_micro_batches_add_up():
    model, batch = make_model(True, torch.float64), make_batch(7, examples=6)
    whole = flat(engine_sum(model, both_losses, batch, 0.3))
    for size in (1, 3):
        parts = [rows(batch, slice(start, start + size)) for start in range(0, 6, size)]
        total = sum(flat(engine_sum(model, both_losses, part, 0.3)) for part in parts)
        assert relative_error(total, whole) <= 1e-12


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_agrees_with_opacus(tied):
    from opacus import GradSampleModule

    model, batch = make_model(tied, torch.float64), make_batch(7)
    found = engine_sum(model, opacus_loss, batch, 0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapped = GradSampleModule(make_model(tied, torch.float64), loss_reduction="sum", strict=False)
        opacus_loss(wrapped, batch).sum().backward()
    parameters = [parameter for parameter in wrapped.parameters() if parameter.requires_grad]
    gradients = torch.cat([opacus_sample(parameter).flatten(1) for parameter in parameters], dim=1)
    assert relative_error(found.norms, gradients.norm(dim=1)) <= 1e-12
    assert relative_error(flat(found), clipped(gradients, 0.3)) <= 1e-12


def opacus_sample(parameter: nn.Parameter) -> torch.Tensor:
    """(4, *shape): what Opacus found, zero for a parameter that was not used."""
    sample = getattr(parameter, "grad_sample", None)
    if sample is None:
        return parameter.new_zeros(4, *parameter.shape)
    return sum(sample) if isinstance(sample, list) else sample


def opacus_loss(model, batch):
    # Opacus takes a layer's first dimension for the batch, so position ids are given for every example.
    positions = torch.arange(batch["ids"].size(1)).expand_as(batch["ids"]).contiguous()
    logits = model.lm(batch["ids"], attention_mask=batch["mask"].long(), position_ids=positions).logits
    return per_example_lm_loss(logits, batch["targets"], batch["mask"])


@functools.cache
def overfitted() -> Tagger:
    """Float32 weights that have seen one token only: large, cancelling gradients."""
    torch.manual_seed(0)
    model = Tagger(tied=True)
    batch = make_batch(7)
    batch = {**batch, "ids": torch.full_like(batch["ids"], 4), "targets": torch.full_like(batch["ids"], 4)}
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(60):
        optimiser.zero_grad()
        both_losses(model, batch).sum().backward()
        optimiser.step()
    return model


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    scale=st.floats(-6, 6).map(lambda power: 10.0**power),
    special=st.sampled_from([1.0, math.nan, math.inf, 0.0]),
    repeated=st.booleans(),
    fitted=st.booleans(),
)
def test_one_example_moves_the_sum_by_at_most_the_clipping_norm(seed, scale, special, repeated, fitted):
    model = overfitted() if fitted else make_model(True, torch.float32)
    generator = torch.Generator().manual_seed(seed)
    batch = {**make_batch(7), "ids": torch.randint(VOCABULARY, (4, 7), generator=generator)}
    if repeated:
        batch["ids"][3] = 4
    scales = torch.tensor([1.0, scale, 1.0, scale * special])
    more = engine_sum(model, lambda m, b: both_losses(m, b) * scales, batch, 0.5)
    fewer = engine_sum(model, lambda m, b: both_losses(m, b) * scales[:3], rows(batch, slice(3)), 0.5)
    assert (flat(more) - flat(fewer)).norm() <= 0.5 * (1 + 1e-5)
    assert dropped(more) == (0 if math.isfinite(special) else 1)


@pytest.mark.parametrize("prefer_ghost", [ALWAYS, NEVER], ids=["ghost", "keep"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_counts_as_zero(bad, prefer_ghost):
    model, batch = make_model(True, torch.float64), make_batch(7)
    factors = torch.tensor([1.0, bad, 1.0, 1.0], dtype=torch.float64)
    found = engine_sum(model, lambda m, b: both_losses(m, b) * factors, batch, 0.3, prefer_ghost)
    others = truth(True, "used twice", 7, "nothing")[[0, 2, 3]]
    assert dropped(found) == 1
    assert relative_error(flat(found), clipped(others, 0.3)) <= 1e-12


def test_nan_weights_of_one_row_stay_in_that_row():
    table = nn.Embedding(3, 2)
    with torch.no_grad():
        table.weight[1] = math.nan
    head = nn.Linear(2, 1)
    found = one_sum(nn.ModuleList([table, head]), lambda: head(table(torch.tensor([[0], [1]])))[:, 0, 0], 2, 1.0)
    assert dropped(found) == 1
    assert torch.isfinite(flat(found)).all()


def test_cancelling_tokens_never_pass_the_clip():
    """Two tokens whose gradients cancel to less than float32 resolves in a Gram matrix."""
    layer = nn.Linear(3, 2, bias=False)
    inputs = torch.tensor([[[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]])
    for residue in (0.0, 1e-7, 1e-5, 1e-4, 1e-3):
        weights = 1e6 * torch.tensor([[[1.0, 1.0], [-1.0, -1.0 - residue]]])
        result = one_sum(layer, lambda w=weights: (layer(inputs) * w).sum((1, 2)), 1, 1.0, ALWAYS)
        assert flat(result).norm() <= 1.0 + 1e-3


@pytest.mark.parametrize("runs", [1, 32])
@pytest.mark.parametrize("columns", [3000, 50257])
def test_cancelling_tokens_of_a_wide_matrix_never_pass_the_clip(monkeypatch, columns, runs):
    """Rank one plus a little, on tokens whose weights add up to nothing: what is left is near a Gram's rounding."""
    monkeypatch.setattr(ghost, "_run_limit", lambda values: runs)
    for seed, spread in itertools.product(range(4), (2e-3, 3e-3, 4e-3)):
        generator = torch.Generator().manual_seed(seed)
        layer = nn.Linear(16, columns, bias=False)
        inputs = torch.randn(1, 1, 16, generator=generator) + spread * torch.randn(1, 4, 16, generator=generator)
        weights = torch.randn(1, 4, 1, generator=generator)
        pulls = 1e3 * (weights - weights.mean(1, keepdim=True)) * torch.randn(1, 1, columns, generator=generator)
        found = one_sum(layer, lambda w=layer, x=inputs, p=pulls: (w(x) * p).sum((1, 2)), 1, 1.0, ALWAYS)
        assert flat(found).double().norm() <= 1.0 + 1e-5


@pytest.mark.parametrize(("small", "large"), [(1e-23, 1e17), (1e17, 1e-23)])
def test_products_that_underflow_never_pass_the_clip(small, large):
    torch.manual_seed(0)
    layer = nn.Linear(64, 64, bias=False)
    inputs, pulls = small * torch.randn(2, 8, 64), large * torch.randn(2, 8, 64)
    found = one_sum(layer, lambda: (layer(inputs) * pulls).sum((1, 2)), 2, 1e-7, ALWAYS)
    assert flat(found).double().norm() <= 2e-7 * (1 + 1e-5)


def test_a_callers_autocast_does_not_reach_the_sums():
    model, batch = make_model(True, torch.float32), make_batch(7)
    with torch.autocast("cpu", torch.bfloat16):
        found = engine_sum(model, lm_loss, batch, 1e-3)
    assert flat(found).dtype == torch.float64
    assert flat(found).norm() <= 4e-3 * (1 + 1e-5)


def test_rounded_products_are_refused():
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(EngineError, match="highest"):
            BookkeepingEngine(nn.Linear(2, 2))
    finally:
        torch.set_float32_matmul_precision("highest")


def test_switches_that_torch_cannot_read_together_are_named():
    """Its newer switch for one backend sets others'; its older one then raises. In a process of its own: it may not
    come back."""
    program = (
        "import torch\nfrom palimpsest.training.engine import EngineError\n"
        "from palimpsest.training.bookkeeping import BookkeepingEngine\n"
        "torch.backends.mkldnn.fp32_precision = 'tf32'\n"
        "try:\n    BookkeepingEngine(torch.nn.Linear(2, 2))\n"
        "except EngineError as error:\n    print(error)\n    print(error.remedy)\n"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "contradict each other" in told
    assert "torch.backends.fp32_precision" in told


@pytest.mark.parametrize("bits", [1, 8, 13, 16])
@pytest.mark.parametrize("sides", [(0,), (1,), (0, 1)])
def test_a_device_that_multiplies_with_fewer_digits_is_refused(monkeypatch, bits, sides):
    """TF32 leaves off 13 of the 23 bits behind the leading one, bfloat16 leaves off 16."""

    def multiply(*factors: torch.Tensor) -> torch.Tensor:
        cut = [~((1 << bits) - 1) if side in sides else -1 for side in (0, 1)]
        left, right = (
            (each.contiguous().view(torch.int32) & kept).view(torch.float32)
            for each, kept in zip(factors, cut, strict=True)
        )
        return left.double().bmm(right.double()).float()

    monkeypatch.setattr(torch, "bmm", multiply)
    if bits < 12:  # the numbers have 12
        BookkeepingEngine(nn.Linear(2, 2))
        return
    with pytest.raises(EngineError, match="on cpu have fewer digits than float32"):
        BookkeepingEngine(nn.Linear(2, 2))


@pytest.mark.parametrize("bits", [1, 2, 8])
def test_a_device_that_emulates_float64_with_fewer_digits_is_refused(monkeypatch, bits):
    """Of 53 digits the last ones are left off in each sum."""
    plain = torch.Tensor.__matmul__

    def multiply(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        found = plain(left, right)
        whole = left.dtype == torch.float64 and left.shape[1] == 32
        return (found.view(torch.int64) & ~((1 << bits) - 1)).view(torch.float64) if whole else found

    monkeypatch.setattr(torch.Tensor, "__matmul__", multiply)
    with pytest.raises(EngineError, match="on cpu have fewer digits than float64"):
        BookkeepingEngine(nn.Linear(2, 2))


def test_dropout_runs_in_train_mode():
    torch.manual_seed(0)
    model = Tagger(tied=True, dropout=0.3).train()
    found = engine_sum(model, both_losses, make_batch(7), 0.3)
    assert 0 < flat(found).norm() <= 4 * 0.3 * (1 + 1e-5)


def test_the_model_is_left_as_it_was():
    model = make_model(True, torch.float64, "table")
    before = [(name, parameter.requires_grad) for name, parameter in model.named_parameters()]
    engine_sum(model, lm_loss, make_batch(7), 1.0)
    assert [(name, parameter.requires_grad) for name, parameter in model.named_parameters()] == before
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())  # noqa: SLF001


def test_parameters_restored_after_a_failing_loss():
    model = make_model(True, torch.float64)
    with pytest.raises(EngineError, match="one value per example"):
        engine_sum(model, lambda m, b: lm_loss(m, b).mean(), make_batch(7), 1.0)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_a_loss_without_trainable_parameters_gives_zeros():
    model = make_model(True, torch.float64)
    found = engine_sum(model, lambda m, b: torch.ones(4, dtype=torch.float64), make_batch(7), 1.0)
    assert set(found.gradients) == {name for name, _ in model.named_parameters()}
    assert flat(found).norm() == 0
    assert found.norms.eq(0).all()


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.Conv2d(1, 1, 1)), "'1' \\(Conv2d\\).*Freeze it"),
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False)), "'1' \\(BatchNorm1d\\).*LayerNorm"),
        (nn.MultiheadAttention(4, 2), "trains without a per-example rule"),
        (nn.Sequential(nn.Embedding(3, 2, scale_grad_by_freq=True)), "without these options"),
        (nn.Sequential(nn.Embedding(3, 2, max_norm=1.0)), "without these options"),
    ],
)
def test_layers_without_a_rule_are_refused(model, words):
    with pytest.raises(EngineError, match=words):
        BookkeepingEngine(model)


def test_a_frozen_layer_needs_no_rule():
    frozen = nn.Conv1d(2, 2, 1).requires_grad_(False)
    layer = nn.Linear(5, 1)
    inputs = torch.randn(3, 2, 5)
    found = one_sum(nn.Sequential(frozen, layer), lambda: layer(frozen(inputs)).sum((1, 2)), 3, math.inf)
    assert relative_error(found.gradients["1.weight"], frozen(inputs).sum((0, 1))[None]) <= 1e-6


def test_examples_must_come_first():
    layer = nn.Linear(2, 2)
    with pytest.raises(EngineError, match="first dimension is not the batch"):
        one_sum(nn.Sequential(layer), lambda: layer(torch.ones(12, 2)).view(3, -1).sum(1), 3, 1.0)


def test_an_input_changed_in_place_is_an_error():
    layer = nn.Linear(2, 2)

    def losses():
        inputs = torch.ones(3, 2)
        outputs = layer(inputs)
        inputs.mul_(7.0)
        return outputs.sum(1)

    with pytest.raises(RuntimeError, match="inplace"):
        one_sum(nn.Sequential(layer), losses, 3, 1.0)


def test_padding_row_of_a_table_stays_untrained():
    table = nn.Embedding(4, 3, padding_idx=1)
    ids = torch.tensor([[0, 1, 1], [2, 2, 1]])
    found = one_sum(nn.Sequential(table), lambda: table(ids).sum((1, 2)), 2, math.inf)
    assert found.norms.tolist() == pytest.approx([math.sqrt(3), 2 * math.sqrt(3)])
    assert found.gradients["0.weight"][1].eq(0).all()


def test_layer_norm_over_two_dimensions():
    norm = nn.LayerNorm((3, 2)).double()
    inputs = torch.randn(4, 3, 2, dtype=torch.float64)
    weights = torch.randn(3, 2, dtype=torch.float64)
    found = one_sum(nn.Sequential(norm), lambda: (norm(inputs) * weights).sum((1, 2)), 4, math.inf)
    expected = torch.autograd.grad((norm(inputs) * weights).sum(), list(norm.parameters()))
    for gradient, true in zip(found.gradients.values(), expected, strict=True):
        assert relative_error(gradient, true) <= 1e-12


def test_gradient_checkpointing_changes_nothing():
    batch = make_batch(7)
    plain, checkpointed = make_model(True, torch.float64).train(), make_model(True, torch.float64).train()
    for module in (plain, checkpointed):
        for part in module.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
    checkpointed.lm.gradient_checkpointing_enable({"use_reentrant": False})  # 5.17 does not know its newer name
    assert (
        relative_error(
            flat(engine_sum(checkpointed, lm_loss, batch, 0.3)), flat(engine_sum(plain, lm_loss, batch, 0.3))
        )
        <= 1e-12
    )


def test_ghost_rule_counts_multiplications():
    for tokens, rows_, columns in itertools.product((1, 10, 100), (2, 50), (2, 50)):
        assert ghost_is_cheaper(tokens, rows_, columns) == (tokens * rows_ + tokens * columns < rows_ * columns)
