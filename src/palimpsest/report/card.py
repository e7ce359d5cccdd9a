"""The public card of a release: one HTML file made of what may be published, and of nothing else.

Guarantee: everything on the card is a function of the plans, the ledger, ledgered outputs, the synthetic rows among
them, and files declared public. It takes no document of the private zone: one that says "internal" is refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palimpsest.errors import DataError
from palimpsest.privacy.ledger.summary import LedgerSummary
from palimpsest.privacy.receipt import Receipt
from palimpsest.records.record import Record
from palimpsest.report.formats import Unit, at_most
from palimpsest.report.page import public_claims, render_page
from palimpsest.report.sections import budget, pipeline, utility
from palimpsest.report.statement import PRIVATE
from palimpsest.report.summary import public_conclusions
from palimpsest.report.tradeoff import read_tradeoff
from palimpsest.workspace import PUBLISHABLE

_HOLDS, _FAILS = "holds", "fails"


@dataclass(frozen=True)
class Gate:
    """One attempt to show that the claim is wrong, and what came of it."""

    name: str  # what was tried
    outcome: str  # holds, fails, refuted, not refuted, inconclusive or not examined
    sentence: str  # what that means
    evidence: str  # the file in the release, or the test, that carries it


def render_card(
    statement: Mapping[str, Any],
    ledger: LedgerSummary,
    receipts: Mapping[str, Receipt],
    stages: Sequence[Mapping[str, Any]],
    provenance: Mapping[str, str],
    *,
    variants: Sequence[str],
    scores: Mapping[str, Any] | None = None,
    samples: Mapping[str, Sequence[Record]] | None = None,
    copied: str = "",
    fingerprint: str | None = None,
) -> str:
    """Render the card as HTML text, with styles, drawings and the drawing library inside and no outside address.

    Args:
        provenance: name -> version of everything that matters, and "created".
        variants: the released ones; the statement's other releases stay in its totals.
        scores: of classifiers trained on the rows, on a test file declared public; None where there are none.
        samples: variant -> a few of its synthetic rows (`report.shown.few`).
        copied: what a reader must know of rows that are public texts word for word (`describe_public_rows`).
        fingerprint: of the key that signs the release; None for a copy that is not signed.

    Raises:
        DataError: the scores are not declared publishable.
    """
    if scores is not None and scores.get("zone") != PUBLISHABLE:
        raise DataError("The scores are not publishable.", "Leave them out of the card.")
    releases = [release for release in statement["releases"] if release["variant"] in variants]
    unit = Unit.from_statement(statement)
    curves = {release["variant"]: read_tradeoff(receipts[release["variant"]]) for release in releases}
    drawn = [
        *budget.limit_figures(releases, curves, unit),
        *(utility.public_figures(scores, releases) if scores else ()),
        budget.figure(ledger),
        pipeline.figure(stages),
    ]
    return render_page(
        "card.html.j2",
        drawn,
        statement=statement,
        promised=statement["status"] == PRIVATE,
        releases=releases,
        total=ledger.total,
        unit=unit,
        rows=scores["rows"] if scores else {},
        conclusions=public_conclusions(scores, [release["variant"] for release in releases]),
        alerts=_alerts(statement, releases),
        gates=gates(statement, releases),
        accountants=_accountants,
        claims=public_claims(statement, receipts, ledger),
        samples={name: rows for name, rows in (samples or {}).items() if name in curves},
        copied=copied,
        provenance=provenance,
        fingerprint=fingerprint,
    )


def gates(statement: Mapping[str, Any], releases: Sequence[Mapping[str, Any]]) -> list[Gate]:
    """Return the attempts to show that the claim is wrong: the whole claim first, then one by one."""
    if statement["status"] == PRIVATE:
        whole = _HOLDS, "Every release has a finite epsilon, fresh noise and a whole ledger."
    else:
        whole = _FAILS, " ".join(statement["reasons"]) or "Nothing is released."
    return [
        Gate("Status", *whole, "statement.json"),
        *map(_accounting_gate, releases),
        *map(_end_to_end_gate, statement["end_to_end"]),
    ]


def _accounting_gate(release: Mapping[str, Any]) -> Gate:
    agree, name = release["accounting"]["agree"], f"Accountants, {release['variant']}"
    if agree is None:
        words = "One accountant alone takes all of its mechanisms; there is no second opinion."
        return Gate(name, "inconclusive", words, "statement.json")
    listed = "; ".join(f"{accountant} {at_most(epsilon, 4)}" for accountant, epsilon in _accountants(release))
    words = "Independent accountants agree" if agree else "Accountants contradict each other"
    return Gate(name, _HOLDS if agree else _FAILS, f"{words}: {listed}.", "statement.json")


def _accountants(release: Mapping[str, Any]) -> list[tuple[str, float | None]]:
    """Return (name, epsilon) of every accountant that takes the release's mechanisms, the stated one first."""
    told = release["accounting"]
    named = [(told["name"], told["epsilon"])]
    named += [("Fourier accountant", told["epsilon_fourier"])] if told.get("epsilon_fourier") is not None else []
    return named + ([("Rényi DP", told["epsilon_rdp"])] if told["accountant"] != "rdp" else [])


def _end_to_end_gate(examined: Mapping[str, Any]) -> Gate:
    name = f"Attack on {examined['method']}, end to end"
    return Gate(name, examined["verdict"], examined["sentence"], "audit.json")


def _alerts(statement: Mapping[str, Any], releases: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    stops = [("stop", f"{statement['status']}: {reason}") for reason in statement["reasons"]]
    return stops + [("look", f"{release['variant']}: {flag}") for release in releases for flag in release["flags"]]
