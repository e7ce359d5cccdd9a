"""Shared parts of all charts: colours, scales, and tooltips."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle
from typing import Any, TypeVar

import altair as alt

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
_DECADES = (1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0)
NEAR = alt.Scale(zero=False)
ROW = 30  # height of one row of a horizontal chart, in pixels


def assign_looks(names: Iterable[str], values: Iterable[Value]) -> dict[str, Value]:
    """Return name -> its value, starting again when the values run out.

    >>> assign_looks(["a", "b", "c"], ("x", "y"))
    {'a': 'x', 'b': 'y', 'c': 'x'}
    """
    return dict(zip(names, cycle(values), strict=False))


def colors(names: list[str]) -> dict[str, str]:
    """Return variant or method -> its colour; baselines keep theirs in every figure.

    >>> colors(["dp3", "real"]) == {"dp3": BLUE, "real": GREEN}
    True
    """
    known = assign_looks([name for name in names if name not in BASELINES], SERIES) | BASELINES
    return {name: known[name] for name in names}


Channel = TypeVar("Channel")
Rows = list[dict[str, Any]]
Chart = alt.Chart | alt.LayerChart | alt.FacetChart


def data(rows: Rows) -> alt.InlineData:
    """Return the rows as data inside the drawing."""
    return alt.InlineData(values=rows)


def finish(chart: Chart, height: int, columns: int = 4) -> Chart:
    """Make a chart as wide as the page gives, with the legend where a phone has room for it."""
    sized = chart.properties(width="container", height=height)
    return sized.configure_legend(orient="bottom", direction="horizontal", columns=columns, labelLimit=260)


def fields(value: Any, *names: str) -> dict[str, Any]:
    """Return some fields of a value as columns of a row."""
    return {name: getattr(value, name) for name in names}


def names(rows: Rows, column: str) -> list[str]:
    """Return the distinct values of a column, in their order."""
    return list(dict.fromkeys(row[column] for row in rows))


def split(rows: Rows, keep: Callable[[dict[str, Any]], bool]) -> tuple[Rows, Rows]:
    """Return the rows to keep, and the others."""
    return [row for row in rows if keep(row)], [row for row in rows if not keep(row)]


def tips(*fields: str) -> list[alt.Tooltip]:
    """Return the tooltips of a mark."""
    return [alt.Tooltip(field, format=".3g") if field.endswith(":Q") else alt.Tooltip(field) for field in fields]


def make_channel(channel: Callable[..., Channel], column: str, values: Mapping[Any, Any], **more: Any) -> Channel:
    """Return a channel (colour, shape, dash) that tells the values of a column apart: value -> how it looks."""
    scale = alt.Scale(domain=list(values), range=list(values.values()))
    return channel(f"{column}:N", title=None, scale=scale, **more)


def color_channel(rows: Rows, column: str = "variant") -> alt.Color:
    """Return a colour for each variant, the same in every chart."""
    return make_channel(alt.Color, column, colors(names(rows, column)), legend=alt.Legend(symbolOpacity=1))


def shape_channel(rows: Rows, column: str = "variant") -> alt.Shape:
    """Return a shape for each variant."""
    return make_channel(alt.Shape, column, assign_looks(names(rows, column), SHAPES))


def dash_channel(rows: Rows, column: str = "variant") -> alt.StrokeDash:
    """Return a dash for each variant, the first one solid."""
    return make_channel(alt.StrokeDash, column, assign_looks(names(rows, column), DASHES))


def line_axis(rows: Rows, column: str, **axis: Any) -> alt.Y:
    """Return an axis with a line of a horizontal chart for each value of a column, in their order."""
    return alt.Y(f"{column}:N", title=None, sort=names(rows, column), axis=alt.Axis(**(axis or {"labelLimit": 150})))


def height_of(rows: Rows, column: str, each: int = ROW) -> int:
    """Return the height of a chart with a line for each value of a column."""
    return each * len(names(rows, column)) + 20


def draw_level(value: float, channel: str = "y") -> alt.Chart:
    """Draw a dashed line across the chart."""
    place: dict[str, Any] = {channel: "level:Q"}
    return alt.Chart(data([{"level": value}])).mark_rule(color=GREY, strokeDash=[4, 3]).encode(**place)


def points(base: alt.Chart, size: int, **channels: Any) -> alt.Chart:
    """Draw one mark for each row."""
    return base.mark_point(filled=True, size=size, opacity=1).encode(**channels)


def intervals(base: alt.Chart, axis: alt.X | alt.Y, value: str, size: int, **channels: Any) -> list[alt.Chart]:
    """Draw each row's value as a mark on the interval from its `low`, on the given axis, to its `high`."""
    along = "x" if isinstance(axis, alt.X) else "y"
    ends: dict[str, Any] = {along: axis, f"{along}2": "high:Q"}
    return [base.mark_rule(strokeWidth=2).encode(**ends), points(base, size, **{along: f"{value}:Q"}, **channels)]


def log_rates(floor: float, x: str, y: str) -> tuple[alt.X, alt.Y, alt.Scale]:
    """Return the titled axes of a ROC curve, `fpr` and `tpr`, and their scale: logarithmic from `floor` on."""
    scale = alt.Scale(type="log", domain=[floor, 1], nice=False, clamp=True)
    ticks = alt.Axis(format=".3~%", values=[rate for rate in _DECADES if rate >= floor])
    both: dict[str, Any] = {"scale": scale, "axis": ticks}
    return alt.X("fpr:Q", title=f"{x} (log)", **both), alt.Y("tpr:Q", title=f"{y} (log)", **both), scale


def epsilons(rows: Rows, line: str, kinds: Mapping[str, tuple[str, str]], *told: str) -> alt.Chart:
    """Draw epsilons of some kinds, for each value of the column `line`.

    Args:
        kinds: kind -> its colour and its shape.
        told: further columns for the tooltip.
    """
    base = alt.Chart(data(rows)).encode(
        x=alt.X("epsilon:Q", title="ε", scale=alt.Scale(domainMin=0, nice=True)),
        y=line_axis(rows, line, offset=12),
        color=make_channel(alt.Color, "kind", {kind: color for kind, (color, _) in kinds.items()}),
        shape=make_channel(alt.Shape, "kind", {kind: shape for kind, (_, shape) in kinds.items()}),
        tooltip=tips(f"{line}:N", "kind:N", *told, "epsilon:Q"),
    )
    return points(base, 130)


def differences(rows: Rows, what: str, title: str) -> Chart:
    """Draw members less a control with intervals, a line at no difference, and a tick at each proved cap."""
    variants, kinds = names(rows, "variant"), names(rows, what)
    value = "risk" if "risk" in rows[0] else "value"
    place: dict[str, Any] = {"yOffset": alt.YOffset("variant:N", sort=variants), "color": color_channel(rows)}
    base = alt.Chart(data(rows)).encode(
        y=line_axis(rows, what, labelLimit=200),
        tooltip=tips("variant:N", f"{what}:N", f"{value}:Q", "low:Q", "high:Q"),
        **place,
    )
    low = alt.X("low:Q", title=title, axis=alt.Axis(format="+.1%"))
    layers = [draw_level(0.0, "x"), *intervals(base, low, value, 80, shape=shape_channel(rows))]
    if capped := [row for row in rows if row.get("cap") is not None]:
        ticks = alt.Chart(data(capped)).mark_tick(thickness=3, size=12)
        y, tooltip = alt.Y(f"{what}:N", sort=kinds), tips("variant:N", f"{what}:N", "cap:Q")
        layers.append(ticks.encode(x="cap:Q", y=y, tooltip=tooltip, **place))
    return finish(alt.layer(*layers), max(2 * ROW, 12 * len(variants)) * len(kinds) + 20)


def describe_values(start: str, rows: Rows, *keys: str, value: str) -> str:
    """Describe a chart's values for those who cannot see it."""
    items = [f"{' '.join(_word(row[key]) for key in keys)} {row[value]:.3g}" for row in rows]
    return f"{start}: {'; '.join(items)}."


def _word(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def draw_svg(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Draw values with intervals as SVG: a panel for each `data`, a line for each `row`, a colour for each `whose`.

    Args:
        rows: mappings with data, row, whose, value, low and high. Without any the drawing is empty.
    """
    import vl_convert

    if not rows:
        return ""
    base = alt.Chart(alt.InlineData(values=list(rows))).encode(y=alt.Y("row:N", title=None, sort=None))
    points = base.mark_point(size=70, filled=True).encode(
        x=alt.X("value:Q", title=None, scale=alt.Scale(zero=False)),
        color=alt.Color("whose:N", title=None), shape=alt.Shape("whose:N", title=None),
    )  # fmt: skip
    bars = base.mark_rule().encode(x="low:Q", x2="high:Q", color=alt.Color("whose:N", title=None))
    chart = alt.layer(points, bars).properties(width=420).facet(row=alt.Row("data:N", title=None), title=title)
    return vl_convert.vegalite_to_svg(chart.resolve_scale(y="independent").to_json())
