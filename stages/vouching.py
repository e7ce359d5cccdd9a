"""The only way to a public model or text file: its path, once it is checked that it is not the workspace's own."""

import hashlib
import re
from pathlib import Path
from typing import Any

from palimpsest.errors import ModelError
from palimpsest.models.sources import known_source, require_pinned, resolve_encoder, resolve_source
from palimpsest.params.schema import Params
from palimpsest.params.sources import public_sources
from palimpsest.records.vouched import EMBEDDED, Own, PublicSource, fingerprint_of, require_public, sha256

_HUB = re.compile(r"[\w.-]+(/[\w.-]+)?(@[\w./-]+)?")  # a hub name; anything else is a path, and is not shown


def resolve_vouched(params: Params, key: str) -> Path:
    """Return the file or folder that params.yaml names at `key`; a hub model is fetched.

    Guarantee: it is neither the workspace's own nor a copy of that, as far as `require_public` can see.

    Raises:
        DataError: it is.
        ModelError: there is no such model.
    """
    source, own = named_sources(params)[key], own_of(params)
    if source.embedded:
        return resolve_encoder(EMBEDDED)
    require_public(source, written_path(source), own)
    if source.kind == "text":
        return written_path(source)
    place = resolve_source(source.name)
    require_public(source, place, own)
    return place


def require_vouched(params: Params, workspace: Path = Path()) -> None:
    """Check everything that params.yaml names as public, used or not, as far as it is on this machine; fetch nothing.

    Raises:
        DataError: some of it is the workspace's own, or a copy of that.
        ModelError: a hub model that any running stage reads is not pinned to a commit.
    """
    own = own_of(params, workspace)
    for source in named_sources(params).values():
        if source.used and _is_hub_name(source, workspace):
            require_pinned(source.name)
        if source.on_disk:
            require_public(source, written_path(source, workspace), own)
            require_public(source, place_of(source, workspace) or written_path(source, workspace), own)


def named_sources(params: Params) -> dict[str, PublicSource]:
    """Return key of params.yaml -> the source that it names."""
    return {source.key: source for source in public_sources(params)}


def own_of(params: Params, workspace: Path = Path()) -> Own:
    """Return what the workspace has that is not public."""
    from stages.resuming import fitted_here

    inputs = tuple(Path(path) for path in (params.dataset.private, params.dataset.test) if path is not None)
    return Own(workspace, inputs, fitted_here(workspace))


def describe_sources(params: Params) -> list[dict[str, Any]]:
    """Describe each source that any running stage reads, for a privacy statement: never its path.

    Returns:
        source: its key; kind; name: a hub's or an endpoint's, else what it is; sha256: of its content, None where it is
        not on this machine.
    """
    return [
        {"source": source.key, "kind": source.kind, "name": _name(source), "sha256": digest_of(source)}
        for source in named_sources(params).values()
        if source.used
    ]


def _name(source: PublicSource) -> str:
    if source.kind == "prompts":
        return "params.yaml"
    return f"a local {source.kind}" if source.on_disk and not _is_hub_name(source) else source.name


def _is_hub_name(source: PublicSource, workspace: Path = Path()) -> bool:
    """Tell whether a source is the name of a hub's model, and no file or folder has that name."""
    hub = source.kind == "model" and not source.embedded and _HUB.fullmatch(source.name) is not None
    return hub and not written_path(source, workspace).exists()


def digest_of(source: PublicSource, workspace: Path = Path()) -> str | None:
    """Hash a source's current content, 64 hexadecimal digits; None where there is nothing on this machine."""
    if source.kind == "prompts":
        return hashlib.sha256(source.name.encode()).hexdigest()
    try:
        place = place_of(source, workspace)
        return None if place is None else fingerprint_of(place) if place.is_dir() else sha256(place)
    except ModelError:  # the loader reports what is wrong with it
        return None


def written_path(source: PublicSource, workspace: Path = Path()) -> Path:
    """Return the path that a source's name is, whether or not anything is there."""
    return workspace / Path(source.name).expanduser()


def place_of(source: PublicSource, workspace: Path) -> Path | None:
    """Return where a source lies on this machine; None where it does not."""
    if source.embedded:
        return resolve_encoder(EMBEDDED)
    if not source.on_disk:
        return None
    place = written_path(source, workspace)
    return place if place.exists() else known_source(source.name) if source.kind == "model" else None
