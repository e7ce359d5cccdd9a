"""Likeness of the rows to the private ones as sets, their structure as JSON, and the facts that they carry.

Sets are compared by measures, by length, and by label; JSON rows by the shares that are JSON and conform to the schema;
facts of the invented world by those that many units state, those that one states, and those planted.
"""

import math
from collections.abc import Iterator, Sequence

import altair as alt
from markupsafe import Markup

from palimpsest.audit.facts import FactAudit, PopulationFactAudit
from palimpsest.audit.fidelity import FidelityAudit, Measured
from palimpsest.audit.statistics import CONFIDENCE, wilson
from palimpsest.audit.structure import StructureAudit
from palimpsest.report import drawing as draw
from palimpsest.report.drawing import BLUE, GREY, ORANGE, Chart, Rows
from palimpsest.report.formats import plural_of
from palimpsest.report.results import Fraction, Metric, Results, Row, measured_subjects
from palimpsest.report.sections.base import Cell, Claim, Column, Figure, Page, Section, claim_of, inconclusive_cell
from palimpsest.workspace import REAL

_FIDELITY = Metric("fidelity", FidelityAudit.from_json, lambda params: params.run.audit)
_STRUCTURE = Metric(
    "structure",
    StructureAudit.from_json,
    lambda params: () if params.dataset.json_schema is None else measured_subjects(params),
)

PARSED, VALID = "is JSON", "conforms to the schema"
_FACTS = Metric("facts", FactAudit.from_json, measured_subjects)


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
    drawn = [row for row in rows if row["place"] is not None]
    if not drawn:
        return "No measure can tell public text from private."
    return draw.describe_values("Place", drawn, "variant", "measure", value="place")


_PLOTS = {"fidelity": lambda page: fidelity(page.results)}
SECTION = Section("fidelity", (_FIDELITY,), figures=_figures, plots=_PLOTS, heading="Fidelity")


def structure(results: Results) -> Rows:
    """Return variant, what, count, total, share, low, high: synthetic rows that are a JSON object, and that conform."""
    return [
        {"variant": variant, "what": what, "count": rate.count, "total": rate.n, "share": rate.rate}
        | {"low": rate.low, "high": rate.high}
        for variant, audit in results.of(_STRUCTURE).items()
        for what, rate in ((PARSED, audit.parsed), (VALID, audit.valid))
        if rate.n
    ]


def _structure_chart(rows: Rows) -> Chart:
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


def _structure_figures(page: Page) -> Iterator[Figure]:
    rows = structure(page.results)
    return Figure.of(
        rows,
        _structure_chart,
        section="Structure",
        title="Rows that are JSON, and rows that conform",
        caption="Synthetic rows that are a JSON object, and those that conform to the public schema, of all rows. "
        "Intervals: Wilson, 95%.",
        alt=draw.describe_values("Share of rows", rows, "variant", "what", value="share"),
    )


STRUCTURE = Section("structure", (_STRUCTURE,), figures=_structure_figures, heading="Structure")


def shares(results: Results, variant: str) -> tuple[Fraction | None, Fraction | None, Fraction | None]:
    """Return fields of a line of the final table: facts carried, facts of one unit leaked, planted secrets leaked."""
    audit = results.get(_FACTS, variant)
    if audit is None:
        return None, None, None
    return (
        Fraction(audit.carried, len(audit.population)),
        Fraction(audit.individual_leaked, audit.individual_total),
        Fraction(audit.canaries_leaked, audit.canaries_planted),
    )


def carried_shares(results: Results) -> Rows:
    """Return variant, support, carried, total, share, low, high: facts pooled by their number of units (doubling)."""
    return [row for variant, audit in results.of(_FACTS).items() for row in _pool_facts(variant, audit.population)]


def _pool_facts(variant: str, facts: Sequence[PopulationFactAudit]) -> Rows:
    bins: dict[int, list[PopulationFactAudit]] = {}
    for fact in facts:
        bins.setdefault(int(math.log2(max(fact.support, 1))), []).append(fact)
    rows = []
    for members in (bins[key] for key in sorted(bins)):
        count, total = sum(fact.carried for fact in members), len(members)
        low, high = wilson(count, total, CONFIDENCE)
        support = math.exp(sum(math.log(max(fact.support, 1)) for fact in members) / total)
        row = {"variant": variant, "support": support, "carried": count, "total": total, "share": count / total}
        rows.append(row | {"low": low, "high": high})
    return rows


def _fact_chart(rows: Rows, units: str) -> Chart:
    """Draw the share of population facts in the synthetic text against how many private `units` state them."""
    counts = alt.Scale(type="log", nice=False, padding=16)
    base = alt.Chart(draw.data(rows)).encode(
        x=alt.X("support:Q", title=f"private {units} that state the fact (log)", scale=counts),
        color=draw.color_channel(rows),
        tooltip=draw.tips("variant:N", "support:Q", "carried:Q", "total:Q", "share:Q", "low:Q", "high:Q"),
    )
    share, whole = alt.Axis(format="%", tickCount=5), alt.Scale(domain=[0, 1])
    low = alt.Y("low:Q", title="facts carried over", axis=share, scale=whole)
    band = base.mark_area(opacity=0.18).encode(y=low, y2="high:Q")
    line = base.mark_line(strokeWidth=2).encode(y="share:Q")
    return draw.finish(alt.layer(band, line, draw.points(base, 70, y="share:Q", shape=draw.shape_channel(rows))), 280)


def _fact_figures(page: Page) -> Iterator[Figure]:
    rows, units = carried_shares(page.results), plural_of(page.summary.unit)
    return Figure.of(
        rows,
        lambda rows: _fact_chart(rows, units),
        section="Facts",
        title=f"What many {units} agree on, and what survives",
        caption=f"Good synthetic text keeps the facts that many {units} state and drops what only one does. "
        "Bands: Wilson, 95%.",
        alt=draw.describe_values("Share of population facts carried over", rows, "variant", "support", value="share"),
        wide=True,
    )


def _share_cell(part: Fraction | None, *small: str) -> Cell | None:
    if part is None:
        return None
    return Cell(Markup('{}<span class="of"> of {}</span>').format(part.count, part.total), small)


def _leaked_cell(row: Row) -> Cell | None:
    planted = row.canaries_leaked
    return _share_cell(row.individual_leaked, f"{planted.count} of {planted.total} canaries") if planted else None


def _claims(row: Row, results: Results, unit: str) -> Iterator[Claim]:
    if row.individual_leaked and row.canaries_leaked:
        sentence = (
            f"{row.variant} contains {row.individual_leaked.count} of {row.individual_leaked.total} facts about one "
            f"{unit} and {row.canaries_leaked.count} of {row.canaries_leaked.total} planted secrets."
        )
        yield claim_of("F", row, _FACTS, sentence, results)


def _carried_cell(row: Row) -> Cell | None:
    return _share_cell(row.facts_carried) or inconclusive_cell(row, _FACTS.name)


_COLUMNS = (Column[Row]("Facts carried", _carried_cell), Column[Row]("Leaked", _leaked_cell))
FACTS = Section("facts", (_FACTS,), columns=lambda _: _COLUMNS, figures=_fact_figures, claims=_claims, heading="Facts")
