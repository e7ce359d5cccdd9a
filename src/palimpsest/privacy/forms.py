"""Documents that are read strictly: each field of its kind, none missing, none unknown.

Guarantee: nothing is taken for granted, so no document passes for another by what it leaves out. Errors name a field
and never what it holds.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

Kind = Callable[[Any, str], Any]  # a field's value and its place in the document -> the value as the reader wants it


class Malformed(ValueError):
    """A field has not its form; the message names it alone."""


def parsed(body: Any, kinds: Mapping[str, Kind], place: str = "", optional: Sequence[str] = ()) -> dict[str, Any]:
    """The members of an object, each of its kind.

    Args:
        kinds: of its fields, all that it may have.
        place: what stands before their names in an error.
        optional: the fields that may be missing.

    Raises:
        Malformed: naming the first field that is missing, unknown or of another form.
    """
    if not isinstance(body, Mapping):
        raise Malformed(f"field {place.rstrip('.')} is no object" if place else "it is no object")
    missing = [name for name in kinds if name not in body and name not in optional]
    unknown = [str(name) for name in body if name not in kinds]
    for names, what in ((missing, "is missing"), (unknown, "is not known")):
        if names:
            raise Malformed(f"field {place}{names[0]} {what}")
    return {name: kind(body[name], f"{place}{name}") for name, kind in kinds.items() if name in body}


def plain(part: Any) -> dict[str, Any]:
    """The fields of a dataclass, with lists for tuples: what `parsed` reads."""
    values = {field.name: getattr(part, field.name) for field in fields(part)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def kind(holds: Callable[[Any], bool], shaped: Callable[[Any], Any] = lambda value: value) -> Kind:
    """A value for which `holds`, in the form that `shaped` gives it."""

    def read(value: Any, place: str) -> Any:
        if not holds(value):
            raise Malformed(f"field {place} has another form than it may have")
        return shaped(value)

    return read


def one_of(known: Sequence[str]) -> Kind:
    """A text out of these."""
    return kind(lambda value: isinstance(value, str) and value in known)


def number(low: float, high: float = math.inf) -> Kind:
    """A finite number between these."""
    return kind(lambda value: is_number(value) and low <= value <= high)


def list_of(each: Kind) -> Kind:
    """A list of one kind, as a tuple."""

    def read(value: Any, place: str) -> Any:
        return tuple(each(item, place) for item in kind(lambda found: isinstance(found, list))(value, place))

    return read


def part_of(cls: Any, kinds: Mapping[str, Kind]) -> Kind:
    """An object inside the document, as an instance of a class."""
    return lambda value, place: cls(**parsed(value, kinds, f"{place}."))


def is_number(value: Any) -> bool:
    """Whether it is a finite number; truth values are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


WORD = kind(lambda value: isinstance(value, str) and bool(value))
TRUTH = kind(lambda value: isinstance(value, bool))
WHOLE = kind(lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 1)
SHARE = number(0.0, 1.0)
