"""Colours of the figures: told apart with any colour vision, and >= 3:1 against white paper and the dark page."""

from collections.abc import Iterable
from itertools import cycle
from typing import TypeVar

from palimpsest.workspace import PUBLIC_LM, PUBLIC_ONLY, REAL, Zone

Value = TypeVar("Value")

BLUE, ORANGE, GREEN, PURPLE, GREY, _PINK = "#2b83d6", "#d66a0a", "#12946f", "#a05fd0", "#7d8590", "#d8508c"
_BROWN = "#9c6b4a"

SERIES = (BLUE, ORANGE, PURPLE, _PINK)
BASELINES = {REAL: GREEN, PUBLIC_ONLY: GREY, PUBLIC_LM: _BROWN}
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2], [12, 3])  # the count shares no factor with the number of colours
ZONES = {Zone.PRIVATE: ORANGE, Zone.DP: BLUE, Zone.PUBLIC: GREEN}
CORPORA = {"all train": PURPLE, "train": ORANGE, "holdout": BLUE, "public": GREY}


def looks(names: Iterable[str], values: Iterable[Value]) -> dict[str, Value]:
    """Return name -> its value, starting again when the values run out.

    >>> looks(["a", "b", "c"], ("x", "y"))
    {'a': 'x', 'b': 'y', 'c': 'x'}
    """
    return dict(zip(names, cycle(values), strict=False))


def colors(names: list[str]) -> dict[str, str]:
    """Return variant or method -> its colour; baselines keep theirs in every figure.

    >>> colors(["dp3", "real"]) == {"dp3": BLUE, "real": GREEN}
    True
    """
    known = looks([name for name in names if name not in BASELINES], SERIES) | BASELINES
    return {name: known[name] for name in names}


_SANS = 'system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", "DejaVu Sans", sans-serif'

# Text and lines take the page's own colours, so that dark mode and print need no second drawing.
PAGE_CONFIG = {
    "background": "transparent",
    "font": _SANS,
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--soft)",
        "titleColor": "var(--soft)",
        "titleFontWeight": "normal",
        "titleFontSize": 12,
        "titlePadding": 8,
        "labelFontSize": 11.5,
        "labelPadding": 5,
        "gridColor": "var(--line)",
        "domainColor": "var(--rule)",
        "tickColor": "var(--rule)",
        "domain": False,
        "ticks": False,
    },
    "axisX": {"domain": True, "grid": False},
    "axisQuantitative": {"tickCount": 6},
    "legend": {
        "labelColor": "var(--ink)",
        "titleColor": "var(--soft)",
        "labelFontSize": 12,
        "symbolSize": 90,
        "symbolStrokeWidth": 2,
        "columnPadding": 18,
        "offset": 12,
    },
    "text": {"color": "var(--ink)"},
    "rule": {"color": "var(--soft)"},
}
