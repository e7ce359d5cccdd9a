"""The numbers behind each figure, as rows of plain values: what is drawn is what the table shows."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy.stats import betabinom

from palimpsest.audit.statistics import holm, thin, wilson
from palimpsest.privacy.ledger.summary import LedgerSummary
from palimpsest.privacy.receipt import Receipt
from palimpsest.report.formats import per_word
from palimpsest.report.layout import layered
from palimpsest.report.summary import BASELINES, Membership, Metrics, Row, Summary
from palimpsest.report.tradeoff import TradeOff

Rows = list[dict[str, Any]]
Receipts = Mapping[str, Receipt]

_NO_RECEIPTS: Receipts = MappingProxyType({})
_CONFIDENCE = 0.95
_CORNERS = 80  # of one ROC curve
_DRAWN = 300  # points of one panel: more make the page large and the panel black
_CHOOSERS = ("select", "evolve", "vote_select", "embed", "sentdp")  # private rows choose their texts, and never write
_WRITERS = ("predict", "fewshot")  # methods that read private rows while they write, and learn nothing from them
BLIND, FOUND, BEFORE, AFTER = "found by guessing", "found at most", "believed before", "believed after, at most"
CLAIM, CORRECT, BROKEN, POWER = "claim", "the code as it is", "broken on purpose", "largest claim it could refute"
ZERO_SHOT, NO_PROMISE = "zero-shot", "∞"
PARSED, VALID = "is JSON", "conforms to the schema"
PROVED, ATTACKED, DETECTABLE = "proved cap", "attacked lower bound", "largest claim the attack could refute"


def frontier(summary: Summary, evaluator: str) -> Rows:
    """One row per variant scored by `evaluator`; `epsilon` is None for what has no proven epsilon."""
    scored = [(row, score) for row in summary.rows if (score := row.score(evaluator)) is not None]
    return [
        {
            "variant": row.variant,
            "series": row.method if row.role == "release" else row.variant,
            "role": row.role,
            "epsilon": row.epsilon_proved if row.role == "release" else None,
            "accuracy": score.accuracy.value,
            "low": score.accuracy.low,
            "high": score.accuracy.high,
        }
        for row, score in scored
    ]


def bracket(summary: Summary) -> Rows:
    """variant, kind, epsilon: the proven cap, what attacks showed, and the most they could have shown."""
    rows: Rows = []
    for row in summary.of("release", "reference"):
        most = [attack.eps_max for attack in row.attacks if attack.eps_max is not None]
        values = {
            PROVED: row.epsilon_proved,
            ATTACKED: row.epsilon_lower,
            DETECTABLE: max(most, default=None),
        }
        rows += [{"variant": row.variant, "kind": k, "epsilon": v} for k, v in values.items() if v is not None]
    return rows


def hard_gates(summary: Summary, alpha: float = 0.05) -> Rows:
    """gate, variant, seen, claim, lower, eps_max, p, verdict, refuted: every test that could refute a released claim.

    Many tests refute a true claim more often than one does. `refuted` is what stands after Holm's correction over all
    of them; None where a test is inconclusive, which takes no part.
    """
    audits = {
        f"{row.variant}, {seen}": (row, seen, audit) for row in summary.of("release") for seen, audit in _audits(row)
    }
    tested = {
        name: one.p for name, (_, _, one) in audits.items() if one.verdict != "inconclusive" and one.p is not None
    }
    rejected = holm(tested, alpha)
    return [
        {"gate": name, "variant": row.variant, "seen": seen, "claim": row.epsilon_proved, "lower": audit.epsilon_lower}
        | {"eps_max": audit.eps_max, "p": audit.p, "verdict": audit.verdict, "refuted": rejected.get(name)}
        for name, (row, seen, audit) in audits.items()
    ]


def _audits(row: Row) -> list[tuple[str, Membership]]:
    seen = {"the model": row.membership, "the rows alone": row.text_membership}
    seen["the model beside shadow models"] = row.shadow_membership
    return [(name, audit) for name, audit in seen.items() if audit is not None]


def roc(membership: Mapping[str, Any]) -> Rows:
    """attack, fpr, tpr: zero rates are lifted to half a member, so that a logarithmic axis can hold them."""
    floor = rate_floor(membership)
    return [
        {"attack": name, "fpr": max(fpr, floor), "tpr": max(tpr, floor)}
        for name, attack in membership["attacks"].items()
        for fpr, tpr in thin(np.asarray(attack["roc"]), _CORNERS).tolist()
    ]


def rate_floor(membership: Mapping[str, Any]) -> float:
    """Half a member: the smallest rate drawn."""
    return 0.5 / int(max(membership["members"], membership["nonmembers"]))


def null_band(membership: Mapping[str, Any], points: int = 40) -> Rows:
    """fpr, low, high: pointwise 95 % band of the ROC where members and non-members are exchangeable.

    The k-th highest of m non-member scores cuts off a Beta(k, m - k + 1) share of a continuous score, so the count
    among n members is beta-binomial, exactly.
    """
    members, nonmembers = membership["members"], membership["nonmembers"]
    ranks = np.unique(np.geomspace(1, nonmembers, points).astype(int))
    low, high = (betabinom.ppf(tail, members, ranks, nonmembers - ranks + 1) / members for tail in (0.025, 0.975))
    floor = rate_floor(membership)
    return [
        {"fpr": float(rank / nonmembers), "low": max(float(bottom), floor), "high": max(float(top), floor)}
        for rank, bottom, top in zip(ranks, low, high, strict=True)
    ]


def forbidden(curve: TradeOff, floor: float, points: int = 60) -> Rows:
    """fpr, limit, top: above `limit` no attack may lie if the proven curve holds."""
    grid = np.geomspace(floor, 1.0, points)
    return [{"fpr": float(fpr), "limit": curve.true_positives(float(fpr)), "top": 1.0} for fpr in grid]


def overlap(ngrams: Mapping[str, Any]) -> Rows:
    """order, corpus, rate, count, total: how much of the synthetic text occurs in each corpus."""
    return [
        {"order": int(order), "corpus": corpus} | {key: found[corpus][key] for key in ("rate", "count", "total")}
        for order, found in ngrams["orders"].items()
        for corpus in ("train", "holdout", "public")
    ]


def excess(metrics: Metrics) -> Rows:
    """variant, order, value, low, high, p: overlap with members minus overlap with the holdout."""
    return [
        {"variant": variant, "order": int(order)} | {key: found["excess"][key] for key in ("value", "low", "high", "p")}
        for variant, kinds in metrics.items()
        if "ngrams" in kinds
        for order, found in kinds["ngrams"]["orders"].items()
    ]


def carried(metrics: Metrics) -> Rows:
    """variant, support, carried, total, share, low, high: facts pooled by how many units state them (doubling)."""
    return [
        row
        for variant, kinds in metrics.items()
        if "facts" in kinds
        for row in _carried(variant, kinds["facts"]["population"])
    ]


def _carried(variant: str, facts: Sequence[Mapping[str, Any]]) -> Rows:
    bins: dict[int, list[Mapping[str, Any]]] = {}
    for fact in facts:
        bins.setdefault(int(math.log2(max(fact["support"], 1))), []).append(fact)
    rows = []
    for members in (bins[key] for key in sorted(bins)):
        count, total = sum(fact["carried"] for fact in members), len(members)
        low, high = wilson(count, total, _CONFIDENCE)
        support = math.exp(sum(math.log(max(fact["support"], 1)) for fact in members) / total)
        row = {"variant": variant, "support": support, "carried": count, "total": total, "share": count / total}
        rows.append(row | {"low": low, "high": high})
    return rows


def waterfall(ledger: LedgerSummary) -> Rows:
    """step, kind, start, end: each counted charge alone, what composing them changes, and the total that counts."""
    rows: Rows = []
    height = 0.0
    for charge in ledger.charges:
        if charge.released and charge.epsilon is not None:
            step = f"{charge.seq} · {charge.variant} · {charge.query}"
            rows.append({"step": step, "kind": charge.state, "start": height, "end": height + charge.epsilon})
            height += charge.epsilon
    total = ledger.spent_epsilon
    if rows and not math.isclose(height, total):
        rows.append({"step": "composition", "kind": "composition", "start": height, "end": total})
    return [*rows, {"step": "total", "kind": "total", "start": 0.0, "end": total}]


def nodes(stages: Sequence[Mapping[str, Any]]) -> Rows:
    """name, zone, state, description, needs, x, y: the DAG's nodes where they are drawn."""
    places = layered(stages)
    return [
        {
            "name": stage["name"],
            "zone": stage["zone"],
            "state": stage.get("state", ""),
            "description": stage["desc"],
            "needs": ", ".join(dep for dep in stage["deps"] if dep in places),
            "x": places[stage["name"]][0],
            "y": places[stage["name"]][1],
        }
        for stage in stages
    ]


def edges(stages: Sequence[Mapping[str, Any]]) -> Rows:
    """edge, step, x, y: each arrow as four points of a smooth curve."""
    places = layered(stages)
    rows: Rows = []
    for stage in stages:
        for dep in (dep for dep in stage["deps"] if dep in places):
            (left, top), (right, bottom) = places[dep], places[stage["name"]]
            points = [(left, top), (left + 0.5, top), (right - 0.5, bottom), (right, bottom)]
            rows += [{"edge": f"{dep} > {stage['name']}", "step": i, "x": x, "y": y} for i, (x, y) in enumerate(points)]
    return rows


def per_class(metrics: Metrics, evaluator: str) -> Rows:
    """label, variant, f1, support: one row per class and variant; empty where the task has no classes."""
    order = sorted(metrics, key=lambda variant: variant in BASELINES)
    return [
        {"label": label, "variant": variant, "f1": scores["f1"], "support": scores["support"]}
        for variant in order
        for label, scores in _classes(metrics[variant], evaluator).items()
    ]


def in_context(metrics: Metrics, receipts: Receipts = _NO_RECEIPTS) -> Rows:
    """What was answered: zero-shot first, then real demonstrations, then `public_only`, then the variants.

    The columns are variant, epsilon, shots, draws, accuracy, deviation, low, high, gain, gain_low, gain_high,
    zero_shot. The deviation is between draws of demonstrations, None of a single one; the interval is over items. The
    gain is over no demonstrations, item by item, whose accuracy is `zero_shot`; None where that does not fit. `epsilon`
    is 0 where no private row was read, a word where it is not one of the unit of privacy.
    """
    found = _demonstrations(metrics)
    zeros = {
        one["zero_shot"]["accuracy"]["value"]: one["zero_shot"] for _, one in found if one["zero_shot"]["accuracy"]
    }
    levels = [_answered(ZERO_SHOT, 0.0, shot, shot["accuracy"]) for shot in zeros.values()]
    return levels + [
        _answered(variant, _epsilon(variant, receipts), shot, one["zero_shot"]["accuracy"])
        for variant, one in found
        for shot in one["shots"]
        if shot["accuracy"] is not None
    ]


def _demonstrations(metrics: Metrics) -> list[tuple[str, Mapping[str, Any]]]:
    """The in-context evaluations, those of the baselines first."""
    order = [*BASELINES, *(name for name in metrics if name not in BASELINES)]
    return [(name, metrics[name]["incontext"]) for name in order if "incontext" in metrics.get(name, {})]


def _epsilon(variant: str, receipts: Receipts) -> float | str | None:
    """What a row's demonstrations promise: a number, or a word where that is none of the unit of privacy."""
    if variant in BASELINES:
        return NO_PROMISE if variant == "real" else 0.0
    receipt = receipts.get(variant)
    if receipt is None:
        return None
    plan = receipt.plan or {}
    if "token_epsilon" in plan:
        return per_word(plan["token_epsilon"], receipt.unit)
    return NO_PROMISE if receipt.epsilon is None else receipt.epsilon


def _answered(
    variant: str, epsilon: float | str | None, shot: Mapping[str, Any], zero: Mapping[str, float] | None
) -> dict[str, Any]:
    accuracy, gain = shot["accuracy"], shot["gain"] or {}
    return {
        "variant": variant,
        "epsilon": epsilon,
        "shots": shot["shots"],
        "draws": len(shot["per_draw"]),
        "accuracy": accuracy["value"],
        "deviation": shot["deviation"],
        "low": accuracy["low"],
        "high": accuracy["high"],
        "gain": gain.get("value"),
        "gain_low": gain.get("low"),
        "gain_high": gain.get("high"),
        "zero_shot": zero["value"] if zero else None,
    }


def by_shots(rows: Rows) -> Rows:
    """One row per variant of `in_context` rows: variant, epsilon, and `shots`, a mapping from numbers to rows."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        line = found.setdefault(row["variant"], {"variant": row["variant"], "epsilon": row["epsilon"], "shots": {}})
        line["shots"][row["shots"]] = row
    return list(found.values())


def unanswered(metrics: Metrics) -> Rows:
    """variant, shots, lacks: numbers of demonstrations for which something is too small, and what; 0 included."""
    return [
        {"variant": variant, "shots": shot["shots"], "lacks": shot["lacks"]}
        for variant, found in _of_kind(metrics, "incontext")
        for shot in (found["zero_shot"], *found["shots"])
        if shot["accuracy"] is None
    ]


def structure(metrics: Metrics) -> Rows:
    """variant, what, count, total, share, low, high: synthetic rows that are JSON and that conform to its schema."""
    return [
        {"variant": variant, "what": what, "count": rate["count"], "total": rate["n"], "share": rate["rate"]}
        | {"low": rate["low"], "high": rate["high"]}
        for variant, found in _of_kind(metrics, "structure")
        for what, rate in ((PARSED, found["parsed"]), (VALID, found["valid"]))
        if rate["n"]
    ]


def written(metrics: Metrics, receipts: Receipts) -> Rows:
    """One row per variant that was written from private contexts: what its plan bought, and what came of it."""
    return [
        _written(receipts[variant], found)
        for variant, found in _of_kind(metrics, "generation")
        if variant in receipts and receipts[variant].method in _WRITERS
    ]


def _written(receipt: Receipt, found: Mapping[str, Any]) -> dict[str, Any]:
    """`clip`, `batch_tokens`, `batches` are None where there are none: fewshot has no batches, a reference no clip."""
    plan = receipt.plan or {}
    return {
        "variant": receipt.variant,
        "method": receipt.method,
        "clip": plan.get("clip") if receipt.purpose == "release" else None,
        "batch_tokens": plan.get("tokens"),
        "batches": plan.get("batches"),
        "tokens": found["tokens"],
        "private_share": found["private_share"],
        "drawn": found["drawn"],
        "kept": found["rows"],
        "removed": {name: count for name, count in found["removed"].items() if count},
    }


def chosen(metrics: Metrics, receipts: Receipts) -> Rows:
    """One row per variant whose texts private rows chose: what its plan bought, and what came of it."""
    return [
        _chosen(receipts[variant], found)
        for variant, found in _of_kind(metrics, "generation")
        if variant in receipts and receipts[variant].method in _CHOOSERS
    ]


def _chosen(receipt: Receipt, found: Mapping[str, Any]) -> dict[str, Any]:
    """`rounds` is how many were finished; `sigma` the noise of one vote, or of the class means where nobody votes.

    Where one text after the other is picked by a noisy score, it is the `scale` of that noise.
    """
    plan = receipt.plan or {}
    return {
        "variant": receipt.variant,
        "method": receipt.method,
        "sigma": plan.get("sigma", plan.get("scale")),
        "rounds": found.get("rounds"),
        "neighbours": plan.get("neighbours"),
        "drawn": found["drawn"],
        "requests": found.get("requests"),
        "tokens": found.get("tokens"),
        "kept": found["rows"],
    }


def _of_kind(metrics: Metrics, kind: str) -> list[tuple[str, Mapping[str, Any]]]:
    return [(variant, kinds[kind]) for variant, kinds in metrics.items() if kind in kinds]


def _classes(kinds: Mapping[str, Any], evaluator: str) -> Mapping[str, Any]:
    return kinds.get("utility", {}).get("evaluators", {}).get(evaluator, {}).get("per_class") or {}


def lengths(metrics: Metrics) -> Rows:
    """variant, length, share: the share of rows per length bin, at the bin's middle; empty where none was measured."""
    return [
        {"variant": variant, "length": (low + high) / 2, "share": count / max(sum(found["counts"]), 1)}
        for variant, kinds in metrics.items()
        if (found := kinds.get("shape", {}).get("lengths"))
        for (low, high), count in zip(pairwise(found["edges"]), found["counts"], strict=True)
    ]


def label_shares(metrics: Metrics) -> Rows:
    """variant, label, share: the share of rows per label; empty where none was measured."""
    return [
        {"variant": variant, "label": label, "share": count / max(sum(found.values()), 1)}
        for variant, kinds in metrics.items()
        if (found := kinds.get("shape", {}).get("labels"))
        for label, count in found.items()
    ]


def separation(models: Mapping[str, Any]) -> Rows:
    """name, accuracy, low, high, chance, lm_loss: how well each model's hidden states separate the labels."""
    return [
        {"name": name}
        | {key: found["separation"][key] for key in ("accuracy", "low", "high", "chance")}
        | {"lm_loss": found["lm_loss"]}
        for name, found in models.items()
    ]


def projection(models: Mapping[str, Any]) -> Rows:
    """name, method, x, y, label: up to 300 states of each model and method, from 0 to 1 across their panel.

    The axes of these drawings have no unit, so nothing is lost; and a model whose points lie ten times as far apart
    leaves room for the others.
    """
    return [
        {"name": name, "method": method, "x": x, "y": y, "label": label}
        for name, found in models.items()
        for method, drawn in found["projections"].items()
        for x, y, label in _panel(drawn)
    ]


def _panel(drawn: Mapping[str, Any]) -> list[tuple[float, float, str]]:
    """Points at even steps through the rows, so that every method shows the same ones."""
    total = len(drawn["label"])
    kept = np.linspace(0, total - 1, min(total, _DRAWN)).round().astype(int)
    x, y = (_stretched(np.array(drawn[axis], dtype=np.float64)[kept]) for axis in ("x", "y"))
    return list(zip(x, y, (drawn["label"][index] for index in kept), strict=True))


def _stretched(values: np.ndarray) -> list[float]:
    """From 0 to 1, with three decimals; one half where all values are equal."""
    width = np.ptp(values)
    return ((values - values.min()) / width).round(3).tolist() if width else [0.5] * len(values)


def plain(releases: Sequence[Mapping[str, Any]]) -> Rows:
    """variant, what, share: what each proven curve lets an attacker find and believe, beside guessing."""
    return [
        {"variant": release["variant"], "what": what, "share": release["meaning"][key]}
        for release in releases
        if release["meaning"]
        for what, key in (
            (BLIND, "false_positive_rate"),
            (FOUND, "true_positive_rate"),
            (BEFORE, "prior"),
            (AFTER, "belief"),
        )
    ]


def limits(curves: Mapping[str, TradeOff], floor: float = 1e-3, points: int = 60) -> Rows:
    """variant, fpr, tpr: no attack on a release lies above its line."""
    grid = np.geomspace(floor, 1.0, points)
    return [
        {"variant": name, "fpr": float(fpr), "tpr": curve.true_positives(float(fpr))}
        for name, curve in curves.items()
        for fpr in grid
    ]


def twins(audits: Mapping[str, Mapping[str, Any]]) -> Rows:
    """method, kind, fault, epsilon: what each end-to-end audit claims, shows, and shows of code broken on purpose."""
    return [row for method, audit in audits.items() for row in _twins(method, audit)]


def _twins(method: str, audit: Mapping[str, Any]) -> Rows:
    own = ((CLAIM, "", audit["claim"]), (CORRECT, "", audit["epsilon_lower"]), (POWER, "", audit["eps_max"]))
    broken = [(BROKEN, twin["fault"], twin["epsilon_lower"]) for twin in audit["twins"]]
    return [
        {"method": method, "kind": kind, "fault": fault, "epsilon": epsilon} for kind, fault, epsilon in (*own, *broken)
    ]


def public_scores(scores: Mapping[str, Any], releases: Sequence[Mapping[str, Any]]) -> dict[str, Rows]:
    """Evaluator -> the rows of its frontier: accuracy on the declared public test file, no epsilon for public text."""
    known = {release["variant"]: release for release in releases}
    found: dict[str, Rows] = {}
    for variant, evaluators in scores["variants"].items():
        release = known.get(variant)
        if release is None and variant not in BASELINES:
            continue
        for evaluator, score in evaluators.items():
            row = {"variant": variant, "series": release["method"] if release else variant}
            row |= {"epsilon": release["epsilon"] if release else None}
            found.setdefault(evaluator, []).append(row | {key: score[key] for key in ("accuracy", "low", "high")})
    return found
