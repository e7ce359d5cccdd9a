"""Usefulness, and what it costs: scores on real rows, and brackets on the true epsilon.

Classifiers, or a language model, are trained on the rows and tested on real ones. Classifiers that were themselves
trained with DP-SGD stand beside them. Brackets: attacks bound epsilon from below, proofs from above.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
from markupsafe import Markup

from palimpsest.audit.next_token_settings import NEXT_TOKEN
from palimpsest.audit.utility import ClassifierAudit, Scored, UtilityScores
from palimpsest.report import drawing as draw
from palimpsest.report.drawing import BLUE, GREY, ORANGE, SHAPES, Chart, Rows
from palimpsest.report.formats import at_most, number, percent
from palimpsest.report.results import (
    BASELINES,
    EVALUATORS,
    Document,
    Metric,
    Results,
    Row,
    Score,
    Summary,
    measured_subjects,
)
from palimpsest.report.sections.base import (
    Cell,
    Column,
    Figure,
    Page,
    Section,
    Table,
    inconclusive_cell,
    interval_cell,
    interval_column,
    word_column,
)
from palimpsest.workspace import PUBLIC_LM, PUBLIC_ONLY, REAL

UTILITY = Metric("utility", UtilityScores.from_json, measured_subjects)
PUBLIC: Metric[Document] = Metric(
    "public", dict, lambda params: ("public",) if params.dataset.public_test else (), path="public.json"
)

_CLASSIFIER = "A classifier trained"
_TRAINED = {NEXT_TOKEN: "A language model trained further"}
_DASHES = {REAL: [1, 0], PUBLIC_ONLY: [2, 3], PUBLIC_LM: [6, 2, 2, 2]}
_CLASSIFIERS = Metric(
    "classifier",
    ClassifierAudit.from_json,
    lambda params: params.run.discriminator if params.dataset.labels else (),
    path="classifiers/{}.json",
)
_PROVED, ATTACKED, DETECTABLE = "proved cap", "attacked lower bound", "largest claim the attack could refute"
_BRACKETS = {_PROVED: (BLUE, "square"), ATTACKED: (ORANGE, "circle"), DETECTABLE: (GREY, "diamond")}


def scores(results: Results, variant: str) -> tuple[Score, ...]:
    """Return a field of a line of the final table: each evaluator's score, the unrelated one first."""
    known = results.of(UTILITY)
    real, public, own = (known[name].evaluators if name in known else {} for name in (REAL, PUBLIC_ONLY, variant))
    order = [name for name in EVALUATORS if name in own] + sorted(set(own) - set(EVALUATORS))
    return tuple(_score(name, own[name], both=name in real and name in public) for name in order)


def _score(name: str, own: Scored, both: bool) -> Score:
    note = None if own.gap_closed else _gap_note(own, both)
    return Score(
        name, own.accuracy, own.retention, own.gap_closed, note, own.perplexity, own.over_public_lm, own.macro_f1
    )  # fmt: skip


def _gap_note(own: Scored, both: bool) -> str:
    """Say why there is no gap to close: a ratio over a difference that may be zero says nothing."""
    if not both:
        return "needs both the real and the public_only row"
    if not own.compared:
        return "not compared with the baselines"
    return "the gap between public_only and real is within its 95% interval"


def _columns(page: Page) -> Iterator[Column[Row]]:
    for name in page.summary.evaluators:
        yield Column("Retention", _retention(name), note=name, label=f"Retention, {name}")
        yield Column("Gap closed", _gap(name), note=name, label=f"Gap closed, {name}")


def _retention(name: str) -> Callable[[Row], Cell | None]:
    def cell(row: Row) -> Cell | None:
        score = row.score(name)
        if score is None:
            return inconclusive_cell(row, UTILITY.name)
        ratio = interval_cell(score.retention)
        perplexity = () if score.perplexity is None else (f"perplexity {number(score.perplexity.value, 3)}",)
        f1 = () if score.macro_f1 is None else (f"macro F1 {percent(score.macro_f1)}",)
        small = (*ratio.small, f"accuracy {percent(score.accuracy.value)}", *f1, *perplexity, *_over_public_note(score))
        return Cell(ratio.text, small)

    return cell


def _gap(name: str) -> Callable[[Row], Cell | None]:
    def cell(row: Row) -> Cell | None:
        score = row.score(name)
        if score is None or row.role not in ("release", "reference"):
            return None
        if score.gap_note:
            return Cell(Markup('<span class="na" title="{}">n/a</span>').format(score.gap_note))
        return interval_cell(score.gap_closed, 0)

    return cell


def _over_public_note(score: Score) -> tuple[str, ...]:
    """Return what private rows add: the accuracy as a share of that of the public model's own rows."""
    over = score.over_public_lm
    return () if over is None else (f"of public_lm {percent(over.value, 0)}", *interval_cell(over, 0).small)


def _tables(page: Page) -> Iterator[Table[Any]]:
    yield Table(
        "Do the rows fit their labels?",
        "The share of rows to which tfidf_lr, trained on the real rows, gives the label that they were written for. It "
        "errs on real rows too, so the share of real test rows is what to expect.",
        (
            word_column("Variant", "variant"),
            interval_column("Its rows", "synthetic"),
            interval_column("Real test rows", "real"),
        ),
        [
            {"variant": row.variant} | draw.fields(row.label_fit, "synthetic", "real")
            for row in page.summary.rows
            if row.label_fit
        ],
    )
    yield from _groups(page)


def groups(results: Results) -> Rows:
    """Return variant, group, evaluator, rows, test, inside, outside, gap: one row per declared group and classifier."""
    return [
        {"variant": variant, "group": group, "evaluator": name, "rows": found.rows, "test": found.test}
        | {"inside": one.inside, "outside": one.outside, "gap": one.gap}
        for variant, scored in results.of(UTILITY).items()
        for group, found in scored.groups.items()
        for name, one in found.accuracy.items()
    ]


def _groups(page: Page) -> Iterator[Table[Mapping[str, Any]]]:
    if lines := groups(page.results):
        numbers = {
            "Its rows": "rows", "Real test rows": "test", "Accuracy in it": "inside", "Outside": "outside", "Gap": "gap"
        }  # fmt: skip
        yield Table(
            "Are groups treated alike?",
            "Groups are those of utility.groups. Its rows: how many of the rows are in the group, beside real test "
            "rows. Gap: accuracy on real test rows of the group minus that on all others. The gap of `real` is there "
            "without any noise; what a method adds is what its gap has beyond that. Several groups are several looks: "
            "one of twenty intervals misses by chance.",
            (
                word_column("Variant", "variant"), word_column("Group", "group"),
                word_column("Classifier", "evaluator"),
                *(interval_column(name, key) for name, key in numbers.items()),
            ),
            lines,
        )  # fmt: skip


def frontier(summary: Summary, evaluator: str) -> Rows:
    """Return one row per variant scored by `evaluator`; `epsilon` is None where there is no proven epsilon."""
    return [
        {"variant": row.variant, "series": row.method if row.role == "release" else row.variant, "role": row.role}
        | {"epsilon": row.epsilon_proved if row.role == "release" else None, "accuracy": score.accuracy.value}
        | draw.fields(score.accuracy, "low", "high")
        | ({} if score.perplexity is None else {"perplexity": score.perplexity.value})
        for row in summary.rows
        if (score := row.score(evaluator)) is not None
    ]


def _public_scores(scores: Mapping[str, Any], releases: Sequence[Mapping[str, Any]]) -> dict[str, Rows]:
    """Return evaluator -> its frontier: accuracy on the declared public test file, no epsilon for public text."""
    series = {name: {"variant": name, "series": name, "epsilon": None} for name in BASELINES} | {
        one["variant"]: {"variant": one["variant"], "series": one["method"], "epsilon": one["epsilon"]}
        for one in releases
    }
    frontiers: dict[str, Rows] = {}
    for variant in (name for name in scores["variants"] if name in series):
        for evaluator, score in scores["variants"][variant].items():
            own = {key: score[key] for key in ("accuracy", "low", "high")}
            frontiers.setdefault(evaluator, []).append(series[variant] | own)
    return frontiers


def _frontier_chart(rows: Rows) -> Chart:
    """Draw utility against proven epsilon, a line per method; variants that have no epsilon are level lines."""
    dots, levels = draw.split(rows, lambda row: isinstance(row["epsilon"], float))
    methods, lines = draw.names(dots, "series"), draw.names(levels, "series")
    key = alt.Legend(symbolSize=160)
    color = draw.make_channel(alt.Color, "series", draw.colors(methods + lines), legend=key)
    shapes = draw.assign_looks(methods, SHAPES) | dict.fromkeys(lines, "stroke")
    shape = draw.make_channel(alt.Shape, "series", shapes, legend=key)
    dashes = {name: [1, 0] for name in methods} | {name: _DASHES.get(name, [8, 4]) for name in lines}
    dash = draw.make_channel(alt.StrokeDash, "series", dashes, legend=key)
    y = alt.Y("accuracy:Q", title="accuracy on real test rows", scale=draw.NEAR, axis=alt.Axis(format="%"))
    tooltip = draw.tips("variant:N", "epsilon:Q", "accuracy:Q", "low:Q", "high:Q")
    rules = (
        alt.Chart(draw.data(levels))
        .mark_rule(strokeWidth=2)
        .encode(y=y, color=color, strokeDash=dash, tooltip=draw.tips("variant:N", "accuracy:Q", "low:Q", "high:Q"))
    )
    return draw.finish(alt.layer(*([rules] if levels else []), *_points(dots, y, color, dash, shape, tooltip)), 280)


def _points(
    dots: Rows, y: alt.Y, color: alt.Color, dash: alt.StrokeDash, shape: alt.Shape, shown: list[alt.Tooltip]
) -> list[alt.Chart]:
    """Draw the variants that have an epsilon; return no layers without any, for an empty axis has no extent."""
    if not dots:
        return []
    x = alt.X("epsilon:Q", title="proved ε (log)", scale=alt.Scale(type="log", domain=_epsilon_range(dots)))
    base = alt.Chart(draw.data(dots)).encode(x=x, color=color, tooltip=shown)
    line = base.mark_line(strokeWidth=2).encode(y=y, strokeDash=dash)
    spread = base.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q"), y2="high:Q")
    return [line, spread, draw.points(base, 90, y=y, shape=shape)]


def _epsilon_range(dots: Rows) -> list[float]:
    """Return the range of an epsilon axis with room on both sides, also around a single point."""
    values = [row["epsilon"] for row in dots]
    return [min(values) / 2, max(values) * 2]


def _class_rows(results: Results, evaluator: str) -> Rows:
    """Return label, variant, f1, support: one row per class and variant; empty where the task has no classes."""
    audits = results.of(UTILITY)
    return [
        {"label": label, "variant": variant} | draw.fields(scores, "f1", "support")
        for variant in sorted(audits, key=lambda variant: variant in BASELINES)
        if evaluator in audits[variant].evaluators
        for label, scores in audits[variant].evaluators[evaluator].per_class.items()
    ]


def _classes_chart(rows: Rows) -> Chart:
    base = alt.Chart(draw.data(rows)).encode(y=alt.Y("label:N", title=None, sort=None, axis=alt.Axis(labelLimit=150)))
    near = alt.Scale(zero=False, padding=10)
    join = base.mark_rule(strokeWidth=3, opacity=0.35, color=GREY).encode(
        x=alt.X("min(f1):Q", title="F1 on real test rows", axis=alt.Axis(format="%"), scale=near), x2="max(f1):Q"
    )
    tooltip = draw.tips("label:N", "variant:N", "f1:Q", "support:Q")
    dots = draw.points(
        base, 100, x="f1:Q", color=draw.color_channel(rows), shape=draw.shape_channel(rows), tooltip=tooltip
    )
    return draw.finish(alt.layer(join, dots), draw.height_of(rows, "label"))


def _figures(page: Page) -> Iterator[Figure]:
    summary = page.summary
    for evaluator in summary.evaluators:
        rows = frontier(summary, evaluator)
        yield Figure(
            section="Utility",
            title=f"Usefulness for its privacy, by {evaluator}",
            caption=f"{_TRAINED.get(evaluator, _CLASSIFIER)} on each variant and tested on real rows, with 95% "
            "intervals over test rows, for the classifiers as trained. Level lines: the real rows, what was made of "
            "public text alone, and runs without noise.",
            alt=draw.describe_values("Accuracy", rows, "variant", value="accuracy"),
            chart=_frontier_chart(rows),
            rows=_use_word_epsilons(rows, summary),
        )
    for evaluator in summary.evaluators:
        rows = _class_rows(page.results, evaluator)
        yield from Figure.of(
            rows,
            _classes_chart,
            section="Utility",
            title=f"Every class, by {evaluator}",
            caption="Each mark is one variant; the bar joins the best and the worst.",
            alt=draw.describe_values("F1", rows, "label", "variant", value="f1"),
        )


def _use_word_epsilons(rows: Rows, summary: Summary) -> Rows:
    """Return the rows with the epsilon of a method that protects words in its own unit."""
    words = summary.per_word
    return [row | ({"epsilon": words[row["variant"]]} if row["variant"] in words else {}) for row in rows]


def public_figures(scores: Mapping[str, Any], releases: Sequence[Mapping[str, Any]]) -> Iterator[Figure]:
    """Draw the frontier on a test file that was declared public, for the card."""
    for evaluator, rows in _public_scores(scores, releases).items():
        yield from Figure.of(
            rows,
            _frontier_chart,
            section="Utility",
            title=f"Usefulness for its privacy, by {evaluator}",
            caption=f"{_TRAINED.get(evaluator, _CLASSIFIER)} on the rows and tested on a file that was "
            "declared public, with 95% intervals. Level line: public text alone.",
            alt="; ".join(f"{row['variant']} {row['accuracy']:.3g}" for row in rows) + ".",
        )


_PLOTS = {"utility": lambda page: frontier(page.summary, (*page.summary.evaluators, EVALUATORS[0])[0])}
SECTION = Section(
    "utility", (UTILITY, PUBLIC), columns=_columns, tables=_tables, figures=_figures, plots=_PLOTS, heading="Utility"
)


@dataclass(frozen=True)
class Line:
    """One classifier: its training data, and its scores."""

    name: str
    learned: str
    epsilon: float | None
    scored: Scored


def lines(page: Page) -> list[Line]:
    """Return the classifiers trained on private rows, then those of every row of the results by the same evaluator."""
    found = page.results.of(_CLASSIFIERS)
    own = [Line(name, "private rows, with noise", one.epsilon, one.scored) for name, one in found.items()]
    beside, scores = {one.beside for one in found.values()}, page.results.of(UTILITY)
    return own + [
        Line(row.variant, f"its rows, by {name}", row.epsilon_proved, scored)
        for row in page.summary.rows
        if row.variant in scores
        for name, scored in scores[row.variant].evaluators.items()
        if name in beside
    ]


def _classifier_tables(page: Page) -> Iterator[Table[Line]]:
    if not page.results.of(_CLASSIFIERS):
        return
    yield Table(
        "A classifier that is private itself",
        "Where one classifier is all that is wanted, no text has to be written: it is trained with DP-SGD. It has read "
        "private rows, and answers one question. Its epsilon counts the language model that it stands behind, so it "
        "had less than that to learn with. On real test rows, intervals of 95%.",
        (
            Column("Classifier", lambda line: Cell(line.name)),
            Column("Learned from", lambda line: Cell(line.learned)),
            Column("ε proved", lambda line: Cell(at_most(line.epsilon)), number=True),
            Column("Accuracy", lambda line: interval_cell(line.scored.accuracy), number=True),
            Column("Macro F1", lambda line: Cell(percent(line.scored.macro_f1)), number=True),
            Column("Retention", lambda line: interval_cell(line.scored.retention), number=True),
        ),
        lines(page),
    )


CLASSIFIERS = Section("classifier", (_CLASSIFIERS,), tables=_classifier_tables, heading="Utility")


def bracket(summary: Summary) -> Rows:
    """Return variant, kind, epsilon: the proven cap, what attacks showed, and the most they could have shown."""
    rows: Rows = []
    for row in summary.of("release", "reference"):
        most = [attack.eps_max for attack in row.sound if attack.eps_max is not None]
        values = {_PROVED: row.epsilon_proved, ATTACKED: row.epsilon_lower, DETECTABLE: max(most, default=None)}
        rows += [{"variant": row.variant, "kind": k, "epsilon": v} for k, v in values.items() if v is not None]
    return rows


def _bracket_chart(rows: Rows) -> Chart:
    """Draw, per variant, where its true epsilon can be: above what attacks showed, below what is proved."""
    between = (
        alt.Chart(draw.data(rows))
        .transform_filter(alt.FieldOneOfPredicate(field="kind", oneOf=[_PROVED, ATTACKED]))
        .mark_bar(color=BLUE, opacity=0.22, height=10)
        .encode(x="min(epsilon):Q", x2="max(epsilon):Q", y=draw.line_axis(rows, "variant", offset=12))
    )
    return draw.finish(
        alt.layer(between, draw.epsilons(rows, "variant", _BRACKETS)), draw.height_of(rows, "variant"), columns=1
    )


def _bracket_figures(page: Page) -> Iterator[Figure]:
    rows = bracket(page.summary)
    return Figure.of(
        rows,
        _bracket_chart,
        section="Privacy",
        title="Between what is proved and what was attacked",
        caption="The true privacy loss of a release lies on its bar: not above the proof, not below what the strongest "
        "attack showed (95% for all audits of it together; one whose control failed is left out). A claim beyond the "
        "diamond could not have been refuted by any attack in these audits, whatever the code did.",
        alt=draw.describe_values("Epsilon per variant", rows, "variant", "kind", value="epsilon"),
        wide=True,
    )


def _bracket_columns(page: Page) -> Iterator[Column[Row]]:
    words = page.summary.per_word

    def cell(row: Row) -> Cell | None:
        if row.role == "release":
            return Cell(at_most(row.epsilon_proved), (f"target {number(row.epsilon_target)}",), strong=True)
        if row.role == "reference":
            return Cell(words.get(row.variant) or ("∞" if row.epsilon_proved is None else at_most(row.epsilon_proved)))
        return None

    yield Column("Proved ε", cell)


BRACKETS = Section(
    "bracket", columns=_bracket_columns, figures=_bracket_figures, plots={"bracket": lambda page: bracket(page.summary)}
)
