"""Classifiers that were themselves trained with DP-SGD, beside those that only read synthetic rows."""

from collections.abc import Iterator
from dataclasses import dataclass

from palimpsest.audit.classifier import ClassifierAudit
from palimpsest.audit.utility import Scored
from palimpsest.report.formats import at_most, percent
from palimpsest.report.results import Metric
from palimpsest.report.sections.base import Cell, Column, Page, Section, Table, interval_cell
from palimpsest.report.sections.utility import UTILITY

_CLASSIFIER = Metric(
    "classifier",
    ClassifierAudit.from_json,
    lambda params: params.run.discriminator if params.dataset.labels else (),
    path="classifiers/{}.json",
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
    found = page.results.of(_CLASSIFIER)
    own = [Line(name, "private rows, with noise", one.epsilon, one.scored) for name, one in found.items()]
    beside, scores = {one.beside for one in found.values()}, page.results.of(UTILITY)
    return own + [
        Line(row.variant, f"its rows, by {name}", row.epsilon_proved, scored)
        for row in page.summary.rows
        if row.variant in scores
        for name, scored in scores[row.variant].evaluators.items()
        if name in beside
    ]


def _tables(page: Page) -> Iterator[Table[Line]]:
    if not page.results.of(_CLASSIFIER):
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


SECTION = Section("classifier", (_CLASSIFIER,), tables=_tables, heading="Utility")
