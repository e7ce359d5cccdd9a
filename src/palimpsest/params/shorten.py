"""The way back from every value to what a person would write, and the origin of each value."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from palimpsest.params.extension import RUNS, keys_of
from palimpsest.params.file import FILE, NAMED, File
from palimpsest.params.resolve import WAYS, Parts, find_runs, work_out
from palimpsest.params.schema import Entry, Params
from palimpsest.settings import Settings, Stated, rule_of

_FIRST = ("method", "epsilon", "purpose", "from", "variant")
WORKED_OUT, DEFAULT = "worked out", "default"


def shorten(params: Params) -> dict[str, Any]:
    """Return the least that resolves to these values, except taught models and decoders from which nothing is drawn."""
    found = _changed(params, params.stated)
    del found["run"]
    _name_sources(found, params)
    for key in ("lms", "discriminators", "variants"):
        found |= {key: {name: _order_keys(entry) for name, entry in found[key].items()}} if key in found else {}
    runs = _runs(found, params)
    return found | ({"runs": runs} if runs else {})


def to_plain(value: Any) -> Any:
    """Return a value as YAML has it: sections and tuples as mappings and lists."""
    if isinstance(value, Settings):
        return {name: to_plain(inner) for name, inner in value.plain_items()}
    if isinstance(value, Mapping):
        return {name: to_plain(inner) for name, inner in value.items()}
    return [to_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _default_of(section: Settings, key: str, stated: Stated) -> Any:
    """Return the default of a key; `...` where the file has to give a value."""
    field = type(section).model_fields[key]
    if rule := rule_of(field):
        return rule.of(stated, dict(section))
    return ... if field.is_required() else field.get_default(call_default_factory=True)


def _changed(section: Settings, stated: Stated) -> dict[str, Any]:
    """Return the values of a section that differ from their defaults, as the file has them."""
    found: dict[str, Any] = {}
    for key, value in section:
        if isinstance(section, Entry) and key == section.holds:
            found |= _changed(value, stated)
            continue
        default = _default_of(section, key, stated)
        if to_plain(value) == to_plain(default):
            continue
        if isinstance(section, Params) and key in NAMED:
            found[key] = {name: _changed(entry, stated) for name, entry in value.items()}
        elif not isinstance(value, Settings):
            found[key] = to_plain(value)
        elif (inner := _changed(value, stated)) or default is None:
            found[key] = inner
    return found


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
    usual = find_runs(File.model_validate({**found, "runs": runs}))
    fitted = {*usual["dp_train"], *usual["discriminator"]}
    if alone := [name for name in (*run["dp_train"], *run["discriminator"]) if name not in fitted]:
        runs["fit"] = alone
        usual = find_runs(File.model_validate({**found, "runs": runs}))
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
    written = _written_keys(file)
    worked_out = {path for path, value in _leaves(work_out(file, params.dataset)) if value != {}}
    needed = _written_keys(File.model_validate(shorten(params)))
    return [
        Knob(
            ".".join(map(str, path)),
            to_plain(value),
            FILE if _is_within(path, written) else WORKED_OUT if follows or _is_within(path, worked_out) else DEFAULT,
            _is_within(path, written) and _is_within(path, needed),
        )
        for path, value, follows in _values(params)
    ]


def _values(section: Settings, above: Parts = ()) -> Iterator[tuple[Parts, Any, bool]]:
    """Yield every value as the file has its key, and whether its default follows from what is stated."""
    for key, value in section:
        at = above if isinstance(section, Entry) and key == section.holds else (*above, key)
        follows = rule_of(type(section).model_fields[key]) is not None
        for path, inner in _leaves(value, at) if isinstance(value, Mapping) and value else ((at, value),):
            if isinstance(inner, Settings):
                yield from _values(inner, path)
            else:
                yield path, inner, follows


def _written_keys(file: File) -> set[Parts]:
    """Return the written keys; a section without one is none."""
    return {path for path, value in _leaves(file.written) if value != {}}


def _leaves(body: Mapping[str, Any], above: Parts = ()) -> Iterator[tuple[Parts, Any]]:
    for key, value in body.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value


def _is_within(path: Parts, found: set[Parts]) -> bool:
    """Whether a key, or a section above it that is written as a whole, is among these."""
    return any(path[:depth] in found for depth in range(1, len(path) + 1))
