"""`evolve`: private evolution (Xie et al. 2024, Aug-PE). Records vote for texts of an author, and stay private."""

from dataclasses import dataclass
from pathlib import Path

from palimpsest.devices import exact_device
from palimpsest.methods.evolve import authors
from palimpsest.methods.evolve.author import Author
from palimpsest.methods.evolve.base_lm import BaseAuthor
from palimpsest.methods.evolve.corpus import CorpusAuthor
from palimpsest.methods.evolve.declaration import EvolveSettings
from palimpsest.methods.evolve.instructed import InstructedAuthor
from palimpsest.methods.evolve.steps import EvolveSteps
from palimpsest.methods.shared.base import Made, Plan
from palimpsest.methods.shared.filters import apply_filters, build_filters
from palimpsest.methods.shared.rounds import ROUNDS, ask_rounds, gaussian_costs
from palimpsest.methods.shared.tools import Encode, Encoders, Files
from palimpsest.models.chat.kept import open_chat
from palimpsest.models.chat.settings import LocalChatSettings
from palimpsest.privacy.nearest import require_exact
from palimpsest.privacy.query import View
from palimpsest.privacy.votes import Ballot, VoteRounds, parts_of
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema
from palimpsest.records.write import write_rounds


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
        return BaseAuthor(settings, tools.base(), tools.seed, corpus, tools.schema.labels)
    folder = tools.author_model() if isinstance(settings, LocalChatSettings) else None
    chat = open_chat(settings, tools.answers, tools.seed, folder)
    return InstructedAuthor(settings, chat, tools.schema.labels, tools.seed)


def _corpus(tools: Files, settings: authors.Corpus, encode: Encode) -> CorpusAuthor:
    texts, kept = tools.texts(), tools.embeddings()
    if not kept:
        return CorpusAuthor(settings, texts, encode(texts), {}, tools.seed, encode)
    descriptions = dict(zip(tools.schema.label_names, kept["descriptions"], strict=True))
    return CorpusAuthor(settings, texts, kept["texts"], descriptions, tools.seed, encode)
