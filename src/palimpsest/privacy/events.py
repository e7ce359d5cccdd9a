"""Privacy events: `dp_accounting`'s own, one that it lacks, and their JSON form."""

from collections.abc import Mapping
from typing import Any

import attr
import dp_accounting as dpa

from palimpsest.privacy.forms import is_number

_FIELDS: dict[str, tuple[type, tuple[str, ...]]] = {}


@attr.define(frozen=True, slots=True)
class DiscreteGaussianDpEvent(dpa.DpEvent):
    """Integer noise with P(k) proportional to exp(-k^2 / 2 sigma^2), added to integer counts.

    Attributes:
        sigma: the scale, in counts.

    One record moves one count by one (sensitivity 1). Satisfies 1/(2 sigma^2)-zCDP (Canonne, Kamath, Steinke 2020,
    Theorem 14).
    """

    sigma: float


def to_json(event: dpa.DpEvent) -> dict[str, Any]:
    """A JSON-able description, the inverse of `from_json`."""
    kind = type(event).__name__
    if kind not in _FIELDS:
        raise ValueError(f"no JSON form for {kind}")
    return {"type": kind, **{name: _value(getattr(event, name)) for name in _FIELDS[kind][1]}}


def from_json(body: Mapping[str, Any]) -> dpa.DpEvent:
    """The event that `to_json` described."""
    cls, names = _FIELDS[body["type"]]
    return cls(*[_parse(body[name]) for name in names])


def is_written(value: Any) -> bool:
    """Whether it is what `to_json` writes: no further field, and numbers where numbers stand."""
    try:
        return bool(to_json(from_json(value)) == value) and _has_numbers(value)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return False


def _has_numbers(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_has_numbers, value))
    if isinstance(value, Mapping):
        return all(_has_numbers(item) for name, item in value.items() if name != "type")
    return is_number(value)


def _value(field: Any) -> Any:
    if isinstance(field, dpa.DpEvent):
        return to_json(field)
    if isinstance(field, (list, tuple)):
        return [_value(item) for item in field]
    return field


def _parse(field: Any) -> Any:
    if isinstance(field, Mapping):
        return from_json(field)
    if isinstance(field, list):
        return [_parse(item) for item in field]
    return field


for _cls, _names in [
    (dpa.NoOpDpEvent, ()),
    (dpa.NonPrivateDpEvent, ()),
    (dpa.GaussianDpEvent, ("noise_multiplier",)),
    (dpa.LaplaceDpEvent, ("noise_multiplier",)),
    (dpa.ZCDpEvent, ("rho", "xi")),
    (dpa.PoissonSampledDpEvent, ("sampling_probability", "event")),
    (dpa.SelfComposedDpEvent, ("event", "count")),
    (dpa.ComposedDpEvent, ("events",)),
    (DiscreteGaussianDpEvent, ("sigma",)),
]:
    _FIELDS[_cls.__name__] = (_cls, _names)
