"""Nearest-neighbour votes: private records vote for the candidates most like them, once or round after round."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from dp_accounting.dp_event import DpEvent, GaussianDpEvent, NonPrivateDpEvent, SelfComposedDpEvent

from palimpsest import validate
from palimpsest.devices import exact_device
from palimpsest.errors import LedgerError
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.limited_domain import LimitedDomain
from palimpsest.privacy.means import Encode, embed_texts, encode_ahead
from palimpsest.privacy.nearest import find_nearest
from palimpsest.privacy.query import Kept, Meter, Stored, bounds_persons, mark_of, plain_digest, register_query
from palimpsest.privacy.rows import PrivateRow, group_by_person, select_one_each
from palimpsest.records.schema import PublicSchema

_MOST_SIGMA = 2.0**20  # up to here noise in votes fits into 64 bits, whatever the number of neighbours
_MOST_NEIGHBOURS = 2**20
_PARTS = 2**16  # of a vote, where a person's rows share one
_MARGIN = 1.0 - 2.0**-40  # more than a square root and three products lose

Counts: TypeAlias = Mapping[str, Sequence[float]]


@dataclass(frozen=True, eq=False)
class Slate:
    """Candidates to vote for: public, or made only from noisy answers.

    Attributes:
        texts: label -> its candidates; the one label "" where the task has none. Empty where candidates are no texts.
        vectors: label -> the vectors of its candidates, shape (candidates, d), of any length.
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

    @property
    def plain(self) -> Mapping[str, Any]:
        """The texts that identify the candidates, or their vectors where they are no texts."""
        return self.texts or self.vectors

    @property
    def digest(self) -> str:
        """The digest of `plain`: equal only for the same candidates."""
        return plain_digest(self.plain)


@dataclass(frozen=True)
class Round:
    """One finished round.

    Attributes:
        texts: label -> the candidates that were voted for; empty where they are no texts.
        counts: label -> what the ballot answered. A `Ballot`: noisy counts in the candidates' order, in votes: whole
            ones, or floats of whole parts where a person's rows share a vote (`parts_of`); each unit gave up to
            `neighbours` of them. A `DomainBallot`: indices of the candidates picked.
        slate: digest of the candidates.
    """

    texts: Mapping[str, Sequence[str]]
    counts: Counts
    slate: str = ""


@dataclass(frozen=True, eq=False)
class Voters:
    """The rows of one label that vote, private.

    Attributes:
        vectors: the rows' vectors, shape (n, d), of any length.
        units: the unit of privacy behind each, numbered over all labels, int64 (n,).
    """

    vectors: np.ndarray
    units: np.ndarray


@dataclass(frozen=True)
class Ballot:
    """The way in which one vote is taken, shared by `Vote` and `VoteRounds`.

    Guarantee: adding or removing one unit, a record or a person with all their rows, moves the counts of all labels
    together by at most sqrt(neighbours) votes in L2. A row votes for the `neighbours` candidates of its own label that
    are nearest by cosine, one vote each. The votes of a unit's rows are added over all labels; where that is longer
    than sqrt(neighbours) it is shortened to it in float64 and rounded towards zero to whole parts of a vote, which
    never lengthens (`_votes`). One row is never shortened. The noise is N(0, neighbours sigma^2) on every count, which
    makes one Gaussian mechanism of sensitivity 1 and standard deviation sigma (Dwork and Roth 2014, Theorem A.1; exact
    delta: Balle and Wang 2018, Theorem 8). It is rounded to whole parts, which, as counts are whole parts, is rounding
    the noisy count, ties aside: so no low bit of a float tells the count (post-processing). What a row is nearest to
    does not depend on the others, bit for bit (`nearest`), as far as `encode` gives a text its vector whatever comes
    with it. A row whose vector is zero or not finite, or whose label has no candidates, does not vote. Running time and
    memory are not covered. With sigma 0 the answer is exact and not private: for reference runs.

    A person's shortened votes are in proportion to the mean of their rows' and, up to a part, never fewer, so they say
    at least as much under the same noise.

    Attributes:
        encode: a public encoder, n texts -> (n, d).
        neighbours: votes of each row, k.
        sigma: standard deviation of the noise in units of one unit's whole vote, which has length 1: 1 / sqrt(k) for
            each of k candidates.
        parts: public; whole parts of a vote that are counted (`parts_of`). The guarantee holds for each number.
    """

    encode: Encode
    neighbours: int
    sigma: float
    parts: int = 1

    def __post_init__(self) -> None:
        validate.require_in_range(1, _MOST_NEIGHBOURS, neighbours=self.neighbours)
        validate.require_in_range(1, _PARTS, parts=self.parts)
        validate.require_in_range(0.0, _MOST_SIGMA, sigma=self.sigma)

    @property
    def noisy(self) -> bool:
        """Whether votes are counted with noise."""
        return self.sigma > 0

    @property
    def std(self) -> float:
        """The standard deviation of the noise on each count, sqrt(k) sigma; the last factor covers rounding."""
        return math.sqrt(self.neighbours) * self.sigma * (1.0 + 2.0**-50)

    @property
    def own_delta(self) -> float:
        """Zero: a Gaussian's delta is in its event."""
        return 0.0

    def event(self) -> DpEvent:
        return GaussianDpEvent(self.sigma) if self.noisy else NonPrivateDpEvent()

    def held(self, rows: Mapping[str, Voters], slate: Slate, noise: NoiseSource) -> Counts:
        """Return the noisy counts of one vote. `rows` holds the voters by label."""
        counts = _votes(rows, slate, self.neighbours, self.parts)
        return {label: self._add_noise(own, noise) for label, own in counts.items()}

    def _add_noise(self, counts: np.ndarray, noise: NoiseSource) -> list[float]:
        """Turn counts in parts, int64, into noisy counts in votes, which are int where a part is a vote."""
        noisy = counts + noise.whole_normal(len(counts), self.std * self.parts)
        return (noisy / self.parts if self.parts > 1 else noisy).tolist()

    def vectors(self, rows: Sequence[PrivateRow], labels: Sequence[str]) -> dict[str, Voters]:
        """Return the voters by label; rows of other labels are left out."""
        return _embed_by_label(self.encode, self.units(rows), labels)

    def units(self, rows: Sequence[PrivateRow]) -> list[list[PrivateRow]]:
        """Return the rows that may vote by unit: all of them."""
        return group_by_person(rows)


@dataclass(frozen=True)
class DomainBallot:
    """A vote that tells which candidates have the most votes, without counts; for `VoteRounds`.

    Guarantee: a record votes for the one candidate of its own label that is nearest by cosine. Of a person with several
    rows one votes, chosen by a keyed hash of that person's rows alone, over all their labels (`one_each`). So adding or
    removing a unit, a record or a person with all their rows, adds or takes one vote of one candidate of one label,
    which is the adjacency of `LimitedDomain`. That mechanism runs once for each label, on fresh noise. With and without
    a unit, the answers of all labels but that of its one row have the same law and are independent of that label's: the
    divergence and the delta of the whole vote are those of one call, for every unit (parallel composition). A label
    without rows is asked, too, so an answer does not tell that there are some. What `Ballot` says of nearest
    candidates, of rows that do not vote and of what is not covered holds here, too. With scale 0 the answer is exact
    and not private: for reference runs.

    Attributes:
        encode: a public encoder, n texts -> (n, d).
    """

    encode: Encode
    mechanism: LimitedDomain

    def __post_init__(self) -> None:
        _check_kind(self.mechanism, LimitedDomain)

    @property
    def noisy(self) -> bool:
        """Whether the picks are made with noise."""
        return self.mechanism.scale > 0

    @property
    def own_delta(self) -> float:
        """The delta that one vote adds beside its event."""
        return self.mechanism.own_delta

    def event(self) -> DpEvent:
        return self.mechanism.event()

    def held(self, rows: Mapping[str, Voters], slate: Slate, noise: NoiseSource) -> Counts:
        """Return label -> indices of the candidates picked, in noisy order, with noise from OpenDP's own source."""
        counts = _votes(rows, slate, 1, 1)
        return {label: self.mechanism.pick(own.tolist()) for label, own in counts.items()}

    def vectors(self, rows: Sequence[PrivateRow], labels: Sequence[str]) -> dict[str, Voters]:
        """Return the voters by label, one row of each unit; rows of other labels are left out."""
        return _embed_by_label(self.encode, self.units(rows), labels)

    def units(self, rows: Sequence[PrivateRow]) -> list[list[PrivateRow]]:
        """Return the rows that may vote by unit: one each."""
        return [[row] for row in select_one_each(rows)]


@bounds_persons
@register_query
@dataclass(frozen=True)
class Vote(Stored):
    """One noisy vote over a fixed slate: `vote_select`, for the candidates of any method.

    Guarantee: that of `Ballot`, once.
    """

    ballot: Ballot
    slate: Slate
    name: str = "vote"

    def __post_init__(self) -> None:
        _check_kind(self.ballot, Ballot)

    @property
    def subject(self) -> object:
        """The candidates, and the space in which they are near to rows."""
        return self.slate.plain, mark_of(self.ballot.encode)

    def event(self) -> DpEvent:
        return self.ballot.event()

    def prepare(self, rows: Sequence[PrivateRow]) -> None:
        """Encode the voters, for an encoder that keeps what it encoded."""
        _encode_ahead(self.ballot, rows, tuple(self.slate.vectors))

    def run(self, rows: Sequence[PrivateRow], noise: NoiseSource) -> Counts:
        """Return label -> noisy counts in the order of its candidates."""
        vectors = self.ballot.vectors(rows, tuple(self.slate.vectors))
        return self.ballot.held(vectors, self.slate, noise)


@bounds_persons
@register_query
@dataclass(frozen=True)
class VoteRounds:
    """T votes, each over candidates made from the noisy answers of earlier votes.

    Guarantee: T adaptive compositions of one vote (`Ballot` or `DomainBallot`). `propose` is handed the finished
    rounds, which are noisy answers and synthetic texts, and nothing else; it makes its slate before the meter counts
    the round, and the meter counts it before a record is compared. A round that a stopped attempt began and did not
    store is lost: it stays counted and its counts are nowhere. All attempts together hold at most T votes.

    Records are encoded before the first round is counted; nothing of that leaves. Exact answers are not kept.
    A stopped run finds its finished rounds in `checkpoints`; once all are held, the answer is stored like any other.

    Attributes:
        labels: the labels that have candidates.
        first: the first slate.
        propose: finished rounds -> the next slate.
        rounds: T.
        checkpoints: where a stopped run leaves its finished rounds; None keeps nothing.
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
        """How many rounds one charge pays for."""
        return self.rounds

    @property
    def own_delta(self) -> float:
        """The delta that T votes add beside their event."""
        return self.rounds * self.ballot.own_delta

    @property
    def subject(self) -> object:
        """The first candidates, and the space in which they are near to rows."""
        return self.labels, self.first.digest, mark_of(self.ballot.encode)

    @property
    def stores_answer(self) -> bool:
        """Whether the rounds are kept for a retry: noisy ones are; exact ones are not private."""
        return self.ballot.noisy

    def event(self) -> DpEvent:
        return SelfComposedDpEvent(self.ballot.event(), self.rounds)

    def prepare(self, rows: Sequence[PrivateRow]) -> None:
        """Encode the voters, for an encoder that keeps what it encoded."""
        _encode_ahead(self.ballot, rows, self.labels)

    def run(self, rows: Sequence[PrivateRow], noise: NoiseSource) -> list[dict[str, Any]]:
        """Refuse to run without a meter.

        Raises:
            LedgerError: always: each round is counted before it is held.
        """
        raise LedgerError("Rounds of votes are steps that a meter counts.", "Ask for them through a view.")

    def run_steps(self, rows: Sequence[PrivateRow], noise: NoiseSource, meter: Meter) -> list[dict[str, Any]]:
        """Return the finished rounds, each a `Round` as a mapping; fewer than T where a stopped attempt lost some.

        Raises:
            LedgerError: every round was begun by stopped attempts and none was finished.
        """
        kept = Kept(self.checkpoints if self.ballot.noisy else None, meter)
        done = [Round(**body) for body in kept.load() or []]
        vectors = self.ballot.vectors(rows, self.labels) if meter.begun < meter.limit else {}
        while meter.begun < meter.limit:
            slate = self.propose(done) if done else self.first
            meter.begin(1)
            done.append(Round(dict(slate.texts), self.ballot.held(vectors, slate, noise), slate.digest))
            kept.save([_body(one) for one in done])
        if not done:
            raise LedgerError(
                "Every round of votes was begun by an attempt that was stopped before it stored one.",
                "Run again: the rounds are charged again.",
            )
        return [_body(one) for one in done]


def parts_of(schema: PublicSchema) -> int:
    """Return into how many parts a vote is split: one where the unit of privacy is a record; else many."""
    return 1 if schema.unit == "record" else _PARTS


def _votes(rows: Mapping[str, Voters], slate: Slate, neighbours: int, parts: int) -> dict[str, np.ndarray]:
    """Count what the units give to each candidate, in whole parts of a vote: label -> int64 (candidates,), private.

    Guarantee: one unit's numbers, over all labels, are a function of its rows and of the slate alone and have an L2
    length of at most sqrt(neighbours) parts: its squared length in votes is a whole number, so whether it is above
    `neighbours` is decided exactly, and what is shortened is then cut towards zero.
    """
    ends = np.cumsum([len(candidates) for candidates in slate.vectors.values()], dtype=np.int64)
    units, places = [], []  # of each vote that a row casts; places are numbered over all labels
    for (label, candidates), end in zip(slate.vectors.items(), ends, strict=True):
        if label in rows and len(candidates):
            # (rows, neighbours), -1 for none; the device does not show in the result
            chosen = find_nearest(rows[label].vectors, candidates, neighbours, exact_device())
            row, turn = np.nonzero(chosen >= 0)
            units.append(rows[label].units[row])
            places.append(chosen[row, turn] + (end - len(candidates)))
    counts = np.zeros(ends[-1] if len(ends) else 0, dtype=np.int64)
    if units:
        owners, at, given = _count_pairs(np.concatenate(units), np.concatenate(places), len(counts))
        np.add.at(counts, at, _clip_votes(owners, given, neighbours, parts))
    return dict(zip(slate.vectors, np.split(counts, ends), strict=False))  # behind the last end is nothing


def _count_pairs(units: np.ndarray, places: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each pair of unit and candidate that occur together, and how many votes the unit gives the candidate."""
    pairs, given = np.unique(units * count + places, return_counts=True)
    return pairs // count, pairs % count, given


def _clip_votes(owners: np.ndarray, given: np.ndarray, neighbours: int, parts: int) -> np.ndarray:
    """Return votes in whole parts, a unit's shortened unless their squared length is at most `neighbours`."""
    squares = np.bincount(owners, weights=given**2)  # whole numbers, exact in float64
    shares = np.where(squares > neighbours, np.sqrt(neighbours / np.maximum(squares, 1.0)) * _MARGIN, 1.0)
    return np.trunc(given * (parts * shares[owners])).astype(np.int64)


def _encode_ahead(ballot: Ballot | DomainBallot, rows: Sequence[PrivateRow], labels: Sequence[str]) -> None:
    own = (row for unit in ballot.units(rows) for row in unit)
    encode_ahead(ballot.encode, [row.text for row in own if (row.label or "") in labels])


def _embed_by_label(encode: Encode, units: Sequence[Sequence[PrivateRow]], labels: Sequence[str]) -> dict[str, Voters]:
    texts: dict[str, list[str]] = {label: [] for label in labels}
    owners: dict[str, list[int]] = {label: [] for label in labels}
    for unit, rows in enumerate(units):
        for row in rows:
            if (row.label or "") in texts:
                texts[row.label or ""].append(row.text)
                owners[row.label or ""].append(unit)
    return {
        label: Voters(embed_texts(encode, own), np.array(owners[label], dtype=np.int64))
        for label, own in texts.items()
        if own
    }


def _check_kind(part: object, *known: type) -> None:
    """Refuse any class but these, even a subclass: the guarantee is theirs, and others could answer anything."""
    if type(part) not in known:
        raise LedgerError(
            f"A vote cannot be taken by a {type(part).__name__}.",
            f"Use {' or '.join(kind.__name__ for kind in known)}.",
        )


def _body(one: Round) -> dict[str, Any]:
    texts = {label: list(own) for label, own in one.texts.items()}
    return {"texts": texts, "counts": one.counts, "slate": one.slate}
