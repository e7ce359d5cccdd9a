"""Contexts side by side are what each is by itself, wherever each of them stands."""

import gc
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    Cache,
    GraniteConfig,
    GraniteForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedModel,
)

from palimpsest.errors import ModelError
from palimpsest.prediction import contexts
from palimpsest.prediction.contexts import Contexts, Shape, head_of, require_exact
from tests.families import FAMILIES
from tests.prediction.tiny import CONTEXT, EVERY, KINDS, model

PROMPTS = [[0, 9, 5, 77], [0, 4], [0, 200, 31, 8, 8, 90, 14], [12, 4], [0, 3, 250]]
ROOM = 7


def shape(prompts: list[list[int]], rows: int, least: int | None = None) -> Shape:
    """Of passes over these prompts: padded to the longest, or to a ladder from `least` on."""
    most = max(map(len, prompts))
    return Shape(rows, least or most, most, ROOM)


@torch.no_grad()
def alone(lm: PreTrainedModel, prompts: list[list[int]]) -> torch.Tensor:
    """Logits behind each prompt, (n, vocabulary), each read whole and by itself."""
    return torch.stack([lm(input_ids=torch.tensor([prompt]), use_cache=False).logits[0, -1] for prompt in prompts])


@torch.no_grad()
def together(lm: PreTrainedModel, found: Contexts, count: int) -> torch.Tensor:
    return head_of(lm)(found.hidden(0, count))


def check(lm: PreTrainedModel, prompts: list[list[int]], micro_batch: int, steps: list[list[tuple[int, bool, bool]]]):
    """Follow steps of (token, goes on, active) per context beside texts that are kept whole."""
    found = Contexts(lm, prompts, shape(prompts, micro_batch))
    texts: list[list[int]] = [[] for _ in prompts]
    torch.testing.assert_close(together(lm, found, len(prompts)), alone(lm, prompts), atol=1e-4, rtol=1e-4)
    for step in steps:
        tokens, goes_on, active = (torch.tensor(column) for column in zip(*step, strict=True))
        found.step(tokens, goes_on & active, active)
        texts = [[*text, token] if goes and on else [] for text, (token, goes, on) in zip(texts, step, strict=True)]
        wanted = alone(lm, [[*prompt, *text] for prompt, text in zip(prompts, texts, strict=True)])
        for row in active.nonzero().squeeze(1).tolist():
            got = head_of(lm)(found.hidden(row, row + 1))[0]
            torch.testing.assert_close(got, wanted[row], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "micro_batch"),
    [*((kind, rows) for kind in KINDS for rows in (1, 2, 7)), *((kind, 2) for kind in FAMILIES)],
)
@torch.no_grad()
def test_states_are_those_of_each_context_alone(kind: str, micro_batch: int) -> None:
    """All go on, some restart at different times, one stops for good."""
    steps = [
        [((13 * time + 5 * row) % 250 + 3, time % (row + 2) != row, row != 3 or time < 3) for row in range(5)]
        for time in range(ROOM)
    ]
    check(model(kind), PROMPTS, micro_batch, steps)


STEP = st.lists(st.tuples(st.integers(0, 260), st.booleans(), st.booleans()), min_size=4, max_size=4)


@settings(deadline=None, max_examples=10)
@given(
    st.sampled_from(KINDS),
    st.lists(st.lists(st.integers(0, 260), min_size=2, max_size=9), min_size=4, max_size=4),
    st.integers(1, 5),
    st.lists(STEP, max_size=ROOM),
)
@torch.no_grad()
def test_states_are_those_of_each_context_alone_whatever_the_steps(kind, prompts, micro_batch, steps) -> None:
    for before, after in pairwise(steps):  # what once stopped is never asked again
        after[:] = [(token, goes, on and was) for (token, goes, on), (_, _, was) in zip(after, before, strict=True)]
    check(model(kind), prompts, micro_batch, steps)


def test_a_run_of_contexts_may_cross_forward_passes() -> None:
    found = Contexts(model(), PROMPTS, shape(PROMPTS, 2))
    whole = found.hidden(0, 5)
    for first in range(5):
        for last in range(first + 1, 6):
            assert torch.equal(found.hidden(first, last), whole[first:last])


def test_prompts_of_one_token_are_prompts() -> None:
    check(model(), [[0], [7]], 2, [[(9, True, True), (8, False, True)], [(5, True, True), (6, True, True)]])


def test_nothing_is_read_for_contexts_that_stopped() -> None:
    """A forward pass without any that goes on is left out; one with one of them has its whole shape."""
    found, read = Contexts(model(), PROMPTS, shape(PROMPTS, 2)), []
    handle = model().base_model.register_forward_pre_hook(
        lambda _module, _given, named: read.append(len(named["input_ids"])), with_kwargs=True
    )
    everyone = torch.ones(5, dtype=torch.bool)
    found.step(torch.full((5,), 7), everyone, everyone)
    assert read == [2, 2, 2]
    read.clear()
    found.step(torch.full((5,), 7), everyone, torch.tensor([False, False, True, False, False]))
    handle.remove()
    assert read == [2]


def test_room_is_taken_for_prompts_and_what_may_follow_alone(monkeypatch) -> None:
    """The caches are never wider than the longest prompt of a forward pass and the room, whatever is written."""
    shelves: list[Any] = []
    shelf = vars(contexts)["_Shelf"]

    def noted(*given: Any) -> Any:
        shelves.append(shelf(*given))
        return shelves[-1]

    monkeypatch.setattr(contexts, "_Shelf", noted)

    def widths() -> list[tuple[int, int]]:
        return sorted((layer.keys.shape[2], layer.values.shape[2]) for layer in shelves)

    found = Contexts(model(), PROMPTS, shape(PROMPTS, 5))
    wanted = [(max(map(len, PROMPTS)) + ROOM,) * 2] * 2
    assert widths() == wanted
    everyone = torch.ones(5, dtype=torch.bool)
    for time in range(3 * ROOM):
        found.step(torch.full((5,), 9), everyone & (time % ROOM != ROOM - 1), everyone)
        assert widths() == wanted


@pytest.mark.parametrize("kind", EVERY)
def test_models_that_fit_are_let_through(kind: str) -> None:
    require_exact(model(kind), PROMPTS, [5, 7], shape(PROMPTS, 3), 0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_models_that_read_side_by_side_otherwise_are_refused(dtype: torch.dtype) -> None:
    granite = GraniteConfig(
        num_hidden_layers=1, hidden_size=16, intermediate_size=16, num_attention_heads=2, num_key_value_heads=2,
        vocab_size=270, logits_scaling=8.0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    with pytest.raises(ModelError, match="side by side"):
        require_exact(GraniteForCausalLM(granite).eval(), PROMPTS, [5], shape(PROMPTS, 3), 0.0, dtype)


def test_mixtures_of_experts_are_refused() -> None:
    mixtral = MixtralConfig(
        num_hidden_layers=1, hidden_size=16, intermediate_size=16, num_attention_heads=2, num_key_value_heads=2,
        vocab_size=270, num_local_experts=4, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    with pytest.raises(ModelError, match="a mixture of experts"):
        require_exact(MixtralForCausalLM(mixtral).eval(), PROMPTS, [5], shape(PROMPTS, 3), 0.0)


def scaled(limit: int) -> PreTrainedModel:
    """A small Phi-3 whose rotations are others for all rows of a pass once one of them is beyond `limit`."""
    rope = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "factor": 8.0,
        "short_factor": [1.0] * 4,
        "long_factor": [4.0] * 4,
    }
    config = Phi3Config(
        num_hidden_layers=1, hidden_size=16, intermediate_size=16, num_attention_heads=2, num_key_value_heads=2,
        vocab_size=270, max_position_embeddings=64, original_max_position_embeddings=limit, rope_parameters=rope,
        initializer_range=0.5, bos_token_id=0, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return Phi3ForCausalLM(config).eval()


def test_rotations_that_follow_from_the_longest_context_are_refused() -> None:
    """A context beyond the limit changes the logits of all beside it, which a trial of short prompts does not see."""
    longest = max(map(len, PROMPTS)) + ROOM
    steps = [[(9, True, True)] * len(PROMPTS)] * ROOM
    require_exact(scaled(longest), PROMPTS, [5, 7], shape(PROMPTS, 3), 0.0)
    check(scaled(longest), PROMPTS, 5, steps)
    with pytest.raises(AssertionError, match="not close"):
        check(scaled(longest - 1), PROMPTS, 5, steps)
    with pytest.raises(ModelError, match=rf"up to {longest} positions; one beyond {longest - 1} "):
        require_exact(scaled(longest - 1), PROMPTS, [5, 7], shape(PROMPTS, 3), 0.0)
    require_exact(scaled(longest - 1), PROMPTS, [], replace(shape(PROMPTS, 3), room=0), 0.0)


def test_a_model_with_full_context_is_read_to_its_last_position() -> None:
    prompt = [3] * (CONTEXT - 4)
    steps = [[(9 + time, True, True)] for time in range(4)]
    check(model(), [prompt], 1, steps)


def test_what_contexts_keep_goes_with_them() -> None:
    """The caches of a wave are gigabytes: none may wait for a collector of cycles while the next wave fills its own."""
    before = caches()
    gc.disable()
    try:
        held = Contexts(model(), PROMPTS, shape(PROMPTS, 3))
        assert caches() > before
        del held
        assert caches() == before
    finally:
        gc.enable()


def caches() -> int:
    """Caches of keys and values that are there."""
    return sum(isinstance(thing, Cache) for thing in gc.get_objects())
