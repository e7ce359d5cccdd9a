"""The audit page, the public card, the privacy statement, the final table, and the same figures as DVC plots."""

import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

import palimpsest
from palimpsest.files import atomic_path, read_json, write_json
from palimpsest.params.file import RESOLVED
from palimpsest.params.load import ledger_url, load
from palimpsest.params.schema import RESERVED, Params
from palimpsest.privacy.books import ledger_summary
from palimpsest.privacy.ledger import Ledger
from palimpsest.privacy.receipt import Receipt, read_receipt
from palimpsest.report import evidence, tables
from palimpsest.report.card import PUBLISHABLE, render_card
from palimpsest.report.page import render_internal
from palimpsest.report.statement import statement
from palimpsest.report.summary import EVALUATORS, summarise
from stages.common import METRICS, RECEIPTS, start
from stages.vouching import told

REPORTS = Path("reports")
_NAMED = re.compile(r"\$\{([\w.]+)\}")
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
    books = ledger_summary(ledger, ledger.asset(params.dataset.asset))
    metrics, receipts, stages = read_metrics(params), read_receipts(params), read_stages(Path("dvc.yaml"))
    summary = summarise(metrics, receipts, books)
    document = statement(receipts, books, asdict(params.schema_of_data), stages, sources=told(params))
    examined = read_models(params), read_decoders(params)
    page = render_internal(summary, metrics, receipts, books, document, stages, provenance(), *examined)
    _write(REPORTS / "internal.html", page)
    scores, twins = read_scores(params), read_twins(params)
    card = render_card(
        document, books, receipts, stages, provenance(), variants=params.may_leave, scores=scores, twins=twins
    )
    _write(REPORTS / "card.html", card)
    write_json(REPORTS / "statement.json", document)
    write_json(REPORTS / "summary.json", summary.to_json())
    write_json(REPORTS / "plots" / "utility.json", tables.frontier(summary, EVALUATORS[0]))
    write_json(REPORTS / "plots" / "overlap.json", tables.excess(metrics))
    write_json(REPORTS / "plots" / "bracket.json", tables.bracket(summary))
    write_json(REPORTS / "plots" / "risk.json", evidence.risks(metrics))
    write_json(REPORTS / "plots" / "fidelity.json", evidence.fidelity(metrics))


def _write(path: Path, page: str) -> None:
    with atomic_path(path) as draft:
        draft.write_text(page, encoding="utf-8")


def read_scores(params: Params) -> dict[str, Any] | None:
    """What classifiers score on the declared public test file; None where there is none."""
    path = METRICS / "public.json"
    found = dict(read_json(path)) if params.dataset.public_test is not None and path.is_file() else {}
    return found if found.get("zone") == PUBLISHABLE else None


def read_twins(params: Params) -> dict[str, dict[str, Any]]:
    """method -> its end-to-end audit on invented canaries, of the methods that were audited."""
    paths = {name: METRICS / "twins" / f"{name}.json" for name in params.run.twins}
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
    paths = {name: METRICS / "models" / f"{name}.json" for name in params.run.embedding_audit}
    return {name: read_json(path) for name, path in paths.items() if path.is_file()}


def read_decoders(params: Params) -> dict[str, Any]:
    """decoder -> how well it writes down public embeddings, of the decoders that are trained."""
    paths = {name: METRICS / "decoders" / f"{name}.json" for name in params.run.decoder_pretrain}
    return {name: read_json(path) for name, path in paths.items() if path.is_file()}


def read_receipts(params: Params) -> dict[str, Receipt]:
    """variant -> receipt, of the variants that run."""
    return {name: read_receipt(RECEIPTS / f"{name}.json") for name in params.run.evaluate}


def read_stages(path: Path) -> list[dict[str, Any]]:
    """The graph as dvc.yaml writes it, matrices folded: name, desc, zone, and the stages it needs.

    A stage that is repeated needs what any of its repetitions needs, by the names in the values beside it.
    """
    yaml = YAML(typ="safe", pure=True)
    found = yaml.load(path.read_text(encoding="utf-8"))["stages"]
    params = yaml.load(path.with_name(RESOLVED).read_text(encoding="utf-8"))
    body = {name: stage.get("do", stage) for name, stage in found.items()}
    values = {name: _repetitions(stage, params) for name, stage in found.items()}
    makers = [(output, name) for name, stage in body.items() for output in _filled(_outputs(stage), values[name])]
    return [
        {
            "name": name,
            "desc": stage.get("desc", ""),
            "zone": stage["meta"]["zone"],
            "deps": _needs(name, _filled(stage.get("deps", []), values[name]), makers),
        }
        for name, stage in body.items()
    ]


def _outputs(stage: Mapping[str, Any]) -> list[str]:
    entries = [entry for key in ("outs", "metrics", "plots") for entry in stage.get(key, [])]
    return [entry if isinstance(entry, str) else next(iter(entry)) for entry in entries]


def _needs(name: str, deps: Sequence[str], makers: Sequence[tuple[str, str]]) -> list[str]:
    made = [maker for dep in deps for output, maker in makers if output == dep or output.startswith(f"{dep}/")]
    return sorted(set(made) - {name})  # a discriminator needs a model, and makes one


def _repetitions(stage: Mapping[str, Any], params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What `item` and `key` are in each repetition, beside params.yaml; once without them where there is none."""
    if "matrix" in stage:
        ((key, names),) = stage["matrix"].items()
        found: list[dict[str, Any]] = [{"item": {key: value}} for value in _named(names, params)]
    else:
        names = _named(stage.get("foreach", {}), params)
        pairs = names.items() if isinstance(names, Mapping) else [(None, value) for value in names]
        found = [{"key": key, "item": value} for key, value in pairs]
    return [dict(params) | own for own in found] or [dict(params)]


def _named(value: Any, params: Mapping[str, Any]) -> Any:
    """What a list or mapping is, whether it is written out or named."""
    return _value(value[2:-1], params) if isinstance(value, str) else value


def _filled(paths: Sequence[str], values: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every path with every repetition's names; a name that is not known stays as it is written."""
    return [_NAMED.sub(partial(_word, own), path) for path in paths for own in values]


def _word(values: Mapping[str, Any], name: re.Match[str]) -> str:
    found = _value(name[1], values)
    return name[0] if found is None else str(found)


def _value(name: str, values: Any) -> Any:
    """What params.yaml has under a name with dots; None where it has nothing."""
    for key in name.split("."):
        values = values.get(key) if isinstance(values, Mapping) else None
    return values


def provenance() -> dict[str, str]:
    """Versions of what computed the page."""
    packages = {name: version(name) for name in _PACKAGES}
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return {"palimpsest": palimpsest.__version__, "python": platform.python_version(), **packages, "created": created}


if __name__ == "__main__":
    start(run)
