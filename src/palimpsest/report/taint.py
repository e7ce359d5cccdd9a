"""Does private data reach what is released without passing the meter?

The graph is read as files: a stage reads some and writes some, and what it writes is as private as what it read. Two
things end that: a ledgered mechanism, which makes private rows into protected ones, and the few files that a private
stage writes from a public file alone, which are named here one by one.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

RELEASE = "release"
PUBLIC_FILES = (
    "data/public/train.parquet",
    "data/public/heldout.parquet",
    "data/raw/public.jsonl",
    "data/raw/public_test.jsonl",
)
DOOR = ("data/private/train.parquet", "data/private/manifest.json")
_NAMED = re.compile(r"\$\{([\w.]+)\}")
_MADE = ("outs", "metrics", "plots")

Path = tuple[str, ...]


@dataclass(frozen=True)
class Node:
    """One stage of the graph, or one repetition of it.

    Attributes:
        name: as `dvc repro` prints it.
        zone: what dvc.yaml says it is: "private", "dp" or "public".
        reads: files and folders whose content may reach what it writes.
        writes: files and folders.
        receipt: whether it says what it charged.
    """

    name: str
    zone: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    receipt: bool = False


@dataclass(frozen=True)
class Flow:
    """A graph and what is known of its files.

    Attributes:
        nodes: the stages.
        private: files that hold private rows and that no stage makes.
        ledgered: names of nodes whose charges are in the ledger, as committed ones that count, with noise.
        public: files that private stages write from public files alone.
        door: what a metered query reads of the private zone; whatever else a metered node reads passes no meter.
    """

    nodes: tuple[Node, ...]
    private: tuple[str, ...]
    ledgered: frozenset[str]
    public: tuple[str, ...] = PUBLIC_FILES
    door: tuple[str, ...] = DOOR

    def metered(self, node: Node) -> bool:
        """Whether a ledgered mechanism stands between what the node reads and what it writes."""
        return node.receipt and node.name in self.ledgered

    def makers(self, node: Node) -> list[tuple[Node, str]]:
        """(maker, file) of everything that other nodes write and this one reads."""
        others = [other for other in self.nodes if other.name != node.name]
        return [(other, path) for other in others for path in other.writes if _meets(path, node.reads)]

    def behind(self, node: Node) -> list[Node]:
        """The node and all that it needs, each after what it needs itself."""
        found: dict[str, Node] = {}

        def visit(one: Node, above: tuple[str, ...]) -> None:
            for maker, _ in self.makers(one):
                if maker.name not in found and maker.name not in above:
                    visit(maker, (*above, maker.name))
            found[one.name] = one

        visit(node, (node.name,))
        return list(found.values())

    def into(self, node: Node) -> list[Path]:
        """Every path on which private data reach what the node writes, the node last."""
        return self._into(node, ())

    def _into(self, node: Node, below: Path) -> list[Path]:
        metered, made = self.metered(node), self.makers(node)
        raw = [path for path in self.private if _meets(path, node.reads) and not any(path == own for _, own in made)]
        carried: list[Path] = [(path,) for path in raw if not (metered and _meets(path, self.door))]
        for maker, path in made:
            passes = _inside_any(path, self.public) or (metered and _inside_any(path, self.door))
            seen = (*below, node.name)
            carried += [] if passes or maker.name in seen else self._into(maker, seen)
        unexplained = node.zone == "private" and not metered and not carried
        return [(node.name,)] if unexplained else [(*way, node.name) for way in dict.fromkeys(carried)]

    def zone(self, node: Node) -> str:
        """What the graph makes of the node, whatever dvc.yaml says of it: "private", "dp" or "public"."""
        if self.into(node):
            return "private"
        return "dp" if self._answers(node, ()) else "public"

    def _answers(self, node: Node, below: Path) -> bool:
        """Whether answers of a ledgered mechanism reach what the node writes."""
        above = [maker for maker, path in self.makers(node) if not _inside_any(path, self.public)]
        seen = (*below, node.name)
        return self.metered(node) or any(self._answers(one, seen) for one in above if one.name not in seen)


def taint(flow: Flow, to: str = RELEASE) -> list[Path]:
    """Every path from private data to the folder `to` that passes no ledgered mechanism.

    Guarantee: if the graph names all that its stages read, and there is no such path, then what is written to the
    folder is a function of public files and of the answers of ledgered mechanisms (post-processing: Dwork and Roth
    2014, Proposition 2.1). A metered node clears what its query reads through the door alone: a reference run's model,
    or a holdout, that it reads beside that stays private.

    Returns:
        Each path as names: a private file or the stage that first wrote private data, then each stage on the way, the
        releasing one last; sorted. Empty where all is well.

    >>> rows = Node("split", "private", ("rows.csv",), ("data/private/train.parquet",))
    >>> fit = Node("fit", "private", ("data/private/train.parquet",), ("model",), receipt=True)
    >>> out = Node("pack", "dp", ("model",), ("release",))
    >>> taint(Flow((rows, fit, out), ("rows.csv",), frozenset({"fit"})))
    []
    >>> taint(Flow((rows, fit, out), ("rows.csv",), frozenset()))
    [('rows.csv', 'split', 'fit', 'pack')]
    """
    leaving = [node for node in flow.nodes if any(_inside(path, to) for path in node.writes)]
    return sorted({way for node in leaving for way in flow.into(node)})


def narrowed(node: Node, files: Sequence[str]) -> Node:
    """The node with the files that it reads in place of the folders that hold them."""
    kept = [path for path in node.reads if not any(_inside(file, path) for file in files)]
    return replace(node, reads=(*kept, *files))


def nodes(graph: Mapping[str, Mapping[str, Any]], params: Mapping[str, Any]) -> list[Node]:
    """The stages of a dvc.yaml, every repetition a node of its own, with the names in params.yaml written out.

    What `meta.gates` names can only stop a stage, so it is not among what the stage reads.

    Args:
        graph: `stages` of dvc.yaml.
        params: the content of params.yaml.
    """
    return [
        _node(name, body, {**params, **own})
        for stage, entry in graph.items()
        for name, body, own in _each(stage, entry, params)
    ]


def _node(name: str, body: Mapping[str, Any], values: Mapping[str, Any]) -> Node:
    meta, gates = body["meta"], _filled(body["meta"].get("gates", []), values)
    made = [entry if isinstance(entry, str) else next(iter(entry)) for key in _MADE for entry in body.get(key, [])]
    reads = [path for path in _filled(body.get("deps", []), values) if path not in gates]
    return Node(name, meta["zone"], tuple(reads), tuple(_filled(made, values)), "receipt" in meta)


def _each(
    stage: str, entry: Mapping[str, Any], params: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any], dict[str, Any]]]:
    """(name, body, its own names) of each repetition of a stage."""
    if "matrix" in entry:
        lists = {key: _value(names, params) or [] for key, names in entry["matrix"].items()}
        for chosen in product(*lists.values()):
            yield f"{stage}@{'-'.join(map(str, chosen))}", entry, {"item": dict(zip(lists, chosen, strict=True))}
    elif "foreach" in entry:
        names = _value(entry["foreach"], params) or {}
        pairs = names.items() if isinstance(names, Mapping) else [(value, value) for value in names]
        for key, item in pairs:
            yield f"{stage}@{key}", entry["do"], {"key": key, "item": item}
    else:
        yield stage, entry, {}


def _filled(paths: Iterable[str], values: Mapping[str, Any]) -> list[str]:
    return [_NAMED.sub(lambda name: str(_value(name[0], values)), path) for path in paths]


def _value(text: Any, values: Any) -> Any:
    """What `${a.b}` stands for; anything else stands for itself."""
    named = _NAMED.fullmatch(text) if isinstance(text, str) else None
    if named is None:
        return text
    for key in named[1].split("."):
        values = values.get(key) if isinstance(values, Mapping) else None
    return values


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _inside_any(path: str, folders: Collection[str]) -> bool:
    return any(_inside(path, folder) for folder in folders)


def _meets(path: str, reads: Collection[str]) -> bool:
    """Whether reading these reads something of the file or folder."""
    return any(_inside(path, one) or _inside(one, path) for one in reads)
