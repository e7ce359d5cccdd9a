"""Per-example losses of the multitask model. One value per record, so that a gradient can be clipped per record."""

import torch
from torch.nn import functional

from palimpsest.methods.dp_lm.model import ConditionalLm
from palimpsest.methods.dp_lm.serialise import Batch
from palimpsest.models.attention import cap_of
from palimpsest.training.losses import lm_head_loss

WHOLE = 1 << 30  # a prefix step that no text reaches: the only prefix that is classified is the text itself


def lm_loss(model: ConditionalLm, batch: Batch, frozen_head: bool = False) -> torch.Tensor:
    """Mean cross entropy in nats of each record's counted tokens given its prompt, shape (B,).

    With `frozen_head` the language model's head does not train, and not all of its logits need be in memory at once.
    """
    # All positions run, though the last one predicts nothing: a width that is a multiple of eight is much faster.
    targets, counted = batch.prompted.roll(-1, 1), batch.counted.roll(-1, 1)
    counted[:, -1:] = False
    head, hidden = model.lm.get_output_embeddings(), model.hidden(batch.prompted)
    return lm_head_loss(head, hidden, targets, counted, cap_of(model.lm), frozen_head)


def discriminator_loss(model: ConditionalLm, batch: Batch, prefix_step: int) -> torch.Tensor:
    """Mean cross entropy in nats of each record's label given prefixes of its text, shape (B,).

    The text follows a random token in place of the label. Prefixes end at every `prefix_step`-th text token and
    weigh in proportion to their length (section 5.1.3 of the paper). A text shorter than `prefix_step` is classified
    once, whole, so that each record with a text has a loss.
    """
    logits = model.head(model.prefix_features(batch.blinded, batch.text))  # (B, S, labels)
    return weighted_loss(logits, batch.labels, prefix_weights(batch.text, prefix_step))


def weighted_loss(logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Each example's weighted mean cross entropy over its prefixes, shape (B,); 0 where all weights are 0.

    `logits` has shape (B, prefixes, labels), `labels` the right label of each example (B,), `weights` (B, prefixes).
    """
    each = functional.cross_entropy(logits.transpose(1, 2), labels[:, None].expand(logits.shape[:2]), reduction="none")
    weights = weights.to(each.dtype)
    return (each * weights).sum(dim=1) / weights.sum(dim=1).clamp_min(1.0)


def prefix_weights(text: torch.Tensor, prefix_step: int) -> torch.Tensor:
    """Length of the prefix that ends at each position where it is classified, 0 elsewhere; int64 (B, S)."""
    length = text.cumsum(dim=1)
    total = length[:, -1:]
    ends = (length % prefix_step == 0) | ((total < prefix_step) & (length == total))
    return length * (ends & text)


def joint_losses(
    model: ConditionalLm, batch: Batch, weight: float, prefix_step: int, frozen_head: bool = False
) -> tuple[torch.Tensor]:
    """One loss per record, `lm + weight * discriminator`: its gradient is clipped once, over all parameters."""
    loss = lm_loss(model, batch, frozen_head)
    return (loss + weight * discriminator_loss(model, batch, prefix_step) if weight else loss,)


def separate_losses(
    model: ConditionalLm, batch: Batch, weight: float, prefix_step: int, frozen_head: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Two losses per record, each clipped on its own: together a sensitivity of sqrt(2) C."""
    return lm_loss(model, batch, frozen_head), weight * discriminator_loss(model, batch, prefix_step)
