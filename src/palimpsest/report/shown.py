"""Rows as pages show them."""

from collections.abc import Sequence
from dataclasses import replace

from palimpsest.records.personal import personal
from palimpsest.records.picked import picked
from palimpsest.records.record import Record

_EACH, _SPARE = 2, 4  # rows of a label on the card, and those looked at for them
_MOST = 12
_LONGEST = 400  # characters of a row on the card
# Control characters that would steer a terminal where a row is pasted -> a visible character in their place.
_STEERING = dict.fromkeys([*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0)], "\N{REPLACEMENT CHARACTER}")


def visible(text: str) -> str:
    """Replace control characters that would steer a terminal by visible ones; tabs and line ends stay.

    >>> visible("red \\x1b[31m") == "red \\N{REPLACEMENT CHARACTER}[31m"
    True
    """
    return text.translate(_STEERING)


def few(records: Sequence[Record], *, by_label: bool, seed: int) -> list[Record]:
    """Select some rows of a variant for the card: at most 2 of each label and 12 in all, long ones cut.

    None of them looks like a way to reach one person: a card may be shown before a release was checked for that.
    """
    each = _EACH if by_label else _MOST // 2
    usable = [row for row in picked(records, _SPARE * each, by_label=by_label, seed=seed) if not personal(row)]
    chosen = picked(usable, each, by_label=by_label, seed=seed)[:_MOST]
    return [replace(row, text=_cut(visible(row.text)), label=row.label and _cut(visible(row.label))) for row in chosen]


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
