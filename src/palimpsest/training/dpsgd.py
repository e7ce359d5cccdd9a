"""DP-SGD: Poisson batches, per-example clipping, noise once per logical batch, a public divisor, Adam."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import dp_accounting as dpa
import numpy as np
import torch
from torch import nn

from palimpsest import validate
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.query import registered
from palimpsest.privacy.rows import PrivateRow
from palimpsest.progress import track
from palimpsest.records.record import Record
from palimpsest.training.bookkeeping import BookkeepingEngine
from palimpsest.training.check import self_check
from palimpsest.training.engine import EngineError, GradientEngine
from palimpsest.training.losses import per_example_lm_loss

__all__ = ["Optimiser", "TrainQuery", "TrainingPlan", "per_example_lm_loss", "poisson_batch", "privatise"]

Gradients = dict[str, torch.Tensor]


@dataclass(frozen=True)
class TrainingPlan:
    """The one source that sampler, clipper, noise and accountant read. Every number in it is public.

    Guarantee: `steps` Poisson-subsampled Gaussian mechanisms (Abadi et al. 2016), for adding or removing one record.
    With `clipping="separate"` each of the `losses` gradients is clipped to C and noised on its own, on the *same*
    batch: jointly one Gaussian of sensitivity sqrt(losses) * C, so the accountant's noise multiplier is
    `noise_multiplier / sqrt(losses)`.

    Attributes:
        rate: probability with which a record enters a step's batch, each record and step independently.
        steps: how many steps run, exactly; an empty batch is a step.
        clipping_norm: C, the L2 bound on one example's gradient.
        noise_multiplier: noise standard deviation / C; 0 marks a reference run, which is still clipped.
        divisor: what every noisy sum is divided by, a public constant such as rate * n_public.
        clipping: "joint" (one loss, one gradient) or "separate" (one gradient for each loss).
        losses: how many losses are clipped separately; without effect where clipping is joint.

    >>> plan = TrainingPlan(0.01, 1000, 0.1, 1.1, 50.0, "joint", 1)
    >>> plan.event().event.event.noise_multiplier
    1.1
    """

    rate: float
    steps: int
    clipping_norm: float
    noise_multiplier: float
    divisor: float
    clipping: str
    losses: int

    def __post_init__(self) -> None:
        validate.positive(rate=self.rate, steps=self.steps, clipping_norm=self.clipping_norm)
        validate.positive(divisor=self.divisor, losses=self.losses)
        validate.in_range(0.0, 1.0, rate=self.rate)
        validate.in_range(0.0, math.inf, noise_multiplier=self.noise_multiplier)
        validate.one_of(("joint", "separate"), clipping=self.clipping)

    @property
    def passes(self) -> int:
        """How many gradients each step clips and noises on its own."""
        return self.losses if self.clipping == "separate" else 1

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on every coordinate of a clipped sum."""
        return self.noise_multiplier * self.clipping_norm

    def event(self) -> dpa.DpEvent:
        """What the accountant is told."""
        if self.noise_multiplier == 0:
            return dpa.NonPrivateDpEvent()
        step = dpa.GaussianDpEvent(self.noise_multiplier / math.sqrt(self.passes))
        return dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(self.rate, step), self.steps)


@dataclass(frozen=True)
class Optimiser:
    """AdamW on privatised gradients, with linear warm-up and linear decay: post-processing throughout.

    Attributes:
        learning_rate: the peak.
        final_learning_rate_share: share of the peak at the last step.
        betas, eps, weight_decay: AdamW's (Loshchilov and Hutter 2019).
        warmup_share: share of the steps over which the rate rises to the peak.
    """

    learning_rate: float
    final_learning_rate_share: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    warmup_share: float = 0.0

    def __post_init__(self) -> None:
        validate.positive(learning_rate=self.learning_rate, eps=self.eps)
        validate.in_range(0.0, 1.0, final_learning_rate_share=self.final_learning_rate_share)
        validate.in_range(0.0, 1.0, warmup_share=self.warmup_share)
        validate.in_range(0.0, math.inf, weight_decay=self.weight_decay)

    def rate_at(self, step: int, steps: int) -> float:
        """The learning rate of step `step` (from 0) of `steps`."""
        warmup = round(self.warmup_share * steps)
        if step < warmup:
            return self.learning_rate * (step + 1) / warmup
        done = (step - warmup) / max(steps - 1 - warmup, 1)
        return self.learning_rate * (1.0 - (1.0 - self.final_learning_rate_share) * done)

    def start(self, parameters: Sequence[nn.Parameter]) -> torch.optim.AdamW:
        """AdamW with moments of its own."""
        return torch.optim.AdamW(parameters, self.learning_rate, self.betas, self.eps, self.weight_decay, fused=True)


@registered
@dataclass(frozen=True)
class TrainQuery:
    """Train a model on private rows with DP-SGD.

    Guarantee: the returned module differs from `model` in its trainable parameters alone, and these are
    post-processing of the noisy sums that `plan.event()` accounts for, provided that `losses` computes each example's
    loss from that example alone, which `probe` lets the query try first. Batch sizes, losses, norms and the number of
    clipped or dropped examples are neither returned nor logged. Running time and memory follow the batch size and are
    not covered.

    Attributes:
        plan: the public numbers.
        optimiser: how privatised gradients move the weights.
        model: where training starts, in the mode (train or eval) it runs in; it is left unchanged.
        encode: rows -> a batch, each row alone (padding apart).
        losses: (model, batch) -> per-example losses, each (B,): one where clipping is joint, `plan.losses` where it
            is separate.
        micro_batch: the most examples in memory at once; it changes no result.
        name: the charge's name.
        probe: two or three *public* records of different lengths on which engine and losses are checked before a
            private row is read; none skips the check.
        engine: builds the gradient engine on a model.
    """

    plan: TrainingPlan
    optimiser: Optimiser
    model: nn.Module
    encode: Callable[[Sequence[PrivateRow]], Any]
    losses: Callable[[nn.Module, Any], tuple[torch.Tensor, ...]]
    micro_batch: int
    name: str = "train"
    probe: Sequence[Record] = ()
    engine: Callable[[nn.Module], GradientEngine] = BookkeepingEngine

    def __post_init__(self) -> None:
        validate.positive(micro_batch=self.micro_batch)

    def event(self) -> dpa.DpEvent:
        """What the accountant is told."""
        return self.plan.event()

    def run(self, rows: Sequence[PrivateRow], noise: NoiseSource) -> nn.Module:
        """Train on `rows`; returns a new module.

        Raises:
            EngineError: the model or a loss cannot be clipped exactly.
        """
        self._check()
        model = copy.deepcopy(self.model)
        engine = self.engine(model)
        parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        updates = [self.optimiser.start(list(parameters.values())) for _ in range(self.plan.passes)]
        for step in track(range(self.plan.steps), name=self.name, total=self.plan.steps, unit="step"):
            batch = poisson_batch(rows, self.plan.rate, noise)
            sums = self._clipped_sums(engine, model, batch, parameters)
            gradients = [privatise(total, self.plan, noise) for total in sums]
            for update, gradient in zip(updates, gradients, strict=True):
                _apply(update, parameters, gradient, self.optimiser.rate_at(step, self.plan.steps))
        return _released(self.model, model)

    def _check(self) -> None:
        if self.probe:
            batch = self.encode([PrivateRow(record.text, record.label) for record in self.probe])
            for which in range(self.plan.passes):
                self_check(self.engine, self.model, partial(self._loss, which), batch)

    def _loss(self, which: int, model: nn.Module, batch: Any) -> torch.Tensor:
        values = self.losses(model, batch)
        if len(values) != self.plan.passes:
            raise EngineError(
                f"The loss function returned {len(values)} losses where the plan accounts for {self.plan.passes}.",
                "Add the losses up with public weights (clipping joint), or plan as many as there are (separate).",
            )
        return values[which]

    def _clipped_sums(
        self, engine: GradientEngine, model: nn.Module, rows: Sequence[PrivateRow], parameters: dict[str, nn.Parameter]
    ) -> list[Gradients]:
        """One clipped sum for each pass over the logical batch; zeros where it is empty."""
        sums = [{name: torch.zeros_like(p.data) for name, p in parameters.items()} for _ in range(self.plan.passes)]
        for part in _micro_batches(rows, self.micro_batch):
            batch = self.encode(part)
            for which, total in enumerate(sums):
                losses = partial(self._loss, which, model, batch)
                clipped = engine.clipped_sum(losses, len(part), self.plan.clipping_norm)
                for name, gradient in clipped.gradients.items():
                    total[name].add_(gradient)
        return sums


def poisson_batch(rows: Sequence[PrivateRow], rate: float, noise: NoiseSource) -> list[PrivateRow]:
    """Each row independently with probability `rate`; possibly none."""
    return [rows[int(index)] for index in np.flatnonzero(noise.bernoulli(len(rows), rate))]


def privatise(total: Gradients, plan: TrainingPlan, noise: NoiseSource) -> Gradients:
    """The noisy mean: (clipped sum + N(0, (noise_multiplier * C)^2)) / divisor, once per logical batch.

    Guarantee: a Gaussian mechanism with the plan's noise multiplier, for a sum of sensitivity C.
    """
    if plan.noise_multiplier == 0:
        return {name: gradient / plan.divisor for name, gradient in total.items()}
    return {
        name: (gradient + noise.gaussian_like(gradient, plan.noise_std)) / plan.divisor
        for name, gradient in total.items()
    }


def _micro_batches(rows: Sequence[PrivateRow], size: int) -> Iterator[list[PrivateRow]]:
    # Sorting by length saves padding; inside one logical batch the order changes no example's gradient.
    ordered = sorted(rows, key=lambda row: len(row.text))
    for start in range(0, len(ordered), size):
        yield ordered[start : start + size]


def _apply(
    update: torch.optim.Optimizer, parameters: dict[str, nn.Parameter], gradients: Gradients, learning_rate: float
) -> None:
    for name, parameter in parameters.items():
        parameter.grad = gradients[name]
    for group in update.param_groups:
        group["lr"] = learning_rate
    update.step()
    update.zero_grad()


def _released(original: nn.Module, trained: nn.Module) -> nn.Module:
    """A copy of `original` with the trained parameters: whatever else a forward pass wrote was never noised."""
    result = copy.deepcopy(original)
    with torch.no_grad():
        for target, source in zip(result.parameters(), trained.parameters(), strict=True):
            target.copy_(source)
    return result
