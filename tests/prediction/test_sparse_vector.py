"""The sparse vector, enumerated: the probability of each outcome by integration over the threshold's noise.

The scales of both noises are read off from what the code does with draws that are told.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from palimpsest.prediction.mechanism import FixedClipping, SparseVector, laplace, probabilities
from palimpsest.privacy.entropy import NoiseSource

VECTOR = SparseVector(0.5, 0.2, 5)
ALMOST = 1.0 + 1e-9
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_PIECES = 80  # between two kinks of a Laplace density


class Told(NoiseSource):
    """Draws whose Laplace noise of scale 1 is a told number."""

    def __init__(self, noise: float) -> None:
        super().__init__(seed=0)
        self.noise = noise

    def uniform(self, size: int) -> np.ndarray:
        assert size == 2
        return np.exp([-max(self.noise, 0.0), min(self.noise, 0.0)])


def scales(vector: SparseVector) -> tuple[float, float]:
    """Scales of the threshold's noise and of the query's, as the code applies them."""
    low, high = 0.0, 100.0  # the threshold at which a distance 0 with noise 1 begins to pass lies between
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if vector.passes(0.0, middle, Told(1.0)) else (middle, high)
    return vector.new_threshold(Told(1.0)) - vector.threshold, high


def log_probability(vector: SparseVector, distances: Sequence[float], aboves: int = 1) -> float:
    """Log-probability that all distances pass but the last `aboves` of them, under one threshold."""
    own, query = scales(vector)
    kinks = sorted({0.0, *(distance - vector.threshold for distance in distances), -80.0 * own, 80.0 * own})
    ends = np.concatenate([np.linspace(a, b, _PIECES + 1)[:-1] for a, b in itertools.pairwise(kinks)] + [kinks[-1:]])
    ends = ends[np.concatenate([[True], np.diff(ends) > 0])]
    half = np.diff(ends)[:, None] / 2
    noise = (ends[:-1, None] + half * (1.0 + _NODES)).ravel()
    log_terms = np.log(half * _WEIGHTS).ravel() - np.abs(noise) / own - math.log(2 * own)
    for place, distance in enumerate(distances):
        gap = (vector.threshold + noise - distance) / query  # the query's noise is below it: pass
        passes = place < len(distances) - aboves
        log_terms = log_terms + _log_cdf(gap if passes else -gap)
    return float(np.logaddexp.reduce(log_terms))


def _log_cdf(value: np.ndarray) -> np.ndarray:
    """Of the standard Laplace distribution."""
    return np.where(value < 0, np.minimum(value, 0) - math.log(2), np.log1p(-0.5 * np.exp(-np.maximum(value, 0))))


def neighbouring(vector: SparseVector) -> Iterator[tuple[list[float], list[float]]]:
    """Distance sequences, the last of which is above, and what one record may make of them."""
    move = 1.0 / vector.batch_size
    patterns = [(passing, -passing) for passing in (move, -move)] + [(move, move), (-move, -move), (0.0, move)]
    for passes, start, last in itertools.product((0, 2, 60), (0.2, 0.9, 1.6), (0.2, 1.4)):
        for at_pass, at_above in patterns:
            yield [start] * passes + [last], [start + at_pass] * passes + [last + at_above]


def worst(vector: SparseVector) -> float:
    """The largest log-ratio of an outcome's probabilities, in units of what one round costs."""
    paid = 2.0 / (vector.batch_size * vector.noise)
    pairs = [tuple(log_probability(vector, part) for part in pair) for pair in neighbouring(vector)]
    return max(abs(first - second) for first, second in pairs) / paid


# One round.


@pytest.mark.parametrize("vector", [VECTOR, SparseVector(0.3, 0.1, 20), SparseVector(0.7, 1.0, 1)])
def test_one_record_changes_no_outcome_of_a_round_by_more_than_is_paid(vector: SparseVector) -> None:
    assert worst(vector) <= ALMOST


def test_a_round_is_pure_dp_whose_zcdp_is_claimed() -> None:
    assert VECTOR.rho == pytest.approx(0.5 * (2.0 / (VECTOR.batch_size * VECTOR.noise)) ** 2)


def test_outcomes_of_a_round_are_all_that_may_happen() -> None:
    """The probabilities of "k pass, then one above" and of "all pass" sum to 1."""
    distances = [0.3, 0.8, 0.1, 1.2]
    above = [math.exp(log_probability(VECTOR, distances[: count + 1])) for count in range(len(distances))]
    assert sum(above) + math.exp(log_probability(VECTOR, distances, aboves=0)) == pytest.approx(1.0, abs=1e-9)


def test_the_integral_is_what_happens() -> None:
    source, distances, rounds = NoiseSource(3), [0.3, 0.5, 0.9], 20_000
    found = sum(runs_to_the_end(VECTOR, distances, source) for _ in range(rounds))
    wanted = math.exp(log_probability(VECTOR, distances))
    assert abs(found / rounds - wanted) < 6 * math.sqrt(wanted * (1 - wanted) / rounds)


def runs_to_the_end(vector: SparseVector, distances: Sequence[float], source: NoiseSource) -> bool:
    threshold = vector.new_threshold(source)
    return [vector.passes(distance, threshold, source) for distance in distances] == [True] * 2 + [False]


def test_the_noise_is_of_the_scales_that_the_proof_asks_for() -> None:
    assert scales(VECTOR) == (pytest.approx(VECTOR.noise), pytest.approx(2.0 * VECTOR.noise))
    assert VECTOR.new_threshold(Told(-2.0)) == pytest.approx(VECTOR.threshold - 2.0 * VECTOR.noise)
    assert VECTOR.passes(0.5, 0.5 - 2 * VECTOR.noise + 1e-6, Told(-1.0))
    assert not VECTOR.passes(0.5, 0.5 - 2 * VECTOR.noise - 1e-6, Told(-1.0))


class QueryNoiseHalved(SparseVector):
    """The mutant: as much noise on the query as on the threshold."""

    def passes(self, distance, threshold, source):
        return distance + laplace(source, self.noise) < threshold


class FixedQuery(SparseVector):
    """The mutant: hardly any noise on the query."""

    def passes(self, distance, threshold, source):
        return distance + laplace(source, 0.01 * self.noise) < threshold


class FixedThreshold(SparseVector):
    """The mutant: hardly any noise on the threshold."""

    def new_threshold(self, source):
        return self.threshold + laplace(source, 0.01 * self.noise)


@pytest.mark.parametrize("mutant", [QueryNoiseHalved, FixedQuery, FixedThreshold])
def test_mutants_of_the_noise_are_refuted(mutant: type[SparseVector]) -> None:
    assert worst(mutant(VECTOR.threshold, VECTOR.noise, VECTOR.batch_size)) > 1.05


def test_two_tokens_above_cost_more_than_one_round() -> None:
    """What the writer may not do: draw a second private token under the round that the first one ended.

    (To keep the threshold and pay a round for each token would be sound: it costs 3 of the 4 units of two rounds.)
    """
    move, paid = 1.0 / VECTOR.batch_size, 2.0 / (VECTOR.batch_size * VECTOR.noise)
    first, second = [1.6] * 60 + [0.1] * 2, [1.6 + move] * 60 + [0.1 - move] * 2
    ratio = log_probability(VECTOR, first, aboves=2) - log_probability(VECTOR, second, aboves=2)
    assert 1.05 * paid < abs(ratio) <= 1.5 * paid * ALMOST


# The distance.


LOGITS = st.tuples(st.integers(1, 6), st.integers(2, 8)).flatmap(
    lambda shape: st.tuples(
        arrays(np.float32, shape, elements=st.floats(-50, 50, width=32) | st.just(math.nan)),
        arrays(np.float32, shape[1], elements=st.floats(-50, 50, width=32)),
    )
)


@settings(deadline=None)
@given(LOGITS, st.integers(1, 9))
def test_one_record_moves_the_distance_by_at_most_one_over_s(logits, size) -> None:
    assert moved(SparseVector(0.5, 0.2, size).distance, logits) <= 1.0 / size + 1e-5


def moved(distance, logits) -> float:
    """How far a distance, from summed private probabilities and public ones, moves for the first context."""
    rows, public = (torch.from_numpy(part) for part in logits)
    sums = [probabilities(some).sum(dim=0, dtype=torch.float64) for some in (rows, rows[1:])]
    found = [distance(total, probabilities(public)) for total in sums]
    return abs(found[0] - found[1])


def test_the_distance_is_the_l1_norm_of_a_mean_over_s() -> None:
    total, public = torch.tensor([1.5, 0.5, 1.0]), torch.tensor([0.2, 0.2, 0.6])
    assert VECTOR.distance(total, public) == pytest.approx(0.1 + 0.1 + 0.4)
    assert VECTOR.distance(torch.zeros(3), public) == pytest.approx(1.0)


SHARP = torch.tensor([[12.0, 0.0, 0.0], [0.0, 12.0, 0.0], [0.0, 0.0, 12.0]])


def of_mean_clipped_logits(rows: torch.Tensor, size: int) -> float:
    """The mutant: the softmax of averaged clipped logits; its sensitivity is not 1 / s."""
    clipping = FixedClipping(10.0, 1.0, size)
    mean = clipping.contributions(rows, torch.zeros(3)).sum(dim=0) / size
    return float((mean.softmax(dim=0) - torch.full((3,), 1 / 3)).abs().sum())


def over_the_count(rows: torch.Tensor, _size: int) -> float:
    """The mutant: the mean over the contexts that are there."""
    mean = probabilities(rows).sum(dim=0) / max(1, len(rows))
    return float((mean - torch.full((3,), 1 / 3)).abs().sum())


def over_s(rows: torch.Tensor, size: int) -> float:
    return SparseVector(0.5, 0.2, size).distance(probabilities(rows).sum(dim=0), torch.full((3,), 1 / 3))


def moves_at_most(distance, size: int = 4) -> bool:
    lists = [list(rows) for count in range(4) for rows in itertools.product(range(3), repeat=count)]
    found = [
        abs(distance(SHARP[[*rows, extra]], size) - distance(SHARP[rows], size)) for rows in lists for extra in range(3)
    ]
    return max(found) <= 1.0 / size + 1e-5


def test_mutants_of_the_distance_move_too_far() -> None:
    assert moves_at_most(over_s)
    assert not moves_at_most(of_mean_clipped_logits)
    assert not moves_at_most(over_the_count)


@pytest.mark.parametrize("wrong", [{"noise": 0.0}, {"batch_size": 0}, {"threshold": -0.1}, {"threshold": 2.1}])
def test_numbers_that_the_accounting_does_not_hold_for_are_refused(wrong) -> None:
    with pytest.raises(ValueError, match="must be"):
        replace(VECTOR, **wrong)
