"""`palimpsest migrate`: a workspace whose params.yaml lists every value becomes one of today, without a charge."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import reduce
from operator import getitem
from pathlib import Path, PurePosixPath
from typing import Any

from dvc.utils.serialize import dumps_yaml, load_yaml, parse_yaml

from palimpsest import __version__
from palimpsest.cli.graph import changed, stage_names, upstream
from palimpsest.errors import DataError, LedgerError, ParamsError
from palimpsest.files import close_workspace, write_text
from palimpsest.graph import render
from palimpsest.graph.expand import MADE, Repetition, expand, filled, params_keys
from palimpsest.graph.stages import SPENDERS
from palimpsest.params.file import FILE, RESOLVED
from palimpsest.params.load import ledger_url, listed, loads, texts
from palimpsest.params.schema import Params
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Charge
from palimpsest.privacy.ledger.witness import receipt_heads
from palimpsest.workspace import CODE, GRAPH, KEPT, LOCK, RECEIPTS, SOURCES
from stages import inputs

DRAWS = "pplm_generate"  # draws rows from a fitted model, under that model's receipt
_OPEN = ("reserved", "begun", "answered")

Noted = Mapping[str, Any]  # what the lock file says of a stage, or of a file


def migrate_workspace(workspace: Path) -> None:
    """Write today's params.yaml, every value, the graph and the lock file; the files as they were are kept.

    What spent, what that needs and what is drawn from it is carried over: its outputs and receipts stay as they are,
    and DVC takes them for what today's code makes. Audits and pages are not: they run again, which costs nothing.

    Guarantee: nothing is charged and no row is read. A stage that would be charged under the old graph is refused, not
    carried over, so that no output stands for settings or files that it was not made from.

    Raises:
        ParamsError: the workspace is of today, or names what today's params.yaml cannot say.
        DataError: something that would be carried over is stale, or the workspace cannot be written.
        LedgerError: a charge of the workspace is unfinished, or the ledger does not hold.
    """
    params = _params(workspace)
    _put_back(workspace)
    facts = inputs.facts(params, workspace)
    names = carried(workspace)
    require_fresh(names, changed(workspace, _below(facts, SOURCES)))
    _require_settled(params, workspace, names)
    files = {**texts(params), GRAPH.name: render.rendered(params)}
    repetitions = expand(parse_yaml(files[GRAPH.name], GRAPH)["stages"], parse_yaml(files[RESOLVED], RESOLVED))
    lock = relocked(load_yaml(workspace / LOCK), [one for one in repetitions if one.name in names], _below(facts, CODE))
    _write(workspace, {**files, LOCK.name: dumps_yaml(lock)})
    close_workspace(workspace)
    print(f"carried over: {len(names)} stages with their outputs and receipts; nothing was charged")
    print(f"kept: {', '.join(str(_kept(name)) for name in (FILE, GRAPH.name, LOCK.name))}")
    print("next: palimpsest plan, palimpsest verify; the audits and the pages run again with `palimpsest run`, free")


def _below(files: Mapping[str, bytes], folder: Path) -> dict[str, bytes]:
    return {path: text for path, text in files.items() if Path(path).is_relative_to(folder)}


def carried(workspace: Path) -> set[str]:
    """Names of the stages that spend, of those that draw from what these fitted, and of all that they need."""
    roots = [name for name in stage_names(workspace) if name.partition("@")[0] in {*SPENDERS, DRAWS}]
    return upstream(workspace, roots) - {inputs.STAGE}


def require_fresh(names: Collection[str], stale: Collection[str]) -> None:
    """Refuse where something that would be carried over is not what the old graph makes.

    Raises:
        DataError: naming the stages.
    """
    if found := sorted(set(names) & set(stale)):
        raise DataError(
            f"Stages that spend, or that these need, are not up to date under the old graph: {', '.join(found)}.",
            "Run them with the version that made the workspace, or restore what was changed, then migrate again; "
            "nothing was written.",
        )


def unfinished(charges: Iterable[Charge], names: Collection[str]) -> list[Charge]:
    """Those of the charges, oldest first, that a run of one of these stages has yet to finish.

    What an attempt began and lost stays as it is for ever: once a later run of the stage was committed, nobody waits
    for it.
    """
    own = [charge for charge in charges if _stage(charge) in names]
    done = {_stage(charge): charge.seq for charge in own if charge.state == "committed"}  # the newest is the last
    return [charge for charge in own if charge.state in _OPEN and charge.seq > done.get(_stage(charge), 0)]


def _stage(charge: Charge) -> str:
    return f"{charge.stage}@{charge.variant}"


def relocked(lock: Noted, stages: Iterable[Repetition], code: Mapping[str, bytes]) -> dict[str, Any]:
    """The lock file by which these stages are up to date.

    Args:
        lock: the old one, by which they are up to date under the old graph.
        stages: what today's graph says of them.
        code: path -> what the file with a stage's code says today.

    Raises:
        DataError: a stage reads or writes a file that the old lock file does not know.
    """
    wanted = list(stages)
    known = _files([lock["stages"].get(one.name, {}) for one in wanted])
    known |= {path: _noted(path, text) for path, text in code.items()}
    return {"schema": "2.0", "stages": {one.name: _entry(one, known) for one in wanted}}


def _files(entries: Iterable[Noted]) -> dict[str, Noted]:
    """Path -> what is noted of the file. These stages agree on it: what one made is what another last read."""
    files = (file for entry in entries for key in ("deps", "outs") for file in entry.get(key, []))
    return {_plain(file["path"]): file for file in files}


def _entry(one: Repetition, known: Mapping[str, Noted]) -> dict[str, Any]:
    (command,), keys = filled([one.body["cmd"]], one.values), sorted(filled(params_keys(one.body), one.values))
    values = {key: reduce(getitem, key.split("."), one.values) for key in keys}
    return {
        "cmd": command,
        "deps": list(_of(one, one.paths("deps"), known)),
        **({"params": {RESOLVED: values}} if values else {}),
        "outs": list(_of(one, sorted(one.paths(*MADE)), known)),
    }


def _of(one: Repetition, paths: Iterable[str], known: Mapping[str, Noted]) -> Iterator[Noted]:
    for path in paths:
        if _plain(path) not in known:
            raise DataError(
                f"The old {LOCK} does not say what {path!r} was when {one.name} last ran.",
                "Run that stage with the version that made the workspace, then migrate again; nothing was written.",
            )
        yield dict(known[_plain(path)])


def _noted(path: str, text: bytes) -> Noted:
    return {"path": path, "hash": "md5", "md5": hashlib.md5(text).hexdigest(), "size": len(text)}  # as DVC does


def _plain(path: str) -> str:
    return PurePosixPath(path).as_posix()  # without `./`


def _params(workspace: Path) -> Params:
    """Every value of the old file, which today's must stand for."""
    old = listed(workspace)
    if old is None:
        raise ParamsError(
            f"{FILE} is one of today: there is nothing to migrate.", "Run `palimpsest plan`; nothing was written."
        )
    params = old.model_copy(update={"version": __version__})
    found = loads(texts(params)[FILE])
    if found != params:
        pairs = zip(params.run, found.run, strict=True)
        keys = [f"run.{key}" for (key, there), (_, here) in pairs if there != here]
        raise ParamsError(
            f"{FILE} has what follows from nothing else in it: {', '.join(keys) or 'values that no key stands for'}.",
            "Take out of `run` what no variant is drawn from, then migrate again; nothing was written.",
        )
    return params


def _require_settled(params: Params, workspace: Path, names: Collection[str]) -> None:
    """Refuse while a run is stopped half-way: today's code would not know it as its own, and would be charged anew."""
    asset = params.dataset.asset
    books = Ledger.open(ledger_url(params, workspace)).books(receipt_heads(workspace / RECEIPTS, asset))
    if found := unfinished(books.charges(asset), names):
        runs = sorted({f"{_stage(charge)} ({charge.state})" for charge in found})
        raise LedgerError(
            f"Charges are unfinished: {', '.join(runs)}.",
            "Finish these runs, or give back what is `reserved` (`palimpsest ledger --refund`), with the version that "
            "made the workspace, then migrate again; nothing was written.",
        )


def _kept(name: str) -> Path:
    return KEPT / f"{name}.before"  # closed to others, as the lock file is, and no place where DVC finds a graph


def _put_back(workspace: Path) -> None:
    """Undo a move that was stopped before it wrote params.yaml, its last file.

    A graph or a lock file that names `RESOLVED` is of today.

    Raises:
        DataError: one is of today, and nothing was kept of how it was.
    """
    for path in (workspace / name for name in (GRAPH, LOCK)):
        if not path.is_file() or RESOLVED not in path.read_text(encoding="utf-8"):
            continue
        kept = workspace / _kept(path.name)
        if not kept.is_file():
            raise DataError(
                f"{path.name} is one of today and {FILE} is not.",
                f"Restore the {path.name} that belongs to this {FILE}, then migrate again; nothing was written.",
            )
        write_text(path, kept.read_text(encoding="utf-8"))


def _write(workspace: Path, files: Mapping[str, str]) -> None:
    try:
        for name in (FILE, GRAPH.name, LOCK.name):
            write_text(workspace / _kept(name), (workspace / name).read_text(encoding="utf-8"))
        for name in sorted(files, key=lambda name: name == FILE):  # last, so that what is stopped is known as such
            write_text(workspace / name, files[name])
    except OSError as error:
        raise DataError(
            f"The workspace cannot be written ({type(error).__name__}).",
            "Give yourself write permission, then migrate again.",
        ) from None
