"""Writes the origin of a release as PROV-JSON (W3C member submission 2013): the graph behind it and its lock file.

Guarantee: it contains neither hash nor size of a file of the private zone, nor a path outside the workspace. A plain
hash of a data set that can be guessed confirms a right guess. The private input goes by one keyed hash, of the charges
that the rows rest on and of the states of the rows they read, which tells nothing without the asset's key.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palimpsest.graph.taint import Flow, Node
from palimpsest.workspace import PUBLIC_FILES, Zone

_NAMESPACE = "urn:palimpsest:"

_Relations = dict[str, dict[str, dict[str, Any]]]


@dataclass(frozen=True)
class Inputs:
    """The files that the graph starts from."""

    private: Mapping[str, str]  # path -> name of the files with private rows; their paths are not published
    # path -> name of the files that were declared public; their paths are not published either
    public: Mapping[str, str]
    keyed: Mapping[str, Sequence[str]]  # name -> keyed hashes of the content


def provenance(
    flow: Flow, leaving: Node, lock: Mapping[str, Any], inputs: Inputs, files: Mapping[str, str], signer: str
) -> dict[str, Any]:
    """Build the document.

    Args:
        flow: the graph, narrowed to what the releasing stage, `leaving`, reads.
        lock: `stages` of dvc.lock.
        files: name in the release -> SHA-256, of the files derived from the graph.
        signer: the fingerprint of the signing key.
    """
    document = _Document(flow, inputs)
    for node in flow.find_upstream(leaving):
        document.add(node, lock.get(node.name, {}), node is leaving)
    for name, digest in files.items():
        document.publish(name, digest, leaving)
    relations = document.relations
    relations["agent"] = {_id("signer"): {"p:fingerprint": signer}}
    relations["wasAssociatedWith"] = {"_:by": {"prov:activity": _id(leaving.name), "prov:agent": _id("signer")}}
    return {"prefix": {"p": _NAMESPACE}, **relations}


class _Document:
    def __init__(self, flow: Flow, inputs: Inputs) -> None:
        self._flow, self._inputs = flow, inputs
        kinds = ("entity", "activity", "used", "wasGeneratedBy")
        self.relations: _Relations = {kind: {} for kind in kinds}

    def add(self, node: Node, locked: Mapping[str, Any], leaving: bool) -> None:
        """Add a stage, the files it read and the files it wrote."""
        command = {"p:command": locked["cmd"]} if isinstance(locked.get("cmd"), str) else {}
        stated = {"p:zone": node.zone, "p:metered": self._flow.is_metered(node)}
        self.relations["activity"][_id(node.name)] = command | stated
        hashes = {
            entry["path"]: entry["md5"] for key in ("deps", "outs") for entry in locked.get(key, ()) if "md5" in entry
        }
        public = node.zone == self._flow.zone(node) == Zone.PUBLIC
        for path in dict.fromkeys(self._read(node)):
            self._relate("used", node, self._entity(path, hashes if self._may_publish(path, False) else {}))
        for path in () if leaving else node.writes:
            self._relate("wasGeneratedBy", node, self._entity(path, hashes if self._may_publish(path, public) else {}))

    def publish(self, name: str, digest: str, leaving: Node) -> None:
        """Add a file of the release."""
        key = _id(f"release/{name}")
        self.relations["entity"][key] = {"p:sha256": digest}
        self._relate("wasGeneratedBy", leaving, key)

    def _read(self, node: Node) -> Iterator[str]:
        """Return the files that other stages made, as those name them, and the files that no stage makes."""
        made = [path for _, path in self._flow.makers(node)]
        yield from made
        yield from (path for path in node.reads if not any(_meet(path, one) for one in made))

    def _may_publish(self, path: str, public: bool) -> bool:
        listed = any(path == one or path.startswith(f"{one}/") for one in PUBLIC_FILES)
        return path not in self._inputs.private and (public or listed or path in self._inputs.public)

    def _entity(self, path: str, hashes: Mapping[str, str]) -> str:
        named = {**self._inputs.private, **self._inputs.public}.get(path)
        outside = path.startswith(("/", "~")) or ".." in path.split("/")
        key = _id(named or ("input" if outside else path))
        body = self.relations["entity"].setdefault(key, {})
        if path in self._inputs.private:
            body["p:zone"] = Zone.PRIVATE
        if named is not None and named in self._inputs.keyed:
            body["p:keyed_hash"] = list(self._inputs.keyed[named])
        if path in hashes:
            body["p:md5"] = hashes[path]
        return key

    def _relate(self, kind: str, node: Node, entity: str) -> None:
        links = self.relations[kind]
        links[f"_:{kind}{len(links)}"] = {"prov:activity": _id(node.name), "prov:entity": entity}


def _meet(one: str, other: str) -> bool:
    """Tell whether the two paths are equal or one of them contains the other."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _id(name: str) -> str:
    return f"p:{name}"
