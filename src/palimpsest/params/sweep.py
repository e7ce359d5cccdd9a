"""The points of a sweep: the name of each, and its settings in params.yaml. Pure: values in, values out."""

import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from palimpsest.errors import ParamsError
from palimpsest.methods.shared.method import Family
from palimpsest.params.preset import epsilon_suffix
from palimpsest.params.resolve import WAYS
from palimpsest.params.schema import MOST_NAME
from palimpsest.params.text import flow

_BELOW = "model."  # before a key: of the model that the variant is drawn from; twice: of the model behind that
_FORM = "KEY=a,b"
FITTED = ("lms", "discriminators")


@dataclass(frozen=True)
class Axis:
    """A key that is varied, and its values.

    Attributes:
        key: a key of the variant or, after `model.`, of the model that it is drawn from.
        values: in the order of the points.
    """

    key: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Point:
    """One variant of a sweep.

    Attributes:
        name: of the variant.
        values: key -> value.
        settings: what params.yaml has for it and for the models that it needs of its own; empty for the variant that
            is swept, if the values are its own.
    """

    name: str
    values: Mapping[str, Any]
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class _Level:
    """A variant, or a model below one, as params.yaml has it."""

    section: str
    name: str
    entry: Mapping[str, Any]


def axis(text: str) -> Axis:
    """Read `KEY=a,b,c`: the values are YAML, a list of values stands in brackets.

    Raises:
        ParamsError: it has no key or no value, or a value twice.
    """
    key, _, said = text.partition("=")
    try:
        values = tuple(YAML(typ="safe", pure=True).load(f"[{said}]"))
    except YAMLError:
        values = ()
    if not key.strip(".") or not values or len({flow(value) for value in values}) < len(values):
        raise ParamsError(f"{text!r} varies nothing.", f"Say {_FORM} with different values, as temperature=0.7,1.0.")
    return Axis(key, values)


def points(written: Mapping[str, Any], variant: str, axes: Sequence[Axis]) -> tuple[Point, ...]:
    """Return every point of the grid; the last key varies fastest.

    Args:
        written: params.yaml as a person wrote it.

    Raises:
        ParamsError: there is no such variant, a key is given twice, or is of a model that the variant does not have.
    """
    if variant not in written["variants"]:
        raise ParamsError(f"VARIANT is {variant!r}.", f"Name one of {', '.join(written['variants'])}.")
    keys = [each.key for each in axes]
    if not keys or len({*keys}) < len(keys):
        raise ParamsError("No key is varied, or one is given twice.", f"Say {_FORM} once for each key.")
    levels = list(_levels(written, variant))
    for key in keys:
        _require(key, variant, len(levels))
    grid = itertools.product(*(each.values for each in axes))
    found = tuple(_point(levels, dict(zip(keys, values, strict=True))) for values in grid)
    _require_names(found)
    return found


def _require(key: str, variant: str, levels: int) -> None:
    if _depth(key) >= levels:
        raise ParamsError(
            f"{key} is of a model, and {variant} is not drawn from one that private rows fitted.",
            "A key of the variant itself has no `model.` before it.",
        )


def _require_names(found: Sequence[Point]) -> None:
    names = [point.name for point in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ParamsError(f"Two points would be called {twice[0]!r}.", "Take values that differ in their first digits.")


def _levels(written: Mapping[str, Any], variant: str) -> Iterator[_Level]:
    """Yield the variant, then the fitted model that it is drawn from, then the model behind that one."""
    entry = dict(written["variants"][variant])
    way = WAYS.get(entry["method"])
    if way is None or way.family is not Family.TRAINS:
        yield _Level("variants", variant, entry)
        return
    name = entry.setdefault("from", variant)
    yield _Level("variants", variant, entry)
    while section := next((part for part in FITTED if name in written.get(part, {})), None):
        below = written[section][name]
        yield _Level(section, name, below)
        name = below.get("from")


def _point(levels: Sequence[_Level], values: Mapping[str, Any]) -> Point:
    """Return a point, built from the lowest model up: one whose settings stay is reused, and is not charged again."""
    name, settings = "", dict[str, Any]()
    for depth in reversed(range(len(levels))):
        level, own = levels[depth], {key: value for key, value in values.items() if _depth(key) == depth}
        entry = _apply_values(level.entry, own, name)
        if entry == level.entry:
            name = level.name
            continue
        name = _name_point(level.name, {key: value for key, value in values.items() if _depth(key) >= depth})
        settings = merge_sections(settings, {level.section: {name: entry}})
    return Point(name, values, settings)


def _apply_values(entry: Mapping[str, Any], values: Mapping[str, Any], below: str) -> dict[str, Any]:
    made = dict(entry)
    for key, value in values.items():
        for part in reversed(key[_depth(key) * len(_BELOW) :].split(".")):
            value = {part: value}
        made = merge_sections(made, value)
    return made | ({"from": below} if below else {})


def _depth(key: str) -> int:
    """Return how many levels below the variant a key is."""
    return _depth(key.removeprefix(_BELOW)) + 1 if key.startswith(_BELOW) else 0


def _name_point(name: str, values: Mapping[str, Any]) -> str:
    """Return a name with what was varied, dp3_temperature0_7. One that is too long ends in a hash of the whole."""
    parts = [name, *(f"{key.rpartition('.')[2]}{_word(value)}" for key, value in values.items())]
    whole = "_".join(parts).lower().encode()
    if len(whole) <= MOST_NAME:
        return whole.decode()
    end = f"_{hashlib.sha256(whole).hexdigest()[:8]}"
    return whole[: MOST_NAME - len(end)].decode(errors="ignore") + end


def _word(value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return epsilon_suffix(value) if is_number else re.sub(r"[^a-z0-9]+", "_", flow(value).lower()).strip("_")


def marks(found: Sequence[Point], variant: str) -> dict[str, Any]:
    """Return what params.yaml notes of variants that a sweep made."""
    return {point.name: {"of": variant, "keys": list(point.values)} for point in found if point.name != variant}


def merge_sections(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return both merged section by section; the second's values replace the first's."""
    made = deepcopy(dict(first))
    for key, value in second.items():
        both = isinstance(made.get(key), Mapping) and isinstance(value, Mapping)
        made[key] = merge_sections(made[key], value) if both else deepcopy(value)
    return made
