"""The budget, charge by charge, and what it promises: the limits that a proven curve sets to any attack.

The second are the card's figures, made of public numbers only.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from palimpsest.privacy.ledger.summary import LedgerSummary
from palimpsest.report import drawing as draw
from palimpsest.report.drawing import BLUE, GREEN, GREY, ORANGE, PURPLE, ROW, Chart, Rows
from palimpsest.report.formats import Unit, at_most
from palimpsest.report.sections.base import Figure, Section
from palimpsest.report.tradeoff import TradeOff

_BLIND, _FOUND, _BEFORE, _AFTER = "found by guessing", "found at most", "believed before", "believed after, at most"
_MEANING = {_BLIND: "false_positive_rate", _FOUND: "true_positive_rate", _BEFORE: "prior", _AFTER: "belief"}


_STEPS = {"committed": BLUE, "begun": ORANGE, "answered": ORANGE, "reserved": PURPLE}
_STEPS |= {"composition": GREEN, "total": GREY}


def waterfall(ledger: LedgerSummary) -> Rows:
    """Return step, kind, start, end: each counted charge by itself, the effect of composing, and the counting total."""
    rows: Rows = []
    height = 0.0
    for charge in ledger.charges:
        if charge.released and charge.epsilon is not None:
            step = f"{charge.seq} · {charge.variant} · {charge.query}"
            rows.append({"step": step, "kind": charge.state, "start": height, "end": height + charge.epsilon})
            height += charge.epsilon
    total = ledger.spent_epsilon
    if rows and not math.isclose(height, total):
        rows.append({"step": "composition", "kind": "composition", "start": height, "end": total})
    return [*rows, {"step": "total", "kind": "total", "start": 0.0, "end": total}]


def _chart(rows: Rows, cap: float) -> Chart:
    """Draw each charge after the other, the effect of composing them, the total, and the cap."""
    bars = (
        alt.Chart(draw.data(rows))
        .mark_bar(height=14)
        .encode(
            y=alt.Y("step:N", title=None, sort=None, axis=alt.Axis(labelLimit=170)),
            x=alt.X("start:Q", title="ε", scale=alt.Scale(domainMin=0)),
            x2="end:Q",
            color=draw.make_channel(alt.Color, "kind", {kind: _STEPS[kind] for kind in draw.names(rows, "kind")}),
            tooltip=draw.tips("step:N", "kind:N", "start:Q", "end:Q"),
        )
    )
    line = (
        alt.Chart(draw.data([{"cap": cap}])).mark_rule(strokeWidth=2, strokeDash=[5, 3], color=ORANGE).encode(x="cap:Q")
    )
    label = line.mark_text(align="right", dx=-5, baseline="top", y=4, text="cap", fontSize=12).encode(x="cap:Q")
    return draw.finish(alt.layer(bars, line, label), ROW * len(rows) + 20)


def figure(ledger: LedgerSummary) -> Figure:
    """Draw the budget, charge by charge."""
    rows = waterfall(ledger)
    return Figure(
        section="Budget",
        title="Where the budget went",
        caption="Each charge as if it stood alone, then what composing them takes off or adds (the total must hold "
        "for adaptive plans too), then the total as the cap counts it. Reference runs and refunds are outside it.",
        alt=f"The charges take the total to epsilon {at_most(ledger.spent_epsilon)} of {ledger.cap_epsilon:.3g}.",
        chart=_chart(rows, ledger.cap_epsilon),
        rows=rows,
        wide=True,
    )


SECTION = Section("budget", figures=lambda page: (figure(page.ledger),))


def _meaning_rows(releases: Sequence[Mapping[str, Any]]) -> Rows:
    """Return variant, what, share: what each proven curve lets an attacker find and believe, beside guessing."""
    return [
        {"variant": release["variant"], "what": what, "share": release["meaning"][key]}
        | {"shown": f"{at_most(100 * release['meaning'][key])}%"}
        for release in releases
        if release["meaning"]
        for what, key in _MEANING.items()
    ]


def _limits(curves: Mapping[str, TradeOff | None], floor: float = 1e-3, points: int = 60) -> Rows:
    """Return variant, fpr, tpr: no attack on a release lies above its line; a release without a curve has none."""
    grid = np.geomspace(floor, 1.0, points)
    return [
        {"variant": name, "fpr": float(fpr), "tpr": curve.true_positives(float(fpr))}
        for name, curve in curves.items()
        if curve
        for fpr in grid
    ]


def _plain_chart(rows: Rows, units: str) -> Chart:
    """Draw what a proven curve lets an attacker find and believe of 100 `units`, beside what guessing gives."""
    base = alt.Chart(draw.data(rows)).encode(
        x=alt.X("share:Q", title=f"of 100 {units}", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
        y=draw.line_axis(rows, "variant"),
        yOffset=alt.YOffset("what:N", sort=list(_MEANING)),
        tooltip=draw.tips("variant:N", "what:N", "share:Q"),
    )
    bars = base.mark_bar().encode(
        color=draw.make_channel(alt.Color, "what", {_BLIND: GREY, _FOUND: ORANGE, _BEFORE: GREY, _AFTER: BLUE})
    )
    text = base.mark_text(align="left", dx=4, fontSize=11).encode(text="shown:N")
    return draw.finish(alt.layer(bars, text), draw.height_of(rows, "variant", 3 * draw.ROW), columns=2)


def _limits_chart(rows: Rows) -> Chart:
    """Draw the upper bound on every attack's ROC curve, a line per release, and the line of guessing."""
    floor = min(row["fpr"] for row in rows)
    x, y, _ = draw.log_rates(floor, "outsiders accused", "members found, at most")
    lines = alt.Chart(draw.data(rows)).mark_line(strokeWidth=2, clip=True)
    lines = lines.encode(
        x=x,
        y=y,
        color=draw.color_channel(rows),
        strokeDash=draw.dash_channel(rows),
        tooltip=draw.tips("variant:N", "fpr:Q", "tpr:Q"),
    )
    ends = [{"fpr": rate, "tpr": rate} for rate in (floor, 1.0)]
    guess = alt.Chart(draw.data(ends)).mark_line(color=GREY, strokeDash=[4, 3]).encode(x=x, y=y)
    return draw.finish(alt.layer(guess, lines), 280)


def limit_figures(
    releases: Sequence[Mapping[str, Any]], curves: Mapping[str, TradeOff | None], unit: Unit
) -> Iterator[Figure]:
    """Draw the meaning of epsilon, and the limits that no attack can pass.

    Args:
        releases: those of the statement.
        curves: variant -> its proven curve; None where it has none. A release without a promise gets no curve.
    """
    words, promised = _meaning_rows(releases), [release["variant"] for release in releases if release["meaning"]]
    own = {name: curves[name] for name in promised}
    yield from Figure.of(
        words,
        lambda rows: _plain_chart(rows, unit.many),
        section="Privacy",
        title="What epsilon means",
        caption=f"Of 100 {unit.many}, how many the best possible attack finds while it wrongly accuses 1 in 100 "
        f"outsiders; and how sure someone may be about a {unit.name}, who held 1 in 100 likely before. Proved, for "
        "any attack.",
        alt="; ".join(f"{row['variant']}, {row['what']}: {row['shown']}" for row in words) + ".",
    )
    yield from Figure.of(
        _limits(own),
        _limits_chart,
        section="Privacy",
        title="What no attack can pass",
        caption="The most members that any attack finds, for each share of outsiders it accuses. Grey: guessing.",
        alt=f"Upper bounds of the ROC curve of {', '.join(own)}.",
    )
