"""Fields beside texts: distances of their tables, and what a model of texts and fields learns from the rows."""

from collections.abc import Iterator, Mapping
from typing import Any

from palimpsest.audit.fields import FieldsAudit
from palimpsest.report import drawing as draw
from palimpsest.report.drawing import Rows
from palimpsest.report.results import Metric, Results
from palimpsest.report.sections.base import (
    Cell,
    Column,
    Page,
    Section,
    Table,
    interval_column,
    number_column,
    share_column,
    word_column,
)  # fmt: skip

_FIELDS = Metric("fields", FieldsAudit.from_json, lambda params: params.run.evaluate if params.dataset.fields else ())


def distances(results: Results) -> Rows:
    """Return variant, table, cells, synthetic, real, apart, uniform: one row per table of a variant."""
    return [
        {"variant": variant, "table": " and ".join(one.axes)}
        | draw.fields(one, "cells", "synthetic", "real", "apart", "uniform")
        for variant, audit in results.of(_FIELDS).items()
        for one in audit.tables
    ]


def learned(results: Results) -> Rows:
    """Return variant, target, cells, majority, synthetic, real, kept: one row per column of a variant."""
    return [
        {"variant": variant} | draw.fields(one, "target", "cells", "majority", "synthetic", "real", "kept")
        for variant, audit in results.of(_FIELDS).items()
        for one in audit.learned
    ]


def _tables(page: Page) -> Iterator[Table[Mapping[str, Any]]]:
    yield Table(
        "Do fields go together as in real rows?",
        "Total variation from the tables of real test rows, 0 to 1. Real rows: as many training rows, so this is what "
        "sampling alone makes. Apart: these with every column shuffled, so none goes with another. Even: every cell "
        "equally often. A field that was read from texts has its reader's errors in real rows, too.",
        (
            word_column("Variant", "variant"), word_column("Table", "table"),
            Column("Cells", lambda row: Cell(f"{row['cells']:,}"), number=True),
            number_column("Its rows", "synthetic"), number_column("Real rows", "real"),
            number_column("Apart", "apart"), number_column("Even", "uniform"),
        ),
        distances(page.results),
    )  # fmt: skip
    yield Table(
        "What does a model of texts and fields learn?",
        "Logistic regression on words and on all columns but the one that it names, asked about real test rows. Most "
        "common: the accuracy of always naming what most real rows have. Kept: the share of the real rows' accuracy. "
        "Intervals of 95% over test rows.",
        (
            word_column("Variant", "variant"), word_column("Names", "target"),
            interval_column("Its rows", "synthetic"), interval_column("Real rows", "real"),
            share_column("Most common", "majority"), interval_column("Kept", "kept"),
        ),
        learned(page.results),
    )  # fmt: skip


SECTION = Section("fields", (_FIELDS,), tables=_tables, heading="Utility")
