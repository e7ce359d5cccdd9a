"""How the rows came about: what was written, what was chosen, and what was replaced."""

from collections.abc import Iterator, Mapping
from typing import Any

from palimpsest.methods.registry import METHODS
from palimpsest.methods.shared.counts import GenerationCounts
from palimpsest.methods.shared.method import Family
from palimpsest.privacy.receipt import Receipt
from palimpsest.report.drawing import Rows
from palimpsest.report.formats import number, per_word, percent
from palimpsest.report.results import Metric, Results, measured
from palimpsest.report.sections.base import Cell, Column, Page, Section, Table
from palimpsest.report.unit import many

Receipts = Mapping[str, Receipt]
Found = Mapping[str, Any]

GENERATION = Metric("generation", GenerationCounts.from_json, measured)


def written(results: Results, receipts: Receipts) -> Rows:
    """One row per variant that was written from private contexts: what its plan bought, and what came of it."""
    return [_written(*both) for both in _by(Family.WRITES, results, receipts)]


def _by(family: Family, results: Results, receipts: Receipts) -> Iterator[tuple[Receipt, GenerationCounts]]:
    methods = {known.name for known in METHODS if known.family is family}
    for variant, found in results.of(GENERATION).items():
        if variant in receipts and receipts[variant].method in methods:
            yield receipts[variant], found


def _written(receipt: Receipt, found: GenerationCounts) -> dict[str, Any]:
    """`clip`, `batch_tokens`, `batches` are None where there are none: fewshot has no batches, a reference no clip."""
    plan = receipt.plan or {}
    return {
        "variant": receipt.variant,
        "method": receipt.method,
        "clip": plan.get("clip") if receipt.purpose == "release" else None,
        "batch_tokens": plan.get("tokens"),
        "batches": plan.get("batches"),
        "tokens": found.tokens,
        "private_share": found.private_share,
        "drawn": found.drawn,
        "kept": found.rows,
        "removed": {name: count for name, count in found.removed.items() if count},
    }


def chosen(results: Results, receipts: Receipts) -> Rows:
    """One row per variant whose texts private rows chose: what its plan bought, and what came of it."""
    return [_chosen(*both) for both in _by(Family.CHOOSES, results, receipts)]


def _chosen(receipt: Receipt, found: GenerationCounts) -> dict[str, Any]:
    """`rounds` is how many were finished; `sigma` the noise of one vote, or of the class means where nobody votes.

    Where one text after the other is picked by a noisy score, it is the `scale` of that noise.
    """
    plan = receipt.plan or {}
    return {
        "variant": receipt.variant,
        "method": receipt.method,
        "sigma": plan.get("sigma", plan.get("scale")),
        "rounds": found.rounds,
        "neighbours": plan.get("neighbours"),
        "drawn": found.drawn,
        "requests": found.requests,
        "tokens": found.tokens,
        "kept": found.rows,
    }


def replaced(results: Results, receipts: Receipts) -> Rows:
    """variant, epsilon, neighbours, vocabulary, kept: variants in which each word of private rows was replaced."""
    return [
        {
            "variant": receipt.variant,
            "epsilon": per_word(plan["token_epsilon"], receipt.unit),
            "neighbours": plan.get("neighbours"),
            "vocabulary": plan.get("vocabulary"),
            "kept": found.rows,
        }
        for receipt, found in _by(Family.EDITS, results, receipts)
        for plan in (receipt.plan or {},)
    ]


def counted(name: str, key: str, label: str = "") -> Column[Found]:
    """A column of counts."""
    return Column(name, lambda row: Cell(number(row[key])), label=label, number=True)


_VARIANT: Column[Found] = Column("Variant", lambda row: Cell(row["variant"]))
_METHOD: Column[Found] = Column("Method", lambda row: Cell(row["method"]))


def _kept(row: Found) -> Cell:
    removed = ", ".join(f"{number(count)} by {name}" for name, count in row["removed"].items())
    return Cell(number(row["kept"]), (f"less {removed}",) if removed else ())


def _tables(page: Page) -> Iterator[Table[Found]]:
    unit = page.summary.unit
    yield Table(
        "What was written",
        "Rows that a public language model wrote while it read private ones, without learning from them. A token costs "
        f"budget where private rows had a say in it. Method fewshot has no batches: it draws {many(unit)} anew for "
        "each token.",
        (
            _VARIANT,
            _METHOD,
            counted("Clip", "clip"),
            counted("Private tokens of a batch", "batch_tokens", "Private, a batch"),
            counted("Batches", "batches"),
            counted("Tokens written", "tokens"),
            Column("That cost budget", lambda row: Cell(percent(row["private_share"])), number=True),
            counted("Rows drawn", "drawn"),
            Column("Rows kept", _kept, number=True),
        ),
        written(page.results, page.receipts),
    )
    yield Table(
        "What was chosen",
        "Rows that others wrote, who saw no private row, and that private rows pointed at: by their noisy mean "
        "embeddings, by noisy votes for the nearest candidate, or by a noisy choice of the one with the best score. "
        f"Noise is in units of one {unit}. Method embed chooses embeddings, which a public decoder writes down.",
        (
            _VARIANT,
            _METHOD,
            counted("Noise", "sigma"),
            counted("Rounds", "rounds"),
            counted(f"Votes of a {unit}", "neighbours"),
            counted("Rows before filters", "drawn"),
            counted("Requests", "requests"),
            counted("Tokens", "tokens"),
            counted("Rows kept", "kept"),
        ),
        chosen(page.results, page.receipts),
    )
    yield Table(
        "What was replaced",
        "Private rows with every word exchanged for one of its public neighbours. That protects one word at a time: "
        "the length and the order of a row stay in sight. This ε is in another unit than all others and cannot be "
        "compared with them. For reference, never released.",
        (
            _VARIANT,
            Column("ε", lambda row: Cell(row["epsilon"])),
            counted("Neighbours of a word", "neighbours"),
            counted("Words of the map", "vocabulary"),
            counted("Rows kept", "kept"),
        ),
        replaced(page.results, page.receipts),
    )


SECTION = Section("generation", (GENERATION,), tables=_tables)
