"""What each round of embedding evolution came to: how near it is, how its votes spread, how many parents are left.

Private zone: every value but the number of parents is a function of private rows. The measurements are those of Zhao et
al. 2024 (figures 3 and 4): the Wasserstein distance to the private embeddings, and the variance of the votes beside the
size of the parent set. Votes that spread evenly over the candidates tell none of them apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palimpsest.audit.distance import Distance, per_round
from palimpsest.plain import Plain
from palimpsest.privacy.nearest import nearest
from palimpsest.privacy.votes import device
from palimpsest.records.evolved import EvolvedRound
from palimpsest.workspace import INTERNAL

_FEWEST = 10  # parents: the distance of fewer says nothing

ByLabel = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Turnout(Plain):
    """How the exact votes of private rows spread over a round's candidates, and what was selected of them.

    Attributes:
        label: whose candidates; None for all labels together.
        candidates: how many were voted for.
        mean: votes of a candidate, on average.
        variance: of the candidates' votes around the mean of their label; about the mean itself where chance alone
            spreads them.
        selected: parents that the noisy votes selected.
        readable: of these, parents that passed the readability check.
    """

    label: str | None
    candidates: int
    mean: float
    variance: float
    selected: int
    readable: int


@dataclass(frozen=True)
class RoundAudit:
    """One round.

    Attributes:
        population: distances of what was voted for from the private rows.
        parents: distances of what was selected; none where that were too few, or nobody told them apart.
        votes: all labels together, then each label; none where the exact votes are not known.
    """

    population: tuple[Distance, ...]
    parents: tuple[Distance, ...] = ()
    votes: tuple[Turnout, ...] = ()


@dataclass(frozen=True)
class EvolutionAudit:
    """Private zone: the rounds of one evolution, the first one first."""

    rounds: tuple[RoundAudit, ...]

    def to_json(self, variant: str) -> dict[str, Any]:
        return {
            "variant": variant,
            "zone": INTERNAL,
            "rounds": [[distance.to_json() for distance in one.population] for one in self.rounds],
            "parents": [[distance.to_json() for distance in one.parents] for one in self.rounds],
            "votes": [[turnout.to_json() for turnout in one.votes] for one in self.rounds],
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "EvolutionAudit":
        distances = ([_distances(one) for one in body[name]] for name in ("rounds", "parents"))
        votes = [tuple(map(Turnout.from_json, one)) for one in body["votes"]]
        return cls(tuple(RoundAudit(*one) for one in zip(*distances, votes, strict=True)))


def audit_rounds(rounds: Sequence[EvolvedRound], train: ByLabel, holdout: ByLabel, seed: int) -> EvolutionAudit:
    """Measure every round; the populations at one n, and the parents at one n of their own, that of the fewest.

    As many candidates of each label are compared as its share of the training rows asks for (`mixed`): a population
    holds equally many of every label, and would differ from private rows in that alone.

    Args:
        rounds: of one evolution.
        train: label -> embeddings of its training rows, shape (N, d).
        holdout: label -> embeddings of its rows of the holdout, shape (M, d).
        seed: of all subsets.

    Raises:
        DataError: there are too few rows.
        ModelError: an embedding is not finite.
    """
    weights = {label: len(rows) for label, rows in train.items()}
    private, others = _pooled(train), _pooled(holdout)
    populations = [mixed(one.population, weights, (seed, number, 0)) for number, one in enumerate(rounds)]
    parents = [mixed(_parents(one), weights, (seed, number, 1)) for number, one in enumerate(rounds)]
    enough = [number for number, rows in enumerate(parents) if len(rows) >= _FEWEST]
    measured = per_round([parents[number] for number in enough], private, others, seed) if enough else []
    of_parents = dict(zip(enough, measured, strict=True))
    of_populations = per_round(populations, private, others, seed)
    return EvolutionAudit(
        tuple(
            RoundAudit(of_populations[number], of_parents.get(number, ()), turnouts(one, train))
            for number, one in enumerate(rounds)
        )
    )


def _distances(body: Sequence[Mapping[str, Any]]) -> tuple[Distance, ...]:
    return tuple(Distance.from_json(one) for one in body)


def exact_votes(rows: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """How many rows are nearest to each candidate by cosine, int64 (m,): no noise is added. Private zone.

    Args:
        rows: shape (n, d); n may be 0.
        candidates: shape (m, d).
    """
    chosen = nearest(rows, candidates, 1, device())
    return np.bincount(chosen[chosen >= 0], minlength=len(candidates))


def turnouts(one: EvolvedRound, train: ByLabel) -> tuple[Turnout, ...]:
    """The turnout of all labels together, then that of each; every label's rows vote among its own candidates.

    Together, the variance is the mean of the labels' variances, each with the weight of its candidates.
    """
    votes = {
        label: exact_votes(train[label], candidates) if label in train else np.zeros(len(candidates), dtype=np.int64)
        for label, candidates in one.population.items()
        if len(candidates)
    }
    each = [_turnout(label, counts, one) for label, counts in votes.items()]
    total = sum(found.candidates for found in each)
    if not total:
        return ()
    together = Turnout(
        label=None,
        candidates=total,
        mean=sum(found.mean * found.candidates for found in each) / total,
        variance=sum(found.variance * found.candidates for found in each) / total,
        selected=sum(found.selected for found in each),
        readable=sum(found.readable for found in each),
    )
    return (together, *each)


def mixed(by_label: ByLabel, weights: Mapping[str, int], seed: Sequence[int]) -> np.ndarray:
    """As many rows as there are with each label in proportion to its weight, drawn without replacement: (n, d).

    The scarcest label gives all its rows and the others fewer. A label that has no rows is left out, and so is one
    without a weight.

    Args:
        by_label: label -> its rows, shape (n, d) each.
        weights: label -> rows of the private set.
        seed: which rows are drawn.

    >>> rows = {"a": np.zeros((6, 2)), "b": np.ones((3, 2))}
    >>> [int((mixed(rows, {"a": 40, "b": 80}, (0,)) == value).all(axis=1).sum()) for value in (0, 1)]
    [1, 3]
    """
    rng = np.random.default_rng(seed)
    present = {label: rows for label, rows in by_label.items() if len(rows) and weights.get(label, 0)}
    if not present:
        return np.zeros((0, 1))
    scarcest = min(present, key=lambda label: len(present[label]) / weights[label])
    rows, weight = len(present[scarcest]), weights[scarcest]
    drawn = {label: rng.permutation(len(own))[: rows * weights[label] // weight] for label, own in present.items()}
    return np.concatenate([present[label][np.sort(chosen)] for label, chosen in drawn.items()])


def _turnout(label: str, counts: np.ndarray, one: EvolvedRound) -> Turnout:
    return Turnout(
        label=label,
        candidates=len(counts),
        mean=float(counts.mean()),
        variance=float(counts.var()),
        selected=len(one.parents[label]),
        readable=int(one.readable[label].sum()),
    )


def _parents(one: EvolvedRound) -> dict[str, np.ndarray]:
    return {label: vectors[one.parents[label]] for label, vectors in one.population.items()}


def _pooled(by_label: ByLabel) -> np.ndarray:
    return np.concatenate(list(by_label.values())) if by_label else np.zeros((0, 1))
