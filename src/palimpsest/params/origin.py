"""The origin of each value: written by a person, worked out from that, or a default."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from palimpsest.params.file import FILE, File
from palimpsest.params.resolve import Parts, as_written, resolve, spread
from palimpsest.params.schema import Params
from palimpsest.params.shorten import plain, shorten

WORKED_OUT, DEFAULT = "worked out", "default"


class Knob(NamedTuple):
    """One value of a workspace.

    Attributes:
        key: as params.yaml would have it; those under `run` follow from the variants.
        value: a text, a number, true, false, null, or a list of them.
        origin: the file, `WORKED_OUT` from it, or `DEFAULT`.
        changed: whether no default gives it.
    """

    key: str
    value: Any
    origin: str
    changed: bool


def knobs(file: File, params: Params) -> list[Knob]:
    """Every value of a file and of all that it stands for, in the order of the schema."""
    written = set(_written(file))
    worked_out = {path for path, value in _leaves(resolve(file)) if value != {}}
    needed = set(_written(File.model_validate(shorten(params))))
    return [
        Knob(
            ".".join(map(str, as_written(path))),
            value,
            FILE if _within(path, written) else WORKED_OUT if _within(path, worked_out) else DEFAULT,
            _within(path, written) and _within(path, needed),
        )
        for path, value in _leaves(plain(params))
    ]


def _written(file: File) -> Iterator[Parts]:
    """Yield the written keys, each at its place in `Params`; a purpose that nobody wrote is left out."""
    for path, value in _leaves(spread(file)):
        if value == {}:  # a section without a written key
            continue
        entry = getattr(file, str(path[0]))[path[1]] if path[-1] == "purpose" else None
        if entry is None or "purpose" in entry.written:
            yield path


def _leaves(body: Mapping[str, Any], above: Parts = ()) -> Iterator[tuple[Parts, Any]]:
    for key, value in body.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value


def _within(path: Parts, found: set[Parts]) -> bool:
    """Whether a key, or a section above it that is written as a whole, is among these."""
    return any(path[:depth] in found for depth in range(1, len(path) + 1))
