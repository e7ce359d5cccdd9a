"""The final table: one row per variant, from the metric files, the receipts and the ledger."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from palimpsest.errors import DataError
from palimpsest.privacy.ledger.summary import LedgerSummary
from palimpsest.privacy.receipt import Receipt
from palimpsest.report.formats import per_word

Metrics = Mapping[str, Mapping[str, Any]]
Scores = Mapping[str, Any]

BASELINES = ("real", "public_only")
ROLES = ("release", "reference", *BASELINES)
EXCESS_ORDER = "5"
EVALUATORS = ("tfidf_lr", "minilm_lr")  # first the one that shares no weights with any generator


@dataclass(frozen=True)
class Interval:
    """A measured value with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Share:
    """`count` of `total`."""

    count: int
    total: int


@dataclass(frozen=True)
class Score:
    """What one evaluator, trained on a variant's rows, scores on the real test rows.

    Attributes:
        evaluator: its name.
        accuracy: on the real test rows.
        retention: accuracy / accuracy of the real row, paired by test row; None where it was not compared.
        gap_closed: (accuracy - public_only) / (real - public_only), paired alike; None where `gap_note` says why.
        gap_note: the reason for a missing gap, or None.
    """

    evaluator: str
    accuracy: Interval
    retention: Interval | None
    gap_closed: Interval | None
    gap_note: str | None


@dataclass(frozen=True)
class Membership:
    """The strongest attack on one variant (highest AUC) and the verdict over all of them, with the claim's p value."""

    attack: str
    auc: Interval
    true_positives: Interval
    epsilon_lower: float
    eps_max: float | None
    control_passed: bool
    verdict: str
    p: float | None


@dataclass(frozen=True)
class Excess:
    """n-gram overlap with the members minus overlap with the holdout."""

    order: int
    rate: Interval
    p: float


@dataclass(frozen=True)
class Row:
    """One variant; a measurement that was not made is None.

    `token_epsilon` is the epsilon of one word, where a method protects words alone.
    """

    variant: str
    role: str
    method: str | None
    rows: int | None
    epsilon_target: float | None
    epsilon_proved: float | None
    token_epsilon: float | None
    scores: tuple[Score, ...]
    membership: Membership | None
    text_membership: Membership | None
    shadow_membership: Membership | None
    ngram_excess: Excess | None
    facts_carried: Share | None
    individual_leaked: Share | None
    canaries_leaked: Share | None

    @property
    def attacks(self) -> tuple[Membership, ...]:
        """The membership audits that were made: of the model, of the rows alone, with shadow models."""
        audits = (self.membership, self.text_membership, self.shadow_membership)
        return tuple(found for found in audits if found is not None)

    @property
    def verdict(self) -> str | None:
        """Over all membership audits: refuted if one refutes; inconclusive unless one could have; None without any."""
        verdicts = [found.verdict for found in self.attacks]
        return next((word for word in ("refuted", "not refuted", "inconclusive") if word in verdicts), None)

    @property
    def epsilon_lower(self) -> float | None:
        """The highest lower bound that an attack showed; None without any."""
        return max((found.epsilon_lower for found in self.attacks), default=None)

    @property
    def strongest(self) -> Membership | None:
        """The audit that showed the highest lower bound."""
        return max(self.attacks, key=lambda found: found.epsilon_lower, default=None)

    def score(self, evaluator: str) -> Score | None:
        """The score by this evaluator, or None."""
        return next((score for score in self.scores if score.evaluator == evaluator), None)


@dataclass(frozen=True)
class BudgetLeft:
    """The asset's budget, in epsilon at its delta; `spent` counts standing reservations too."""

    asset: str
    delta: float
    cap: float
    spent: float
    left: float


@dataclass(frozen=True)
class Summary:
    """The final table: releases first, then reference runs, then `real` and `public_only`; and the unit of privacy."""

    rows: tuple[Row, ...]
    budget: BudgetLeft
    unit: str

    @property
    def per_word(self) -> dict[str, str]:
        """Variant -> the epsilon of a method that protects words, in words of its own."""
        found = {row.variant: row.token_epsilon for row in self.rows}
        return {name: per_word(epsilon, self.unit) for name, epsilon in found.items() if epsilon is not None}

    def of(self, *roles: str) -> tuple[Row, ...]:
        """The rows with one of these roles."""
        return tuple(row for row in self.rows if row.role in roles)

    @property
    def evaluators(self) -> tuple[str, ...]:
        """Every evaluator used, the unrelated one first."""
        names = {score.evaluator for row in self.rows for score in row.scores}
        return tuple(name for name in EVALUATORS if name in names) + tuple(sorted(names - set(EVALUATORS)))

    def to_json(self) -> dict[str, Any]:
        """Plain values for reports/summary.json."""
        return {
            "zone": "internal",
            "rows": [asdict(row) for row in self.rows],
            "budget": asdict(self.budget),
            "unit": self.unit,
        }


def summarise(metrics: Metrics, receipts: Mapping[str, Receipt], ledger: LedgerSummary) -> Summary:
    """Put everything measured and proved about each variant into one row.

    Args:
        metrics: variant -> kind ("utility", "membership", "ngrams", "facts") -> the metric file's content.
        receipts: variant -> its receipt; `real` and `public_only` have none.
        ledger: the asset's ledger summary.

    Raises:
        DataError: a variant was measured but its receipt is missing.
    """
    names = list(dict.fromkeys([*receipts, *metrics]))
    rows = [_row(name, metrics, receipts) for name in names]
    return Summary(tuple(sorted(rows, key=_position)), _budget(ledger), str(ledger.unit))


def _row(variant: str, metrics: Metrics, receipts: Mapping[str, Receipt]) -> Row:
    found, receipt = metrics.get(variant, {}), receipts.get(variant)
    facts, utility = found.get("facts", {}), found.get("utility", {})
    return Row(
        variant=variant,
        role=_role(variant, receipts),
        method=receipt.method if receipt else None,
        rows=utility.get("rows"),
        epsilon_target=receipt.epsilon_target if receipt else None,
        epsilon_proved=receipt.epsilon if receipt else None,
        token_epsilon=(receipt.plan or {}).get("token_epsilon") if receipt else None,
        scores=_scores(variant, metrics),
        membership=_membership(found.get("membership")),
        text_membership=_membership(found.get("text_membership")),
        shadow_membership=_membership(found.get("shadow_membership")),
        ngram_excess=_excess(found.get("ngrams")),
        facts_carried=Share(facts["carried"], facts["total"]) if facts else None,
        individual_leaked=Share(facts["individual"]["leaked"], facts["individual"]["total"]) if facts else None,
        canaries_leaked=Share(facts["canaries"]["leaked"], facts["canaries"]["planted"]) if facts else None,
    )


def _role(variant: str, receipts: Mapping[str, Receipt]) -> str:
    if variant in BASELINES:
        return variant
    if variant not in receipts:
        raise DataError(
            f"Variant {variant!r} was measured but has no receipt.", "Run its fit stage, which writes the receipt."
        )
    return receipts[variant].purpose


def _position(row: Row) -> tuple[int, float]:
    epsilon = math.inf if row.epsilon_proved is None else row.epsilon_proved
    return ROLES.index(row.role), epsilon


def _evaluators(variant: str, metrics: Metrics) -> dict[str, Any]:
    return dict(metrics.get(variant, {}).get("utility", {}).get("evaluators", {}))


def _scores(variant: str, metrics: Metrics) -> tuple[Score, ...]:
    real, public = _evaluators("real", metrics), _evaluators("public_only", metrics)
    found = _evaluators(variant, metrics)
    order = [name for name in EVALUATORS if name in found] + sorted(set(found) - set(EVALUATORS))
    return tuple(_score(name, found[name], real.get(name), public.get(name)) for name in order)


def _score(name: str, own: Scores, real: Scores | None, public: Scores | None) -> Score:
    accuracy = Interval(own["accuracy"], own["low"], own["high"])
    gap = _interval(own, "gap_closed")
    return Score(name, accuracy, _interval(own, "retention"), gap, None if gap else _gap_note(own, real, public))


def _interval(own: Scores, field: str) -> Interval | None:
    """A figure that the evaluation compared with the baselines, test row by test row; absent or null is None."""
    found = own.get(field)
    return None if found is None else Interval(found["value"], found["low"], found["high"])


def _gap_note(own: Scores, real: Scores | None, public: Scores | None) -> str:
    """Why there is no gap to close: a ratio over a difference that may be zero says nothing."""
    if not real or not public:
        return "needs both the real and the public_only row"
    if "gap_closed" not in own:
        return "not compared with the baselines"
    return "the gap between public_only and real is within its 95% interval"


def _membership(found: Mapping[str, Any] | None) -> Membership | None:
    if not found or not found["attacks"]:
        return None
    attack, best = max(found["attacks"].items(), key=lambda item: item[1]["auc"])
    rate = best["tpr_at_1pct"]
    return Membership(
        attack=attack,
        auc=Interval(best["auc"], best["low"], best["high"]),
        true_positives=Interval(rate["rate"], rate["low"], rate["high"]),
        epsilon_lower=found["epsilon_lower"]["value"],
        eps_max=found["eps_max"],
        control_passed=found["control"]["passed"],
        verdict=found["verdict"],
        p=found.get("p"),
    )


def _excess(found: Mapping[str, Any] | None) -> Excess | None:
    if not found or EXCESS_ORDER not in found["orders"]:
        return None
    excess = found["orders"][EXCESS_ORDER]["excess"]
    return Excess(int(EXCESS_ORDER), Interval(excess["value"], excess["low"], excess["high"]), excess["p"])


def _budget(ledger: LedgerSummary) -> BudgetLeft:
    return BudgetLeft(
        asset=ledger.asset,
        delta=ledger.delta,
        cap=ledger.cap_epsilon,
        spent=ledger.spent_epsilon,
        left=ledger.left_epsilon,
    )
