"""Builds the final table: one line per variant, from the results, the receipts and the ledger."""

import math
from collections.abc import Mapping

from palimpsest.errors import DataError
from palimpsest.privacy.ledger.summary import LedgerSummary
from palimpsest.privacy.receipt import Receipt
from palimpsest.report.results import Results
from palimpsest.report.row import BASELINES, ROLES, Row, Summary, is_attack, overall
from palimpsest.report.sections import METRICS, facts, membership, ngrams, utility
from palimpsest.report.unsettled import reasons


def summarise(results: Results, receipts: Mapping[str, Receipt], ledger: LedgerSummary) -> Summary:
    """Put everything measured and proved about each variant into one line.

    Raises:
        DataError: a variant was measured but its receipt is missing.
    """
    measured = [name for metric in METRICS if not metric.path for name in results.documents.get(metric.name, {})]
    rows = [_row(name, results, receipts) for name in dict.fromkeys([*receipts, *measured])]
    return Summary(tuple(sorted(rows, key=_position)), ledger)


def _row(variant: str, results: Results, receipts: Mapping[str, Receipt]) -> Row:
    receipt, scored = receipts.get(variant), results.get(utility.UTILITY, variant)
    attacked = membership.strongest(results, variant)
    unsettled = reasons(results, variant)
    carried, individual, canaries = facts.shares(results, variant)
    return Row(
        variant=variant,
        role=_role(variant, receipts),
        method=receipt.method if receipt else None,
        rows=scored.rows if scored else None,
        epsilon_target=receipt.epsilon_target if receipt else None,
        epsilon_proved=receipt.epsilon if receipt else None,
        token_epsilon=(receipt.plan or {}).get("token_epsilon") if receipt else None,
        scores=utility.scores(results, variant),
        audits=attacked,
        ngram_excess=ngrams.excess_of(results, variant),
        facts_carried=carried,
        individual_leaked=individual,
        canaries_leaked=canaries,
        label_fit=scored.label_fit if scored else None,
        verdict=overall(attacked.values(), unsettled=any(map(is_attack, unsettled))),
        unsettled=unsettled,
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
