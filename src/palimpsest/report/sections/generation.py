"""How the rows were made: written, chosen, or replaced word by word; decoded from embeddings.

Of decoders it is shown how much of their output was readable.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup

from palimpsest.audit.reconstruction import DecoderScores
from palimpsest.methods.registry import METHODS
from palimpsest.methods.shared.base import GenerationCounts
from palimpsest.methods.shared.method import Family
from palimpsest.privacy.receipt import Receipt
from palimpsest.report import drawing as draw
from palimpsest.report.drawing import Rows
from palimpsest.report.formats import number, per_word, plural_of
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

GENERATION = Metric("generation", GenerationCounts.from_json, measured_subjects)
_DECODERS = Metric(
    "decoders", DecoderScores.from_json, lambda params: params.run.decoder_pretrain, path="decoders/{}.json"
)

_DECODER_ROWS = ("encoder", "parameters", "rows", "cosine", "nearest", "token_f1", "bleu", "exact", "readable_share")


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
        draw.fields(receipt, "variant", "method")
        | {"clip": plan.get("clip") if receipt.purpose == "release" else None}
        | {"batch_tokens": plan.get("tokens"), "batches": plan.get("batches")}
        | draw.fields(counts, "tokens", "private_share", "drawn")
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
        draw.fields(receipt, "variant", "method")
        | {"sigma": plan.get("sigma", plan.get("scale")), "neighbours": plan.get("neighbours")}
        | draw.fields(counts, "rounds", "drawn", "requests", "tokens")
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


def decoders(results: Results) -> Rows:
    """Return name, encoder, parameters, rows, cosine, nearest, token_f1, bleu, exact, readable_share, per decoder."""
    return [{"name": name} | draw.fields(one, *_DECODER_ROWS) for name, one in results.of(_DECODERS).items()]


def decoded_texts(results: Results) -> Rows:
    """Return name, given, decoded, cosine: public texts and what was decoded from their embeddings."""
    known = results.of(_DECODERS).items()
    return [
        {"name": name} | draw.fields(sample, "given", "decoded", "cosine")
        for name, one in known
        for sample in one.samples
    ]


def filtered_samples(results: Results) -> Rows:
    """Return variant, kept, label, perplexity, text: samples that the readability check kept and dropped."""
    return [
        {"variant": variant, "kept": kept} | draw.fields(one, "label", "perplexity", "text")
        for variant, counts in results.of(GENERATION).items()
        for kept, samples in ((True, counts.kept_samples), (False, counts.unreadable_samples))
        for one in samples or ()
    ]


def _check_cell(row: Mapping[str, Any]) -> Cell:
    look, verdict = ("hold", "kept") if row["kept"] else ("stop", "dropped")
    return Cell(Markup('<span class="{}">{}</span>').format(look, verdict))


def _decoder_tables(page: Page) -> Iterator[Table[Mapping[str, Any]]]:
    yield Table(
        "Decoders",
        "Public models that write an embedding down, on public sentences that they were not trained on: how near the "
        "written text is to the given embedding, how often no other sentence is nearer, and how many words come back. "
        "Readable: the public language model finds the text likely enough. No private row was read.",
        (
            word_column("Decoder", "name"),
            word_column("Encoder", "encoder"),
            number_column("Parameters", "parameters"),
            number_column("Sentences", "rows"),
            number_column("Cosine", "cosine"),
            share_column("Nearest", "nearest"),
            number_column("Token F1", "token_f1"),
            number_column("BLEU", "bleu"),
            share_column("Word for word", "exact"),
            share_column("Readable", "readable_share"),
        ),
        decoders(page.results),
    )
    yield Table(
        "What a decoder writes",
        "Public sentences, and what comes back from their embeddings.",
        (
            word_column("Decoder", "name"),
            word_column("Given", "given"),
            word_column("Written", "decoded"),
            number_column("Cosine", "cosine"),
        ),
        decoded_texts(page.results),
        kind="cards texts",
    )
    yield Table(
        "What was readable",
        "Synthetic texts that the perplexity check let pass, and texts that it dropped: what would be among the rows "
        "without it.",
        (
            word_column("Variant", "variant"),
            Column("Check", _check_cell),
            Column("Label", lambda row: Cell(number(row["label"]))),
            number_column("Perplexity", "perplexity"),
            word_column("Text", "text"),
        ),
        filtered_samples(page.results),
        kind="cards texts",
    )


DECODERS = Section("decoder", (_DECODERS,), tables=_decoder_tables)
