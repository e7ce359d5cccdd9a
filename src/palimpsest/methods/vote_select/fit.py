"""`vote_select`: the rows of any other method that one noisy vote of the records points at."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from dp_accounting import ComposedDpEvent, DpEvent, GaussianDpEvent, NonPrivateDpEvent

from palimpsest.errors import DataError, ParamsError
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.population import by_label, selected
from palimpsest.methods.vote_select.settings import VoteSelectSettings
from palimpsest.privacy.accounting import calibrate_noise, is_private
from palimpsest.privacy.means import Encode
from palimpsest.privacy.nearest import require_exact
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.query import View
from palimpsest.privacy.votes import Ballot, Round, Slate, Vote, device, parts_of
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema

_NAME = "vote"


@dataclass(frozen=True)
class Voted:
    """What a vote leaves: the candidates and their noisy counts."""

    outcome: Round


class VoteSelect:
    """One vote over the synthetic rows of another variant; the best of each label are kept.

    Guarantee: `fit` asks one query, `Vote`. Together with everything that the other variant was charged it meets the
    budget, under the primary accountant of their composition, for adding or removing one unit. With an infinite epsilon
    nothing is noised: a reference that must never be released.

    Attributes:
        settings: how to choose.
        schema: what is public about the data set.
        before: all that the other variant was charged.
        rows: its rows; a plan needs none.
        encode: the public encoder of the rows; a plan needs none.
        seed: of draws from noisy counts.
    """

    def __init__(
        self,
        settings: VoteSelectSettings,
        schema: PublicSchema,
        before: DpEvent,
        rows: Sequence[Record] = (),
        encode: Encode | None = None,
        seed: int = 0,
    ) -> None:
        self.settings, self.schema, self.before = settings, schema, before
        self.rows, self.encode, self.seed = rows, encode, seed

    def plan(self, schema: PublicSchema, budget: Budget) -> Plan:
        """What a fit will ask and cost; no row is read.

        Raises:
            ParamsError: nothing is left of the budget after what the other variant was charged.
        """
        sigma = self._sigma(budget)
        numbers: dict[str, float | int | str] = {
            "sigma": sigma,
            "rounds": 1,
            "keep": self.settings.keep,
            "neighbours": self.settings.votes.neighbours,
        }
        return Plan("vote_select", budget, (PlannedQuery(_NAME, _gaussian(sigma)),), numbers)

    def fit(self, view: View, plan: Plan, encode: Encode | None = None) -> Voted:
        """Let the records vote once.

        Args:
            view: answers the query.
            plan: what it was planned to be.
            encode: the same encoder for the records, where it keeps their vectors apart; None for the rows' own.

        Raises:
            DataError: there is no row to choose from.
        """
        if not self.rows or self.encode is None:
            raise DataError("There is no row to choose from.", "Look at the filters of the variant below.")
        require_exact(device())
        labels = tuple(dict.fromkeys(row.label or "" for row in self.rows))
        texts = by_label(self.rows, labels)
        slate = Slate(texts, {label: np.asarray(self.encode(own)) for label, own in texts.items()})
        neighbours, sigma = self.settings.votes.neighbours, float(plan.numbers["sigma"])
        ballot = Ballot(encode or self.encode, neighbours, sigma, parts_of(self.schema))
        return Voted(Round(texts, view.ask(Vote(ballot, slate, _NAME))))

    def sample(self, artifact: Voted, counts: Mapping[str, int]) -> Iterator[Record]:
        """The rows that are kept of each label, those with the most votes first. Free."""
        at_most = {label: min(count, len(artifact.outcome.texts[label])) for label, count in counts.items()}
        yield from selected(artifact.outcome, at_most, self.settings.votes, np.random.default_rng(self.seed))

    def counts(self, artifact: Voted) -> dict[str, int]:
        """Rows that are kept of each label."""
        return {label: math.ceil(self.settings.keep * len(own)) for label, own in artifact.outcome.texts.items()}

    def _sigma(self, budget: Budget) -> float:
        if math.isinf(budget.epsilon):
            return 0.0
        if not is_private(self.before):
            raise ParamsError(
                "The variant below is not private.",
                "Choose another, or give this one epsilon .inf and purpose reference.",
            )
        try:
            return calibrate_noise(
                lambda sigma: ComposedDpEvent([self.before, _gaussian(sigma)]), budget.epsilon, budget.delta
            )
        except ValueError:
            raise ParamsError(
                f"Nothing is left of epsilon {budget.epsilon:g} after the variant below.",
                "Raise it, or lower that one.",
            ) from None


def _gaussian(sigma: float) -> DpEvent:
    return GaussianDpEvent(sigma) if sigma > 0 else NonPrivateDpEvent()
