"""The internal audit page: one HTML file that needs nothing else, for the private zone.

Its claims have an id, a sentence, how far it holds, and the evidence.
"""

import base64
import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from typing import Any

import altair as alt
import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from palimpsest.params.schema import Params
from palimpsest.privacy.ledger.summary import LedgerSummary
from palimpsest.privacy.receipt import Receipt
from palimpsest.records.record import list_fields
from palimpsest.report.drawing import PAGE_CONFIG
from palimpsest.report.formats import Unit, at_least, at_most, number, percent
from palimpsest.report.results import Metric, Results, Row, Summary, is_attack
from palimpsest.report.sections import HEADINGS, SECTIONS, gallery, pipeline
from palimpsest.report.sections.base import Cell, Claim, Column, Figure, Page, Section, Table, digest
from palimpsest.report.statement import PRIVATE
from palimpsest.report.summary import collect_unsettled, conclusions, uncovered_claims
from palimpsest.workspace import PUBLIC_LM, PUBLIC_ONLY, REAL

_NOTHING: Mapping[str, str] = {}
ROLE_WORDS = {
    "release": "for release",
    "reference": "reference, never released",
    REAL: "the private rows",
    PUBLIC_ONLY: "public text alone",
    PUBLIC_LM: "the public model alone",
}
_STATUSES = ("proved", "tested", "assumed", "not covered")


@dataclass(frozen=True)
class Coming:
    """Measurements that a run has yet to make."""

    metric: Metric[Any]  # the kind of file
    names: tuple[str, ...]  # the subjects of the files, such as variants
    section: Section  # where the page will show them

    @property
    def words(self) -> str:
        """The name of the measurement and its subjects."""
        return f"{self.metric.name.replace('_', ' ')} ({', '.join(self.names)})"


def find_coming(params: Params, files: Collection[str]) -> tuple[Coming, ...]:
    """Return the measurements that the run asks for and that are still to be written.

    `files` are paths below the metrics' folder: those of the missing measurements.
    """
    return tuple(_iter_coming(params, files))


def _iter_coming(params: Params, files: Collection[str]) -> Iterator[Coming]:
    for section in SECTIONS:
        for metric in section.metrics:
            names = tuple(name for name in metric.asked(params) if metric.file(name) in files)
            if names:
                yield Coming(metric, names, section)


def drop_coming(results: Results, still: Collection[Coming]) -> Results:
    """Return the results without the missing measurements: a file that lies there is of an earlier run."""
    documents = dict(results.documents)
    for one in still:
        kept = documents.get(one.metric.name, {})
        documents[one.metric.name] = {name: body for name, body in kept.items() if name not in one.names}
    return replace(results, documents=documents)


def find_unattacked(still: Collection[Coming]) -> set[str]:
    """Return the variants whose attacks are still to come."""
    return {name for one in still for name in one.names if is_attack(one.metric.name)}


def notes(still: Collection[Coming]) -> dict[str, str]:
    """Return heading -> what will stand under it, in the order of the page."""
    listed = {name: [one.words for one in still if one.section.heading == name] for name in HEADINGS}
    return {name: f"Still to come: {'; '.join(words)}." for name, words in listed.items() if words}


def render_internal(
    summary: Summary,
    results: Results,
    receipts: Mapping[str, Receipt],
    ledger: LedgerSummary,
    statement: Mapping[str, Any],
    stages: Sequence[Mapping[str, Any]],
    provenance: Mapping[str, str],
    still: Sequence[Coming] = (),
) -> str:
    """Render the page as HTML text, with styles, drawings and the drawing library inside and no outside address.

    `provenance` is name -> version of everything that matters, and "created". `still` lists the measurements that the
    first page of a run lacks: the page says so at its top, under each heading, and in place of a verdict.
    """
    page = Page(summary, results, receipts, ledger)
    return render_page(
        "internal.html.j2",
        [*gallery(page), pipeline.figure(stages)],
        summary=summary,
        ledger=ledger,
        statement=statement,
        promised=statement["status"] == PRIVATE,
        stages=stages,
        provenance=provenance,
        claims=claims(summary, results, receipts, ledger, statement),
        conclusions=conclusions(summary, find_unattacked(still)),
        alerts=[*_first_page_alerts(still, provenance), *_alerts(page, statement, still)],
        bar=_bar(ledger),
        verdicts=verdicts(page, still),
        tables=[table for section in SECTIONS for table in section.tables(page) if table.lines],
        words=summary.per_word,
        unit=Unit.from_statement(statement),
        coming=notes(still),
        unattacked=_explain_unattacked(summary, still),
    )


def render_page(template: str, drawn: Sequence[Figure], *, coming: Mapping[str, str] = _NOTHING, **words: Any) -> str:
    """Render a page as HTML text: its words, and its figures under their headings, the last one under the provenance.

    `coming` is heading -> what will stand under it.

    Every name that comes from data is escaped, and the page's content policy lets only its own two scripts run.
    """
    figures = list(enumerate(drawn, start=1))
    groups = {name: list(group) for name, group in groupby(figures[:-1], key=lambda item: item[1].section)}
    pages = environment()
    script, bundle = Markup(pages.get_template("internal.js").render()), _library()
    specs = [figure.chart.to_dict(validate=False) for figure in drawn]  # tests hold every drawing to Vega-Lite's schema
    return pages.get_template(template).render(
        sections=[(name, groups.get(name, [])) for name in HEADINGS if name in groups or name in coming],
        coming=coming,
        pipeline=figures[-1],
        drawings={"config": PAGE_CONFIG, "specs": specs},
        library=bundle,
        script=script,
        policy=policy(bundle, script),
        **words,
    )


@cache  # a template is compiled once
def environment() -> Environment:
    """Return the template environment, which escapes every value from data."""
    made = Environment(
        loader=PackageLoader("palimpsest.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"number": number, "at_most": at_most, "at_least": at_least, "percent": percent}
    made.filters["fields"] = list_fields
    return made


def verdicts(page: Page, still: Sequence[Coming] = ()) -> Table[Row]:
    """Build the table of verdicts: a line per variant, and the columns of every section; not those still to come."""
    rows, waiting = page.summary.rows, {one.section.name for one in still}
    listed = [(section.name, column) for section in SECTIONS for column in section.columns(page)]
    shown = (column for name, column in listed if name not in waiting or any(map(column.cell, rows)))
    named: Column[Row] = Column("Variant", lambda row: Cell(row.variant, (ROLE_WORDS[row.role],)))
    return Table("Verdict per variant", "", (named, *shown), rows, role=lambda row: row.role)


def _explain_unattacked(summary: Summary, still: Sequence[Coming]) -> str:
    if any(is_attack(one.metric.name) for one in still):
        return "still to come"
    tried = any(row.unsettled_attacks for row in summary.of("release"))
    return "inconclusive: no attack came to a result" if tried else "no release was attacked"


def _first_page_alerts(still: Sequence[Coming], provenance: Mapping[str, str]) -> list[tuple[str, str]]:
    if not still:
        return []
    listed = "; ".join(one.words for one in still)
    drawn = f"This first page was drawn at {provenance['created']}, before all was measured."
    return [("look", f"{drawn} Still to come: {listed}. The run draws the page anew when they are there.")]


def _alerts(page: Page, statement: Mapping[str, Any], still: Sequence[Coming] = ()) -> list[tuple[str, str]]:
    """Return the alerts that a reader must see first: (level, sentence)."""
    summary, later = page.summary, find_unattacked(still)
    alerts = [("stop", f"{statement['status']}: {reason}") for reason in statement["reasons"]]
    for row in summary.of("release"):
        if row.verdict == "refuted":
            words = "a proof or the code is wrong. No check stops its release; only your word does."
            alerts.append(("stop", f"An attack refuted the privacy claim of {row.variant}: {words}"))
        if not all(audit.control_passed for audit in row.attacks):
            alerts.append(("look", f"The control of {row.variant}'s membership test failed: its verdict says nothing."))
        if not row.attacks and not row.unsettled_attacks and row.variant not in later:
            alerts.append(("look", f"{row.variant} was not attacked: nothing here tests its privacy claim."))
    alerts += [("stop" if one.why.failed else "look", one.sentence) for one in collect_unsettled(page.results)]
    for release in statement["releases"]:
        alerts += [("look", f"{release['variant']}: {flag}") for flag in release["flags"]]
    return sorted(alerts, key=lambda alert: alert[0] != "stop")


def _bar(ledger: LedgerSummary) -> dict[str, float]:
    """Return shares of the cap, in epsilon; the reserved share is in proportion to its part of the charges."""
    used = min(1.0, ledger.spent_epsilon / ledger.cap_epsilon)
    counted = [(charge.state, charge.epsilon) for charge in ledger.charges if charge.released and charge.epsilon]
    total = sum(epsilon for _, epsilon in counted)
    standing = sum(epsilon for state, epsilon in counted if state == "reserved")
    reserved = used * standing / total if total else 0.0
    return {"spent": used - reserved, "reserved": reserved, "left": 1 - used}


@cache
def _library() -> Markup:
    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    return Markup(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=version))


def policy(*scripts: str) -> Markup:
    """Return a content policy under which only these scripts run and nothing is fetched."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests)
    return Markup(
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def claims(
    summary: Summary,
    results: Results,
    receipts: Mapping[str, Receipt],
    ledger: LedgerSummary,
    statement: Mapping[str, Any],
) -> tuple[Claim, ...]:
    """Return every claim of the page, the proved ones first."""
    refuted = {row.variant for row in summary.of("release") if row.verdict == "refuted"}
    sound = statement["status"] == PRIVATE and not refuted
    rows = summary.of("release")
    measured = [one for row in rows for part in SECTIONS for one in part.claims(row, results, summary.unit)]
    measured += uncovered_claims(results)
    return _sort_by_status(
        [
            *_proved_claims(receipts, statement, refuted),
            _total_claim(ledger, sound),
            *measured,
            *_statement_claims(statement),
        ]
    )


def public_claims(
    statement: Mapping[str, Any], receipts: Mapping[str, Receipt], ledger: LedgerSummary
) -> tuple[Claim, ...]:
    """Return the claims of a card, which rest on nothing from the private zone, the proved ones first."""
    total = _total_claim(ledger, statement["status"] == PRIVATE)
    return _sort_by_status([*_proved_claims(receipts, statement, set()), total, *_statement_claims(statement)])


def _end_to_end_claim(item: Mapping[str, Any]) -> Claim:
    tested = item["verdict"] in ("refuted", "not refuted")
    status = "tested" if tested else "not covered"
    return Claim(f"T-{item['method']}", item["sentence"], status, "palimpsest/report/twins.json")


def _statement_claims(statement: Mapping[str, Any]) -> list[Claim]:
    own = [*map(_end_to_end_claim, statement["end_to_end"]), *map(_assumption_claim, statement["assumptions"])]
    return own + [
        Claim(f"N-{item['id']}", item["sentence"], "not covered", "reports/statement.json")
        for item in statement["not_covered"]
    ]


def _sort_by_status(stated: list[Claim]) -> tuple[Claim, ...]:
    return tuple(sorted(stated, key=lambda claim: _STATUSES.index(claim.status)))


def _proved_claims(receipts: Mapping[str, Receipt], statement: Mapping[str, Any], refuted: set[str]) -> Iterator[Claim]:
    step, promised = Unit.from_statement(statement).step, statement["status"] == PRIVATE
    for release in statement["releases"]:
        variant, epsilon = release["variant"], release["epsilon"]
        holds = promised and variant not in refuted
        sentence = (
            f"The rows of {variant} are (ε = {at_most(epsilon)}, δ = {at_most(release['delta'])})-differentially "
            f"private for adding or removing {step}, as far as the assumptions H hold."
            if holds
            else f"Nothing can be promised about the rows of {variant}."
        )
        evidence = (f"reports/receipts/{variant}.json", digest(receipts[variant].to_json()))
        yield Claim(f"P-{variant}", sentence, "proved" if holds else "not covered", *evidence)
        if release["accounting"]["agree"]:
            yield Claim(f"A-{variant}", f"Two accountants agree on {variant}.", "tested", *evidence)


def _total_claim(ledger: LedgerSummary, sound: bool) -> Claim:
    total = ledger.total
    return Claim("P-total", total.sentence, total.status if sound else "not covered", "ledger", str(ledger.shown_head))


def _assumption_claim(item: Mapping[str, Any]) -> Claim:
    seen = item["holds"] == "yes"
    return Claim(
        id=f"H-{item['id']}",
        sentence=item["sentence"],
        status="tested" if seen else "not covered" if item["holds"] == "no" else "assumed",
        evidence=item["test"] or _name_basis(item),
    )


def _name_basis(item: Mapping[str, Any]) -> str:
    if item["holds"] == "owner":
        named = (f"{one['source']} ({one['name']}, {(one['sha256'] or 'no hash')[:12]})" for one in item["sources"])
        return "; ".join(["the owner's word", *named])
    words = {"untested": "no test", "assumed": "assumed of the machine"}
    return words.get(item["holds"], "checked in this run")
