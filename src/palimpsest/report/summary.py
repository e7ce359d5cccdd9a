"""Builds the final table from results, receipts and ledger, and sums up each variant in two sentences."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palimpsest.audit.inconclusive import Inconclusive
from palimpsest.audit.next_token_settings import NEXT_TOKEN
from palimpsest.errors import DataError
from palimpsest.privacy.ledger.summary import LedgerSummary
from palimpsest.privacy.receipt import Receipt
from palimpsest.report.formats import at_least, percent
from palimpsest.report.results import (
    BASELINES,
    EVALUATORS,
    ROLES,
    Metric,
    Results,
    Row,
    Summary,
    is_attack,
    overall_verdict,
)
from palimpsest.report.sections import METRICS, fidelity, membership, memorisation, utility
from palimpsest.report.sections.base import Claim, digest
from palimpsest.workspace import PUBLIC_ONLY


@dataclass(frozen=True)
class Unsettled:
    """One reason, and the audits that it kept from a result."""

    why: Inconclusive
    audits: dict[str, tuple[str, ...]]  # kind of metric file -> its subjects, such as variants

    @property
    def sentence(self) -> str:
        """The audits, the reason, and what to do."""
        named = "; ".join(f"{kind.replace('_', ' ')} ({', '.join(names)})" for kind, names in self.audits.items())
        return f"Inconclusive, because {self.why.inconclusive}: {named}. {self.why.remedy}"


def collect_unsettled(results: Results) -> tuple[Unsettled, ...]:
    """Return each reason once, first those for which an audit itself failed."""
    found: dict[Inconclusive, dict[str, tuple[str, ...]]] = {}
    for metric, name, why in _list_unsettled(results):
        audits = found.setdefault(why, {})
        audits[metric.name] = (*audits.get(metric.name, ()), name)
    return tuple(sorted((Unsettled(*one) for one in found.items()), key=lambda one: not one.why.failed))


def reasons(results: Results, variant: str) -> dict[str, str]:
    """Return kind -> why there is no result of it for a variant, or for another row of the results."""
    own = ((metric, why) for metric, name, why in _list_unsettled(results) if name == variant and not metric.path)
    return {metric.name: why.inconclusive for metric, why in own}


def uncovered_claims(results: Results) -> Iterator[Claim]:
    """Return, for each audit without a result, the statement that nothing is claimed by it."""
    for metric, name, why in _list_unsettled(results):
        sentence = f"Audit {metric.name.replace('_', ' ')} of {name}: inconclusive, because {why.inconclusive}."
        path = f"reports/metrics/{metric.file(name)}"
        body = results.documents[metric.name][name]
        yield Claim(f"I-{metric.name}-{name}", sentence, "not covered", path, digest(body))


def _list_unsettled(results: Results) -> Iterator[tuple[Metric[Any], str, Inconclusive]]:
    return ((metric, name, why) for metric in METRICS for name, why in results.find_unsettled(metric).items())


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
    carried, individual, canaries = fidelity.shares(results, variant)
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
        ngram_excess=memorisation.excess_of(results, variant),
        facts_carried=carried,
        individual_leaked=individual,
        canaries_leaked=canaries,
        label_fit=scored.label_fit if scored else None,
        verdict=overall_verdict(attacked.values(), unsettled=any(map(is_attack, unsettled))),
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


def conclusions(summary: Summary, later: Collection[str] = ()) -> dict[str, str]:
    """Return release -> its gain over public text alone, and whether an attack could have refuted its claim.

    `later` are the releases whose attacks are still to come.
    """
    references = [row for row in summary.of("reference") if row.epsilon_proved is None and row.sound]
    releases = summary.of("release")
    attacks = {row.variant: _attacks(row, references) for row in releases if row.variant not in later}
    return {row.variant: f"{_gain(row)} {attacks.get(row.variant, 'Attacks are still to come.')}" for row in releases}


def public_conclusions(scores: Mapping[str, Any] | None, releases: Sequence[str]) -> dict[str, str]:
    """Return release -> how its rows do beside public text alone, on a test file that was declared public.

    Guarantee: made only of publishable scores.
    """
    variants = scores["variants"] if scores else {}
    public = variants.get(PUBLIC_ONLY, {})
    beside = {name: _compare_with_public(variants.get(name, {}), public) for name in releases}
    return {name: sentence for name, sentence in beside.items() if sentence is not None}


def _compare_with_public(own: Mapping[str, Any], public: Mapping[str, Any]) -> str | None:
    """Compare by the first evaluator that scored both; None where there is none."""
    evaluator = next((name for name in (*EVALUATORS, *own) if name in own and name in public), None)
    if evaluator is None:
        return None
    mine, theirs = own[evaluator], public[evaluator]
    learner = "A language model" if evaluator == NEXT_TOKEN else "A classifier"
    numbers = f"{percent(mine['accuracy'])} against {percent(theirs['accuracy'])} on the public test file, {evaluator}"
    if mine["low"] > theirs["high"]:
        return f"{learner} learns more from its rows than from public text alone ({numbers})."
    if mine["high"] < theirs["low"]:
        return f"{learner} learns less from its rows than from public text alone ({numbers})."
    return f"No difference from public text alone that this test could show ({numbers})."


def _gain(row: Row) -> str:
    """State the gain by the evaluator that shares no weights with any generator, where it was used."""
    score = row.scores[0] if row.scores else None
    if score is None and "utility" in row.unsettled:
        return f"Its usefulness is inconclusive, because {row.unsettled['utility']}."
    if score is None:
        return "Its usefulness was not measured."
    if score.gap_closed is None:
        return f"Its gain over public text alone is unknown: {score.gap_note}."
    gap = score.gap_closed
    if gap.low > 0:
        width = f"{percent(gap.low, 0)} to {percent(gap.high, 0)}"
        return f"Better than public text alone: it closes {width} of the gap to the private rows ({score.evaluator})."
    if gap.high < 0:
        return f"Worse than public text alone ({score.evaluator})."
    return f"No gain over public text alone that this test could show ({score.evaluator})."


def _attacks(row: Row, references: Sequence[Row]) -> str:
    """Say what came of the attacks, and how strong they were.

    Their strength is the largest claim that a perfect attack could have refuted; it is no bound on the loss.

    A reference of the same method, whose rows are not private, shows whether these attacks find anything.
    """
    if not row.attacks:
        return " ".join(_name_unsettled(row)) or "It was not attacked."
    if row.verdict == "refuted":
        return "An attack refuted its privacy claim: a proof or the code is wrong."
    if not row.sound:
        return " ".join(["The controls of all attacks failed: they say nothing.", *_name_unsettled(row)])
    if row.verdict == "inconclusive":
        return " ".join(["No attack was strong enough to refute its privacy claim.", *_name_unsettled(row)])
    power = max(audit.eps_max for audit in row.sound if audit.eps_max is not None and audit.verdict != "inconclusive")
    found = f"No attack refuted its claim; a perfect one could have refuted a claim of up to ε = {at_least(power)}."
    blind = [one.variant for one in references if one.method == row.method and _is_blind(one, row)]
    weak = [f"The attacks tell no members of {name} either, which is not private." for name in blind]
    return " ".join([found, *_name_unsettled(row), *weak])


def _name_unsettled(row: Row) -> list[str]:
    named = ((kind.replace("_", " "), row.unsettled[kind]) for kind in row.unsettled_attacks)
    return [f"Its {kind} attack is inconclusive, because {why}." for kind, why in named]


def _is_blind(reference: Row, row: Row) -> bool:
    """Tell whether attacks were made on both, with a passed control, and none of them tells the reference's members."""
    both = [one.auc.low for kind, one in reference.audits.items() if kind in row.audits and one.control_passed]
    return bool(both) and max(both) <= 0.5
