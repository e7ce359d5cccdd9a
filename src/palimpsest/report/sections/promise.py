"""What a proven curve lets any attack do: the card's figures, from public numbers alone."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from palimpsest.report.drawing import ROW, Chart, Rows, by_color, data, finish, names, rates, tips
from palimpsest.report.sections.base import Figure
from palimpsest.report.theme import BLUE, GREY, ORANGE, cycle
from palimpsest.report.tradeoff import TradeOff
from palimpsest.report.unit import Unit

BLIND, FOUND, BEFORE, AFTER = "found by guessing", "found at most", "believed before", "believed after, at most"


def plain(releases: Sequence[Mapping[str, Any]]) -> Rows:
    """variant, what, share: what each proven curve lets an attacker find and believe, beside guessing."""
    return [
        {"variant": release["variant"], "what": what, "share": release["meaning"][key]}
        for release in releases
        if release["meaning"]
        for what, key in (
            (BLIND, "false_positive_rate"),
            (FOUND, "true_positive_rate"),
            (BEFORE, "prior"),
            (AFTER, "belief"),
        )
    ]


def limits(curves: Mapping[str, TradeOff], floor: float = 1e-3, points: int = 60) -> Rows:
    """variant, fpr, tpr: no attack on a release lies above its line."""
    grid = np.geomspace(floor, 1.0, points)
    return [
        {"variant": name, "fpr": float(fpr), "tpr": curve.true_positives(float(fpr))}
        for name, curve in curves.items()
        for fpr in grid
    ]


def plain_chart(rows: Rows, units: str) -> Chart:
    """What a proven curve lets an attacker find and believe of 100 `units`, beside what guessing gives."""
    kinds, hues = [BLIND, FOUND, BEFORE, AFTER], [GREY, ORANGE, GREY, BLUE]
    base = alt.Chart(data(rows)).encode(
        y=alt.Y("variant:N", title=None, sort=names(rows, "variant"), axis=alt.Axis(labelLimit=150)),
        yOffset=alt.YOffset("what:N", sort=kinds),
        tooltip=tips("variant:N", "what:N", "share:Q"),
    )
    share = alt.X("share:Q", title=f"of 100 {units}", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    bars = base.mark_bar().encode(
        x=share, color=alt.Color("what:N", title=None, scale=alt.Scale(domain=kinds, range=hues))
    )
    text = base.mark_text(align="left", dx=4, fontSize=11).encode(x=share, text=alt.Text("share:Q", format=".1%"))
    return finish(alt.layer(bars, text), 3 * ROW * len(names(rows, "variant")) + 20, columns=2)


def limits_chart(rows: Rows) -> Chart:
    """The upper bound on every attack's ROC curve, a line per release, and the line of guessing."""
    variants, floor = names(rows, "variant"), min(row["fpr"] for row in rows)
    scale = alt.Scale(type="log", domain=[floor, 1], nice=False, clamp=True)
    x = alt.X("fpr:Q", title="outsiders accused (log)", scale=scale, axis=rates(floor))
    y = alt.Y("tpr:Q", title="members found, at most (log)", scale=scale, axis=rates(floor))
    dashes = alt.Scale(domain=variants, range=cycle(variants, ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2])))
    lines = alt.Chart(data(rows)).mark_line(strokeWidth=2, clip=True)
    lines = lines.encode(x=x, y=y, color=by_color(variants), tooltip=tips("variant:N", "fpr:Q", "tpr:Q"))
    lines = lines.encode(strokeDash=alt.StrokeDash("variant:N", title=None, scale=dashes))
    ends = [{"fpr": rate, "tpr": rate} for rate in (floor, 1.0)]
    guess = alt.Chart(data(ends)).mark_line(color=GREY, strokeDash=[4, 3]).encode(x=x, y=y)
    return finish(alt.layer(guess, lines), 280)


def figures(
    releases: Sequence[Mapping[str, Any]], curves: Mapping[str, TradeOff | None], unit: Unit
) -> Iterator[Figure]:
    """What epsilon means, and what no attack can pass.

    Args:
        releases: those of the statement.
        curves: variant -> its proven curve; None where it has none.
    """
    if words := plain(releases):
        yield Figure(
            section="Privacy",
            title="What epsilon means",
            caption=f"Of 100 {unit.many}, how many the best possible attack finds while it wrongly accuses 1 in 100 "
            f"outsiders; and how sure someone may be about a {unit.name}, who held 1 in 100 likely before. Proved, for "
            "any attack.",
            alt="; ".join(f"{row['variant']}, {row['what']}: {100 * row['share']:.1f} in 100" for row in words) + ".",
            chart=plain_chart(words, unit.many),
            rows=words,
        )
    if bounds := limits({name: curve for name, curve in curves.items() if curve}):
        yield Figure(
            section="Privacy",
            title="What no attack can pass",
            caption="The most members that any attack finds, for each share of outsiders it accuses. Grey: guessing.",
            alt=f"Upper bounds of the ROC curve of {', '.join(curves)}.",
            chart=limits_chart(bounds),
            rows=bounds,
        )
