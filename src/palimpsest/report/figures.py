"""The figures: each a function from table rows (see `tables`) to an Altair chart.

Every series differs in shape or dash as well as in colour, and nothing that is drawn in text has a fixed colour, so
that the page's theme (light, dark, print) decides it.
"""

from collections.abc import Callable
from typing import Any

import altair as alt

from palimpsest.report.embedding import ALL, READABLE, SELECTED
from palimpsest.report.evidence import MEMBERS, OTHERS
from palimpsest.report.formats import points
from palimpsest.report.tables import (
    AFTER,
    ATTACKED,
    BEFORE,
    BLIND,
    BROKEN,
    CLAIM,
    CORRECT,
    DETECTABLE,
    FOUND,
    PARSED,
    POWER,
    PROVED,
    VALID,
    Rows,
)
from palimpsest.report.theme import BLUE, CORPORA, GREEN, GREY, ORANGE, PURPLE, SERIES, SHAPES, ZONES, colors, cycle

Chart = alt.Chart | alt.LayerChart | alt.FacetChart

_DASHES = {"real": [1, 0], "public_only": [2, 3]}
_STEPS = {"committed": BLUE, "begun": ORANGE, "answered": ORANGE, "reserved": PURPLE}
_STEPS |= {"composition": GREEN, "total": GREY}
_DECADES = (1e-5, 1e-4, 1e-3, 0.01, 0.1, 1.0)
_NEAR = alt.Scale(zero=False)
_ROUND = alt.X("round:O", title="round", axis=alt.Axis(labelAngle=0))
_ROW = 30  # height of one row of a horizontal chart, in pixels
_PANEL = 220  # height of one drawing of hidden states, in pixels


def frontier(rows: Rows) -> Chart:
    """Utility against proven epsilon, a line per method, with the variants that have no epsilon as level lines."""
    dots, levels = _split(rows, lambda row: isinstance(row["epsilon"], float))
    methods, lines = _names(dots, "series"), _names(levels, "series")
    series = methods + lines
    key = alt.Legend(symbolType="stroke", symbolSize=300)
    color = alt.Color("series:N", title=None, legend=key, scale=alt.Scale(domain=series, range=colors(series)))
    dash = alt.StrokeDash("series:N", title=None, legend=key, scale=_dashes(methods, lines))
    y = alt.Y("accuracy:Q", title="accuracy on real test rows", scale=alt.Scale(zero=False), axis=alt.Axis(format="%"))
    tips = _tips("variant:N", "epsilon:Q", "accuracy:Q", "low:Q", "high:Q")
    rules = (
        alt.Chart(_data(levels))
        .mark_rule(strokeWidth=2)
        .encode(y=y, color=color, strokeDash=dash, tooltip=_tips("variant:N", "accuracy:Q", "low:Q", "high:Q"))
    )
    return _finish(alt.layer(*([rules] if levels else []), *_points(dots, y, color, dash, tips)), 280)


def _points(dots: Rows, y: alt.Y, color: alt.Color, dash: alt.StrokeDash, tips: list[alt.Tooltip]) -> list[alt.Chart]:
    """The layers of the variants that have an epsilon; none without such variants, for an empty axis has no extent."""
    if not dots:
        return []
    x = alt.X("epsilon:Q", title="proved ε (log)", scale=alt.Scale(type="log", domain=_around(dots)))
    base = alt.Chart(_data(dots)).encode(x=x, color=color, tooltip=tips)
    line = base.mark_line(strokeWidth=2).encode(y=y, strokeDash=dash)
    spread = base.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q"), y2="high:Q")
    return [line, spread, base.mark_point(filled=True, size=90, opacity=1).encode(y=y)]


def bracket(rows: Rows) -> Chart:
    """Per variant, where its true epsilon can be: above what was attacked, below what is proved."""
    kinds, colors = [PROVED, ATTACKED, DETECTABLE], [BLUE, ORANGE, GREY]
    x = alt.X("epsilon:Q", title="ε", scale=alt.Scale(domainMin=0, nice=True))
    y = alt.Y("variant:N", title=None, sort=_names(rows, "variant"), axis=alt.Axis(offset=12))
    base = alt.Chart(_data(rows)).encode(x=x, y=y)
    marks = base.mark_point(filled=True, size=130, opacity=1).encode(
        color=alt.Color("kind:N", title=None, scale=alt.Scale(domain=kinds, range=colors)),
        shape=alt.Shape("kind:N", title=None, scale=alt.Scale(domain=kinds, range=["square", "circle", "diamond"])),
        tooltip=_tips("variant:N", "kind:N", "epsilon:Q"),
    )
    between = (
        base.transform_filter(alt.FieldOneOfPredicate(field="kind", oneOf=[PROVED, ATTACKED]))
        .mark_bar(color=BLUE, opacity=0.22, height=10)
        .encode(x="min(epsilon):Q", x2="max(epsilon):Q")
    )
    return _finish(alt.layer(between, marks), _ROW * len(_names(rows, "variant")) + 20, columns=1)


def plain(rows: Rows, units: str) -> Chart:
    """What a proven curve lets an attacker find and believe of 100 `units`, beside what guessing gives."""
    kinds, hues = [BLIND, FOUND, BEFORE, AFTER], [GREY, ORANGE, GREY, BLUE]
    base = alt.Chart(_data(rows)).encode(
        y=alt.Y("variant:N", title=None, sort=_names(rows, "variant"), axis=alt.Axis(labelLimit=150)),
        yOffset=alt.YOffset("what:N", sort=kinds),
        tooltip=_tips("variant:N", "what:N", "share:Q"),
    )
    share = alt.X("share:Q", title=f"of 100 {units}", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    bars = base.mark_bar().encode(
        x=share, color=alt.Color("what:N", title=None, scale=alt.Scale(domain=kinds, range=hues))
    )
    text = base.mark_text(align="left", dx=4, fontSize=11).encode(x=share, text=alt.Text("share:Q", format=".1%"))
    return _finish(alt.layer(bars, text), 3 * _ROW * len(_names(rows, "variant")) + 20, columns=2)


def limits(rows: Rows) -> Chart:
    """The upper bound on every attack's ROC curve, a line per release, and the line of guessing."""
    variants, floor = _names(rows, "variant"), min(row["fpr"] for row in rows)
    scale = alt.Scale(type="log", domain=[floor, 1], nice=False, clamp=True)
    rates = alt.Axis(format=".3~%", values=[rate for rate in _DECADES if rate >= floor])
    x = alt.X("fpr:Q", title="outsiders accused (log)", scale=scale, axis=rates)
    y = alt.Y("tpr:Q", title="members found, at most (log)", scale=scale, axis=rates)
    dashes = alt.Scale(domain=variants, range=cycle(variants, ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2])))
    lines = alt.Chart(_data(rows)).mark_line(strokeWidth=2, clip=True)
    lines = lines.encode(x=x, y=y, color=_variants(variants), tooltip=_tips("variant:N", "fpr:Q", "tpr:Q"))
    lines = lines.encode(strokeDash=alt.StrokeDash("variant:N", title=None, scale=dashes))
    ends = [{"fpr": rate, "tpr": rate} for rate in (floor, 1.0)]
    guess = alt.Chart(_data(ends)).mark_line(color=GREY, strokeDash=[4, 3]).encode(x=x, y=y)
    return _finish(alt.layer(guess, lines), 280)


def twins(rows: Rows) -> Chart:
    """Per method, what the audit of invented records claims, shows, could show, and shows of broken code."""
    kinds, hues = [CLAIM, CORRECT, BROKEN, POWER], [BLUE, GREEN, ORANGE, GREY]
    marks = alt.Scale(domain=kinds, range=["square", "circle", "triangle-up", "diamond"])
    dots = (
        alt.Chart(_data(rows))
        .mark_point(filled=True, size=130, opacity=1)
        .encode(
            x=alt.X("epsilon:Q", title="ε", scale=alt.Scale(domainMin=0, nice=True)),
            y=alt.Y("method:N", title=None, sort=_names(rows, "method"), axis=alt.Axis(offset=12)),
            color=alt.Color("kind:N", title=None, scale=alt.Scale(domain=kinds, range=hues)),
            shape=alt.Shape("kind:N", title=None, scale=marks),
            tooltip=_tips("method:N", "kind:N", "fault:N", "epsilon:Q"),
        )
    )
    return _finish(alt.layer(dots), _ROW * len(_names(rows, "method")) + 20, columns=2)


def roc(curves: Rows, band: Rows, forbidden: Rows) -> Chart:
    """Membership ROC on log axes, the band of chance, and (where a curve is proved) the region it forbids."""
    floor = min(row["fpr"] for row in curves + band)
    scale = alt.Scale(type="log", domain=[floor, 1], nice=False, clamp=True)
    rates = alt.Axis(format=".3~%", values=[rate for rate in _DECADES if rate >= floor])
    x = alt.X("fpr:Q", title="non-members accused (log)", scale=scale, axis=rates)
    y = alt.Y("tpr:Q", title="members found (log)", scale=scale, axis=rates)
    attacks = _names(curves, "attack")
    lines = (
        alt.Chart(_data(curves))
        .mark_line(strokeWidth=2, interpolate="step-after", clip=True)
        .encode(
            x=x,
            y=y,
            color=alt.Color("attack:N", title=None, scale=alt.Scale(domain=attacks, range=cycle(attacks, SERIES))),
            strokeDash=alt.StrokeDash(
                "attack:N", title=None, scale=alt.Scale(domain=attacks, range=cycle(attacks, ([1, 0], [6, 3], [2, 2])))
            ),
            tooltip=_tips("attack:N", "fpr:Q", "tpr:Q"),
        )
    )
    chance = alt.Chart(_data(band)).mark_area(color=GREY, opacity=0.25)
    chance = chance.encode(x=x, y=alt.Y("low:Q", scale=scale), y2="high:Q")
    layers = [chance, lines]
    if forbidden:
        area = alt.Chart(_data(forbidden)).mark_area(color=ORANGE, opacity=0.16, clip=True)
        layers.insert(0, area.encode(x=x, y=alt.Y("limit:Q", scale=scale), y2="top:Q"))
    return _finish(alt.layer(*layers), 300)


def overlap(rows: Rows, gains: Rows) -> Chart:
    """Share of synthetic n-grams that occur in members, holdout and public text; above, members minus holdout."""
    corpora = list(CORPORA)
    tops = {order: max(row["rate"] for row in rows if row["order"] == order) for order in _names(rows, "order")}
    room = alt.Scale(domain=[0, 1.12 * max(tops.values())], nice=False)
    x = alt.X("order:O", title="n", axis=alt.Axis(labelAngle=0))
    bars = (
        alt.Chart(_data(rows))
        .mark_bar()
        .encode(
            x=x,
            xOffset=alt.XOffset("corpus:N", sort=corpora),
            y=alt.Y("rate:Q", title="synthetic n-grams that occur in it", axis=alt.Axis(format="%"), scale=room),
            color=alt.Color("corpus:N", title=None, scale=alt.Scale(domain=corpora, range=list(CORPORA.values()))),
            tooltip=_tips("order:O", "corpus:N", "rate:Q", "count:Q", "total:Q"),
        )
    )
    notes = [{"order": row["order"], "top": tops[row["order"]], "note": points(row["value"], 1)} for row in gains]
    text = alt.Chart(_data(notes)).mark_text(dy=-8, fontSize=11).encode(x=x, y="top:Q", text="note:N")
    return _finish(alt.layer(bars, text), 260)


def excess(rows: Rows) -> Chart:
    """Overlap with members minus overlap with the holdout, with intervals, per n and variant."""
    variants = _names(rows, "variant")
    base = alt.Chart(_data(rows)).encode(
        x=alt.X("order:O", title="n", axis=alt.Axis(labelAngle=0)),
        xOffset=alt.XOffset("variant:N", sort=variants),
        color=_variants(variants),
        tooltip=_tips("variant:N", "order:O", "value:Q", "low:Q", "high:Q", "p:Q"),
    )
    spread = base.mark_rule(strokeWidth=2).encode(
        y=alt.Y("low:Q", title="excess over the holdout", axis=alt.Axis(format="+.1%")), y2="high:Q"
    )
    dots = base.mark_point(filled=True, size=70, opacity=1).encode(y="value:Q", shape=_shapes(variants))
    return _finish(alt.layer(_level(0.0), spread, dots), 260)


def phantoms(rows: Rows, units: str) -> Chart:
    """Who is given away by n-grams that they alone have: members beside `units` that were never read, per n."""
    sides, variants = [MEMBERS, OTHERS], _names(rows, "variant")
    base = alt.Chart(_data(rows)).encode(
        y=alt.Y("variant:N", title=None, sort=variants, axis=alt.Axis(labelLimit=150)),
        yOffset=alt.YOffset("order:O"),
        color=alt.Color("side:N", title=None, scale=alt.Scale(domain=sides, range=[ORANGE, BLUE])),
        tooltip=_tips("variant:N", "order:O", "side:N", "count:Q", "n:Q", "rate:Q", "low:Q", "high:Q", "p:Q"),
    )
    low = alt.X("low:Q", title=f"{units} whose own n-grams came out", axis=alt.Axis(format="%"))
    spread = base.mark_rule(strokeWidth=2).encode(x=low, x2="high:Q")
    shape = alt.Shape("side:N", title=None, scale=alt.Scale(domain=sides, range=["circle", "square"]))
    dots = base.mark_point(filled=True, size=80, opacity=1).encode(x="rate:Q", shape=shape)
    return _finish(alt.layer(spread, dots), _ROW * len(variants) * max(2, len(_names(rows, "order"))) + 20)


def differences(rows: Rows, what: str, title: str) -> Chart:
    """Members less a control, with intervals, and the line of none; a tick where a proved cap lies."""
    variants, kinds = _names(rows, "variant"), _names(rows, what)
    value = "risk" if "risk" in rows[0] else "value"
    base = alt.Chart(_data(rows)).encode(
        y=alt.Y(f"{what}:N", title=None, sort=kinds, axis=alt.Axis(labelLimit=200)),
        yOffset=alt.YOffset("variant:N", sort=variants),
        color=_variants(variants),
        tooltip=_tips("variant:N", f"{what}:N", f"{value}:Q", "low:Q", "high:Q"),
    )
    none = alt.Chart(_data([{"level": 0.0}])).mark_rule(color=GREY, strokeDash=[4, 3]).encode(x="level:Q")
    low = alt.X("low:Q", title=title, axis=alt.Axis(format="+.1%"))
    spread = base.mark_rule(strokeWidth=2).encode(x=low, x2="high:Q")
    dots = base.mark_point(filled=True, size=80, opacity=1).encode(x=f"{value}:Q", shape=_shapes(variants))
    capped = [row for row in rows if row.get("cap") is not None]
    caps = alt.Chart(_data(capped)).mark_tick(thickness=3, size=12).encode(
        x="cap:Q", y=alt.Y(f"{what}:N", sort=kinds), yOffset=alt.YOffset("variant:N", sort=variants),
        color=_variants(variants), tooltip=_tips("variant:N", f"{what}:N", "cap:Q"),
    )  # fmt: skip
    layers = [none, spread, dots, *([caps] if capped else [])]
    return _finish(alt.layer(*layers), max(2 * _ROW, 12 * len(variants)) * len(kinds) + 20)


def likeness(rows: Rows) -> Chart:
    """Where each measure puts each variant between rows like the private ones and public text."""
    variants, kinds = _names(rows, "variant"), _names(rows, "measure")
    ends = alt.Chart(_data([{"level": 0.0}, {"level": 1.0}]))
    marks = ends.mark_rule(color=GREY, strokeDash=[4, 3]).encode(x="level:Q")
    dots = (
        alt.Chart(_data(rows))
        .mark_point(filled=True, size=80, opacity=1)
        .encode(
            x=alt.X("place:Q", title="0: as private rows to each other; 1: as public text"),
            y=alt.Y("measure:N", title=None, sort=kinds, axis=alt.Axis(labelLimit=200)),
            yOffset=alt.YOffset("variant:N", sort=variants),
            color=_variants(variants),
            shape=_shapes(variants),
            tooltip=_tips("variant:N", "measure:N", "value:Q", "unseen:Q", "public:Q", "floor:Q", "n:Q"),
        )
    )
    return _finish(alt.layer(marks, dots), max(_ROW, 9 * len(variants)) * len(kinds) + 20)


def carried(rows: Rows, units: str) -> Chart:
    """Share of population facts that the synthetic text states, against how many private `units` state them."""
    variants = _names(rows, "variant")
    counts = alt.Scale(type="log", nice=False, padding=16)
    base = alt.Chart(_data(rows)).encode(
        x=alt.X("support:Q", title=f"private {units} that state the fact (log)", scale=counts),
        color=_variants(variants),
        tooltip=_tips("variant:N", "support:Q", "carried:Q", "total:Q", "share:Q", "low:Q", "high:Q"),
    )
    share = alt.Axis(format="%", tickCount=5)
    band = base.mark_area(opacity=0.18).encode(
        y=alt.Y("low:Q", title="facts carried over", axis=share, scale=alt.Scale(domain=[0, 1])), y2="high:Q"
    )
    line = base.mark_line(strokeWidth=2).encode(y="share:Q")
    dots = base.mark_point(filled=True, size=70, opacity=1).encode(y="share:Q", shape=_shapes(variants))
    return _finish(alt.layer(band, line, dots), 280)


def waterfall(rows: Rows, cap: float) -> Chart:
    """Each charge after the other, what composing them changes, the total, and the cap."""
    kinds = _names(rows, "kind")
    steps = alt.Scale(domain=kinds, range=[_STEPS[kind] for kind in kinds])
    bars = (
        alt.Chart(_data(rows))
        .mark_bar(height=14)
        .encode(
            y=alt.Y("step:N", title=None, sort=None, axis=alt.Axis(labelLimit=170)),
            x=alt.X("start:Q", title="ε", scale=alt.Scale(domainMin=0)),
            x2="end:Q",
            color=alt.Color("kind:N", title=None, scale=steps),
            tooltip=_tips("step:N", "kind:N", "start:Q", "end:Q"),
        )
    )
    line = alt.Chart(_data([{"cap": cap}])).mark_rule(strokeWidth=2, strokeDash=[5, 3], color=ORANGE).encode(x="cap:Q")
    label = line.mark_text(align="right", dx=-5, baseline="top", y=4, text="cap", fontSize=12).encode(x="cap:Q")
    return _finish(alt.layer(bars, line, label), _ROW * len(rows) + 20)


def dag(nodes: Rows, edges: Rows) -> Chart:
    """The stages from left to right, coloured by what they may see."""
    x = alt.X("x:Q", axis=None, scale=_padded(nodes, "x", 0.5))
    y = alt.Y("y:Q", axis=None, scale=_padded(nodes, "y", 0.6))
    arrows = (
        alt.Chart(_data(edges))
        .mark_line(interpolate="basis", strokeWidth=1.2, opacity=0.55, color=GREY)
        .encode(x=x, y=y, detail="edge:N", order="step:O")
    )
    zones = list(ZONES)
    base = alt.Chart(_data(nodes)).encode(x=x, y=y)
    dots = base.mark_point(filled=True, size=190, opacity=1).encode(
        color=alt.Color("zone:N", title=None, scale=alt.Scale(domain=zones, range=list(ZONES.values()))),
        shape=alt.Shape("zone:N", title=None, scale=alt.Scale(domain=zones, range=["square", "circle", "triangle-up"])),
        tooltip=_tips("name:N", "zone:N", "state:N", "description:N", "needs:N"),
    )
    names = base.mark_text(dy=18, fontSize=11, limit=130).encode(text="name:N")
    rows = max((row["y"] for row in nodes), default=0.0) * 2 + 1
    return _finish(alt.layer(arrows, dots, names), int(46 * rows + 40))


def per_class(rows: Rows) -> Chart:
    """F1 per class: one mark per variant, joined."""
    variants = _names(rows, "variant")
    base = alt.Chart(_data(rows)).encode(y=alt.Y("label:N", title=None, sort=None, axis=alt.Axis(labelLimit=150)))
    near = alt.Scale(zero=False, padding=10)
    join = base.mark_rule(strokeWidth=3, opacity=0.35, color=GREY).encode(
        x=alt.X("min(f1):Q", title="F1 on real test rows", axis=alt.Axis(format="%"), scale=near),
        x2="max(f1):Q",
    )
    dots = base.mark_point(filled=True, size=100, opacity=1).encode(
        x="f1:Q",
        color=_variants(variants),
        shape=_shapes(variants),
        tooltip=_tips("label:N", "variant:N", "f1:Q", "support:Q"),
    )
    return _finish(alt.layer(join, dots), _ROW * len(_names(rows, "label")) + 20)


def in_context(rows: Rows) -> Chart:
    """Items answered right against the number of demonstrations, a line per row, and the level without any."""
    levels = dict.fromkeys(row["zero_shot"] for row in rows if row["zero_shot"] is not None)
    rows, _ = _split(rows, lambda row: row["shots"] > 0)
    variants = _names(rows, "variant")
    apart = alt.Scale(paddingInner=0.7, paddingOuter=0.35)  # rows stand beside each other, near their number
    base = alt.Chart(_data(rows)).encode(
        x=alt.X("shots:O", title="demonstrations in the prompt", axis=alt.Axis(labelAngle=0), scale=apart),
        xOffset=alt.XOffset("variant:N", sort=variants),
        color=_variants(variants),
        tooltip=_tips(
            "variant:N",
            "shots:Q",
            "accuracy:Q",
            "deviation:Q",
            "low:Q",
            "high:Q",
            "gain:Q",
            "gain_low:Q",
            "gain_high:Q",
        ),
    )
    y = alt.Y("accuracy:Q", title="real test rows answered right", axis=alt.Axis(format="%"), scale=_NEAR)
    line = base.mark_line(strokeWidth=2).encode(y=y)
    spread = base.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q", scale=_NEAR), y2="high:Q")
    dots = base.mark_point(filled=True, size=80, opacity=1).encode(y=y, shape=_shapes(variants))
    return _finish(alt.layer(*(_level(level) for level in levels), line, spread, dots), 280)


def distances(rows: Rows) -> Chart:
    """A line per variant over the rounds, and its floor, level and dashed."""
    series = _names(rows, "series")
    base = alt.Chart(_data(rows)).encode(
        x=_ROUND,
        color=_variants(series, "series"),
        tooltip=_tips("series:N", "round:Q", "value:Q", "floor:Q", "n:Q"),
    )
    y = alt.Y("value:Q", title="distance to private rows", scale=alt.Scale(zero=True))
    line = base.mark_line(strokeWidth=2).encode(y=y)
    dots = base.mark_point(filled=True, size=80, opacity=1).encode(y=y, shape=_shapes(series, "series"))
    floor = base.mark_line(strokeWidth=1.5, strokeDash=[4, 4]).encode(y="floor:Q")
    return _finish(alt.layer(floor, line, dots), 260)


def votes(rows: Rows) -> Chart:
    """The variance of votes over the rounds: a line per variant for all labels, and a faint one for each label."""
    together, each = _split(rows, lambda row: row["label"] == ALL)
    variants = _names(rows, "variant")
    y = alt.Y("variance:Q", title="variance of a candidate's votes", scale=alt.Scale(zero=True))
    tips = _tips("variant:N", "round:Q", "label:N", "candidates:Q", "mean:Q", "variance:Q")

    def over_rounds(some: Rows) -> alt.Chart:
        return alt.Chart(_data(some)).encode(x=_ROUND, y=y, color=_variants(variants), tooltip=tips)

    faint = over_rounds(each).mark_line(strokeWidth=1, opacity=0.45).encode(detail=["label:N", "variant:N"])
    line = over_rounds(together).mark_line(strokeWidth=2)
    dots = over_rounds(together).mark_point(filled=True, size=80, opacity=1).encode(shape=_shapes(variants))
    return _finish(alt.layer(*([faint] if each else []), line, dots), 220)


def parents(rows: Rows) -> Chart:
    """How many parents each round's votes selected, dashed, and how many of them are readable."""
    variants, kinds = _names(rows, "variant"), [SELECTED, READABLE]
    base = alt.Chart(_data(rows)).encode(
        x=_ROUND,
        y=alt.Y("parents:Q", title="parents, all labels", scale=alt.Scale(zero=True)),
        color=_variants(variants),
        tooltip=_tips("variant:N", "round:Q", "what:N", "parents:Q"),
    )
    dashes = alt.Scale(domain=kinds, range=[[4, 4], [1, 0]])
    key = alt.Legend(symbolType="stroke", symbolSize=300)
    line = base.mark_line(strokeWidth=2).encode(
        strokeDash=alt.StrokeDash("what:N", title=None, scale=dashes, legend=key)
    )
    dots = base.mark_point(filled=True, size=80, opacity=1).encode(shape=_shapes(variants), detail="what:N")
    return _finish(alt.layer(line, dots), 220)


def structure(rows: Rows) -> Chart:
    """Per variant, the share of rows that are JSON and of those that conform to the schema."""
    kinds, hues, marks = [PARSED, VALID], [BLUE, ORANGE], ["circle", "square"]
    base = alt.Chart(_data(rows)).encode(
        y=alt.Y("variant:N", title=None, sort=_names(rows, "variant"), axis=alt.Axis(labelLimit=150)),
        yOffset=alt.YOffset("what:N", sort=kinds),
        color=alt.Color("what:N", title=None, scale=alt.Scale(domain=kinds, range=hues)),
        tooltip=_tips("variant:N", "what:N", "count:Q", "total:Q", "share:Q", "low:Q", "high:Q"),
    )
    share = alt.X("low:Q", title="synthetic rows", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    spread = base.mark_rule(strokeWidth=2).encode(x=share, x2="high:Q")
    shape = alt.Shape("what:N", title=None, scale=alt.Scale(domain=kinds, range=marks))
    dots = base.mark_point(filled=True, size=110, opacity=1).encode(x="share:Q", shape=shape)
    return _finish(alt.layer(spread, dots), 2 * _ROW * len(_names(rows, "variant")) + 20)


def lengths(rows: Rows) -> Chart:
    """How long the rows are, per variant."""
    variants = _names(rows, "variant")
    line = (
        alt.Chart(_data(rows))
        .mark_line(strokeWidth=2, interpolate="monotone")
        .encode(
            x=alt.X("length:Q", title="length"),
            y=alt.Y("share:Q", title="rows", axis=alt.Axis(format="%")),
            color=_variants(variants),
            tooltip=_tips("variant:N", "length:Q", "share:Q"),
        )
    )
    return _finish(alt.layer(line), 240)


def label_shares(rows: Rows) -> Chart:
    """How often each label occurs, per variant."""
    variants = _names(rows, "variant")
    dots = (
        alt.Chart(_data(rows))
        .mark_point(filled=True, size=90, opacity=1)
        .encode(
            y=alt.Y("label:N", title=None, sort=None, axis=alt.Axis(labelLimit=150)),
            x=alt.X("share:Q", title="rows with the label", axis=alt.Axis(format="%"), scale=alt.Scale(domainMin=0)),
            color=_variants(variants),
            shape=_shapes(variants),
            tooltip=_tips("label:N", "variant:N", "share:Q"),
        )
    )
    return _finish(alt.layer(dots), _ROW * len(_names(rows, "label")) + 20)


def separation(rows: Rows) -> Chart:
    """How often a forest reads the label off each model's hidden states; a tick where chance lies."""
    near = alt.Scale(zero=False, padding=16)
    base = alt.Chart(_data(rows)).encode(
        y=alt.Y("name:N", title=None, sort=_names(rows, "name"), axis=alt.Axis(labelLimit=150)),
        tooltip=_tips("name:N", "accuracy:Q", "low:Q", "high:Q", "chance:Q", "lm_loss:Q"),
    )
    chance = base.mark_tick(thickness=3, size=18, opacity=1, color=GREY).encode(
        x=alt.X("chance:Q", title="test labels read off hidden states", axis=alt.Axis(format="%"), scale=near)
    )
    spread = base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q")
    dots = base.mark_point(filled=True, size=110, opacity=1, color=BLUE).encode(x="accuracy:Q")
    return _finish(alt.layer(chance, spread, dots), _ROW * len(rows) + 20)


def projections(rows: Rows) -> Chart:
    """Hidden states in a plane: a row of panels per model, a column per method, a colour and shape per label.

    The panels are bands with offsets and not facets, because facets cannot be as wide as the page gives.
    """
    names, methods, labels = _names(rows, "name"), _names(rows, "method"), sorted(_names(rows, "label"))
    inside, edge = alt.Scale(domain=[-0.06, 1.06]), alt.Scale(paddingInner=0, paddingOuter=0)
    top = alt.Axis(orient="top", labelAngle=0, domain=False, grid=True, tickBand="extent")
    left = alt.Axis(labelLimit=90, grid=True, tickBand="extent")
    hues = alt.Scale(domain=labels, range=cycle(labels, (*SERIES, GREEN)))
    dots = (
        alt.Chart(_data(rows))
        .mark_point(filled=True, size=22, opacity=0.75)
        .encode(
            x=alt.X("method:N", title=None, sort=methods, axis=top, scale=edge),
            xOffset=alt.XOffset("x:Q", scale=inside),
            y=alt.Y("name:N", title=None, sort=names, axis=left, scale=edge),
            yOffset=alt.YOffset("y:Q", scale=inside),
            color=alt.Color("label:N", title=None, legend=alt.Legend(symbolOpacity=1), scale=hues),
            shape=alt.Shape("label:N", title=None, scale=alt.Scale(domain=labels, range=cycle(labels, SHAPES))),
            tooltip=_tips("name:N", "method:N", "label:N"),
        )
    )
    return _finish(alt.layer(dots), _PANEL * len(names) + 20, columns=3)


def _data(rows: Rows) -> alt.InlineData:
    return alt.InlineData(values=rows)


def _finish(chart: Chart, height: int, columns: int = 4) -> Chart:
    """As wide as the page gives, with the legend where a phone has room for it."""
    sized = chart.properties(width="container", height=height)
    return sized.configure_legend(orient="bottom", direction="horizontal", columns=columns, labelLimit=260)


def _names(rows: Rows, column: str) -> list[str]:
    return list(dict.fromkeys(row[column] for row in rows))


def _split(rows: Rows, keep: Callable[[dict[str, Any]], bool]) -> tuple[Rows, Rows]:
    return [row for row in rows if keep(row)], [row for row in rows if not keep(row)]


def _tips(*fields: str) -> list[alt.Tooltip]:
    return [alt.Tooltip(field, format=".3g") if field.endswith(":Q") else alt.Tooltip(field) for field in fields]


def _variants(variants: list[str], column: str = "variant") -> alt.Color:
    key = alt.Legend(symbolOpacity=1)
    return alt.Color(f"{column}:N", title=None, legend=key, scale=alt.Scale(domain=variants, range=colors(variants)))


def _shapes(variants: list[str], column: str = "variant") -> alt.Shape:
    return alt.Shape(f"{column}:N", title=None, scale=alt.Scale(domain=variants, range=cycle(variants, SHAPES)))


def _dashes(methods: list[str], lines: list[str]) -> alt.Scale:
    strokes = [[1, 0]] * len(methods) + [_DASHES.get(name, [8, 4]) for name in lines]
    return alt.Scale(domain=methods + lines, range=strokes)


def _around(points: Rows) -> list[float]:
    """An epsilon axis that leaves room on both sides, also around a single point."""
    values = [row["epsilon"] for row in points]
    return [min(values) / 2, max(values) * 2]


def _padded(rows: Rows, column: str, room: float) -> alt.Scale:
    values = [row[column] for row in rows]
    return alt.Scale(domain=[min(values) - room, max(values) + room], nice=False, zero=False)


def _level(value: float) -> Chart:
    return alt.Chart(_data([{"level": value}])).mark_rule(color=GREY, strokeDash=[4, 3]).encode(y="level:Q")
