"""`vote_select`: the rows of any other method that one noisy vote of the records points at."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from dp_accounting import ComposedDpEvent, DpEvent

from palimpsest.errors import DataError, ParamsError
from palimpsest.methods.shared.base import Budget, Made, Plan
from palimpsest.methods.shared.rounds import by_label, selected
from palimpsest.methods.shared.shares import gaussian
from palimpsest.methods.shared.tools import Encoders
from palimpsest.methods.vote_select.declaration import VoteSelectSettings
from palimpsest.privacy.accounting import calibrate_noise, is_private
from palimpsest.privacy.nearest import require_exact
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.query import View
from palimpsest.privacy.votes import Ballot, Round, Slate, Vote, device, parts_of
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema

_QUERY = "vote"


def plan(settings: VoteSelectSettings, budget: Budget, before: DpEvent) -> Plan:
    """What a fit will ask and cost; the budget holds for it together with all that the variant below was charged.

    Raises:
        ParamsError: nothing is left of the budget after what the other variant was charged.
    """
    sigma = _sigma(budget, before)
    numbers: dict[str, float | int | str] = {
        "sigma": sigma,
        "rounds": 1,
        "keep": settings.keep,
        "neighbours": settings.votes.neighbours,
    }
    return Plan("vote_select", budget, (PlannedQuery(_QUERY, gaussian(sigma)),), numbers)


def _sigma(budget: Budget, before: DpEvent) -> float:
    if math.isinf(budget.epsilon):
        return 0.0
    if not is_private(before):
        raise ParamsError(
            "The variant below is not private.", "Choose another, or give this one epsilon .inf and purpose reference."
        )
    try:
        return calibrate_noise(lambda sigma: ComposedDpEvent([before, gaussian(sigma)]), budget.epsilon, budget.delta)
    except ValueError:
        raise ParamsError(
            f"Nothing is left of epsilon {budget.epsilon:g} after the variant below.", "Raise it, or lower that one."
        ) from None


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
        """Let the records vote once: the candidates and their noisy counts."""
        require_exact(device())
        labels = tuple(dict.fromkeys(row.label or "" for row in self.rows))
        texts = by_label(self.rows, labels)
        slate = Slate(texts, {label: np.asarray(self.encoders.others(own)) for label, own in texts.items()})
        neighbours, sigma = self.settings.votes.neighbours, float(self.plan.numbers["sigma"])
        ballot = Ballot(self.encoders.rows, neighbours, sigma, parts_of(self.schema))
        return Round(texts, view.ask(Vote(ballot, slate, _QUERY)))

    def made(self, artifact: Round) -> Made:
        """The share of each label's rows that is kept, those with the most votes first."""
        counts = {label: math.ceil(self.settings.keep * len(own)) for label, own in artifact.texts.items()}
        rows = selected(artifact, counts, self.settings.votes, np.random.default_rng(self.seed))
        return Made(rows, len(rows))
