"""The second accountant's opinion on a receipt: its own code, its own error bound."""

import math
from collections.abc import Mapping
from typing import Any

from palimpsest.privacy import composition, events, fourier

_WIDE, _WIDE_BESIDE = 0.015, 5e-5  # of a bracket: its upper end alone would be taken for a contradiction beyond that


def second_opinions(receipts: Mapping[str, Mapping[str, Any]]) -> dict[str, fourier.Bracket | None]:
    """Variant -> both ends of epsilon by the Fourier accountant; None where it does not take a mechanism, or its ends
    are too far apart to say anything. They say something, however far apart, where the lower one is above the stated
    epsilon and the upper one finite."""
    return {name: _opinion(receipt) for name, receipt in receipts.items()}


def _opinion(receipt: Mapping[str, Any]) -> fourier.Bracket | None:
    """Recomputed from the receipt's own events; disjoint parts of the data set compose in parallel."""
    if receipt["epsilon"] is None:
        return None
    queries = receipt["queries"]
    beside = sum(query.get("own_delta", 0.0) for query in queries)
    terms = [(events.from_json(query["event"]), tuple(query["partition"] or ()) or None) for query in queries]
    found = fourier.epsilon(composition.composed(terms), receipt["delta"] - beside)
    if found is None or math.isinf(found.high):
        return None
    wide = found.high - found.low > _WIDE * found.high + _WIDE_BESIDE
    return None if wide and found.low <= receipt["epsilon"] else found
