"""What all charts share: their looks, their scales, and their words under the pointer.

Every series differs in shape or dash as well as in colour, and nothing that is drawn in text has a fixed colour, so
that the page's theme (light, dark, print) decides it.
"""

from collections.abc import Callable
from typing import Any

import altair as alt

from palimpsest.report.theme import GREY, SHAPES, colors, cycle

Rows = list[dict[str, Any]]
Chart = alt.Chart | alt.LayerChart | alt.FacetChart

DECADES = (1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0)
NEAR = alt.Scale(zero=False)
ROW = 30  # height of one row of a horizontal chart, in pixels


def data(rows: Rows) -> alt.InlineData:
    """The rows, inside the drawing."""
    return alt.InlineData(values=rows)


def finish(chart: Chart, height: int, columns: int = 4) -> Chart:
    """As wide as the page gives, with the legend where a phone has room for it."""
    sized = chart.properties(width="container", height=height)
    return sized.configure_legend(orient="bottom", direction="horizontal", columns=columns, labelLimit=260)


def names(rows: Rows, column: str) -> list[str]:
    """What stands in a column, each once, in its order."""
    return list(dict.fromkeys(row[column] for row in rows))


def split(rows: Rows, keep: Callable[[dict[str, Any]], bool]) -> tuple[Rows, Rows]:
    """The rows that are kept, and the others."""
    return [row for row in rows if keep(row)], [row for row in rows if not keep(row)]


def tips(*fields: str) -> list[alt.Tooltip]:
    """What is shown under the pointer."""
    return [alt.Tooltip(field, format=".3g") if field.endswith(":Q") else alt.Tooltip(field) for field in fields]


def by_color(variants: list[str], column: str = "variant") -> alt.Color:
    """A colour for each variant, the same in every chart."""
    key = alt.Legend(symbolOpacity=1)
    return alt.Color(f"{column}:N", title=None, legend=key, scale=alt.Scale(domain=variants, range=colors(variants)))


def by_shape(variants: list[str], column: str = "variant") -> alt.Shape:
    """A shape for each variant."""
    return alt.Shape(f"{column}:N", title=None, scale=alt.Scale(domain=variants, range=cycle(variants, SHAPES)))


def level(value: float) -> Chart:
    """A dashed line across the chart."""
    return alt.Chart(data([{"level": value}])).mark_rule(color=GREY, strokeDash=[4, 3]).encode(y="level:Q")


def rates(floor: float) -> alt.Axis:
    """The ticks of a logarithmic axis of rates, from the smallest rate on."""
    return alt.Axis(format=".3~%", values=[rate for rate in DECADES if rate >= floor])


def differences(rows: Rows, what: str, title: str) -> Chart:
    """Members less a control, with intervals, and the line of none; a tick where a proved cap lies."""
    variants, kinds = names(rows, "variant"), names(rows, what)
    value = "risk" if "risk" in rows[0] else "value"
    base = alt.Chart(data(rows)).encode(
        y=alt.Y(f"{what}:N", title=None, sort=kinds, axis=alt.Axis(labelLimit=200)),
        yOffset=alt.YOffset("variant:N", sort=variants),
        color=by_color(variants),
        tooltip=tips("variant:N", f"{what}:N", f"{value}:Q", "low:Q", "high:Q"),
    )
    none = alt.Chart(data([{"level": 0.0}])).mark_rule(color=GREY, strokeDash=[4, 3]).encode(x="level:Q")
    low = alt.X("low:Q", title=title, axis=alt.Axis(format="+.1%"))
    spread = base.mark_rule(strokeWidth=2).encode(x=low, x2="high:Q")
    dots = base.mark_point(filled=True, size=80, opacity=1).encode(x=f"{value}:Q", shape=by_shape(variants))
    capped = [row for row in rows if row.get("cap") is not None]
    caps = alt.Chart(data(capped)).mark_tick(thickness=3, size=12).encode(
        x="cap:Q", y=alt.Y(f"{what}:N", sort=kinds), yOffset=alt.YOffset("variant:N", sort=variants),
        color=by_color(variants), tooltip=tips("variant:N", f"{what}:N", "cap:Q"),
    )  # fmt: skip
    layers = [none, spread, dots, *([caps] if capped else [])]
    return finish(alt.layer(*layers), max(2 * ROW, 12 * len(variants)) * len(kinds) + 20)


def listed(start: str, rows: Rows, *keys: str, value: str) -> str:
    """What a chart shows, for those who cannot see it."""
    items = [f"{' '.join(_word(row[key]) for key in keys)} {row[value]:.3g}" for row in rows]
    return f"{start}: {'; '.join(items)}."


def _word(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
