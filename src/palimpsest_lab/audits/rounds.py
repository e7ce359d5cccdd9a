"""Measures each round of evolution: its distance from the private rows, the spread of its votes, its number of parents.

Private zone: every value but the number of parents is a function of private rows. The measurements are those of Zhao et
al. 2024 (figures 3 and 4): the Wasserstein distance to the private embeddings, and the variance of the votes beside the
size of the parent set. Votes that spread evenly over the candidates do not distinguish them.

Two samples of one distribution are some distance apart by chance alone, and the smaller they are the larger it is. So
each distance is reported beside its floor: the same distance between training rows and the holdout, which differ by
fair coins only, at the same number of rows. At the floor a round is as near as rows that were never seen. The floor is
one draw of chance, and rows near a label's centre are below that of the Wasserstein distance: a value below it is no
sign of copies.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from palimpsest import validate
from palimpsest.audit.measures import energy, frechet, wasserstein
from palimpsest.devices import exact_device
from palimpsest.plain import At, Plain, PlainFile
from palimpsest.privacy.nearest import find_nearest
from palimpsest.records.evolved import EvolvedRound

_FEWEST = 10  # parents: the distance of fewer says nothing
_MATCHED = 1000  # rows of either set that are matched, at most: the time grows with the cube

MEASURES = {"frechet": frechet, "energy": energy, "wasserstein": wasserstein}

ByLabel = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Distance(Plain):
    """The distance of a set of texts from the training rows."""

    name: str  # of the measure: frechet, energy or wasserstein
    value: float  # mean over random subsets of n rows of each set
    floor: float  # the same between training rows and the holdout
    n: int  # rows of either set that each value rests on; where the holdout is small, its number of rows


Distances = tuple[Distance, ...]


@dataclass(frozen=True)
class Turnout(Plain):
    """The spread of the private rows' exact votes over a round's candidates, and the selection from them."""

    label: str | None  # whose candidates; None for all labels together
    candidates: int  # how many were voted for
    mean: float  # votes of a candidate, on average
    # of the candidates' votes around the mean of their label; about equal to the mean where only chance spreads them.
    variance: float
    selected: int  # parents that the noisy votes selected
    readable: int  # of these, parents that passed the readability check


@dataclass(frozen=True)
class EvolutionAudit(PlainFile):
    """Private zone: the rounds of one evolution, the first one first."""

    # each round's distances of the candidates from the private rows.
    populations: Annotated[tuple[Distances, ...], At("rounds")]
    parents: tuple[Distances, ...]  # those of what was selected; none where too few were, or nobody told them apart
    votes: tuple[tuple[Turnout, ...], ...]  # all labels together, then each; none where exact votes are not known

    @classmethod
    def of_texts(cls, populations: Sequence[Distances]) -> "EvolutionAudit":
        """Make an audit of rounds of which only the texts are known."""
        unknown = ((),) * len(populations)
        return cls(tuple(populations), unknown, unknown)


def measure_rounds(
    rounds: Sequence[np.ndarray],
    train: np.ndarray,
    holdout: np.ndarray,
    seed: int,
    *,
    most: int = 2000,
    repeats: int = 3,
) -> list[Distances]:
    """The distances of each round's texts from the training rows, by all `MEASURES`, at one n for all rounds.

    n is the size of the smallest set, at most `most`, and for the Wasserstein distance at most 1000. The k-th subset of
    the training rows is the same for all rounds and for the floor, so differences between rounds come from the written
    texts and not from the compared rows.

    Args:
        rounds: embeddings of each round's texts, shape (rows, d) each.
        train: embeddings of training rows, shape (N, d).
        holdout: embeddings of the holdout, shape (M, d).
        most: most rows of a subset; the time grows with its square.
        repeats: number of pairs of subsets that each value is averaged over.

    Raises:
        DataError: there are too few rows.
        ModelError: an embedding is not finite.
    """
    validate.require_positive(rounds=len(rounds), most=most, repeats=repeats)
    n = min(most, len(train), len(holdout), *(len(rows) for rows in rounds))
    sizes = {name: min(n, _MATCHED) if name == "wasserstein" else n for name in MEASURES}

    def mean(name: str, rows: np.ndarray) -> float:
        """Average the distance over random subsets; a set of n rows is taken whole."""
        pairs = (
            (_subset(rows, sizes[name], (seed, k, 0)), _subset(train, sizes[name], (seed, k, 1)))
            for k in range(repeats)
        )
        return float(np.mean([MEASURES[name](*pair) for pair in pairs]))

    floors = {name: mean(name, holdout) for name in MEASURES}
    return [tuple(Distance(name, mean(name, rows), floors[name], sizes[name]) for name in MEASURES) for rows in rounds]


def _subset(rows: np.ndarray, n: int, seed: tuple[int, ...]) -> np.ndarray:
    return rows[np.sort(np.random.default_rng(seed).choice(len(rows), n, replace=False))]


def audit_rounds(rounds: Sequence[EvolvedRound], train: ByLabel, holdout: ByLabel, seed: int) -> EvolutionAudit:
    """Measure every round; all populations at one n, and all parents at another n, that of the fewest.

    The compared candidates of each label are in proportion to its share of the training rows (`draw_mixed`): a
    population holds equally many of every label, and would differ from private rows by that alone.

    `train` and `holdout` are the embeddings of each label's rows, (N, d) and (M, d).

    Raises:
        DataError: there are too few rows.
        ModelError: an embedding is not finite.
    """
    weights = {label: len(rows) for label, rows in train.items()}
    private, others = _pool(train), _pool(holdout)
    populations = [draw_mixed(one.population, weights, (seed, number, 0)) for number, one in enumerate(rounds)]
    parents = [draw_mixed(_parents(one), weights, (seed, number, 1)) for number, one in enumerate(rounds)]
    enough = [number for number, rows in enumerate(parents) if len(rows) >= _FEWEST]
    measured = measure_rounds([parents[number] for number in enough], private, others, seed) if enough else []
    of_parents = dict(zip(enough, measured, strict=True))
    return EvolutionAudit(
        populations=tuple(measure_rounds(populations, private, others, seed)),
        parents=tuple(of_parents.get(number, ()) for number in range(len(rounds))),
        votes=tuple(turnouts(one, train) for one in rounds),
    )


def exact_votes(rows: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Count the rows (n, d) nearest to each candidate (m, d) by cosine, int64 (m,), without noise. Private zone."""
    chosen = find_nearest(rows, candidates, 1, exact_device())
    return np.bincount(chosen[chosen >= 0], minlength=len(candidates))


def turnouts(one: EvolvedRound, train: ByLabel) -> tuple[Turnout, ...]:
    """Return the turnout of all labels together, then that of each; every label's rows vote among its own candidates.

    For all labels together, the variance is the mean of the labels' variances, each weighted by its candidates.
    """
    votes = {
        label: exact_votes(train[label], candidates) if label in train else np.zeros(len(candidates), dtype=np.int64)
        for label, candidates in one.population.items()
        if len(candidates)
    }
    each = [_turnout(label, counts, one) for label, counts in votes.items()]
    if not each:
        return ()
    candidates = [label.candidates for label in each]
    together = Turnout(
        label=None,
        candidates=sum(candidates),
        mean=float(np.average([label.mean for label in each], weights=candidates)),
        variance=float(np.average([label.variance for label in each], weights=candidates)),
        selected=sum(label.selected for label in each),
        readable=sum(label.readable for label in each),
    )
    return (together, *each)


def draw_mixed(by_label: ByLabel, weights: Mapping[str, int], seed: Sequence[int]) -> np.ndarray:
    """As many rows as there are with each label in proportion to its weight, drawn without replacement: (n, d).

    The scarcest label gives all its rows and the others fewer. A label that has no rows is left out, and so is one
    without a weight.

    >>> rows = {"a": np.zeros((6, 2)), "b": np.ones((3, 2))}
    >>> [int((draw_mixed(rows, {"a": 40, "b": 80}, (0,)) == value).all(axis=1).sum()) for value in (0, 1)]
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


def _pool(by_label: ByLabel) -> np.ndarray:
    return np.concatenate(list(by_label.values())) if by_label else np.zeros((0, 1))
