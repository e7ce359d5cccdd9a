"""How far clipping moves the average of private contexts."""

from collections.abc import Iterator

from palimpsest.report.formats import number
from palimpsest.report.results import Metric
from palimpsest.report.sections.base import Cell, Column, Page, Section, Table
from palimpsest_lab.audits.clipping import ClippingAudit
from palimpsest_lab.settings import run_of

CLIPPING = Metric(
    "clipping", ClippingAudit.from_json, lambda params: run_of(params).clipping_audit, path="{}/clipping.json"
)  # of a model: no row of the final table
Line = tuple[float, float, float]


def _tables(page: Page) -> Iterator[Table[Line]]:
    found = page.results.get(CLIPPING, "base")
    if found is None:
        return
    yield Table(
        "What clipping does to private prediction",
        "Private texts of one label stand before the same public text. The distance, 0 to 2, is that of the "
        "distribution that their clipped logits agree on from the unclipped one.",
        (
            Column("Clip", lambda line: Cell(f"{line[0]:g}"), number=True),
            Column("Fixed interval", lambda line: Cell(number(line[1])), number=True),
            Column("Moved, then cut", lambda line: Cell(number(line[2])), number=True),
        ),
        tuple(zip(found.clips, found.fixed, found.moved, strict=True)),
    )


SECTION = Section("clipping", (CLIPPING,), tables=_tables, heading="Utility")
