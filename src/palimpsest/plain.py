"""Values that are written as JSON, and read back by the type that wrote them.

A frozen dataclass says by its fields what its file holds. Where the file differs, the class says so once: `keys` name
what is written and in which order, and an annotation `At` says where a field stands.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

import numpy as np

from palimpsest.workspace import INTERNAL


class At:
    """The place of a field that does not stand under its own name.

    Attributes:
        path: the keys that lead to it; none puts the parts of its value beside the other fields.
        names: part of such a value -> its key there, where it differs.
    """

    def __init__(self, *path: str, **names: str):
        self.path = path
        self.names = names


class _Read:
    """The form in which a file holds a value; numbers and texts are taken as they are.

    Attributes:
        keys: fields and properties that are written, in this order; all fields if none is named. A field that is not
            among them keeps its default when the file is read.
    """

    keys: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Return the value that was written.

        Raises:
            KeyError: a field is missing.
        """
        return cls(**{one.name: _read(one.kind, one.take(body)) for one in _places(cls) if one.kind is not None})


class Plain(_Read):
    """A value inside a file."""

    def to_json(self) -> dict[str, Any]:
        """The value as a mapping of JSON, which `from_json` reads."""
        return _to_mapping(self)


class PlainFile(_Read):
    """A value with a file of its own."""

    def to_json(self, variant: str, zone: str = INTERNAL) -> dict[str, Any]:
        """The metric file of a variant, in the private zone unless it says another."""
        return {"variant": variant, "zone": zone, **_to_mapping(self)}


@dataclass(frozen=True)
class _Place:
    """The place of a field and its type; None for a property, which is written and never read."""

    name: str
    kind: Any
    at: At

    def take(self, body: Mapping[str, Any]) -> Any:
        if not self.at.path:
            return {**body, **{part: body[key] for part, key in self.at.names.items()}}
        value: Any = body
        for key in self.at.path:
            value = value[key]
        return value

    def put(self, value: Any, body: dict[str, Any]) -> None:
        if not self.at.path:
            body |= {self.at.names.get(part, part): one for part, one in value.items()}
            return
        for key in self.at.path[:-1]:
            body = body.setdefault(key, {})
        body[self.at.path[-1]] = value


def _places(cls: type[Any]) -> tuple[_Place, ...]:
    hints, own = get_type_hints(cls, include_extras=True), [one.name for one in fields(cls)]
    return tuple(_place(name, hints[name] if name in own else None) for name in cls.keys or own)


def _place(name: str, kind: Any) -> _Place:
    if get_origin(kind) is Annotated:
        return _Place(name, *get_args(kind))
    return _Place(name, kind, At(name))


def _to_mapping(value: Any) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for place in _places(type(value)):
        place.put(_to_json_value(getattr(value, place.name)), body)
    return body


def _to_json_value(value: Any) -> Any:
    if isinstance(value, Plain):
        return value.to_json()
    if isinstance(value, PlainFile):
        return _to_mapping(value)
    if isinstance(value, Mapping):
        return {str(key): _to_json_value(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if hasattr(value, "_asdict"):
        return value._asdict()
    return [_to_json_value(one) for one in value] if isinstance(value, (tuple, list)) else value


def _read(kind: Any, value: Any) -> Any:
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin in (Union, UnionType):
        return None if value is None else _read(next(one for one in inner if one is not NoneType), value)
    if origin is tuple:
        return tuple(_read(inner[0], one) for one in value)
    if origin in (Mapping, dict):
        return {inner[0](key): _read(inner[1], one) for key, one in value.items()}
    if origin is np.ndarray:
        return np.asarray(value, dtype=np.float64)
    if hasattr(kind, "_fields"):
        return kind(*(value[name] for name in kind._fields))
    return kind.from_json(value) if isinstance(kind, type) and issubclass(kind, _Read) else value
