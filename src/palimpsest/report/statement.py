"""The privacy statement: the promise, to whom it is made, its assumptions, and what is not covered.

Its sections follow Ponomareva et al. 2023, "How to DP-fy ML", 5.3.3. The shape is fixed by
privacy-statement.schema.json, which ships beside this module.

It also states which methods' code was examined by the end-to-end audits that come with palimpsest. An audit examines
code and no data, so none is made for a workspace: `make twins` measures them once a version. A result holds for the
declared versions (`privacy.versions`) of the queries that it ran, and for no others.
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from importlib import resources
from typing import Any

from palimpsest.privacy import accounting
from palimpsest.privacy.accounting import NAMES
from palimpsest.privacy.events import compose_terms
from palimpsest.privacy.fourier import Bracket
from palimpsest.privacy.ledger.summary import ChargeLine, LedgerSummary
from palimpsest.privacy.ledger.total import Total
from palimpsest.privacy.planned import ASSUMPTIONS
from palimpsest.privacy.receipt import GROUPS, QueryLine, Receipt
from palimpsest.report.formats import Unit, at_least, at_most, number
from palimpsest.report.tradeoff import TradeOff, read_tradeoff
from palimpsest.report.twins import Results, read_shipped
from palimpsest.workspace import Zone

STATEMENT_VERSION = 9
PRIVATE = "DIFFERENTIALLY PRIVATE"  # the status of a promise that holds
_PRIOR = _FPR = 0.01
_DRAWS_TOKENS = "predict"  # the method to which the assumption `draws` belongs
_REPLACED = 2  # units: one less and one more

NOT_COVERED = {
    "choice": (
        "A person's choice after seeing results on private rows: of settings, of the variant to release, of whether to "
        "release at all. No check that a release must pass reads those results."
    ),
    "references": "Runs without noise, the real row, this audit: they stay in the private zone, outside the total.",
    "public-text": "People in the text that was declared public, and in what a pretrained model was trained on.",
    "side-channels": "Running time, memory, power, disk and network traffic.",
    "population": "What many {units} say together: it is meant to be learned, also about people outside the data.",
    "attempts": (
        "That a stage asked again because rows had changed, or that an attempt failed: the list of charges shows it."
    ),
    "other-releases": (
        "Other releases about the same people that do not go through this ledger, or go through it under the name of "
        "another data set."
    ),
}
SWEPT = (
    "The choice of {} among the points of a sweep, if scores on private rows (accuracy on real test rows, audits) were "
    "looked at: no epsilon counts it. A choice by public or synthetic scores alone costs nothing."
)
SETTING = "Central: a trusted curator holds the rows; the protection is on what leaves."
OUTPUT = "Synthetic rows; everything else that reads private rows stays in the private zone."
_CHOSEN = "The rows of {} were chosen among several variants: its epsilon counts all of them and the choice."
_NOT_EXAMINED = "not examined"
_JUDGE = "discriminator"  # its charges are on the receipts of the models that it supports


def schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of the statement."""
    return dict(_read_shipped("privacy-statement.schema.json"))


def statement(
    receipts: Mapping[str, Receipt],
    ledger: LedgerSummary,
    schema_facts: Mapping[str, Any],
    stages: Sequence[Mapping[str, Any]],
    second: Mapping[str, Bracket | None] | None = None,
    sources: Sequence[Mapping[str, Any]] = (),
    swept: Collection[str] = (),
    language: str = "en",
) -> dict[str, Any]:
    """Build the privacy statement of everything released from one data asset.

    Guarantee: takes no document made from private rows, so that the statement can be shared.

    Args:
        receipts: variant -> its receipt; reference runs are named but nothing is promised about them.
        schema_facts: the public schema as a mapping (task, label, labels, n_public, unit_column, n_persons,
            max_rows_per_unit).
        stages: the DAG: name, desc, zone, deps.
        second: variant -> epsilon by the second accountant, None where it takes no part; a release that it contradicts
            makes the status UNVERIFIED. Where this is left out, the accountant is asked (`Receipt.second`).
        sources: what is public on the owner's word: source, kind, name and sha256 of each model, text and prompt.
        swept: variants that stood beside others in a sweep (`Params.swept`).
        language: of the texts as it was declared, a tag of BCP 47.

    Returns:
        A JSON document that validates against `schema()`.
    """
    unit, released = Unit.of(schema_facts), [one for one in receipts.values() if one.purpose == "release"]
    opinions = {one.variant: one.recompute_epsilon() for one in released} if second is None else second
    status, reasons = _status(released, ledger, opinions, unit)
    promised = status == PRIVATE
    units = schema_facts["n_persons"] or schema_facts["n_public"]
    chosen = sorted(one.variant for one in released if one.variant in swept)
    return {
        "statement_version": STATEMENT_VERSION,
        "status": status,
        "reasons": reasons,
        "setting": SETTING,
        "final_output": OUTPUT,
        "unit": unit.to_json(),
        "language": language,
        "adjacency": sorted({receipt.adjacency for receipt in released}),
        "delta": ledger.delta,
        "releases": [release_of(one, unit, units, opinions[one.variant], promised=promised) for one in released],
        "references": sorted(name for name, receipt in receipts.items() if receipt.purpose != "release"),
        "data_accesses": [_access(stage, ledger.charges) for stage in stages],
        "assumptions": [*assumptions(released, unit, units, ledger.verified), _state_sources(sources)],
        "layers": layers(released, ledger.total, unit, promised=promised),
        "not_covered": list_uncovered(unit, chosen),
        "end_to_end": end_to_end_verdicts(released, read_shipped()),
        "ledger": _ledger(ledger),
        **({"swept": chosen} if chosen else {}),
    }


def _status(
    released: Sequence[Receipt], ledger: LedgerSummary, second: Mapping[str, Bracket | None], unit: Unit
) -> tuple[str, list[str]]:
    broken = [f"The noise of {receipt.variant} is fixed by a seed." for receipt in released if receipt.noise_fixed]
    broken += [f"{receipt.variant} has no finite epsilon." for receipt in released if receipt.epsilon is None]
    broken += [f"{receipt.variant} builds on a reference run." for receipt in released if receipt.builds_on_reference]
    other = [receipt for receipt in released if receipt.unit != unit.name]
    broken += [f"{one.variant} was charged for one {one.unit}; the unit here is one {unit.name}." for one in other]
    if broken:
        return "NOT PRIVATE", broken
    doubts = [] if ledger.verified else ["The ledger's chain of hashes does not hold: do not rely on its totals."]
    if ledger.after_loss:
        doubts.append("An earlier ledger of this data set is lost: what it spent is unknown, so no total holds.")
    if not ledger.total.holds:
        doubts.append(ledger.total.sentence)
    contradicted = [receipt.variant for receipt in released if receipt.agreement(second[receipt.variant])]
    doubts += [f"The accountants contradict each other on {variant}." for variant in contradicted]
    if doubts:
        return "UNVERIFIED", doubts
    if not released:
        return "NOTHING RELEASED", ["No variant is meant for release."]
    return PRIVATE, []


def release_of(
    receipt: Receipt, unit: Unit, units: int, second: Bracket | None, *, promised: bool = True
) -> dict[str, Any]:
    """State one release. All of it follows from its receipt, so a check of the statement calls this again.

    `units` is the declared number of units, `second` the second accountant's answer, None where it takes no part. The
    meaning of an epsilon is stated where the whole statement promises it.
    """
    curve = read_tradeoff(receipt)
    words = _meaning(curve, unit) if curve and promised else None
    stated = receipt.stated_curve
    return {
        "variant": receipt.variant,
        "method": receipt.method,
        "epsilon": receipt.epsilon,
        "epsilon_target": receipt.epsilon_target,
        "delta": receipt.delta,
        "noise_fixed": receipt.noise_fixed,
        "accounting": _accounting(receipt, second),
        "mechanisms": receipt.to_json()["queries"],
        "partitions": _partitions(receipt.queries, unit),
        "group": [asdict(row) for row in receipt.group if row.k in GROUPS],
        "changed_row": _changed_row(receipt, unit),
        "curve": {"alpha": list(stated.alpha), "beta": list(stated.beta)},
        "meaning": words,
        "flags": _flags(receipt, words, unit, units, second),
    }


def _accounting(receipt: Receipt, second: Bracket | None) -> dict[str, Any]:
    """Return the stated epsilon, RDP's and the upper end of the Fourier accountant's."""
    stated, rdp, accountant = receipt.epsilon, receipt.epsilon_rdp, receipt.accountant
    return {
        "accountant": accountant,
        "name": NAMES[accountant],
        "epsilon": stated,
        "epsilon_rdp": rdp,
        "epsilon_fourier": None if second is None else second.high,
        "rdp_over_epsilon": rdp / stated if rdp is not None and stated else None,
        "agree": None if accountant == "rdp" else not receipt.agreement(second),
    }


def _changed_row(receipt: Receipt, unit: Unit) -> dict[str, Any]:
    """State the bound for a change within one unit: one out, another in. So the bound of a group of two holds.

    Where it is less, the bound of a replaced unit holds as well, if all queries asked the whole data set: a unit that
    moves to another part leaves one query and joins another, and two sampled queries may tell more of that than one of
    them asked twice. No own delta is shared out for it.
    """
    two = next((row.epsilon for row in receipt.group if row.k == _REPLACED), None)
    event = compose_terms((line.event, line.cell) for line in receipt.queries)
    whole = all(line.cell is None for line in receipt.queries)
    known = whole and receipt.own_delta == 0 and 0 < receipt.delta < 1
    one = accounting.replaced_epsilon(event, receipt.delta) if known else math.inf
    epsilon = min((bound for bound in (two, one) if bound is not None and math.isfinite(bound)), default=None)
    bound = "no finite ε is shown" if epsilon is None else f"ε ≤ {at_most(epsilon, 4)}"
    return {"k": _REPLACED, "epsilon": epsilon, "sentence": unit.describe_changed_row(bound)}


_BY = {  # how a unit is placed, by the unit and the scheme
    ("record", "keyed batches"): "a keyed hash of itself",
    ("record", "labels"): "its label",
    ("person", "keyed batches"): "a keyed hash of their id",
    ("person", "labels"): "a label that a keyed rule takes from their rows",
}


def _partitions(queries: Sequence[QueryLine], unit: Unit) -> list[dict[str, Any]]:
    """Return one entry per scheme and model whose queries ran over disjoint parts of the data set."""
    schemes: dict[tuple[str, str], list[str]] = {}
    for query in queries:
        if query.partition is not None:
            scheme, cell = query.partition
            schemes.setdefault((query.model, scheme), []).append(cell)
    return [
        {"model": model, "scheme": scheme, "cells": len(set(cells)), "queries": len(cells)}
        | {
            "sentence": f"Partition {scheme!r} of {model}: {len(cells)} queries over {len(set(cells))} disjoint parts "
            f"of the data set, each {unit.name} in one by {_BY.get((unit.name, scheme), 'what it alone says')}; the "
            "largest cell counts."
        }
        for (model, scheme), cells in schemes.items()
    ]


def _meaning(curve: TradeOff, unit: Unit) -> dict[str, Any]:
    most, belief = curve.true_positives(_FPR), curve.belief(_PRIOR, _FPR)
    return {
        "false_positive_rate": _FPR,
        "true_positive_rate": most,
        "advantage": curve.advantage(),
        "prior": _PRIOR,
        "belief": belief,
        "sentence": (
            f"The best possible attack that wrongly accuses 1 in 100 {unit.many} outside the data finds at most "
            f"{at_most(100 * most)} in 100 of those inside. Where it accuses, a belief of 1% that the {unit.name} is "
            f"inside rises to at most {at_most(100 * belief)}%."
        ),
    }


def _flags(
    receipt: Receipt, words: Mapping[str, Any] | None, unit: Unit, units: int, second: Bracket | None
) -> list[str]:
    flags = []
    if receipt.delta >= 1 / units:
        flags.append(f"delta is not below 1 / n: publishing {unit.whole} at random would satisfy it.")
    if words and words["true_positive_rate"] > 0.5:
        flags.append("The promise is weak: finding more than half of the members at 1 % false alarms is not excluded.")
    if receipt.agreement(second):
        flags.append("The accountants contradict each other, or one of them gave no finite epsilon.")
    return flags


def _access(stage: Mapping[str, Any], charges: Sequence[ChargeLine]) -> dict[str, Any]:
    """State how one stage's access to the data is covered; a metered access without a charge is not."""
    name = stage["name"]
    spent = [one for one in charges if name in (one.stage, f"{one.stage}@{one.variant}") and one.state != "refunded"]
    released = [charge for charge in spent if charge.purpose == "release"]
    if released and len(released) < len(spent):
        note = "Metered: charged before the first noise; its reference runs are not covered and never leave."
        coverage = "covered"
    elif released:
        coverage, note = "covered", "Metered: charged to the ledger before the first noise."
    elif stage["zone"] == Zone.PUBLIC:
        coverage, note = "public", "Reads only what was declared public."
    elif stage["zone"] == Zone.DP and not spent:
        note = "Reads only what is public or protected already: free post-processing; a reference's rows never leave."
        coverage = "covered"
    else:
        coverage, note = "not covered", "Reads private rows; its outputs stay in the private zone."
    seqs = [charge.seq for charge in released]
    return {"stage": name, "zone": stage["zone"], "charges": seqs, "coverage": coverage, "note": note}


def assumptions(released: Sequence[Receipt], unit: Unit, units: int, verified: bool) -> list[dict[str, Any]]:
    """Return the shipped assumptions with their tests, those of the receipts, and those that this run itself can check.

    `units` is the declared number of units, `verified` whether the ledger's chain of hashes holds.
    """
    named = {name for receipt in released for name in receipt.assumptions}
    shipped = [
        item for item in _read_shipped("assumptions.json") if item["id"] not in ASSUMPTIONS or item["id"] in named
    ]
    tested = [_state_assumption(item, unit) for item in shipped]
    small = all(receipt.delta < 1 / units for receipt in released)
    fresh = not any(receipt.noise_fixed for receipt in released)
    seen = {
        "run-noise": ("No noise of this run was fixed by a seed.", fresh),
        "run-delta": (f"delta is below 1 / n, n being the declared number of {unit.many}.", small),
        "run-ledger": ("The ledger's chain of hashes was recomputed and holds.", verified),
    }
    own = [(*unit.assumption, "assumed")]
    own += [(key, sentence, "yes" if holds else "no") for key, (sentence, holds) in seen.items()]
    return [*tested, *({"id": key, "sentence": words, "test": None, "holds": holds} for key, words, holds in own)]


def _state_assumption(item: Mapping[str, Any], unit: Unit) -> dict[str, Any]:
    test = item.get("of_persons", item["test"]) if unit.persons else item["test"]
    holds = "assumed" if item["id"] in ASSUMPTIONS else "yes" if test else "untested"
    return {"id": item["id"], "sentence": unit.fill_sentence(item["sentence"]), "test": test, "holds": holds}


def _state_sources(sources: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """State what no program can check: the owner assumes it of each source, by its name and its hash."""
    return {
        "id": "public-sources",
        "sentence": "Public models, prompts and texts were not derived from these rows.",
        "test": None,
        "holds": "owner",
        "sources": [dict(source) for source in sources],
    }


def list_uncovered(unit: Unit, swept: Sequence[str] = ()) -> list[dict[str, str]]:
    """List what the promise leaves out; `swept` are the releases that stood beside others in a sweep."""
    named = NOT_COVERED | ({"sweep": SWEPT.format(", ".join(swept))} if swept else {}) | unit.not_covered
    return [{"id": key, "sentence": unit.fill_sentence(sentence)} for key, sentence in named.items()]


def layers(released: Sequence[Receipt], total: Total, unit: Unit, *, promised: bool = True) -> list[dict[str, str]]:
    """Return a line per layer that a guarantee stands on, after the pyramid of NIST SP 800-226 (2025), top to foot."""
    names = sorted({line.name for receipt in released for line in receipt.queries})
    charged = "".join(f" {_CHOSEN.format(one.variant)}" for one in released if one.method == "choose")
    rows = (
        ("Epsilon and delta", f"{total.sentence}{charged}", total.status if promised else "not covered"),
        ("Unit of privacy", f"{unit.description} {unit.note}", "proved" if unit.persons else "assumed"),
        ("Algorithms", f"Mechanisms that read private rows: {', '.join(names) or 'none'}.", "proved"),
        ("Implementation", "Sensitivity, sampling and noise are tested by enumeration and replay.", "tested"),
        ("Random numbers", "Noise and coins come from the operating system's entropy.", "tested"),
        ("Floating point", *_floating_point(released)),
        ("Utility and bias", "How useful the rows are, and to whom, is no part of the promise.", "not covered"),
        ("Trust", "A trusted curator holds the rows, the ledger and the signing key.", "assumed"),
        (
            "Access",
            "Private files are pushed to no store but one named for them; who may read either is the curator's.",
            "assumed",
        ),
        ("Data collection", "How the rows were collected, and whether that was lawful, is outside.", "not covered"),
    )
    return [{"name": name, "sentence": sentence, "status": status} for name, sentence, status in rows]


def _floating_point(released: Sequence[Receipt]) -> tuple[str, str]:
    exact = (
        "Gaussian noise, noisy picks and sums of whole numbers are exact; what rounding may move besides is charged."
    )
    named = sorted({name for receipt in released for name in receipt.assumptions})
    if any(one.method == _DRAWS_TOKENS for one in released):  # its Gumbel and Laplace noise is not exact
        named = ["draws", *named]
    return (f"{exact} Assumed: {', '.join(named)}.", "assumed") if named else (exact, "tested")


_TOTALS = ("asset", "verified", "delta", "cap_epsilon", "spent_epsilon", "left_epsilon")


def _ledger(ledger: LedgerSummary) -> dict[str, Any]:
    refunded = [charge.state == "refunded" for charge in ledger.charges if charge.purpose == "release"]
    counts = {"charges": refunded.count(False), "refunded": refunded.count(True)}
    totals = {name: getattr(ledger, name) for name in _TOTALS}
    return {"head": ledger.shown_head, **totals, "total": ledger.total._asdict(), **counts}


def read_total(statement: Mapping[str, Any]) -> Total:
    """Return the statement's total over all releases."""
    return Total(**statement["ledger"]["total"])


def _read_shipped(name: str) -> Any:
    return json.loads(resources.files("palimpsest.report").joinpath(name).read_text(encoding="utf-8"))


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
