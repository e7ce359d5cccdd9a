"""Rows that are JSON, and rows that conform."""

from collections.abc import Iterator

import altair as alt

from palimpsest.audit.structure import StructureAudit
from palimpsest.report.drawing import ROW, Chart, Rows, data, finish, listed, names, tips
from palimpsest.report.results import Metric, Results, measured
from palimpsest.report.sections.base import Figure, Page, Section
from palimpsest.report.theme import BLUE, ORANGE

STRUCTURE = Metric(
    "structure", StructureAudit.from_json, lambda params: () if params.dataset.json_schema is None else measured(params)
)

PARSED, VALID = "is JSON", "conforms to the schema"


def structure(results: Results) -> Rows:
    """variant, what, count, total, share, low, high: synthetic rows that are JSON and that conform to its schema."""
    return [
        {"variant": variant, "what": what, "count": rate.count, "total": rate.n, "share": rate.rate}
        | {"low": rate.low, "high": rate.high}
        for variant, audit in results.of(STRUCTURE).items()
        for what, rate in ((PARSED, audit.parsed), (VALID, audit.valid))
        if rate.n
    ]


def chart(rows: Rows) -> Chart:
    """Per variant, the share of rows that are JSON and of those that conform to the schema."""
    kinds, hues, marks = [PARSED, VALID], [BLUE, ORANGE], ["circle", "square"]
    base = alt.Chart(data(rows)).encode(
        y=alt.Y("variant:N", title=None, sort=names(rows, "variant"), axis=alt.Axis(labelLimit=150)),
        yOffset=alt.YOffset("what:N", sort=kinds),
        color=alt.Color("what:N", title=None, scale=alt.Scale(domain=kinds, range=hues)),
        tooltip=tips("variant:N", "what:N", "count:Q", "total:Q", "share:Q", "low:Q", "high:Q"),
    )
    share = alt.X("low:Q", title="synthetic rows", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    spread = base.mark_rule(strokeWidth=2).encode(x=share, x2="high:Q")
    shape = alt.Shape("what:N", title=None, scale=alt.Scale(domain=kinds, range=marks))
    dots = base.mark_point(filled=True, size=110, opacity=1).encode(x="share:Q", shape=shape)
    return finish(alt.layer(spread, dots), 2 * ROW * len(names(rows, "variant")) + 20)


def _figures(page: Page) -> Iterator[Figure]:
    rows = structure(page.results)
    if rows:
        yield Figure(
            section="Structure",
            title="Rows that are JSON, and rows that conform",
            caption="Synthetic rows that are one JSON value, and those that conform to the public schema, "
            "of all rows. Intervals: Wilson, 95%.",
            alt=listed("Share of rows", rows, "variant", "what", value="share"),
            chart=chart(rows),
            rows=rows,
        )


SECTION = Section("structure", (STRUCTURE,), figures=_figures)
