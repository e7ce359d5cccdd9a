"""Checks whether private data reach what is released without passing the meter.

The graph is read as files: a stage reads some and writes some, and what it writes is as private as what it read. Two
things end that: a ledgered mechanism, which makes private rows into protected ones, and the few files that a private
stage writes only from a public file, which are named here one by one, each with the one stage that may write it. Files
are told apart by their names, so a graph that could name one file in two ways, or hide what it names, is refused.
"""

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as File
from typing import Any

from palimpsest.errors import DataError
from palimpsest.graph.expand import MADE, Repetition, expand, fill_names, params_keys
from palimpsest.params.file import RESOLVED, model_keys
from palimpsest.records.vouched import EMBEDDED
from palimpsest.workspace import FACTS, INPUTS, MANIFEST, PUBLIC_FILES, Zone
from palimpsest.workspace import PRIVATE as SPLITS
from palimpsest.workspace import RELEASE as FOLDER

RELEASE, PRIVATE = FOLDER.as_posix(), SPLITS.as_posix()
DOOR = (f"{PRIVATE}/train.parquet", str(MANIFEST))
_GATES = (FACTS.as_posix(),)
_WORDS = re.compile(r"[^\w./~-]+")
# Keys of models that may be local folders.
_MODEL = re.compile(r"models\.(lm|encoder|classifier|next_token)|authors\.\w+\.model")
_KEYS = {"desc", "cmd", "params", "deps", *MADE, "meta", "matrix", "foreach", "do"}
_ALWAYS = INPUTS.name  # the one stage that may run every time: it looks at facts, not at rows
_SECRET, _DECLARED = ("private", "test"), ("private", "test", "public", "public_test")

Path = tuple[str, ...]


@dataclass(frozen=True)
class Node:
    """One stage of the graph, or one repetition of it."""

    name: str  # as `dvc repro` prints it
    zone: Zone  # what dvc.yaml says it is
    reads: tuple[str, ...] = ()  # files and folders whose content may reach what it writes
    writes: tuple[str, ...] = ()  # files and folders
    receipt: bool = False  # whether it says what it charged


@dataclass(frozen=True)
class Flow:
    """A graph and what is known of its files."""

    nodes: tuple[Node, ...]  # the stages
    # files that hold private rows, whether or not a stage makes them and whatever that stage says of them
    private: tuple[str, ...]
    ledgered: frozenset[str]  # names of nodes whose charges are in the ledger, as committed ones that count, with noise
    # file that a private stage writes only from public files -> that stage; no other stage is believed
    public: Mapping[str, str] = field(default_factory=lambda: PUBLIC_FILES)
    # what a metered query reads of the private zone; whatever else a metered node reads passes no meter
    door: tuple[str, ...] = DOOR

    def is_metered(self, node: Node) -> bool:
        """Whether a ledgered mechanism stands between what the node reads and what it writes."""
        return node.receipt and node.name in self.ledgered

    def makers(self, node: Node) -> list[tuple[Node, str]]:
        """Return (maker, file) for everything that other nodes write and this one reads."""
        others = [other for other in self.nodes if other.name != node.name]
        return [(other, path) for other in others for path in other.writes if _meets(path, node.reads)]

    def find_upstream(self, node: Node) -> list[Node]:
        """Return the node and all that it needs, each after its own needs."""
        known: dict[str, Node] = {}

        def visit(one: Node, above: tuple[str, ...]) -> None:
            for maker, _ in self.makers(one):
                if maker.name not in known and maker.name not in above:
                    visit(maker, (*above, maker.name))
            known[one.name] = one

        visit(node, (node.name,))
        return list(known.values())

    def find_paths(self, node: Node, below: Path = ()) -> list[Path]:
        """Return every path of private data to what the node writes, with no node of `below` and the node last."""
        metered, made = self.is_metered(node), self.makers(node)
        carried: list[Path] = []
        told: set[str] = set()
        for maker, path in made:
            through = metered and any(_is_inside(path, folder) for folder in self.door)
            passes = through or self.public.get(path) == maker.name
            seen = (*below, node.name)
            further = [] if passes or maker.name in seen else self.find_paths(maker, seen)
            carried += further
            told |= {path} if further else set()
        stray = [
            path for path in node.reads if _is_inside(path, PRIVATE) and not any(_meets(path, [m]) for _, m in made)
        ]
        raw = [*(path for path in self.private if _meets(path, node.reads) and path not in told), *stray]
        carried += [(path,) for path in raw if not (metered and _meets(path, self.door))]
        held = node.zone == Zone.PRIVATE or any(_meets(path, node.writes) for path in (*self.private, PRIVATE))
        unexplained = held and not metered and not carried
        return [(node.name,)] if unexplained else [(*way, node.name) for way in dict.fromkeys(carried)]

    def zone(self, node: Node) -> Zone:
        """Return the node's zone as it follows from the graph, whatever dvc.yaml says of it."""
        if self.find_paths(node):
            return Zone.PRIVATE
        return Zone.DP if self._carries_answers(node, ()) else Zone.PUBLIC

    def _carries_answers(self, node: Node, below: Path) -> bool:
        """Whether answers of a ledgered mechanism reach what the node writes."""
        above = [maker for maker, path in self.makers(node) if self.public.get(path) != maker.name]
        seen = (*below, node.name)
        return self.is_metered(node) or any(self._carries_answers(one, seen) for one in above if one.name not in seen)


def taint(flow: Flow, to: str = RELEASE) -> list[Path]:
    """Every path from private data to the folder `to` that passes no ledgered mechanism.

    Guarantee: if the graph names all that its stages read, and there is no such path, then what is written to the
    folder is a function of public files and of the answers of ledgered mechanisms (post-processing: Dwork and Roth
    2014, Proposition 2.1). A metered node clears only what its query reads through the door: a reference run's model,
    or a holdout, that it reads as well stays private.

    Returns:
        Each path as names: a private file or the stage that first wrote private data, then each stage on the way, the
        releasing one last; sorted. Empty where all is well.

    >>> rows = Node("split", Zone.PRIVATE, ("rows.csv",), ("data/private/train.parquet",))
    >>> fit = Node("fit", Zone.PRIVATE, ("data/private/train.parquet",), ("model",), receipt=True)
    >>> out = Node("pack", Zone.DP, ("model",), ("release",))
    >>> taint(Flow((rows, fit, out), ("rows.csv",), frozenset({"fit"})))
    []
    >>> taint(Flow((rows, fit, out), ("rows.csv",), frozenset()))
    [('rows.csv', 'split', 'fit', 'pack')]
    """
    leaving = [node for node in flow.nodes if any(_is_inside(path, to) for path in node.writes)]
    return sorted({way for node in leaving for way in flow.find_paths(node)})


def narrow_reads(node: Node, files: Sequence[str]) -> Node:
    """The node with the files that it reads in place of the folders that hold them."""
    kept = [path for path in node.reads if not any(_is_inside(file, path) for file in files)]
    return replace(node, reads=(*kept, *files))


def nodes(graph: Mapping[str, Mapping[str, Any]], params: Mapping[str, Any], workspace: File = File()) -> list[Node]:
    """The stages of a dvc.yaml, every repetition a node of its own, with the names in params.yaml written out.

    A file that the releasing stage lists in `meta.gates`, and that is one of `_GATES`, can only stop it, so it is not
    among what that stage reads. These are documents of an invented world. Where the data are not invented, a gate
    could refuse because of private rows, so there is none. No other stage has gates. A file that `params` names is
    read like any other, and so is the folder of a model that a key in `params` may stand for, whether or not it is
    there now.

    Raises:
        DataError: a path is not in its plain form, starts outside the workspace without being a file of `dataset`, or
            is another name of one; a stage has a key that could change what its paths mean; a command names a private
            file; the release has a gate and there is no invented world; a model's folder has the workspace in it.
        ParamsError: a name in the graph is not in params.yaml.
    """
    for stage, entry in graph.items():
        _refuse_keys(stage, entry)
    return [_node(one, workspace) for one in expand(graph, params)]


def _node(one: Repetition, workspace: File) -> Node:
    name, body, values = one.name, one.body, one.values
    _refuse_keys(name, body)
    declared = [path for path in map(values.get("dataset", {}).get, _DECLARED) if path is not None]
    named = (file for entry in body.get("params", []) if not isinstance(entry, str) for file in entry)
    files = [file for file in named if file != RESOLVED]
    read, made = [*one.paths("deps"), *fill_names(files, values)], one.paths(*MADE)
    for path in (*read, *made):
        _refuse_path(name, path, declared, workspace)
    _refuse_command(name, body.get("cmd", ""), values, workspace)
    gates = _gates(body["meta"].get("gates", []), values) if RELEASE in made else []
    reads = (*(path for path in read if path not in gates), *_models(body, values, workspace))
    return Node(name, _zone(name, body["meta"]["zone"]), reads, tuple(made), "receipt" in body["meta"])


def _zone(name: str, told: str) -> Zone:
    if told not in tuple(Zone):
        raise DataError(f"Stage {name!r} of dvc.yaml has the zone {told!r}.", f"Use one of {', '.join(Zone)}.")
    return Zone(told)


def _gates(listed: Sequence[str], values: Mapping[str, Any]) -> list[str]:
    """The files that can do no more than stop the release."""
    found = [path for path in listed if path in _GATES]
    if found and values.get("world") is None:
        raise DataError(
            f"dvc.yaml lets {found[0]!r} stop the release, and params.yaml has no invented world.",
            "Take it out of `gates` and `deps` of the stage `release`.",
        )
    return found


def _models(body: Mapping[str, Any], values: Mapping[str, Any], workspace: File) -> Iterator[str]:
    """The folders of models that the stage's parameters name, from the workspace; a hub's name is a path to nothing."""
    entries = fill_names(params_keys(body), values)
    names = {"models", "authors", *(key.partition(".")[0] for key in model_keys().values())}
    sections = {name: values.get(name, {}) for name in sorted(names)}
    for key, name in _leaves(sections):
        may_name = _MODEL.fullmatch(key) or key in model_keys().values()
        if may_name and name not in (None, EMBEDDED) and any(_may_read(key, entry) for entry in entries):
            yield from dict.fromkeys(_relative_place(key, place, workspace) for place in _places(str(name), workspace))


def _may_read(key: str, entry: str) -> bool:
    """Whether a stage that depends on this entry of params.yaml may read the key."""
    return f"{key}.".startswith(f"{entry}.") or f"{entry}.".startswith(f"{key}.")


def _leaves(body: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(body, Mapping):
        yield above.removeprefix("."), body
        return
    for key, value in body.items():
        yield from _leaves(value, f"{above}.{key}")


def _places(name: str, workspace: File) -> tuple[File, File]:
    """Return where a path leads, as it is written and through its links."""
    return File(posixpath.abspath(File(workspace, posixpath.expanduser(name)))), _resolve(name, workspace)


def _relative_place(key: str, place: File, workspace: File) -> str:
    for home in (File(posixpath.abspath(workspace)), workspace.resolve()):
        if home.is_relative_to(place):
            raise DataError(f"{key} in params.yaml names a folder that holds the workspace.", "Name the model's own.")
        if place.is_relative_to(home):
            return place.relative_to(home).as_posix()
    return place.as_posix()


def _refuse_keys(name: str, entry: Mapping[str, Any]) -> None:
    known = _KEYS | ({"always_changed"} if name == _ALWAYS else set())
    if unknown := sorted(entry.keys() - known):
        raise DataError(
            f"Stage {name!r} of dvc.yaml has {', '.join(unknown)}, which can change what its paths mean.",
            f"Use no other keys than {', '.join(sorted(_KEYS))}.",
        )


def _refuse_path(name: str, path: str, declared: Collection[str], workspace: File) -> None:
    """Refuse a path by which one file could have two names, and so be two files here."""
    if posixpath.normpath(path) != path or path == ".":
        raise DataError(
            f"Stage {name!r} of dvc.yaml names {path!r}, which is not the plain form of a path.",
            "Write it from the workspace, without '.', '..' or a slash at the end.",
        )
    away = [one for one in (path, *declared) if one.startswith(("/", "~")) or one.split("/")[0] == ".."]
    own, others = _resolve(path, workspace), [_resolve(one, workspace) for one in away if one != path]
    twice = any(own.is_relative_to(other) or other.is_relative_to(own) for other in others)
    if twice or (path in away and path not in declared):
        raise DataError(
            f"Stage {name!r} of dvc.yaml names {path!r}, so its way from private data cannot be checked.",
            "Name files of the workspace from there, and those of `dataset` as params.yaml names them.",
        )


def _refuse_command(name: str, command: str | Sequence[str], values: Mapping[str, Any], workspace: File) -> None:
    lines = fill_names([command] if isinstance(command, str) else command, values)
    held = [path for path in map(values.get("dataset", {}).get, _SECRET) if path is not None]
    secret = [_resolve(path, workspace) for path in (PRIVATE, *held)]
    words = [_resolve(word, workspace) for line in lines for word in _WORDS.split(line) if word]
    if any(word.is_relative_to(path) for word in words for path in secret):
        raise DataError(
            f"The command of stage {name!r} in dvc.yaml names a private file.",
            "Name in `deps` what a stage reads, and let its script find it there.",
        )


def _resolve(path: str, workspace: File) -> File:
    return File(workspace, posixpath.expanduser(path)).resolve()


def _is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _meets(path: str, reads: Collection[str]) -> bool:
    """Whether reading these reads something of the file or folder."""
    return any(_is_inside(path, one) or _is_inside(one, path) for one in reads)
