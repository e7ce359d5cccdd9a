"""One token from many private contexts: clipped logits, averaged, drawn from their softmax.

A batch of s contexts (in expectation), each holding one record, stands before the same text. Each gives the logits of
the next token; what one record can add to their sum is clipped, and the token is drawn from the softmax of the sum over
the fixed s. That is the exponential mechanism. A sparse vector may pass over tokens on which private and public
contexts agree (Amin et al. 2024, "Private prediction for large-scale synthetic text generation", Algorithm 1).

A person may have several contexts in a batch: each is cut, then averaged within the person, so that all of them
together add at most what one context may. Sums are of whole steps of a public grid: exact, in whatever order.

Data sets are compared by adding or removing one unit of privacy: a record, or a person with all their rows. Everything
here but the logits of private contexts is public.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from dp_accounting.dp_event import ComposedDpEvent, DpEvent, NonPrivateDpEvent, SelfComposedDpEvent, ZCDpEvent

from palimpsest import validate
from palimpsest.privacy.events import BoundedRangeDpEvent

if TYPE_CHECKING:  # heavy, and a plan needs none of it: imported where tensors are
    import torch

    from palimpsest.privacy.entropy import NoiseSource

_STEPS = 30  # a bound is 2^30 steps of its grid, or up to twice as many


def grid(bound: float) -> float:
    """Return the step for sums of values within [-bound, bound], in their unit: a power of two.

    >>> grid(1.0) == 2.0**-30 == grid(1.9)
    True
    """
    return math.ldexp(1.0, math.frexp(bound)[1] - 1 - _STEPS)


def averaged_sum(values: torch.Tensor, contexts: torch.Tensor, bound: float) -> torch.Tensor:
    """Return the sum over persons of the mean over a person's contexts, float64 (k,).

    Guarantee: with every value in [-bound, bound], all contexts of one person together add at most `bound` in size to
    each sum; with rows that are distributions from `probabilities`, at most 1 in L1 to all. Values are cut towards 0 to
    whole steps of `grid`, divided by the person's number of contexts and cut again, so no mean is rounded up. Whole
    steps are added as integers, so neither the order nor what else is summed shows; float64 holds the sum, and sums of
    such sums, for up to 2^22 contexts.

    Args:
        values: float (n, k), each within the bound.
        contexts: int64 (n,), how many contexts the person behind each row has.
    """
    import torch

    step = grid(bound)
    whole = (values.double() / step).long()
    shares = torch.div(whole, contexts[:, None], rounding_mode="trunc")
    return shares.sum(dim=0).double() * step


@dataclass(frozen=True)
class Clipping(ABC):
    """The rule by which a private context's logits enter the score of the next token.

    Attributes:
        clip: c, in nats: the most that one unit of privacy adds to any sum of contributions, in size.
        temperature: divides the scores.
        batch_size: s, the divisor, in units of privacy; never the number that is there.
        top_k: k, the likeliest public tokens that may be drawn, with those within `margin`; 0 means all.
    """

    clip: float
    temperature: float
    batch_size: int
    top_k: int = 0

    def __post_init__(self) -> None:
        validate.require_positive(clip=self.clip, temperature=self.temperature, batch_size=self.batch_size)
        validate.require_in_range(0, math.inf, top_k=self.top_k)

    @property
    def sensitivity(self) -> float:
        """c / s: the most that one unit of privacy moves any score, before the temperature divides it."""
        return self.clip / self.batch_size

    @property
    def rho(self) -> float:
        """The zCDP of one drawn token."""
        return self.rho_of(self.sensitivity)

    def rho_of(self, move: float) -> float:
        """Return the zCDP of one drawn token whose scores move by at most `move`: 1/2 (move / temperature)^2.

        Source: Cesar and Rogers 2021, Lemma 3.2.
        """
        return 0.5 * (move / self.temperature) ** 2

    def event_of(self, move: float) -> DpEvent:
        """Return that cost as an event of range 2 move / temperature; `rho_of` is an eighth of the range squared."""
        return BoundedRangeDpEvent(2.0 * move / self.temperature)

    @property
    @abstractmethod
    def margin(self) -> float:
        """The number of nats below the k-th likeliest public token at which a token may still be drawn."""

    def candidates(self, public: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
        """Return the tokens that may be drawn, bool (vocabulary,): a function of public logits only.

        These are the allowed ones with a public logit of at least the k-th largest minus the margin.
        """
        if not 0 < self.top_k < int(allowed.sum()):
            return allowed
        usable = public.masked_fill(~allowed, -math.inf)
        return allowed & (usable >= usable.topk(self.top_k).values[-1] - self.margin)

    @abstractmethod
    def contributions(self, private: torch.Tensor, public: torch.Tensor) -> torch.Tensor:
        """Return what each context adds to the sum: (n, k) from logits (n, k) and public ones (k,), row by row."""

    @abstractmethod
    def scores(self, total: torch.Tensor, public: torch.Tensor) -> torch.Tensor:
        """Return the logits of the draw, float64 (k,), from the summed contributions (k,)."""


@dataclass(frozen=True)
class FixedClipping(Clipping):
    """Logits moved so that the largest is c, and cut at -c (Amin et al. 2024, section 3.2).

    The draw is over the k likeliest tokens in public: at the high temperatures that this clipping takes, the many
    unlikely ones would have most of the probability together.

    Guarantee: a context's contribution lies in [-c, c], and so does the mean over a person's contexts. Adding or
    removing one unit of privacy (a record, or a person with all their rows) moves every score by at most c / s, where s
    is fixed, public and counts units. Drawing with probability proportional to exp(score / temperature) is then
    2 c / (s temperature)-bounded-range and so 1/2 (c / (s temperature))^2-zCDP (Cesar and Rogers 2021, Lemma 3.2). The
    candidates depend on public logits alone.
    """

    @property
    def margin(self) -> float:
        return 0.0

    def contributions(self, private: torch.Tensor, public: torch.Tensor) -> torch.Tensor:
        """Return max(-c, z - max z + c); a context whose logits are no numbers adds nothing."""
        raised = private - private.amax(dim=-1, keepdim=True) + self.clip
        return clamp_values(raised, self.clip)

    def scores(self, total: torch.Tensor, public: torch.Tensor) -> torch.Tensor:
        return total.double() / (self.batch_size * self.temperature)


@dataclass(frozen=True)
class DifferenceClipping(Clipping):
    """The difference to the public logits, cut at both ends (InvisibleInk: Vinod, Pillutla, Thakurta 2025).

    Only what private contexts change is clipped, so a small clip keeps most of it; without any context the public
    logits are left. The draw is over the public top-k+ set: the k likeliest tokens in public, and all that clipped
    contributions could lift as high.

    The difference of each context is first moved by the middle of its own range over the candidates: a softmax does not
    see a shift, and a language model leaves it arbitrary, but clipping sees it. Nothing is cut while the range is at
    most 2 C.

    Guarantee: as of `FixedClipping` with c = C: the shift is a function of one context and public logits, and the
    contribution is cut after it. The candidates depend on public logits alone.
    """

    @property
    def margin(self) -> float:
        """2 C / s: how far clipped contributions could lift one token over another."""
        return 2.0 * self.sensitivity

    def contributions(self, private: torch.Tensor, public: torch.Tensor) -> torch.Tensor:
        """Return the centred difference, cut to [-C, C]; a context whose logits are no numbers adds nothing."""
        difference = private - public
        middle = (difference.amax(dim=-1, keepdim=True) + difference.amin(dim=-1, keepdim=True)) / 2.0
        return clamp_values(difference - middle, self.clip)

    def scores(self, total: torch.Tensor, public: torch.Tensor) -> torch.Tensor:
        """Return public logits plus the sum over s, divided by the temperature."""
        return (public.double() + total.double() / self.batch_size) / self.temperature


@dataclass(frozen=True)
class SparseVector:
    """Passes over tokens on which private contexts agree with the public one (AboveThreshold).

    Guarantee: the distance of `distance` moves by at most 1 / s when one unit of privacy is added or removed, for a
    person's probabilities are averaged within the person (`averaged_sum`). AboveThreshold
    with threshold noise Lap(nu) and query noise Lap(2 nu) is then 2 / (s nu)-DP for one round, however many tokens it
    passes over (Dwork and Roth 2014, Theorem 3.23), and so 2 / (s nu)^2-zCDP (Bun and Steinke 2016, Proposition 1.4).

    Attributes:
        threshold: theta, an L1 distance in [0, 2].
        noise: nu, scale of the Laplace noise.
        batch_size: s, the divisor, in units of privacy.
    """

    threshold: float
    noise: float
    batch_size: int

    def __post_init__(self) -> None:
        validate.require_positive(noise=self.noise, batch_size=self.batch_size)
        validate.require_in_range(0.0, 2.0, threshold=self.threshold)

    @property
    def sensitivity(self) -> float:
        """How far one unit of privacy moves the mean of a batch."""
        return 1.0 / self.batch_size

    @property
    def rho(self) -> float:
        """The zCDP of one round."""
        return self.rho_of(self.sensitivity)

    def rho_of(self, move: float) -> float:
        """Return the zCDP of one round whose distances move by at most `move`: 2 (move / nu)^2."""
        return 2.0 * (move / self.noise) ** 2

    def event_of(self, move: float) -> DpEvent:
        """Return the event of one round whose distances move by at most `move`."""
        return ZCDpEvent(self.rho_of(move))

    def distance(self, total: torch.Tensor, public: torch.Tensor) -> float:
        """Return || (1/s) sum_i p_i - p_public ||_1 from summed private probabilities (k,) and public ones (k,).

        Unclipped and at temperature 1: each p_i has L1 norm at most 1. (A softmax of mean logits would move by c / s.)
        Private sums and public probabilities are whole steps of one grid, so nothing is rounded but the last quotient.
        """
        import torch

        whole = averaged_sum(public[None], torch.ones(1, dtype=torch.long, device=public.device), 1.0)
        return float((total.double() - self.batch_size * whole).abs().sum()) / self.batch_size

    def new_threshold(self, source: NoiseSource) -> float:
        """Draw theta + Lap(nu), once a round."""
        return self.threshold + laplace(source, self.noise)

    def passes(self, distance: float, threshold: float, source: NoiseSource) -> bool:
        """Return whether the token is free: distance + Lap(2 nu) below the round's threshold."""
        return distance + laplace(source, 2.0 * self.noise) < threshold


@dataclass(frozen=True)
class Rounding:
    """The amount that one unit of privacy may move by the rounding of logits, beside its own contribution.

    Attributes:
        error: e, nats: the most that a score before the temperature, and a distance of the sparse vector, may move
            because contexts stand elsewhere or beside others. 0 where a context's bits do not depend on that.
        batches: m, the batches whose contexts may be read together.
    """

    error: float = 0.0
    batches: int = 1

    def __post_init__(self) -> None:
        validate.require_in_range(0.0, math.inf, error=self.error)
        validate.require_positive(batches=self.batches)


EXACT = Rounding()


def token_rho(clipping: Clipping, vector: SparseVector | None, rounding: Rounding = EXACT) -> float:
    """Return the zCDP of one token drawn from private contexts, with the round of the sparse vector before it.

    Guarantee: of its own batch a unit of privacy moves scores by c / s + e and distances by 1 / s + e; of the m - 1
    others, whose noise is drawn apart, by e. So rho is 1/2 ((c / s + e) / tau)^2 + (m - 1) / 2 (e / tau)^2, and for a
    round 2 ((1 / s + e) / nu)^2 + 2 (m - 1) (e / nu)^2 (zCDP adds up: Bun and Steinke 2016, Lemma 1.7; rounds of
    several batches run at a time: Lyu 2022, "Composition theorems for interactive differential privacy").
    """
    parts: list[Clipping | SparseVector] = [clipping] if vector is None else [clipping, vector]
    own = sum(part.rho_of(part.sensitivity + rounding.error) for part in parts)
    return own + (rounding.batches - 1) * sum(part.rho_of(rounding.error) for part in parts)


def wave_event(
    clipping: Clipping, vector: SparseVector | None, tokens: int, reference: bool, rounding: Rounding = EXACT
) -> DpEvent:
    """Return the event of a wave of batches with `tokens` private tokens each: the parts of `token_rho`, kept apart."""
    if reference:
        return NonPrivateDpEvent()
    parts: list[Clipping | SparseVector] = [clipping] if vector is None else [clipping, vector]
    own = [part.event_of(part.sensitivity + rounding.error) for part in parts]
    others = [SelfComposedDpEvent(part.event_of(rounding.error), rounding.batches - 1) for part in parts]
    each = [*own, *(others if rounding.error and rounding.batches > 1 else [])]
    return SelfComposedDpEvent(each[0] if len(each) == 1 else ComposedDpEvent(each), tokens)


def clamp_values(values: torch.Tensor, bound: float) -> torch.Tensor:
    """Cut values to [-bound, bound]; 0 where there is no number.

    Guarantee: every value of the result is finite and at most `bound` in size, whatever came in.
    """
    import torch

    nearest = torch.tensor(bound, dtype=values.dtype, device=values.device)
    if float(nearest) > bound:  # in float32 a bound may be rounded up
        nearest = torch.nextafter(nearest, torch.zeros_like(nearest))
    return torch.nan_to_num(values.clamp(-nearest, nearest), nan=0.0)


def probabilities(logits: torch.Tensor) -> torch.Tensor:
    """Return the softmax over the last axis in float64; zeros where logits are no numbers.

    Guarantee: the L1 norm passes 1 by less than a step of `grid(1)`, which float64 holds for up to 2^22 tokens; cut to
    whole steps, as `averaged_sum` does, it never passes 1.
    """
    import torch

    return torch.nan_to_num(logits.double().softmax(dim=-1), nan=0.0)


def draw(scores: torch.Tensor, source: NoiseSource) -> int:
    """Draw an index with probability proportional to exp(scores), by the Gumbel-max trick.

    Each score gets a Gumbel draw of 53 bits of its own, so every index within 40 nats of the largest can be drawn: no
    probability is lost in a running sum. An index further below cannot; its probability, under 1e-17, is part of no
    delta.
    """
    gumbel = -np.log(-np.log(source.uniform(scores.numel())))
    return int(np.argmax(scores.double().cpu().numpy() + gumbel))


def laplace(source: NoiseSource, scale: float) -> float:
    """Make a Laplace draw of mean 0: the difference of two exponentials. Only comparisons with it are ever told."""
    first, second = -np.log(source.uniform(2))
    return float(scale * (first - second))
