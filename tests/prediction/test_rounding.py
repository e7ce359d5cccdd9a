"""What rounding of logits may move is nothing, or charged: the formula, enumerated, and the trial of a model."""

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel
from transformers.pytorch_utils import Conv1D

from palimpsest.errors import ModelError
from palimpsest.prediction.contexts import (
    Contexts,
    Shape,
    give_dtype,
    head_of,
    logits_of,
    measure_movement,
    require_exact,
    rung,
)
from palimpsest.prediction.mechanism import EXACT, FixedClipping, Rounding, SparseVector, token_rho
from palimpsest.privacy.accounting import total_rho
from tests.methods.predict_settings import predict_settings
from tests.prediction.laws import ORDERS, divergences
from tests.prediction.tiny import KINDS, model
from tests.prediction.world import FIXED, VECTOR, wave

CLIPPING = FixedClipping(1.0, 0.5, 10)  # a score moves by 0.1
PROMPTS = [[0, 9, 5, 77], [0, 4], [0, 200, 31, 8, 8, 90, 14], [12, 4], [0, 3, 250]]
SHAPE = Shape(7, 9, 9, 4)


# What is charged.


def worst(clipping: FixedClipping, rounding: Rounding) -> torch.Tensor:
    """The largest Renyi divergences of all batches' draws of two tokens, a unit's own scores and the others' moved."""
    scale = clipping.temperature

    def apart(move: float) -> torch.Tensor:
        cases = [torch.tensor([gap, 0.0], dtype=torch.float64) for gap in torch.linspace(-3, 3, 61).tolist()]
        shift = torch.tensor([move, -move], dtype=torch.float64) / scale
        pairs = [(case.log_softmax(0), (case + shift).log_softmax(0)) for case in cases]
        return torch.stack([divergences(p, q) for p, q in pairs]).amax(dim=0)

    others = (rounding.batches - 1) * apart(rounding.error) if rounding.error else torch.zeros(len(ORDERS))
    return apart(clipping.sensitivity + rounding.error) + others


@pytest.mark.parametrize("error", [0.0, 1e-3, 0.02, 0.1])
@pytest.mark.parametrize("batches", [1, 2, 40])
def test_what_is_charged_covers_the_batches_beside_it(error: float, batches: int) -> None:
    rounding = Rounding(error, batches)
    assert bool((worst(CLIPPING, rounding) <= ORDERS * token_rho(CLIPPING, None, rounding) * (1 + 1e-9)).all())


@pytest.mark.parametrize("rounding", [Rounding(0.02, 1), Rounding(0.05, 40)])
def test_a_charge_without_rounding_is_refuted(rounding: Rounding) -> None:
    """Of the own batch, and of those beside it."""
    assert bool((worst(CLIPPING, rounding) > ORDERS * token_rho(CLIPPING, None) * (1 + 1e-9)).any())
    own = token_rho(CLIPPING, None, replace(rounding, batches=1))
    assert rounding.batches == 1 or bool((worst(CLIPPING, rounding) > ORDERS * own * (1 + 1e-9)).any())


def test_the_charge_is_the_formula() -> None:
    vector, rounding = SparseVector(0.5, 0.2, 10), Rounding(0.01, 5)
    draw = 0.5 * ((0.1 + 0.01) / 0.5) ** 2 + 4 * 0.5 * (0.01 / 0.5) ** 2
    rounds = 2 * ((0.1 + 0.01) / 0.2) ** 2 + 4 * 2 * (0.01 / 0.2) ** 2
    assert token_rho(CLIPPING, None, rounding) == pytest.approx(draw)
    assert token_rho(CLIPPING, vector, rounding) == pytest.approx(draw + rounds)
    assert token_rho(CLIPPING, vector, replace(EXACT, batches=99)) == CLIPPING.rho + vector.rho


@pytest.mark.parametrize("vector", [None, VECTOR])
def test_a_wave_is_charged_what_its_rounding_says(vector: SparseVector | None) -> None:
    rounding = Rounding(0.01, 4)
    event = wave(vector=vector, rounding=rounding).event()
    assert total_rho(event) == pytest.approx(8 * token_rho(FIXED, vector, rounding))
    with pytest.raises(ValueError, match="batches"):
        wave(rounding=Rounding(0.01, 3))


@pytest.mark.parametrize("wrong", [{"error": -1e-9}, {"error": math.nan}, {"batches": 0}])
def test_numbers_that_the_accounting_does_not_hold_for_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="must be"):
        replace(EXACT, **wrong)


# What is tried.


@pytest.mark.parametrize("rows", [1, 2, 7, 33])
@pytest.mark.parametrize("kind", KINDS)
def test_bits_do_not_move_at_fixed_shapes(kind: str, rows: int) -> None:
    assert measure_movement(model(kind), PROMPTS, [5, 7], replace(SHAPE, rows=rows)) == 0.0
    assert measure_movement(model(kind), PROMPTS, [5], Shape(rows, 4, 50, 2)) == 0.0


@pytest.fixture(params=KINDS)
def halved(request: pytest.FixtureRequest) -> PreTrainedModel:
    """A model with weights in bf16."""
    half = copy.deepcopy(model(request.param))
    give_dtype(half, torch.bfloat16)
    return half


def test_bits_of_halves_do_not_move_where_the_trial_says_so(halved: PreTrainedModel) -> None:
    """Where the trial finds that they move, it refuses, as some processors that emulate bf16 may make it."""
    shape, own = replace(SHAPE, threads=torch.get_num_threads()), copy.deepcopy(halved).float()
    if measure_movement(halved, PROMPTS, [5, 7], SHAPE):
        with pytest.raises(ModelError, match="with the contexts beside it"):
            require_exact(own, PROMPTS, [5, 7], SHAPE, 0.0, torch.bfloat16)
        return
    assert require_exact(own, PROMPTS, [5, 7], SHAPE, 0.0, torch.bfloat16) == shape
    assert {weight.dtype for weight in own.parameters()} == {torch.bfloat16}
    together = Contexts(own, PROMPTS, shape).hidden(0, len(PROMPTS))
    for place, prompt in enumerate(PROMPTS):
        alone = Contexts(own, [PROMPTS[-1], prompt], shape).hidden(1, 2)
        assert torch.equal(alone[0], together[place])


@contextmanager
def astray(model: PreTrainedModel, layers: str) -> Iterator[None]:
    """The second half of a pass's rows adds products up in another order: what place may do on a processor or a GPU."""
    found = [layer for name, layer in model.base_model.named_modules() if type(layer) is Conv1D and layers in name]
    assert found
    for layer in found:
        layer.forward = partial(_half_by_half, layer)
    yield
    for layer in found:
        del layer.forward


def _half_by_half(layer: Conv1D, given: torch.Tensor) -> torch.Tensor:
    values, weight, half = given.float(), layer.weight.float(), len(given) // 2
    parts = values[:half] @ weight, values[half:].flip(-1) @ weight.flip(0)
    return (torch.cat(parts) + layer.bias.float()).to(given.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layers", ["", "0.attn.c_attn", "1.mlp.c_proj"])
@pytest.mark.parametrize("seed", [1, 2])
def test_sums_in_another_order_by_place_are_refused(dtype: torch.dtype, layers: str, seed: int) -> None:
    """In bf16 they show in few numbers, and seldom in the logits of the trial's prompts."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = GPT2Config(
            n_layer=2, n_embd=64, n_head=2, vocab_size=300, n_positions=128, bos_token_id=0, eos_token_id=0
        )
        tried = GPT2LMHeadModel(config).eval()
    with astray(tried, layers), pytest.raises(ModelError, match="beside it"):
        require_exact(tried, PROMPTS, list(range(3, 19)), Shape(64, 32, 64, 48), 0.0, dtype)


def test_rounding_in_halves_cannot_be_charged() -> None:
    with pytest.raises(ValidationError, match="rounding goes with a batch_size of 24 or more"):
        predict_settings(rounding=1e-3, batch_size=23)
    with pytest.raises(ValidationError, match="rounding is charged for float32 alone"):
        predict_settings(precision="bf16", rounding=1e-3)


def test_bits_are_tried_in_the_type_that_will_read(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.dtype] = []
    monkeypatch.setattr(
        "palimpsest.prediction.contexts.measure_movement", lambda own, *_: seen.append(own.dtype) or 0.0
    )
    require_exact(copy.deepcopy(model()), PROMPTS, [5], SHAPE, 0.0, torch.bfloat16)
    assert seen == [torch.bfloat16]


@torch.no_grad()
def test_the_head_keeps_its_digits_behind_halves(halved: PreTrainedModel) -> None:
    states = Contexts(halved, PROMPTS, SHAPE).hidden(0, len(PROMPTS))
    logits = torch.cat(list(logits_of(head_of(halved), states, SHAPE.rows)))
    wanted = states @ halved.get_output_embeddings().weight.float().T
    assert states.dtype == logits.dtype == torch.float32
    torch.testing.assert_close(logits, wanted)
    assert not torch.equal(logits, logits.bfloat16().float())


@contextmanager
def leaning(strength: float) -> Iterator[None]:
    """The model's states move with the contexts that are read beside them."""

    def lean(_module: Any, _given: Any, found: Any) -> Any:
        states = found.last_hidden_state
        found.last_hidden_state = states + strength * states[:1].abs().mean()
        return found

    handle = model().base_model.register_forward_hook(lean)
    try:
        yield
    finally:
        handle.remove()


@pytest.mark.parametrize("strength", [1e-6, 1e-5, 3e-5])
def test_what_is_admitted_is_what_is_charged(strength: float) -> None:
    give_dtype(model(), torch.float32)
    with leaning(strength):
        found = measure_movement(model(), PROMPTS, [5], SHAPE)
        assert 0.0 < found < 1e-2
        with pytest.raises(ModelError, match="with the contexts beside it"):
            require_exact(model(), PROMPTS, [5], SHAPE, 0.0)
        with pytest.raises(ModelError, match="with the contexts beside it"):
            require_exact(model(), PROMPTS, [5], SHAPE, 3.99 * found)
        require_exact(model(), PROMPTS, [5], SHAPE, 4.01 * found)


def test_the_remedy_names_a_bound_that_is_then_admitted() -> None:
    with leaning(1e-5):
        with pytest.raises(ModelError) as refused:
            require_exact(model(), PROMPTS, [5], SHAPE, 0.0)
        require_exact(model(), PROMPTS, [5], SHAPE, float(str(refused.value).split(" to ")[-1].split(" ")[0]))


def test_logits_that_are_no_numbers_are_not_admitted() -> None:
    with leaning(math.nan), pytest.raises(ModelError):
        require_exact(model(), PROMPTS, [5], SHAPE, 10.0)


@pytest.fixture
def two_threads() -> Iterator[None]:
    """As on a processor of two cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(("rounds", "left"), [(1e-6, 1), (0.0, 2)])
def test_threads_that_round_by_place_are_given_up(monkeypatch, rounds: float, left: int) -> None:
    tried = "palimpsest.prediction.contexts.measure_movement"
    monkeypatch.setattr(tried, lambda *_given: rounds if torch.get_num_threads() > 1 else 0.0)
    require_exact(model(), PROMPTS, [5], SHAPE, 0.0)
    assert torch.get_num_threads() == left


@pytest.mark.usefixtures("two_threads")
def test_threads_stay_where_their_rounding_is_charged(monkeypatch) -> None:
    monkeypatch.setattr("palimpsest.prediction.contexts.measure_movement", lambda *_given: 1e-6)
    require_exact(model(), PROMPTS, [5], SHAPE, 4.1e-6)
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_what_raises_threads_later_does_not_raise_them_in_a_private_pass(monkeypatch) -> None:
    """As importing UMAP does."""
    monkeypatch.setattr(
        "palimpsest.prediction.contexts.measure_movement", lambda *_given: float(torch.get_num_threads() > 1)
    )
    shape, threads = require_exact(model(), PROMPTS, [5], SHAPE, 0.0), []
    with model().base_model.register_forward_pre_hook(lambda *_given: threads.append(torch.get_num_threads())):
        torch.set_num_threads(2)
        contexts, everyone = Contexts(model(), PROMPTS, shape), torch.ones(len(PROMPTS), dtype=torch.bool)
        torch.set_num_threads(2)
        contexts.step(torch.full((len(PROMPTS),), 5), everyone, everyone)
    assert set(threads) == {1}
    assert len(threads) >= 2


# Shapes.


def test_prompts_are_padded_to_a_public_ladder() -> None:
    shape = Shape(3, 4, 50, 0)
    assert shape.widths == [4, 8, 16, 32, 50]
    assert [shape.width(length) for length in (1, 4, 5, 32, 33, 50)] == [4, 4, 8, 32, 50, 50]
    assert Shape(3, 9, 9, 0).widths == [9]
    assert [rung(count, 128, 270) for count in (1, 128, 129, 256, 257, 270)] == [128, 128, 256, 256, 270, 270]


def test_every_pass_has_the_shape_whatever_the_contexts() -> None:
    read: list[tuple[int, ...]] = []
    handle = model().base_model.register_forward_pre_hook(
        lambda _module, _given, named: read.append((*named["input_ids"].shape, *named["attention_mask"].shape[2:])),
        with_kwargs=True,
    )
    for prompts in (PROMPTS, PROMPTS[:1], [*PROMPTS, [3] * 9]):
        found = Contexts(model(), prompts, SHAPE)
        everyone = torch.ones(len(prompts), dtype=torch.bool)
        for goes_on in (everyone, torch.arange(len(prompts)) == 0):
            found.step(torch.full((len(prompts),), 9), goes_on, everyone)
    handle.remove()
    assert set(read) == {(7, 9, 9, 9), (7, 1, 1, 13)}


def test_the_head_reads_blocks_of_one_shape(monkeypatch) -> None:
    shapes: set[tuple[Any, Any]] = set()
    linear = torch.nn.functional.linear

    def noted(states: torch.Tensor, weight: torch.Tensor, bias: Any = None) -> torch.Tensor:
        shapes.add((tuple(states.shape), tuple(weight.shape)))
        return linear(states, weight, bias)

    monkeypatch.setattr(torch.nn.functional, "linear", noted)
    head = head_of(model())
    for count in (1, 31, 32, 33, 70):
        for wanted in (3, 100):
            blocks = list(logits_of(head, torch.randn(count, 24), 40, torch.arange(wanted)))
            assert sum(len(block) for block in blocks) == count
            assert {block.shape[1] for block in blocks} == {wanted}
    assert shapes == {((32, 24), (128, 24))}
