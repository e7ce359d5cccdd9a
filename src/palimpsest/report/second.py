"""The second accountant's opinion on a receipt: its own code, its own error bound."""

from collections.abc import Mapping
from typing import Any

from palimpsest.privacy import composition, events, fourier


def second_opinions(receipts: Mapping[str, Mapping[str, Any]]) -> dict[str, float | None]:
    """Variant -> the upper end of epsilon by the Fourier accountant; None where it does not take a mechanism."""
    return {name: _opinion(receipt) for name, receipt in receipts.items()}


def _opinion(receipt: Mapping[str, Any]) -> float | None:
    """Recomputed from the receipt's own events; disjoint parts of the data set compose in parallel."""
    if receipt["epsilon"] is None:
        return None
    queries = receipt["queries"]
    beside = sum(query.get("own_delta", 0.0) for query in queries)
    terms = [(events.from_json(query["event"]), tuple(query["partition"] or ()) or None) for query in queries]
    found = fourier.epsilon(composition.composed(terms), receipt["delta"] - beside)
    return None if found is None else found.high
