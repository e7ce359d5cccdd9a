"""How the rows were made: written, chosen, or replaced word by word."""

from collections.abc import Iterator, Mapping
from typing import Any

from palimpsest.methods.registry import METHODS
from palimpsest.methods.shared.base import GenerationCounts
from palimpsest.methods.shared.method import Family
from palimpsest.privacy.receipt import Receipt
from palimpsest.report.drawing import Rows, fields
from palimpsest.report.formats import number, per_word
from palimpsest.report.results import Metric, Results, measured_subjects
from palimpsest.report.sections.base import (
    Cell,
    Column,
    Page,
    Receipts,
    Section,
    Table,
    number_column,
    share_column,
    word_column,
)
from palimpsest.report.unit import plural_of

GENERATION = Metric("generation", GenerationCounts.from_json, measured_subjects)


def _select_family(family: Family, results: Results, receipts: Receipts) -> Iterator[tuple[Receipt, GenerationCounts]]:
    methods = {known.name for known in METHODS if known.family is family}
    for variant, counts in results.of(GENERATION).items():
        if variant in receipts and receipts[variant].method in methods:
            yield receipts[variant], counts


def written_variants(results: Results, receipts: Receipts) -> Rows:
    """Return one row per variant that was written from private contexts: what its plan bought, and the outcome.

    `clip`, `batch_tokens`, `batches` are None where there are none: fewshot has no batches, a reference no clip.
    """
    return [
        fields(receipt, "variant", "method")
        | {"clip": plan.get("clip") if receipt.purpose == "release" else None}
        | {"batch_tokens": plan.get("tokens"), "batches": plan.get("batches")}
        | fields(counts, "tokens", "private_share", "drawn")
        | {"kept": counts.rows, "removed": {name: count for name, count in counts.removed.items() if count}}
        for receipt, counts in _select_family(Family.WRITES, results, receipts)
        for plan in (receipt.plan or {},)
    ]


def chosen_variants(results: Results, receipts: Receipts) -> Rows:
    """Return one row per variant whose texts private rows chose: what its plan bought, and the outcome.

    `rounds` is the number of finished rounds; `sigma` the noise of one vote, or of the class means where nobody votes.
    Where texts are picked one after the other by a noisy score, `sigma` is the `scale` of that noise.
    """
    return [
        fields(receipt, "variant", "method")
        | {"sigma": plan.get("sigma", plan.get("scale")), "neighbours": plan.get("neighbours")}
        | fields(counts, "rounds", "drawn", "requests", "tokens")
        | {"kept": counts.rows}
        for receipt, counts in _select_family(Family.CHOOSES, results, receipts)
        for plan in (receipt.plan or {},)
    ]


def replaced_variants(results: Results, receipts: Receipts) -> Rows:
    """Return variant, epsilon, neighbours, vocabulary, kept: variants that replace each word of private rows."""
    return [
        {"variant": receipt.variant, "epsilon": per_word(plan["token_epsilon"], receipt.unit)}
        | {"neighbours": plan.get("neighbours"), "vocabulary": plan.get("vocabulary"), "kept": counts.rows}
        for receipt, counts in _select_family(Family.EDITS, results, receipts)
        for plan in (receipt.plan or {},)
    ]


def _kept_cell(row: Mapping[str, Any]) -> Cell:
    removed = ", ".join(f"{number(count)} by {name}" for name, count in row["removed"].items())
    return Cell(number(row["kept"]), (f"less {removed}",) if removed else ())


def _tables(page: Page) -> Iterator[Table[Mapping[str, Any]]]:
    unit = page.summary.unit
    yield Table(
        "What was written",
        "Rows that a public language model wrote while it read private ones, without learning from them. A token costs "
        f"budget where private rows had a say in it. Method fewshot has no batches: it draws {plural_of(unit)} anew "
        "for each token.",
        (
            word_column("Variant", "variant"),
            word_column("Method", "method"),
            number_column("Clip", "clip"),
            number_column("Private tokens of a batch", "batch_tokens", "Private, a batch"),
            number_column("Batches", "batches"),
            number_column("Tokens written", "tokens"),
            share_column("That cost budget", "private_share"),
            number_column("Rows drawn", "drawn"),
            Column("Rows kept", _kept_cell, number=True),
        ),
        written_variants(page.results, page.receipts),
    )
    yield Table(
        "What was chosen",
        "Rows that others wrote, who saw no private row, and that private rows pointed at: by their noisy mean "
        "embeddings, by noisy votes for the nearest candidate, or by a noisy choice of the one with the best score. "
        f"Noise is in units of one {unit}. Method embed chooses embeddings, which a public decoder writes down.",
        (
            word_column("Variant", "variant"),
            word_column("Method", "method"),
            number_column("Noise", "sigma"),
            number_column("Rounds", "rounds"),
            number_column(f"Votes of a {unit}", "neighbours"),
            number_column("Rows before filters", "drawn"),
            number_column("Requests", "requests"),
            number_column("Tokens", "tokens"),
            number_column("Rows kept", "kept"),
        ),
        chosen_variants(page.results, page.receipts),
    )
    yield Table(
        "What was replaced",
        "Private rows with every word exchanged for one of its public neighbours. That protects one word at a time: "
        "the length and the order of a row stay in sight. This ε is in another unit than all others and cannot be "
        "compared with them. For reference, never released.",
        (
            word_column("Variant", "variant"),
            word_column("ε", "epsilon"),
            number_column("Neighbours of a word", "neighbours"),
            number_column("Words of the map", "vocabulary"),
            number_column("Rows kept", "kept"),
        ),
        replaced_variants(page.results, page.receipts),
    )


SECTION = Section("generation", (GENERATION,), tables=_tables)
