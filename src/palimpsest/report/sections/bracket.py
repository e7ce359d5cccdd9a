"""The bracket: above what was attacked, below what is proved."""

from collections.abc import Iterator

import altair as alt

from palimpsest.report.drawing import ROW, Chart, Rows, data, finish, listed, names, tips
from palimpsest.report.formats import number
from palimpsest.report.row import Summary
from palimpsest.report.sections.base import Cell, Column, Figure, Page, Plot, Section, Verdict
from palimpsest.report.theme import BLUE, GREY, ORANGE

PROVED, ATTACKED, DETECTABLE = "proved cap", "attacked lower bound", "largest claim the attack could refute"


def bracket(summary: Summary) -> Rows:
    """variant, kind, epsilon: the proven cap, what attacks showed, and the most they could have shown."""
    rows: Rows = []
    for row in summary.of("release", "reference"):
        most = [attack.eps_max for attack in row.attacks if attack.eps_max is not None]
        values = {PROVED: row.epsilon_proved, ATTACKED: row.epsilon_lower, DETECTABLE: max(most, default=None)}
        rows += [{"variant": row.variant, "kind": k, "epsilon": v} for k, v in values.items() if v is not None]
    return rows


def chart(rows: Rows) -> Chart:
    """Per variant, where its true epsilon can be: above what was attacked, below what is proved."""
    kinds, colors = [PROVED, ATTACKED, DETECTABLE], [BLUE, ORANGE, GREY]
    x = alt.X("epsilon:Q", title="ε", scale=alt.Scale(domainMin=0, nice=True))
    y = alt.Y("variant:N", title=None, sort=names(rows, "variant"), axis=alt.Axis(offset=12))
    base = alt.Chart(data(rows)).encode(x=x, y=y)
    marks = base.mark_point(filled=True, size=130, opacity=1).encode(
        color=alt.Color("kind:N", title=None, scale=alt.Scale(domain=kinds, range=colors)),
        shape=alt.Shape("kind:N", title=None, scale=alt.Scale(domain=kinds, range=["square", "circle", "diamond"])),
        tooltip=tips("variant:N", "kind:N", "epsilon:Q"),
    )
    between = (
        base.transform_filter(alt.FieldOneOfPredicate(field="kind", oneOf=[PROVED, ATTACKED]))
        .mark_bar(color=BLUE, opacity=0.22, height=10)
        .encode(x="min(epsilon):Q", x2="max(epsilon):Q")
    )
    return finish(alt.layer(between, marks), ROW * len(names(rows, "variant")) + 20, columns=1)


def _figures(page: Page) -> Iterator[Figure]:
    rows = bracket(page.summary)
    if rows:
        yield Figure(
            section="Privacy",
            title="Between what is proved and what was attacked",
            caption="The true privacy loss of a release lies on its bar: not above the proof, not below what the "
            "attack showed (95%). A claim beyond the diamond could not have been refuted by this attack, whatever "
            "the code did.",
            alt=listed("Epsilon per variant", rows, "variant", "kind", value="epsilon"),
            chart=chart(rows),
            rows=rows,
            wide=True,
        )


def _proved(summary: Summary) -> Iterator[Column[Verdict]]:
    words = summary.per_word

    def cell(line: Verdict) -> Cell | None:
        row = line.row
        if row.role == "release":
            return Cell(number(row.epsilon_proved), (f"target {number(row.epsilon_target)}",), strong=True)
        if row.role == "reference":
            return Cell(words.get(row.variant) or ("∞" if row.epsilon_proved is None else number(row.epsilon_proved)))
        return None

    yield Column("Proved ε", cell)


SECTION = Section(
    "bracket", columns=_proved, figures=_figures, plots=(Plot("bracket", lambda page: bracket(page.summary)),)
)
