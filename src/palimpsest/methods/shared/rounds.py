"""Shared by methods in rounds of votes: their noise, their queries, and selection by noisy counts."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from dp_accounting.dp_event import ComposedDpEvent, DpEvent, SelfComposedDpEvent

from palimpsest.errors import OtherSubject, ParamsError
from palimpsest.methods.shared.base import Budget, Foretold, foretell_means, foretell_votes
from palimpsest.methods.shared.means import ClassSums, class_sums, planned_means
from palimpsest.methods.shared.method import Encoders
from palimpsest.methods.shared.settings import InRounds, Votes
from palimpsest.methods.shared.shares import (
    gaussian,
    label_rows,
    planned_histogram,
    planned_query,
    require_means,
    require_prior,
    whole_rho,
)
from palimpsest.privacy.accounting import calibrate_noise, gdp_sigma
from palimpsest.privacy.planned import PlannedQuery, versions_of
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.privacy.query import View
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema

if TYPE_CHECKING:
    from palimpsest.privacy.votes import Round, VoteRounds  # heavy, and a plan needs none of it

ROUNDS = "vote rounds"
MARGIN = 1.0 + 1e-9  # what rounding may add up to
FAINT = 1.0  # votes of an average candidate, in standard deviations of its noise


@dataclass(frozen=True)
class RoundCosts:
    """The noise of a plan; 0 for a reference.

    Attributes:
        histogram: the label histogram; None where shares are public.
        means: standard deviation of the class means' coordinates; None where they are not asked for.
        votes: standard deviation of each round's counts, in whole votes of a unit; for LimitedDomain the scale of
            its Gumbel noise, in votes.
        delta: delta of each round of LimitedDomain, which no event includes; 0 for Gaussian noise.
    """

    histogram: LabelHistogram | None
    means: float | None
    votes: float
    delta: float = 0.0

    def foretell(self, schema: PublicSchema, each: float) -> tuple[Foretold, ...]:
        """Foretell what class means say, if they are asked for, and votes: an average candidate gets `each`."""
        means = [] if self.means is None else [foretell_means(schema, self.means)]
        return (*means, foretell_votes(each, self.votes))

    def planned_queries(self, rounds: PlannedQuery) -> tuple[PlannedQuery, ...]:
        """Return all queries: those before the first round, and the rounds."""
        means = [] if self.means is None else [planned_means(self.means)]
        return (*planned_query(self.histogram), *means, rounds)

    def ask_first(
        self, view: View, settings: InRounds, schema: PublicSchema, encoders: Encoders
    ) -> tuple[dict[str, int], ClassSums | None]:
        """Ask the queries before the first round: rows of each label that gets any, and class means."""
        rows = label_rows(view, settings, schema, self.histogram)
        counts = {label: count for label, count in rows.items() if count}
        if self.means is None:
            return counts, None
        named = encoders.others(list(schema.labels.values()))
        return counts, class_sums(view, schema, encoders.rows, encoders.dimension, self.means, named)


def require_fit(method: str, settings: InRounds, schema: PublicSchema) -> None:
    """Raise ParamsError where settings and schema do not fit together."""
    if schema.task == "span":
        raise ParamsError(f"Method {method} does not write a free label.", "Use method predict for task span.")
    require_means(method, settings.class_means, schema)
    require_prior(settings.prior, schema)
    if settings.rows < max(1, len(schema.label_names)):
        raise ParamsError(
            f"{method}.rows is {settings.rows}, fewer than the {len(schema.label_names)} labels.", "Ask for more rows."
        )


def gaussian_costs(settings: InRounds, schema: PublicSchema, budget: Budget) -> RoundCosts:
    """The noise of Gaussian votes that meets the budget.

    Votes and class means compose exactly: T rounds and the class means are mu-GDP with mu^2 = T / sigma^2 + 1 / s^2
    (Dong, Roth, Su 2022, Corollary 2.13). With other queries beside them their noise is found under privacy-loss
    distributions.
    """
    wanted, rounds = settings.class_means, settings.rounds
    histogram = planned_histogram(settings, schema, whole_rho(budget))
    if math.isinf(budget.epsilon):
        return RoundCosts(histogram, None if wanted is None else 0.0, 0.0)
    whole = gdp_sigma(budget.epsilon, budget.delta) * MARGIN
    means = None if wanted is None else whole / math.sqrt(wanted.share)
    before = [*([] if histogram is None else [histogram.event()]), *([] if means is None else [gaussian(means)])]
    if not before:
        return RoundCosts(None, None, whole * math.sqrt(rounds))

    def composed(sigma: float) -> DpEvent:
        return ComposedDpEvent([*before, rounds_event(sigma, rounds)])

    return RoundCosts(histogram, means, calibrate_noise(composed, budget.epsilon, budget.delta))


def advise_neighbours(key: str, neighbours: int, short: float, candidates: float) -> str:
    """Return the advice to vote for more neighbours; empty where that would be most of a label's candidates.

    Args:
        key: the setting's name.
        neighbours: as it is.
        short: how many times as many votes an average candidate would need.
        candidates: of a label.
    """
    wanted = math.ceil(neighbours * short**2)
    return f"raise {key} towards {wanted}, or " if wanted <= candidates / 2 else ""


def planned_rounds(event: DpEvent, rounds: int, own_delta: float = 0.0) -> PlannedQuery:
    """Return the planned query of so many rounds of votes, whose total cost is `event`."""
    return PlannedQuery(ROUNDS, event, rounds, own_delta=own_delta, versions=versions_of(ROUNDS))


def rounds_event(sigma: float, rounds: int) -> DpEvent:
    """Return the cost of so many rounds of votes."""
    return SelfComposedDpEvent(gaussian(sigma), rounds)


def ask_rounds(view: View, query: "VoteRounds") -> "list[Round]":
    """The rounds that were finished.

    Raises:
        LedgerError: every round was begun by stopped attempts and none was finished.
        OtherSubject: candidates that are not texts differ from those that a stored round was held over.
    """
    from palimpsest.privacy.votes import Round

    done = [Round(**body) for body in view.ask(query)]
    for turn, one in enumerate(done[1:], 1):
        if not one.texts and query.propose(done[:turn]).digest != one.slate:
            raise OtherSubject(
                f"The candidates of round {turn + 1} are not those that the records voted over.",
                "Nothing was asked now. Put back the version of palimpsest, and the machine, that made them, or give "
                "the variant another name: it is then asked, and charged, anew.",
            )
    return done


def select_candidates(one: "Round", counts: Mapping[str, int], votes: Votes, rng: np.random.Generator) -> list[Record]:
    """Select the candidates of a round that go on, label by label, those with the most noisy votes first.

    h~ = max(h + noise, H) - H in whole votes of a unit (Xie et al. 2024, Algorithm 1). `rank` takes the
    `counts[label]` best, ties to the earlier candidate. `sample` draws as many with p ~ h~, so one may be drawn more
    than once; where no count is above H all are equally likely.

    The draws of `rng`, for `sample`, are not private, because the counts are noisy already.
    """
    chosen = []
    for label, wanted in counts.items():
        noisy = np.asarray(one.counts[label], dtype=np.float64) / math.sqrt(votes.neighbours)
        weights = np.maximum(noisy, votes.threshold) - votes.threshold
        chosen += [Record(one.texts[label][index], label or None) for index in _pick(weights, wanted, votes, rng)]
    return chosen


def _pick(weights: np.ndarray, wanted: int, votes: Votes, rng: np.random.Generator) -> list[int]:
    if votes.selection == "rank":
        return np.argsort(-weights, kind="stable")[:wanted].tolist()
    total = weights.sum()
    likely = weights / total if total > 0 else np.full(len(weights), 1.0 / len(weights))
    return np.sort(rng.choice(len(weights), size=wanted, p=likely)).tolist()


def group_by_label(records: Sequence[Record], labels: Sequence[str]) -> dict[str, list[str]]:
    """The different texts of each label, in their order; "" is the label of records without one."""
    texts: dict[str, dict[str, None]] = {label: {} for label in labels}
    for record in records:
        texts[record.label or ""][record.text] = None
    return {label: list(own) for label, own in texts.items()}
