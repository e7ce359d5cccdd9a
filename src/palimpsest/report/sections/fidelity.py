"""Similarity of the synthetic and the private rows as sets: by measures, by length, and by label."""

from collections.abc import Iterator

import altair as alt

from palimpsest.audit.fidelity import FidelityAudit, Measured
from palimpsest.report import drawing as draw
from palimpsest.report.drawing import GREY, Chart, Rows
from palimpsest.report.results import Metric, Results
from palimpsest.report.sections.base import Figure, Page, Section
from palimpsest.workspace import REAL

_FIDELITY = Metric("fidelity", FidelityAudit.from_json, lambda params: params.run.audit)


def fidelity(results: Results) -> Rows:
    """Return variant, measure, better, value, unseen, public, floor, n, place: each measure with its comparisons.

    `place` is 0 at the floor and 1 at public text. It is None where public text lies within the floor's scatter, so
    that the measure tells nothing apart.
    """
    return [
        {"variant": variant, "measure": name.replace("_", " ")}
        | draw.fields(one, "better", "value", "unseen", "public", "floor", "n")
        | {"place": _place(one)}
        for variant, audit in results.of(_FIDELITY).items()
        for name, one in audit.measures.items()
    ]


def _place(one: Measured) -> float | None:
    scatter = abs(one.floor_high - one.floor_low)
    if one.public is None or abs(one.public - one.floor) <= scatter:
        return None
    return (one.value - one.floor) / (one.public - one.floor)


def lengths(results: Results) -> Rows:
    """Return variant, length, share: the share of rows per word of length, at each bin's middle; real rows come last.

    Bins of two audits differ in width, so a share is divided by its bin's width.
    """
    return [
        {"variant": name, "length": (one.first + one.last) / 2, "share": one.shares[side] / (one.last - one.first + 1)}
        for name, side, audit in _sides(results)
        for one in audit.lengths
    ]


def label_shares(results: Results) -> Rows:
    """Return variant, label, share: the share of rows with each label of the public list; the real rows come last."""
    return [
        {"variant": name, "label": label, "share": share}
        for name, side, audit in _sides(results)
        for label, share in audit.labels.get(side, {}).items()
    ]


def _sides(results: Results) -> list[tuple[str, str, FidelityAudit]]:
    """Return each variant by its synthetic rows, and the members once: they are the same for all."""
    audits = results.of(_FIDELITY)
    synthetic = [(variant, "synthetic", audit) for variant, audit in audits.items()]
    return [*synthetic, *((REAL, "train", audit) for audit in list(audits.values())[:1])]


def _likeness_chart(rows: Rows) -> Chart:
    """Draw where each measure puts each variant between rows like the private ones and public text."""
    variants = draw.names(rows, "variant")
    ends = alt.Chart(draw.data([{"level": 0.0}, {"level": 1.0}]))
    marks = ends.mark_rule(color=GREY, strokeDash=[4, 3]).encode(x="level:Q")
    dots = draw.points(
        alt.Chart(draw.data(rows)),
        80,
        x=alt.X("place:Q", title="0: as private rows to each other; 1: as public text"),
        y=draw.line_axis(rows, "measure", labelLimit=200),
        yOffset=alt.YOffset("variant:N", sort=variants),
        color=draw.color_channel(rows),
        shape=draw.shape_channel(rows),
        tooltip=draw.tips("variant:N", "measure:N", "value:Q", "unseen:Q", "public:Q", "floor:Q", "n:Q"),
    )
    return draw.finish(alt.layer(marks, dots), draw.height_of(rows, "measure", max(draw.ROW, 9 * len(variants))))


def _lengths_chart(rows: Rows) -> Chart:
    """Draw the lengths of the rows, per variant."""
    line = (
        alt.Chart(draw.data(rows))
        .mark_line(strokeWidth=2, interpolate="monotone")
        .encode(
            x=alt.X("length:Q", title="words"),
            y=alt.Y("share:Q", title="rows, per word of length", axis=alt.Axis(format="%")),
            color=draw.color_channel(rows),
            strokeDash=draw.dash_channel(rows),
            tooltip=draw.tips("variant:N", "length:Q", "share:Q"),
        )
    )
    return draw.finish(alt.layer(line), 240)


def _labels_chart(rows: Rows) -> Chart:
    """Draw how often each label occurs, per variant."""
    dots = draw.points(
        alt.Chart(draw.data(rows)),
        90,
        y=alt.Y("label:N", title=None, sort=None, axis=alt.Axis(labelLimit=150)),
        x=alt.X("share:Q", title="rows with the label", axis=alt.Axis(format="%"), scale=alt.Scale(domainMin=0)),
        color=draw.color_channel(rows),
        shape=draw.shape_channel(rows),
        tooltip=draw.tips("label:N", "variant:N", "share:Q"),
    )
    return draw.finish(alt.layer(dots), draw.height_of(rows, "label"))


def _figures(page: Page) -> Iterator[Figure]:
    rows, labels, sizes = fidelity(page.results), label_shares(page.results), lengths(page.results)
    yield from Figure.of(
        rows,
        _likeness_chart,
        section="Fidelity",
        title="How like the private rows the synthetic ones are, as sets",
        caption="Each measure at one number of rows, between what two halves of the private rows measure (0) and "
        "what public text does (1). Left of 0 is nearer to the members than private rows are to each other: look "
        "at the column unseen, against the holdout. A line without a mark is a measure that cannot tell public text "
        "from private.",
        alt=_places(rows),
        wide=True,
    )
    yield from Figure.of(
        labels,
        _labels_chart,
        section="Shape",
        title="How often each label occurs",
        caption="Shares of rows per label, beside those of the private rows.",
        alt=draw.describe_values("Share", labels, "label", "variant", value="share"),
    )
    yield from Figure.of(
        sizes,
        _lengths_chart,
        section="Shape",
        title="How long the rows are",
        caption="Share of rows per word of length, beside that of the private rows.",
        alt=f"Length distributions of {', '.join(draw.names(sizes, 'variant'))}.",
    )


def _places(rows: Rows) -> str:
    """Describe the figure of likeness for those who cannot see it."""
    drawn = [row for row in rows if row["place"] is not None]
    if not drawn:
        return "No measure can tell public text from private."
    return draw.describe_values("Place", drawn, "variant", "measure", value="place")


_PLOTS = {"fidelity": lambda page: fidelity(page.results)}
SECTION = Section("fidelity", (_FIDELITY,), figures=_figures, plots=_PLOTS, heading="Fidelity")
