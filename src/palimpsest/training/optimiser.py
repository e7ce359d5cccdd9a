"""The optimiser that moves weights by privatised gradients: AdamW, all of it post-processing."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from palimpsest import validate


def _use_full_rate(_which: int, _name: str) -> float:
    """Use one learning rate for every loss and weight."""
    return 1.0


@dataclass(frozen=True)
class Optimiser:
    """AdamW on privatised gradients, with linear warm-up and linear decay: post-processing throughout.

    Attributes:
        learning_rate: the peak.
        final_learning_rate_share: share of the peak at the last step.
        betas, eps, weight_decay: AdamW's (Loshchilov and Hutter 2019).
        warmup_share: share of the steps over which the rate rises to the peak.
        noise_correction: subtract the noise's known variance from the second moment (`NoiseCorrectedAdamW`).
        share: (which loss is stepped on, name of a weight) -> share of the learning rate that it moves by.
    """

    learning_rate: float
    final_learning_rate_share: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    warmup_share: float = 0.0
    noise_correction: bool = False
    share: Callable[[int, str], float] = _use_full_rate

    def __post_init__(self) -> None:
        validate.require_positive(learning_rate=self.learning_rate, eps=self.eps)
        validate.require_in_range(0.0, 1.0, final_learning_rate_share=self.final_learning_rate_share)
        validate.require_in_range(0.0, 1.0, warmup_share=self.warmup_share)
        validate.require_in_range(0.0, math.inf, weight_decay=self.weight_decay)

    def rate_at(self, step: int, steps: int) -> float:
        """Return the learning rate of step `step` (from 0) of `steps`."""
        warmup = round(self.warmup_share * steps)
        if step < warmup:
            return self.learning_rate * (step + 1) / warmup
        done = (step - warmup) / max(steps - 1 - warmup, 1)
        return self.learning_rate * (1.0 - (1.0 - self.final_learning_rate_share) * done)

    def start(
        self, parameters: Sequence[nn.Parameter] | Sequence[dict[str, Any]], noise_variance: float = 0.0
    ) -> torch.optim.Optimizer:
        """Start AdamW with moments of its own.

        Args:
            parameters: the weights, or the groups of them that `groups` makes.
            noise_variance: the noise's variance on each coordinate of a privatised gradient; read where
                `noise_correction` is set.
        """
        if self.noise_correction:
            return NoiseCorrectedAdamW(parameters, self, noise_variance)
        return torch.optim.AdamW(parameters, self.learning_rate, self.betas, self.eps, self.weight_decay, fused=True)

    def groups(self, parameters: Mapping[str, nn.Parameter], which: int) -> list[dict[str, Any]]:
        """Group the weights by their share of the learning rate, where loss `which` is stepped on."""
        members: dict[float, list[nn.Parameter]] = {}
        for name, parameter in parameters.items():
            members.setdefault(self.share(which, name), []).append(parameter)
        return [{"params": group, "share": share} for share, group in members.items()]


class NoiseCorrectedAdamW(torch.optim.Optimizer):
    """AdamW whose second moment leaves out the variance of the noise (DP-AdamBC, Tang et al. 2024, algorithm 1).

    The noise's variance is public, so subtracting it is post-processing. The corrected root is at least `eps`, which
    bounds the step: choose it near the size of a gradient's signal, not near zero.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter] | Sequence[dict[str, Any]], settings: Optimiser, noise_variance: float
    ) -> None:
        super().__init__(parameters, {"lr": settings.learning_rate})
        self._settings, self._noise = settings, noise_variance

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                self._move(parameter, group["lr"])

    def _move(self, parameter: torch.Tensor, learning_rate: float) -> None:
        gradient, state = parameter.grad, self.state[parameter]
        assert gradient is not None
        if not state:
            state |= {"step": torch.tensor(0)} | {key: torch.zeros_like(parameter) for key in ("mean", "square")}
        state["step"] += 1
        step, (first, second) = int(state["step"]), self._settings.betas
        state["mean"].lerp_(gradient, 1 - first)
        state["square"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        mean = state["mean"] / (1 - first**step)
        signal = state["square"] / (1 - second**step) - self._noise
        parameter.mul_(1 - learning_rate * self._settings.weight_decay)
        parameter.addcdiv_(mean, signal.clamp_min_(self._settings.eps**2).sqrt_(), value=-learning_rate)
