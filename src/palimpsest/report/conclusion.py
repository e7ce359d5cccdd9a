"""Sums up the measurements of a variant in two sentences, which open the page and the terminal's report."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from palimpsest.audit.next_token_settings import NEXT_TOKEN
from palimpsest.report.formats import at_least, percent
from palimpsest.report.row import EVALUATORS, Row, Summary
from palimpsest.workspace import PUBLIC_ONLY


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
    beside = {name: _beside(variants.get(name, {}), public) for name in releases}
    return {name: sentence for name, sentence in beside.items() if sentence is not None}


def _beside(own: Mapping[str, Any], public: Mapping[str, Any]) -> str | None:
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
        return " ".join(_unsettled(row)) or "It was not attacked."
    if row.verdict == "refuted":
        return "An attack refuted its privacy claim: a proof or the code is wrong."
    if not row.sound:
        return " ".join(["The controls of all attacks failed: they say nothing.", *_unsettled(row)])
    if row.verdict == "inconclusive":
        return " ".join(["No attack was strong enough to refute its privacy claim.", *_unsettled(row)])
    power = max(audit.eps_max for audit in row.sound if audit.eps_max is not None and audit.verdict != "inconclusive")
    found = f"No attack refuted its claim; a perfect one could have refuted a claim of up to ε = {at_least(power)}."
    blind = [one.variant for one in references if one.method == row.method and _blind(one, row)]
    weak = [f"The attacks tell no members of {name} either, which is not private." for name in blind]
    return " ".join([found, *_unsettled(row), *weak])


def _unsettled(row: Row) -> list[str]:
    """Name the attacks that came to no result, and say why."""
    named = ((kind.replace("_", " "), row.unsettled[kind]) for kind in row.unsettled_attacks)
    return [f"Its {kind} attack is inconclusive, because {why}." for kind, why in named]


def _blind(reference: Row, row: Row) -> bool:
    """Tell whether attacks were made on both, with a passed control, and none of them tells the reference's members."""
    both = [one.auc.low for kind, one in reference.audits.items() if kind in row.audits and one.control_passed]
    return bool(both) and max(both) <= 0.5
