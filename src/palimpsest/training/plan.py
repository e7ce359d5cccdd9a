"""The public numbers of a private training run, the event that the accountant is told, and the room for rounding.

Bounds on how far rounding may move a sum of clipped gradients: what is charged, and why it is enough.

Whole sums lose nothing (`integers`). These bounds are for the float64 sums that serve elsewhere
(`dpsgd.TrainQuery.choose_engine`).

Theorem. Let each unit of privacy have a contribution that its own rows decide to the last bit: factors A, G of every
layer's gradient A^T G (float32, or bfloat16 widened to it) and a clip factor c >= 0 with c |g| <= C, where |g| is the
L2 norm of the exact products of the booked factors, over all layers. Let S be the exact sum of c g over the units of a
batch, and S' that of a neighbour, which has one unit more. Then |S - S'| <= C. The engine computes S in float64 and is
off by at most e(B) for B units. So the computed sums of neighbours are at most C + 2 e(B) apart, and 2 e(B) / C <= eta.

Proof of e(B). A product of two float32 is exact in float64. c times a factor is rounded once and its product with the
other factor once. The terms are then added up: at most 2^16 tokens in one product of matrices (`LONGEST_PRODUCT`; a
look-up is a product with one-hot rows), and at most as many products, one after the other. Every term takes part in at
most n = 2^17 + 2 roundings, in whatever order a matrix product adds. So each coordinate is off by at most gamma_n times
the sum of the terms' sizes (Higham 2002, section 3.1), with gamma_n = n u / (1 - n u) and u = 2^-53. In L2 that is
gamma_n times the sum over units of c k, where k is the sum over tokens of |a||g|, layers combined in L2. The norm that
c is computed from holds an allowance for the rounding of Gram matrices, at least 8 * 2^-24 k^2 of its square
(`ghost._allowance`: two runs of one column and one addition each, plus four). So c k <= C / sqrt(8 * 2^-24) < 2^10.6 C.
Where per-example gradients are kept instead, k is the norm itself. Hence e(B) <= 2^17.01 * 2^-53 * 2^10.6 * B * C <
2^-25.3 B C. The rounding of c itself, a few units of 2^-53, is far below what is left up to 2^-25.

What is taken for granted: parameters are float32; matrix products add and multiply as IEEE 754 does, in any order,
without the shortcuts of fast matrix multiplication, which is tried on known products before a training. A step adds at
most 2^16 products to a weight: at most `MOST_PASSES` of the micro-batches, in each of which a weight is used at no more
than two sites, and as much again for micro-batches that are not full. That the bits of a contribution are decided by
its unit alone is tried on public records (`TrainQuery.batch_bits`); where that fails it is a listed assumption. With
separate clippings each sum has its own C and its own eta.
"""

import math
from dataclasses import dataclass

import dp_accounting.dp_event as dpa

from palimpsest import validate
from palimpsest.privacy.grid import covering_std

MOST_PASSES = 1 << 14  # micro-batches of a step
_EACH = 2.0**-24  # the most that one unit of the batch may cost, both neighbours together


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


def count_passes(expected_batch: float, rows_per_unit: int, micro_batch: int) -> int:
    """Return how many full micro-batches the largest batch that `eta` allows for has, with all rows a unit may have."""
    return math.ceil(_most_units(expected_batch) * rows_per_unit / micro_batch)


def eta(expected_batch: float) -> float:
    """Return what rounding adds to the sensitivity of a step's sum, over C, from public numbers only.

    Guarantee: at least 2 e(B) / C of the theorem above for every batch of at most B = 4 * `expected_batch` + 64 units.
    A Poisson batch is larger with a probability below exp(-2.5 * expected_batch - 64) (Chernoff), which no delta
    notices, as long as there are no more units than were declared.

    Args:
        expected_batch: units that a step expects, rate * n.
    """
    return _EACH * _most_units(expected_batch)


def _most_units(expected_batch: float) -> float:
    return 4.0 * expected_batch + 64.0
