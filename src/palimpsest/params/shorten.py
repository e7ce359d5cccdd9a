"""The way back from every value to what a person would write, and the origin of each value."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from palimpsest.params.extension import RUNS, keys_of
from palimpsest.params.file import FILE, File
from palimpsest.params.resolve import ANY, WAYS, Parts, Path, find_derived, resolve, settings_of, spread, to_file_key
from palimpsest.params.schema import Params

_NAMED = ("variants", "lms", "discriminators", "taught", "authors", "decoders", "zero_shot")
_SETTLED = ("lms", "discriminators", "variants")  # entries whose settings have a section in Params and none in the file
_FIRST = ("method", "epsilon", "purpose", "from", "variant")
WORKED_OUT, DEFAULT = "worked out", "default"


def shorten(params: Params) -> dict[str, Any]:
    """Return the least that resolves to these values, except taught models and decoders from which nothing is drawn."""
    found = _drop_defaults(params, (), params)
    del found["run"]
    for key in _NAMED:
        entries = getattr(params, key)
        found[key] = {name: _flatten_entry(entries[name], entry, key) for name, entry in found.get(key, {}).items()}
        if not found[key] and key != "variants":
            del found[key]
    _name_sources(found, params)
    for key in _SETTLED:
        found |= {key: {name: _order_keys(entry) for name, entry in found[key].items()}} if key in found else {}
    runs = _runs(found, params)
    return found | ({"runs": runs} if runs else {})


def to_plain(value: Any) -> Any:
    """Return a value as YAML has it: sections and tuples as mappings and lists."""
    if isinstance(value, BaseModel):
        return {name: to_plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        return {name: to_plain(inner) for name, inner in value.items()}
    return [to_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def default_of(field: FieldInfo, at: Path, tag: str | None, params: Params) -> Any:
    """Return the default of a key; `...` where the file has to give a value."""
    if item := find_derived(at, tag):
        return item.of(params.dataset, params.models.lm)
    return ... if field.is_required() else field.get_default(call_default_factory=True)


def _drop_defaults(section: BaseModel, at: Path, params: Params, tag: str | None = None) -> dict[str, Any]:
    """Return the values of a section that differ from their defaults."""
    found = {}
    for name, field in type(section).model_fields.items():
        value, here = getattr(section, name), (*at, name)
        default = default_of(field, here, tag, params)
        if to_plain(value) == to_plain(default):
            continue
        if isinstance(value, BaseModel):
            inner = _drop_defaults(value, here, params, tag)
            if inner or default is None:
                found[name] = inner
        elif name in _NAMED and not at:
            found[name] = {key: _drop_defaults(item, (*here, ANY), params, _tag(item)) for key, item in value.items()}
        else:
            found[name] = to_plain(value)
    return found


def _tag(entry: BaseModel) -> str | None:
    reads = getattr(getattr(entry, "train", None), "reads", None)
    return getattr(entry, "method", None) or getattr(entry, "kind", None) or reads


def _flatten_entry(entry: BaseModel, written: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return an entry as the file has it: without a level for its settings, and without the usual purpose."""
    if key not in _SETTLED:
        return dict(written)
    section = settings_of(type(entry))
    own = {name: value for name, value in written.items() if name != section}
    usual = "reference" if getattr(entry, "epsilon", None) == math.inf else "release"
    if own.get("purpose") == usual:
        del own["purpose"]
    return own | written.get(section, {})


def _order_keys(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry with the keys first that a reader wants to know first."""
    return {key: entry[key] for key in _FIRST if key in entry} | dict(entry)


def _name_sources(found: dict[str, Any], params: Params) -> None:
    """Write `from` where it differs from the default."""
    for name, model in params.run.discriminator.items():
        found["discriminators"][name]["from"] = model
    for name, author in params.run.zero_shot.items():
        found.setdefault("zero_shot", {}).setdefault(name, {})["from"] = author
    for name, row in params.variants.items():
        way = WAYS[row.method]
        source = getattr(params.run, way.run).get(name) if way.source != "none" else None
        if source is not None and source != {"own": name, "base": "base"}.get(way.source):
            found["variants"][name]["from"] = source


def _runs(found: Mapping[str, Any], params: Params) -> dict[str, Any]:
    """Return the section `runs`, for where not everything named runs."""
    run, runs = to_plain(params.run), {}
    if run["evaluate"] != list(params.variants):
        runs["evaluate"] = run["evaluate"]
    for key in keys_of(RUNS):
        if run[key]:
            runs[key] = list(run[key])
    usual = resolve(File.model_validate({**found, "runs": runs}))["run"]
    fitted = {*usual["dp_train"], *usual["discriminator"]}
    if alone := [name for name in (*run["dp_train"], *run["discriminator"]) if name not in fitted]:
        runs["fit"] = alone
        usual = resolve(File.model_validate({**found, "runs": runs}))["run"]
    if run["audit"] != usual["audit"]:
        runs["audit"] = run["audit"]
    return runs


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
    written = set(_written_keys(file))
    worked_out = {path for path, value in _leaves(resolve(file)) if value != {}}
    needed = set(_written_keys(File.model_validate(shorten(params))))
    return [
        Knob(
            ".".join(map(str, to_file_key(path))),
            value,
            FILE if _is_within(path, written) else WORKED_OUT if _is_within(path, worked_out) else DEFAULT,
            _is_within(path, written) and _is_within(path, needed),
        )
        for path, value in _leaves(to_plain(params))
    ]


def _written_keys(file: File) -> Iterator[Parts]:
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


def _is_within(path: Parts, found: set[Parts]) -> bool:
    """Whether a key, or a section above it that is written as a whole, is among these."""
    return any(path[:depth] in found for depth in range(1, len(path) + 1))
