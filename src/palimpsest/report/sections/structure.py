"""Shares of rows that are JSON, and of rows that conform to the schema."""

from collections.abc import Iterator

import altair as alt

from palimpsest.audit.structure import StructureAudit
from palimpsest.report import drawing as draw
from palimpsest.report.drawing import BLUE, ORANGE, Chart, Rows
from palimpsest.report.results import Metric, Results, measured_subjects
from palimpsest.report.sections.base import Figure, Page, Section

_STRUCTURE = Metric(
    "structure",
    StructureAudit.from_json,
    lambda params: () if params.dataset.json_schema is None else measured_subjects(params),
)

PARSED, VALID = "is JSON", "conforms to the schema"


def structure(results: Results) -> Rows:
    """Return variant, what, count, total, share, low, high: synthetic rows that are a JSON object, and that conform."""
    return [
        {"variant": variant, "what": what, "count": rate.count, "total": rate.n, "share": rate.rate}
        | {"low": rate.low, "high": rate.high}
        for variant, audit in results.of(_STRUCTURE).items()
        for what, rate in ((PARSED, audit.parsed), (VALID, audit.valid))
        if rate.n
    ]


def _chart(rows: Rows) -> Chart:
    """Draw, per variant, the share of rows that are JSON and of those that conform to the schema."""
    base = alt.Chart(draw.data(rows)).encode(
        y=draw.line_axis(rows, "variant"),
        yOffset=alt.YOffset("what:N", sort=[PARSED, VALID]),
        color=draw.make_channel(alt.Color, "what", {PARSED: BLUE, VALID: ORANGE}),
        tooltip=draw.tips("variant:N", "what:N", "count:Q", "total:Q", "share:Q", "low:Q", "high:Q"),
    )
    low = alt.X("low:Q", title="synthetic rows", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    shape = draw.make_channel(alt.Shape, "what", {PARSED: "circle", VALID: "square"})
    return draw.finish(
        alt.layer(*draw.intervals(base, low, "share", 110, shape=shape)), draw.height_of(rows, "variant", 2 * draw.ROW)
    )


def _figures(page: Page) -> Iterator[Figure]:
    rows = structure(page.results)
    return Figure.of(
        rows,
        _chart,
        section="Structure",
        title="Rows that are JSON, and rows that conform",
        caption="Synthetic rows that are a JSON object, and those that conform to the public schema, of all rows. "
        "Intervals: Wilson, 95%.",
        alt=draw.describe_values("Share of rows", rows, "variant", "what", value="share"),
    )


SECTION = Section("structure", (_STRUCTURE,), figures=_figures, heading="Structure")
