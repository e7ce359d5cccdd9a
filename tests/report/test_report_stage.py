"""What the stage hands to the page: the metric files of this run alone, and the graph as it runs."""

from pathlib import Path
from typing import Any

import pytest
from report_world import (
    decoder,
    evolution,
    in_context,
    membership,
    structure,
    utility,
    world_ledger,
    world_receipts,
    world_schema,
)
from ruamel.yaml import YAML

import stages.report
from palimpsest.files import read_json, write_json
from palimpsest.params.file import RESOLVED
from palimpsest.params.load import load
from palimpsest.report.results import Results
from palimpsest.report.statement import statement
from stages.report import read_receipts, read_results, read_samples, read_stages
from tests.report.release_world import VARIANT, copied, inside, released

ROOT = Path(__file__).parents[2]
GRAPH = """
stages:
  base: {cmd: a, outs: [models/base], meta: {zone: public}}
  taught: {matrix: {model: "${run.taught}"}, cmd: b, outs: ["models/taught/${item.model}"], meta: {zone: public}}
  fit: {matrix: {model: "${run.fit}"}, cmd: c, deps: [models/base], outs: ["models/${item.model}"],
    meta: {zone: private}}
  write: {foreach: "${run.write}", do: {cmd: d, deps: ["models/${item}", "${dataset.private}"],
    outs: ["rows/${key}": {push: false}], meta: {zone: private}}}
  real: {matrix: {row: "${run.real}"}, cmd: e, metrics: ["asked/${item.row}.json"], meta: {zone: private}}
  others: {matrix: {row: "${run.others}"}, cmd: f, deps: [asked/real.json, "rows/${item.row}"],
    metrics: ["asked/${item.row}.json"], meta: {zone: private}}
  page: {cmd: g, deps: [asked], meta: {zone: private}}
"""
RUN: dict[str, list[str] | dict[str, str]] = {
    "taught": ["near"], "fit": ["lm"], "write": {"w": "taught/near", "v": "base"}, "real": ["real"], "others": ["w"],
}  # fmt: skip


def needs(folder: Path, **run: list[str] | dict[str, str]) -> dict[str, list[str]]:
    (folder / "dvc.yaml").write_text(GRAPH, encoding="utf-8")
    with (folder / RESOLVED).open("w", encoding="utf-8") as file:
        YAML(typ="safe", pure=True).dump({"dataset": {"private": "x.csv"}, "run": RUN | run}, file)
    return {stage["name"]: stage["deps"] for stage in read_stages(folder / "dvc.yaml")}


def test_a_stage_needs_what_its_repetitions_read(tmp_path: Path) -> None:
    found = needs(tmp_path)
    assert found == {
        "base": [], "taught": [], "fit": ["base"], "write": ["base", "taught"], "real": [],
        "others": ["real", "write"], "page": ["others", "real"],
    }  # fmt: skip


def test_what_reads_a_public_model_is_not_drawn_behind_a_fitted_one(tmp_path: Path) -> None:
    assert needs(tmp_path, write={"w": "base"})["write"] == ["base"]
    assert needs(tmp_path, write={"w": "lm"})["write"] == ["fit"]


def test_a_stage_that_runs_for_nothing_is_still_listed(tmp_path: Path) -> None:
    found = needs(tmp_path, write={}, real=[], others=[])
    assert (found["write"], found["others"]) == ([], [])


def test_every_stage_of_the_repository_has_its_line_and_its_needs() -> None:
    stages = read_stages(ROOT / "dvc.yaml")
    found = {stage["name"]: set(stage["deps"]) for stage in stages}
    assert found["private_predict"] == {"preprocess", "pretrain", "teach_similar"}
    assert "private_predict" not in found["mia"]
    accesses = statement(world_receipts(), world_ledger(), world_schema(), stages)["data_accesses"]
    coverage = {access["stage"]: access["coverage"] for access in accesses}
    assert coverage["teach_similar"] == "public"
    assert {coverage[name] for name in ("incontext_baseline", "incontext_eval")} == {"not covered"}


@pytest.fixture
def metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Metric files of every kind in the working directory, those of settings that were taken back among them."""
    monkeypatch.chdir(tmp_path)
    for name in ("dp3", "predict3", "real", "public_only"):
        write_json(f"reports/metrics/{name}/incontext.json", in_context(name, {4: 0.5}))
        write_json(f"reports/metrics/{name}/structure.json", structure(name, 3, 2))
    write_json("reports/metrics/predict3/generation.json", {"drawn": 3})
    write_json("reports/metrics/gone/incontext.json", {})
    write_json("reports/metrics/public_lm/utility.json", {})  # of a named model that the demo has no more
    write_json("reports/metrics/models/utility.json", {})  # of a language model that is named so, not of a row
    return tmp_path


def asked(**run: Any) -> dict[str, list[str]]:
    params = load(ROOT)
    changed = params.model_copy(update={"run": params.run.model_copy(update=run)})
    return by_variant(read_results(changed))


def by_variant(found: Results) -> dict[str, list[str]]:
    """Whose -> the kinds of its files."""
    kinds: dict[str, list[str]] = {}
    for kind, documents in found.documents.items():
        for name in documents:
            kinds.setdefault(name, []).append(kind)
    return kinds


def test_metrics_of_settings_that_were_taken_back_are_left_out(metrics: Path) -> None:
    assert asked(in_context=(), in_context_baseline=()) == {"predict3": ["generation"]}


def test_metrics_of_this_run_are_read(metrics: Path) -> None:
    found = asked(in_context=("predict3", "public_only"), in_context_baseline=("real",))
    assert found == {"predict3": ["generation", "incontext"], "real": ["incontext"], "public_only": ["incontext"]}


def test_structure_is_read_where_records_are_json(metrics: Path) -> None:
    params = load(ROOT)
    data = params.dataset.model_copy(update={"json_schema": {"type": "object", "properties": {}}})
    found = by_variant(read_results(params.model_copy(update={"dataset": data})))
    assert all("structure" in found[name] for name in ("dp3", "predict3"))


def test_rounds_are_read_of_both_methods_that_have_some(metrics: Path) -> None:
    for name in ("dp3", "predict3", "real"):
        write_json(f"reports/metrics/{name}/evolution.json", evolution(name, [0.3]))
    taken = asked(evolution_audit=("dp3",), eda_audit=("predict3",), in_context=(), in_context_baseline=())
    assert {name: kinds for name, kinds in taken.items() if "evolution" in kinds} == {
        "dp3": ["evolution"],
        "predict3": ["generation", "evolution"],
    }
    assert "evolution" not in asked(evolution_audit=("dp3",), eda_audit=())["predict3"]


def test_decoders_of_this_run_are_read_where_they_were_measured(metrics: Path) -> None:
    for name in ("prefix", "gone"):
        write_json(f"reports/metrics/decoders/{name}.json", decoder())
    params = load(ROOT)
    changed = params.model_copy(update={"run": params.run.model_copy(update={"decoder_pretrain": ("later", "prefix")})})
    assert read_results(changed).documents["decoders"] == {"prefix": decoder()}


def test_what_may_be_shared_says_nothing_of_an_attack_on_private_rows(tmp_path: Path) -> None:
    own, told = copied(released(), tmp_path), {}
    path = own.folder / "reports/metrics" / VARIANT
    (path / "text_membership.json").unlink()
    write_json(path / "utility.json", utility(VARIANT, 0.8, 1))
    for verdict, right in (("not refuted", 108), ("refuted", 200)):
        write_json(path / "membership.json", membership(VARIANT, 0.05, 3.0, 1, right))
        with inside(own), pytest.MonkeyPatch.context() as patch:
            patch.setattr(stages.report, "provenance", dict)
            stages.report.run()
        told[verdict] = {path.name: path.read_text() for path in (own.folder / "reports").glob("*.*")}
    for shared in ("card.html", "statement.json"):
        assert told["refuted"][shared] == told["not refuted"][shared]
    assert read_json(own.folder / "reports/statement.json")["status"] == "DIFFERENTIALLY PRIVATE"
    loud = f"An attack refuted the privacy claim of {VARIANT}"
    assert [loud in told[verdict]["internal.html"] for verdict in told] == [False, True]
    assert f"Nothing can be promised about the rows of {VARIANT}" in told["refuted"]["internal.html"]


def test_the_card_has_rows_of_what_may_be_shown_alone(tmp_path: Path) -> None:
    own = copied(released(), tmp_path)
    told = {}
    for fixed in (False, True):
        own.change(f"reports/receipts/{VARIANT}.json", noise_fixed=fixed)
        with inside(own):
            found = read_samples(own.params, read_receipts([VARIANT]))
        told[fixed] = {name: [row.text for row in rows] for name, rows in found.items()}
    assert list(told[False]) == [VARIANT]
    assert all("The grill hums at night" in text for text in told[False][VARIANT])
    assert told[True] == {}
