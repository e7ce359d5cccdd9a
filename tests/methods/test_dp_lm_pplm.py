"""Steered sampling: rows are independent, steering steers, and a perturbation moves what the settings say."""

from dataclasses import replace

import pytest
import torch

from palimpsest.methods.dp_lm import guidance
from palimpsest.methods.dp_lm.decoding import Past, begin
from palimpsest.methods.dp_lm.model import new_model
from palimpsest.methods.dp_lm.serialise import serialiser
from palimpsest.methods.dp_lm.settings import DpLmGenerate
from tests.methods.blind_models import LABELS, head_input, next_log_probs

NEAR = {"atol": 1e-4, "rtol": 0.0}
TARGETS = [0, 1, 1, 0, 1, 0, 0, 1]
TEXTS = [[20, 30, 44], [40, 50, 61], [21, 31, 90], [22, 60, 33], [20, 30, 44], [99, 98, 97], [200, 7, 9], [40, 50, 61]]


@pytest.fixture(scope="module", params=["hidden", "last", "both"])
def parts(base, request):
    """A model with a fresh head: it is sure of nothing, so that gradients are far above rounding."""
    model, tokenizer = new_model(base, 2, 16, 3, request.param)
    return model, serialiser(tokenizer, LABELS, 24, "text")


@pytest.fixture
def settings(make_generate) -> DpLmGenerate:
    return make_generate(iterations=3, step_size=0.1, horizon=1)


def _prompts(rows) -> list[list[int]]:
    """Eight prompts of four lengths."""
    four = [rows.prompt(LABELS[0]), rows.prompt(LABELS[1]), [rows.ids.bos, rows.ids.sep], [rows.ids.bos, *range(9, 20)]]
    assert len({len(prompt) for prompt in four}) == 4
    return four * 2


def _state(model, rows, which: list[int], settings: DpLmGenerate, written: int = 2) -> guidance.State:
    """Some of the eight texts, steered up to their first tokens."""
    prompts = _prompts(rows)
    state = guidance.start(model, [prompts[row] for row in which], [TARGETS[row] for row in which], rows.ids.pad)
    for step in range(written):
        state, _ = guidance.next_token(model, state, settings)
        state = replace(state, last=torch.tensor([TEXTS[row][step] for row in which]))
    return state


def _perturbed(model, state: guidance.State, settings: DpLmGenerate) -> Past:
    _, plain = guidance.next_token(model, state, settings.model_copy(update={"iterations": 0}))
    return guidance.perturb(model, state, plain, settings)


def _likely(model, state: guidance.State, past: Past, settings: DpLmGenerate) -> torch.Tensor:
    """Log-probabilities of the labels, (B, labels); how far the next token is from the plain one is not asked."""
    plain = torch.zeros(len(state.last), len(model.embedding))
    return guidance.look_ahead(model, state, past, plain, settings)[0]


def _moves(model, state: guidance.State, settings: DpLmGenerate) -> torch.Tensor:
    """How far each position of each text's past was moved, (layers, keys and values, B, heads, time, head width)."""
    moved = _perturbed(model, state, settings)
    pairs = zip(moved, state.steered, strict=True)
    return torch.stack([torch.stack([new - old for new, old in zip(*pair, strict=True)]) for pair in pairs])


@torch.no_grad()
@pytest.mark.parametrize("horizon", [0, 1, 2])
def test_a_row_in_a_batch_equals_the_row_alone(parts, settings, horizon: int) -> None:
    model, rows = parts
    settings = settings.model_copy(update={"horizon": horizon})
    together = guidance.next_token(model, _state(model, rows, list(range(8)), settings), settings)[1]
    for row in (0, 5, 2, 7):  # of each length
        alone = guidance.next_token(model, _state(model, rows, [row], settings), settings)[1]
        torch.testing.assert_close(together[row].exp(), alone[0].exp(), **NEAR)


@torch.no_grad()
@pytest.mark.parametrize("changes", [{}, {"horizon": 0}, {"horizon": 2, "gamma": 0.5}])
def test_a_perturbation_in_a_batch_equals_the_one_alone(parts, settings, changes: dict) -> None:
    """On the past itself, after two steered tokens; padding on the left shapes nothing."""
    model, rows = parts
    settings = settings.model_copy(update={"step_size": 1.0, **changes})
    together = _perturbed(model, _state(model, rows, list(range(8)), settings), settings)
    for row in (0, 5, 2, 7):  # of each length
        state = _state(model, rows, [row], settings)
        alone = _perturbed(model, state, settings)
        for layer, own, before in zip(together, alone, state.steered, strict=True):
            for found, wanted in zip(layer, own, strict=True):
                torch.testing.assert_close(found[row, :, -wanted.shape[2] :], wanted[0], **NEAR)
            assert max(float((new - old).abs().max()) for new, old in zip(own, before, strict=True)) > 1e-2


@torch.no_grad()
def test_a_text_goes_on_the_same_when_others_are_dropped(parts, settings) -> None:
    model, rows = parts
    state = _state(model, rows, list(range(8)), settings)
    kept = [6, 1, 3]
    fewer = guidance.next_token(model, state.keep(torch.tensor(kept)), settings)
    later, log_probs = guidance.next_token(model, state, settings)
    torch.testing.assert_close(fewer[1], log_probs[kept], **NEAR)
    torch.testing.assert_close(fewer[0].steered[1][0], later.steered[1][0][kept], **NEAR)


@torch.no_grad()
def test_no_step_means_no_change(parts, settings) -> None:
    model, rows = parts
    still = settings.model_copy(update={"step_size": 1e-12})
    plain = settings.model_copy(update={"iterations": 0})
    found = [guidance.next_token(model, _state(model, rows, [0, 1], how), how)[1] for how in (still, plain)]
    torch.testing.assert_close(found[0], found[1], **NEAR)


@torch.no_grad()
def test_without_steering_the_distribution_is_the_models_own(parts, settings) -> None:
    """So it is where the steered distribution has no weight; the plain past is never moved."""
    model, rows = parts
    for changes in ({"iterations": 0}, {"gm_scale": 0.0}):
        how = settings.model_copy(update={"temperature": 0.7, "step_size": 0.4, **changes})
        found = guidance.next_token(model, _state(model, rows, list(range(8)), how), how)[1]
        for row, prompt in enumerate(_prompts(rows)):
            torch.testing.assert_close(found[row], next_log_probs(model, prompt, TEXTS[row][:2], [], 0.7), **NEAR)


@torch.no_grad()
@pytest.mark.parametrize("horizon", [0, 1, 2])
def test_the_head_reads_the_text_and_what_may_follow(parts, settings, horizon: int) -> None:
    """As long as nothing was moved, it reads the text with the soft tokens behind it as if whole, without cache."""
    model, rows = parts
    how = settings.model_copy(update={"iterations": 0, "horizon": horizon, "temperature": 0.7})
    state = _state(model, rows, list(range(8)), how, written=3)
    found = _likely(model, state, state.plain, how)
    for row, prompt in enumerate(_prompts(rows)):
        embedded = model.embedding[torch.tensor([*prompt, *TEXTS[row]])]
        hidden = _hidden(model, embedded)
        for _ in range(horizon):
            soft = (model.logits(hidden[-1]) / 0.7).softmax(dim=-1) @ model.embedding
            embedded = torch.cat([embedded, soft[None]])
            hidden = _hidden(model, embedded)
        text = (states[len(prompt) :] for states in (embedded, hidden))
        wanted = model.head(head_input(model, *text)).log_softmax(dim=-1)
        torch.testing.assert_close(found[row], wanted, **NEAR)


def _hidden(model, embedded: torch.Tensor) -> torch.Tensor:
    """Last hidden states (time, width) of token embeddings (time, width)."""
    return model.lm.base_model(inputs_embeds=embedded[None], use_cache=False).last_hidden_state[0]


@torch.no_grad()
def test_one_perturbation_moves_the_head_towards_the_label(parts, settings) -> None:
    model, rows = parts
    state = _state(model, rows, [0, 4], settings.model_copy(update={"iterations": 0}))  # one text, two targets
    past = _perturbed(model, state, settings)
    before, after = (_likely(model, state, how, settings) for how in (state.steered, past))
    assert (after > before)[[0, 1], [0, 1]].all()


@torch.no_grad()
def test_the_kl_term_holds_the_distribution_near_the_plain_one(parts, settings) -> None:
    model, rows = parts
    state = _state(model, rows, list(range(8)), settings.model_copy(update={"iterations": 0}))
    _, plain = guidance.next_token(model, state, settings.model_copy(update={"iterations": 0}))
    apart = []
    for scale in (0.0, 30.0):
        how = settings.model_copy(update={"kl_scale": scale, "step_size": 0.02, "iterations": 10, "gamma": 0.0})
        moved = guidance.perturb(model, state, plain, how)
        apart.append(float(guidance.look_ahead(model, state, moved, plain, how)[1]))
    assert apart[1] < 0.5 * apart[0], apart


@pytest.mark.parametrize("rows", [2, 9])  # few read the table whole, more read it in blocks
def test_the_gradient_of_what_is_expected_is_the_one_by_the_rules(rows: int, monkeypatch) -> None:
    monkeypatch.setattr("palimpsest.models.attention._BLOCK", 16)
    coins = torch.Generator().manual_seed(3)
    logits, plain = (3.0 * torch.randn(rows, 70, generator=coins) for _ in range(2))
    table, of_embedded = torch.randn(70, 8, generator=coins), torch.randn(rows, 8, generator=coins)
    plain, logits = plain.log_softmax(dim=-1), logits.requires_grad_()
    log_probs = logits.log_softmax(dim=-1)
    by_rules = log_probs.exp() @ table, (log_probs.exp() * (log_probs - plain)).sum()
    both = guidance.Expected.apply(logits, table, plain), by_rules
    torch.testing.assert_close(*both)
    losses = ((embedded * of_embedded).sum() + 0.7 * apart for embedded, apart in both)
    torch.testing.assert_close(*(torch.autograd.grad(loss, logits)[0] for loss in losses))


@torch.no_grad()
def test_a_step_is_of_the_wanted_length_in_every_layer(parts, settings) -> None:
    """Keys and values of a layer together move by the step size, whatever the gradient was, if gamma is 1."""
    model, rows = parts
    how = settings.model_copy(update={"iterations": 1, "step_size": 0.3, "gamma": 1.0})
    moves = _moves(model, _state(model, rows, list(range(8)), how), how)
    torch.testing.assert_close(moves.square().sum(dim=(1, 3, 4, 5)).sqrt(), torch.full((2, 8), 0.3), rtol=1e-3, atol=0)


@torch.no_grad()
def test_all_of_a_text_is_moved_and_no_padding(parts, settings) -> None:
    model, rows = parts
    state = _state(model, rows, list(range(8)), settings)
    moved = _moves(model, state, settings).abs().amax(dim=(0, 1, 3, 5)) > 0  # (B, time)
    assert torch.equal(moved, state.mask.bool())


@torch.no_grad()
def test_every_token_is_steered(parts, settings) -> None:
    """What was moved before stays moved."""
    model, rows = parts
    for written in range(4):
        state = _state(model, rows, [0, 1], settings, written)
        assert float(_moves(model, state, settings).abs().max()) > 1e-3
        drift = (state.steered[1][0] - state.plain[1][0]).abs().max()
        assert (float(drift) > 1e-3) == (written > 0)


@torch.no_grad()
def test_nothing_is_moved_while_the_head_has_nothing_to_read(parts, settings) -> None:
    model, rows = parts
    how = settings.model_copy(update={"horizon": 0})
    assert not _moves(model, _state(model, rows, [0, 1], how, 0), how).any()
    assert _moves(model, _state(model, rows, [0, 1], how, 1), how).any()


@torch.no_grad()
def test_padding_leaves_no_trace(parts) -> None:
    """The past of a short prompt beside a long one is its own, in the newest columns."""
    model, rows = parts
    last, past, mask = begin(model, _prompts(rows), rows.ids.pad)
    for row, prompt in enumerate(_prompts(rows)):
        own = begin(model, [prompt], rows.ids.pad)
        assert (int(last[row]), int(mask[row].sum())) == (prompt[-1], len(prompt) - 1)
        for layer, own_layer in zip(past, own[1], strict=True):
            for found, wanted in zip(layer, own_layer, strict=True):
                torch.testing.assert_close(found[row, :, 1 - len(prompt) :], wanted[0], **NEAR)
