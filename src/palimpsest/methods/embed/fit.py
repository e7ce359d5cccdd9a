"""`embed`: evolution of embeddings (Zhao, Song, Zhou 2024), corrected. Records vote for vectors, and stay private."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from palimpsest.devices import exact_device
from palimpsest.errors import DataError
from palimpsest.methods.embed.declaration import EmbedSettings, LimitedDomainSettings
from palimpsest.methods.embed.plan import costs_of, domain_of
from palimpsest.methods.embed.steps import EmbedSteps, Turn, VectorWriter
from palimpsest.methods.shared.base import Made, Plan
from palimpsest.methods.shared.filters import Losses, apply_filters, build_filters
from palimpsest.methods.shared.means import Candidates, ClassSums, choose, estimate_means
from palimpsest.methods.shared.method import Encoders
from palimpsest.methods.shared.rounds import ROUNDS, RoundCosts, ask_rounds
from palimpsest.models.decoder.decoding import Decoder
from palimpsest.privacy.means import unit_rows
from palimpsest.privacy.nearest import require_exact
from palimpsest.privacy.query import View
from palimpsest.privacy.votes import Ballot, Counts, DomainBallot, VoteRounds, parts_of
from palimpsest.records.evolved import EvolvedRound, write_evolved
from palimpsest.records.personal import is_personal
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema

_WAVES = 10  # times that what could not be read is drawn anew
_DRAWS = 4  # of `steps` are 1 to 3
_DECIMALS = 6  # of a cosine; what lies behind them depends on how many texts are compared at once
_UNLABELLED = ""  # the one label of a task without labels
_SHOWN = 8  # texts of either kind that the page shows


@dataclass(frozen=True)
class Result:
    """The texts decoded after the last vote.

    Attributes:
        records: the synthetic rows, label by label.
        rejected: decoded texts that were not readable, in their order.
        written: number of decoded texts, readable or not; those of parents were decoded earlier and are not counted.
    """

    records: tuple[Record, ...]
    rejected: tuple[Record, ...]
    written: int


def result_of(
    steps: EmbedSteps, answers: Sequence[Counts], counts: Mapping[str, int], sums: ClassSums | None
) -> Result:
    """At most `counts` texts of each label: those of its parents, the best first, then those of fresh offspring.

    Equal texts of a label count once. With class sums, `pool` times as many are written, and the likeliest are kept
    (`choose`). Fewer come where even after some waves too few can be read, or too few are in a label's domain.
    """
    wanted = steps.settings.class_means
    pool = wanted.pool if wanted is not None else 1
    writing = _Writing(steps, answers, {label: pool * count for label, count in counts.items()})
    for wave in range(_WAVES):
        if not writing.wave(wave):
            break
    records = _choose_records(writing.pools, counts, sums, 1.0 if wanted is None else wanted.domain)
    return Result(tuple(records), tuple(writing.rejected), writing.written)


class _Writing:
    """Fills a pool of different texts for each label: label -> text -> its embedding, (d,)."""

    def __init__(self, steps: EmbedSteps, answers: Sequence[Counts], wanted: Mapping[str, int]) -> None:
        generations = steps.turn(answers).generations
        self.pools: dict[str, dict[str, np.ndarray]] = {label: {} for label in wanted}
        self.rejected: list[Record] = []
        self.written = 0
        self._steps, self._wanted, self._turn = steps, wanted, len(answers)
        self._mixtures = {label: steps.mixture(label, one) for label, one in generations.items()}
        for label, one in generations.items():
            self._add(label, one.texts[: one.parents], one.embeddings[: one.parents])

    def wave(self, number: int) -> bool:
        """Write as many fresh offspring as are missing; return False where none is missing."""
        missing = {label: count - len(self.pools[label]) for label, count in self._wanted.items()}
        if not any(missing.values()):
            return False
        steps, turn = self._steps, self._turn
        drawn = [
            steps.draw_offspring(label, self._mixtures[label], missing[label], turn, number + 1) for label in missing
        ]
        texts, embeddings = steps.decode(np.concatenate(drawn), turn, number + 1)
        self.written += len(texts)
        start = 0
        for label, count in missing.items():
            self._add(label, texts[start : start + count], embeddings[start : start + count])
            start += count
        return True

    def _add(self, label: str, texts: Sequence[str], embeddings: np.ndarray) -> None:
        pool = self.pools[label]
        for text, own, readable in zip(texts, embeddings, self._steps.writer.find_readable(texts), strict=True):
            if not readable:
                self.rejected.append(Record(text, label or None))
            elif len(pool) < self._wanted[label]:
                pool.setdefault(text, own)


def _choose_records(
    pools: Mapping[str, Mapping[str, np.ndarray]], counts: Mapping[str, int], sums: ClassSums | None, domain: float
) -> list[Record]:
    if sums is None:
        return [Record(text, label or None) for label, pool in pools.items() for text in pool]
    embeddings = {text: own for pool in pools.values() for text, own in pool.items()}
    if not embeddings:
        return []
    return choose(Candidates(list(embeddings), np.stack(list(embeddings.values()))), sums, counts, domain)


@dataclass(frozen=True, eq=False)
class EvolvedEmbeddings:
    """The result of the rounds; the only label is "" where the task has none.

    Attributes:
        rounds: the candidates and the selection of each finished round, in order.
        parents: for each round, label -> texts of the selected candidates, readable or not, in the order of `rounds`.
        answers: for each round, label -> the noisy counts, or the indices picked.
        records: the synthetic rows.
        rejected: decoded texts for the synthetic rows that were not readable.
        written: number of texts decoded for the synthetic rows, besides those of parents.
    """

    rounds: tuple[EvolvedRound, ...]
    parents: tuple[Mapping[str, tuple[str, ...]], ...]
    answers: tuple[Counts, ...]
    records: tuple[Record, ...]
    rejected: tuple[Record, ...]
    written: int


@dataclass(frozen=True, eq=False)
class Embed:
    """Evolution of embeddings: T rounds in which records vote for the vectors nearest to them.

    Guarantee: `ask` asks for a noisy label histogram where the shares of the labels are not public, for noisy class
    means where they are asked for, and for T rounds of votes, all of it once for adding or removing one unit (`Ballot`,
    `DomainBallot`, `ClassMeans`, `LabelHistogram`). Their composition meets the budget, and so do the deltas that no
    event carries (see `costs_of`). What happens between two votes and after the last reads public models, public texts
    and noisy answers, never a record (post-processing). With an infinite epsilon nothing is noised: a reference that
    must never be released.

    Attributes:
        start: public texts, or zero-shot texts of an author, from which the first populations are chosen.
        labels: the label of each of these texts; None for a text that any label may begin with.
        descriptions: embeddings of the labels' public descriptions in the order of the schema, shape (labels, d); None
            where there are none: then, without `class_means`, each label begins with texts at random.
        encoders: the public encoder that the decoder was trained for.
        losses: mean token loss of texts in nats by the public language model.
        limit: the largest loss of a text that can be read, in nats: the logarithm of its perplexity; None where
            `readable` asks for none.
        seed: seeds what touches no private row: centres, offspring, texts.
        checkpoints: where a stopped run leaves its finished rounds and their populations; None keeps nothing.

    Raises:
        DataError: there are fewer different texts to begin with than the first round votes for.
    """

    settings: EmbedSettings
    schema: PublicSchema
    plan: Plan
    start: Candidates
    labels: Sequence[str | None]
    descriptions: np.ndarray | None
    decode: Decoder
    encoders: Encoders
    losses: Losses
    limit: float | None
    seed: int
    checkpoints: Path | None

    def __post_init__(self) -> None:
        given, wanted = min(len(pool.texts) for pool in self._pools().values()), self.settings.start
        if given < wanted:
            raise DataError(
                f"There are {given} different texts to begin with; the first round votes for {wanted} of each label.",
                "Name a public file with more texts, let the author write more, or lower embed.start.",
            )

    def ask(self, view: View) -> EvolvedEmbeddings:
        """Choose the first population, let records vote and embeddings vary, and write the last ones down.

        Raises:
            LedgerError: every round was begun by stopped attempts and none was finished.
        """
        settings, schema = self.settings, self.schema
        costs = costs_of(settings, schema, self.plan.budget)
        require_exact(exact_device())
        counts, sums = costs.ask_first(view, settings, schema, self.encoders)
        ballot = self._ballot(costs)
        folder = self.checkpoints if ballot.noisy else None  # what follows exact answers is not private and is not kept
        writer = VectorWriter(self.decode, self.encoders.others, self.losses, self.limit)
        steps = EmbedSteps(settings, self.choose_first(sums, tuple(counts)), writer, self.seed, folder)
        first = steps.first()
        query = VoteRounds(
            ballot, tuple(first.vectors), first, steps.propose, settings.rounds, self.checkpoints, name=ROUNDS
        )
        answers = [one.counts for one in ask_rounds(view, query)]
        turns = [steps.turn(answers[:number]) for number in range(len(answers) + 1)]
        result = result_of(steps, answers, counts, sums)
        return EvolvedEmbeddings(
            tuple(_round(before, after) for before, after in pairwise(turns)),
            tuple({label: own.texts for label, own in turn.selected.items()} for turn in turns[1:]),
            tuple(answers),
            result.records,
            result.rejected,
            result.written,
        )

    def made(self, artifact: EvolvedEmbeddings) -> Made:
        """Return the last texts, without those that the filters remove, and the candidates of each round."""
        removing = build_filters(self.settings.filters)
        kept = apply_filters(removing, artifact.records)
        return Made(
            kept,
            artifact.written,
            {"unreadable": len(artifact.rejected), **removing.removed},
            {
                "rounds": len(artifact.rounds),
                "kept_samples": _samples(kept, self.losses),
                "unreadable_samples": _samples(artifact.rejected, self.losses),
            },
            lambda path: write_evolved(path.with_suffix(".npz"), artifact.rounds),
        )

    def choose_first(self, sums: ClassSums | None, labels: Sequence[str]) -> dict[str, Candidates]:
        """The texts that each label begins with, the best first.

        Class sums choose for every label among all texts, whatever labels the texts were written for.
        """
        pools, descriptions = self._pools(), self.descriptions
        count, wanted = self.settings.start, self.settings.class_means
        if sums is not None and wanted is not None:
            pools = dict.fromkeys(labels, select_distinct(self.start))
            chosen = choose_by_sums(pools[labels[0]], sums, labels, count, wanted.domain)
        elif descriptions is not None and self.schema.label_names:
            named = dict(zip(self.schema.label_names, descriptions, strict=True))
            chosen = {label: choose_by_description(pools[label], named, (label,), count)[label] for label in labels}
        else:
            chosen = choose_at_random({label: len(pools[label].texts) for label in labels}, count, self.seed)
        return {
            label: Candidates([pools[label].texts[index] for index in own], pools[label].embeddings[own])
            for label, own in chosen.items()
        }

    def _pools(self) -> dict[str, Candidates]:
        """The different texts that each label may begin with: those of no label, and its own."""
        whole = None if any(self.labels) else select_distinct(self.start)
        return {
            label: whole or select_distinct(self._candidates_of(label))
            for label in self.schema.label_names or (_UNLABELLED,)
        }

    def _candidates_of(self, label: str) -> Candidates:
        own = [index for index, owner in enumerate(self.labels) if owner in (None, label)]
        return Candidates([self.start.texts[index] for index in own], self.start.embeddings[own])

    def _ballot(self, costs: RoundCosts) -> Ballot | DomainBallot:
        selection, reader = self.settings.selection, self.encoders.rows
        if isinstance(selection, LimitedDomainSettings):
            return DomainBallot(reader, domain_of(self.settings, selection, costs))
        return Ballot(reader, selection.neighbours, costs.votes, parts_of(self.schema))


def _round(before: Turn, after: Turn) -> EvolvedRound:
    """Return the candidates of a round and its selection."""
    return EvolvedRound(
        {label: one.candidates for label, one in before.generations.items()},
        {label: own.places for label, own in after.selected.items()},
        {label: own.readable for label, own in after.selected.items()},
    )


def _samples(records: Sequence[Record], losses: Losses) -> list[dict[str, object]]:
    """A few texts, evenly from all, without personal data, each with its perplexity under the public model."""
    shown = [row for row in records if row.text.strip() and not is_personal(row)]
    some = shown[:: max(1, len(shown) // _SHOWN)][:_SHOWN]
    measured = zip(some, losses([row.text for row in some]) if some else (), strict=True)
    return [{"text": row.text, "label": row.label, "perplexity": math.exp(loss)} for row, loss in measured]


def select_distinct(candidates: Candidates) -> Candidates:
    """The different texts that are not blank and have a direction, each with its vector brought to length 1.

    Of equal texts the first is kept. A vector that is zero or not finite has no direction and could not be decoded.
    """
    vectors = unit_rows(candidates.embeddings).astype(np.float32)
    usable = [bool(text.strip()) and own.any() for text, own in zip(candidates.texts, vectors, strict=True)]
    first = {text: index for index, text in reversed(list(enumerate(candidates.texts))) if usable[index]}
    kept = sorted(first.values())
    return Candidates([candidates.texts[index] for index in kept], vectors[kept])


def choose_by_sums(
    public: Candidates, sums: ClassSums, labels: Sequence[str], count: int, domain: float
) -> dict[str, list[int]]:
    """For each label, return the indices of the `count` public texts that the noisy class sums choose, the best first.

    `choose` lets labels take turns, so it may leave a label with too few; the texts nearest to its sum then fill up,
    even if other labels have them.
    """
    place = {text: index for index, text in enumerate(public.texts)}
    chosen: dict[str, list[int]] = {label: [] for label in labels}
    for record in choose(public, sums, dict.fromkeys(labels, count), domain):
        chosen[record.label or ""].append(place[record.text])
    means = dict(zip(sums.labels, estimate_means(sums, unit_rows(public.embeddings)), strict=True))
    nearest = choose_by_description(public, means, labels, len(public.texts))
    return {label: list(dict.fromkeys([*own, *nearest[label]]))[:count] for label, own in chosen.items()}


def choose_by_description(
    public: Candidates, descriptions: Mapping[str, np.ndarray], labels: Sequence[str], count: int
) -> dict[str, list[int]]:
    """For each label the `count` public texts with the largest cosine to its public description, the nearest first."""
    nearest = {}
    for label in labels:
        cosines = public.embeddings @ unit_rows(descriptions[label][None, :])[0]
        nearest[label] = np.argsort(-cosines.round(_DECIMALS), kind="stable")[:count].tolist()
    return nearest


def choose_at_random(given: Mapping[str, int], count: int, seed: int) -> dict[str, list[int]]:
    """For each label draw `count` indices at random among its `given[label]` texts."""
    draws = (np.random.default_rng((seed, _DRAWS, place)) for place in range(len(given)))
    return {
        label: rng.permutation(number)[:count].tolist()
        for (label, number), rng in zip(given.items(), draws, strict=True)
    }
