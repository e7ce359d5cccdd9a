"""The audit page, the privacy statement, the final table, and the same figures as DVC plots."""

import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

import palimpsest
from palimpsest.files import atomic_path, read_json, write_json
from palimpsest.params.load import ledger_url, load
from palimpsest.params.schema import RESERVED, Params
from palimpsest.privacy.books import ledger_summary
from palimpsest.privacy.ledger import Ledger
from palimpsest.report import tables
from palimpsest.report.page import render_internal
from palimpsest.report.statement import statement
from palimpsest.report.summary import EVALUATORS, summarise
from stages.common import METRICS, RECEIPTS, start

REPORTS = Path("reports")
_NAMED = re.compile(r"\$\{([\w.]+)\}")
_KINDS = ("utility", "incontext", "membership", "ngrams", "facts", "structure", "generation")
_PACKAGES = ("torch", "transformers", "dp-accounting", "opendp", "dvc", "scikit-learn")


def run() -> None:
    """reports/metrics, reports/receipts, the ledger -> the pages of the private zone."""
    params = load()
    ledger = Ledger.open(ledger_url(params))
    books = ledger_summary(ledger, ledger.asset(params.dataset.asset))
    metrics, receipts, stages = read_metrics(params), read_receipts(params), read_stages(Path("dvc.yaml"))
    summary = summarise(metrics, receipts, books)
    verdicts = {row.variant: row.membership.verdict for row in summary.rows if row.membership}
    document = statement(receipts, books, asdict(params.schema_of_data), stages, verdicts)
    page = render_internal(summary, metrics, receipts, books, document, stages, provenance(), read_models(params))
    with atomic_path(REPORTS / "internal.html") as draft:
        draft.write_text(page, encoding="utf-8")
    write_json(REPORTS / "statement.json", document)
    write_json(REPORTS / "summary.json", summary.to_json())
    write_json(REPORTS / "plots" / "utility.json", tables.frontier(summary, EVALUATORS[0]))
    write_json(REPORTS / "plots" / "overlap.json", tables.excess(metrics))


def read_metrics(params: Params) -> dict[str, dict[str, Any]]:
    """variant -> kind -> metric file, of the variants that run and of the two baselines; others are left out."""
    names = (*params.run.evaluate, *RESERVED)
    paths = {(name, kind): METRICS / name / f"{kind}.json" for name in names for kind in _KINDS}
    found: dict[str, dict[str, Any]] = {}
    for (name, kind), path in paths.items():
        if path.is_file():
            found.setdefault(name, {})[kind] = read_json(path)
    return found


def read_models(params: Params) -> dict[str, Any]:
    """model -> what its states tell of the labels, of the models that are examined."""
    paths = {name: METRICS / "models" / f"{name}.json" for name in params.run.embedding_audit}
    return {name: read_json(path) for name, path in paths.items() if path.is_file()}


def read_receipts(params: Params) -> dict[str, dict[str, Any]]:
    """variant -> receipt, of the variants that run."""
    return {name: read_json(RECEIPTS / f"{name}.json") for name in params.run.evaluate}


def read_stages(path: Path) -> list[dict[str, Any]]:
    """The graph as dvc.yaml writes it, matrices folded: name, desc, zone, and the stages it needs."""
    found = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))["stages"]
    body = {name: stage.get("do", stage) for name, stage in found.items()}
    makers = [(_any(output), name) for name, stage in body.items() for output in _outputs(stage)]
    return [
        {
            "name": name,
            "desc": stage.get("desc", ""),
            "zone": stage["meta"]["zone"],
            "deps": _needs(name, stage, makers),
        }
        for name, stage in body.items()
    ]


def _outputs(stage: Mapping[str, Any]) -> list[str]:
    entries = [entry for key in ("outs", "metrics", "plots") for entry in stage.get(key, [])]
    return [entry if isinstance(entry, str) else next(iter(entry)) for entry in entries]


def _needs(name: str, stage: Mapping[str, Any], makers: Sequence[tuple[str, str]]) -> list[str]:
    deps = [_any(dep) for dep in stage.get("deps", [])]
    made = [maker for dep in deps for output, maker in makers if output == dep or output.startswith(f"{dep}/")]
    through = {"${dataset.private}", "${dataset.test}", "${dataset.public}"}
    made += ["world" for dep in deps if dep in through and "world" in dict(makers).values()]
    return sorted(set(made) - {name})  # a discriminator needs a model, and makes one


def _any(path: str) -> str:
    """The path with one mark for the names that its stage is repeated for, whatever they are called there."""
    return _REPEATED.sub("*", path)


def provenance() -> dict[str, str]:
    """Versions of what computed the page."""
    packages = {name: version(name) for name in _PACKAGES}
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return {"palimpsest": palimpsest.__version__, "python": platform.python_version(), **packages, "created": created}


if __name__ == "__main__":
    start(run)
