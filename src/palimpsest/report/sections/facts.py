"""Facts of the invented world: those that many units state, those that one states, and those planted."""

import math
from collections.abc import Iterator, Sequence

import altair as alt
from markupsafe import Markup

from palimpsest.audit.facts import FactAudit, PopulationFactAudit
from palimpsest.audit.statistics import CONFIDENCE, wilson
from palimpsest.report.drawing import (
    Chart,
    Rows,
    color_channel,
    data,
    describe_values,
    finish,
    points,
    shape_channel,
    tips,
)
from palimpsest.report.results import Metric, Results, measured_subjects
from palimpsest.report.row import Fraction, Row
from palimpsest.report.sections.base import Cell, Claim, Column, Figure, Page, Section, claim_of, inconclusive_cell
from palimpsest.report.unit import plural_of

_FACTS = Metric("facts", FactAudit.from_json, measured_subjects)


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


def _chart(rows: Rows, units: str) -> Chart:
    """Draw the share of population facts in the synthetic text against how many private `units` state them."""
    counts = alt.Scale(type="log", nice=False, padding=16)
    base = alt.Chart(data(rows)).encode(
        x=alt.X("support:Q", title=f"private {units} that state the fact (log)", scale=counts),
        color=color_channel(rows),
        tooltip=tips("variant:N", "support:Q", "carried:Q", "total:Q", "share:Q", "low:Q", "high:Q"),
    )
    share, whole = alt.Axis(format="%", tickCount=5), alt.Scale(domain=[0, 1])
    low = alt.Y("low:Q", title="facts carried over", axis=share, scale=whole)
    band = base.mark_area(opacity=0.18).encode(y=low, y2="high:Q")
    line = base.mark_line(strokeWidth=2).encode(y="share:Q")
    return finish(alt.layer(band, line, points(base, 70, y="share:Q", shape=shape_channel(rows))), 280)


def _figures(page: Page) -> Iterator[Figure]:
    rows, units = carried_shares(page.results), plural_of(page.summary.unit)
    return Figure.of(
        rows,
        lambda rows: _chart(rows, units),
        section="Facts",
        title=f"What many {units} agree on, and what survives",
        caption=f"Good synthetic text keeps the facts that many {units} state and drops what only one does. "
        "Bands: Wilson, 95%.",
        alt=describe_values("Share of population facts carried over", rows, "variant", "support", value="share"),
        wide=True,
    )


def _cell(part: Fraction | None, *small: str) -> Cell | None:
    if part is None:
        return None
    return Cell(Markup('{}<span class="of"> of {}</span>').format(part.count, part.total), small)


def _leaked_cell(row: Row) -> Cell | None:
    planted = row.canaries_leaked
    return _cell(row.individual_leaked, f"{planted.count} of {planted.total} canaries") if planted else None


def _claims(row: Row, results: Results, unit: str) -> Iterator[Claim]:
    if row.individual_leaked and row.canaries_leaked:
        sentence = (
            f"{row.variant} contains {row.individual_leaked.count} of {row.individual_leaked.total} facts about one "
            f"{unit} and {row.canaries_leaked.count} of {row.canaries_leaked.total} planted secrets."
        )
        yield claim_of("F", row, _FACTS, sentence, results)


def _carried_cell(row: Row) -> Cell | None:
    return _cell(row.facts_carried) or inconclusive_cell(row, _FACTS.name)


_COLUMNS = (Column[Row]("Facts carried", _carried_cell), Column[Row]("Leaked", _leaked_cell))
SECTION = Section("facts", (_FACTS,), columns=lambda _: _COLUMNS, figures=_figures, claims=_claims, heading="Facts")
