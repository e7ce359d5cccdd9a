"""How far clipping moves the average of private contexts: its L1 distortion in two ways (Amin et al. 2024, figure 3).

Private prediction draws each token from the average of many contexts' clipped logits. A small clip costs less budget,
and moves that average further from the model's own. `fixed` cuts every logit to [-c, c]. The zero of a logit is
arbitrary, so the result depends on where a model puts it. `moved` is their equation 1: the largest logit is
moved to c first, and the cut is at -c.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from palimpsest.plain import PlainFile

if TYPE_CHECKING:  # with a heavy library, which pages do without
    import torch

CLIPS = (2.5, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 40.0)  # nats


@dataclass(frozen=True)
class ClippingAudit(PlainFile):
    """Private zone: the mean L1 distance of each clip, 0 to 2, from the unclipped distribution."""

    clips: tuple[float, ...]
    fixed: tuple[float, ...]
    moved: tuple[float, ...]

    @classmethod
    def of(cls, every: "Iterable[torch.Tensor]") -> "ClippingAudit":
        """Measure from logits (contexts, tokens, vocabulary) before tokens of public texts; at least one token."""
        fixed, moved = np.concatenate([distortions(logits) for logits in every], axis=1).mean(axis=1)
        return cls(CLIPS, tuple(fixed.tolist()), tuple(moved.tolist()))


def distortions(logits: "torch.Tensor") -> np.ndarray:
    """Return L1 distances, (ways, tokens, clips), of the averaged distribution from the unclipped one.

    Args:
        logits: (contexts, tokens, vocabulary).
    """
    exact = logits.mean(dim=0).double().softmax(dim=-1)
    raised = logits - logits.amax(dim=-1, keepdim=True)
    ways = [[logits.clamp(-clip, clip).mean(dim=0), (raised + clip).clamp_min(-clip).mean(dim=0)] for clip in CLIPS]
    far = [[(way.double().softmax(dim=-1) - exact).abs().sum(dim=-1).cpu().numpy() for way in both] for both in ways]
    return np.array(far).transpose(1, 2, 0)
