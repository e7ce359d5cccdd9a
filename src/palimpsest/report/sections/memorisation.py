"""Members and secrets that the rows repeat, and the n-grams that they share.

Overlap of n-grams is shown with members, with a holdout that nothing saw, and with public text.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import altair as alt

from palimpsest.audit.memorisation import Contrast, MemorisationAudit, Repeats
from palimpsest.audit.ngrams import NgramAudit
from palimpsest.report import drawing as draw
from palimpsest.report.drawing import CORPORA, Chart, Rows
from palimpsest.report.formats import number, plural_of, points
from palimpsest.report.results import BASELINES, Excess, Metric, Results, Row, measured_subjects
from palimpsest.report.sections.base import (
    Cell,
    Claim,
    Column,
    Figure,
    Page,
    Section,
    Table,
    claim_of,
    inconclusive_cell,
    word_column,
)

_MEMORISATION = Metric("memorisation", MemorisationAudit.from_json, lambda params: params.run.audit)
_COPIES = "near-duplicates"
_NGRAMS = Metric("ngrams", NgramAudit.from_json, measured_subjects)

_EXCESS_ORDER = 5  # n of the final table
_BLIND = "planted copies are not found"
_ORDER = alt.X("order:O", title="n", axis=alt.Axis(labelAngle=0))


def repeats(results: Results) -> Rows:
    """Return variant, what, value, low, high, p, members, never read: repeated units, members less holdout."""
    return [
        {"variant": variant, "what": what}
        | contrast.excess.to_json()
        | {"p": contrast.p, "members": contrast.exposed.count, "never read": contrast.control.count}
        for variant, audit in results.of(_MEMORISATION).items()
        for what, contrast in _contrasts(audit).items()
    ]


def _contrasts(audit: MemorisationAudit) -> dict[str, Contrast]:
    found = {what: one.records for what, one in _repeated(audit).items() if one.judges or _is_found(one.records)}
    contrasts = {what: one for what, one in found.items() if what == _COPIES or _is_found(one)}
    if audit.secrets is not None:
        contrasts |= {"secrets, exact": audit.secrets.exact, "secrets, near": audit.secrets.near}
    return contrasts


def _repeated(audit: MemorisationAudit) -> dict[str, Repeats]:
    return {_COPIES: audit.near_duplicates, **audit.personal}


def _is_found(contrast: Contrast) -> bool:
    return bool(contrast.exposed.count or contrast.control.count)


def _unjudged(results: Results) -> Rows:
    """Return variant, what, found, planted: kinds of contents that are not found where they were planted."""
    return [
        {"variant": variant, "what": what, "found": one.planted.count, "planted": one.planted.n}
        for variant, audit in results.of(_MEMORISATION).items()
        for what, one in _repeated(audit).items()
        if not one.judges
    ]


def _tables(page: Page) -> Iterator[Table[Mapping[str, Any]]]:
    yield Table(
        "Repetitions that cannot be judged",
        "Copies without their last words, and invented values put into such texts, were planted to try the search. "
        "Where it misses half of them, that it found none in the rows says nothing.",
        (
            word_column("Variant", "variant"),
            word_column("What", "what"),
            Column("", lambda row: Cell("cannot judge", (f"{row['found']} of {row['planted']} planted were found",))),
        ),
        _unjudged(page.results),
    )


def _figures(page: Page) -> Iterator[Figure]:
    rows = repeats(page.results)
    return Figure.of(
        rows,
        lambda rows: draw.differences(rows, "what", "members less the control"),
        section="Memorisation",
        title="Members and secrets that the rows repeat",
        caption=f"Share of members that are repeated, less the share of {plural_of(page.summary.unit)} that were never "
        "read (of planted secrets: less secrets that were never planted). 95% intervals.",
        alt=draw.describe_values("Excess", rows, "variant", "what", value="value"),
        wide=True,
    )


SECTION = Section("memorisation", (_MEMORISATION,), tables=_tables, figures=_figures, heading="Memorisation")


def excess_of(results: Results, variant: str) -> Excess | None:
    """Return the excess field of a line of the final table."""
    audit = results.get(_NGRAMS, variant)
    overlap = audit.orders.get(_EXCESS_ORDER) if audit else None
    return Excess(_EXCESS_ORDER, overlap.excess, overlap.p, overlap.judges) if overlap else None


def overlap(audit: NgramAudit) -> Rows:
    """Return order, corpus, rate, count, total: how much of the synthetic text occurs in each corpus."""
    return [
        {"order": order, "corpus": corpus} | draw.fields(share, "rate", "count", "total")
        for order, found in audit.orders.items()
        for corpus, share in found.shares.items()
    ]


def _excess(results: Results) -> Rows:
    """Return variant, order, value, low, high, p: overlap with members minus overlap with the holdout."""
    return [
        {"variant": variant, "order": order} | found.excess.to_json() | {"p": found.p}
        for variant, audit in results.of(_NGRAMS).items()
        for order, found in audit.orders.items()
        if found.judges
    ]


def _overlap_chart(rows: Rows, gains: Rows) -> Chart:
    """Draw the share of synthetic n-grams in members, holdout and public text; above it, members minus holdout."""
    tops = {order: max(row["rate"] for row in rows if row["order"] == order) for order in draw.names(rows, "order")}
    room = alt.Scale(domain=[0, 1.12 * max(tops.values())], nice=False)
    bars = (
        alt.Chart(draw.data(rows))
        .mark_bar()
        .encode(
            x=_ORDER,
            xOffset=alt.XOffset("corpus:N", sort=list(CORPORA)),
            y=alt.Y("rate:Q", title="synthetic n-grams that occur in it", axis=alt.Axis(format="%"), scale=room),
            color=draw.make_channel(alt.Color, "corpus", CORPORA),
            tooltip=draw.tips("order:O", "corpus:N", "rate:Q", "count:Q", "total:Q"),
        )
    )
    notes = [{"order": row["order"], "top": tops[row["order"]], "note": points(row["value"], 1)} for row in gains]
    text = alt.Chart(draw.data(notes)).mark_text(dy=-8, fontSize=11).encode(x=_ORDER, y="top:Q", text="note:N")
    return draw.finish(alt.layer(bars, text), 260)


def _excess_chart(rows: Rows) -> Chart:
    """Draw overlap with members minus overlap with the holdout, with intervals, per n and variant."""
    base = alt.Chart(draw.data(rows)).encode(
        x=_ORDER,
        xOffset=alt.XOffset("variant:N", sort=draw.names(rows, "variant")),
        color=draw.color_channel(rows),
        tooltip=draw.tips("variant:N", "order:O", "value:Q", "low:Q", "high:Q", "p:Q"),
    )
    low = alt.Y("low:Q", title="excess over the holdout", axis=alt.Axis(format="+.1%"))
    return draw.finish(
        alt.layer(draw.draw_level(0.0), *draw.intervals(base, low, "value", 70, shape=draw.shape_channel(rows))), 260
    )


def _ngram_figures(page: Page) -> Iterator[Figure]:
    gains = _excess(page.results)
    for variant, audit in page.results.of(_NGRAMS).items():
        if variant in BASELINES:
            continue
        bars, own = overlap(audit), [row for row in gains if row["variant"] == variant]
        yield Figure(
            section="Memorisation",
            title=f"Overlap of {variant} with members, holdout and public text",
            caption="The number on top is members (train) minus holdout, in percentage points: overlap alone says "
            "nothing, for text of one kind always shares phrases. All training rows are more than members or holdout, "
            "and so hold more of any text.",
            alt=draw.describe_values(f"Share of {variant}'s n-grams found", bars, "order", "corpus", value="rate"),
            chart=_overlap_chart(bars, own),
            rows=bars,
        )
    yield from Figure.of(
        gains,
        _excess_chart,
        section="Memorisation",
        title="Excess over a holdout that nothing ever saw",
        caption="The intervals are over synthetic rows, for these members and this holdout. Which rows are members was "
        "chance too, which p counts (in the table): how often chance alone gives so large an excess. A small p means "
        "that the text repeats rows it was trained on.",
        alt=draw.describe_values("Excess with 95% intervals", gains, "variant", "order", value="value"),
        wide=True,
    )


def _cell(row: Row) -> Cell | None:
    if row.ngram_excess is None:
        return inconclusive_cell(row, _NGRAMS.name)
    if not row.ngram_excess.judges:
        return Cell("cannot judge", (_BLIND,))
    rate = row.ngram_excess.rate
    return Cell(
        points(rate.value),
        (f"{points(rate.low)} to {points(rate.high)} points", f"p = {number(row.ngram_excess.p, 2)}"),
    )


def _claims(row: Row, results: Results, _: str) -> Iterator[Claim]:
    if row.ngram_excess and row.ngram_excess.judges:
        rate = row.ngram_excess.rate
        sentence = (
            f"{row.ngram_excess.order}-grams of {row.variant} that occur in members, minus those in a holdout it never "
            f"saw: {points(rate.value)} percentage points ({points(rate.low)} to {points(rate.high)} over synthetic "
            f"rows; chance alone gives as much with p = {number(row.ngram_excess.p, 2)})."
        )
        yield claim_of("G", row, _NGRAMS, sentence, results)


NGRAMS = Section(
    "ngrams",
    (_NGRAMS,),
    columns=lambda _: (Column(f"{_EXCESS_ORDER}-gram excess", _cell),),
    figures=_ngram_figures,
    claims=_claims,
    plots={"overlap": lambda page: _excess(page.results)},
    heading="Memorisation",
)
