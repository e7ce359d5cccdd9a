"""The engine against a loop over examples on every supported architecture, and on any small network."""

import copy
import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
)
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm, GemmaTextScaledWordEmbedding
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from palimpsest.models.attention import cap_of
from palimpsest.training.bookkeeping import BookkeepingEngine
from palimpsest.training.check import self_check
from palimpsest.training.engine import EngineError
from palimpsest.training.ghost import ghost_is_cheaper
from palimpsest.training.losses import lm_head_loss
from palimpsest.training.scaling import scaling_of, table_scale
from tests.families import FAMILIES, family

VOCABULARY, WIDTH = 23, 8
ALWAYS, NEVER = (lambda *_: True), (lambda *_: False)


def gpt2(tied: bool = True) -> nn.Module:
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY, n_positions=16, n_embd=WIDTH, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0,
            attn_pdrop=0.0, tie_word_embeddings=tied, bos_token_id=0, eos_token_id=0,
        )
    )  # fmt: skip


def llama(tied: bool = True) -> nn.Module:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=16, tie_word_embeddings=tied, bos_token_id=0, eos_token_id=0,
            pad_token_id=None,
        )
    )  # fmt: skip


def opt(tied: bool = True) -> nn.Module:
    return OPTForCausalLM(
        OPTConfig(
            vocab_size=VOCABULARY, hidden_size=WIDTH, word_embed_proj_dim=4, ffn_dim=12, num_hidden_layers=2,
            num_attention_heads=2, max_position_embeddings=16, dropout=0.0, tie_word_embeddings=tied, pad_token_id=1,
            bos_token_id=2, eos_token_id=2,
        )
    )  # fmt: skip


def with_lora(model: nn.Module, targets: list[str] | str) -> nn.Module:
    torch.manual_seed(5)
    adapted = get_peft_model(model, LoraConfig(r=2, lora_alpha=4, target_modules=targets, lora_dropout=0.0))
    return adapted.base_model.model


def lora_gpt2() -> nn.Module:
    return with_lora(gpt2(), ["c_attn", "c_fc"])


def lora_llama() -> nn.Module:
    return with_lora(llama(), ["q_proj", "v_proj"])


def frozen_blocks() -> nn.Module:
    model = llama()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("layers.1" in name)
    return model


MODELS = {
    "gpt2": gpt2,
    "gpt2 untied": lambda: gpt2(tied=False),
    "llama": llama,
    "llama untied": lambda: llama(tied=False),
    "opt": opt,
    "opt untied": lambda: opt(tied=False),
    "gpt2 lora": lora_gpt2,
    "llama lora": lora_llama,
    "llama, one block": frozen_blocks,
}


def make(name: str, dtype: torch.dtype) -> nn.Module:
    return generic(MODELS[name], dtype)


def generic(build: Callable[[], nn.Module], dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(1)
    model = build().to(torch.float64).eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():  # generic weights: fresh ones have zero biases, equal gains and zero LoRA matrices
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model.to(dtype)


def batch_of(examples: int = 4, tokens: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(3, VOCABULARY, (examples, tokens), generator=generator)
    return ids, torch.arange(tokens)[None] < torch.tensor([7, 3, 5, 1])[:examples, None]


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    ids, counted = batch
    hidden = model.base_model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).last_hidden_state
    return lm_head_loss(model.get_output_embeddings(), hidden, ids.roll(-1, 1), counted, cap_of(model))


def loop(model: nn.Module, batch: tuple[torch.Tensor, ...], losses=loss) -> torch.Tensor:
    """(B, P): plain autograd, one example at a time."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = []
    for index in range(len(batch[0])):
        value = losses(model, tuple(part[[index]] for part in batch)).sum()
        found = torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True)
        gradients.append(torch.cat([part.flatten() for part in found]))
    return torch.stack(gradients)


def engine(model: nn.Module, batch, clipping_norm: float, rule=ghost_is_cheaper, losses=loss):
    """The clipped sum, flat, and the norms."""
    attached = BookkeepingEngine(model, rule)
    (found,) = attached.clipped_sums(lambda: (losses(model, batch),), len(batch[0]), clipping_norm)
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    parts = [found.gradients.get(name, torch.zeros_like(parameter)).flatten() for name, parameter in trained]
    return torch.cat(parts), found.norms


def clipped(gradients: torch.Tensor, clipping_norm: float) -> torch.Tensor:
    return (gradients * (clipping_norm / gradients.norm(dim=1, keepdim=True)).clamp(max=1.0)).sum(0)


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("name", MODELS)
def test_every_architecture_equals_the_loop_over_examples(name):
    for dtype, tolerance in [(torch.float64, 1e-12), (torch.float32, 1e-5)]:
        model = make(name, dtype)
        expected = loop(make(name, torch.float64), batch_of()).to(dtype)
        if dtype == torch.float32:
            expected = loop(model, batch_of())
        for rule in (ALWAYS, NEVER):
            for clipping_norm in (1e-3, float(expected.norm(dim=1).median()), math.inf):
                found, norms = engine(model, batch_of(), clipping_norm, rule)
                assert error(norms, expected.norm(dim=1)) <= tolerance
                assert error(found, clipped(expected, clipping_norm)) <= tolerance


@pytest.mark.parametrize("adapters", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("kind", FAMILIES)
def test_every_family_equals_the_loop_over_examples(kind, adapters):
    """Their norms compute in single precision whatever their input, so the last digits are lost in both."""

    def build() -> nn.Module:
        model = family(kind, VOCABULARY, WIDTH, 16)
        return with_lora(model, "all-linear") if adapters else model

    model = generic(build, torch.float64)
    expected = loop(model, batch_of())
    for rule in (ALWAYS, NEVER):
        found, norms = engine(model, batch_of(), float(expected.norm(dim=1).median()), rule)
        assert error(norms, expected.norm(dim=1)) <= 1e-6
        assert error(found, clipped(expected, float(expected.norm(dim=1).median()))) <= 1e-6


@pytest.mark.parametrize("name", ["gpt2", "llama", "opt"])
def test_one_example_and_gradient_checkpointing(name):
    model = make(name, torch.float64)
    expected = loop(model, batch_of())
    model.gradient_checkpointing_enable({"use_reentrant": False})  # 5.17 does not know its newer name
    found, _ = engine(model.train(), batch_of(), 0.3)
    alone, _ = engine(model, batch_of(examples=1), 0.3)
    assert error(found, clipped(expected, 0.3)) <= 1e-12
    assert error(alone, clipped(expected[:1], 0.3)) <= 1e-12


def test_lora_trains_nothing_else():
    model = make("gpt2 lora", torch.float64)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    (found,) = BookkeepingEngine(model).clipped_sums(lambda: (loss(model, batch_of()),), 4, 1.0)
    assert set(found.gradients) == trained
    assert all("lora" in name for name in trained)


@pytest.mark.parametrize("name", ["gpt2", "llama lora"])
def test_two_losses_share_one_forward_pass(name):
    model, calls = make(name, torch.float64), []

    def both(model, batch):
        calls.append(1)
        ids, counted = batch
        hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        head = model.get_output_embeddings()
        return lm_head_loss(head, hidden, ids.roll(-1, 1), counted), head(hidden.mean(1)).square().sum(1)

    attached = BookkeepingEngine(model)
    found = attached.clipped_sums(lambda: both(model, batch_of()), 4, 0.3)
    assert len(calls) == 1
    for which, result in enumerate(found):
        expected = loop(model, batch_of(), lambda m, b, w=which: both(m, b)[w])
        flat = torch.cat([gradient.flatten() for gradient in result.gradients.values()])
        assert error(result.norms, expected.norm(dim=1)) <= 1e-12
        assert flat.norm() == pytest.approx(float(clipped(expected, 0.3).norm()), rel=1e-12)


@pytest.mark.parametrize("name", ["gpt2", "llama", "opt", "gpt2 lora"])
def test_bf16_autocast_clips_in_single_precision(name):
    """Close to the loop under the same autocast; and one example's share is C to single precision, not to bf16's."""
    model = make(name, torch.float32)

    def half(model, batch):
        with torch.autocast("cpu", torch.bfloat16):
            return loss(model, batch)

    found, norms = engine(model, batch_of(), math.inf, losses=half)
    expected = loop(model, batch_of(), half)
    assert found.dtype == norms.dtype == torch.float64
    assert error(found, expected.sum(0)) <= 0.05
    assert error(norms, expected.norm(dim=1)) <= 0.05
    for index in range(4):
        one = tuple(part[[index]] for part in batch_of())
        share, norm = engine(model, one, 1e-3, losses=half)
        assert float(share.norm()) == pytest.approx(min(1e-3, float(norm)), rel=1e-5)


def test_bf16_passes_the_self_check():
    model = make("gpt2", torch.float32)

    def half(model, batch):
        with torch.autocast("cpu", torch.bfloat16):
            return loss(model, batch)

    self_check(BookkeepingEngine, model, half, batch_of(examples=3), precision=torch.bfloat16)


def test_trainable_half_precision_weights_are_refused():
    with pytest.raises(EngineError, match="float32"):
        BookkeepingEngine(make("gpt2", torch.float64).to(torch.bfloat16))


def test_dora_has_no_rule_and_says_what_to_do():
    config = LoraConfig(r=2, target_modules=["q_proj"], use_dora=True)
    with pytest.raises(EngineError, match=r"lora_magnitude_vector.*Freeze it"):
        BookkeepingEngine(get_peft_model(llama(), config))


# --- layers that only scale ------------------------------------------------------------------------------------------


class Squaring(nn.Module):
    """One weight vector, but the output is not affine in it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs * self.weight.square()


class Mixing(Squaring):
    """Affine in its weight, but an example sees the others."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.weight * (inputs - inputs.mean(0))


class Turning(Squaring):
    """Affine in its weight, but a coordinate of the weight reaches another coordinate of the output."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs * self.weight.roll(1)


@pytest.mark.parametrize(
    ("norm", "tolerance"),
    # Gemma's computes in single precision, whatever its input.
    [(LlamaRMSNorm(WIDTH), 1e-12), (GemmaRMSNorm(WIDTH), 1e-6), (nn.RMSNorm(WIDTH), 1e-12)],
    ids=["w", "1+w", "nn"],
)
def test_rms_norms_are_known_by_what_they_do(norm, tolerance):
    torch.manual_seed(0)
    norm = norm.double()
    with torch.no_grad():
        norm.weight.normal_()
    inputs, weights = torch.randn(2, 4, 3, WIDTH, dtype=torch.float64)
    model = nn.Sequential(copy.deepcopy(norm))

    def scaled(model, batch):
        return (model(batch[0]) * batch[1]).sum((1, 2))

    found, norms = engine(model, (inputs, weights), 0.3, losses=scaled)
    expected = loop(model, (inputs, weights), scaled)
    assert error(norms, expected.norm(dim=1)) <= tolerance
    assert error(found, clipped(expected, 0.3)) <= tolerance


@pytest.mark.parametrize("layer", [Squaring(), Mixing(), Turning(), nn.LayerNorm(WIDTH), nn.PReLU()], ids=str)
def test_other_layers_are_no_scaling(layer):
    assert scaling_of(layer) is None


@pytest.mark.parametrize("layer", [Squaring(), Mixing(), Turning()], ids=str)
def test_a_layer_that_only_looks_like_a_norm_is_refused(layer):
    with pytest.raises(EngineError, match=r"trains without a per-example rule.*Freeze it"):
        BookkeepingEngine(nn.Sequential(layer))


# --- tables ----------------------------------------------------------------------------------------------------------


class Shifted(nn.Embedding):
    """A table whose rows are not all that comes out."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return super().forward(ids) + 1.0


class Uneven(nn.Embedding):
    """A table whose columns are multiplied by different numbers."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return super().forward(ids) * torch.arange(1.0, 1.0 + self.embedding_dim)


def test_a_tables_constant_is_read_off_what_it_does():
    """To the last bit, for a padding row beyond the trial's rows too; what does more is refused."""
    table = GemmaTextScaledWordEmbedding(VOCABULARY, WIDTH, VOCABULARY - 1, embed_scale=math.sqrt(640))
    assert table_scale(table) == float(torch.tensor(math.sqrt(640)))
    assert table_scale(table.to(torch.bfloat16)) == 25.25
    assert table_scale(nn.Embedding(3, 2)) == 1.0
    for layer in (Shifted(9, WIDTH), Uneven(9, WIDTH)):
        assert table_scale(layer) is None
        with pytest.raises(EngineError, match="without a per-example rule"):
            BookkeepingEngine(nn.Sequential(layer))


@pytest.mark.parametrize("rule", [ALWAYS, NEVER])
def test_a_scaled_table_gives_the_clipping_norm_and_no_more(rule):
    """A norm without the constant would let an example give so many times C."""
    torch.manual_seed(0)
    model = nn.Sequential(GemmaTextScaledWordEmbedding(VOCABULARY, WIDTH, 1, embed_scale=5.0)).double()
    ids = torch.randint(2, VOCABULARY, (1, 6))
    found, norms = engine(model, (ids,), 0.1, rule, lambda m, batch: m(batch[0]).square().sum((1, 2)))
    expected = loop(model, (ids,), lambda m, batch: m(batch[0]).square().sum((1, 2)))
    assert error(norms, expected.norm(dim=1)) <= 1e-12
    assert float(found.norm()) == pytest.approx(0.1, rel=1e-9)


# --- any small network -----------------------------------------------------------------------------------------------


class Chain(nn.Module):
    """A table, linear layers that may share one weight, norms, and a head that may be the table."""

    def __init__(self, width: int, kinds: list[str], tied: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, width)
        shared = nn.Linear(width, width)
        fresh = {"own": partial(nn.Linear, width), "layer": nn.LayerNorm, "rms": nn.RMSNorm}
        self.layers = nn.ModuleList([shared if kind == "shared" else fresh[kind](width) for kind in kinds])
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        states = self.table(ids)
        for layer in self.layers:
            states = torch.tanh(layer(states)) + 0.1 * states
        return states


def chain_loss(model: Chain, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return lm_head_loss(model.head, model(batch[0]), batch[0].roll(-1, 1), batch[1])


@settings(max_examples=60, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(["own", "shared", "layer", "rms"]), max_size=4),
    width=st.integers(2, 9),
    tied=st.booleans(),
    tokens=st.integers(1, 9),
    examples=st.integers(1, 5),
    rule=st.sampled_from([ALWAYS, NEVER, ghost_is_cheaper, lambda tokens, rows, columns: rows > columns]),
    clipping_norm=st.sampled_from([1e-4, 0.1, 1.0, math.inf]),
    seed=st.integers(0, 2**31),
)
def test_any_small_network_equals_the_loop(kinds, width, tied, tokens, examples, rule, clipping_norm, seed):
    torch.manual_seed(seed)
    model = Chain(width, kinds, tied).double()
    ids = torch.randint(VOCABULARY, (examples, tokens))
    batch = ids, torch.rand(examples, tokens) < 0.8
    expected = loop(model, batch, chain_loss)
    found, norms = engine(model, batch, clipping_norm, rule, chain_loss)
    reference = clipped(torch.where(expected.norm(dim=1, keepdim=True) > 0, expected, 1e-300), clipping_norm)
    assert (norms - expected.norm(dim=1)).abs().max() <= 1e-12 * (1 + expected.norm())
    assert (found - reference).norm() <= 1e-10 * (1 + reference.norm())
