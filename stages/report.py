"""The audit page, the public card, the privacy statement, the final table, and the same figures as DVC plots."""

import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

import palimpsest
from palimpsest.files import atomic_path, read_json, write_json
from palimpsest.graph.expand import MADE, expand, unrepeated
from palimpsest.params.load import ledger_url, load
from palimpsest.params.schema import RESERVED, Params
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.summary import ledger_summary
from palimpsest.privacy.receipt import Receipt, read_receipt
from palimpsest.report import evidence, tables
from palimpsest.report.card import PUBLISHABLE, render_card
from palimpsest.report.page import render_internal
from palimpsest.report.statement import statement
from palimpsest.report.summary import EVALUATORS, summarise
from palimpsest.workspace import (
    CARD,
    DECODER_METRICS,
    GRAPH,
    METRICS,
    MODEL_METRICS,
    PAGE,
    PARAMS,
    PLOTS,
    RECEIPTS,
    SCORES,
    STATEMENT,
    SUMMARY,
    TWINS,
)
from stages.common import start
from stages.vouching import told

_KINDS = (
    "utility", "incontext", "membership", "text_membership", "shadow_membership", "ngrams", "memorisation", "anonymity",
    "fidelity", "facts", "structure", "evolution", "generation",
)  # fmt: skip
_CONTENT = ("text_membership", "memorisation", "anonymity", "fidelity")
_PACKAGES = ("torch", "transformers", "dp-accounting", "opendp", "dvc", "scikit-learn")


def run() -> None:
    """reports/metrics, reports/receipts, the ledger -> the pages of the private zone."""
    params = load()
    ledger = Ledger.open(ledger_url(params))
    books = ledger_summary(ledger.books(), params.dataset.asset)
    metrics, receipts, stages = read_metrics(params), read_receipts(params), read_stages(GRAPH)
    summary = summarise(metrics, receipts, books)
    document = statement(receipts, books, asdict(params.schema_of_data), stages, sources=told(params))
    examined = read_models(params), read_decoders(params)
    page = render_internal(summary, metrics, receipts, books, document, stages, provenance(), *examined)
    _write(PAGE, page)
    scores, twins = read_scores(params), read_twins(params)
    card = render_card(
        document, books, receipts, stages, provenance(), variants=params.may_leave, scores=scores, twins=twins
    )
    _write(CARD, card)
    write_json(STATEMENT, document)
    write_json(SUMMARY, summary.to_json())
    write_json(PLOTS / "utility.json", tables.frontier(summary, EVALUATORS[0]))
    write_json(PLOTS / "overlap.json", tables.excess(metrics))
    write_json(PLOTS / "bracket.json", tables.bracket(summary))
    write_json(PLOTS / "risk.json", evidence.risks(metrics))
    write_json(PLOTS / "fidelity.json", evidence.fidelity(metrics))


def _write(path: Path, page: str) -> None:
    with atomic_path(path) as draft:
        draft.write_text(page, encoding="utf-8")


def read_scores(params: Params) -> dict[str, Any] | None:
    """What classifiers score on the declared public test file; None where there is none."""
    found = dict(read_json(SCORES)) if params.dataset.public_test is not None and SCORES.is_file() else {}
    return found if found.get("zone") == PUBLISHABLE else None


def read_twins(params: Params) -> dict[str, dict[str, Any]]:
    """method -> its end-to-end audit on invented canaries, of the methods that were audited."""
    paths = {name: TWINS / f"{name}.json" for name in params.run.twins}
    return {name: dict(read_json(path)) for name, path in paths.items() if path.is_file()}


def read_metrics(params: Params) -> dict[str, dict[str, Any]]:
    """variant -> kind -> metric file, of the variants that run and of the two baselines; others are left out."""
    names = (*params.run.evaluate, *RESERVED)
    asked = {name: _kinds(params, name) for name in names}
    paths = {(name, kind): METRICS / name / f"{kind}.json" for name in names for kind in asked[name]}
    found: dict[str, dict[str, Any]] = {}
    for (name, kind), path in paths.items():
        if path.is_file():
            found.setdefault(name, {})[kind] = read_json(path)
    return found


def _kinds(params: Params, name: str) -> list[str]:
    """Kinds of metric files of a row; files of settings that were taken back may still lie there."""
    run = params.run
    taken_back = {
        "incontext": name not in (*run.in_context, *run.in_context_baseline),
        "structure": params.dataset.json_schema is None,
        "evolution": name not in (*run.private_evolve, *run.eda_evolve),
    }
    taken_back["shadow_membership"] = name not in run.shadow_mia
    taken_back |= dict.fromkeys(_CONTENT, name not in run.audit)
    return [kind for kind in _KINDS if not taken_back.get(kind, False)]


def read_models(params: Params) -> dict[str, Any]:
    """model -> what its states tell of the labels, of the models that are examined."""
    paths = {name: MODEL_METRICS / f"{name}.json" for name in params.run.embedding_audit}
    return {name: read_json(path) for name, path in paths.items() if path.is_file()}


def read_decoders(params: Params) -> dict[str, Any]:
    """decoder -> how well it writes down public embeddings, of the decoders that are trained."""
    paths = {name: DECODER_METRICS / f"{name}.json" for name in params.run.decoder_pretrain}
    return {name: read_json(path) for name, path in paths.items() if path.is_file()}


def read_receipts(params: Params) -> dict[str, Receipt]:
    """variant -> receipt, of the variants that run."""
    return {name: read_receipt(RECEIPTS / f"{name}.json") for name in params.run.evaluate}


def read_stages(path: Path) -> list[dict[str, Any]]:
    """The graph as dvc.yaml writes it, matrices folded: name, desc, zone, and the stages it needs.

    A stage that is repeated needs what any of its repetitions needs, by the names in the params.yaml beside it.
    """
    yaml = YAML(typ="safe", pure=True)
    graph = yaml.load(path.read_text(encoding="utf-8"))["stages"]
    params = yaml.load(path.with_name(PARAMS.name).read_text(encoding="utf-8"))
    written, repeated = unrepeated(graph, params), expand(graph, params)
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
    found = {maker for path in read for output, maker in made if output == path or output.startswith(f"{path}/")}
    return sorted(found - {name})  # a discriminator needs a model, and makes one


def provenance() -> dict[str, str]:
    """Versions of what computed the page."""
    packages = {name: version(name) for name in _PACKAGES}
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return {"palimpsest": palimpsest.__version__, "python": platform.python_version(), **packages, "created": created}


if __name__ == "__main__":
    start(run)
