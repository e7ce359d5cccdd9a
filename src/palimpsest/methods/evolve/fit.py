"""`evolve`: private evolution (Xie et al. 2024, Aug-PE). Records vote for texts of an author, and stay private.

The steps between two votes lead from public texts and noisy counts to the next slate. All of them are post-processing.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from palimpsest.devices import exact_device
from palimpsest.errors import BackendError
from palimpsest.files import read_json, write_json
from palimpsest.methods.evolve import authors
from palimpsest.methods.evolve.author import UNLABELLED, Author, occurrences
from palimpsest.methods.evolve.authors import Corpus
from palimpsest.methods.evolve.base_lm import BaseAuthor
from palimpsest.methods.evolve.declaration import EvolveSettings
from palimpsest.methods.evolve.instructed import InstructedAuthor
from palimpsest.methods.shared.base import Made, Plan, coins
from palimpsest.methods.shared.filters import apply_filters, build_filters
from palimpsest.methods.shared.means import Candidates, ClassSums, choose
from palimpsest.methods.shared.method import Encode, Encoders, Files
from palimpsest.methods.shared.rounds import ROUNDS, ask_rounds, gaussian_costs, group_by_label, select_candidates
from palimpsest.models.chat.kept import open_chat
from palimpsest.models.chat.settings import LocalChatSettings
from palimpsest.models.encoder import assign_nearest
from palimpsest.privacy.nearest import require_exact
from palimpsest.privacy.query import View
from palimpsest.privacy.votes import Ballot, Round, Slate, VoteRounds, parts_of
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema
from palimpsest.records.write import write_rounds

_BLOCK = 256  # rows of the similarity matrix that are in memory at once
_DECIMALS = 6  # of a cosine; what lies behind them depends on how many texts are compared at once
_FEWEST = 0.5  # share of the variations asked for that must come: below it the author is not working
_LOOK_AHEAD = 1_000_000  # turns that no round has


class CorpusAuthor:
    """Public texts that are near a label's public description, and public texts that are near a text."""

    def __init__(
        self,
        settings: Corpus,
        texts: Sequence[str],
        embeddings: np.ndarray,
        descriptions: Mapping[str, np.ndarray],
        seed: int,
        encode: Encode | None = None,
    ) -> None:
        """Know the public texts.

        Args:
            texts: n public texts; of equal ones the first is kept.
            embeddings: those of the texts, shape (n, d), L2 norm 1.
            descriptions: label -> embedding of its public description, shape (d,), L2 norm 1; {} without labels.
            encode: texts to embeddings like those, for texts to vary that are not among the public ones; without it
                such a text has no variations.

        Raises:
            ValueError: there is not one embedding for each text.
        """
        if len(texts) != len(embeddings):
            raise ValueError(f"got {len(texts)} texts and {len(embeddings)} embeddings")
        first = {text: index for index, text in reversed(list(enumerate(texts)))}
        kept = sorted(first.values())
        self._texts = [texts[index] for index in kept]
        self._embeddings = np.asarray(embeddings)[kept]
        self._places = {text: place for place, text in enumerate(self._texts)}
        self._descriptions = dict(descriptions)
        self._settings, self._seed, self._encode = settings, seed, encode

    def random(self, counts: Mapping[str, int]) -> list[Record]:
        """The public texts nearest to each label's description.

        A text belongs to the label whose description is nearest. Each label first takes what belongs to it; where that
        is too little, labels in turn take texts that are still free, so no text is used twice. Texts are taken in the
        order of the cosine, ties in the order of the texts. Without labels they are drawn at random.

        Raises:
            ValueError: a label has no description.
        """
        if unknown := set(counts) - set(self._descriptions) - {UNLABELLED}:
            raise ValueError(f"{len(unknown)} labels have no description")
        orders = {label: self._order(label) for label in counts}
        taken: set[int] = set()
        chosen: dict[str, list[int]] = {label: [] for label in counts}
        for mine in (True, False):
            for label, order in orders.items():
                owned = order if not mine else self._select_owned(label, order)
                free = [place for place in owned if place not in taken][: counts[label] - len(chosen[label])]
                chosen[label] += free
                taken.update(free)
        return [Record(self._texts[place], label or None) for label, own in chosen.items() for place in own]

    def vary(self, records: Sequence[Record], times: int, turn: int) -> list[list[Record]]:
        """For each record `times` of its `neighbours` nearest public texts, each at most once.

        A record that occurs more than once gets other neighbours each time, as long as there are any.
        """
        near = self._neighbours(list(dict.fromkeys(record.text for record in records)))
        varied = []
        for record, number in zip(records, occurrences(records), strict=True):
            places = near[record.text]
            order = coins(self._seed, turn, record.text).permutation(len(places))[number * times : (number + 1) * times]
            varied.append([Record(self._texts[places[place]], record.label) for place in order])
        return varied

    def _order(self, label: str) -> list[int]:
        """Return all texts, the nearest to the label's description first."""
        if label == UNLABELLED:
            return coins(self._seed, "random").permutation(len(self._texts)).tolist()
        similarity = self._embeddings @ self._descriptions[label]
        return np.argsort(-similarity.round(_DECIMALS), kind="stable").tolist()

    def _select_owned(self, label: str, order: Sequence[int]) -> list[int]:
        """Return the texts of `order` that belong to the label."""
        if label == UNLABELLED:
            return list(order)
        names = list(self._descriptions)
        owners = assign_nearest(self._embeddings, np.stack([self._descriptions[name] for name in names]))
        return [place for place in order if owners[place] == names.index(label)]

    def _neighbours(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        """The nearest public texts of each text, the text itself left out; none where its embedding is unknown."""
        near = {text: np.zeros(0, dtype=np.int64) for text in texts}
        known = [text for text in texts if self._encode is not None or text in self._places]
        for start in range(0, len(known), _BLOCK):
            block = known[start : start + _BLOCK]
            similarity = (self._embed(block) @ self._embeddings.T).round(_DECIMALS)
            for text, row in zip(block, similarity, strict=True):
                if text in self._places:
                    row[self._places[text]] = -np.inf
                near[text] = _pick_best(row, self._settings.neighbours)
        return near

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        """Embeddings of texts that are public, or that can be encoded: shape (k, d)."""
        strange = [text for text in texts if text not in self._places]
        fresh = dict(zip(strange, self._encode(strange), strict=True)) if strange and self._encode is not None else {}
        return np.stack([fresh[text] if text in fresh else self._embeddings[self._places[text]] for text in texts])


def _pick_best(scores: np.ndarray, count: int) -> np.ndarray:
    """Indices of the `count` largest finite scores, the largest first, ties in their order: int64 (at most count,)."""
    finite = np.isfinite(scores)
    near = np.flatnonzero(scores >= np.partition(scores, -count)[-count] if finite.sum() > count else finite)
    return near[np.argsort(-scores[near], kind="stable")][:count]


@dataclass(frozen=True)
class EvolvedTexts:
    """The candidates that each finished round selected, in order; the last are the result."""

    rounds: tuple[tuple[Record, ...], ...]

    @property
    def records(self) -> tuple[Record, ...]:
        """The synthetic rows."""
        return self.rounds[-1]


@dataclass(frozen=True, eq=False)
class Evolve:
    """Private evolution: T rounds in which records vote for the candidates that are most like them.

    Guarantee: `ask` asks for a noisy label histogram where the shares of the labels are not public, for noisy class
    means where they steer, and for T rounds of votes, all of it once for adding or removing one unit (`Ballot`,
    `ClassMeans`, `LabelHistogram`). Their composition meets the budget: T votes alone are Gaussian mechanisms of
    sensitivity 1 that compose to mu-GDP with mu^2 = T / sigma^2 (Dong, Roth, Su 2022, Corollary 2.13), exactly; with
    others beside them, the noise of the votes is found under privacy-loss distributions. Authors see public prompts and
    texts that the noisy counts selected, never a record (post-processing). With an infinite epsilon nothing is noised:
    a reference that must never be released.

    Attributes:
        checkpoints: where a stopped run leaves its finished rounds; None keeps nothing.
    """

    settings: EvolveSettings
    schema: PublicSchema
    plan: Plan
    author: Author
    encoders: Encoders
    seed: int
    checkpoints: Path | None

    def ask(self, view: View) -> EvolvedTexts:
        """Write the first population, then let records vote and the author vary, round by round.

        Raises:
            BackendError: the author wrote too little, cannot be reached, or its budget would be passed; finished rounds
            are kept, and running again continues with them.
            LedgerError: every round was begun by stopped attempts and none was finished.
        """
        settings, schema, encoders = self.settings, self.schema, self.encoders
        costs = gaussian_costs(settings, schema, self.plan.budget)
        require_exact(exact_device())
        counts, sums = costs.ask_first(view, settings, schema, encoders)
        steps = EvolveSteps(settings, counts, self.author, encoders.others, sums, self.seed, self.checkpoints)
        query = VoteRounds(
            ballot=Ballot(encoders.rows, settings.votes.neighbours, costs.votes, parts_of(schema)),
            labels=tuple(counts),
            first=steps.first(),
            propose=steps.propose,
            rounds=settings.rounds,
            checkpoints=self.checkpoints,
            name=ROUNDS,
        )
        done = ask_rounds(view, query)
        return EvolvedTexts(tuple(tuple(steps.select(done, turn)) for turn in range(len(done))))

    def made(self, artifact: EvolvedTexts) -> Made:
        """Return the last round's selection, without what the filters remove, and the selection of each round."""
        removing = build_filters(self.settings.filters)
        return Made(
            apply_filters(removing, artifact.records),
            len(artifact.records),
            removing.removed,
            {"rounds": len(artifact.rounds), **_request_counts(self.author)},
            lambda path: write_rounds(path.with_suffix(".parquet"), artifact.rounds),
        )


def _request_counts(author: Author) -> dict[str, object]:
    """Return the counts of an author's requests; empty for authors that send none."""
    if not isinstance(author, InstructedAuthor):
        return {}
    counts = author.counts
    return {"requests": counts.asked, "unusable": dict(counts.unusable), "tokens": counts.read + counts.written}


def author_of(tools: Files, encode: Encode) -> Author:
    """Build the author that the settings describe, from public files and nothing private.

    Raises:
        ModelError: a model cannot be loaded.
        DataError: it is not public.
        BackendError: the key of an endpoint is not set.
    """
    settings = tools.author()
    if isinstance(settings, authors.Corpus):
        return _corpus(tools, settings, encode)
    if isinstance(settings, authors.Base):
        nearest = authors.Corpus(kind="corpus", neighbours=1)  # it starts texts or is shown, and varies none
        corpus = _corpus(tools, nearest, encode) if settings.shows_public else None
        return BaseAuthor(settings, tools.base(), tools.seed, corpus, tools.schema.labels, tools.schema.json_schema)
    folder = tools.author_model() if isinstance(settings, LocalChatSettings) else None
    chat = open_chat(settings, tools.answers, tools.seed, folder)
    return InstructedAuthor(settings, chat, tools.schema.labels, tools.seed)


def _corpus(tools: Files, settings: authors.Corpus, encode: Encode) -> CorpusAuthor:
    texts, kept = tools.texts(), tools.embeddings()
    if not kept:
        return CorpusAuthor(settings, texts, encode(texts), {}, tools.seed, encode)
    descriptions = dict(zip(tools.schema.label_names, kept["descriptions"], strict=True))
    return CorpusAuthor(settings, texts, kept["texts"], descriptions, tools.seed, encode)


class EvolveSteps:
    """Makes the slate of each round.

    Attributes:
        counts: label -> texts that each round selects.
        sums: noisy class sums that steer; None where votes alone decide.
        folder: where the first population is kept, which costs as much as a round; None keeps nothing.
    """

    def __init__(
        self,
        settings: EvolveSettings,
        counts: Mapping[str, int],
        author: Author,
        encode: Encode,
        sums: ClassSums | None,
        seed: int,
        folder: Path | None,
    ) -> None:
        self.settings, self.counts, self.author, self.encode = settings, counts, author, encode
        self.sums, self.seed, self.folder = sums, seed, folder
        self._pool = settings.class_means.pool if settings.class_means else 1

    def first(self) -> Slate:
        """The first slate: new texts, and variations of them.

        Raises:
            BackendError: fewer texts could be written for a label than each round selects, or fewer than half of the
                variations.
        """
        path = None if self.folder is None else self.folder / f"first-{self._digest()}.json"
        if path is not None and path.is_file():
            return self._slate(read_json(path), 0)
        first = self.settings.class_means.first if self.settings.class_means else 1
        written = self.author.random({label: first * count for label, count in self.counts.items()})
        started = self._choose_likeliest(written, self.counts)
        self._require(started)
        texts = group_by_label(self._grow(started, 0), tuple(self.counts))
        if path is not None:
            write_json(path, texts)
        return self._slate(texts, 0)

    def propose(self, done: Sequence[Round]) -> Slate:
        """The slate after these rounds: the last round's selection and variations of it.

        Raises:
            BackendError: fewer than half of the variations could be written.
        """
        turn = len(done)
        return self._slate(group_by_label(self._grow(self.select(done, turn - 1), turn), tuple(self.counts)), turn)

    def select(self, done: Sequence[Round], turn: int) -> list[Record]:
        """Return the selection of round `turn`."""
        return select_candidates(done[turn], self.counts, self.settings.votes, np.random.default_rng((self.seed, turn)))

    def _grow(self, records: Sequence[Record], turn: int) -> list[Record]:
        """The records, and up to L - 1 variations for each of them."""
        times = self.settings.expand - 1
        if not times:
            return list(records)
        wanted = self._pool * times * len(records)
        written = self._variations(records, self._pool * times, turn)
        if len(written) < _FEWEST * wanted:
            raise BackendError(
                f"The author wrote fewer than half of the variations before round {turn + 1}.",
                "Mend its prompts, its model or the connection and run again: finished rounds and answers are kept.",
            )
        return [
            *records,
            *self._choose_likeliest(written, {label: times * count for label, count in self.counts.items()}),
        ]

    def _variations(self, records: Sequence[Record], times: int, turn: int) -> list[Record]:
        """Variations of each record; one that was drawn several times has several times as many."""
        variations: list[Record] = []
        drawn = Counter(records)
        for often in sorted(set(drawn.values())):
            same = [record for record, count in drawn.items() if count == often]
            variations += [record for own in self.author.vary(same, times * often, turn) for record in own]
        return variations

    def _choose_likeliest(self, written: Sequence[Record], counts: Mapping[str, int]) -> list[Record]:
        """At most `counts` of the written texts: those most like their label by the class sums, or the first."""
        if self.sums is not None and self.settings.class_means is not None:
            texts = list(dict.fromkeys(record.text for record in written))
            candidates = Candidates(texts, np.asarray(self.encode(texts)))
            return choose(candidates, self.sums, counts, self.settings.class_means.domain)
        own = group_by_label(written, tuple(counts))
        return [Record(text, label or None) for label, count in counts.items() for text in own[label][:count]]

    def _slate(self, texts: Mapping[str, Sequence[str]], turn: int) -> Slate:
        return Slate(texts, {label: self._vectors(label, own, turn) for label, own in texts.items()})

    def _vectors(self, label: str, texts: Sequence[str], turn: int) -> np.ndarray:
        """Return the vector of each candidate: its embedding, or the mean of it and of those of its K variations."""
        own = np.asarray(self.encode(texts))
        if not self.settings.look_ahead:
            return own
        records = [Record(text, label or None) for text in texts]
        varied = self.author.vary(records, self.settings.look_ahead, _LOOK_AHEAD + turn)
        owner = np.repeat(np.arange(len(texts)), [len(variations) for variations in varied])
        others = [record.text for variations in varied for record in variations]
        sums = own.astype(np.float64)
        if others:
            np.add.at(sums, owner, np.asarray(self.encode(others)))
        return sums / (1 + np.bincount(owner, minlength=len(texts)))[:, None]

    def _require(self, records: Sequence[Record]) -> None:
        texts = group_by_label(records, tuple(self.counts))
        for label, count in self.counts.items():
            if len(texts[label]) < count:
                raise BackendError(
                    f"The first population has fewer texts for label {label!r} than each round selects.",
                    "Ask for fewer rows, give more public text, or mend the author's prompts, and run again: answers "
                    "are kept.",
                )

    def _digest(self) -> str:
        sums = b"" if self.sums is None else self.sums.sums.tobytes()
        return hashlib.sha256(repr(dict(self.counts)).encode() + sums).hexdigest()[:16]
