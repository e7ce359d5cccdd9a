"""`embed`: evolution of embeddings (Zhao, Song, Zhou 2024), repaired. Records vote for vectors, and never leave."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from palimpsest.errors import DataError, LedgerError, ModelError
from palimpsest.methods.embed.costs import (
    Costs,
    candidates,
    costs_of,
    feasible,
    gap,
    means_event,
    notes,
    require_fit,
    votes_each,
)
from palimpsest.methods.embed.decode import Decode
from palimpsest.methods.embed.result import result_of
from palimpsest.methods.embed.settings import EmbedSettings, LimitedDomain
from palimpsest.methods.embed.start import aimed, anything, described, distinct
from palimpsest.methods.embed.steps import Steps, Turn, Writer
from palimpsest.methods.select.fit import Candidates, ClassSums
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.shares import divided, label_shares
from palimpsest.privacy import limited_domain
from palimpsest.privacy.means import ClassMeans, Encode
from palimpsest.privacy.nearest import require_exact
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.query import View
from palimpsest.privacy.votes import Ballot, Counts, DomainBallot, Round, Slate, VoteRounds, device, parts_of
from palimpsest.records.evolved import EvolvedRound
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema

_ROUNDS = "vote rounds"


@dataclass(frozen=True, eq=False)
class Evolved:
    """What the rounds left; the only label is "" where the task has none.

    Attributes:
        rounds: what each finished round voted for and selected, in order.
        parents: for each round, label -> the selected ones written down, read or not, in the order of `rounds`.
        answers: for each round, label -> what the records answered: noisy counts, or the indices picked.
        records: the synthetic rows.
        rejected: of what was written down for them, the texts that could not be read.
        written: texts that were written down for them, besides those of parents.
        sums: noisy sum of each label's embeddings, where they were asked for.
    """

    rounds: tuple[EvolvedRound, ...]
    parents: tuple[Mapping[str, tuple[str, ...]], ...]
    answers: tuple[Counts, ...]
    records: tuple[Record, ...]
    rejected: tuple[Record, ...]
    written: int
    sums: ClassSums | None = None


class Embed:
    """Evolution of embeddings: T rounds in which records vote for the vectors nearest to them.

    Guarantee: `fit` asks for a noisy label histogram where the shares of the labels are not public, for noisy class
    means where they aim, and for T rounds of votes, all of it once for adding or removing one unit (`Ballot`,
    `DomainBallot`, `ClassMeans`, `LabelHistogram`). Their composition meets the budget, and so do the deltas that no
    event carries (see `costs_of`). What happens between two votes and after the last reads public models, public texts
    and noisy answers, never a record (post-processing). With an infinite epsilon nothing is noised: a reference that
    must never be released.

    Attributes:
        settings: how to evolve.
        schema: what is public about the data set.
        start: public texts that the first populations are chosen from; a plan needs none.
        descriptions: embeddings of the labels' public descriptions in the order of the schema, shape (labels, d); None
            where there are none: then, without `aim`, each label begins with public texts at random.
        decode: the public decoder; a plan needs none.
        encode: the public encoder that it was trained for; a plan needs none.
        dimensions: length of its vectors.
        losses: mean token loss of texts in nats by the public language model; needed where `readable` is set.
        limit: the largest loss of a text that can be read, in nats: the logarithm of its perplexity.
        seed: governs what touches no private row: centres, offspring, texts.
        checkpoints: where a stopped run leaves its finished rounds and their populations; None keeps nothing.
    """

    def __init__(
        self,
        settings: EmbedSettings,
        schema: PublicSchema,
        start: Candidates | None = None,
        descriptions: np.ndarray | None = None,
        decode: Decode | None = None,
        encode: Encode | None = None,
        dimensions: int = 1,
        losses: Callable[[Sequence[str]], np.ndarray] | None = None,
        limit: float | None = None,
        seed: int = 0,
        checkpoints: Path | None = None,
    ) -> None:
        self.settings, self.schema = settings, schema
        self.start, self.descriptions = start, descriptions
        self.decode, self.encode, self.dimensions = decode, encode, dimensions
        self.losses, self.limit = losses, limit
        self.seed, self.checkpoints = seed, checkpoints

    def plan(self, schema: PublicSchema, budget: Budget) -> Plan:
        """What a fit will ask and cost, and whether that can work; no row is read.

        It is infeasible where LimitedDomain could not select as many parents as it is asked for (`feasible`).

        Raises:
            ParamsError: the settings do not fit the public schema.
        """
        settings = self.settings
        require_fit(settings, schema)
        costs = costs_of(settings, schema, budget)
        counts = costs.histogram
        before = [] if counts is None else [PlannedQuery(counts.name, counts.event())]
        if costs.means is not None:
            before.append(PlannedQuery("class_means", means_event(costs.means)))
        votes = self._votes(self._ballot(costs, _no_encoder))
        rounds = PlannedQuery(_ROUNDS, votes.event(), settings.rounds, own_delta=votes.own_delta)
        numbers, told = self._numbers(schema, costs), tuple(notes(settings, schema, budget, costs))
        return Plan("embed", budget, (*before, rounds), numbers, feasible(settings, schema, costs), told)

    def fit(self, view: View, plan: Plan, encode: Encode | None = None) -> Evolved:
        """Choose the first population, let records vote and embeddings vary, and write the last ones down.

        Args:
            view: answers the queries.
            plan: what they were planned to be.
            encode: the same encoder for the records, where it keeps their vectors apart; None for the texts' own.

        Raises:
            DataError: there are fewer different public texts than the first round votes for; nothing is asked then.
            LedgerError: every round was begun by stopped attempts and none was finished.
        """
        settings, costs = self.settings, costs_of(self.settings, self.schema, plan.budget)
        reader = encode or self._encode
        require_exact(device())
        public, writer = self._public(), self._writer()
        shares = label_shares(view, settings, self.schema, costs.histogram, "")
        counts = {label: count for label, count in divided(settings.rows, shares).items() if count}
        sums = self._sums(view, costs, reader)
        ballot = self._ballot(costs, reader)
        folder = self.checkpoints if ballot.noisy else None  # what follows exact answers is not private and is not kept
        steps = Steps(settings, self._first(public, sums, tuple(counts)), writer, self.seed, folder)
        answers = [Round(**body).counts for body in view.ask(self._votes(ballot, steps))]
        if not answers:
            raise LedgerError(
                "Every round of votes was begun by an attempt that was stopped before it stored one.",
                "Run again: the rounds are charged again.",
            )
        turns = [steps.turn(answers[:number]) for number in range(len(answers) + 1)]
        result = result_of(steps, answers, counts, sums)
        return Evolved(
            tuple(_round(before, after) for before, after in pairwise(turns)),
            tuple({label: own.texts for label, own in turn.selected.items()} for turn in turns[1:]),
            tuple(answers),
            result.records,
            result.rejected,
            result.written,
            sums,
        )

    def sample(self, artifact: Evolved, counts: Mapping[str, int]) -> Iterator[Record]:
        """The texts that were written down last, at most `counts` of each label, in their order. Free."""
        left = dict(counts)
        for record in artifact.records:
            label = record.label or ""
            if left.get(label, 0) > 0:
                left[label] -= 1
                yield record

    @property
    def _encode(self) -> Encode:
        assert self.encode is not None  # only a plan goes without one
        return self.encode

    def _writer(self) -> Writer:
        assert self.decode is not None
        if self.settings.readable is None:
            return Writer(self.decode, self._encode, None, None)
        assert self.losses is not None
        assert self.limit is not None
        return Writer(self.decode, self._encode, self.losses, self.limit)

    def _public(self) -> Candidates:
        """The different public texts.

        Raises:
            DataError: there are too few.
        """
        public = None if self.start is None else distinct(self.start)
        found, wanted = 0 if public is None else len(public.texts), self.settings.start
        if public is None or found < wanted:
            raise DataError(
                f"There are {found} different public texts; the first round votes for {wanted} of each label.",
                "Name a public file with more texts, or lower embed.start.",
            )
        return public

    def _first(self, public: Candidates, sums: ClassSums | None, labels: Sequence[str]) -> dict[str, Candidates]:
        """The public texts that each label begins with, the best first."""
        count, aim, descriptions = self.settings.start, self.settings.aim, self.descriptions
        if sums is not None and aim is not None:
            chosen = aimed(public, sums, labels, count, aim.domain)
        elif descriptions is not None and self.schema.label_names:
            named = dict(zip(self.schema.label_names, descriptions, strict=True))
            chosen = described(public, named, labels, count)
        else:
            chosen = anything(public, labels, count, self.seed)
        return {
            label: Candidates([public.texts[index] for index in own], public.embeddings[own])
            for label, own in chosen.items()
        }

    def _sums(self, view: View, costs: Costs, reader: Encode) -> ClassSums | None:
        if costs.means is None:
            return None
        asked = ClassMeans(self.schema.label_names, reader, self.dimensions, costs.means)
        return ClassSums(self.schema.label_names, np.array(view.ask(asked), dtype=np.float64))

    def _ballot(self, costs: Costs, reader: Encode) -> Ballot | DomainBallot:
        selection, most = self.settings.selection, self.settings.parents
        if isinstance(selection, LimitedDomain):
            return DomainBallot(reader, limited_domain.LimitedDomain(selection.domain, most, costs.votes, costs.delta))
        return Ballot(reader, selection.neighbours, costs.votes, parts_of(self.schema))

    def _votes(self, ballot: Ballot | DomainBallot, steps: Steps | None = None) -> VoteRounds:
        """All rounds as one query; without steps, for its cost alone."""
        first = Slate({}, {}) if steps is None else steps.first()
        propose = _no_steps if steps is None else steps.propose
        return VoteRounds(
            ballot, tuple(first.vectors), first, propose, self.settings.rounds, self.checkpoints, name=_ROUNDS
        )

    def _numbers(self, schema: PublicSchema, costs: Costs) -> dict[str, float | int | str]:
        settings, labels = self.settings, max(1, len(schema.label_names))
        pool = 1 if settings.aim is None else settings.aim.pool
        numbers: dict[str, float | int | str] = {
            "rounds": settings.rounds,
            "rows": settings.rows,
            "candidates": candidates(settings),
            "votes_each": votes_each(settings, schema),
            "texts_decoded": settings.rounds * settings.parents * labels + settings.rows * pool,
        }
        if isinstance(settings.selection, LimitedDomain):
            numbers |= {"scale": costs.votes, "gap": gap(costs), "round_delta": costs.delta}
        else:
            numbers |= {"sigma": costs.votes, "neighbours": settings.selection.neighbours}
        return numbers if costs.means is None else {**numbers, "means_sigma": costs.means}


def _round(before: Turn, after: Turn) -> EvolvedRound:
    """What a round voted for, and what it selected."""
    return EvolvedRound(
        {label: one.population for label, one in before.generations.items()},
        {label: own.places for label, own in after.selected.items()},
        {label: own.readable for label, own in after.selected.items()},
    )


def _no_encoder(texts: Sequence[str]) -> np.ndarray:
    """Stands in where only a plan is made."""
    raise ModelError("There is no sentence encoder.", "Hand one to the generator.")


def _no_steps(done: Sequence[Round]) -> Slate:
    """Stands in where only a plan is made."""
    raise ModelError("There is no decoder.", "Hand one to the generator.")
