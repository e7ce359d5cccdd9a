"""Answers of a judge, a language model, behind demonstrations from each row of the results."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import altair as alt
from markupsafe import Markup, escape

from palimpsest.report import drawing as draw
from palimpsest.report.drawing import Chart, Rows
from palimpsest.report.formats import at_most, per_word, percent
from palimpsest.report.results import BASELINES, Metric, Results, measured_subjects
from palimpsest.report.sections.base import Cell, Column, Figure, Page, Receipts, Section, Table, word_column
from palimpsest.workspace import REAL
from palimpsest_lab.audits.incontext import Answered, InContextAnswers
from palimpsest_lab.settings import run_of

INCONTEXT = Metric(
    "incontext",
    InContextAnswers.from_json,
    lambda params: [
        name
        for name in measured_subjects(params)
        if name in (*run_of(params).in_context, *run_of(params).in_context_baseline)
    ],
)

ZERO_SHOT, NO_PROMISE = "zero-shot", "∞"
_NO_RECEIPTS: Receipts = MappingProxyType({})
_LACKS = {"context": "the model's context is too short", "demonstrations": "too few rows"}


def in_context_rows(results: Results, receipts: Receipts = _NO_RECEIPTS) -> Rows:
    """Return the answers: zero-shot first, then real demonstrations, then rows at epsilon 0, then the variants.

    The columns are variant, epsilon, shots, draws, accuracy, deviation, low, high, gain, gain_low, gain_high,
    zero_shot. The deviation is between draws of demonstrations, None of a single one; the interval is over items. The
    gain is over no demonstrations, item by item, whose accuracy is `zero_shot`; None where that does not fit. `epsilon`
    is 0 where no private row was read, and a word where its unit is not the unit of privacy.
    """
    measured = results.of(INCONTEXT)
    known = {name: measured[name] for name in (*BASELINES, *measured) if name in measured}  # baselines first
    zeros = {one.zero_shot.accuracy.value: one.zero_shot for one in known.values() if one.zero_shot.accuracy}
    levels = [row for shot in zeros.values() for row in _answered_rows(ZERO_SHOT, 0.0, shot, shot)]
    return levels + [
        row
        for variant, one in known.items()
        for shot in one.shots
        for row in _answered_rows(variant, _epsilon(variant, receipts), shot, one.zero_shot)
    ]


def _epsilon(variant: str, receipts: Receipts) -> float | str | None:
    """Return the epsilon of a row's demonstrations: a number, or words where its unit is not the unit of privacy."""
    if variant in BASELINES:
        return NO_PROMISE if variant == REAL else 0.0
    receipt = receipts.get(variant)
    if receipt is None:
        return None
    plan = receipt.plan or {}
    if "token_epsilon" in plan:
        return per_word(plan["token_epsilon"], receipt.unit)
    return NO_PROMISE if receipt.epsilon is None else receipt.epsilon


def _answered_rows(variant: str, epsilon: float | str | None, shot: Answered, zero: Answered) -> Rows:
    """Return the row of one number of demonstrations; none where nothing was answered."""
    if shot.accuracy is None:
        return []
    gain = {"value": None, "low": None, "high": None} if shot.gain is None else shot.gain.to_json()
    return [
        {"variant": variant, "epsilon": epsilon, "shots": shot.shots, "draws": len(shot.per_draw)}
        | {"accuracy": shot.accuracy.value, "deviation": shot.deviation}
        | draw.fields(shot.accuracy, "low", "high")
        | {"gain": gain["value"], "gain_low": gain["low"], "gain_high": gain["high"]}
        | {"zero_shot": zero.accuracy.value if zero.accuracy else None}
    ]


def group_by_variant(rows: Rows) -> Rows:
    """Group `in_context` rows, one row per variant: variant, epsilon, and `shots`, a mapping from numbers to rows."""
    lines: dict[str, dict[str, Any]] = {}
    for row in rows:
        line = lines.setdefault(row["variant"], {"variant": row["variant"], "epsilon": row["epsilon"], "shots": {}})
        line["shots"][row["shots"]] = row
    return list(lines.values())


def unanswered_rows(results: Results) -> Rows:
    """Return variant, shots, lacks: numbers of demonstrations (0 included), and what is too small for them."""
    return [
        {"variant": variant} | draw.fields(shot, "shots", "lacks")
        for variant, one in results.of(INCONTEXT).items()
        for shot in (one.zero_shot, *one.shots)
        if shot.accuracy is None
    ]


def judge_note(results: Results) -> str:
    """Return the evaluation's note where real demonstrations do not help its model; nothing where they do."""
    return next((f"{one.note} " for one in results.of(INCONTEXT).values() if not one.judges), "")


def chart(rows: Rows) -> Chart:
    """Draw items answered right against the number of demonstrations, a line per row, and the level without any."""
    levels = dict.fromkeys(row["zero_shot"] for row in rows if row["zero_shot"] is not None)
    rows, _ = draw.split(rows, lambda row: row["shots"] > 0)
    apart = alt.Scale(paddingInner=0.7, paddingOuter=0.35)  # rows stand beside each other, near their number
    columns = ("shots", "accuracy", "deviation", "low", "high", "gain", "gain_low", "gain_high")
    base = alt.Chart(draw.data(rows)).encode(
        x=alt.X("shots:O", title="demonstrations in the prompt", axis=alt.Axis(labelAngle=0), scale=apart),
        xOffset=alt.XOffset("variant:N", sort=draw.names(rows, "variant")),
        color=draw.color_channel(rows),
        tooltip=draw.tips("variant:N", *(f"{column}:Q" for column in columns)),
    )
    y = alt.Y("accuracy:Q", title="real test rows answered right", axis=alt.Axis(format="%"), scale=draw.NEAR)
    line = base.mark_line(strokeWidth=2).encode(y=y)
    spread = base.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q", scale=draw.NEAR), y2="high:Q")
    dots = draw.points(base, 80, y=y, shape=draw.shape_channel(rows))
    return draw.finish(alt.layer(*(draw.draw_level(value) for value in levels), line, spread, dots), 280)


def _figures(page: Page) -> Iterator[Figure]:
    rows = in_context_rows(page.results, page.receipts)
    if any(row["shots"] for row in rows):
        yield Figure(
            section="Utility",
            title="Answers behind demonstrations",
            caption=f"{judge_note(page.results)}A language model, the judge, answers real test rows behind "
            "demonstrations drawn at random from each row of the results; nothing is trained. 95% intervals over the "
            f"test rows. {_zero_shot_note(rows)}{_missing_note(page.results)}",
            alt=draw.describe_values(
                "Share answered right, by demonstrations", rows, "variant", "shots", value="accuracy"
            ),
            chart=chart(rows),
            rows=rows,
            wide=True,
        )


def _zero_shot_note(rows: Rows) -> str:
    levels = dict.fromkeys(row["zero_shot"] for row in rows)
    shown = " and ".join(percent(level) for level in levels if level is not None)
    return f"Dashed: without demonstrations, {shown}." if shown else "Without demonstrations nothing was answered."


def _missing_note(results: Results) -> str:
    missing: dict[tuple[int, str], list[str]] = {}
    for row in unanswered_rows(results):
        missing.setdefault((row["shots"], row["lacks"]), []).append(row["variant"])
    words = [f"{shots} of {', '.join(names)} ({_LACKS[lacks]})" for (shots, lacks), names in missing.items()]
    return f" Not asked: {'; '.join(words)}." if words else ""


def _tables(page: Page) -> Iterator[Table[Mapping[str, Any]]]:
    answers, doubt = in_context_rows(page.results, page.receipts), judge_note(page.results)
    note = (
        "Real test rows that the judge, a language model, answers right behind demonstrations from each row of the "
        "results; ± is the standard deviation between draws of the demonstrations. Zero-shot is without "
        "demonstrations, real with private ones."
    )
    yield Table(
        "Answers in context",
        Markup("<b>{}</b>").format(doubt) + escape(note) if doubt else note,
        (
            word_column("Demonstrations", "variant"),
            Column("ε", lambda row: Cell(at_most(row["epsilon"]))),
            *map(_shots_column, sorted({row["shots"] for row in answers})),
        ),
        group_by_variant(answers),
    )


def _shots_column(shots: int) -> Column[Mapping[str, Any]]:
    def cell(line: Mapping[str, Any]) -> Cell | None:
        row = line["shots"].get(shots)
        if row is None:
            return None
        spread = f"± {percent(row['deviation'])} over {row['draws']} draws"
        return Cell(percent(row["accuracy"]), () if row["deviation"] is None else (spread,))

    return Column(f"{shots} shown", cell, number=True)


SECTION = Section("incontext", (INCONTEXT,), tables=_tables, figures=_figures, heading="Utility")
