"""Candidates weigh what they would weigh if each were read by itself, without a cache, behind its whole text."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch.nn import functional

from palimpsest.methods.dp_lm.decoding import StepDraw, Walk, uniforms, write
from palimpsest.methods.dp_lm.guidance import FudgeWalk, StateWalk, read_with
from palimpsest.methods.dp_lm.model import ConditionalLm, HeadShape
from palimpsest.methods.dp_lm.sampling import walk_of
from palimpsest.methods.dp_lm.settings import DpLmGenerate
from tests.methods.blind_models import (
    blind_model,
    chosen,
    control_of,
    head_input,
    next_log_probs,
    prompts_of,
    read_whole,
)

NEAR = {"atol": 1e-4, "rtol": 0.0}
EVERY = 400  # more than the vocabulary
TARGETS = [0, 1, 1, 0]


@pytest.fixture(scope="module", params=["hidden", "last", "both"])
def blind(base, request):
    return blind_model(base, request.param)


@pytest.fixture(scope="module")
def both(base):
    return blind_model(base, "both")


@torch.no_grad()
def test_each_candidate_is_read_behind_its_text(blind, make_generate) -> None:
    model, rows = blind
    how = make_generate(candidates=EVERY, strength=1.7, temperature=0.8)
    walk = FudgeWalk(model, prompts_of(rows), TARGETS, rows.ids, how)
    _check_walk(walk, model, rows, how, state_only=False)


@torch.no_grad()
def test_each_candidate_of_the_state_adds_its_embedding_alone(both, make_generate) -> None:
    model, rows = both
    how = make_generate(candidates=EVERY, strength=1.7, temperature=0.8)
    walk = StateWalk(model, prompts_of(rows), TARGETS, rows.ids, how)
    _check_walk(walk, model, rows, how, state_only=True)


@torch.no_grad()
def test_few_candidates_weigh_as_among_all(blind, make_generate) -> None:
    """Those that are read side by side do not see each other: fewer of them change no ratio."""
    model, rows = blind
    few, every = ([], [])
    for candidates, noted in ((3, few), (EVERY, every)):
        walk = FudgeWalk(model, prompts_of(rows), TARGETS, rows.ids, make_generate(candidates=candidates))
        for _ in range(4):
            walk.step(chosen([2, 1, 0, 1], control_of(rows.ids), noted))
    for some, whole in zip(few, every, strict=True):
        assert some.shape == (4, 3)
        torch.testing.assert_close(some, functional.log_softmax(whole[:, :3], dim=-1), **NEAR)


@torch.no_grad()
@pytest.mark.parametrize("kind", [FudgeWalk, StateWalk])
def test_after_several_steps_the_cache_equals_a_fresh_one(both, make_generate, kind) -> None:
    """Without strength a walk draws from the model's own distribution, which shows what its cache holds."""
    model, rows = both
    prompts, texts, left = prompts_of(rows), [[] for _ in range(4)], [0, 1, 2, 3]
    walk = kind(model, prompts, TARGETS, rows.ids, make_generate(candidates=EVERY, strength=0.0))
    for step in range(6):
        noted: list[torch.Tensor] = []
        tokens = walk.step(chosen([(3 * row + step) % 4 for row in left], control_of(rows.ids), noted))
        for row, token, found in zip(left, tokens.tolist(), noted[0], strict=True):
            wanted = next_log_probs(model, prompts[row], texts[row], control_of(rows.ids)).sort(descending=True).values
            torch.testing.assert_close(found, wanted, **NEAR)
            texts[row].append(token)
        if step == 2:
            walk.keep(torch.tensor([1, 3]))
            left = [1, 3]


@torch.no_grad()
@pytest.mark.parametrize("kind", ["fudge", "fudge_state"])
def test_without_strength_texts_are_the_models_own(both, make_generate, kind: str) -> None:
    model, rows = both
    how = make_generate(candidates=6, strength=0.0, top_p=0.9, max_tokens=12)
    plain = make_generate(top_k=6, top_p=0.9, max_tokens=12)
    coins = np.stack([uniforms(2, 0, number, 12) for number in range(12)])
    texts = [
        write(walk_of(name, model, prompts_of(rows) * 3, TARGETS * 3, rows.ids, settings), rows.ids, settings, coins)
        for name, settings in ((kind, how), ("plain", plain))
    ]
    assert texts[0] == texts[1]


@torch.no_grad()
def test_top_k_and_top_p_hold_for_the_weighed_candidates(both, make_generate) -> None:
    """Of all candidates only the one with the largest weight may come, which is not always the likeliest token."""
    model, rows = both
    walk = FudgeWalk(model, prompts_of(rows), TARGETS, rows.ids, make_generate(candidates=40, strength=30.0))
    other = FudgeWalk(model, prompts_of(rows), TARGETS, rows.ids, make_generate(candidates=40, strength=30.0))
    noted: list[torch.Tensor] = []
    banned = torch.tensor([*control_of(rows.ids), rows.ids.eos])
    firsts = other.step(chosen([0] * 4, banned.tolist(), noted))
    best = walk.step(StepDraw(torch.full((4,), 0.999), banned, 1, 1.0))
    again = FudgeWalk(model, prompts_of(rows), TARGETS, rows.ids, make_generate(candidates=40, strength=30.0))
    assert best.tolist() == again.step(chosen(noted[0].argmax(dim=1).tolist(), banned.tolist(), [])).tolist()
    assert best.tolist() != firsts.tolist()


def test_what_is_read_with_candidates_by_hand() -> None:
    sums = torch.tensor([[[2.0, 4.0]]])
    features = torch.tensor([[[1.0, 2.0], [7.0, 8.0]]])
    mean, last = HeadShape("hidden", 2, 0, 2), HeadShape("last", 2, 0, 2)
    found = read_with(mean, sums, features, 2, torch.tensor([[False, True]]))
    torch.testing.assert_close(found, torch.tensor([[[1.0, 2.0], [1.0, 2.0]]]))
    newest = read_with(last, sums, features, 2, torch.tensor([[False, True]]))
    torch.testing.assert_close(newest, torch.tensor([[[1.0, 2.0], [2.0, 4.0]]]))
    first = read_with(mean, torch.zeros(1, 1, 2), features, 0, torch.tensor([[False, True]]))
    torch.testing.assert_close(first, torch.tensor([[[1.0, 2.0], [0.0, 0.0]]]))


def _check_walk(walk: Walk, model: ConditionalLm, rows, how: DpLmGenerate, state_only: bool) -> None:
    """Compare every candidate's weight at four steps of four texts, EOS among the candidates from the second on."""
    prompts, texts, eos = prompts_of(rows), [[] for _ in range(4)], rows.ids.eos
    for step in range(4):
        banned = [*control_of(rows.ids), *([eos] if step == 0 else [])]
        plain = [next_log_probs(model, *pair, banned, how.temperature) for pair in zip(prompts, texts, strict=True)]
        likeliest = [int(log_probs.argmax()) for log_probs in plain]
        columns = [int(token == eos) for token in likeliest] if step else [0, 1, 2, 3]
        noted: list[torch.Tensor] = []
        tokens = walk.step(chosen(columns, banned, noted)).tolist()
        for row, found in enumerate(noted[0]):
            wanted = _by_hand(model, prompts[row], texts[row], TARGETS[row], plain[row], eos, how, state_only)
            torch.testing.assert_close(found.sort().values, wanted.sort().values, **NEAR)  # whatever ties do
        for text, token in zip(texts, tokens, strict=True):
            text.append(token)
        assert eos not in tokens


def _by_hand(
    model: ConditionalLm,
    prompt: Sequence[int],
    text: Sequence[int],
    target: int,
    log_probs: torch.Tensor,
    eos: int,
    how: DpLmGenerate,
    state_only: bool,
) -> torch.Tensor:
    """Weighted log-probabilities of all tokens behind a text, (vocabulary,)."""
    tokens = torch.arange(len(log_probs))
    embedded, hidden = read_whole(model, prompt, [[*text, token] for token in range(len(log_probs))])
    before, after = (head_input(model, embedded[:, :end], hidden[:, :end]) for end in (-1, None))
    if state_only:  # the embeddings stand first
        after = torch.cat([after[:, : embedded.shape[-1]], before[:, embedded.shape[-1] :]], dim=-1)
    read = torch.where((tokens == eos)[:, None], before, after)
    labels = model.head(read).log_softmax(dim=-1)[:, target]
    return functional.log_softmax(log_probs + how.strength * labels, dim=-1)
