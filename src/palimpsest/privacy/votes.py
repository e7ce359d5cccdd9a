"""Nearest-neighbour votes: private records say which candidates are like them, once or round after round."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from dp_accounting import DpEvent, GaussianDpEvent, NonPrivateDpEvent, SelfComposedDpEvent

from palimpsest import validate
from palimpsest.errors import LedgerError
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.kept import Kept
from palimpsest.privacy.limited_domain import LimitedDomain
from palimpsest.privacy.means import Encode, embedded
from palimpsest.privacy.nearest import nearest
from palimpsest.privacy.query import Meter, registered
from palimpsest.privacy.rows import PrivateRow

_MOST_SIGMA = 2.0**20  # up to here noise in votes fits into 64 bits, whatever the number of neighbours
_MOST_NEIGHBOURS = 2**20

Counts: TypeAlias = dict[str, list[int]]


@dataclass(frozen=True, eq=False)
class Slate:
    """Candidates to vote for: public, or made from noisy answers alone.

    Attributes:
        texts: label -> its candidates; the one label "" where the task has none. Empty where candidates are no texts.
        vectors: label -> what stands for each of them, shape (candidates, d), of any length.
    """

    texts: Mapping[str, Sequence[str]]
    vectors: Mapping[str, np.ndarray]

    def __post_init__(self) -> None:
        if self.texts and self.texts.keys() != self.vectors.keys():
            raise ValueError(f"got candidates of {sorted(self.texts)!r} and vectors of {sorted(self.vectors)!r}")
        for label, vectors in self.vectors.items():
            count = len(self.texts[label]) if self.texts else len(vectors)
            if vectors.ndim != 2 or len(vectors) != count:
                raise ValueError(f"got {count} candidates and vectors of shape {vectors.shape!r}")


@dataclass(frozen=True)
class Round:
    """One finished round.

    Attributes:
        texts: label -> the candidates that were voted for; empty where they are no texts.
        counts: label -> what the ballot answered. A `Ballot`: noisy counts in the candidates' order, whole votes, so
            each record gave up to `neighbours` of them. A `DomainBallot`: indices of the candidates picked.
    """

    texts: Mapping[str, Sequence[str]]
    counts: Counts


@dataclass(frozen=True)
class Ballot:
    """How one vote is taken; the part that `Vote` and `VoteRounds` share.

    Guarantee: a record votes for the `neighbours` candidates of its own label that are nearest by cosine, one vote
    each; so adding or removing it moves at most that many counts by one, all labels together: L2 sensitivity
    sqrt(neighbours). The noise is N(0, neighbours sigma^2) on every count, which makes one Gaussian mechanism of
    sensitivity 1 and standard deviation sigma (Dwork and Roth 2014, Theorem A.1; exact delta: Balle and Wang 2018,
    Theorem 8). It is rounded to whole votes, which, as counts are whole, is rounding the noisy count, ties aside: so no
    low bit of a float tells the count (post-processing). What a record is nearest to does not depend on the other
    records, bit for bit (`nearest`), as far as `encode` gives a text its vector whatever comes with it. A record whose
    vector is zero or not finite, or whose label has no candidates, does not vote. Running time and memory are not
    covered. With sigma 0 the answer is exact and not private: for reference runs.

    Attributes:
        encode: a public encoder, n texts -> (n, d).
        neighbours: votes of each record, k.
        sigma: standard deviation of the noise in units of one record's whole vote, which has length 1: 1 / sqrt(k) for
            each of k candidates.
    """

    encode: Encode
    neighbours: int
    sigma: float

    def __post_init__(self) -> None:
        validate.in_range(1, _MOST_NEIGHBOURS, neighbours=self.neighbours)
        validate.in_range(0.0, _MOST_SIGMA, sigma=self.sigma)

    @property
    def noisy(self) -> bool:
        """False where the answer is exact."""
        return self.sigma > 0

    @property
    def std(self) -> float:
        """Of the noise on each count, sqrt(k) sigma; the last factor covers the rounding of root and product."""
        return math.sqrt(self.neighbours) * self.sigma * (1.0 + 2.0**-50)

    @property
    def own_delta(self) -> float:
        """None: a Gaussian's delta is in its event."""
        return 0.0

    def event(self) -> DpEvent:
        """A Gaussian, or a non-private event where sigma is 0."""
        return GaussianDpEvent(self.sigma) if self.noisy else NonPrivateDpEvent()

    def held(self, rows: Mapping[str, np.ndarray], slate: Slate, noise: NoiseSource) -> Counts:
        """Noisy counts of one vote. `rows` holds the records' vectors by label."""
        return {label: self._counts(rows.get(label), vectors, noise) for label, vectors in slate.vectors.items()}

    def _counts(self, rows: np.ndarray | None, candidates: np.ndarray, noise: NoiseSource) -> list[int]:
        counts = _votes(rows, candidates, self.neighbours)
        drawn = noise.whole_normal(len(candidates), self.std)
        return (counts + drawn).tolist()

    def vectors(self, rows: Sequence[PrivateRow], labels: Sequence[str]) -> dict[str, np.ndarray]:
        """The records' vectors by label; those of other labels are left out."""
        return _by_label(self.encode, rows, labels)


@dataclass(frozen=True)
class DomainBallot:
    """A vote that answers which candidates have the most votes, and no count; for `VoteRounds`.

    Guarantee: a record votes for the one candidate of its own label that is nearest by cosine, so adding or removing it
    adds or takes one vote of one candidate of one label, which is the adjacency of `LimitedDomain`. That mechanism runs
    once for each label, on fresh noise. With and without a record, the answers of all labels but its own have the same
    law and are independent of its label's: the divergence and the delta of the whole vote are those of one call, for
    every record (parallel composition). A label without records is asked, too, so an answer does not tell that there
    are some. What `Ballot` says of nearest candidates, of records that do not vote and of what is not covered holds
    here, too. With scale 0 the answer is exact and not private: for reference runs.

    Attributes:
        encode: a public encoder, n texts -> (n, d).
        mechanism: how candidates are picked by their votes.
    """

    encode: Encode
    mechanism: LimitedDomain

    def __post_init__(self) -> None:
        _check_kind(self.mechanism, LimitedDomain)

    @property
    def noisy(self) -> bool:
        """False where the answer is exact."""
        return self.mechanism.scale > 0

    @property
    def own_delta(self) -> float:
        """What one vote adds to delta beside its event."""
        return self.mechanism.own_delta

    def event(self) -> DpEvent:
        """That of one call of the mechanism."""
        return self.mechanism.event()

    def held(self, rows: Mapping[str, np.ndarray], slate: Slate, noise: NoiseSource) -> Counts:
        """Label -> indices of the candidates picked, in noisy order. The noise comes from OpenDP's own source."""
        counts = {label: _votes(rows.get(label), vectors, 1).tolist() for label, vectors in slate.vectors.items()}
        return {label: self.mechanism.pick(own) for label, own in counts.items()}

    def vectors(self, rows: Sequence[PrivateRow], labels: Sequence[str]) -> dict[str, np.ndarray]:
        """The records' vectors by label; those of other labels are left out."""
        return _by_label(self.encode, rows, labels)


@registered
@dataclass(frozen=True)
class Vote:
    """One noisy vote over a fixed slate: `vote_select`, for the candidates of any method.

    Guarantee: that of `Ballot`, once.

    Attributes:
        ballot: how the vote is taken.
        slate: what is voted for.
        name: the charge's name.
    """

    ballot: Ballot
    slate: Slate
    name: str = "vote"

    def __post_init__(self) -> None:
        _check_kind(self.ballot, Ballot)

    @property
    def stores_answer(self) -> bool:
        """A noisy answer is kept for a retry, which then costs nothing; an exact one is not private and is not kept."""
        return self.ballot.noisy

    def event(self) -> DpEvent:
        """That of one vote."""
        return self.ballot.event()

    def run(self, rows: Sequence[PrivateRow], noise: NoiseSource) -> Counts:
        """Label -> noisy counts in the order of its candidates."""
        vectors = self.ballot.vectors(rows, tuple(self.slate.vectors))
        return self.ballot.held(vectors, self.slate, noise)


@registered
@dataclass(frozen=True)
class VoteRounds:
    """T votes, each over candidates that are made from the noisy answers of those before.

    Guarantee: T adaptive compositions of one vote (`Ballot` or `DomainBallot`). `propose` is handed the finished
    rounds, which are noisy answers and synthetic texts, and nothing else; it makes its slate before the meter counts
    the round, and the meter counts it before a record is compared. A round that a stopped attempt began and did not
    store is lost: it stays counted and its counts are nowhere. All attempts together hold at most T votes.

    Records are encoded before the first round is counted; nothing of that leaves. Exact answers are not kept.
    The ledger does not store the answer, which holds every candidate of every round: a retry finds it in `checkpoints`.

    Attributes:
        ballot: how each vote is taken.
        labels: the labels that have candidates.
        first: the first slate.
        propose: finished rounds -> the next slate.
        rounds: T.
        checkpoints: where a stopped run leaves its finished rounds; None keeps nothing.
        name: the charge's name.
    """

    ballot: Ballot | DomainBallot
    labels: tuple[str, ...]
    first: Slate
    propose: Callable[[Sequence[Round]], Slate]
    rounds: int
    checkpoints: Path | None = None
    name: str = "vote rounds"

    def __post_init__(self) -> None:
        _check_kind(self.ballot, Ballot, DomainBallot)

    @property
    def steps(self) -> int:
        """T."""
        return self.rounds

    @property
    def own_delta(self) -> float:
        """What T votes add to delta beside their event."""
        return self.rounds * self.ballot.own_delta

    def event(self) -> DpEvent:
        """T votes, composed."""
        return SelfComposedDpEvent(self.ballot.event(), self.rounds)

    def run(self, rows: Sequence[PrivateRow], noise: NoiseSource) -> list[dict[str, Any]]:
        """Not without a meter.

        Raises:
            LedgerError: always: each round is counted before it is held.
        """
        raise LedgerError("Rounds of votes are steps that a meter counts.", "Ask for them through a view.")

    def run_steps(self, rows: Sequence[PrivateRow], noise: NoiseSource, meter: Meter) -> list[dict[str, Any]]:
        """The finished rounds, each {"texts", "counts"} of `Round`; fewer than T where a stopped attempt lost some."""
        kept = Kept(self.checkpoints if self.ballot.noisy else None, meter)
        done = [Round(**body) for body in kept.load() or []]
        vectors = self.ballot.vectors(rows, self.labels) if meter.begun < meter.limit else {}
        while meter.begun < meter.limit:
            slate = self.propose(done) if done else self.first
            meter.begin(1)
            done.append(Round(dict(slate.texts), self.ballot.held(vectors, slate, noise)))
            kept.save([_body(one) for one in done])
        return [_body(one) for one in done]


def device() -> torch.device:
    """Where votes are counted: the answer is the same everywhere."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _votes(rows: np.ndarray | None, candidates: np.ndarray, neighbours: int) -> np.ndarray:
    """How many rows have each candidate among their nearest: int64 (candidates,), private."""
    counts = np.zeros(len(candidates), dtype=np.int64)
    if rows is not None and len(rows) and len(candidates):
        chosen = nearest(rows, candidates, neighbours, device())  # (rows, neighbours), -1 for none
        counts += np.bincount(chosen[chosen >= 0], minlength=len(candidates))
    return counts


def _by_label(encode: Encode, rows: Sequence[PrivateRow], labels: Sequence[str]) -> dict[str, np.ndarray]:
    texts: dict[str, list[str]] = {label: [] for label in labels}
    for row in rows:
        texts.get(row.label or "", []).append(row.text)
    return {label: embedded(encode, own) for label, own in texts.items() if own}


def _check_kind(part: object, *known: type) -> None:
    """The guarantee is that of these classes: another one, a subclass too, could answer anything."""
    if type(part) not in known:
        raise LedgerError(
            f"A vote cannot be taken by a {type(part).__name__}.",
            f"Use {' or '.join(kind.__name__ for kind in known)}.",
        )


def _body(one: Round) -> dict[str, Any]:
    return {"texts": {label: list(texts) for label, texts in one.texts.items()}, "counts": one.counts}
