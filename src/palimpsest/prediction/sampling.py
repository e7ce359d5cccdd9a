"""The cost of a token in few-shot generation: public numbers, and their event."""

import math
from dataclasses import dataclass

from dp_accounting.dp_event import (
    DpEvent,
    GaussianDpEvent,
    NonPrivateDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)

from palimpsest import validate
from palimpsest.privacy.grid import covering_std

UNLABELLED = ""  # the one label of a task without labels
SCHEME = "labels"
SENSITIVITY = 2.0**0.5  # of a sum of distributions when one of them changes to any other, in L2


@dataclass(frozen=True)
class Sampling:
    """The public numbers by which a token is made.

    Attributes:
        rate: probability with which each record, or person, is drawn for a token.
        charged_rate: the rate that is charged, at least `rate`: one event for all labels, so that they compose in
            parallel as one.
        noise_multiplier: standard deviation of the noise over the sensitivity; 0 is no noise.
        prompts: M, the number of prompts.
        top_k: how many of the likeliest public tokens compete.
        rows: how many demonstrations there are.
        longest: the most tokens of one demonstration.
        rounding: nats that a logit of a prompt may move with the prompts beside it.
    """

    rate: float
    charged_rate: float
    noise_multiplier: float
    prompts: int
    top_k: int
    rows: int
    longest: int
    rounding: float = 0.0

    def __post_init__(self) -> None:
        validate.require_in_range(0.0, 1.0, charged_rate=self.charged_rate)
        validate.require_in_range(0.0, self.charged_rate, rate=self.rate)
        validate.require_positive(prompts=self.prompts, top_k=self.top_k, rows=self.rows, longest=self.longest)
        validate.require_in_range(0.0, math.inf, rounding=self.rounding)

    @property
    def steps(self) -> int:
        """The most tokens in all."""
        return self.rows * self.longest

    @property
    def noise_std(self) -> float:
        """The noise's standard deviation on the average: multiplier times sensitivity, (sqrt(2) + (M - 1) e) / M in L2.

        One prompt's distribution may become any other. Those beside it move by at most e in L1 where their logits move
        by e (softmax is 1-Lipschitz from the largest norm to L1); e is 0 where their bits stay. There is room for
        rounding the average to the grid of the noise.
        """
        moved = (SENSITIVITY + (self.prompts - 1) * self.rounding) / self.prompts
        return covering_std(self.noise_multiplier, moved, self.top_k)

    def event(self) -> DpEvent:
        """Return Poisson-sampled Gaussians, one for each token; not private where there is no noise."""
        if not self.noise_multiplier:
            return NonPrivateDpEvent()
        return SelfComposedDpEvent(
            PoissonSampledDpEvent(self.charged_rate, GaussianDpEvent(self.noise_multiplier)), self.steps
        )
