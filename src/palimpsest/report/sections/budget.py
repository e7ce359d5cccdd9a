"""The budget, charge by charge."""

import math

import altair as alt

from palimpsest.privacy.ledger.summary import LedgerSummary
from palimpsest.report.drawing import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    ROW,
    Chart,
    Rows,
    data,
    finish,
    make_channel,
    names,
    tips,
)
from palimpsest.report.formats import at_most
from palimpsest.report.sections.base import Figure, Section

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
        alt.Chart(data(rows))
        .mark_bar(height=14)
        .encode(
            y=alt.Y("step:N", title=None, sort=None, axis=alt.Axis(labelLimit=170)),
            x=alt.X("start:Q", title="ε", scale=alt.Scale(domainMin=0)),
            x2="end:Q",
            color=make_channel(alt.Color, "kind", {kind: _STEPS[kind] for kind in names(rows, "kind")}),
            tooltip=tips("step:N", "kind:N", "start:Q", "end:Q"),
        )
    )
    line = alt.Chart(data([{"cap": cap}])).mark_rule(strokeWidth=2, strokeDash=[5, 3], color=ORANGE).encode(x="cap:Q")
    label = line.mark_text(align="right", dx=-5, baseline="top", y=4, text="cap", fontSize=12).encode(x="cap:Q")
    return finish(alt.layer(bars, line, label), ROW * len(rows) + 20)


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
