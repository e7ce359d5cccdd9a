"""The privacy statement: what is promised, to whom, on which assumptions, and what is not covered.

Its sections follow Ponomareva et al. 2023, "How to DP-fy ML", 5.3.3. The shape is fixed by
privacy-statement.schema.json, which ships beside this module.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import resources
from typing import Any

from palimpsest.privacy.accounting import NAMES
from palimpsest.privacy.assumptions import KNOWN
from palimpsest.privacy.fourier import Bracket
from palimpsest.privacy.receipt import QueryLine, Receipt
from palimpsest.report.tradeoff import TradeOff, read_tradeoff

STATEMENT_VERSION = 3
GROUP_SIZES = (1, 2, 5, 10)
JSON_RECORD = "One record: all of its JSON object."
_PRIOR = _FPR = 0.01

NOT_COVERED = {
    "choice": (
        "A person's choice after seeing results on private rows: of settings, of the variant to release, of whether to "
        "release at all. No check that a release must pass reads those results."
    ),
    "references": "Runs without noise, the real row, this audit: they stay in the private zone, outside the total.",
    "public-text": "People in the text that was declared public, and in what a pretrained model was trained on.",
    "side-channels": "Running time, memory, power, disk and network traffic, and the floating-point form of the noise.",
    "population": "What many records say together: it is meant to be learned, also about people outside the data.",
    "other-releases": "Other releases about the same people that do not go through this ledger.",
}


def schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of the statement."""
    return dict(_shipped("privacy-statement.schema.json"))


def statement(
    receipts: Mapping[str, Receipt],
    ledger: Mapping[str, Any],
    schema_facts: Mapping[str, Any],
    stages: Sequence[Mapping[str, Any]],
    second: Mapping[str, Bracket | None] | None = None,
    sources: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The privacy statement of everything released from one data asset.

    Guarantee: takes no document made from private rows, so that it can be shared.

    Args:
        receipts: variant -> its receipt; reference runs are named but not promised anything about.
        ledger: the asset's ledger summary.
        schema_facts: the public schema as a mapping (task, n_public, labels, unit_column, max_rows_per_unit).
        stages: the DAG: name, desc, zone, deps.
        second: variant -> epsilon by the second accountant, None where it takes no part; a release that it contradicts
            makes the status UNVERIFIED. It is asked (`Receipt.second`) where this is left out.
        sources: what is public on the owner's word: source, kind, name and sha256 of each model, text and prompt.

    Returns:
        A JSON document that validates against `schema()`.
    """
    released = [receipt for receipt in receipts.values() if receipt.purpose == "release"]
    opinions = {one.variant: one.second() for one in released} if second is None else second
    status, reasons = _status(released, ledger, opinions)
    return {
        "statement_version": STATEMENT_VERSION,
        "status": status,
        "reasons": reasons,
        "setting": "Central: a trusted curator holds the rows; the protection is on what leaves.",
        "final_output": "Synthetic rows; everything else that reads private rows stays in the private zone.",
        "unit": _unit(schema_facts),
        "adjacency": sorted({receipt.adjacency for receipt in released}),
        "delta": ledger["delta"],
        "releases": [_release(receipt, schema_facts["n_public"], opinions[receipt.variant]) for receipt in released],
        "references": sorted(name for name, receipt in receipts.items() if receipt.purpose != "release"),
        "data_accesses": [_access(stage, ledger["charges"]) for stage in stages],
        "assumptions": [*_assumptions(released, ledger, schema_facts), _vouched(sources)],
        "layers": layers(released, ledger, schema_facts),
        "not_covered": [{"id": key, "sentence": sentence} for key, sentence in NOT_COVERED.items()],
        "ledger": _ledger(ledger),
    }


def _status(
    released: Sequence[Receipt],
    ledger: Mapping[str, Any],
    second: Mapping[str, Bracket | None],
) -> tuple[str, list[str]]:
    fixed = [receipt.variant for receipt in released if receipt.noise_fixed]
    unbounded = [receipt.variant for receipt in released if receipt.epsilon is None]
    broken = [f"The noise of {variant} is fixed by a seed." for variant in fixed]
    broken += [f"{variant} has no finite epsilon." for variant in unbounded]
    mixed = [receipt.variant for receipt in released if receipt.builds_on_reference]
    broken += [f"{variant} builds on a reference run." for variant in mixed]
    if broken:
        return "NOT PRIVATE", broken
    doubts = [] if ledger["verified"] else ["The ledger's chain of hashes does not hold: do not rely on its totals."]
    if ledger["after_loss"]:
        doubts.append("An earlier ledger of this data set is lost: what it spent is unknown, so no total holds.")
    contradicted = [receipt.variant for receipt in released if receipt.agreement(second[receipt.variant])]
    doubts += [f"The accountants contradict each other on {variant}." for variant in contradicted]
    if doubts:
        return "UNVERIFIED", doubts
    if not released:
        return "NOTHING RELEASED", ["No variant is meant for release."]
    return "DIFFERENTIALLY PRIVATE", []


def _unit(facts: Mapping[str, Any]) -> dict[str, Any]:
    bounded = facts.get("unit_column") is not None
    return {
        "name": "record",
        "description": _record(facts),
        "max_rows_per_person": facts["max_rows_per_unit"] if bounded else None,
        "note": (
            f"A person has at most {facts['max_rows_per_unit']} rows: preprocessing drops the rest."
            if bounded
            else "Nothing bounds the rows of one person: read the line for as many rows as a person may have."
        ),
    }


def _record(facts: Mapping[str, Any]) -> str:
    """What belongs to one record: a label too, whether it is one of a public list or free text."""
    if facts["task"] == "json":
        return JSON_RECORD
    if facts.get("labels"):
        return "One record: its text and its label."
    if facts.get("label") is not None:
        return "One record: its text and its label, which is free text and protected like it."
    return "One record: its text."


def _release(receipt: Receipt, n_public: int, second: Bracket | None) -> dict[str, Any]:
    curve = read_tradeoff(receipt)
    words = _meaning(curve) if curve and not receipt.noise_fixed else None
    stated = receipt.stated_curve
    return {
        "variant": receipt.variant,
        "method": receipt.method,
        "epsilon": receipt.epsilon,
        "epsilon_target": receipt.epsilon_target,
        "delta": receipt.delta,
        "noise_fixed": receipt.noise_fixed,
        "accounting": _accounting(receipt, second),
        "mechanisms": [line.to_json() for line in receipt.queries],
        "partitions": _partitions(receipt.queries),
        "group": [asdict(row) for row in receipt.group if row.k in GROUP_SIZES],
        "curve": {"alpha": list(stated.alpha), "beta": list(stated.beta)},
        "meaning": words,
        "flags": _flags(receipt, words, n_public, second),
    }


def _accounting(receipt: Receipt, second: Bracket | None) -> dict[str, Any]:
    """The stated epsilon, RDP's and the upper end of the Fourier accountant's."""
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


def _partitions(queries: Sequence[QueryLine]) -> list[dict[str, Any]]:
    """One entry per scheme and model whose queries ran over disjoint parts of the data set."""
    schemes: dict[tuple[str, str], list[str]] = {}
    for query in queries:
        if query.partition is not None:
            scheme, cell = query.partition
            schemes.setdefault((query.model, scheme), []).append(cell)
    return [_partition(*key, cells) for key, cells in schemes.items()]


_BY = {"keyed batches": "a keyed hash of itself", "labels": "its label"}  # what places a record, by scheme


def _partition(model: str, scheme: str, cells: Sequence[str]) -> dict[str, Any]:
    count = len(set(cells))
    return {
        "model": model,
        "scheme": scheme,
        "cells": count,
        "queries": len(cells),
        "sentence": (
            f"Partition {scheme!r} of {model}: {len(cells)} queries over {count} disjoint parts of the data set, each "
            f"record in one by {_BY.get(scheme, 'what it alone says')}; the largest cell counts."
        ),
    }


def _meaning(curve: TradeOff) -> dict[str, Any]:
    found, belief = curve.true_positives(_FPR), curve.belief(_PRIOR, _FPR)
    return {
        "false_positive_rate": _FPR,
        "true_positive_rate": found,
        "advantage": curve.advantage(),
        "prior": _PRIOR,
        "belief": belief,
        "sentence": (
            f"The best possible attack that wrongly accuses 1 in 100 records outside the data finds at most "
            f"{100 * found:.1f} in 100 of those inside. Where it accuses, a belief of 1% that the record is inside "
            f"rises to at most {100 * belief:.1f}%."
        ),
    }


def _flags(receipt: Receipt, words: Mapping[str, Any] | None, n_public: int, second: Bracket | None) -> list[str]:
    flags = []
    if receipt.delta >= 1 / n_public:
        flags.append("delta is not below 1 / n: publishing one whole record at random would satisfy it.")
    if words and words["true_positive_rate"] > 0.5:
        flags.append("The promise is weak: finding more than half of the members at 1 % false alarms is not excluded.")
    if receipt.agreement(second):
        flags.append("The accountants contradict each other, or one of them gave no finite epsilon.")
    return flags


def _access(stage: Mapping[str, Any], charges: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How one stage's look at the data is covered; a metered look without a charge is not."""
    own = [charge for charge in charges if _belongs(charge, stage["name"]) and charge["state"] != "refunded"]
    released = [charge for charge in own if charge["purpose"] == "release"]
    found = {"stage": stage["name"], "zone": stage["zone"], "charges": [charge["seq"] for charge in released]}
    if released and len(released) < len(own):
        note = "Metered: charged before the first noise; its reference runs are not covered and never leave."
        return found | {"coverage": "covered", "note": note}
    if released:
        return found | {"coverage": "covered", "note": "Metered: charged to the ledger before the first noise."}
    if stage["zone"] == "public":
        return found | {"coverage": "public", "note": "Reads only what was declared public."}
    if stage["zone"] == "dp" and not own:
        note = "Reads only what is public or protected already: free post-processing; a reference's rows never leave."
        return found | {"coverage": "covered", "note": note}
    return found | {"coverage": "not covered", "note": "Reads private rows; its outputs stay in the private zone."}


def _belongs(charge: Mapping[str, Any], stage: str) -> bool:
    return stage in (charge["stage"], f"{charge['stage']}@{charge['variant']}")


def _assumptions(
    released: Sequence[Receipt], ledger: Mapping[str, Any], facts: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The shipped list, each with its test, what receipts assume, and what this very run can answer for itself."""
    named = {name for receipt in released for name in receipt.assumptions}
    shipped = [item for item in _shipped("assumptions.json") if item["id"] not in KNOWN or item["id"] in named]
    tested = [item | {"holds": _holds(item)} for item in shipped]
    small = all(receipt.delta < 1 / facts["n_public"] for receipt in released)
    fresh = not any(receipt.noise_fixed for receipt in released)
    seen = {
        "run-noise": ("No noise of this run was fixed by a seed.", fresh),
        "run-delta": ("delta is below 1 / n, n being the declared number of records.", small),
        "run-ledger": ("The ledger's chain of hashes was recomputed and holds.", ledger["verified"]),
        "run-person": ("A person has no more rows than one unit.", facts.get("unit_column") is not None),
    }
    own = [
        {"id": key, "sentence": sentence, "test": None, "holds": "yes" if holds else "no"}
        for key, (sentence, holds) in seen.items()
    ]
    return tested + own


def _holds(item: Mapping[str, Any]) -> str:
    if item["id"] in KNOWN:
        return "assumed"
    return "yes" if item["test"] else "untested"


def _vouched(sources: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What no program can check: the owner makes this assumption, of each source by its name and its hash."""
    return {
        "id": "public-sources",
        "sentence": "Public models, prompts and texts were not derived from these rows.",
        "test": None,
        "holds": "owner",
        "sources": [dict(source) for source in sources],
    }


def layers(released: Sequence[Receipt], ledger: Mapping[str, Any], facts: Mapping[str, Any]) -> list[dict[str, str]]:
    """One line for each layer that a guarantee stands on, after the pyramid of NIST SP 800-226 (2025), top to foot."""
    names = sorted({line.name for receipt in released for line in receipt.queries})
    total, delta = f"{ledger['spent_epsilon']:.3g}", f"{ledger['delta']:.3g}"
    bounded = facts.get("unit_column") is not None
    rows = (
        ("Epsilon and delta", f"All releases together: epsilon {total} at delta {delta}.", "proved"),
        (
            "Unit of privacy",
            _unit(facts)["description"] + " " + _unit(facts)["note"],
            "proved" if bounded else "assumed",
        ),
        ("Algorithms", f"Mechanisms that read private rows: {', '.join(names) or 'none'}.", "proved"),
        ("Implementation", "Sensitivity, sampling and noise are tested by enumeration and replay.", "tested"),
        ("Random numbers", "Noise and coins come from the operating system's entropy.", "tested"),
        ("Floating point", NOT_COVERED["side-channels"], "not covered"),
        ("Utility and bias", "Measured per class in the private zone; a release gives its scores.", "tested"),
        ("Trust", "A trusted curator holds the rows, the ledger and the signing key.", "assumed"),
        (
            "Access",
            "Private files are never pushed with the project; who may read the disk is the curator's.",
            "assumed",
        ),
        ("Data collection", "How the rows were collected, and whether that was lawful, is outside.", "not covered"),
    )
    return [{"name": name, "sentence": sentence, "status": status} for name, sentence, status in rows]


def _ledger(ledger: Mapping[str, Any]) -> dict[str, Any]:
    counted = [charge for charge in ledger["charges"] if charge["purpose"] == "release"]
    return {
        "asset": ledger["asset"],
        "head": ledger["head"],
        "verified": ledger["verified"],
        "delta": ledger["delta"],
        "cap_epsilon": ledger["cap_epsilon"],
        "spent_epsilon": ledger["spent_epsilon"],
        "left_epsilon": ledger["left_epsilon"],
        "charges": len([charge for charge in counted if charge["state"] != "refunded"]),
        "refunded": len([charge for charge in counted if charge["state"] == "refunded"]),
    }


def _shipped(name: str) -> Any:
    return json.loads(resources.files("palimpsest.report").joinpath(name).read_text(encoding="utf-8"))
