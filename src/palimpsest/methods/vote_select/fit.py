"""`vote_select`: chooses rows of any other method by one noisy vote of the records."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from palimpsest.devices import exact_device
from palimpsest.errors import DataError
from palimpsest.methods.shared.base import Made, Plan
from palimpsest.methods.shared.method import Encoders
from palimpsest.methods.shared.rounds import group_by_label, select_candidates
from palimpsest.methods.vote_select.declaration import QUERY, VoteSelectSettings
from palimpsest.privacy.nearest import require_exact
from palimpsest.privacy.query import View
from palimpsest.privacy.votes import Ballot, Round, Slate, Vote, parts_of
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema


@dataclass(frozen=True, eq=False)
class VoteSelect:
    """One vote over the synthetic rows of another variant; the best of each label are kept.

    Guarantee: `ask` asks one query, `Vote`. Together with everything that the other variant was charged it meets the
    budget, under the primary accountant of their composition, for adding or removing one unit. With an infinite epsilon
    nothing is noised: a reference that must never be released.

    Attributes:
        rows: those of the other variant.

    Raises:
        DataError: there is no row to choose from.
    """

    settings: VoteSelectSettings
    schema: PublicSchema
    plan: Plan
    rows: Sequence[Record]
    encoders: Encoders
    seed: int

    def __post_init__(self) -> None:
        if not self.rows:
            raise DataError("There is no row to choose from.", "Look at the filters of the variant below.")

    def ask(self, view: View) -> Round:
        """Let the records vote once, and return the candidates with their noisy counts."""
        require_exact(exact_device())
        labels = tuple(dict.fromkeys(row.label or "" for row in self.rows))
        texts = group_by_label(self.rows, labels)
        slate = Slate(texts, {label: np.asarray(self.encoders.others(own)) for label, own in texts.items()})
        neighbours, sigma = self.settings.votes.neighbours, float(self.plan.numbers["sigma"])
        ballot = Ballot(self.encoders.rows, neighbours, sigma, parts_of(self.schema))
        return Round(texts, view.ask(Vote(ballot, slate, QUERY)))

    def made(self, artifact: Round) -> Made:
        """Return the kept share of each label's rows, those with the most votes first."""
        counts = {label: math.ceil(self.settings.keep * len(own)) for label, own in artifact.texts.items()}
        rows = select_candidates(artifact, counts, self.settings.votes, np.random.default_rng(self.seed))
        return Made(rows, len(rows))
