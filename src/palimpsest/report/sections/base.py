"""What a section of the page is made of."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from markupsafe import Markup

from palimpsest.privacy.ledger.summary import LedgerSummary
from palimpsest.privacy.receipt import Receipt
from palimpsest.report.drawing import Chart, Rows
from palimpsest.report.formats import MISSING
from palimpsest.report.results import Metric, Results, T
from palimpsest.report.row import Row, Summary

Line = TypeVar("Line")

VERDICTS = {"refuted": "stop", "not refuted": "hold", "inconclusive": "look"}


@dataclass(frozen=True)
class Page:
    """What the page is drawn from.

    Attributes:
        receipts: variant -> its receipt.
    """

    summary: Summary
    results: Results
    receipts: Mapping[str, Receipt]
    ledger: LedgerSummary


@dataclass(frozen=True)
class Figure:
    """One figure of the page.

    Attributes:
        section: the heading it stands under, one of `HEADINGS`.
        title: what it shows, in a few words.
        caption: how to read it.
        alt: what it shows, for those who cannot see it.
        rows: the table behind it.
        wide: True where it takes the page's whole width.
    """

    section: str
    title: str
    caption: str
    alt: str
    chart: Chart
    rows: Rows
    wide: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The table's columns."""
        return tuple(self.rows[0])


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: what it says; markup where it is more than words.
        small: lines in small print behind it.
        strong: whether it is what the line is about.
    """

    text: str
    small: tuple[str, ...] = ()
    strong: bool = False


@dataclass(frozen=True)
class Column(Generic[Line]):
    """One column of a table.

    Attributes:
        name: its heading.
        cell: a line -> its cell, or None where there is nothing to say.
        note: small print in the heading.
        label: its name beside a cell, where a phone shows no headings; the heading where it is left out.
        number: whether its cells are numbers, which stand under each other.
    """

    name: str
    cell: Callable[[Line], Cell | None]
    note: str = ""
    label: str = ""
    number: bool = False

    def shown(self, line: Line) -> tuple[Cell, str]:
        """The cell of a line, and how it looks."""
        found = self.cell(line)
        looks = ["none"] * (found is None) + ["n"] * self.number
        return found or Cell(MISSING), " ".join(looks)


@dataclass(frozen=True)
class Table(Generic[Line]):
    """One table: the first cell of each line is its heading.

    Attributes:
        note: how to read it.
        columns: from left to right.
        lines: from top to bottom.
        kind: how it looks.
        role: a line -> how it looks.
    """

    title: str
    note: str
    columns: tuple[Column[Line], ...]
    lines: Sequence[Line]
    kind: str = "cards"
    role: Callable[[Line], str] = field(default=lambda line: "")


@dataclass(frozen=True)
class Verdict:
    """One variant, in the table of verdicts.

    Attributes:
        row: its line of the final table.
    """

    row: Row
    results: Results

    def result(self, metric: Metric[T]) -> T | None:
        """What was measured of it, or None."""
        return self.results.get(metric, self.row.variant)


@dataclass(frozen=True)
class Claim:
    """One claim.

    Attributes:
        id: short and stable, for citing.
        sentence: what is claimed.
        status: "proved" (a theorem), "tested" (an attack or test that could have failed), "assumed", "not covered".
        evidence: the file or test that carries it.
        digest: SHA-256 of that file, or "".
    """

    id: str
    sentence: str
    status: str
    evidence: str
    digest: str = ""


@dataclass(frozen=True)
class Plot:
    """The rows behind one of DVC's plots.

    Attributes:
        name: of its file.
        rows: the page -> the rows.
    """

    name: str
    rows: Callable[[Page], Rows]


@dataclass(frozen=True)
class Section:
    """One topic of the page: what it reads, and what it says of it.

    Attributes:
        name: of the topic.
        metrics: the files it reads; no other section reads them from the disk.
        columns: of the table of verdicts.
        tables: of the overview.
        figures: with the tables behind them.
        claims: of one release.
        plots: for DVC.
    """

    name: str
    metrics: tuple[Metric[Any], ...] = ()
    columns: Callable[[Summary], Iterable[Column[Verdict]]] = lambda _: ()
    tables: Callable[[Page], Iterable[Table[Any]]] = lambda _: ()
    figures: Callable[[Page], Iterable[Figure]] = lambda _: ()
    claims: Callable[[Row, Results, str], Iterable[Claim]] = lambda *_: ()
    plots: tuple[Plot, ...] = ()


def badge(verdict: str) -> Markup:
    """A verdict in its colour."""
    return Markup('<span class="verdict {}">{}</span>').format(VERDICTS.get(verdict, "look"), verdict)


def claim_of(prefix: str, row: Row, metric: Metric[Any], sentence: str, results: Results, sure: bool = True) -> Claim:
    """A claim that rests on a metric file; one that came to no conclusion covers nothing."""
    path = f"reports/metrics/{metric.file(row.variant)}"
    body = results.documents[metric.name][row.variant]
    return Claim(f"{prefix}-{row.variant}", sentence, "tested" if sure else "not covered", path, digest(body))


def digest(document: Any) -> str:
    """SHA-256 of the file that `files.write_json` makes of a document read from one."""
    return hashlib.sha256((json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()).hexdigest()
