"""The context of a command: its workspace and ledger, rendered files, and results kept from earlier ones."""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from palimpsest import __version__
from palimpsest.errors import DataError, LedgerError, ParamsError
from palimpsest.files import close_workspace, read_json, write_text
from palimpsest.graph import closure
from palimpsest.graph import render as graph
from palimpsest.params.file import RESOLVED
from palimpsest.params.load import ledger_url, load, read, render_params
from palimpsest.params.schema import Params
from palimpsest.privacy.ledger.books import Books
from palimpsest.privacy.ledger.ledger import Ledger, describe_differences, require_terms
from palimpsest.privacy.ledger.records import Asset, require_unit
from palimpsest.privacy.ledger.witness import receipt_heads
from palimpsest.privacy.shown import delta_up, up
from palimpsest.workspace import GRAPH, RECEIPTS, SEEN

_OFFLINE = {"DVC_NO_ANALYTICS": "1", "PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"}
_LIBRARIES = ("dp_accounting", "numpy", "scipy")


@dataclass(frozen=True)
class Context:
    """An opened workspace."""

    workspace: Path
    params: Params
    ledger: Ledger
    asset: Asset


def books_of(params: Params, workspace: Path) -> Books | None:
    """Return the books of the ledger, if there is one; entering the data set reports what is wrong with it."""
    try:
        return Ledger.open(ledger_url(params, workspace)).books()
    except LedgerError:
        return None


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


def register_asset(workspace: Path, *, amend: bool = False, lost: bool = False, same_rows: str | None = None) -> None:
    """Make the ledger where there is none and enter the asset of params.yaml; entering it twice changes nothing.

    With `same_rows`, the reason, the owner's word that its rows may be those of another asset is written down.

    Raises:
        LedgerError: if the asset is known on other terms, or was charged on another ledger that is not said to be lost.
    """
    params = read(workspace)
    enter(params, workspace, amend=amend, lost=lost)
    if same_rows is not None:
        _allow_same_rows(params, workspace, same_rows)


def _allow_same_rows(params: Params, workspace: Path, reason: str) -> None:
    """Record the owner's word, and what identifies the rows, so that what both names spent adds up at once."""
    name, ledger = params.dataset.asset, Ledger.open(ledger_url(params, workspace))
    likeness = _likeness(params, workspace, ledger.books().rows_key)
    ledger.allow_same_rows(name, reason, likeness)
    books = ledger.books()
    since = (
        "both totals add up" if likeness else "both totals add up once a run has read its file, which was not read now"
    )
    print(f"{name}: may have the rows of another data set; {since}")
    if others := books.names(name):
        print(f"{name}: epsilon {up(books.balance(name).spent)} is spent, over {', '.join((name, *others))} together")


def _likeness(params: Params, workspace: Path, key: bytes) -> str | None:
    """Return what identifies the private file's rows, as a run finds it; None if the file is missing or unreadable."""
    data, path = params.dataset, workspace / params.dataset.private
    if params.world is not None or not path.is_file():
        return None
    from palimpsest.records.faults import POLICIES  # it reads files, and takes a while to import
    from palimpsest.records.keyed import likeness
    from palimpsest.records.read import ColumnNames, read_rows

    keys = params.schema_of_data.keys
    columns = ColumnNames(data.text, data.label, data.unit.column, keys, nobody=data.unit.missing == "drop")
    try:
        rows = read_rows(path, columns, data.max_length, tuple(data.labels) or None, bad=POLICIES[data.bad_rows])
    except DataError:  # a run stops there, and says which record
        return None
    return likeness((row.text for row in rows), key)


def enter(params: Params, workspace: Path, *, amend: bool = False, lost: bool = False) -> None:
    """Enter the asset of params that are not yet, or already, the workspace's; see `register_asset`."""
    ledger, asset = Ledger.create(ledger_url(params, workspace)), asset_of(params)
    if params.world is None and not lost:
        ledger.books().require_alone(asset.name)
    if amend:
        _amend(ledger, asset)
    before = ledger.books().find_asset(asset.name)
    known = ledger.register(asset, lost=lost)
    if before is not None and (changed := describe_differences(known, before)):
        print(f"{known.name}: nothing was charged under its earlier terms, which are corrected: {changed}")
    if known.after_loss:
        print(f"{known.name}: an earlier ledger is lost; what it spent is unknown and in no total")
    print(
        f"{known.name}: registered in {ledger.place} with a budget of epsilon {known.epsilon:g} at "
        f"delta {delta_up(known.delta)}, for adding or removing one {known.unit} of about "
        f"{known.n_public}{_describe_unit(known)}"
    )
    if known.milestones:
        stated = " or ".join(f"{one:g}" for one in known.milestones)
        print(f"{known.name}: releases will state epsilon {stated}, whichever is not passed, or the cap")
    if spent := ledger.balance(known.name).spent:
        print(f"{known.name}: epsilon {up(spent)} of it is spent already; workspaces of one asset share its budget")


def _amend(ledger: Ledger, asset: Asset) -> None:
    """Set the cap if all other terms are the same; a refusal changes nothing."""
    known = ledger.asset(asset.name)
    require_terms(known, replace(asset, epsilon=known.epsilon))
    ledger.amend(asset.name, asset.epsilon)


def _describe_unit(asset: Asset) -> str:
    column = asset.unit_column
    return "" if column is None else f", each a value of column {column!r} with all its rows"


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
