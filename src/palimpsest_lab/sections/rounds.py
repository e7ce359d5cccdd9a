"""Evolution round by round: how near the texts are to the private rows, how votes spread, how many parents are left."""

from collections.abc import Iterator

import altair as alt

from palimpsest.report import drawing as draw
from palimpsest.report.drawing import Chart, Rows
from palimpsest.report.results import Metric, Results
from palimpsest.report.sections.base import Figure, Page, Section
from palimpsest_lab.audits.rounds import EvolutionAudit, Turnout
from palimpsest_lab.settings import run_of

_EVOLUTION = Metric(
    "evolution",
    EvolutionAudit.from_json,
    lambda params: [*run_of(params).evolution_audit, *run_of(params).eda_audit],
)

ALL_LABELS = "all labels"
_SELECTED, _READABLE = "selected", "readable too"
_MEASURES = {"frechet": "Fréchet distance", "energy": "Energy distance", "wasserstein": "Wasserstein distance"}
_ROUND = alt.X("round:O", title="round", axis=alt.Axis(labelAngle=0))
_FROM_0 = alt.Scale(zero=True)


def distances(results: Results) -> Rows:
    """Return variant, series, measure, round, value, floor, n: how far each round's texts are from the private rows.

    `series` is the variant. A method that tells parents apart has a second series, "<variant>, parents".
    """
    return [
        {"variant": variant, "series": variant + mark, "measure": one.name, "round": number}
        | draw.fields(one, "value", "floor", "n")
        for variant, audit in results.of(_EVOLUTION).items()
        for mark, rounds in (("", audit.populations), (", parents", audit.parents))
        for number, found in enumerate(rounds, 1)
        for one in found
    ]


def votes(results: Results) -> Rows:
    """Return variant, round, label, candidates, mean, variance: the spread of each round's exact votes.

    All labels together come first.
    """
    return [
        {"variant": variant, "round": number, "label": one.label or ALL_LABELS}
        | draw.fields(one, "candidates", "mean", "variance")
        for variant, number, one in _turnouts(results)
    ]


def parents(results: Results) -> Rows:
    """Return variant, round, what, parents: the number that each round's votes selected, and how many are readable."""
    return [
        {"variant": variant, "round": number, "what": what, "parents": count}
        for variant, number, one in _turnouts(results)
        if one.label is None
        for what, count in ((_SELECTED, one.selected), (_READABLE, one.readable))
    ]


def _turnouts(results: Results) -> Iterator[tuple[str, int, Turnout]]:
    for variant, audit in results.of(_EVOLUTION).items():
        for at, turnouts in enumerate(audit.votes, 1):
            yield from ((variant, at, one) for one in turnouts)


def distances_chart(rows: Rows) -> Chart:
    """Draw a line per variant over the rounds, and its floor, level and dashed."""
    tooltip = draw.tips("series:N", "round:Q", "value:Q", "floor:Q", "n:Q")
    base = alt.Chart(draw.data(rows)).encode(x=_ROUND, color=draw.color_channel(rows, "series"), tooltip=tooltip)
    y = alt.Y("value:Q", title="distance to private rows", scale=_FROM_0)
    line = base.mark_line(strokeWidth=2).encode(y=y)
    floor = base.mark_line(strokeWidth=1.5, strokeDash=[4, 4]).encode(y="floor:Q")
    return draw.finish(
        alt.layer(floor, line, draw.points(base, 80, y=y, shape=draw.shape_channel(rows, "series"))), 260
    )


def votes_chart(rows: Rows) -> Chart:
    """Draw the variance of votes over the rounds: a line per variant for all labels, a faint one for each label."""
    together, each = draw.split(rows, lambda row: row["label"] == ALL_LABELS)
    y = alt.Y("variance:Q", title="variance of a candidate's votes", scale=_FROM_0)
    tooltip = draw.tips("variant:N", "round:Q", "label:N", "candidates:Q", "mean:Q", "variance:Q")
    labels, whole = (
        alt.Chart(draw.data(some)).encode(x=_ROUND, y=y, color=draw.color_channel(rows), tooltip=tooltip)
        for some in (each, together)
    )
    faint = labels.mark_line(strokeWidth=1, opacity=0.45).encode(detail=["label:N", "variant:N"])
    layers = [whole.mark_line(strokeWidth=2), draw.points(whole, 80, shape=draw.shape_channel(rows))]
    return draw.finish(alt.layer(*([faint] if each else []), *layers), 220)


def _parents_chart(rows: Rows) -> Chart:
    """Draw how many parents each round's votes selected, dashed, and how many of them are readable."""
    base = alt.Chart(draw.data(rows)).encode(
        x=_ROUND,
        y=alt.Y("parents:Q", title="parents, all labels", scale=_FROM_0),
        color=draw.color_channel(rows),
        tooltip=draw.tips("variant:N", "round:Q", "what:N", "parents:Q"),
    )
    key = alt.Legend(symbolType="stroke", symbolSize=300)
    dash = draw.make_channel(alt.StrokeDash, "what", {_SELECTED: [4, 4], _READABLE: [1, 0]}, legend=key)
    line = base.mark_line(strokeWidth=2).encode(strokeDash=dash)
    return draw.finish(alt.layer(line, draw.points(base, 80, shape=draw.shape_channel(rows), detail="what:N")), 220)


def _round_figures(page: Page) -> Iterator[Figure]:
    every = distances(page.results)
    for measure, name in _MEASURES.items():
        rows = [row for row in every if row["measure"] == measure]
        yield from Figure.of(
            rows,
            distances_chart,
            section="Fidelity",
            title=f"{name}, round by round",
            caption="How far the texts of each round are from the private ones, as embeddings. The dashed line is how "
            "far training rows are from the holdout at the same number of rows: at it, texts are as near as rows that "
            "were never seen. It is one draw of chance, and to be below it is no sign of copies."
            f"{_explain_two_sets(rows)}",
            alt=draw.describe_values(name, rows, "series", "round", value="value"),
        )
    spread, left = votes(page.results), parents(page.results)
    yield from Figure.of(
        spread,
        votes_chart,
        section="Fidelity",
        title="How votes spread, round by round",
        caption="Variance of the exact votes over the candidates, before any noise; faint: each label by itself. Near "
        "the mean of the votes (in the table) it is what chance alone makes, and noisy votes then tell no candidate "
        "from another.",
        alt=draw.describe_values("Variance", spread, "variant", "round", "label", value="variance"),
    )
    yield from Figure.of(
        left,
        _parents_chart,
        section="Fidelity",
        title="Parents, round by round",
        caption="Dashed: candidates that the noisy votes selected, over all labels. Solid: those of them whose text "
        "the public language model finds likely enough; only they have offspring.",
        alt=draw.describe_values("Parents", left, "variant", "round", "what", value="parents"),
    )


def _explain_two_sets(rows: Rows) -> str:
    """Explain the two compared sets, where candidates and parents are told apart."""
    apart = dict.fromkeys(row["variant"] for row in rows if row["series"] != row["variant"])
    if not apart:
        return ""
    return (
        f" Of {', '.join(apart)}, all candidates of a round are drawn, and the parents that votes selected of them by "
        "themselves, with as many of each label as private rows have; fewer rows have a higher floor."
    )


SECTION = Section("evolution", (_EVOLUTION,), figures=_round_figures, heading="Fidelity")
