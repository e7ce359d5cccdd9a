"""Evolution, round by round: how near its texts are, how votes spread, and how many parents are left."""

from collections.abc import Iterator

import altair as alt

from palimpsest.audit.rounds import EvolutionAudit, Turnout
from palimpsest.report.drawing import Chart, Rows, by_color, by_shape, data, finish, listed, names, split, tips
from palimpsest.report.results import Metric, Results, measured
from palimpsest.report.sections.base import Figure, Page, Section

EVOLUTION = Metric(
    "evolution",
    EvolutionAudit.from_json,
    lambda params: [name for name in measured(params) if name in (*params.run.private_evolve, *params.run.eda_evolve)],
)

ALL = "all labels"
SELECTED, READABLE = "selected", "readable too"
_MEASURES = {"frechet": "Fréchet distance", "energy": "Energy distance", "wasserstein": "Wasserstein distance"}
_ROUND = alt.X("round:O", title="round", axis=alt.Axis(labelAngle=0))


def distances(results: Results) -> Rows:
    """variant, series, measure, round, value, floor, n: how far each round's texts are from the private rows.

    `series` is the variant, and for the parents of a method that tells them apart, "<variant>, parents".
    """
    return [
        {"variant": variant, "series": variant + mark, "measure": one.name, "round": number, "value": one.value}
        | {"floor": one.floor, "n": one.n}
        for variant, audit in results.of(EVOLUTION).items()
        for mark, rounds in (
            ("", audit.populations),
            (", parents", audit.parents),
        )
        for number, found in enumerate(rounds, 1)
        for one in found
    ]


def votes(results: Results) -> Rows:
    """variant, round, label, candidates, mean, variance: how the exact votes of each round spread; first all labels."""
    return [
        {"variant": variant, "round": number, "label": one.label or ALL}
        | {"candidates": one.candidates, "mean": one.mean, "variance": one.variance}
        for variant, number, one in _turnouts(results)
    ]


def parents(results: Results) -> Rows:
    """variant, round, what, parents: how many the votes of each round selected, and how many of these are readable."""
    return [
        {"variant": variant, "round": number, "what": what, "parents": count}
        for variant, number, one in _turnouts(results)
        if one.label is None
        for what, count in ((SELECTED, one.selected), (READABLE, one.readable))
    ]


def _turnouts(results: Results) -> list[tuple[str, int, Turnout]]:
    return [
        (variant, number, one)
        for variant, audit in results.of(EVOLUTION).items()
        for number, turnouts in enumerate(audit.votes, 1)
        for one in turnouts
    ]


def distances_chart(rows: Rows) -> Chart:
    """A line per variant over the rounds, and its floor, level and dashed."""
    series = names(rows, "series")
    base = alt.Chart(data(rows)).encode(
        x=_ROUND, color=by_color(series, "series"), tooltip=tips("series:N", "round:Q", "value:Q", "floor:Q", "n:Q")
    )
    y = alt.Y("value:Q", title="distance to private rows", scale=alt.Scale(zero=True))
    line = base.mark_line(strokeWidth=2).encode(y=y)
    dots = base.mark_point(filled=True, size=80, opacity=1).encode(y=y, shape=by_shape(series, "series"))
    floor = base.mark_line(strokeWidth=1.5, strokeDash=[4, 4]).encode(y="floor:Q")
    return finish(alt.layer(floor, line, dots), 260)


def votes_chart(rows: Rows) -> Chart:
    """The variance of votes over the rounds: a line per variant for all labels, and a faint one for each label."""
    together, each = split(rows, lambda row: row["label"] == ALL)
    variants = names(rows, "variant")
    y = alt.Y("variance:Q", title="variance of a candidate's votes", scale=alt.Scale(zero=True))
    tooltip = tips("variant:N", "round:Q", "label:N", "candidates:Q", "mean:Q", "variance:Q")

    def over_rounds(some: Rows) -> alt.Chart:
        return alt.Chart(data(some)).encode(x=_ROUND, y=y, color=by_color(variants), tooltip=tooltip)

    faint = over_rounds(each).mark_line(strokeWidth=1, opacity=0.45).encode(detail=["label:N", "variant:N"])
    line = over_rounds(together).mark_line(strokeWidth=2)
    dots = over_rounds(together).mark_point(filled=True, size=80, opacity=1).encode(shape=by_shape(variants))
    return finish(alt.layer(*([faint] if each else []), line, dots), 220)


def parents_chart(rows: Rows) -> Chart:
    """How many parents each round's votes selected, dashed, and how many of them are readable."""
    variants, kinds = names(rows, "variant"), [SELECTED, READABLE]
    base = alt.Chart(data(rows)).encode(
        x=_ROUND,
        y=alt.Y("parents:Q", title="parents, all labels", scale=alt.Scale(zero=True)),
        color=by_color(variants),
        tooltip=tips("variant:N", "round:Q", "what:N", "parents:Q"),
    )
    dashes = alt.Scale(domain=kinds, range=[[4, 4], [1, 0]])
    key = alt.Legend(symbolType="stroke", symbolSize=300)
    line = base.mark_line(strokeWidth=2).encode(
        strokeDash=alt.StrokeDash("what:N", title=None, scale=dashes, legend=key)
    )
    dots = base.mark_point(filled=True, size=80, opacity=1).encode(shape=by_shape(variants), detail="what:N")
    return finish(alt.layer(line, dots), 220)


def _figures(page: Page) -> Iterator[Figure]:
    yield from _distances(page)
    spread, left = votes(page.results), parents(page.results)
    if spread:
        yield Figure(
            section="Fidelity",
            title="How votes spread, round by round",
            caption="Variance of the exact votes over the candidates, before any noise; faint: each label by itself. "
            "Near the mean of the votes (in the table) it is what chance alone makes, and noisy votes then tell no "
            "candidate from another.",
            alt=listed("Variance", spread, "variant", "round", "label", value="variance"),
            chart=votes_chart(spread),
            rows=spread,
        )
        yield Figure(
            section="Fidelity",
            title="Parents, round by round",
            caption="Dashed: candidates that the noisy votes selected, over all labels. Solid: those of them whose "
            "text the public language model finds likely enough; only they have offspring.",
            alt=listed("Parents", left, "variant", "round", "what", value="parents"),
            chart=parents_chart(left),
            rows=left,
        )


def _distances(page: Page) -> Iterator[Figure]:
    found = distances(page.results)
    for measure, name in _MEASURES.items():
        rows = [row for row in found if row["measure"] == measure]
        if rows:
            yield Figure(
                section="Fidelity",
                title=f"{name}, round by round",
                caption=f"How far the texts of each round are from the private ones, as embeddings. The "
                f"dashed line is how far training rows are from the holdout at the same number of rows: nearer than "
                f"that means copies.{_two_sets(rows)}",
                alt=listed(name, rows, "series", "round", value="value"),
                chart=distances_chart(rows),
                rows=rows,
            )


def _two_sets(rows: Rows) -> str:
    """What is compared where candidates and parents are told apart."""
    apart = dict.fromkeys(row["variant"] for row in rows if row["series"] != row["variant"])
    if not apart:
        return ""
    return (
        f" Of {', '.join(apart)}, all candidates of a round are drawn, and the parents that votes selected of them by "
        "themselves, with as many of each label as private rows have; fewer rows have a higher floor."
    )


SECTION = Section("evolution", (EVOLUTION,), figures=_figures)
