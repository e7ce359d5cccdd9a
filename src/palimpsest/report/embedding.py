"""The numbers of embedding evolution, its decoder, and the baseline that replaces words, as rows of plain values."""

from collections.abc import Mapping, Sequence
from typing import Any

from palimpsest.privacy.receipt import Receipt
from palimpsest.report.formats import per_word
from palimpsest.report.summary import Metrics
from palimpsest.report.tables import Rows

ALL = "all labels"
SELECTED, READABLE = "selected", "readable too"

Receipts = Mapping[str, Receipt]


def distances(metrics: Metrics) -> Rows:
    """variant, series, measure, round, value, floor, n: how far each round's texts are from the private rows.

    `series` is the variant, and for the parents of a method that tells them apart, "<variant>, parents".
    """
    return [
        {"variant": variant, "series": variant + mark, "measure": one["name"], "round": number, "value": one["value"]}
        | {"floor": one["floor"], "n": one["n"]}
        for variant, found in _evolutions(metrics)
        for mark, rounds in (("", found["rounds"]), (", parents", found.get("parents", [])))
        for number, distances in enumerate(rounds, 1)
        for one in distances
    ]


def votes(metrics: Metrics) -> Rows:
    """variant, round, label, candidates, mean, variance: how the exact votes of each round spread; first all labels."""
    return [
        {"variant": variant, "round": number, "label": one["label"] or ALL}
        | {key: one[key] for key in ("candidates", "mean", "variance")}
        for variant, number, one in _turnouts(metrics)
    ]


def parents(metrics: Metrics) -> Rows:
    """variant, round, what, parents: how many the votes of each round selected, and how many of these are readable."""
    return [
        {"variant": variant, "round": number, "what": what, "parents": count}
        for variant, number, one in _turnouts(metrics)
        if one["label"] is None
        for what, count in ((SELECTED, one["selected"]), (READABLE, one["readable"]))
    ]


def decoders(found: Mapping[str, Any]) -> Rows:
    """name, encoder, parameters, rows, cosine, nearest, token_f1, bleu, exact, readable_share: one row per decoder."""
    return [
        {"name": name, "encoder": one["encoder"], "parameters": one["parameters"]}
        | {key: one["reconstruction"][key] for key in ("rows", "cosine", "nearest", "token_f1", "bleu", "exact")}
        | {"readable_share": one["readable_share"]}
        for name, one in found.items()
    ]


def decoded(found: Mapping[str, Any]) -> Rows:
    """name, given, decoded, cosine: public texts and what came back from their embeddings."""
    return [
        {"name": name} | {key: sample[key] for key in ("given", "decoded", "cosine")}
        for name, one in found.items()
        for sample in one["samples"]
    ]


def filtered(metrics: Metrics) -> Rows:
    """variant, kept, label, perplexity, text: samples of what the readability check let pass and what it dropped."""
    return [
        {"variant": variant, "kept": kept, "label": one["label"], "perplexity": one["perplexity"], "text": one["text"]}
        for variant, kinds in metrics.items()
        for kept, key in ((True, "kept_samples"), (False, "unreadable_samples"))
        for one in kinds.get("generation", {}).get(key, [])
    ]


def replaced(metrics: Metrics, receipts: Receipts) -> Rows:
    """variant, epsilon, neighbours, vocabulary, kept: variants in which each word of private rows was replaced."""
    return [
        {
            "variant": variant,
            "epsilon": per_word(plan["token_epsilon"], receipts[variant].unit),
            "neighbours": plan.get("neighbours"),
            "vocabulary": plan.get("vocabulary"),
            "kept": kinds["generation"]["rows"],
        }
        for variant, kinds in metrics.items()
        if "generation" in kinds and variant in receipts and receipts[variant].method == "custext"
        for plan in (receipts[variant].plan or {},)
    ]


def _evolutions(metrics: Metrics) -> list[tuple[str, Mapping[str, Any]]]:
    return [(variant, kinds["evolution"]) for variant, kinds in metrics.items() if "evolution" in kinds]


def _turnouts(metrics: Metrics) -> Sequence[tuple[str, int, Mapping[str, Any]]]:
    return [
        (variant, number, one)
        for variant, found in _evolutions(metrics)
        for number, turnouts in enumerate(found.get("votes", []), 1)
        for one in turnouts
    ]
