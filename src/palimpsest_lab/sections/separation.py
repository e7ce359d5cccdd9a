"""How well each language model's hidden states separate the labels, and drawings of these states."""

from collections.abc import Iterator

import altair as alt
import numpy as np

from palimpsest.report import drawing as draw
from palimpsest.report.drawing import BLUE, GREEN, GREY, ROW, SERIES, SHAPES, Chart, Rows
from palimpsest.report.results import Metric, Results
from palimpsest.report.sections.base import Figure, Page, Section
from palimpsest_lab.audits.separation import Projection, SeparationAudit
from palimpsest_lab.settings import run_of

MODELS = Metric(
    "models", SeparationAudit.from_json, lambda params: run_of(params).embedding_audit, path="models/{}.json"
)

_DRAWN = 300  # points of one panel: more make the page large and the panel black
_PANEL = 220  # height of one drawing of hidden states, in pixels


def separation(results: Results) -> Rows:
    """Return name, accuracy, low, high, chance, lm_loss: how well each model's hidden states separate the labels."""
    return [
        {"name": name, "accuracy": one.accuracy.value, "low": one.accuracy.low, "high": one.accuracy.high}
        | {"chance": one.chance, "lm_loss": audit.lm_loss}
        for name, audit in results.of(MODELS).items()
        for one in (audit.separation,)
    ]


def projection(results: Results) -> Rows:
    """Return name, method, x, y, label: up to 300 states of each model and method, from 0 to 1 across their panel.

    The axes of these drawings have no unit, so nothing is lost; and a model whose points lie ten times as far apart
    leaves room for the others.
    """
    return [
        {"name": name, "method": method, "x": x, "y": y, "label": label}
        for name, audit in results.of(MODELS).items()
        for method, drawn in audit.projections.items()
        for x, y, label in _panel(drawn)
    ]


def _panel(drawn: Projection) -> list[tuple[float, float, str]]:
    """Return points at even steps through the rows, so that every method shows the same ones."""
    total = len(drawn.label)
    kept = np.linspace(0, total - 1, min(total, _DRAWN)).round().astype(int)
    x, y = (_scale_to_unit(axis[kept]) for axis in (drawn.x, drawn.y))
    return list(zip(x, y, (drawn.label[index] for index in kept), strict=True))


def _scale_to_unit(values: np.ndarray) -> list[float]:
    """Scale values to 0 to 1, with three decimals; one half where all values are equal."""
    width = np.ptp(values)
    return ((values - values.min()) / width).round(3).tolist() if width else [0.5] * len(values)


def scores_chart(rows: Rows) -> Chart:
    """Draw how often a forest reads the label off each model's hidden states; a tick where chance lies."""
    near = alt.Scale(zero=False, padding=16)
    base = alt.Chart(draw.data(rows)).encode(
        y=draw.line_axis(rows, "name"),
        tooltip=draw.tips("name:N", "accuracy:Q", "low:Q", "high:Q", "chance:Q", "lm_loss:Q"),
    )
    chance = base.mark_tick(thickness=3, size=18, opacity=1, color=GREY).encode(
        x=alt.X("chance:Q", title="test labels read off hidden states", axis=alt.Axis(format="%"), scale=near)
    )
    spread = base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q")
    dots = base.mark_point(filled=True, size=110, opacity=1, color=BLUE).encode(x="accuracy:Q")
    return draw.finish(alt.layer(chance, spread, dots), ROW * len(rows) + 20)


def projections_chart(rows: Rows) -> Chart:
    """Draw hidden states in a plane: a row of panels per model, a column per method, a colour and shape per label.

    The panels are bands with offsets and not facets, because facets cannot be as wide as the page gives.
    """
    models, methods, labels = draw.names(rows, "name"), draw.names(rows, "method"), sorted(draw.names(rows, "label"))
    inside, edge = alt.Scale(domain=[-0.06, 1.06]), alt.Scale(paddingInner=0, paddingOuter=0)
    top = alt.Axis(orient="top", labelAngle=0, domain=False, grid=True, tickBand="extent")
    left = alt.Axis(labelLimit=90, grid=True, tickBand="extent")
    dots = (
        alt.Chart(draw.data(rows))
        .mark_point(filled=True, size=22, opacity=0.75)
        .encode(
            x=alt.X("method:N", title=None, sort=methods, axis=top, scale=edge),
            xOffset=alt.XOffset("x:Q", scale=inside),
            y=alt.Y("name:N", title=None, sort=models, axis=left, scale=edge),
            yOffset=alt.YOffset("y:Q", scale=inside),
            color=draw.make_channel(
                alt.Color, "label", draw.assign_looks(labels, (*SERIES, GREEN)), legend=alt.Legend(symbolOpacity=1)
            ),
            shape=draw.make_channel(alt.Shape, "label", draw.assign_looks(labels, SHAPES)),
            tooltip=draw.tips("name:N", "method:N", "label:N"),
        )
    )
    return draw.finish(alt.layer(dots), _PANEL * len(models) + 20, columns=3)


def _figures(page: Page) -> Iterator[Figure]:
    scores, dots = separation(page.results), projection(page.results)
    yield from Figure.of(
        scores,
        scores_chart,
        section="Separation",
        title="Labels that a forest reads off hidden states",
        caption="A random forest sees each model's mean state of a text, never the text, and names the label of real "
        "test rows; 95% intervals. The grey tick is chance: always the commonest label.",
        alt=draw.describe_values("Accuracy of the forest", scores, "name", value="accuracy"),
    )
    models, methods, labels = (", ".join(draw.names(dots, key)) for key in ("name", "method", "label"))
    yield from Figure.of(
        dots,
        projections_chart,
        section="Separation",
        title="Hidden states of real test rows",
        caption="Every mark is one private row, without its text: the drawing stays in the private zone. Each panel is "
        "stretched to fill its place; under UMAP only who is near whom means anything.",
        alt=f"Marks in a plane, a row of panels for each of {models}, a column for each of {methods}, a colour and "
        f"shape for each of {labels}.",
        wide=True,
    )


SECTION = Section("separation", (MODELS,), figures=_figures, heading="Separation")
