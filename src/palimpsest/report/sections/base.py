"""The parts that a section of the page is made of."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from markupsafe import Markup

from palimpsest.audit.membership import MembershipAudit, Verdict
from palimpsest.audit.statistics import Estimate, Rate
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
    """One figure of the page."""

    section: str  # the heading it stands under, one of `HEADINGS`
    title: str
    caption: str  # how to read it
    alt: str  # a description of it for those who cannot see it
    chart: Chart
    rows: Rows  # the table behind it
    wide: bool = False  # True where it takes the page's whole width

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
    """One cell of a table."""

    text: str  # its content; markup where it is more than words
    small: tuple[str, ...] = ()  # lines in small print behind it
    strong: bool = False  # whether it is the main cell of the line


@dataclass(frozen=True)
class Column(Generic[Line]):
    """One column of a table."""

    name: str  # its heading
    cell: Callable[[Line], Cell | None]  # a line -> its cell, or None where there is nothing to say
    note: str = ""  # small print in the heading
    label: str = ""  # its name beside a cell, where a phone shows no headings; the heading where it is left out
    number: bool = False  # whether its cells are numbers, which stand under each other

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
    """One table: the first cell of each line is its heading."""

    title: str
    note: str  # how to read it
    columns: tuple[Column[Line], ...]
    lines: Sequence[Line]
    kind: str = "cards"  # its style
    role: Callable[[Line], str] = field(default=lambda line: "")  # a line -> its style


@dataclass(frozen=True)
class Claim:
    """One claim."""

    id: str  # short and stable, for citing
    sentence: str  # the claimed statement
    status: str  # "proved" (a theorem), "tested" (an attack or test that could have failed), "assumed", "not covered"
    evidence: str  # the file or test that carries it
    digest: str = ""  # SHA-256 of that file, or ""


@dataclass(frozen=True)
class Section:
    """One topic of the page: the files it reads, and the parts it adds."""

    name: str
    metrics: tuple[Metric[Any], ...] = ()  # the files it reads; no other section reads them from the disk
    # of the table of verdicts, which has a line per variant
    columns: Callable[[Page], Iterable[Column[Row]]] = lambda _: ()
    tables: Callable[[Page], Iterable[Table[Any]]] = lambda _: ()  # of the overview
    figures: Callable[[Page], Iterable[Figure]] = lambda _: ()  # with the tables behind them
    claims: Callable[[Row, Results, str], Iterable[Claim]] = lambda *_: ()  # of one release
    # for DVC: the name of a file -> the rows behind its plot
    plots: Mapping[str, Callable[[Page], Rows]] = field(default_factory=dict)
    heading: str = ""  # of its figures, where a page may be drawn before these files are there


@dataclass(frozen=True)
class MembershipKind:
    """A kind of membership attack on a variant: all kinds that were made test its claim together."""

    mark: str  # the prefix of the claims that rest on it
    # its files. The name ends with `membership`, by which unfinished ones are known (`row.is_attack`).
    metric: Metric[Any]
    sees: str  # what the attack sees; completes "the" and "its"
    title: str  # of its ROC, with a place for the variant
    audit: Callable[[Any], MembershipAudit] = lambda result: result  # a result -> its membership audit
    # a result, and its audit as one of all audits that test the claim -> the verdict on both
    verdict: Callable[[Any, MembershipAudit], Verdict] = lambda _, audit: audit.verdict

    def __post_init__(self) -> None:
        if not is_attack(self.metric.name):
            raise ValueError(f"the files of a membership attack end with `membership`, got {self.metric.name!r}")


def interval_cell(found: Estimate | Rate | None, digits: int = 1) -> Cell:
    """Return the cell of a share, its interval in small print."""
    if found is None:
        return Cell(MISSING)
    share = found.rate if isinstance(found, Rate) else found.value
    return Cell(percent(share, digits), (f"{percent(found.low, digits)} to {percent(found.high, digits)}",))


def interval_column(name: str, key: str) -> Column[Mapping[str, Any]]:
    """Make a column of shares with their intervals."""
    return Column(name, lambda row: interval_cell(row[key]), number=True)


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
