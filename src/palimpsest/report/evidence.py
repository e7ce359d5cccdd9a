"""The numbers of the audits of the rows themselves, as rows of plain values: each measure beside its control."""

from collections.abc import Mapping
from typing import Any

from palimpsest.report.summary import Metrics
from palimpsest.report.tables import Rows

MEMBERS, OTHERS = "members", "never read"


def phantoms(metrics: Metrics) -> Rows:
    """variant, order, side, rate, low, high, count, n, p: whose own n-grams came out, by whether they trained."""
    return [
        {"variant": variant, "order": int(order), "side": side}
        | {key: found[key] for key in ("rate", "low", "high", "count", "n")}
        | {"p": one["p"]}
        for variant, audit in _of(metrics, "text_membership")
        for order, one in audit["phantom"]["orders"].items()
        for side, found in ((MEMBERS, one["train"]), (OTHERS, one["holdout"]))
        if found["n"]
    ]


def repeats(metrics: Metrics) -> Rows:
    """variant, what, value, low, high, p, members, holdout: units that the rows repeat, members less holdout."""
    return [
        {"variant": variant, "what": what}
        | {key: found["excess"][key] for key in ("value", "low", "high", "p")}
        | {MEMBERS: found["exposed"]["count"], OTHERS: found["control"]["count"]}
        for variant, audit in _of(metrics, "memorisation")
        for what, found in _contrasts(audit)
    ]


def _contrasts(audit: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    found = [("near-duplicates", audit["near_duplicates"]["records"])]
    found += [(kind, one["records"]) for kind, one in audit["personal"].items() if _seen(one["records"])]
    secrets = audit["secrets"] or {}
    return found + [(f"secrets, {how}", one) for how, one in secrets.items()]


def _seen(contrast: Mapping[str, Any]) -> bool:
    return bool(contrast["exposed"]["count"] or contrast["control"]["count"])


def risks(metrics: Metrics) -> Rows:
    """variant, criterion, attack, risk, low, high, main, control, baseline, cap, informed: one row per attack."""
    return [
        {"variant": variant, "criterion": one["criterion"], "attack": f"{one['criterion']}: {attack}"}
        | {"risk": one["risk"]["value"], "low": one["risk"]["low"], "high": one["risk"]["high"]}
        | {side: one[side]["rate"] for side in ("main", "control")}
        | {key: one[key] for key in ("baseline", "cap", "informed")}
        for variant, audit in _of(metrics, "anonymity")
        for attack, one in audit["attacks"].items()
    ]


def fidelity(metrics: Metrics) -> Rows:
    """variant, measure, better, value, unseen, public, floor, n, place: each measure beside what it is read against.

    `place` is 0 at the floor, 1 at public text; None where a measure puts public text within its floor's scatter, and
    so tells nothing apart.
    """
    keys = ("better", "value", "unseen", "public", "floor", "n")
    return [
        {"variant": variant, "measure": name.replace("_", " ")}
        | {key: one[key] for key in keys}
        | {"place": _place(one)}
        for variant, audit in _of(metrics, "fidelity")
        for name, one in audit["measures"].items()
    ]


def _place(one: Mapping[str, Any]) -> float | None:
    scatter = abs(one["floor_high"] - one["floor_low"])
    if one["public"] is None or abs(one["public"] - one["floor"]) <= scatter:
        return None
    return float((one["value"] - one["floor"]) / (one["public"] - one["floor"]))


def _of(metrics: Metrics, kind: str) -> list[tuple[str, Mapping[str, Any]]]:
    return [(variant, kinds[kind]) for variant, kinds in metrics.items() if kind in kinds]
