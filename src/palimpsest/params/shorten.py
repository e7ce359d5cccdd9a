"""The way back from every value to what a person would write: all that no default gives."""

import math
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from palimpsest.params.derived import ANY, Path, derived
from palimpsest.params.extension import RUNS, keys_of
from palimpsest.params.file import File
from palimpsest.params.resolve import WAYS, resolve, settings_of
from palimpsest.params.schema import Params

_NAMED = ("variants", "lms", "discriminators", "taught", "authors", "decoders", "zero_shot")
_SETTLED = ("lms", "discriminators", "variants")  # entries whose settings have a section in Params and none in the file
_FIRST = ("method", "epsilon", "purpose", "from", "variant")


def shorten(params: Params) -> dict[str, Any]:
    """Return the least that resolves to these values, except taught models and decoders from which nothing is drawn."""
    found = _minimal(params, (), params)
    del found["run"]
    for key in _NAMED:
        entries = getattr(params, key)
        found[key] = {name: _flat(entries[name], entry, key) for name, entry in found.get(key, {}).items()}
        if not found[key] and key != "variants":
            del found[key]
    _name_sources(found, params)
    for key in _SETTLED:
        found |= {key: {name: _in_order(entry) for name, entry in found[key].items()}} if key in found else {}
    runs = _runs(found, params)
    return found | ({"runs": runs} if runs else {})


def plain(value: Any) -> Any:
    """Return a value as YAML has it: sections and tuples as mappings and lists."""
    if isinstance(value, BaseModel):
        return {name: plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def default_of(field: FieldInfo, at: Path, tag: str | None, params: Params) -> Any:
    """Return the default of a key; `...` where the file has to give a value."""
    if item := derived(at, tag):
        return item.of(params.dataset, params.models.lm)
    return ... if field.is_required() else field.get_default(call_default_factory=True)


def _minimal(section: BaseModel, at: Path, params: Params, tag: str | None = None) -> dict[str, Any]:
    """Return the values of a section that differ from their defaults."""
    found = {}
    for name, field in type(section).model_fields.items():
        value, here = getattr(section, name), (*at, name)
        default = default_of(field, here, tag, params)
        if plain(value) == plain(default):
            continue
        if isinstance(value, BaseModel):
            inner = _minimal(value, here, params, tag)
            if inner or default is None:
                found[name] = inner
        elif name in _NAMED and not at:
            found[name] = {key: _minimal(item, (*here, ANY), params, _tag(item)) for key, item in value.items()}
        else:
            found[name] = plain(value)
    return found


def _tag(entry: BaseModel) -> str | None:
    reads = getattr(getattr(entry, "train", None), "reads", None)
    return getattr(entry, "method", None) or getattr(entry, "kind", None) or reads


def _flat(entry: BaseModel, written: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return an entry as the file has it: without a level for its settings, and without the usual purpose."""
    if key not in _SETTLED:
        return dict(written)
    section = settings_of(type(entry))
    own = {name: value for name, value in written.items() if name != section}
    usual = "reference" if getattr(entry, "epsilon", None) == math.inf else "release"
    if own.get("purpose") == usual:
        del own["purpose"]
    return own | written.get(section, {})


def _in_order(entry: Mapping[str, Any]) -> dict[str, Any]:
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
    run, runs = plain(params.run), {}
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
