"""`evolve`: private evolution (Xie et al. 2024, Aug-PE). Records vote for texts that others write, and never leave."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from dp_accounting import ComposedDpEvent, DpEvent, GaussianDpEvent, NonPrivateDpEvent, SelfComposedDpEvent

from palimpsest.errors import LedgerError, ParamsError
from palimpsest.methods.evolve.author import Author
from palimpsest.methods.evolve.settings import EvolveSettings
from palimpsest.methods.evolve.steps import Steps
from palimpsest.methods.select.fit import ClassSums
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.shares import divided, label_shares, planned_histogram, whole_rho
from palimpsest.privacy.accounting import calibrate_noise, gdp_sigma
from palimpsest.privacy.means import ClassMeans, Encode
from palimpsest.privacy.nearest import require_exact
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.privacy.query import View
from palimpsest.privacy.votes import Ballot, Round, VoteRounds, device, parts_of
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema

_MARGIN = 1.0 + 1e-9  # what rounding may add up to
_FAINT = 1.0  # votes of an average candidate, in standard deviations of its noise
_ROUNDS = "vote rounds"


@dataclass(frozen=True)
class Evolved:
    """What the rounds left.

    Attributes:
        rounds: the candidates that each finished round selected, in order; the last is the result.
        sums: noisy sum of each label's embeddings, where they were asked for.
    """

    rounds: tuple[tuple[Record, ...], ...]
    sums: ClassSums | None = None

    @property
    def records(self) -> tuple[Record, ...]:
        """The synthetic rows."""
        return self.rounds[-1]


@dataclass(frozen=True)
class Noise:
    """Standard deviations of a plan's noise, in units of one unit of privacy; 0 for a reference.

    Attributes:
        votes: of each round's counts.
        means: of the class means' coordinates; None where they are not asked for.
    """

    votes: float
    means: float | None


class Evolve:
    """Private evolution: T rounds in which records vote for the candidates that are most like them.

    Guarantee: `fit` asks for a noisy label histogram where the shares of the labels are not public, for noisy class
    means where they steer, and for T rounds of votes, all of it once for adding or removing one unit (`Ballot`,
    `ClassMeans`, `LabelHistogram`). Their composition meets the budget: T votes alone are Gaussian mechanisms of
    sensitivity 1 that compose to mu-GDP with mu^2 = T / sigma^2 (Dong, Roth, Su 2022, Corollary 2.13), exactly; with
    others beside them, the noise of the votes is found under privacy-loss distributions. Authors see public prompts and
    texts that the noisy counts selected, never a record (post-processing). With an infinite epsilon nothing is noised:
    a reference that must never be released.

    Attributes:
        settings: how to evolve.
        schema: what is public about the data set.
        author: writes the candidates; a plan needs none.
        encode: the public encoder of candidates; a plan needs none.
        dimensions: length of its vectors.
        seed: governs what touches no private row: draws from noisy counts.
        checkpoints: where a stopped run leaves its finished rounds; None keeps nothing.
    """

    def __init__(
        self,
        settings: EvolveSettings,
        schema: PublicSchema,
        author: Author | None = None,
        encode: Encode | None = None,
        dimensions: int = 1,
        seed: int = 0,
        checkpoints: Path | None = None,
    ) -> None:
        self.settings, self.schema, self.author = settings, schema, author
        self.encode, self.dimensions = encode, dimensions
        self.seed, self.checkpoints = seed, checkpoints

    def plan(self, schema: PublicSchema, budget: Budget) -> Plan:
        """What a fit will ask and cost, and whether that can work; no row is read.

        Raises:
            ParamsError: the settings do not fit the public schema.
        """
        require_fit(self.settings, schema)
        counts, noise = self._histogram(schema, budget), self._noise(schema, budget)
        before = [] if counts is None else [PlannedQuery(counts.name, counts.event())]
        if noise.means is not None:
            before.append(PlannedQuery("class_means", _gaussian(noise.means)))
        rounds = PlannedQuery(_ROUNDS, rounds_event(noise.votes, self.settings.rounds), self.settings.rounds)
        numbers = self._numbers(schema, noise)
        return Plan("evolve", budget, (*before, rounds), numbers, notes=tuple(notes(self.settings, schema, noise)))

    def fit(self, view: View, plan: Plan, encode: Encode | None = None) -> Evolved:
        """Write the first population, then let records vote and the author vary, round by round.

        Args:
            view: answers the queries.
            plan: what they were planned to be.
            encode: the same encoder for the records, where it keeps their vectors apart; None for the candidates' own.

        Raises:
            BackendError: the author wrote too little, cannot be reached, or its budget would be passed; finished
                rounds are kept, and running again goes on with them.
            LedgerError: every round was begun by stopped attempts and none was finished.
        """
        histogram, noise = self._histogram(self.schema, plan.budget), self._noise(self.schema, plan.budget)
        reader = encode or self._encode
        require_exact(device())
        shares = label_shares(view, self.settings, self.schema, histogram, "")
        counts = {label: count for label, count in divided(self.settings.rows, shares).items() if count}
        sums = self._sums(view, noise, reader)
        steps = Steps(self.settings, counts, self._author, self._encode, sums, self.seed, self.checkpoints)
        query = VoteRounds(
            ballot=Ballot(reader, self.settings.votes.neighbours, noise.votes, parts_of(self.schema)),
            labels=tuple(counts),
            first=steps.first(),
            propose=steps.propose,
            rounds=self.settings.rounds,
            checkpoints=self.checkpoints,
            name=_ROUNDS,
        )
        done = [Round(**body) for body in view.ask(query)]
        if not done:
            raise LedgerError(
                "Every round of votes was begun by an attempt that was stopped before it stored one.",
                "Run again: the rounds are charged again.",
            )
        return Evolved(tuple(tuple(steps.selected(done, turn)) for turn in range(len(done))), sums)

    def sample(self, artifact: Evolved, counts: Mapping[str, int]) -> Iterator[Record]:
        """The texts that the last round selected, at most `counts` of each label, the best first. Free."""
        left = dict(counts)
        for record in artifact.records:
            label = record.label or ""
            if left.get(label, 0) > 0:
                left[label] -= 1
                yield record

    @property
    def _author(self) -> Author:
        assert self.author is not None  # only a plan goes without one
        return self.author

    @property
    def _encode(self) -> Encode:
        assert self.encode is not None
        return self.encode

    def _sums(self, view: View, noise: Noise, reader: Encode) -> ClassSums | None:
        if noise.means is None:
            return None
        asked = ClassMeans(self.schema.label_names, reader, self.dimensions, noise.means)
        return ClassSums(self.schema.label_names, np.array(view.ask(asked), dtype=np.float64))

    def _histogram(self, schema: PublicSchema, budget: Budget) -> LabelHistogram | None:
        return planned_histogram(self.settings, schema, whole_rho(budget))

    def _noise(self, schema: PublicSchema, budget: Budget) -> Noise:
        """The noise of class means and votes that the budget leaves; see `Evolve` for the theorem."""
        steering, rounds = self.settings.steering, self.settings.rounds
        if math.isinf(budget.epsilon):
            return Noise(0.0, None if steering is None else 0.0)
        whole = gdp_sigma(budget.epsilon, budget.delta) * _MARGIN
        means = whole / math.sqrt(steering.share) if steering else None
        histogram = self._histogram(schema, budget)
        before = [*([] if histogram is None else [histogram.event()]), *([] if means is None else [_gaussian(means)])]
        if not before:
            return Noise(whole * math.sqrt(rounds), None)

        def asked(sigma: float) -> DpEvent:
            return ComposedDpEvent([*before, rounds_event(sigma, rounds)])

        return Noise(calibrate_noise(asked, budget.epsilon, budget.delta), means)

    def _numbers(self, schema: PublicSchema, noise: Noise) -> dict[str, float | int | str]:
        settings = self.settings
        numbers: dict[str, float | int | str] = {
            "sigma": noise.votes,
            "rounds": settings.rounds,
            "rows": settings.rows,
            "candidates": settings.rows * settings.expand,
            "neighbours": settings.votes.neighbours,
            "votes_each": votes_each(settings, schema),
            "new_texts": writings(settings)[0],
            "variations": writings(settings)[1],
        }
        return numbers if noise.means is None else {**numbers, "means_sigma": noise.means}


def rounds_event(sigma: float, rounds: int) -> DpEvent:
    """What so many rounds of votes cost."""
    return SelfComposedDpEvent(_gaussian(sigma), rounds)


def _gaussian(sigma: float) -> DpEvent:
    return GaussianDpEvent(sigma) if sigma > 0 else NonPrivateDpEvent()


def writings(settings: EvolveSettings) -> tuple[int, int]:
    """New texts and variations that an author is asked for over a whole run."""
    first, pool = (settings.steering.first, settings.steering.pool) if settings.steering else (1, 1)
    varied = settings.rounds * settings.rows * (settings.expand - 1)
    ahead = settings.rounds * settings.rows * settings.expand * settings.look_ahead
    return first * settings.rows, pool * varied + ahead


def votes_each(settings: EvolveSettings, schema: PublicSchema) -> float:
    """The votes of an average candidate in a round, in whole votes of a unit."""
    return schema.n_units * math.sqrt(settings.votes.neighbours) / (settings.rows * settings.expand)


def notes(settings: EvolveSettings, schema: PublicSchema, noise: Noise) -> Iterator[str]:
    """What the user should know before anything is spent."""
    each = votes_each(settings, schema)
    if each < _FAINT * noise.votes:
        wanted = math.ceil(settings.votes.neighbours * (noise.votes / each) ** 2)
        yield (
            f"an average candidate gets {each:.2g} votes and noise of {noise.votes:.3g}: raise votes.neighbours "
            f"towards {wanted}, or ask for fewer rows, fewer rounds or a smaller expand; steering needs far less"
        )
    if settings.expand == 1 and settings.rounds > 1:
        yield "expand 1 makes no variations: every round votes for the same texts"


def require_fit(settings: EvolveSettings, schema: PublicSchema) -> None:
    """Raise ParamsError where settings and schema do not fit together."""
    if schema.task == "span":
        raise ParamsError("Method evolve does not write a free label.", "Use method predict for task span.")
    if settings.steering is not None and len(schema.label_names) < 2:
        raise ParamsError("evolve.steering needs two labels or more.", "Set it to null.")
    if settings.prior is not None and set(settings.prior) != set(schema.label_names):
        raise ParamsError("The prior does not name the public labels.", "Give one share per label, or null.")
    if settings.rows < max(1, len(schema.label_names)):
        raise ParamsError(
            f"evolve.rows is {settings.rows}, fewer than the {len(schema.label_names)} labels.", "Ask for more rows."
        )
