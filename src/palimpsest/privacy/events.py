"""Privacy events: `dp_accounting`'s own, those it lacks, their JSON form, and picks by Gumbel noise."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import attr
import dp_accounting.dp_event as dpa

from palimpsest import validate

Cell: TypeAlias = tuple[str, str]  # (scheme, cell); a scheme says which cell all rows of a unit of privacy lie in
Term: TypeAlias = tuple[dpa.DpEvent, Cell | None]  # None: asked of the whole data set
_MARGIN = 1.0 + 2.0**-40  # of a scale, so that rounding never makes it cost more than rho


@attr.define(frozen=True, slots=True)
class DiscreteGaussianDpEvent(dpa.DpEvent):
    """Integer noise with P(k) proportional to exp(-k^2 / 2 sigma^2), added to integer counts.

    Attributes:
        sigma: the scale, in counts.

    One record moves one count by one (sensitivity 1). Satisfies 1/(2 sigma^2)-zCDP (Canonne, Kamath, Steinke 2020,
    Theorem 14).
    """

    sigma: float


@attr.define(frozen=True, slots=True)
class BoundedRangeDpEvent(dpa.DpEvent):
    """One choice whose privacy losses on neighbours lie in an interval of this length, wherever that interval lies.

    Attributes:
        range: eta, nats. Scores that move by at most `s` and a draw in proportion to exp(score / t) have 2 s / t.

    Satisfies eta^2 / 8-zCDP (Cesar and Rogers 2021, Lemma 3.2).
    """

    range: float


_EVENTS = {
    cls.__name__: cls
    for cls in (
        dpa.NoOpDpEvent,
        dpa.NonPrivateDpEvent,
        dpa.GaussianDpEvent,
        dpa.LaplaceDpEvent,
        dpa.ZCDpEvent,
        dpa.PoissonSampledDpEvent,
        dpa.SelfComposedDpEvent,
        dpa.ComposedDpEvent,
        DiscreteGaussianDpEvent,
        BoundedRangeDpEvent,
    )
}


def to_json(event: dpa.DpEvent) -> dict[str, Any]:
    """Return a JSON-able description of an event, the inverse of `from_json`."""
    kind = type(event).__name__
    if kind not in _EVENTS:
        raise ValueError(f"no JSON form for {kind}")
    return {"type": kind, **{field.name: _value(getattr(event, field.name)) for field in attr.fields(_EVENTS[kind])}}


def from_json(body: Mapping[str, Any]) -> dpa.DpEvent:
    """Return the event that `to_json` described."""
    cls = _EVENTS[body["type"]]
    return cls(*[_parse(body[field.name]) for field in attr.fields(cls)])


def parse_strictly(body: Any) -> dpa.DpEvent:
    """Read strictly the event that `to_json` described.

    Raises:
        ValueError: it is not what `to_json` writes of a possible event: a further field, something else where a
            number belongs, a count below one, a scale that is not above zero.
    """
    try:
        event = from_json(body)
        if to_json(event) == body and _has_numbers(body) and is_possible(event):
            return event
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        pass
    raise ValueError("it is not the JSON form of an event")


def is_possible(event: Any) -> bool:
    """Return whether a mechanism can have each part of an event: no part takes back what another part costs."""
    if isinstance(event, dpa.ComposedDpEvent):
        return isinstance(event.events, (list, tuple)) and all(map(is_possible, event.events))
    if isinstance(event, dpa.SelfComposedDpEvent):
        return is_count(event.count) and is_possible(event.event)
    if isinstance(event, dpa.PoissonSampledDpEvent):
        return _is_within(event.sampling_probability, 0.0, 1.0) and is_possible(event.event)
    if isinstance(event, (dpa.GaussianDpEvent, dpa.LaplaceDpEvent)):
        return _is_within(event.noise_multiplier, math.ulp(0.0), math.inf)
    if isinstance(event, DiscreteGaussianDpEvent):
        return _is_within(event.sigma, math.ulp(0.0), math.inf)
    if isinstance(event, BoundedRangeDpEvent):
        return _is_within(event.range, 0.0, math.inf)
    if isinstance(event, dpa.ZCDpEvent):
        return _is_within(event.rho, 0.0, math.inf) and _is_within(event.xi, 0.0, math.inf)
    return isinstance(event, (dpa.NoOpDpEvent, dpa.NonPrivateDpEvent))


def is_count(value: Any) -> bool:
    """Return whether the value is a whole number of at least one."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_within(value: Any, low: float, high: float) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value) and low <= value <= high


def _has_numbers(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_has_numbers, value))
    if isinstance(value, Mapping):
        return all(_has_numbers(item) for name, item in value.items() if name != "type")
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


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


def compose_terms(terms: Iterable[Term]) -> dpa.DpEvent:
    """Return the effect of all of these queries on any one unit of privacy, as one event.

    Guarantee: the event covers every unit, a record or a person with all their rows. Among its parts are, as often as
    they were asked, all queries of the cell that the unit lies in, whichever that is, and all that were asked of the
    whole data set. A person whose rows lay in several cells would not be covered.
    """
    counts = worst_counts(terms)
    return dpa.ComposedDpEvent([_repeat_event(json.loads(body), count) for body, count in counts.items()])


def worst_counts(terms: Iterable[Term]) -> Counter[str]:
    """Count how often each event, in its JSON form, may have met one unit; cells of one scheme compose in parallel.

    A unit lies in one cell of a scheme, so for each event a scheme counts at most the largest number of times that any
    one cell asked it.
    """
    whole: Counter[str] = Counter()
    schemes: dict[str, dict[str, Counter[str]]] = {}
    for event, cell in terms:
        counts = whole if cell is None else schemes.setdefault(cell[0], {}).setdefault(cell[1], Counter())
        counts[json.dumps(to_json(event))] += 1
    for cells in schemes.values():
        worst: Counter[str] = Counter()
        for counts in cells.values():
            worst |= counts
        whole += worst
    return whole


def _repeat_event(body: Mapping[str, Any], count: int) -> dpa.DpEvent:
    event = from_json(body)
    return event if count == 1 else dpa.SelfComposedDpEvent(event, count)


def gumbel_scale(picks: int, rho: float) -> float:
    """Return the scale at which `picks` picks cost at most `rho`; 0 where rho is infinite.

    >>> round(gumbel_scale(200, 0.25), 6)
    10.0

    Raises:
        ValueError: if rho is not positive or there is no pick.
    """
    validate.require_positive(picks=picks)
    if not rho > 0:
        raise ValueError(f"rho must be > 0, got {rho!r}")
    return math.sqrt(picks / (8.0 * rho)) * _MARGIN


def gumbel_rho(picks: int, scale: float) -> float:
    """Return the rho of picks at this scale: picks / (8 scale^2); infinite at 0, where the exact best come out."""
    return picks / (8.0 * scale**2) if scale > 0 else math.inf
