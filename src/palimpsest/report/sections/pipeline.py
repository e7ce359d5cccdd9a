"""The graph of stages with its zones: the figure of the provenance."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from palimpsest.report.drawing import Chart, Rows, data, finish, tips
from palimpsest.report.layout import layered
from palimpsest.report.sections.base import Figure
from palimpsest.report.theme import GREY, ZONES


def nodes(stages: Sequence[Mapping[str, Any]]) -> Rows:
    """name, zone, state, description, needs, x, y: the DAG's nodes where they are drawn."""
    places = layered(stages)
    return [
        {
            "name": stage["name"],
            "zone": stage["zone"],
            "state": stage.get("state", ""),
            "description": stage["desc"],
            "needs": ", ".join(dep for dep in stage["deps"] if dep in places),
            "x": places[stage["name"]][0],
            "y": places[stage["name"]][1],
        }
        for stage in stages
    ]


def edges(stages: Sequence[Mapping[str, Any]]) -> Rows:
    """edge, step, x, y: each arrow as four points of a smooth curve."""
    places = layered(stages)
    rows: Rows = []
    for stage in stages:
        for dep in (dep for dep in stage["deps"] if dep in places):
            (left, top), (right, bottom) = places[dep], places[stage["name"]]
            points = [(left, top), (left + 0.5, top), (right - 0.5, bottom), (right, bottom)]
            rows += [{"edge": f"{dep} > {stage['name']}", "step": i, "x": x, "y": y} for i, (x, y) in enumerate(points)]
    return rows


def chart(nodes: Rows, edges: Rows) -> Chart:
    """The stages from left to right, coloured by what they may see."""
    x = alt.X("x:Q", axis=None, scale=_padded(nodes, "x", 0.5))
    y = alt.Y("y:Q", axis=None, scale=_padded(nodes, "y", 0.6))
    arrows = (
        alt.Chart(data(edges))
        .mark_line(interpolate="basis", strokeWidth=1.2, opacity=0.55, color=GREY)
        .encode(x=x, y=y, detail="edge:N", order="step:O")
    )
    zones = list(ZONES)
    base = alt.Chart(data(nodes)).encode(x=x, y=y)
    dots = base.mark_point(filled=True, size=190, opacity=1).encode(
        color=alt.Color("zone:N", title=None, scale=alt.Scale(domain=zones, range=list(ZONES.values()))),
        shape=alt.Shape("zone:N", title=None, scale=alt.Scale(domain=zones, range=["square", "circle", "triangle-up"])),
        tooltip=tips("name:N", "zone:N", "state:N", "description:N", "needs:N"),
    )
    names = base.mark_text(dy=18, fontSize=11, limit=130).encode(text="name:N")
    rows = max((row["y"] for row in nodes), default=0.0) * 2 + 1
    return finish(alt.layer(arrows, dots, names), int(46 * rows + 40))


def _padded(rows: Rows, column: str, room: float) -> alt.Scale:
    values = [row[column] for row in rows]
    return alt.Scale(domain=[min(values) - room, max(values) + room], nice=False, zero=False)


def figure(stages: Sequence[Mapping[str, Any]]) -> Figure:
    """The DAG with its zones."""
    drawn = nodes(stages)
    table = [{key: row[key] for key in ("name", "zone", "description", "needs")} for row in drawn]
    counts = ", ".join(f"{sum(row['zone'] == zone for row in drawn)} {zone}" for zone in ("private", "dp", "public"))
    return Figure(
        section="Provenance",
        title="What was computed from what",
        caption="Squares read private rows, circles read only protected outputs, triangles read only public text.",
        alt=f"The stages as a graph from left to right: {counts}.",
        chart=chart(drawn, edges(stages)),
        rows=table,
        wide=True,
    )
