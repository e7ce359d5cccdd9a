"""`evolve`: private evolution (Xie et al. 2024, Aug-PE). Records vote for texts that others write, and never leave."""

from dataclasses import dataclass
from pathlib import Path

from palimpsest.errors import LedgerError
from palimpsest.methods.evolve.author import Author
from palimpsest.methods.evolve.instructed import InstructedAuthor
from palimpsest.methods.evolve.plan import ROUNDS, costs_of
from palimpsest.methods.evolve.settings import EvolveSettings
from palimpsest.methods.evolve.steps import EvolveSteps
from palimpsest.methods.shared.base import Made, Plan
from palimpsest.methods.shared.filters import chain, filtered
from palimpsest.methods.shared.means import ClassSums, class_sums
from palimpsest.methods.shared.shares import divided, label_shares
from palimpsest.methods.shared.tools import Encoders
from palimpsest.privacy.nearest import require_exact
from palimpsest.privacy.query import View
from palimpsest.privacy.votes import Ballot, Round, VoteRounds, device, parts_of
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema
from palimpsest.records.write import write_rounds


@dataclass(frozen=True)
class EvolvedTexts:
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
        seed: governs what touches no private row: draws from noisy counts.
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
            BackendError: the author wrote too little, cannot be reached, or its budget would be passed; finished
                rounds are kept, and running again goes on with them.
            LedgerError: every round was begun by stopped attempts and none was finished.
        """
        settings, schema, encoders = self.settings, self.schema, self.encoders
        histogram, noise = costs_of(settings, schema, self.plan.budget)
        require_exact(device())
        shares = label_shares(view, settings, schema, histogram, "")
        counts = {label: count for label, count in divided(settings.rows, shares).items() if count}
        sums = None
        if noise.means is not None:
            sums = class_sums(view, schema.label_names, encoders.rows, encoders.dimension, noise.means)
        steps = EvolveSteps(settings, counts, self.author, encoders.others, sums, self.seed, self.checkpoints)
        query = VoteRounds(
            ballot=Ballot(encoders.rows, settings.votes.neighbours, noise.votes, parts_of(schema)),
            labels=tuple(counts),
            first=steps.first(),
            propose=steps.propose,
            rounds=settings.rounds,
            checkpoints=self.checkpoints,
            name=ROUNDS,
        )
        done = [Round(**body) for body in view.ask(query)]
        if not done:
            raise LedgerError(
                "Every round of votes was begun by an attempt that was stopped before it stored one.",
                "Run again: the rounds are charged again.",
            )
        return EvolvedTexts(tuple(tuple(steps.selected(done, turn)) for turn in range(len(done))), sums)

    def made(self, artifact: EvolvedTexts) -> Made:
        """What the last round selected, without what the filters remove, and what each round selected."""
        removing = chain(self.settings.filters)
        return Made(
            filtered(removing, artifact.records),
            len(artifact.records),
            removing.removed,
            {"rounds": len(artifact.rounds), **_told(self.author)},
            lambda path: write_rounds(path.with_suffix(".parquet"), artifact.rounds),
        )


def _told(author: Author) -> dict[str, object]:
    """What became of an author's requests; nothing for authors that send none."""
    if not isinstance(author, InstructedAuthor):
        return {}
    counts = author.counts
    return {"requests": counts.asked, "unusable": dict(counts.unusable), "tokens": counts.read + counts.written}
