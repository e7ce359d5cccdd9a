"""Per-example losses: a batch's mean would couple examples before clipping, and the sensitivity argument would fail."""

from typing import Any

import torch

from palimpsest import validate


def per_example_lm_loss(
    logits: torch.Tensor, targets: torch.Tensor, mask: torch.Tensor, reduction: str = "mean"
) -> torch.Tensor:
    """Each example's cross-entropy over its own counted tokens, shape (B,).

    One buffer of the logits' size is built, in the backward pass; the log-probabilities are never held.

    Args:
        logits: (B, T, V), position t predicting `targets[:, t]`.
        targets: (B, T) token ids; any value where `mask` is False.
        mask: (B, T) bool, True for the tokens that count.
        reduction: "mean" over the example's own counted tokens, or their "sum". No counted token gives 0.
    """
    validate.one_of(("mean", "sum"), reduction=reduction)
    mask = mask.bool()
    weights = mask.to(logits.dtype)
    if reduction == "mean":
        weights = weights / weights.sum(1, keepdim=True).clamp_min(1.0)
    return _WeightedCrossEntropy.apply(logits, targets.masked_fill(~mask, 0), weights)


class _WeightedCrossEntropy(torch.autograd.Function):
    """Sum over t of `weights[b, t] * CE(logits[b, t], targets[b, t])`, remembering only the logits."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        normalisers = torch.logsumexp(logits, dim=2)
        ctx.save_for_backward(logits, normalisers, targets, weights)
        losses = normalisers - logits.gather(2, targets[..., None]).squeeze(2)
        return losses.masked_fill(weights == 0, 0.0).mul_(weights).sum(1)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        logits, normalisers, targets, weights = ctx.saved_tensors
        scale = (gradient[:, None] * weights)[..., None]
        result = torch.sub(logits, normalisers[..., None]).exp_()
        result.mul_(scale)
        result.scatter_add_(2, targets[..., None], -scale)
        return result.masked_fill_(weights[..., None] == 0, 0.0), None, None
