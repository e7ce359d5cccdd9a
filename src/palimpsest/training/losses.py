"""Per-example losses: a batch's mean would couple examples before clipping, and the sensitivity argument would fail."""

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from palimpsest.models.attention import capped

_CHUNK = 1 << 18  # logits worked on at once: few enough to stay in a processor's cache,
_CUDA_CHUNK = 1 << 26  # and enough to keep a CUDA device at work
_LARGE = 1 << 15  # tokens; the logits of a larger frozen head are computed example by example
_MOST = 1 << 24  # logits that are there at once then


def lm_head_loss(
    head: nn.Module,
    hidden: torch.Tensor,
    targets: torch.Tensor,
    mask: torch.Tensor,
    cap: float | None = None,
    frozen: bool = False,
) -> torch.Tensor:
    """Each example's mean cross-entropy over its own counted tokens, (B,): LM head and loss in one; 0 without any.

    Losses of half-precision logits are float32.

    The logits are the largest tensor of a language model's step. Nobody else sees them here, so their gradient takes
    their place in memory: one buffer of their size serves the forward and the backward pass. Those of a frozen head
    and a large vocabulary are never there together: see `_FrozenHead`.

    Args:
        head: the layer from hidden states to logits; it is called as a layer, so that an engine sees it.
        hidden: (B, T, d), position t predicting `targets[:, t]`.
        targets: (B, T) token ids; any value where `mask` is False.
        mask: (B, T) bool, True for the tokens that count.
        cap: what the model presses its logits under, cap * tanh(logit / cap); None where it does not.
        frozen: the head is linear and does not train, so no engine needs to see it.
    """
    mask = mask.bool()
    counted = mask.to(torch.promote_types(hidden.dtype, torch.float32))
    weights = counted / counted.sum(1, keepdim=True).clamp_min(1.0)
    targets = targets.masked_fill(~mask, 0)
    if frozen and isinstance(head, nn.Linear) and len(head.weight) > _LARGE:  # public: whatever is in the batch
        return _FrozenHead.apply(hidden, head.weight.detach(), head.bias, targets, weights, cap)
    return _CrossEntropy.apply(head(hidden), targets, weights, cap)


class _FrozenHead(torch.autograd.Function):
    """The same of a linear head without gradient, example by example and at counted positions alone.

    What an example gives depends on its own states and targets: the shapes of its products follow from its own
    counted tokens, whatever is beside it.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        targets: torch.Tensor,
        weights: torch.Tensor,
        cap: float | None,
    ) -> torch.Tensor:
        device = hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
        head = weight.to(dtype), None if bias is None else bias.to(dtype)
        gradient, losses = torch.zeros_like(hidden), torch.zeros_like(weights)
        for example, own in enumerate(weights):
            for places in own.nonzero().squeeze(1).split(max(1, _MOST // len(weight))):
                logits = functional.linear(hidden[example, places].to(dtype), *head)
                loss, share = losses.new_empty(len(places), 1), own[places, None]
                _cross_entropies(logits, targets[example, places, None], share, loss, cap)
                losses[example, places] = loss.squeeze(1)
                if ctx.needs_input_grad[0]:
                    gradient[example, places] = (logits @ head[0]).to(gradient.dtype)
        ctx.save_for_backward(gradient)
        return losses.sum(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor, None, None, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * upstream[:, None, None].to(gradient.dtype), None, None, None, None, None


class _CrossEntropy(torch.autograd.Function):
    """Sum over t of `weights[b, t] * CE(logits[b, t], targets[b, t])`; overwrites the logits with its gradient."""

    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor, cap: float | None
    ) -> torch.Tensor:
        gradient = logits.detach().contiguous()
        rows = gradient.view(-1, gradient.size(-1))
        losses = torch.empty_like(weights)
        _cross_entropies(rows, targets.reshape(-1, 1), weights.view(-1, 1), losses.view(-1, 1), cap)
        ctx.save_for_backward(gradient)
        return losses.sum(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        if not bool((upstream == 1).all()):
            gradient = gradient * upstream[:, None, None].to(gradient.dtype)
        return gradient, None, None, None


def _cross_entropies(
    rows: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor, losses: torch.Tensor, cap: float | None
) -> None:
    """`_cross_entropy` of all rows (n, V), a few at a time."""
    parts = max(1, (_CUDA_CHUNK if rows.is_cuda else _CHUNK) // rows.size(1))
    columns = targets.split(parts), weights.split(parts), losses.split(parts)
    for part, target, weight, loss in zip(rows.split(parts), *columns, strict=True):
        _cross_entropy(part, target, weight, loss, cap)


def _cross_entropy(
    logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor, losses: torch.Tensor, cap: float | None
) -> None:
    """Weighted cross-entropy of rows (n, V) into `losses` (n, 1), its gradient into `logits`."""
    finished = capped(logits, cap)
    logarithms = torch.log_softmax(finished, 1, dtype=weights.dtype)
    torch.mul(logarithms.gather(1, targets), -weights, out=losses)
    probabilities = logarithms.exp_().scatter_add_(1, targets, torch.full_like(weights, -1.0))
    if cap is not None:
        probabilities.mul_(1.0 - (finished / cap).square())  # the slope of the cap
    torch.mul(probabilities, weights, out=logits)
    uncounted = (weights == 0).flatten().nonzero().flatten()  # whatever stands there must not spread: 0 * NaN is NaN
    losses.index_fill_(0, uncounted, 0.0)
    logits.index_fill_(0, uncounted, 0.0)
