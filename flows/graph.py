"""The graph of dvc.yaml: which stages run, after which others, and what their `meta:` says."""

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx
from dvc.dvcfile import PROJECT_FILE
from dvc.repo import Repo
from dvc.repo.reproduce import collect_stages, get_active_graph, plan_repro

from palimpsest.errors import ParamsError
from palimpsest.workspace import Zone
from stages.common import processes

if TYPE_CHECKING:
    from dvc.stage import Stage as DvcStage

GPU, LEDGER = "gpu", "ledger"
DVC = threading.RLock()  # dvc.repo.Repo is not thread-safe, not even two of them in one process


@dataclass(frozen=True, slots=True)
class FlowNode:
    """One node of the graph.

    Attributes:
        name: as `dvc repro` prints it: `dp_train@dp3`, or the path of a .dvc file.
        target: the same node as an absolute DVC target, good from any working directory.
        needs: names of the stages whose outputs it reads.
        gpus: devices it must have to itself, where the machine has any; one for each of its processes.
        retries: how often Prefect may run it again after a failure.
        zone: private unless dvc.yaml says otherwise.
        desc: what it does, in a sentence.
        receipt: path, from the workspace, of the JSON file that says what it charged; None if it charges nothing.
    """

    name: str
    target: str
    needs: tuple[str, ...] = ()
    gpus: int = 0
    retries: int = 0
    zone: Zone = Zone.PRIVATE
    desc: str = ""
    receipt: str | None = None

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags by which a server may limit stages that run at once: one if it holds a GPU, one if it charges."""
        return tuple(tag for tag, holds in ((GPU, self.gpus), (LEDGER, self.receipt)) if holds)


def read_graph(workspace: Path, targets: Sequence[str] = ()) -> tuple[FlowNode, ...]:
    """The stages `dvc repro TARGETS` would visit, each after all that it needs.

    Args:
        workspace: the folder with dvc.yaml.
        targets: stage names, matrix groups or paths from the workspace; none means all of dvc.yaml.

    Raises:
        ParamsError: a stage's `meta:` cannot be used.
        dvc.exceptions.DvcException: dvc.yaml cannot be read, or a target is not in it.
    """
    workspace = workspace.resolve()
    with DVC, Repo(str(workspace), _wait_for_lock=True) as repo:
        asked = collect_stages(repo, [_absolute(workspace, target) for target in targets or [PROJECT_FILE]])
        graph = get_active_graph(repo.index.graph)  # edges point from a stage to what it needs
        return tuple(_stage(workspace, node, graph.successors(node)) for node in plan_repro(graph, asked))


def edges(stages: Sequence[FlowNode]) -> dict[str, list[str]]:
    """Return stage -> the stages it waits for: its needs, less those that another of its needs already waits for.

    The order of execution stays the same, but a drawing has layers instead of a line from each stage to the first.

    >>> found = edges([FlowNode("a", ""), FlowNode("b", "", ("a",)), FlowNode("c", "", ("a", "b"))])
    >>> [found[name] for name in "abc"]
    [[], ['a'], ['b']]
    """
    graph = networkx.DiGraph({stage.name: stage.needs for stage in stages})
    return {name: sorted(reduced) for name, reduced in networkx.transitive_reduction(graph).adjacency()}


def _absolute(workspace: Path, target: str) -> str:
    path = workspace / target
    is_path = path.exists() or ":" in target or target.endswith((".dvc", ".yaml"))
    return str(path) if is_path else f"{workspace / PROJECT_FILE}:{target}"


def _stage(workspace: Path, node: "DvcStage", needs: Any) -> FlowNode:
    name = _name(workspace, node)
    meta = node.meta or {}
    return FlowNode(
        name=name,
        target=_target(node),
        needs=tuple(sorted(_name(workspace, need) for need in needs)),
        desc=node.desc or "",
        **_settings(name, meta),
    )


def _name(workspace: Path, node: "DvcStage") -> str:
    path = os.path.relpath(node.path, workspace)
    stage = getattr(node, "name", None)
    if stage is None:
        return path
    return stage if path == PROJECT_FILE else f"{path}:{stage}"


def _target(node: "DvcStage") -> str:
    stage = getattr(node, "name", None)
    return node.path if stage is None else f"{node.path}:{stage}"


def _settings(name: str, meta: Mapping[str, Any]) -> dict[str, Any]:
    settings = {
        "gpus": _count(name, meta, "gpus") * (processes() if meta.get("team") else 1),
        "retries": _count(name, meta, "retries"),
        "zone": _zone(name, meta),
        "receipt": meta.get("receipt"),
    }
    may_spend_again = settings["zone"] == Zone.PRIVATE or settings["receipt"] is not None
    if settings["retries"] and may_spend_again:
        raise ParamsError(
            f"Stage {name!r} asks for retries in dvc.yaml, but may read private rows: a retry is a second charge.",
            "Remove meta.retries, or say meta.zone: public (or dp) if the stage reads nothing private.",
        )
    return settings


def _zone(name: str, meta: Mapping[str, Any]) -> Zone:
    told = meta.get("zone", Zone.PRIVATE)
    if told not in tuple(Zone):
        raise ParamsError(f"Stage {name!r} has meta.zone {told!r} in dvc.yaml.", f"Use one of {', '.join(Zone)}.")
    return Zone(told)


def _count(name: str, meta: Mapping[str, Any], key: str) -> int:
    value = meta.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ParamsError(f"Stage {name!r} has meta.{key} {value!r} in dvc.yaml.", "Write a whole number from 0.")
    return value
