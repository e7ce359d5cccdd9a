"""The graph of stages with its zones, which is the figure of the provenance.

A stage stands in the column of its longest path, near the average row of the stages it needs.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import altair as alt

from palimpsest.report import drawing as draw
from palimpsest.report.drawing import GREY, ZONES, Chart, Rows
from palimpsest.report.sections.base import Figure


def nodes(stages: Sequence[Mapping[str, Any]]) -> Rows:
    """Return name, zone, state, description, needs, x, y: the DAG's nodes with their places."""
    places = layer_stages(stages)
    return [
        {"name": stage["name"], "zone": stage["zone"], "state": stage.get("state", ""), "description": stage["desc"]}
        | {"needs": ", ".join(dep for dep in stage["deps"] if dep in places)}
        | dict(zip("xy", places[stage["name"]], strict=True))
        for stage in stages
    ]


def edges(stages: Sequence[Mapping[str, Any]]) -> Rows:
    """Return edge, step, x, y: each arrow as four points of a smooth curve."""
    places = layer_stages(stages)
    rows: Rows = []
    for stage in stages:
        for dep in (dep for dep in stage["deps"] if dep in places):
            (left, top), (right, bottom) = places[dep], places[stage["name"]]
            points = [(left, top), (left + 0.5, top), (right - 0.5, bottom), (right, bottom)]
            rows += [{"edge": f"{dep} > {stage['name']}", "step": i, "x": x, "y": y} for i, (x, y) in enumerate(points)]
    return rows


def _chart(nodes: Rows, edges: Rows) -> Chart:
    """Draw the stages from left to right, coloured by what they may see."""
    x = alt.X("x:Q", axis=None, scale=_padded_scale(nodes, "x", 0.5))
    y = alt.Y("y:Q", axis=None, scale=_padded_scale(nodes, "y", 0.6))
    arrows = (
        alt.Chart(draw.data(edges))
        .mark_line(interpolate="basis", strokeWidth=1.2, opacity=0.55, color=GREY)
        .encode(x=x, y=y, detail="edge:N", order="step:O")
    )
    base = alt.Chart(draw.data(nodes)).encode(x=x, y=y)
    dots = draw.points(
        base,
        190,
        color=draw.make_channel(alt.Color, "zone", ZONES),
        shape=draw.make_channel(alt.Shape, "zone", dict(zip(ZONES, ("square", "circle", "triangle-up"), strict=True))),
        tooltip=draw.tips("name:N", "zone:N", "state:N", "description:N", "needs:N"),
    )
    names = base.mark_text(dy=18, fontSize=11, limit=130).encode(text="name:N")
    rows = max((row["y"] for row in nodes), default=0.0) * 2 + 1
    return draw.finish(alt.layer(arrows, dots, names), int(46 * rows + 40))


def _padded_scale(rows: Rows, column: str, room: float) -> alt.Scale:
    values = [row[column] for row in rows]
    return alt.Scale(domain=[min(values) - room, max(values) + room], nice=False, zero=False)


def layer_stages(stages: Sequence[Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """Return stage name -> (column, row); rows of one column are centred on 0.

    Args:
        stages: acyclic; each with "name" and "deps" (names of stages; names of anything else are ignored).
    """
    names = {stage["name"] for stage in stages}
    deps = {stage["name"]: [dep for dep in stage["deps"] if dep in names] for stage in stages}
    columns: dict[str, int] = {}
    for name in deps:
        _column(name, deps, columns)
    places: dict[str, tuple[float, float]] = {}
    for column in range(max(columns.values(), default=-1) + 1):
        _place([name for name in deps if columns[name] == column], column, deps, places)
    return places


def _column(name: str, deps: Mapping[str, list[str]], columns: dict[str, int]) -> int:
    if name not in columns:
        columns[name] = max((_column(dep, deps, columns) + 1 for dep in deps[name]), default=0)
    return columns[name]


def _place(
    members: list[str], column: int, deps: Mapping[str, list[str]], places: dict[str, tuple[float, float]]
) -> None:
    def pull(name: str) -> float:
        rows = [places[dep][1] for dep in deps[name]]
        return sum(rows) / len(rows) if rows else 0.0

    for index, name in enumerate(sorted(members, key=pull)):
        places[name] = (float(column), index - (len(members) - 1) / 2)


def figure(stages: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the DAG with its zones."""
    return _figure(json.dumps(stages))


@cache  # the page and the card have the same, and no other figure takes so long
def _figure(told: str) -> Figure:
    stages = json.loads(told)
    drawn = nodes(stages)
    table = [{key: row[key] for key in ("name", "zone", "description", "needs")} for row in drawn]
    counts = ", ".join(f"{sum(row['zone'] == zone for row in drawn)} {zone}" for zone in ("private", "dp", "public"))
    return Figure(
        section="Provenance",
        title="What was computed from what",
        caption="Squares read private rows, circles read only protected outputs, triangles read only public text.",
        alt=f"The stages as a graph from left to right: {counts}.",
        chart=_chart(drawn, edges(stages)),
        rows=table,
        wide=True,
    )
