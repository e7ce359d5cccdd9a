"""An opened workspace: its settings, its ledger, the state of its graph, and results kept from earlier commands."""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palimpsest import __version__
from palimpsest.errors import DataError, LedgerError, ModelError, ParamsError
from palimpsest.files import close_workspace, make_folder, read_json, write_text
from palimpsest.graph import closure
from palimpsest.graph import render as graph
from palimpsest.graph.state import Standing, list_stages, read_yaml, survey
from palimpsest.models.sources import embedded_folder
from palimpsest.params.file import RESOLVED
from palimpsest.params.load import ledger_url, load, read, render_params
from palimpsest.params.schema import Params
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, require_unit
from palimpsest.privacy.ledger.witness import receipt_heads
from palimpsest.work.repro import discard_broken_lock, silence_dvc
from palimpsest.workspace import GRAPH, READING, RECEIPTS, SEEN
from stages import inputs
from stages.vouching import named_sources, place_of

if TYPE_CHECKING:
    from dvc.repo import Repo  # heavy: imported where DVC is asked

_OFFLINE = {"DVC_NO_ANALYTICS": "1", "PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"}
_LIBRARIES = ("dp_accounting", "numpy", "scipy")


@dataclass(frozen=True)
class Context:
    """An opened workspace."""

    workspace: Path
    params: Params
    ledger: Ledger
    asset: Asset


def asset_of(params: Params) -> Asset:
    """The asset that params.yaml describes."""
    data = params.dataset
    return Asset(
        name=data.asset,
        delta=params.delta,
        epsilon=params.privacy.budget.epsilon,
        n_public=params.schema_of_data.n_units,
        unit=params.schema_of_data.unit,
        unit_column=data.unit.column,
        filter=params.privacy.budget.filter,
        milestones=tuple(params.privacy.budget.milestones),
    )


def open_workspace(workspace: Path) -> Context:
    """Open a workspace, close it to others, and check its ledger: whole, as new as what was noted of it, the only one
    that was charged for its asset here, and with the same terms for that asset.

    Raises:
        ParamsError, LedgerError, DataError: with what to do.
    """
    params = load(workspace)
    close_workspace(workspace)
    ledger = Ledger.open(ledger_url(params, workspace))
    books = ledger.books(receipt_heads(workspace / RECEIPTS, params.dataset.asset))
    known, wanted = books.asset(params.dataset.asset), asset_of(params)
    if params.world is None:
        books.require_alone(known.name)
    require_unit(known, wanted)
    if (known.delta, known.n_public) != (wanted.delta, wanted.n_public):
        raise LedgerError(
            f"params.yaml gives asset {known.name!r} delta {wanted.delta!r} and {wanted.n_public} {wanted.unit}s; it "
            f"is registered with {known.delta!r} and {known.n_public}.",
            "These never change once something was charged: restore them in params.yaml. Before that, `palimpsest "
            "register` corrects them.",
        )
    if known.epsilon != wanted.epsilon:
        raise LedgerError(
            f"params.yaml caps asset {known.name!r} at epsilon {wanted.epsilon:g}; the ledger at {known.epsilon:g}.",
            "Restore privacy.budget.epsilon, or, if the data's owner agrees, run `palimpsest register --amend`.",
        )
    return Context(workspace, params, ledger, known)


def environment() -> dict[str, str]:
    """The environment of child processes: this interpreter first on the path, analytics off."""
    here = str(Path(sys.executable).parent)
    return {**os.environ, **_OFFLINE, "PATH": f"{here}{os.pathsep}{os.environ.get('PATH', '')}"}


def load_or_compute(workspace: Path, name: str, about: object, compute: Callable[[], Any]) -> Any:
    """Return what `compute` returns, made of JSON values; the last result if `about` and the code are unchanged.

    Args:
        workspace: the folder that keeps it.
        name: one file is kept for each.
        about: all that the result depends on but the code, as JSON values.
    """
    key = hashlib.sha256(json.dumps([_code_stamp(), about], sort_keys=True, default=str).encode()).hexdigest()
    path = workspace / SEEN / f"{name}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        body = read_json(path)
        if body["key"] == key:
            return body["value"]
    value = compute()
    with suppress(OSError):  # a workspace that cannot be written can be looked at
        write_text(path, json.dumps({"key": key, "value": value}))  # a cost may be infinite, which `write_json` loses
    return value


@cache
def _code_stamp() -> str:
    """Return a stamp that changes with every file of the code that counts, and with the accounting libraries."""
    libraries = [Path(str(spec.origin)) for spec in map(find_spec, _LIBRARIES) if spec is not None]
    return stamp(*closure.packages().values(), *libraries)


def stamp(*paths: Path) -> str:
    """Return a stamp of files, and of those in folders, by their sizes and times: it changes when one is written."""
    seen = sorted((str(path), each.st_size, each.st_mtime_ns) for path, each in _walk_files(paths))
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()


def _walk_files(paths: tuple[Path, ...]) -> Iterator[tuple[str, os.stat_result]]:
    for path in paths:
        if path.is_file():
            yield str(path), path.stat()
        for folder, folders, names in os.walk(path):
            folders[:] = [name for name in folders if name != "__pycache__"]
            yield from ((os.path.join(folder, name), os.stat(os.path.join(folder, name))) for name in names)


def render(workspace: Path) -> list[str]:
    """Write the file with every value, and the graph, where they differ; return the names of those that did.

    Raises:
        ParamsError: params.yaml is wrong, or of another version: its graph is not this one's.
        DataError: the workspace cannot be written.
    """
    params = read(workspace)
    if params.version != __version__:
        raise ParamsError(
            f"version is {params.version!r} in params.yaml; installed is palimpsest {__version__}.",
            "Install that version, or set `version` to the installed one: what was paid for is made again, free; "
            "`palimpsest plan` names what is not.",
        )
    changed = {name: text for name, text in contents(params, workspace).items() if _content(workspace / name) != text}
    try:
        for name, text in changed.items():
            write_text(workspace / name, text)
    except OSError as error:
        raise DataError(
            f"The workspace cannot be written ({type(error).__name__}).", "Give yourself write permission."
        ) from None
    return list(changed)


def contents(params: Params, workspace: Path | None = None) -> dict[str, str]:
    """File name -> content of what follows from params.yaml; a workspace may have kept the graph from earlier."""

    def lay_out() -> str:
        return graph.render_graph(params)

    text = lay_out() if workspace is None else load_or_compute(workspace, "graph", graph.parts_of(params), lay_out)
    return {RESOLVED: render_params(params), GRAPH.name: text}


def _content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


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

    DVC is asked, because a stage of another dvc.yaml may stand between two of ours. If a target is not a stage's whole
    name (a group, an output's path), it may be any stage, so all are returned.
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
    """Return the names of all stages of the graph that palimpsest writes, each after those it needs."""
    if not (workspace / GRAPH).is_file():
        raise _no_workspace(workspace)
    return list_stages(workspace, partial(_read_kept, workspace))


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
