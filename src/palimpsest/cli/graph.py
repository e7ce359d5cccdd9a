"""The state of the DVC graph, asked in-process."""

import os
from pathlib import Path

os.environ.setdefault("DVC_NO_ANALYTICS", "1")  # DVC reads it when it is imported

from dvc.repo import Repo

from palimpsest.errors import ParamsError

SPENDERS = ("dp_train", "discriminator")  # stages that ask private rows something


def stale(workspace: Path) -> set[str]:
    """Names of the stages that `dvc repro` would run because something of theirs, or upstream of them, changed.

    Raises:
        ParamsError: if the folder is no DVC workspace.
    """
    with _repo(workspace) as repo:
        graph = repo.index.graph
        changed = set(repo.status())
        order = [stage for stage in _upstream_first(graph) if not stage.is_data_source]
        for stage in order:
            needs = {need.addressing for need in graph.successors(stage)}
            if needs & changed:
                changed.add(stage.addressing)
    return {stage.name for stage in order if stage.addressing in changed}  # an address depends on where one stands


def stage_names(workspace: Path) -> list[str]:
    """All stages, each after those it needs."""
    with _repo(workspace) as repo:
        return [stage.name for stage in _upstream_first(repo.index.graph) if not stage.is_data_source]


def _upstream_first(graph):  # type: ignore[no-untyped-def]
    import networkx

    return list(networkx.topological_sort(graph.reverse(copy=True)))


def _repo(workspace: Path) -> Repo:
    from dvc.exceptions import DvcException

    try:
        return Repo(str(workspace), _wait_for_lock=True)
    except DvcException as error:
        raise ParamsError(
            f"{str(workspace)!r} is not a DVC workspace ({type(error).__name__}).",
            "Run this in a workspace, or make one with `palimpsest init`.",
        ) from None
