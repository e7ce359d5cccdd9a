"""Writes the audit page, the public card, the privacy statement, the final table, and the same figures as DVC plots."""

import platform
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import reduce
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from ruamel.yaml import YAML

import palimpsest
from palimpsest.audit.inconclusive import Inconclusive
from palimpsest.files import read_json, write_json, write_text
from palimpsest.graph.expand import MADE, expand, list_unrepeated
from palimpsest.params.file import RESOLVED
from palimpsest.params.load import ledger_url, load
from palimpsest.params.schema import Params
from palimpsest.params.sources import describe_public_rows
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.summary import LedgerSummary, ledger_summary
from palimpsest.privacy.receipt import Receipt, read_receipt
from palimpsest.records.record import Record
from palimpsest.report import sections
from palimpsest.report.card import render_card
from palimpsest.report.drawing import Rows
from palimpsest.report.page import Coming, drop_coming, find_coming, find_unattacked, render_internal
from palimpsest.report.results import Metric, Results
from palimpsest.report.samples import select_few
from palimpsest.report.sections.base import Page
from palimpsest.report.sections.utility import PUBLIC
from palimpsest.report.statement import statement
from palimpsest.report.summary import collect_unsettled, conclusions, summarise
from palimpsest.workspace import CARD, GRAPH, METRICS, PAGE, PLOTS, PUBLISHABLE, RECEIPTS, STATEMENT, SUMMARY
from stages.audited import written
from stages.common import start
from stages.vouching import describe_sources

_PACKAGES = ("torch", "transformers", "dp-accounting", "opendp", "dvc", "scikit-learn")
T = TypeVar("T")


def run(*awaited: str) -> None:
    """reports/metrics, reports/receipts, the ledger -> the pages of the private zone.

    With metric files that a run has yet to write, by their paths: only the first page and the table, which say what is
    to come.
    """
    params = load()
    still = find_coming(params, {Path(path).relative_to(METRICS).as_posix() for path in awaited})
    ledger = Ledger.open(ledger_url(params))
    books = ledger_summary(ledger.books(), params.dataset.asset)
    results, receipts = drop_coming(read_results(params), still), read_receipts(params.run.evaluate)
    stages = read_stages(GRAPH)
    document = statement(
        receipts, books, asdict(params.schema_of_data), stages, sources=describe_sources(params), swept=params.swept,
        language=params.dataset.language,
    )  # fmt: skip
    page, table, plots = draw_tolerantly(
        results, lambda found: _render_private(found, receipts, books, document, stages, still)
    )
    write_text(PAGE, page)
    write_json(SUMMARY, table)
    if awaited:
        return
    card = render_card(
        document, books, receipts, stages, provenance(), variants=params.may_leave, scores=read_scores(params),
        samples=read_samples(params, receipts), copied=describe_public_rows(params, params.may_leave),
    )  # fmt: skip
    write_text(CARD, card)
    write_json(STATEMENT, document)
    for name, rows in plots.items():
        write_json(PLOTS / f"{name}.json", rows)


def _render_private(
    results: Results,
    receipts: Mapping[str, Receipt],
    books: LedgerSummary,
    document: Mapping[str, Any],
    stages: Sequence[Mapping[str, Any]],
    still: Sequence[Coming],
) -> tuple[str, Mapping[str, Any], Mapping[str, Rows]]:
    """Return the page as HTML, the final table, and the rows behind each plot."""
    summary = summarise(results, receipts, books)
    told = conclusions(summary, find_unattacked(still))
    kept = summary.table(told, [one.words for one in still], [one.sentence for one in collect_unsettled(results)])
    page = Page(summary, results, receipts, books)
    plots = {name: rows(page) for section in sections.SECTIONS for name, rows in section.plots.items()}
    shown = render_internal(summary, results, receipts, books, document, stages, provenance(), still)
    return shown, kept.to_json(), plots


def draw_tolerantly(results: Results, draw: Callable[[Results], T]) -> T:
    """Draw from the results, leaving out a kind that cannot be drawn: that kind counts as inconclusive.

    Guarantee: no number that an audit of private rows may come to ends this stage, and with it a run before its
    release. A drawing that fails without any result still ends it: that does not depend on the rows.
    """
    try:
        return draw(results)
    except Exception as error:
        why = replace(Inconclusive.of(error), failed=True)
    print(f"error: {why.lines}", file=sys.stderr, flush=True)
    for kind in results.documents:
        with suppress(Exception):
            return draw(results.mark_inconclusive(kind, why))
    return draw(reduce(lambda left, kind: left.mark_inconclusive(kind, why), results.documents, results))


def read_scores(params: Params) -> dict[str, Any] | None:
    """Read the scores of classifiers on the declared public test file; None where there are none."""
    scores = _read(PUBLIC, params).get(PUBLIC.name, {})
    return scores if scores.get("zone") == PUBLISHABLE else None


def read_samples(params: Params, receipts: Mapping[str, Receipt]) -> dict[str, list[Record]]:
    """Return variant -> a few of its rows, only for variants whose receipt lets them be shown."""
    names = [name for name in params.may_leave if name in receipts and receipts[name].private]
    return {name: samples_of(params, written(params, name)) for name in names}


def samples_of(params: Params, records: Sequence[Record]) -> list[Record]:
    """Select a few rows for the card, the same each time."""
    return select_few(records, by_label=bool(params.dataset.labels), seed=params.seed)


def read_results(params: Params, workspace: Path = Path()) -> Results:
    """Read every metric file of this run that exists; files of settings since taken back are left out."""
    return Results({metric.name: _read(metric, params, workspace) for metric in sections.METRICS})


def _read(metric: Metric[Any], params: Params, workspace: Path = Path()) -> dict[str, Any]:
    paths = {name: workspace / METRICS / metric.file(name) for name in metric.asked(params)}
    return {name: read_json(path) for name, path in paths.items() if path.is_file()}


def read_receipts(variants: Iterable[str], workspace: Path = Path()) -> dict[str, Receipt]:
    """Read variant -> its receipt."""
    return {name: read_receipt(workspace / RECEIPTS / f"{name}.json") for name in variants}


def read_yaml(path: Path) -> Any:
    """Read one YAML document."""
    return YAML(typ="safe").load(path.read_text(encoding="utf-8"))


def read_stages(path: Path) -> list[dict[str, Any]]:
    """Read the graph as dvc.yaml writes it, matrices folded: name, desc, zone, and the stages it needs.

    A repeated stage needs what any of its repetitions needs, by the names in the values beside it.
    """
    graph, params = read_yaml(path)["stages"], read_yaml(path.with_name(RESOLVED))
    written, repeated = list_unrepeated(graph, params), expand(graph, params)
    running = {one.stage for one in repeated}
    nodes = [*repeated, *(one for one in written if one.stage not in running)]
    made = [(path, one.stage) for one in nodes for path in one.known_paths(*MADE)]
    read = [(path, one.stage) for one in nodes for path in one.known_paths("deps")]
    return [
        {
            "name": one.stage,
            "desc": one.body.get("desc", ""),
            "zone": one.body["meta"]["zone"],
            "deps": _needs([path for path, reader in read if reader == one.stage], made, one.stage),
        }
        for one in written
    ]


def _needs(read: Sequence[str], made: Sequence[tuple[str, str]], name: str) -> list[str]:
    makers = {maker for path in read for output, maker in made if output == path or output.startswith(f"{path}/")}
    return sorted(makers - {name})  # a discriminator needs a model, and makes one


def provenance() -> dict[str, str]:
    """Return the versions of what computed the page."""
    packages = {name: version(name) for name in _PACKAGES}
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return {"palimpsest": palimpsest.__version__, "python": platform.python_version(), **packages, "created": created}


if __name__ == "__main__":
    start(run)
