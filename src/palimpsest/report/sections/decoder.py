"""Decoders of embeddings, and how much of their output was readable."""

from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup

from palimpsest.audit.reconstruction import DecoderScores
from palimpsest.report.drawing import Rows, fields
from palimpsest.report.formats import number
from palimpsest.report.results import Metric, Results
from palimpsest.report.sections.base import Cell, Column, Page, Section, Table, number_column, share_column, word_column
from palimpsest.report.sections.generation import GENERATION

_DECODERS = Metric(
    "decoders", DecoderScores.from_json, lambda params: params.run.decoder_pretrain, path="decoders/{}.json"
)

_ROWS = ("encoder", "parameters", "rows", "cosine", "nearest", "token_f1", "bleu", "exact", "readable_share")


def decoders(results: Results) -> Rows:
    """Return name, encoder, parameters, rows, cosine, nearest, token_f1, bleu, exact, readable_share, per decoder."""
    return [{"name": name} | fields(one, *_ROWS) for name, one in results.of(_DECODERS).items()]


def decoded_texts(results: Results) -> Rows:
    """Return name, given, decoded, cosine: public texts and what was decoded from their embeddings."""
    known = results.of(_DECODERS).items()
    return [
        {"name": name} | fields(sample, "given", "decoded", "cosine") for name, one in known for sample in one.samples
    ]


def filtered_samples(results: Results) -> Rows:
    """Return variant, kept, label, perplexity, text: samples that the readability check kept and dropped."""
    return [
        {"variant": variant, "kept": kept} | fields(one, "label", "perplexity", "text")
        for variant, counts in results.of(GENERATION).items()
        for kept, samples in ((True, counts.kept_samples), (False, counts.unreadable_samples))
        for one in samples or ()
    ]


def _check(row: Mapping[str, Any]) -> Cell:
    look, verdict = ("hold", "kept") if row["kept"] else ("stop", "dropped")
    return Cell(Markup('<span class="{}">{}</span>').format(look, verdict))


def _tables(page: Page) -> Iterator[Table[Mapping[str, Any]]]:
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
            Column("Check", _check),
            Column("Label", lambda row: Cell(number(row["label"]))),
            number_column("Perplexity", "perplexity"),
            word_column("Text", "text"),
        ),
        filtered_samples(page.results),
        kind="cards texts",
    )


SECTION = Section("decoder", (_DECODERS,), tables=_tables)
