"""Per-example losses: a batch's mean would couple examples before clipping, and the sensitivity argument would fail."""

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

_CHUNK = 1 << 18  # logits worked on at once: few enough to stay in a processor's cache


def lm_head_loss(head: nn.Module, hidden: torch.Tensor, targets: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Each example's mean cross-entropy over its own counted tokens, (B,): LM head and loss in one; 0 without any.

    Losses of half-precision logits are float32.

    The logits are the largest tensor of a language model's step. Nobody else sees them here, so their gradient takes
    their place in memory: one buffer of their size serves the forward and the backward pass.

    Args:
        head: the layer from hidden states to logits; it is called as a layer, so that an engine sees it.
        hidden: (B, T, d), position t predicting `targets[:, t]`.
        targets: (B, T) token ids; any value where `mask` is False.
        mask: (B, T) bool, True for the tokens that count.
    """
    logits: torch.Tensor = head(hidden)
    mask = mask.bool()
    counted = mask.to(torch.promote_types(logits.dtype, torch.float32))
    weights = counted / counted.sum(1, keepdim=True).clamp_min(1.0)
    return _CrossEntropy.apply(logits, targets.masked_fill(~mask, 0), weights)


class _CrossEntropy(torch.autograd.Function):
    """Sum over t of `weights[b, t] * CE(logits[b, t], targets[b, t])`; overwrites the logits with its gradient."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        gradient = logits.detach().contiguous()
        rows = gradient.view(-1, gradient.size(-1))
        losses = torch.empty_like(weights)
        parts = max(1, _CHUNK // rows.size(1))
        columns = targets.reshape(-1, 1).split(parts), weights.view(-1, 1).split(parts), losses.view(-1, 1).split(parts)
        for part, target, weight, loss in zip(rows.split(parts), *columns, strict=True):
            _cross_entropy(part, target, weight, loss)
        ctx.save_for_backward(gradient)
        return losses.sum(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        if not bool((upstream == 1).all()):
            gradient = gradient * upstream[:, None, None].to(gradient.dtype)
        return gradient, None, None


def _cross_entropy(logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor, losses: torch.Tensor) -> None:
    """Weighted cross-entropy of rows (n, V) into `losses` (n, 1), its gradient into `logits`."""
    logarithms = torch.log_softmax(logits, 1, dtype=weights.dtype)
    torch.mul(logarithms.gather(1, targets), -weights, out=losses)
    probabilities = logarithms.exp_().scatter_add_(1, targets, torch.full_like(weights, -1.0))
    torch.mul(probabilities, weights, out=logits)
    uncounted = (weights == 0).flatten().nonzero().flatten()  # whatever stands there must not spread: 0 * NaN is NaN
    losses.index_fill_(0, uncounted, 0.0)
    logits.index_fill_(0, uncounted, 0.0)
