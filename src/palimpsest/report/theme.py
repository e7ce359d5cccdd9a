"""Colours of the figures: told apart with any colour vision, and >= 3:1 against white paper and the dark page."""

from typing import TypeVar

from palimpsest.workspace import Zone

Value = TypeVar("Value")

BLUE, ORANGE, GREEN, PURPLE, GREY, PINK = "#2b83d6", "#d66a0a", "#12946f", "#a05fd0", "#7d8590", "#d8508c"

SERIES = (BLUE, ORANGE, PURPLE, PINK)
BASELINES = {"real": GREEN, "public_only": GREY}
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
ZONES = {Zone.PRIVATE: ORANGE, Zone.DP: BLUE, Zone.PUBLIC: GREEN}
CORPORA = {"train": ORANGE, "holdout": BLUE, "public": GREY}


def cycle(names: list[str], values: tuple[Value, ...]) -> list[Value]:
    """One value per name, starting again when they run out.

    >>> cycle(["a", "b", "c"], ("x", "y"))
    ['x', 'y', 'x']
    """
    return [values[index % len(values)] for index in range(len(names))]


def colors(names: list[str]) -> list[str]:
    """One colour per variant or method; `real` and `public_only` keep theirs in every figure.

    >>> colors(["dp3", "real"]) == [BLUE, GREEN]
    True
    """
    own = [name for name in names if name not in BASELINES]
    found = dict(zip(own, cycle(own, SERIES), strict=True)) | BASELINES
    return [found[name] for name in names]


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
