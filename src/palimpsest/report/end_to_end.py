"""States which methods' code was examined by the end-to-end audits that come with palimpsest.

An audit examines code and no data, so none is made for a workspace: `make twins` measures them once a version. A result
holds for the declared versions (`privacy.versions`) of the queries that it ran, and for no others.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from palimpsest.privacy.receipt import Receipt
from palimpsest.report.formats import at_least, number
from palimpsest.twins.shipped import Results

_NOT_EXAMINED = "not examined"
_JUDGE = "discriminator"  # its charges are on the receipts of the models that it supports


def end_to_end_verdicts(released: Sequence[Receipt], audits: Results) -> list[dict[str, str]]:
    """Return, for each method that made released rows: method, verdict, and what that means; `audits` are by method.

    A method is said to be not examined if it has no audit, or if its rows were charged for other versions than those
    that its audit ran.
    """
    return [
        _verdict_of(method, asked, audits.get(method)) for method, asked in sorted(_charged_versions(released).items())
    ]


def _charged_versions(released: Sequence[Receipt]) -> dict[str, set[tuple[str, int]]]:
    """Return method -> the versions that its rows were charged for."""
    found: dict[str, set[tuple[str, int]]] = {}
    for receipt in released:
        versions = {one for query in receipt.queries for one in query.versions.items()}
        judged = {_JUDGE} & {part for part, _ in versions}
        for method in (receipt.method, *judged):
            found.setdefault(method, set()).update(versions)
    return found


def _verdict_of(method: str, asked: set[tuple[str, int]], audit: Mapping[str, Any] | None) -> dict[str, str]:
    if audit is None:
        words = f"The code of method {method} was not examined end to end: no audit of it comes with palimpsest."
        return {"method": method, "verdict": _NOT_EXAMINED, "sentence": words}
    caught, tried = sum(twin["caught"] for twin in audit["twins"]), len(audit["twins"])
    words = (
        f"The code of method {method} in palimpsest {audit['palimpsest']} was attacked on {audit['canaries']} invented "
        f"records, claiming ε = {number(audit['claim'])}: {audit['verdict']}. The attack shows ε ≥ "
        f"{at_least(audit['epsilon_lower'], 2)} and could have shown {at_least(audit['eps_max'], 2)}; it caught "
        f"{caught} of {tried} versions that were broken on purpose."
    )
    ran = audit["versions"]
    other = sorted(f"{part} {own}" for part, own in asked if ran.get(part, own) != own)
    if other:
        words += f" These rows were charged for other versions, which it did not run: {', '.join(other)}."
    refuted = audit["verdict"] == "refuted"
    return {
        "method": method, "verdict": _NOT_EXAMINED if other and not refuted else audit["verdict"], "sentence": words,
    }  # fmt: skip
