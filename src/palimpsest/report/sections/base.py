"""The parts that a section of the page is made of."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from markupsafe import Markup

from palimpsest.audit.membership import MembershipAudit, Verdict
from palimpsest.audit.statistics import Estimate
from palimpsest.privacy.ledger.summary import LedgerSummary
from palimpsest.privacy.receipt import Receipt
from palimpsest.report.drawing import Chart, Rows
from palimpsest.report.formats import MISSING, number, percent
from palimpsest.report.results import Metric, Results, Row, Summary, is_attack

Line = TypeVar("Line")
Receipts = Mapping[str, Receipt]  # by variant

MEMBERS, OTHERS = "members", "never read"  # the two sides of an attack

_VERDICTS = {"refuted": "stop", "not refuted": "hold", "inconclusive": "look"}


@dataclass(frozen=True)
class Page:
    """The data that the page is drawn from."""

    summary: Summary
    results: Results
    receipts: Receipts
    ledger: LedgerSummary


@dataclass(frozen=True)
class Figure:
    """One figure of the page.

    Attributes:
        section: the heading it stands under, one of `HEADINGS`.
        caption: how to read it.
        alt: a description of it for those who cannot see it.
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

    @classmethod
    def of(cls, rows: Rows, chart: Callable[[Rows], Chart], **words: Any) -> Iterator["Figure"]:
        """Yield the figure of these rows; none where there are no rows, because nothing was measured."""
        if rows:
            yield cls(chart=chart(rows), rows=rows, **words)

    @property
    def columns(self) -> tuple[str, ...]:
        """The table's columns."""
        return tuple(self.rows[0])


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: its content; markup where it is more than words.
        small: lines in small print behind it.
        strong: whether it is the main cell of the line.
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
        """Return the cell of a line, and its style."""
        cell = self.cell(line)
        looks = ["none"] * (cell is None) + ["n"] * self.number
        return cell or Cell(MISSING), " ".join(looks)


def word_column(name: str, key: str) -> Column[Mapping[str, Any]]:
    """Make a column of words, which stand in the rows under `key`."""
    return Column(name, lambda row: Cell(row[key]))


def number_column(name: str, key: str, label: str = "", digits: int = 3) -> Column[Mapping[str, Any]]:
    """Make a column of numbers."""
    return Column(name, lambda row: Cell(number(row[key], digits)), label=label, number=True)


def share_column(name: str, key: str) -> Column[Mapping[str, Any]]:
    """Make a column of shares in percent."""
    return Column(name, lambda row: Cell(percent(row[key])), number=True)


@dataclass(frozen=True)
class Table(Generic[Line]):
    """One table: the first cell of each line is its heading.

    Attributes:
        note: how to read it.
        kind: its style.
        role: a line -> its style.
    """

    title: str
    note: str
    columns: tuple[Column[Line], ...]
    lines: Sequence[Line]
    kind: str = "cards"
    role: Callable[[Line], str] = field(default=lambda line: "")


@dataclass(frozen=True)
class Claim:
    """One claim.

    Attributes:
        id: short and stable, for citing.
        sentence: the claimed statement.
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
class Section:
    """One topic of the page: the files it reads, and the parts it adds.

    Attributes:
        metrics: the files it reads; no other section reads them from the disk.
        heading: of its figures, where a page may be drawn before these files are there.
        columns: of the table of verdicts, which has a line per variant.
        tables: of the overview.
        figures: with the tables behind them.
        claims: of one release.
        plots: for DVC: the name of a file -> the rows behind its plot.
    """

    name: str
    metrics: tuple[Metric[Any], ...] = ()
    columns: Callable[[Page], Iterable[Column[Row]]] = lambda _: ()
    tables: Callable[[Page], Iterable[Table[Any]]] = lambda _: ()
    figures: Callable[[Page], Iterable[Figure]] = lambda _: ()
    claims: Callable[[Row, Results, str], Iterable[Claim]] = lambda *_: ()
    plots: Mapping[str, Callable[[Page], Rows]] = field(default_factory=dict)
    heading: str = ""


@dataclass(frozen=True)
class MembershipKind:
    """A kind of membership attack on a variant: all kinds that were made test its claim together.

    Attributes:
        mark: the prefix of the claims that rest on it.
        metric: its files. The name ends with `membership`, by which unfinished ones are known (`row.is_attack`).
        sees: what the attack sees; completes "the" and "its".
        title: of its ROC, with a place for the variant.
        audit: a result -> its membership audit.
        verdict: a result, and its audit as one of all audits that test the claim -> the verdict on both.
    """

    mark: str
    metric: Metric[Any]
    sees: str
    title: str
    audit: Callable[[Any], MembershipAudit] = lambda result: result
    verdict: Callable[[Any, MembershipAudit], Verdict] = lambda _, audit: audit.verdict

    def __post_init__(self) -> None:
        if not is_attack(self.metric.name):
            raise ValueError(f"the files of a membership attack end with `membership`, got {self.metric.name!r}")


def interval_cell(found: Estimate | None) -> Cell:
    """Return the cell of a share, its interval in small print."""
    if found is None:
        return Cell(MISSING)
    return Cell(percent(found.value), (f"{percent(found.low)} to {percent(found.high)}",))


def badge(verdict: str) -> Markup:
    """Return a verdict in its colour."""
    return Markup('<span class="verdict {}">{}</span>').format(_VERDICTS.get(verdict, "look"), verdict)


def inconclusive_cell(row: Row, kind: str) -> Cell | None:
    """Return the cell of a measurement that came to no result; None where it was not made."""
    return Cell(badge("inconclusive")) if kind in row.unsettled else None


def claim_of(prefix: str, row: Row, metric: Metric[Any], sentence: str, results: Results, sure: bool = True) -> Claim:
    """Make a claim that rests on a metric file; a measurement that came to no conclusion covers nothing."""
    path = f"reports/metrics/{metric.file(row.variant)}"
    body = results.documents[metric.name][row.variant]
    return Claim(f"{prefix}-{row.variant}", sentence, "tested" if sure else "not covered", path, digest(body))


def digest(document: Any) -> str:
    """Return the SHA-256 of the file that `files.write_json` makes of a document read from one."""
    return hashlib.sha256((json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()).hexdigest()
