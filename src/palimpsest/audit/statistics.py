"""The audit's statistics: pure functions of counts and scores, each with its source."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import beta, binom, norm, rankdata

from palimpsest import validate
from palimpsest.plain import Plain

CONFIDENCE = 0.95  # of every interval that an audit writes
RESAMPLES = 2000  # of test rows, behind the intervals of scores
_LARGEST_EPSILON = 64.0


class Interval(NamedTuple):
    """Both ends of a confidence interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Estimate(Plain):
    """A value and its confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Rate(Plain):
    """`count` out of `n`, with the interval of the rate behind it."""

    keys: ClassVar = ("count", "n", "rate", "low", "high")
    count: int
    n: int
    low: float
    high: float

    @classmethod
    def wilson(cls, count: int, n: int) -> "Rate":
        """Make a rate with the score interval."""
        return cls(count, n, *wilson(count, n))

    @classmethod
    def exact(cls, count: int, n: int, confidence: float = CONFIDENCE) -> "Rate":
        """Make a rate with the interval of Clopper and Pearson."""
        return cls(count, n, *clopper_pearson(count, n, confidence))

    @property
    def rate(self) -> float:
        """The observed share; NaN where nothing was tried."""
        return self.count / self.n if self.n else math.nan


@dataclass(frozen=True)
class Bootstrap:
    """Settings of a bootstrap interval: number of resamples, and the seed of the resampling."""

    resamples: int
    seed: int

    def __post_init__(self) -> None:
        validate.require_positive(resamples=self.resamples)


# --- rates -----------------------------------------------------------------------------------------------------


def clopper_pearson(count: int, n: int, confidence: float) -> Interval:
    """Exact interval of a binomial proportion (Clopper and Pearson 1934); [0, 1] for n = 0."""
    _check_count(count, n, confidence)
    tail = (1.0 - confidence) / 2.0
    low = float(beta.ppf(tail, count, n - count + 1)) if count > 0 else 0.0
    high = float(beta.ppf(1.0 - tail, count + 1, n - count)) if count < n else 1.0
    return Interval(low, high)


def wilson(count: float, n: int, confidence: float = CONFIDENCE) -> Interval:
    """Score interval of a binomial proportion (Wilson 1927); [0, 1] for n = 0.

    `count` may be fractional, a sum of n independent values in [0, 1] such as an item's share of correct seeds:
    their variance is at most the binomial one, so the interval is then conservative.
    """
    _check_count(count, n, confidence)
    if n == 0:
        return Interval(0.0, 1.0)
    z = norm.ppf((1.0 + confidence) / 2.0)
    rate, shrink = count / n, 1.0 + z**2 / n
    middle = (rate + z**2 / (2 * n)) / shrink
    half = z / shrink * math.sqrt(rate * (1.0 - rate) / n + z**2 / (4 * n**2))
    low = 0.0 if count == 0 else float(middle - half)
    return Interval(low, 1.0 if count == n else float(middle + half))


def _check_count(count: float, n: int, confidence: float) -> None:
    validate.require_in_range(0, n, count=count)
    validate.require_in_range(0, 1, confidence=confidence)


# --- scores ----------------------------------------------------------------------------------------------------


def auc_value(positive: np.ndarray, negative: np.ndarray) -> float:
    """P(positive score > negative score), ties counted half: the Mann-Whitney statistic over mn."""
    m, n = len(positive), len(negative)
    validate.require_positive(positives=m, negatives=n)
    ranks = rankdata(np.concatenate([positive, negative]))  # O(N log N), mid-ranks for ties
    return float((ranks[:m].sum() - m * (m + 1) / 2) / (m * n))


def hanley_mcneil_sd(auc: float, positives: int, negatives: int) -> float:
    """Standard deviation of an AUC under the exponential model (Hanley and McNeil 1982, equations 1 and 2)."""
    pair_of_negatives, pair_of_positives = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    variance = auc * (1 - auc)
    variance += (positives - 1) * (pair_of_negatives - auc**2) + (negatives - 1) * (pair_of_positives - auc**2)
    return math.sqrt(max(variance, 0.0) / (positives * negatives))


def auc_with_interval(positive: np.ndarray, negative: np.ndarray, confidence: float = CONFIDENCE) -> Estimate:
    """AUC with the interval of all true values that the observed one does not reject.

    The Hanley-McNeil standard deviation is taken at the candidate, not at the observed value (score inversion,
    Newcombe 2006, "Part 2"): the interval stays inside [0, 1] and keeps a width at an observed AUC of 0 or 1.
    """
    value, m, n = auc_value(positive, negative), len(positive), len(negative)
    z = norm.ppf((1.0 + confidence) / 2.0)
    low = _auc_bound(value, 0.0, lambda true: value - true - z * hanley_mcneil_sd(true, m, n))
    high = _auc_bound(value, 1.0, lambda true: true - value - z * hanley_mcneil_sd(true, m, n))
    return Estimate(value, low, high)


def _auc_bound(value: float, end: float, gap: Callable[[float], float]) -> float:
    # gap is positive at the end of the scale and negative next to the observed value; at 0 and 1 the sd vanishes.
    beside = min(max(value, 1e-12), 1.0 - 1e-12)
    return end if value == end else float(brentq(gap, *sorted((beside, end))))


def auc_null_interval(positive: np.ndarray, negative: np.ndarray, confidence: float) -> Interval:
    """Interval of the AUC of uninformative scores with these ties: .5 +- z sqrt((N + 1 - ties) / (12 m n)), N = m + n.

    Ties are the sum of t^3 - t over groups of t equal scores, over N (N - 1): scores that tie move the AUC less.

    Source: Mann and Whitney 1947, the variance of U under the null hypothesis; Lehmann 1975, chapter 1.4, with ties.
    """
    m, n = len(positive), len(negative)
    validate.require_positive(positives=m, negatives=n)
    tied = np.unique(np.concatenate([positive, negative]), return_counts=True)[1].astype(np.float64)
    ties = float((tied**3 - tied).sum()) / ((m + n) * (m + n - 1))
    sd = math.sqrt(max(0.0, m + n + 1 - ties) / (12 * m * n))
    half = float(norm.ppf((1.0 + confidence) / 2.0)) * sd
    return Interval(max(0.0, 0.5 - half), min(1.0, 0.5 + half))


def tpr_at_fpr(positive: np.ndarray, negative: np.ndarray, fpr: float) -> Rate:
    """Positives above the lowest threshold at which at most a share `fpr` of the negatives lies above.

    The interval (Clopper-Pearson) is over the positives, given that threshold. With fewer than 1/fpr negatives the
    threshold is the largest negative.
    """
    validate.require_in_range(0, 1, fpr=fpr)
    allowed = min(math.floor(fpr * len(negative) + 1e-9), len(negative) - 1)
    threshold = np.sort(negative)[::-1][allowed]
    count = int((positive > threshold).sum())
    return Rate.exact(count, len(positive))


def thin(points: np.ndarray, limit: int) -> np.ndarray:
    """At most `limit` of the ROC points, both ends kept, spread evenly along the curve's length |dx| + |dy|."""
    if len(points) <= limit:
        return points
    along = np.append(0.0, np.abs(np.diff(points, axis=0)).sum(axis=1).cumsum())
    chosen = np.searchsorted(along, np.linspace(0.0, along[-1], limit))
    return points[np.unique(np.minimum(chosen, len(points) - 1))]


# --- epsilon -------------------------------------------------------------------------------------------------


def one_run_p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """Bound the probability that an (epsilon, delta)-DP algorithm lets an attacker guess at least `correct` coins.

    Source: Steinke, Nasr and Jagielski 2023, Theorem 5.2, for `canaries` independent fair coins and a number of
    `guesses` fixed in advance: P[W >= v] <= f(v) + 2 m delta max_i (f(v - i) - f(v)) / i, where f(v) is the
    probability that a Binomial(guesses, e^epsilon / (1 + e^epsilon)) is at least v.
    """
    tail = float(binom.sf(correct - 1, guesses, expit(epsilon)))
    if delta == 0.0 or correct == 0:
        return min(tail, 1.0)
    steps = np.arange(1, correct + 1)
    gain = (binom.sf(correct - steps - 1, guesses, expit(epsilon)) - tail) / steps
    return min(1.0, tail + 2.0 * canaries * delta * max(0.0, float(gain.max())))


def one_run_epsilon(canaries: int, guesses: int, correct: int, delta: float, alpha: float) -> float:
    """Lower bound on epsilon at confidence 1 - alpha, from one run (Steinke et al. 2023).

    Any epsilon whose p value is at most alpha is refuted, and every smaller epsilon with it (a smaller epsilon is a
    stronger claim), so any root of p = alpha that the search finds is valid. The bound is at most 64.

    Args:
        canaries: number of independent fair coins, guessed about or not.
        guesses: how many of them the attack guesses, fixed before the run.

    >>> round(one_run_epsilon(canaries=100, guesses=50, correct=45, delta=0.0, alpha=0.05), 3)
    1.394
    """
    validate.require_in_range(0, canaries, guesses=guesses)
    validate.require_in_range(0, guesses, correct=correct)
    validate.require_in_range(0, 1, delta=delta, alpha=alpha)

    def excess(epsilon: float) -> float:
        return one_run_p_value(canaries, guesses, correct, epsilon, delta) - alpha

    if guesses == 0 or excess(0.0) >= 0.0:
        return 0.0
    if excess(_LARGEST_EPSILON) < 0.0:
        return _LARGEST_EPSILON
    root = float(brentq(excess, 0.0, _LARGEST_EPSILON, xtol=1e-9))
    return max(0.0, root - 1e-8)  # below the root, on the refuted side


# --- resampling -----------------------------------------------------------------------------------------------


def bootstrap_ratio(numerator: np.ndarray, denominator: np.ndarray, bootstrap: Bootstrap) -> Interval:
    """Percentile interval of sum(numerator) / sum(denominator) over resampled rows (Efron 1979).

    Both arrays, of shape (rows,), are resampled together, so the comparison is paired. Equal rows are drawn as one
    multinomial category: the same distribution, at a cost that does not grow with the number of rows.
    """
    pairs, counts = np.unique(np.column_stack([numerator, denominator]), axis=0, return_counts=True)
    rng, rows = np.random.default_rng(bootstrap.seed), int(counts.sum())
    sums = np.array([rng.multinomial(rows, counts / rows) @ pairs for _ in range(bootstrap.resamples)])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = sums[:, 0] / sums[:, 1]
    low, high = np.nanquantile(ratios, [(1.0 - CONFIDENCE) / 2.0, (1.0 + CONFIDENCE) / 2.0])
    return Interval(float(low), float(high))


def permutation_p(observed: float, null: Iterable[float]) -> float:
    """One-sided p value (1 + #{null >= observed}) / (1 + #null): never 0 (Phipson and Smyth 2010)."""
    values = np.fromiter(null, dtype=np.float64)
    return float(1 + (values >= observed).sum()) / (1 + len(values))


def difference(first: Estimate, second: Estimate) -> Estimate:
    """First minus second with its 95 % interval, computed only from both intervals.

    Each interval's half width is taken for 1.96 standard errors, and the two values for independent (normal
    approximation). Values on the same test rows mostly move together: then the interval is wider than a paired one.
    """
    value = first.value - second.value
    half = math.hypot(first.high - first.low, second.high - second.low) / 2.0
    return Estimate(value, value - half, value + half)
