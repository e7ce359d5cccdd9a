"""Queries of disjoint parts of a data set, composed: in parallel inside one scheme, one after the other otherwise."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import dp_accounting as dpa

from palimpsest.privacy import events

Cell: TypeAlias = tuple[str, str]  # (scheme, cell); a scheme says which cell all rows of a unit of privacy lie in
Term: TypeAlias = tuple[dpa.DpEvent, Cell | None]  # None: asked of the whole data set


def composed(terms: Iterable[Term]) -> dpa.DpEvent:
    """What all of these queries do to any one unit of privacy, as one event.

    Guarantee: the event covers every unit, a record or a person with all their rows. Among its parts are, as often as
    they were asked, all queries of the cell that the unit lies in, whichever that is, and all that were asked of the
    whole data set. A person whose rows lay in several cells would not be covered.
    """
    counts = worst_counts(terms)
    return dpa.ComposedDpEvent([_repeated(json.loads(body), count) for body, count in counts.items()])


def worst_counts(terms: Iterable[Term]) -> Counter[str]:
    """How often each event, in its JSON form, may have met one unit; cells of one scheme compose in parallel.

    A unit lies in one cell of a scheme, so a scheme costs at most, for each event, the largest number of times that
    any one cell asked it.
    """
    whole: Counter[str] = Counter()
    schemes: dict[str, dict[str, Counter[str]]] = {}
    for event, cell in terms:
        counts = whole if cell is None else schemes.setdefault(cell[0], {}).setdefault(cell[1], Counter())
        counts[json.dumps(events.to_json(event))] += 1
    for cells in schemes.values():
        worst: Counter[str] = Counter()
        for counts in cells.values():
            worst |= counts
        whole += worst
    return whole


def _repeated(body: Mapping[str, Any], count: int) -> dpa.DpEvent:
    event = events.from_json(body)
    return event if count == 1 else dpa.SelfComposedDpEvent(event, count)
