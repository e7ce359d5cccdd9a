"""Shows whether the public language model may have read the test rows before."""

from collections.abc import Callable, Iterator

from palimpsest.audit.statistics import Estimate
from palimpsest.params.sources import reads_named
from palimpsest.report.formats import number, percent
from palimpsest.report.results import Metric
from palimpsest.report.sections.base import Cell, Column, Page, Section, Table
from palimpsest_lab.audits.familiarity import Familiarity, Sight

FAMILIARITY = Metric(
    "familiarity",
    Familiarity.from_json,
    lambda params: ("base",) if reads_named(params) else (),
    path="familiarity.json",
)
Line = tuple[str, Sight]


def _tables(page: Page) -> Iterator[Table[Line]]:
    found = page.results.get(FAMILIARITY, "base")
    if found is None:
        return
    lines = (("test rows", found.test), ("public text of the same lengths", found.public))
    shown = (order for order in found.test.shared if order in found.public.shared)
    yield Table(
        "Has the public model read the test rows?",
        "A model of the open web may have met a test set that was published; what it writes then scores too well. "
        "Test rows that it finds much likelier than other text are a sign of it, and no proof; so are long runs of "
        "words that the public text has, too. Intervals of 95%.",
        (
            Column("Texts", lambda line: Cell(line[0])),
            Column("Bits per character", lambda line: _cell(line[1].bits, number), number=True),
            Column("Next token guessed", lambda line: _cell(line[1].guessed, percent), number=True),
            *map(_overlap, shown),
        ),
        lines,
    )


def _overlap(order: str) -> Column[Line]:
    return Column(f"{order} words in public text", lambda line: _cell(line[1].shared[order], percent), number=True)


def _cell(found: Estimate, shown: Callable[[float], str]) -> Cell:
    return Cell(shown(found.value), (f"{shown(found.low)} to {shown(found.high)}",))


SECTION = Section("familiarity", (FAMILIARITY,), tables=_tables, heading="Utility")
