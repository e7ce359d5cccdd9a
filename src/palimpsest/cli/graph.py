"""The state of the graph: read at once for `plan` and `status`, and as DVC sees it for runs."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palimpsest.cli.console import Rows, console, show, show_json
from palimpsest.cli.context import Context, load_or_compute, open_workspace, stamp
from palimpsest.cli.ledger import describe_total
from palimpsest.cli.repro import discard_broken_lock, silence_dvc
from palimpsest.errors import ModelError, ParamsError
from palimpsest.files import make_folder
from palimpsest.graph.state import Standing, read_yaml, survey
from palimpsest.models.sources import embedded_folder
from palimpsest.params.schema import Params
from palimpsest.privacy.shown import delta_up, down, up
from palimpsest.workspace import GRAPH, READING
from stages import inputs
from stages.vouching import named_sources, place_of

if TYPE_CHECKING:
    from dvc.repo import Repo  # heavy: imported where DVC is asked


@dataclass(frozen=True)
class StatusSummary:
    """The output of `palimpsest status --json`.

    Attributes:
        delta: the delta at which epsilon holds; cap, spent and left are epsilons.
        stages: each after those it needs; state is cached, restorable or will run.
        said: whose charges are in `spent`, and what is wrong with an entry of the ledger.
    """

    asset: str
    delta: float
    cap: float
    spent: float
    left: float
    stages: tuple[Standing, ...]
    said: tuple[str, ...] = ()


def show_status(workspace: Path, *, as_json: bool = False) -> None:
    """Print each stage with its state, then the budget."""
    context = open_workspace(workspace)
    summary = status(context)
    if as_json:
        show_json(summary)
        return
    out = console()
    rows = [[one.name, _STATES[one.state]] for one in summary.stages]
    show(out, Rows("", ("stage", "state"), rows, ("stage", "state"), (("will run", "yellow"), ("up to date", "green"))))
    out.print(
        f"Budget of {summary.asset}: epsilon {up(summary.spent)} spent, {down(summary.left)} left of {summary.cap:g} "
        f"at delta {delta_up(summary.delta)}.",
        soft_wrap=not out.is_terminal,
    )
    for said in summary.said:
        out.print(said, markup=False, soft_wrap=not out.is_terminal)


_STATES = {"cached": "up to date", "restorable": "restorable, free", "will run": "will run"}


def status(context: Context) -> StatusSummary:
    """Every stage of an opened workspace, and what is left of the budget."""
    asset, books = context.asset, context.ledger.books()

    def worked_out() -> dict[str, Any]:
        return {"spent": books.balance(asset.name).spent, "said": list(describe_total(books, asset.name))}

    found = load_or_compute(context.workspace, "spent", [asset.name, books.head], worked_out)
    left, said = max(0.0, asset.epsilon - found["spent"]), tuple(found["said"])
    return StatusSummary(asset.name, asset.delta, asset.epsilon, found["spent"], left, tuple(standings(context)), said)


def standings(context: Context, *, fresh: bool = False) -> list[Standing]:
    """Return the state of every stage, each after those it needs, by the files as they lie; see `survey`.

    `fresh` looks at code and models anew, and uses nothing that an earlier command kept.

    Raises:
        ParamsError: the folder has no graph.
    """
    if not (context.workspace / GRAPH).is_file():
        raise _no_workspace(context.workspace)
    facts, read = (inputs.facts, None) if fresh else (_facts, partial(_read_kept, context.workspace))
    return survey(context.workspace, partial(facts, context.params, context.workspace), read)


def _read_kept(workspace: Path, path: Path) -> Any:
    """Read a YAML file; what was read of the same text before is kept, where JSON holds all of it."""
    if not path.is_file():
        return {}

    def read() -> list[Any]:
        value = read_yaml(path)
        return [value] if json.loads(json.dumps(value, default=str)) == value else []

    found = load_or_compute(workspace, path.name, path.read_text(encoding="utf-8"), read)
    return found[0] if found else read_yaml(path)


def _facts(params: Params, workspace: Path) -> dict[str, bytes]:
    """Return what the files of stage `inputs` say now; looked at anew if code or a model was written meanwhile."""
    about = [[source.key, source.name, _stamp_model(source, workspace)] for source in named_sources(params).values()]
    codes = load_or_compute(workspace, "code", None, inputs.codes)
    sources = load_or_compute(workspace, "models", about, lambda: dict(inputs.sources_of(params, workspace)))
    return inputs.format_files(codes, sources)


def _stamp_model(source: Any, workspace: Path) -> str | None:
    """Return a stamp of a model's files, by sizes and times."""
    with suppress(ModelError):
        if source.embedded:
            return stamp(embedded_folder())  # `place_of` would read it whole
        place = place_of(source, workspace) if source.kind == "model" else None
        return None if place is None else stamp(place)
    return None


def find_stale(workspace: Path) -> set[str]:
    """Return the stages that `dvc repro` would run because something of theirs, or upstream of them, changed.

    The stage `inputs` always runs. Here it counts only if it would change its files, and a stage that reads one of
    these if the file would then differ from what the stage last ran on. What DVC's cache has lost is put back first.

    Raises:
        ParamsError: if the folder is no DVC workspace.
    """
    with _repo(workspace) as repo:
        _refill(repo)
        written = any(stage.name == inputs.STAGE for stage in repo.index.stages if not stage.is_data_source)
        contents = inputs.contents(workspace) if written else {}
        stages = _find_changed(repo, contents)
    return stages | ({inputs.STAGE} if inputs.is_outdated(workspace, contents) else set())


def find_changed(workspace: Path, facts: Mapping[str, bytes]) -> set[str]:
    """Return the stages that `dvc repro` would run, as `find_stale`, for another graph, without stage `inputs`.

    Args:
        workspace: the folder with the graph.
        facts: path -> what the file would say now; all else that a stage reads is taken as it lies there.

    Raises:
        ParamsError: if the folder is no DVC workspace.
    """
    with _repo(workspace) as repo:
        return _find_changed(repo, facts)


def _refill(repo: "Repo") -> None:
    """Put outputs of stages that lie here unchanged back into DVC's cache, where that lost them or has them torn.

    Otherwise DVC would run the stage again, and one that spends would be charged for rows that are there.
    """
    for stage in repo.index.stages:
        for out in stage.outs:
            if out.use_cache and out.hash_info and out.changed_cache() and not out.workspace_status():
                out.commit()


def _find_changed(repo: "Repo", contents: Mapping[str, bytes]) -> set[str]:
    graph, told = repo.index.graph, repo.status()
    order = [stage for stage in _sort_upstream_first(graph) if not stage.is_data_source]
    facts = {path: hashlib.md5(content).hexdigest() for path, content in contents.items()}  # as DVC does
    found: set[str] = set()
    for stage in order:
        needs = {need.addressing for need in graph.successors(stage)}
        differs = _differs(stage, told.get(stage.addressing, []), facts)
        if stage.name != inputs.STAGE and (needs & found or differs):
            found.add(stage.addressing)
    return {stage.name for stage in order if stage.addressing in found}  # an address depends on the working directory


def _differs(stage, told: Sequence[Any], facts: Mapping[str, str]) -> bool:  # type: ignore[no-untyped-def]
    """Whether DVC reports a change, or one of the facts is not what the stage last ran on."""
    read = {str(dep): (dep.hash_info.value, facts[dep.def_path]) for dep in stage.deps if dep.def_path in facts}
    other = [entry for entry in told if not (isinstance(entry, dict) and _paths(entry) <= read.keys())]
    return bool(other) or any(before != now for before, now in read.values())


def _paths(entry: Mapping[str, Mapping[str, str]]) -> set[str]:
    return {path for changes in entry.values() for path in changes}


def find_upstream(workspace: Path, targets: Sequence[str]) -> set[str]:
    """Return the names of the stages that `dvc repro` of these targets may run: themselves, and all that they need.

    If a target is not a stage's whole name (a group, an output's path), it may be any stage, so all are returned.
    """
    import networkx

    with _repo(workspace) as repo:
        graph = repo.index.graph
        named = {stage.name: stage for stage in graph if not stage.is_data_source}
        if not set(targets) <= named.keys():
            return set(named)
        found = {named[target] for target in targets}
        found |= {need for stage in list(found) for need in networkx.descendants(graph, stage)}
    return {stage.name for stage in found if not stage.is_data_source}


def stage_names(workspace: Path) -> list[str]:
    """Return the names of all stages, each after those it needs."""
    with _repo(workspace) as repo:
        return [stage.name for stage in _sort_upstream_first(repo.index.graph) if not stage.is_data_source]


def _sort_upstream_first(graph):  # type: ignore[no-untyped-def]
    import networkx

    return list(networkx.topological_sort(graph.reverse(copy=True)))


@contextmanager
def _repo(workspace: Path) -> "Iterator[Repo]":
    """Yield DVC's repository, for reading only.

    Its lock is held, so that no file is read half written; a run releases the lock while a command runs. Locks on files
    are taken elsewhere: a stage that is just running blocks nobody.
    """
    os.environ.setdefault("DVC_NO_ANALYTICS", "1")  # DVC reads it when it is imported
    from dvc.exceptions import DvcException
    from dvc.repo import Repo, lock_repo

    silence_dvc()
    try:
        repo = Repo(str(workspace), _wait_for_lock=True)
        Path(repo.site_cache_dir).chmod(0o700)  # outside the workspace, and names private files by their hashes
    except DvcException as error:
        raise _no_workspace(workspace, f" ({type(error).__name__})") from None
    repo.tmp_dir = str(workspace / READING)
    make_folder(workspace / READING)
    with repo, lock_repo(repo):
        discard_broken_lock(repo)
        yield repo


def _no_workspace(workspace: Path, why: str = "") -> ParamsError:
    return ParamsError(
        f"{str(workspace)!r} is not a DVC workspace{why}.",
        "Run this in a workspace, or make one with `palimpsest init`.",
    )
