import pytest
import torch
from torch import nn
from torch.nn import functional

from palimpsest.training import losses as losses_module
from palimpsest.training.losses import lm_head_loss
from tests.training.lm_loss import per_example_lm_loss


def example(dtype=torch.float64):
    torch.manual_seed(0)
    logits = torch.randn(4, 6, 9, dtype=dtype, requires_grad=True)
    targets = torch.randint(9, (4, 6))
    mask = torch.arange(6)[None] < torch.tensor([6, 3, 1, 0])[:, None]
    return logits, targets.masked_fill(~mask, -100), mask


def reference(logits, targets, mask):
    losses = functional.cross_entropy(logits.transpose(1, 2), targets, ignore_index=-100, reduction="none")
    return losses.sum(1) / mask.sum(1).clamp(min=1)


def test_equals_cross_entropy_over_each_examples_own_tokens():
    logits, targets, mask = example()
    upstream = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    losses, expected = per_example_lm_loss(logits, targets, mask), reference(logits, targets, mask)
    torch.testing.assert_close(losses, expected, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad((loss * upstream).sum(), logits)[0] for loss in (losses, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)


IN_SHARES = [(False, 1), (True, 1), (True, 3 * 6 * 9), (True, 1 << 20)]  # of a CUDA device, and how many logits


def set_shares(monkeypatch, shares: bool, most: int) -> None:
    monkeypatch.setattr(losses_module, "_LARGE", 0)
    monkeypatch.setattr(losses_module, "_MOST", 7)
    monkeypatch.setattr(losses_module, "_CUDA_MOST", most)
    monkeypatch.setattr(losses_module, "_uses_shares", lambda values: shares)


@pytest.mark.parametrize("shares", IN_SHARES)
@pytest.mark.parametrize("frozen", [False, True])
def test_a_cap_and_a_frozen_head_give_autograds_losses_and_gradients(frozen, shares, monkeypatch):
    """A frozen head's logits are never there together: seven at most, one position of one example, or a few shares."""
    set_shares(monkeypatch, *shares)
    _, targets, mask = example()
    hidden, head = torch.randn(4, 6, 5, dtype=torch.float64, requires_grad=True), nn.Linear(5, 9).double()
    seen = []
    head.register_forward_hook(lambda *_: seen.append(1))
    losses = lm_head_loss(head, hidden, targets, mask, 1.5, frozen)
    assert bool(seen) != frozen
    expected = reference(1.5 * torch.tanh(head(hidden) / 1.5), targets, mask)
    torch.testing.assert_close(losses, expected, rtol=1e-12, atol=1e-12)
    upstream = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    gradients = [torch.autograd.grad((loss * upstream).sum(), hidden)[0] for loss in (losses, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)


def test_a_frozen_heads_losses_have_the_same_bits_whatever_is_beside_them(monkeypatch):
    monkeypatch.setattr(losses_module, "_LARGE", 0)
    _, targets, mask = example()
    hidden, head = torch.randn(4, 6, 5, requires_grad=True), nn.Linear(5, 9, bias=False)
    together = lm_head_loss(head, hidden, targets, mask, None, True)
    (gradient,) = torch.autograd.grad(together.sum(), hidden)
    for row in range(4):
        only = slice(row, row + 1)
        alone = lm_head_loss(head, hidden[only], targets[only], mask[only], None, True)
        assert torch.equal(alone, together[only])
        assert torch.equal(torch.autograd.grad(alone.sum(), hidden)[0][only], gradient[only])


@pytest.mark.parametrize("shares", IN_SHARES)
def test_a_frozen_heads_losses_move_with_no_other_example(shares, monkeypatch):
    """In a batch of one shape, and whatever stands at a position that does not count."""
    set_shares(monkeypatch, *shares)
    _, targets, mask = example()
    hidden, head = torch.randn(4, 6, 5), nn.Linear(5, 9, bias=False)

    def found(states: torch.Tensor, others: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        states = states.clone().requires_grad_(True)
        losses = lm_head_loss(head, states, others, mask, None, True)
        return losses[1].detach(), torch.autograd.grad(losses.sum(), states)[0][1]

    others, words = torch.randn(4, 6, 5), torch.where(mask, (targets + 3) % 9, targets)
    others[1], words[1] = hidden[1], targets[1]
    assert not mask[1].all()
    others[1, ~mask[1]] = torch.nan
    for one, other in zip(found(hidden, targets), found(others, words), strict=True):
        assert torch.equal(one, other)


def test_shares_of_a_batch_are_alike(monkeypatch):
    """No example has another shape for being last."""
    set_shares(monkeypatch, True, 5 * 6 * 9)
    parts = list(losses_module._parts(torch.ones(12, 6), 9))  # noqa: SLF001
    assert [(part.start, part.stop) for part in parts] == [(24 * k, 24 * k + 24) for k in range(3)]


def test_an_example_without_counted_tokens_costs_nothing():
    logits, targets, mask = example()
    losses = per_example_lm_loss(logits, targets, mask)
    assert losses[3] == 0
    assert torch.autograd.grad(losses.sum(), logits)[0][3].eq(0).all()


def test_uncounted_positions_cannot_spread():
    """Whatever stands at a position that does not count, the loss and the other gradients stay."""
    logits, targets, mask = example()
    spoilt = logits.detach().clone()
    spoilt[1, 4] = float("nan")
    spoilt.requires_grad_(True)
    losses = per_example_lm_loss(spoilt, targets, mask)
    torch.testing.assert_close(losses, per_example_lm_loss(logits, targets, mask))
    assert torch.isfinite(torch.autograd.grad(losses.sum(), spoilt)[0]).all()


def test_each_loss_is_its_own():
    logits, targets, mask = example()
    alone = [per_example_lm_loss(logits[[i]], targets[[i]], mask[[i]]) for i in range(4)]
    torch.testing.assert_close(per_example_lm_loss(logits, targets, mask), torch.cat(alone))


def test_half_precision_logits_give_losses_in_single_precision():
    logits, targets, mask = example(torch.bfloat16)
    losses = per_example_lm_loss(logits, targets, mask)
    expected = reference(logits.float(), targets, mask)
    assert losses.dtype == torch.float32
    torch.testing.assert_close(losses, expected)
    found, true = (torch.autograd.grad(loss.sum(), logits)[0] for loss in (losses, expected))
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), true.float(), rtol=0.01, atol=1e-3)


def test_logits_that_others_see_stay_as_they_are():
    logits, targets, mask = example()
    before = logits.detach().clone()
    per_example_lm_loss(logits, targets, mask).sum().backward()
    assert torch.equal(logits, before)


def test_head_and_loss_in_one_equal_the_two_apart():
    torch.manual_seed(1)
    head, hidden = nn.Linear(5, 9).double(), torch.randn(4, 6, 5, dtype=torch.float64, requires_grad=True)
    _, targets, mask = example()
    upstream = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    pairs = lm_head_loss(head, hidden, targets, mask), per_example_lm_loss(head(hidden), targets, mask)
    torch.testing.assert_close(*pairs, rtol=1e-12, atol=1e-12)
    found, true = (torch.autograd.grad((each * upstream).sum(), [hidden, *head.parameters()]) for each in pairs)
    for one, other in zip(found, true, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_many_rows_are_worked_on_in_parts(monkeypatch):
    logits, targets, mask = example()
    whole = per_example_lm_loss(logits, targets, mask)
    monkeypatch.setattr(losses_module, "_CHUNK", 20)
    parts = per_example_lm_loss(logits, targets, mask)
    torch.testing.assert_close(parts, whole, rtol=0, atol=0)
    torch.testing.assert_close(*(torch.autograd.grad(each.sum(), logits)[0] for each in (parts, whole)), rtol=0, atol=0)


def test_a_second_backward_pass_finds_the_same_gradient():
    logits, targets, mask = example()
    losses = per_example_lm_loss(logits, targets, mask)
    first, second = (torch.autograd.grad((2.0 * losses).sum(), logits, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_extreme_logits_stay_finite():
    logits = torch.tensor([[[1e4, -1e4], [1e4, -1e4]]], requires_grad=True)
    losses = per_example_lm_loss(logits, torch.tensor([[0, 1]]), torch.ones(1, 2, dtype=torch.bool))
    assert losses.tolist() == [1e4]
    assert torch.isfinite(torch.autograd.grad(losses.sum(), logits)[0]).all()
