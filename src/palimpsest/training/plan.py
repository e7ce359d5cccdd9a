"""The public numbers of a private training run, and the event that the accountant is told."""

import math
from dataclasses import dataclass

import dp_accounting.dp_event as dpa

from palimpsest import validate
from palimpsest.privacy.grid import covering_std


@dataclass(frozen=True)
class TrainingPlan:
    """The one source that sampler, clipper, noise and accountant read. Every number in it is public.

    Guarantee: `steps` Poisson-subsampled Gaussian mechanisms (Abadi et al. 2016), for adding or removing one unit.
    With `clipping="separate"` each of the `losses` gradients is clipped to C and noised on its own, on the *same*
    batch: jointly one Gaussian of sensitivity sqrt(losses) * C, so the accountant's noise multiplier is
    `noise_multiplier / sqrt(losses)`.

    A sum is computed in floating point and then rounded to the grid of its noise. `eta` and the grid are what this may
    add to the sensitivity; the noise is larger by as much, and the accountant is told only the multiplier.

    Attributes:
        rate: probability with which a unit (a record or a person) enters a step's batch, independently for each unit
            and step.
        steps: how many steps run, exactly; an empty batch is a step.
        clipping_norm: C, the L2 bound on one example's gradient, from 1e-100 to 1e100: float64 holds the squares of its
            smallest parts.
        noise_multiplier: noise standard deviation over the sensitivity C (1 + eta), rounding included; 0 marks a
            reference run, which is still clipped.
        divisor: the public constant that every noisy sum is divided by, such as rate * n_units.
        clipping: "joint" (one loss, one gradient) or "separate" (one gradient for each loss).
        losses: how many losses are clipped separately; without effect where clipping is joint.
        eta: by how much the computed sums of two neighbours may lie farther apart than the exact ones, over C.

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
    eta: float = 0.0

    def __post_init__(self) -> None:
        validate.require_positive(rate=self.rate, steps=self.steps, divisor=self.divisor, losses=self.losses)
        validate.require_in_range(1e-100, 1e100, clipping_norm=self.clipping_norm)
        validate.require_in_range(0.0, 1.0, rate=self.rate)
        validate.require_in_range(0.0, math.inf, noise_multiplier=self.noise_multiplier, eta=self.eta)
        validate.require_one_of(("joint", "separate"), clipping=self.clipping)

    @property
    def passes(self) -> int:
        """The number of gradients that each step clips and noises separately."""
        return self.losses if self.clipping == "separate" else 1

    def noise_std(self, weights: int) -> float:
        """Return the standard deviation of the noise on each of the `weights` coordinates of a whole clipped sum."""
        return covering_std(self.noise_multiplier, self.clipping_norm * (1.0 + self.eta), weights)

    def event(self) -> dpa.DpEvent:
        """Return the event that the accountant is told."""
        if self.noise_multiplier == 0:
            return dpa.NonPrivateDpEvent()
        step = dpa.GaussianDpEvent(self.noise_multiplier / math.sqrt(self.passes))
        return dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(self.rate, step), self.steps)
