"""Results of the stages: one type for each kind of metric file, read by the type that wrote it; and the final table.

The table has one row per variant.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from palimpsest.audit.groups import LabelFit
from palimpsest.audit.inconclusive import Inconclusive, read_inconclusive
from palimpsest.audit.statistics import Estimate
from palimpsest.errors import DataError
from palimpsest.params.schema import Params
from palimpsest.plain import Plain
from palimpsest.privacy.ledger.summary import LedgerSummary
from palimpsest.report.formats import per_word
from palimpsest.workspace import INTERNAL, PUBLIC_LM, PUBLIC_ONLY, REAL

Document = Mapping[str, Any]
T = TypeVar("T")
BASELINES = (REAL, PUBLIC_ONLY, PUBLIC_LM)
ROLES = ("release", "reference", *BASELINES)
_VERDICTS = ("refuted", "not refuted", "inconclusive")  # the first one outranks the others
EVALUATORS = ("tfidf_lr", "minilm_lr")  # the first shares no weights with any generator


@dataclass(frozen=True)
class Metric(Generic[T]):
    """One kind of metric file."""

    name: str  # the name of the kind
    read: Callable[[Document], T]  # the file's content -> its result
    # the subjects whose files belong to this run; files of settings since taken back may still lie there
    asked: Callable[[Params], Iterable[str]]
    path: str = ""  # below the metrics' folder, with a place for the subject; if left out, that of a variant's own file

    def file(self, whose: str) -> str:
        """Return the path of one file below the metrics' folder."""
        return (self.path or f"{{}}/{self.name}.json").format(whose)


def measured_subjects(params: Params) -> tuple[str, ...]:
    """Return the variants that run, and the baselines."""
    return (*params.run.evaluate, REAL, *params.at_epsilon_0)


@dataclass(frozen=True)
class Results:
    """The metric files of one run.

    Guarantee: a file of an audit that came to no result is never returned as a result.
    """

    # kind -> subject, such as a variant -> the file's content
    documents: Mapping[str, Mapping[str, Document]] = field(default_factory=dict)

    def of(self, metric: Metric[T]) -> dict[str, T]:
        """Return subject -> result. Raises DataError if a file is not what this version writes."""
        found = ((name, self.get(metric, name)) for name in self.documents.get(metric.name, {}))
        return {name: result for name, result in found if result is not None}

    def get(self, metric: Metric[T], name: str) -> T | None:
        """Return one result, or None where it was not measured or came to no result."""
        body = self.documents.get(metric.name, {}).get(name)
        return None if body is None or read_inconclusive(body) else _read(metric, name, body)

    def find_unsettled(self, metric: Metric[Any]) -> dict[str, Inconclusive]:
        """Return subject -> why there is no result, for the audits that came to none."""
        told = {name: read_inconclusive(body) for name, body in self.documents.get(metric.name, {}).items()}
        return {name: why for name, why in told.items() if why is not None}

    def mark_inconclusive(self, kind: str, why: Inconclusive) -> "Results":
        """Return these results with every result of one kind replaced by the reason for having none."""
        return replace(self, documents={**self.documents, kind: dict.fromkeys(self.documents[kind], why.document)})


def _read(metric: Metric[T], name: str, body: Document) -> T:
    try:
        return metric.read(body)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"The metric file {metric.file(name)!r} is not what this version writes.",
            "Run the stage that writes it again.",
        ) from error


@dataclass(frozen=True)
class Fraction(Plain):
    """`count` out of `total`."""

    count: int
    total: int


@dataclass(frozen=True)
class Score(Plain):
    """The scores on the real test rows of one evaluator, trained on a variant's rows."""

    evaluator: str  # its name
    accuracy: Estimate  # on the real test rows
    # accuracy / accuracy of the real row, paired by test row; None where it was not compared
    retention: Estimate | None
    # (accuracy - public_only) / (real - public_only), paired alike; None where `gap_note` says why
    gap_closed: Estimate | None
    gap_note: str | None  # the reason for a missing gap, or None
    perplexity: Estimate | None = None  # on the real test rows, of an evaluator that predicts tokens
    # accuracy / accuracy of the public_lm row, paired alike; None where there is no such row
    over_public_lm: Estimate | None = None
    macro_f1: float | None = None  # mean F1 over the labels, of an evaluator that predicts them


@dataclass(frozen=True)
class Membership(Plain):
    """The strongest attack on one variant (highest AUC) and the verdict over all of them, with the claim's p value.

    Bound, `eps_max` and verdict count the audit as one of all audits of its variant (`MembershipAudit.among`); the p
    value is its own.
    """

    attack: str
    auc: Estimate
    true_positives: Estimate
    epsilon_lower: float
    eps_max: float | None
    control_passed: bool
    verdict: str
    p: float | None


def is_attack(kind: str) -> bool:
    """Tell whether a kind of metric file holds a membership attack."""
    return kind.endswith("membership")


def overall_verdict(audits: Iterable[Membership | None], *, unsettled: bool = False) -> str | None:
    """Return the verdict over all audits of a claim.

    It is refuted if one refutes, inconclusive unless one could have refuted; None without any audit.

    Args:
        unsettled: whether further audits came to no result.
    """
    found = {audit.verdict for audit in audits if audit is not None}
    return next((verdict for verdict in _VERDICTS if verdict in found), "inconclusive" if unsettled else None)


@dataclass(frozen=True)
class Excess(Plain):
    """n-gram overlap with the members minus overlap with the holdout."""

    order: int
    rate: Estimate
    p: float
    judges: bool  # whether planted copies were found at all


@dataclass(frozen=True)
class Row(Plain):
    """One variant; a measurement that was not made is None.

    `token_epsilon` is the epsilon of one word, where a method protects only words. `audits` are the membership audits
    that were made, by kind; `verdict` is over all of them (`overall_verdict`). `unsettled` is kind of metric file ->
    the reason why there is no result.
    """

    variant: str
    role: str
    method: str | None
    rows: int | None
    epsilon_target: float | None
    epsilon_proved: float | None
    token_epsilon: float | None
    scores: tuple[Score, ...]
    audits: Mapping[str, Membership]
    ngram_excess: Excess | None
    facts_carried: Fraction | None
    individual_leaked: Fraction | None
    canaries_leaked: Fraction | None
    label_fit: LabelFit | None = None
    verdict: str | None = None
    unsettled: Mapping[str, str] = field(default_factory=dict)

    @property
    def unsettled_attacks(self) -> tuple[str, ...]:
        """The kinds of membership audits that came to no result."""
        return tuple(kind for kind in self.unsettled if is_attack(kind))

    @property
    def attacks(self) -> tuple[Membership, ...]:
        """The membership audits that were made."""
        return tuple(self.audits.values())

    @property
    def sound(self) -> tuple[Membership, ...]:
        """The membership audits whose control passed; the others say nothing."""
        return tuple(audit for audit in self.attacks if audit.control_passed)

    @property
    def epsilon_lower(self) -> float | None:
        """The highest lower bound that an attack showed; None without any audit."""
        return None if self.strongest is None else self.strongest.epsilon_lower

    @property
    def strongest(self) -> Membership | None:
        """The audit that showed the highest lower bound."""
        return max(self.sound, key=lambda audit: audit.epsilon_lower, default=None)

    def score(self, evaluator: str) -> Score | None:
        """Return the score by this evaluator, or None."""
        return next((score for score in self.scores if score.evaluator == evaluator), None)


@dataclass(frozen=True)
class Summary:
    """The final table: releases first, then reference runs, then the baselines; and the unit of privacy."""

    rows: tuple[Row, ...]
    ledger: LedgerSummary

    @property
    def unit(self) -> str:
        """The unit of privacy."""
        return self.ledger.unit

    @property
    def per_word(self) -> dict[str, str]:
        """Variant -> the epsilon of a method that protects words, in its own unit."""
        known = {row.variant: row.token_epsilon for row in self.rows}
        return {name: per_word(epsilon, self.unit) for name, epsilon in known.items() if epsilon is not None}

    def of(self, *roles: str) -> tuple[Row, ...]:
        """Return the rows with one of these roles."""
        return tuple(row for row in self.rows if row.role in roles)

    @property
    def evaluators(self) -> tuple[str, ...]:
        """Every evaluator used, the one that shares no weights with any generator first."""
        names = {score.evaluator for row in self.rows for score in row.scores}
        return tuple(name for name in EVALUATORS if name in names) + tuple(sorted(names - set(EVALUATORS)))

    def table(
        self, conclusions: Mapping[str, str], coming: Iterable[str], unsettled: Iterable[str] = ()
    ) -> "FinalTable":
        """Return the table as it is kept on disk, with a sentence or two about each release.

        It also lists the measurements still to come and the audits that came to no result.

        Args:
            unsettled: a sentence for each reason that kept an audit from a result.
        """
        ledger = self.ledger
        budget = Budget(ledger.asset, ledger.delta, ledger.cap_epsilon, ledger.spent_epsilon, ledger.left_epsilon)
        return FinalTable(INTERNAL, self.rows, budget, self.unit, conclusions, tuple(coming), tuple(unsettled))


@dataclass(frozen=True)
class Budget(Plain):
    """The budget of a data set, in epsilon; what is spent counts standing reservations too."""

    asset: str
    delta: float
    cap: float
    spent: float
    left: float


@dataclass(frozen=True)
class FinalTable(Plain):
    """Private zone: reports/summary.json, from which the terminal shows a part of the page."""

    zone: str
    rows: tuple[Row, ...]
    budget: Budget
    unit: str
    conclusions: Mapping[str, str]  # release -> a sentence or two
    coming: tuple[str, ...]  # the measurements still to come, in words
    unsettled: tuple[str, ...]  # the audits that came to no result, and why
