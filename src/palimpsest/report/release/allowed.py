"""What of a document may leave: named fields of a form that is written here, and nothing else.

Guarantee: `picked` copies no field that its shape does not name, and `publishable` nothing of a document that does not
itself say that it may be published, or of a part that says it may not. What is not named stays.
"""

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from palimpsest.errors import DataError
from palimpsest.workspace import PUBLISHABLE, Zone

SHOWN = (PUBLISHABLE, Zone.DP, Zone.PUBLIC)
_LONGEST = 120  # characters of a word: names and short phrases, never a row


class Leaf:
    """A single value."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def allows(self, value: Any) -> bool:
        """Whether the value has the form: a number or a truth value, or one short line; None is either."""
        if value is None:
            return True
        if self.kind == "number":
            return isinstance(value, (bool, int)) or (isinstance(value, float) and not math.isnan(value))
        return _is_word(value)


NUMBER, WORD = Leaf("number"), Leaf("word")
Shape: TypeAlias = "Leaf | dict[str, Shape] | list[Shape] | tuple[Shape, ...]"
"""A leaf; a mapping by name, whose name `*` stands for all others; a list of one shape; any one of several shapes."""

_EVENT: dict[str, Any] = {}
_EVENT |= {"*": (NUMBER, WORD, _EVENT, [_EVENT])}
QUERY: Shape = {
    "name": WORD, "model": WORD, "purpose": WORD, "charge": WORD, "state": WORD, "own_delta": NUMBER,
    "event": _EVENT, "partition": [WORD], "versions": {"*": NUMBER},
}  # fmt: skip
RECEIPT: Shape = {
    "variant": WORD, "model": WORD, "stage": WORD, "method": WORD, "purpose": WORD, "asset": WORD, "unit": WORD,
    "adjacency": WORD, "accountant": WORD, "epsilon_target": NUMBER, "delta": NUMBER, "epsilon": NUMBER,
    "epsilon_rdp": NUMBER, "noise_fixed": NUMBER, "run": NUMBER, "queries": [QUERY],
    "group": [{"k": NUMBER, "epsilon": NUMBER}], "curve": {"alpha": [NUMBER], "beta": [NUMBER]},
    "plan": {"*": (NUMBER, WORD)}, "assumptions": [WORD],
}  # fmt: skip
GENERATION: Shape = {"drawn": NUMBER, "rows": NUMBER, "removed": {"*": NUMBER}}
SCORES: Shape = {
    "rows": {"*": NUMBER}, "test_rows": {"*": NUMBER},
    "variants": {"*": {"*": {"accuracy": NUMBER, "low": NUMBER, "high": NUMBER}}},
}  # fmt: skip
_TRIAL: dict[str, Shape] = {
    "claim": NUMBER, "delta": NUMBER, "canaries": NUMBER, "guesses": NUMBER, "correct": NUMBER,
    "epsilon_lower": NUMBER, "lower": NUMBER, "eps_max": NUMBER,
}  # fmt: skip
TWINS: Shape = {
    "method": WORD, "palimpsest": WORD, "versions": {"*": NUMBER}, "test": WORD, "alpha": NUMBER, "verdict": WORD,
    **_TRIAL,
    "twins": [{"fault": WORD, "caught": NUMBER, **_TRIAL}],
}  # fmt: skip
BOOKS: Shape = {
    "asset": WORD, "unit": WORD, "delta": NUMBER, "cap_epsilon": NUMBER, "spent_epsilon": NUMBER,
    "left_epsilon": NUMBER, "shown_head": WORD, "verified": NUMBER,
}  # fmt: skip


def publishable(document: Mapping[str, Any] | None, shape: Shape, name: str) -> Any:
    """The named fields of a measurement that says that it may be published; None of any other.

    Raises:
        DataError: a field that may leave has another form than its shape.
    """
    if document is None or document.get("zone") not in SHOWN:
        return None
    return picked(document, shape, name)


def picked(value: Any, shape: Shape, name: str) -> Any:
    """A copy that has the fields of `shape` alone, those that are missing left out.

    Raises:
        DataError: a field has another form; the message names it and not what it holds.
    """
    if isinstance(shape, tuple):
        fitting = [one for one in shape if _fits(value, one)]
        return picked(value, fitting[0] if fitting else shape[0], name)
    if not _fits(value, shape):
        raise DataError(f"{name} has not the form that may be published.", "Run the stage that writes it again.")
    if value is None or isinstance(shape, Leaf):
        return value
    if isinstance(shape, list):
        return [picked(item, shape[0], name) for item in value]
    fields = {key: shape.get(key, shape.get("*")) for key in value}
    return {
        key: picked(value[key], field, f"{name}.{key}")
        for key, field in fields.items()
        if field and not _kept(value[key])
    }


def _fits(value: Any, shape: Shape) -> bool:
    if isinstance(shape, Leaf):
        return shape.allows(value)
    if value is None or isinstance(shape, tuple):
        return True
    if isinstance(shape, list):
        return isinstance(value, (list, tuple))
    return isinstance(value, Mapping) and all(map(_is_word, value))


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST and value.isprintable()


def _kept(value: Any) -> bool:
    """Whether a part of a document says of itself that it stays."""
    return isinstance(value, Mapping) and "zone" in value and value["zone"] not in SHOWN
