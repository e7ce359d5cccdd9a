"""Brackets on the true epsilon: attacks bound it from below, proofs from above."""

from collections.abc import Iterator

import altair as alt

from palimpsest.report.drawing import (
    BLUE,
    GREY,
    ORANGE,
    Chart,
    Rows,
    data,
    describe_values,
    epsilons,
    finish,
    height_of,
    line_axis,
)
from palimpsest.report.formats import at_most, number
from palimpsest.report.row import Row, Summary
from palimpsest.report.sections.base import Cell, Column, Figure, Page, Section

_PROVED, ATTACKED, DETECTABLE = "proved cap", "attacked lower bound", "largest claim the attack could refute"
_KINDS = {_PROVED: (BLUE, "square"), ATTACKED: (ORANGE, "circle"), DETECTABLE: (GREY, "diamond")}


def bracket(summary: Summary) -> Rows:
    """Return variant, kind, epsilon: the proven cap, what attacks showed, and the most they could have shown."""
    rows: Rows = []
    for row in summary.of("release", "reference"):
        most = [attack.eps_max for attack in row.sound if attack.eps_max is not None]
        values = {_PROVED: row.epsilon_proved, ATTACKED: row.epsilon_lower, DETECTABLE: max(most, default=None)}
        rows += [{"variant": row.variant, "kind": k, "epsilon": v} for k, v in values.items() if v is not None]
    return rows


def _chart(rows: Rows) -> Chart:
    """Draw, per variant, where its true epsilon can be: above what attacks showed, below what is proved."""
    between = (
        alt.Chart(data(rows))
        .transform_filter(alt.FieldOneOfPredicate(field="kind", oneOf=[_PROVED, ATTACKED]))
        .mark_bar(color=BLUE, opacity=0.22, height=10)
        .encode(x="min(epsilon):Q", x2="max(epsilon):Q", y=line_axis(rows, "variant", offset=12))
    )
    return finish(alt.layer(between, epsilons(rows, "variant", _KINDS)), height_of(rows, "variant"), columns=1)


def _figures(page: Page) -> Iterator[Figure]:
    rows = bracket(page.summary)
    return Figure.of(
        rows,
        _chart,
        section="Privacy",
        title="Between what is proved and what was attacked",
        caption="The true privacy loss of a release lies on its bar: not above the proof, not below what the strongest "
        "attack showed (95% for all audits of it together; one whose control failed is left out). A claim beyond the "
        "diamond could not have been refuted by any attack in these audits, whatever the code did.",
        alt=describe_values("Epsilon per variant", rows, "variant", "kind", value="epsilon"),
        wide=True,
    )


def _columns(page: Page) -> Iterator[Column[Row]]:
    words = page.summary.per_word

    def cell(row: Row) -> Cell | None:
        if row.role == "release":
            return Cell(at_most(row.epsilon_proved), (f"target {number(row.epsilon_target)}",), strong=True)
        if row.role == "reference":
            return Cell(words.get(row.variant) or ("∞" if row.epsilon_proved is None else at_most(row.epsilon_proved)))
        return None

    yield Column("Proved ε", cell)


SECTION = Section("bracket", columns=_columns, figures=_figures, plots={"bracket": lambda page: bracket(page.summary)})
