"""The state of the DVC graph, asked in-process; `palimpsest status` prints it."""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("DVC_NO_ANALYTICS", "1")  # DVC reads it when it is imported

import networkx
from dvc.repo import Repo, lock_repo

from palimpsest.cli.console import console, table
from palimpsest.cli.context import opened
from palimpsest.cli.repro import quiet
from palimpsest.errors import ParamsError
from palimpsest.files import make_folder
from palimpsest.workspace import READING
from stages import inputs


def show_status(workspace: Path) -> None:
    """Print each stage with its state, then the budget."""
    context, changed = opened(workspace), stale(workspace)
    stages = table()
    stages.add_column("stage", overflow="fold")
    stages.add_column("state", no_wrap=True)
    for name in stage_names(workspace):
        stages.add_row(name, "[yellow]would run[/yellow]" if name in changed else "[green]up to date[/green]")
    out = console()
    out.print(stages)
    balance = context.ledger.balance(context.asset.name)
    out.print(
        f"Budget of [bold]{context.asset.name}[/bold]: epsilon {balance.spent:.3f} spent, {balance.left:.3f} left of "
        f"{balance.cap:g} at delta {context.asset.delta:.3g}."
    )


def stale(workspace: Path) -> set[str]:
    """Names of the stages that `dvc repro` would run because something of theirs, or upstream of them, changed.

    The stage `inputs` always runs. Here it counts where it would change its files, and a stage that reads one of these
    where that one would then differ from what the stage last ran on.

    Raises:
        ParamsError: if the folder is no DVC workspace.
    """
    with _repo(workspace) as repo:
        written = any(stage.name == inputs.STAGE for stage in repo.index.stages if not stage.is_data_source)
        contents = inputs.contents(workspace) if written else {}
        stages = _changed(repo, contents)
    return stages | ({inputs.STAGE} if inputs.outdated(workspace, contents) else set())


def changed(workspace: Path, facts: Mapping[str, bytes]) -> set[str]:
    """The same for a graph that is not of this version, whose stage `inputs` is left out.

    Args:
        workspace: the folder with the graph.
        facts: path -> what the file would say now; whatever else a stage reads is taken as it lies there.

    Raises:
        ParamsError: if the folder is no DVC workspace.
    """
    with _repo(workspace) as repo:
        return _changed(repo, facts)


def _changed(repo: Repo, contents: Mapping[str, bytes]) -> set[str]:
    graph, told = repo.index.graph, repo.status()
    order = [stage for stage in _upstream_first(graph) if not stage.is_data_source]
    facts = {path: hashlib.md5(content).hexdigest() for path, content in contents.items()}  # as DVC does
    found: set[str] = set()
    for stage in order:
        needs = {need.addressing for need in graph.successors(stage)}
        differs = _differs(stage, told.get(stage.addressing, []), facts)
        if stage.name != inputs.STAGE and (needs & found or differs):
            found.add(stage.addressing)
    return {stage.name for stage in order if stage.addressing in found}  # an address depends on where one stands


def _differs(stage, told: Sequence[Any], facts: Mapping[str, str]) -> bool:  # type: ignore[no-untyped-def]
    """Whether DVC tells of a change, or one of the facts is not what the stage last ran on."""
    read = {str(dep): (dep.hash_info.value, facts[dep.def_path]) for dep in stage.deps if dep.def_path in facts}
    other = [entry for entry in told if not (isinstance(entry, dict) and _paths(entry) <= read.keys())]
    return bool(other) or any(before != now for before, now in read.values())


def _paths(entry: Mapping[str, Mapping[str, str]]) -> set[str]:
    return {path for changes in entry.values() for path in changes}


def upstream(workspace: Path, targets: Sequence[str]) -> set[str]:
    """Names of the stages that `dvc repro` of these targets may run: they, and all that they need.

    A target that is not a stage's whole name (a group, an output's path) may be any: then all stages are meant.
    """
    with _repo(workspace) as repo:
        graph = repo.index.graph
        named = {stage.name: stage for stage in graph if not stage.is_data_source}
        if not set(targets) <= named.keys():
            return set(named)
        found = {named[target] for target in targets}
        found |= {need for stage in list(found) for need in networkx.descendants(graph, stage)}
    return {stage.name for stage in found if not stage.is_data_source}


def stage_names(workspace: Path) -> list[str]:
    """All stages, each after those it needs."""
    with _repo(workspace) as repo:
        return [stage.name for stage in _upstream_first(repo.index.graph) if not stage.is_data_source]


def _upstream_first(graph):  # type: ignore[no-untyped-def]
    return list(networkx.topological_sort(graph.reverse(copy=True)))


@contextmanager
def _repo(workspace: Path) -> Iterator[Repo]:
    """DVC's repository, for one who only reads.

    Its lock is held, so that no file is read half written; what runs lets it go while a command runs. Locks on files
    are taken elsewhere: a stage that is just running holds nobody up.
    """
    from dvc.exceptions import DvcException

    quiet()
    try:
        repo = Repo(str(workspace), _wait_for_lock=True)
        Path(repo.site_cache_dir).chmod(0o700)  # outside the workspace, and names private files by their hashes
    except DvcException as error:
        raise ParamsError(
            f"{str(workspace)!r} is not a DVC workspace ({type(error).__name__}).",
            "Run this in a workspace, or make one with `palimpsest init`.",
        ) from None
    repo.tmp_dir = str(workspace / READING)
    make_folder(workspace / READING)
    with repo, lock_repo(repo):
        yield repo
