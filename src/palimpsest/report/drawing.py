"""Shared parts of all charts: looks, scales, and tooltips.

Every series differs in shape or dash as well as in colour, and nothing that is drawn in text has a fixed colour, so
that the page's theme (light, dark, print) decides it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import altair as alt

from palimpsest.report.theme import DASHES, GREY, SHAPES, colors, looks

Channel = TypeVar("Channel")
Rows = list[dict[str, Any]]
Chart = alt.Chart | alt.LayerChart | alt.FacetChart

_DECADES = (1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0)
NEAR = alt.Scale(zero=False)
ROW = 30  # height of one row of a horizontal chart, in pixels


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


def keyed(channel: Callable[..., Channel], column: str, values: Mapping[Any, Any], **more: Any) -> Channel:
    """Return a channel (colour, shape, dash) that tells the values of a column apart: value -> how it looks."""
    scale = alt.Scale(domain=list(values), range=list(values.values()))
    return channel(f"{column}:N", title=None, scale=scale, **more)


def by_color(rows: Rows, column: str = "variant") -> alt.Color:
    """Return a colour for each variant, the same in every chart."""
    return keyed(alt.Color, column, colors(names(rows, column)), legend=alt.Legend(symbolOpacity=1))


def by_shape(rows: Rows, column: str = "variant") -> alt.Shape:
    """Return a shape for each variant."""
    return keyed(alt.Shape, column, looks(names(rows, column), SHAPES))


def by_dash(rows: Rows, column: str = "variant") -> alt.StrokeDash:
    """Return a dash for each variant, the first one solid."""
    return keyed(alt.StrokeDash, column, looks(names(rows, column), DASHES))


def by_line(rows: Rows, column: str, **axis: Any) -> alt.Y:
    """Return an axis with a line of a horizontal chart for each value of a column, in their order."""
    return alt.Y(f"{column}:N", title=None, sort=names(rows, column), axis=alt.Axis(**(axis or {"labelLimit": 150})))


def height_of(rows: Rows, column: str, each: int = ROW) -> int:
    """Return the height of a chart with a line for each value of a column."""
    return each * len(names(rows, column)) + 20


def level(value: float, channel: str = "y") -> alt.Chart:
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
        y=by_line(rows, line, offset=12),
        color=keyed(alt.Color, "kind", {kind: color for kind, (color, _) in kinds.items()}),
        shape=keyed(alt.Shape, "kind", {kind: shape for kind, (_, shape) in kinds.items()}),
        tooltip=tips(f"{line}:N", "kind:N", *told, "epsilon:Q"),
    )
    return points(base, 130)


def differences(rows: Rows, what: str, title: str) -> Chart:
    """Draw members less a control with intervals, a line at no difference, and a tick at each proved cap."""
    variants, kinds = names(rows, "variant"), names(rows, what)
    value = "risk" if "risk" in rows[0] else "value"
    place: dict[str, Any] = {"yOffset": alt.YOffset("variant:N", sort=variants), "color": by_color(rows)}
    base = alt.Chart(data(rows)).encode(
        y=by_line(rows, what, labelLimit=200),
        tooltip=tips("variant:N", f"{what}:N", f"{value}:Q", "low:Q", "high:Q"),
        **place,
    )
    low = alt.X("low:Q", title=title, axis=alt.Axis(format="+.1%"))
    layers = [level(0.0, "x"), *intervals(base, low, value, 80, shape=by_shape(rows))]
    if capped := [row for row in rows if row.get("cap") is not None]:
        ticks = alt.Chart(data(capped)).mark_tick(thickness=3, size=12)
        y, tooltip = alt.Y(f"{what}:N", sort=kinds), tips("variant:N", f"{what}:N", "cap:Q")
        layers.append(ticks.encode(x="cap:Q", y=y, tooltip=tooltip, **place))
    return finish(alt.layer(*layers), max(2 * ROW, 12 * len(variants)) * len(kinds) + 20)


def listed(start: str, rows: Rows, *keys: str, value: str) -> str:
    """Describe a chart's values for those who cannot see it."""
    items = [f"{' '.join(_word(row[key]) for key in keys)} {row[value]:.3g}" for row in rows]
    return f"{start}: {'; '.join(items)}."


def _word(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def charted(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
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
