"""Per-example losses: a batch's mean would couple examples before clipping, and the sensitivity argument would fail."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from palimpsest.models.attention import cap_logits

_CHUNK = 1 << 18  # logits worked on at once: few enough to stay in a processor's cache,
_CUDA_CHUNK = 1 << 26  # and enough to keep a CUDA device at work
_LARGE = 1 << 15  # tokens; the logits of a larger frozen head are computed a part at a time
_MOST, _CUDA_MOST = 1 << 24, 1 << 28  # logits that are then in memory at once


def lm_head_loss(
    head: nn.Module,
    hidden: torch.Tensor,
    targets: torch.Tensor,
    mask: torch.Tensor,
    cap: float | None = None,
    frozen: bool = False,
) -> torch.Tensor:
    """Return each example's mean cross-entropy over its counted tokens, (B,): LM head and loss in one; 0 without any.

    Losses of half-precision logits are float32.

    The logits are the largest tensor of a language model's step. Nothing else uses them here, so their gradient takes
    their place in memory: one buffer of their size serves the forward and the backward pass. The logits of a frozen
    head with a large vocabulary are never in memory all at once: see `_FrozenHead`.

    Args:
        head: the layer from hidden states to logits; it is called as a layer, so that an engine sees it.
        hidden: (B, T, d), position t predicting `targets[:, t]`.
        targets: (B, T) token ids; any value where `mask` is False.
        mask: (B, T) bool, True for the tokens that count.
        cap: the bound of a model that caps its logits, cap * tanh(logit / cap); None where it does not.
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
    """The loss of a linear head without gradient, a few positions at a time: see `_parts`."""

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
        states, words, shares = hidden.flatten(0, 1), targets.reshape(-1, 1), weights.reshape(-1, 1)
        gradient, losses = torch.zeros_like(states), torch.zeros_like(shares)
        for places in _parts(weights, len(weight)):
            logits = functional.linear(states[places].to(dtype), *head)
            loss = losses.new_empty(len(logits), 1)
            _cross_entropies(logits, words[places], shares[places], loss, cap)
            losses[places] = loss
            if ctx.needs_input_grad[0]:
                gradient[places] = (logits @ head[0]).to(gradient.dtype)
        ctx.save_for_backward(gradient.view(hidden.shape))
        return losses.view(weights.shape).sum(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: torch.Tensor) -> tuple[torch.Tensor, None, None, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * upstream[:, None, None].to(gradient.dtype), None, None, None, None, None


def _parts(weights: torch.Tensor, vocabulary: int) -> Iterator[torch.Tensor | slice]:
    """Yield which of the (B * T) positions have logits at once.

    The shapes of an example's products must not depend on the examples beside it. On a processor they depend only on
    its own counted tokens: it is computed by itself, without the tokens that do not count. A CUDA device waits for
    every call, and for every number that it is asked back. There they depend on the batch's shape, which is public:
    all positions of equal shares of the batch.
    """
    examples, tokens = weights.shape
    if _uses_shares(weights):
        fitting = (size for size in range(1, examples + 1) if size * tokens * vocabulary <= _CUDA_MOST)
        share = tokens * max((size for size in fitting if examples % size == 0), default=1)
        yield from (slice(start, start + share) for start in range(0, examples * tokens, share))
        return
    for example, own in enumerate(weights):
        yield from (example * tokens + own.nonzero().squeeze(1)).split(max(1, _MOST // vocabulary))


def _uses_shares(values: torch.Tensor) -> bool:
    return values.is_cuda


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
    """Apply `_cross_entropy` to all rows (n, V), a few at a time."""
    parts = max(1, (_CUDA_CHUNK if rows.is_cuda else _CHUNK) // rows.size(1))
    columns = targets.split(parts), weights.split(parts), losses.split(parts)
    for part, target, weight, loss in zip(rows.split(parts), *columns, strict=True):
        _cross_entropy(part, target, weight, loss, cap)


def _cross_entropy(
    logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor, losses: torch.Tensor, cap: float | None
) -> None:
    """Write the weighted cross-entropy of rows (n, V) into `losses` (n, 1), and its gradient into `logits`."""
    finished = cap_logits(logits, cap)
    logarithms = torch.log_softmax(finished, 1, dtype=weights.dtype)
    torch.mul(logarithms.gather(1, targets), -weights, out=losses)
    probabilities = logarithms.exp_().scatter_add_(1, targets, torch.full_like(weights, -1.0))
    if cap is not None:
        probabilities.mul_(1.0 - (finished / cap).square())  # the slope of the cap
    torch.mul(probabilities, weights, out=logits)
    uncounted = (weights == 0).flatten().nonzero().flatten()  # their values must not spread: 0 * NaN is NaN
    losses.index_fill_(0, uncounted, 0.0)
    logits.index_fill_(0, uncounted, 0.0)
