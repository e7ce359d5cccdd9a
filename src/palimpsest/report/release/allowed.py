"""Selects the parts of a document that may leave: the fields named by a form that is written here, and nothing else.

Guarantee: `copy_fields` copies no field that its shape does not name. `copy_publishable` copies nothing of a document
that does not itself say that it may be published, nor of a part that says it may not. Fields without a name here stay.
"""

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from palimpsest.errors import DataError
from palimpsest.workspace import PUBLISHABLE, Zone

_SHOWN = (PUBLISHABLE, Zone.DP, Zone.PUBLIC)
_LONGEST = 120  # characters of a word: names and short phrases, never a row


class _Leaf:
    """A single value."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def allows(self, value: Any) -> bool:
        """Tell whether the value has the form: a number or a truth value, or one short line; None is either."""
        if value is None:
            return True
        if self.kind == "number":
            return isinstance(value, (bool, int)) or (isinstance(value, float) and not math.isnan(value))
        return _is_word(value)


_NUMBER, _WORD = _Leaf("number"), _Leaf("word")
Shape: TypeAlias = "_Leaf | dict[str, Shape] | list[Shape] | tuple[Shape, ...]"
"""A leaf; a mapping by name, whose name `*` stands for all others; a list of one shape; any one of several shapes."""

_EVENT: dict[str, Any] = {}
_EVENT |= {"*": (_NUMBER, _WORD, _EVENT, [_EVENT])}
_QUERY: Shape = {
    "name": _WORD, "model": _WORD, "purpose": _WORD, "charge": _WORD, "state": _WORD, "own_delta": _NUMBER,
    "event": _EVENT, "partition": [_WORD], "versions": {"*": _NUMBER},
}  # fmt: skip
RECEIPT: Shape = {
    "variant": _WORD, "model": _WORD, "stage": _WORD, "method": _WORD, "purpose": _WORD, "asset": _WORD, "unit": _WORD,
    "adjacency": _WORD, "accountant": _WORD, "epsilon_target": _NUMBER, "delta": _NUMBER, "epsilon": _NUMBER,
    "epsilon_rdp": _NUMBER, "noise_fixed": _NUMBER, "run": _NUMBER, "queries": [_QUERY],
    "group": [{"k": _NUMBER, "epsilon": _NUMBER}], "curve": {"alpha": [_NUMBER], "beta": [_NUMBER]},
    "plan": {"*": (_NUMBER, _WORD)}, "assumptions": [_WORD],
}  # fmt: skip
GENERATION: Shape = {"drawn": _NUMBER, "rows": _NUMBER, "removed": {"*": _NUMBER}}
SCORES: Shape = {
    "rows": {"*": _NUMBER}, "test_rows": {"*": _NUMBER},
    "variants": {"*": {"*": {"accuracy": _NUMBER, "low": _NUMBER, "high": _NUMBER}}},
}  # fmt: skip
_TRIAL: dict[str, Shape] = {
    "claim": _NUMBER, "delta": _NUMBER, "canaries": _NUMBER, "guesses": _NUMBER, "correct": _NUMBER,
    "epsilon_lower": _NUMBER, "lower": _NUMBER, "eps_max": _NUMBER,
}  # fmt: skip
TWINS: Shape = {
    "method": _WORD, "palimpsest": _WORD, "versions": {"*": _NUMBER}, "test": _WORD, "alpha": _NUMBER, "verdict": _WORD,
    **_TRIAL,
    "twins": [{"fault": _WORD, "caught": _NUMBER, **_TRIAL}],
}  # fmt: skip
BOOKS: Shape = {
    "asset": _WORD, "unit": _WORD, "delta": _NUMBER, "cap_epsilon": _NUMBER, "spent_epsilon": _NUMBER,
    "left_epsilon": _NUMBER, "shown_head": _WORD, "verified": _NUMBER,
}  # fmt: skip


def copy_publishable(document: Mapping[str, Any] | None, shape: Shape, name: str) -> Any:
    """Copy the named fields of a measurement that says that it may be published; None for any other.

    Raises:
        DataError: a field that may leave has another form than its shape.
    """
    if document is None or document.get("zone") not in _SHOWN:
        return None
    return copy_fields(document, shape, name)


def copy_fields(value: Any, shape: Shape, name: str) -> Any:
    """Copy only the fields of `shape`, leaving out the missing ones.

    Raises:
        DataError: a field has another form; the message names it and not what it holds.
    """
    if isinstance(shape, tuple):
        fitting = [one for one in shape if _fits(value, one)]
        return copy_fields(value, fitting[0] if fitting else shape[0], name)
    if not _fits(value, shape):
        raise DataError(f"{name} has not the form that may be published.", "Run the stage that writes it again.")
    if value is None or isinstance(shape, _Leaf):
        return value
    if isinstance(shape, list):
        return [copy_fields(item, shape[0], name) for item in value]
    fields = {key: shape.get(key, shape.get("*")) for key in value}
    return {
        key: copy_fields(value[key], field, f"{name}.{key}")
        for key, field in fields.items()
        if field and not _is_kept(value[key])
    }


def _fits(value: Any, shape: Shape) -> bool:
    if isinstance(shape, _Leaf):
        return shape.allows(value)
    if value is None or isinstance(shape, tuple):
        return True
    if isinstance(shape, list):
        return isinstance(value, (list, tuple))
    return isinstance(value, Mapping) and all(map(_is_word, value))


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST and value.isprintable()


def _is_kept(value: Any) -> bool:
    """Tell whether a part of a document says of itself that it stays."""
    return isinstance(value, Mapping) and "zone" in value and value["zone"] not in _SHOWN
