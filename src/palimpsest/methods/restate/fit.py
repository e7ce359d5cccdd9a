"""`restate`: rows of any other method, changed where they state something to state what many private rows do."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from palimpsest.errors import DataError
from palimpsest.methods.restate.declaration import RestateSettings
from palimpsest.methods.restate.plan import counts_query, is_open, labels_of, phrases_query
from palimpsest.methods.restate.quotas import Quotas, assigned
from palimpsest.methods.shared.base import Made, Plan
from palimpsest.privacy.query import View
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema
from palimpsest.records.statements import Statement, Values, restated, statements


@dataclass(frozen=True, eq=False)
class Counted:
    """What the answers are: values of each attribute, and noisy counts of their combinations.

    Attributes:
        cells: shape (values of the first attribute, ...), in units that state each.
        by_label: the same for each label, shape (labels, ...); no labels where they were not asked.
        stds: standard deviation of the noise of either.
    """

    values: tuple[tuple[str, ...], ...]
    cells: np.ndarray
    by_label: np.ndarray
    stds: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Restate:
    """The rows of another variant, their statements changed to what noisy counts say.

    Guarantee: `ask` asks for the values of open attributes, where there are any (`StatementPhrases`), and for counts of
    statements (`StatementCounts`), each once. Together with everything that the other variant was charged they meet the
    budget, under the primary accountant of their composition, for adding or removing one unit. `made` reads noisy
    answers and rows that were charged before (post-processing). With an infinite epsilon nothing is noised: a reference
    that must never be released.

    Attributes:
        rows: those of the other variant.

    Raises:
        DataError: there is no row to change.
    """

    settings: RestateSettings
    schema: PublicSchema
    plan: Plan
    rows: Sequence[Record]

    def __post_init__(self) -> None:
        if not self.rows:
            raise DataError("There is no row to change.", "Look at the filters of the variant below.")

    def ask(self, view: View) -> Counted:
        """Ask which values there are, where nobody listed them, and how many units state each combination."""
        values = self._values(view)
        query = counts_query(self.settings, self.schema, float(self.plan.numbers["sigma"]), values)
        cells, by_label = (np.array(table, dtype=np.int64) for table in view.ask(query))
        labels, *shape = query.shape if query.label_share else (0, *query.shape[1:])
        return Counted(values, cells.reshape(shape), by_label.reshape(labels, *shape), query.stds)

    def _values(self, view: View) -> tuple[tuple[str, ...], ...]:
        found: list[tuple[int, str, int]] = []
        if is_open(self.settings):
            sigma, delta = (float(self.plan.numbers[name]) for name in ("phrases_sigma", "phrases_delta"))
            found = view.ask(phrases_query(self.settings, self.schema, sigma, delta))
        listed = [tuple(attribute.forms) for attribute in self.settings.schema_of()]
        told = [[value for at, value, _ in found if at == place] for place in range(len(listed))]
        return tuple(own or tuple(more[: self.settings.most_values]) for own, more in zip(listed, told, strict=True))

    def made(self, artifact: Counted) -> Made:
        """All rows; where a sentence states something, it states what its label's counts ask for."""
        attributes, labels = self.settings.schema_of(), labels_of(self.schema)
        told = [statements(row.text, attributes) for row in self.rows]
        quotas = Quotas.of(artifact.cells, artifact.by_label, artifact.stds, self.settings.false_cells)
        changes: list[list[tuple[Statement, Values]]] = [[] for _ in self.rows]
        for place, label in enumerate(labels):
            own = [(at, one) for at, row in enumerate(self.rows) if (row.label or "") == label for one in told[at]]
            for (at, one), values in zip(own, self._targets(artifact, quotas, place, own), strict=False):
                changes[at].append((one, values))
        rows = [
            Record(restated(row.text, attributes, own), row.label) for row, own in zip(self.rows, changes, strict=True)
        ]
        return Made(rows, len(rows))

    def _targets(
        self, artifact: Counted, quotas: Quotas, label: int, own: Sequence[tuple[int, Statement]]
    ) -> list[Values]:
        """What each of a label's statements shall say; nothing where no combination passed."""
        places = [{value: place for place, value in enumerate(values)} for values in artifact.values]
        stated = [[place.get(value, -1) for place, value in zip(places, one.values, strict=True)] for _, one in own]
        chosen = assigned(np.array(stated, dtype=np.int64), quotas.cells, quotas.wanted(label, len(own)))
        return [
            tuple(values[place] for values, place in zip(artifact.values, quotas.cells[cell], strict=True))
            for cell in chosen
        ]
