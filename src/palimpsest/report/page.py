"""The internal audit page: one HTML file that needs nothing else, for the private zone."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import Any

import altair as alt
import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from palimpsest.privacy.ledger.summary import LedgerSummary
from palimpsest.privacy.receipt import Receipt
from palimpsest.report.claims import claims
from palimpsest.report.formats import number, percent
from palimpsest.report.results import Results
from palimpsest.report.row import Summary
from palimpsest.report.sections import SECTIONS, gallery, pipeline
from palimpsest.report.sections.base import Cell, Column, Figure, Page, Table, Verdict
from palimpsest.report.theme import PAGE_CONFIG
from palimpsest.report.unit import Unit


def render_internal(
    summary: Summary,
    results: Results,
    receipts: Mapping[str, Receipt],
    ledger: LedgerSummary,
    statement: Mapping[str, Any],
    stages: Sequence[Mapping[str, Any]],
    provenance: Mapping[str, str],
) -> str:
    """The page as HTML text: styles, drawings and the drawing library inside, no address outside.

    Every name that comes from data is escaped, and the page's content policy lets only its own two scripts run.

    Args:
        receipts: variant -> its receipt.
        stages: the DAG.
        provenance: name -> version of everything that matters, and "created".
    """
    page = Page(summary, results, receipts, ledger)
    drawn = [*gallery(page), pipeline.figure(stages)]
    script = Markup(environment().get_template("internal.js").render())
    return (
        environment()
        .get_template("internal.html.j2")
        .render(
            summary=summary,
            ledger=ledger,
            statement=statement,
            stages=stages,
            provenance=provenance,
            claims=claims(summary, results, receipts, ledger, statement),
            alerts=_alerts(summary, statement),
            bar=_bar(ledger),
            verdicts=verdicts(page),
            tables=[table for section in SECTIONS for table in section.tables(page) if table.lines],
            words=summary.per_word,
            unit=Unit.stated(statement),
            sections=sections(drawn[:-1]),
            pipeline=numbered(drawn)[-1],
            drawings=drawings(drawn),
            library=Markup(library()),
            script=script,
            policy=policy(library(), script),
        )
    )


def environment() -> Environment:
    """The templates, with every value from data escaped."""
    found = Environment(
        loader=PackageLoader("palimpsest.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"number": number, "percent": percent}
    return found


_ROLES = {
    "release": "for release",
    "reference": "reference, never released",
    "real": "the private rows",
    "public_only": "public text alone",
}


def verdicts(page: Page) -> Table[Verdict]:
    """The table of verdicts: a line per variant, and the columns of every section."""
    named: Column[Verdict] = Column("Variant", lambda line: Cell(line.row.variant, (_ROLES[line.row.role],)))
    return Table(
        "Verdict per variant",
        "",
        (named, *(column for section in SECTIONS for column in section.columns(page.summary))),
        [Verdict(row, page.results) for row in page.summary.rows],
        role=lambda line: line.row.role,
    )


def numbered(drawn: Sequence[Figure]) -> list[tuple[int, Figure]]:
    """(number, figure), from 1."""
    return list(enumerate(drawn, start=1))


def sections(drawn: Sequence[Figure]) -> list[tuple[str, list[tuple[int, Figure]]]]:
    """(heading, numbered figures) in their order."""
    return [(name, list(group)) for name, group in groupby(numbered(drawn), key=lambda item: item[1].section)]


def _alerts(summary: Summary, statement: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a reader must see first: (level, sentence)."""
    alerts = [("stop", f"{statement['status']}: {reason}") for reason in statement["reasons"]]
    for row in summary.of("release"):
        if row.verdict == "refuted":
            words = "a proof or the code is wrong. No check stops its release; only your word does."
            alerts.append(("stop", f"An attack refuted the privacy claim of {row.variant}: {words}"))
        if not all(found.control_passed for found in row.attacks):
            alerts.append(("look", f"The control of {row.variant}'s membership test failed: its verdict says nothing."))
        if not row.attacks:
            alerts.append(("look", f"{row.variant} was not attacked: nothing here tests its privacy claim."))
    for release in statement["releases"]:
        alerts += [("look", f"{release['variant']}: {flag}") for flag in release["flags"]]
    return sorted(alerts, key=lambda alert: alert[0] != "stop")


def _bar(ledger: LedgerSummary) -> dict[str, float]:
    """Shares of the cap, in epsilon; what is only reserved by its share of the charges."""
    used = min(1.0, ledger.spent_epsilon / ledger.cap_epsilon)
    counted = [(charge.state, charge.epsilon) for charge in ledger.charges if charge.released and charge.epsilon]
    total = sum(epsilon for _, epsilon in counted)
    standing = sum(epsilon for state, epsilon in counted if state == "reserved")
    reserved = used * standing / total if total else 0.0
    return {"spent": used - reserved, "reserved": reserved, "left": 1 - used}


def drawings(drawn: Sequence[Figure]) -> dict[str, Any]:
    """What the page's script draws."""
    return {"config": PAGE_CONFIG, "specs": [figure.chart.to_dict() for figure in drawn]}


@cache
def library() -> str:
    """Vega, Vega-Lite and their embedder in one script, of the version that Altair writes for."""
    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=version))


def policy(*scripts: str) -> Markup:
    """A content policy under which only these scripts run and nothing is fetched."""
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    return Markup(
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
