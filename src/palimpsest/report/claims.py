"""The claims of the audit page: an id, a sentence, how far it holds, and the evidence."""

from collections.abc import Iterator, Mapping
from typing import Any

from palimpsest.privacy.ledger.summary import LedgerSummary
from palimpsest.privacy.receipt import Receipt
from palimpsest.report.formats import at_most
from palimpsest.report.results import Results
from palimpsest.report.row import Summary
from palimpsest.report.sections import SECTIONS
from palimpsest.report.sections.base import Claim, digest
from palimpsest.report.statement import PRIVATE
from palimpsest.report.summary import uncovered_claims
from palimpsest.report.unit import Unit

_STATUSES = ("proved", "tested", "assumed", "not covered")


def claims(
    summary: Summary,
    results: Results,
    receipts: Mapping[str, Receipt],
    ledger: LedgerSummary,
    statement: Mapping[str, Any],
) -> tuple[Claim, ...]:
    """Return every claim of the page, the proved ones first."""
    refuted = {row.variant for row in summary.of("release") if row.verdict == "refuted"}
    sound = statement["status"] == PRIVATE and not refuted
    rows = summary.of("release")
    measured = [one for row in rows for part in SECTIONS for one in part.claims(row, results, summary.unit)]
    measured += uncovered_claims(results)
    return _sort_by_status(
        [
            *_proved_claims(receipts, statement, refuted),
            _total_claim(ledger, sound),
            *measured,
            *_statement_claims(statement),
        ]
    )


def public_claims(
    statement: Mapping[str, Any], receipts: Mapping[str, Receipt], ledger: LedgerSummary
) -> tuple[Claim, ...]:
    """Return the claims of a card, which rest on nothing from the private zone, the proved ones first."""
    total = _total_claim(ledger, statement["status"] == PRIVATE)
    return _sort_by_status([*_proved_claims(receipts, statement, set()), total, *_statement_claims(statement)])


def _end_to_end_claim(item: Mapping[str, Any]) -> Claim:
    tested = item["verdict"] in ("refuted", "not refuted")
    status = "tested" if tested else "not covered"
    return Claim(f"T-{item['method']}", item["sentence"], status, "palimpsest/twins/results.json")


def _statement_claims(statement: Mapping[str, Any]) -> list[Claim]:
    """Return the statement's own claims: tested end to end, assumed, and not covered."""
    own = [*map(_end_to_end_claim, statement["end_to_end"]), *map(_assumption_claim, statement["assumptions"])]
    return own + [
        Claim(f"N-{item['id']}", item["sentence"], "not covered", "reports/statement.json")
        for item in statement["not_covered"]
    ]


def _sort_by_status(stated: list[Claim]) -> tuple[Claim, ...]:
    return tuple(sorted(stated, key=lambda claim: _STATUSES.index(claim.status)))


def _proved_claims(receipts: Mapping[str, Receipt], statement: Mapping[str, Any], refuted: set[str]) -> Iterator[Claim]:
    step, promised = Unit.from_statement(statement).step, statement["status"] == PRIVATE
    for release in statement["releases"]:
        variant, epsilon = release["variant"], release["epsilon"]
        holds = promised and variant not in refuted
        sentence = (
            f"The rows of {variant} are (ε = {at_most(epsilon)}, δ = {at_most(release['delta'])})-differentially "
            f"private for adding or removing {step}, as far as the assumptions H hold."
            if holds
            else f"Nothing can be promised about the rows of {variant}."
        )
        evidence = (f"reports/receipts/{variant}.json", digest(receipts[variant].to_json()))
        yield Claim(f"P-{variant}", sentence, "proved" if holds else "not covered", *evidence)
        if release["accounting"]["agree"]:
            yield Claim(f"A-{variant}", f"Two accountants agree on {variant}.", "tested", *evidence)


def _total_claim(ledger: LedgerSummary, sound: bool) -> Claim:
    total = ledger.total
    return Claim("P-total", total.sentence, total.status if sound else "not covered", "ledger", str(ledger.shown_head))


def _assumption_claim(item: Mapping[str, Any]) -> Claim:
    seen = item["holds"] == "yes"
    return Claim(
        id=f"H-{item['id']}",
        sentence=item["sentence"],
        status="tested" if seen else "not covered" if item["holds"] == "no" else "assumed",
        evidence=item["test"] or _name_basis(item),
    )


def _name_basis(item: Mapping[str, Any]) -> str:
    """Name what an assumption without a test rests on."""
    if item["holds"] == "owner":
        named = (f"{one['source']} ({one['name']}, {(one['sha256'] or 'no hash')[:12]})" for one in item["sources"])
        return "; ".join(["the owner's word", *named])
    words = {"untested": "no test", "assumed": "assumed of the machine"}
    return words.get(item["holds"], "checked in this run")
