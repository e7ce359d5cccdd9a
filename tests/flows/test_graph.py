from collections.abc import Callable
from pathlib import Path

import pytest

from flows.graph import FlowNode, read_graph
from palimpsest.errors import ParamsError

Make = Callable[..., Path]

GRAPH = """
stages:
  report:
    cmd: cat train-a.txt train-b.txt > report.txt
    deps: [train-a.txt, train-b.txt]
    outs: [report.txt]
    meta: {zone: public, retries: 2}
  train:
    foreach: ${variants}
    do:
      cmd: cat raw.csv > train-${key}.txt
      deps: [raw.csv]
      outs: ["train-${key}.txt"]
      desc: train one variant
      meta: {gpus: 1, zone: dp, receipt: "reports/receipts/${key}.json"}
  nothing:
    foreach: ${nothing}
    do: {cmd: "echo ${key}"}
  none:
    matrix: {variant: []}
    cmd: echo ${item.variant}
  alone:
    matrix: {variant: [p, q]}
    cmd: echo ${item.variant}
"""


@pytest.fixture(scope="module")
def graph(make_workspace: Make, dvc: Callable[..., str]) -> Path:
    folder = make_workspace(GRAPH, params_yaml="variants: {a: {e: 1}, b: {e: 2}}\nnothing: {}\n", raw_csv="1\n")
    dvc(folder, "add", "-q", "raw.csv")
    return folder


def test_every_node_comes_once_and_after_what_it_needs(graph: Path) -> None:
    stages = read_graph(graph)
    names = [stage.name for stage in stages]
    assert sorted(names) == ["alone@p", "alone@q", "raw.csv.dvc", "report", "train@a", "train@b"]
    assert all(names.index(need) < names.index(stage.name) for stage in stages for need in stage.needs)


def test_stages_equal_dvc_stage_list(graph: Path, dvc: Callable[..., str]) -> None:
    listed = {line.split()[0] for line in dvc(graph, "stage", "list", "--all").splitlines()}
    assert {stage.name for stage in read_graph(graph)} == listed


def test_meta_is_read_and_interpolated(graph: Path) -> None:
    (stage,) = (stage for stage in read_graph(graph) if stage.name == "train@b")
    assert stage == FlowNode(
        name="train@b", target=f"{graph / 'dvc.yaml'}:train@b", needs=("raw.csv.dvc",), gpus=1, zone="dp",
        desc="train one variant", receipt="reports/receipts/b.json",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (["train"], {"raw.csv.dvc", "train@a", "train@b"}),
        (["train@a"], {"raw.csv.dvc", "train@a"}),
        (["raw.csv.dvc"], {"raw.csv.dvc"}),
        (["alone@p", "train@b"], {"alone@p", "raw.csv.dvc", "train@b"}),
    ],
)
def test_targets_bring_what_they_need(
    graph: Path, targets: list[str], expected: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the working directory plays no part
    assert {stage.name for stage in read_graph(graph, targets)} == expected


def test_a_frozen_stage_waits_for_nothing(make_workspace: Make) -> None:
    folder = make_workspace(
        "stages:\n"
        "  a: {cmd: echo a > a.txt, outs: [a.txt]}\n"
        "  b: {cmd: cat a.txt > b.txt, deps: [a.txt], outs: [b.txt], frozen: true}\n"
    )
    assert [stage.name for stage in read_graph(folder, ["b"])] == ["b"]


@pytest.mark.parametrize(
    "meta",
    [
        "{zone: secret}",
        "{zone: public, retries: -1}",
        "{zone: public, gpus: many}",
        "{zone: public, gpus: true}",
        "{zone: private, retries: 1}",
        "{retries: 1}",
        "{zone: dp, retries: 1, receipt: receipt.json}",
    ],
)
def test_meta_that_cannot_be_meant_is_refused(make_workspace: Make, meta: str) -> None:
    folder = make_workspace(f"stages:\n  a:\n    cmd: echo\n    meta: {meta}\n")
    with pytest.raises(ParamsError, match="'a'"):
        read_graph(folder)
