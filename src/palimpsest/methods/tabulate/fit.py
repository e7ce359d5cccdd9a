"""`tabulate`: fields from noisy tables beside the texts of another variant."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from palimpsest.errors import DataError
from palimpsest.methods.shared.base import Made, Plan, coins
from palimpsest.methods.shared.method import Encoders
from palimpsest.methods.shared.tables import draw_cells, draw_values, fit_joint, sizes_of, tables_query
from palimpsest.methods.tabulate.declaration import TabulateSettings, parts_of
from palimpsest.methods.tabulate.joint import fit_means, match
from palimpsest.privacy.query import View
from palimpsest.privacy.tables import FieldMeans
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema


@dataclass(frozen=True, eq=False)
class Tabulated:
    """The answers.

    Attributes:
        counts: noisy counts of each table, flat.
        sums: noisy sums of embeddings for each value, axis by axis, (values, d).
    """

    counts: Sequence[np.ndarray]
    sums: np.ndarray


@dataclass(frozen=True, eq=False)
class Tabulate:
    """Puts fields beside the texts of another variant, as likely together as noisy tables say.

    Guarantee: `ask` asks for the tables (`FieldTables`) and for the sums of embeddings of each value (`FieldMeans`),
    each once. Together with everything that the other variant was charged they meet the budget, under the primary
    accountant of their composition, for adding or removing one unit. `made` reads these answers, public words and rows
    that were charged before (post-processing): a value that comes out is drawn from a public cell. With an infinite
    epsilon nothing is noised: a reference that must never be released.

    Attributes:
        rows: those of the other variant.
        encoders: the encoder of private texts and, with another memory, of these rows.
        seed: draws rows from the fitted tables.

    Raises:
        DataError: there is no row to put fields beside.
    """

    settings: TabulateSettings
    schema: PublicSchema
    plan: Plan
    rows: Sequence[Record]
    encoders: Encoders
    seed: int

    def __post_init__(self) -> None:
        if not self.rows:
            raise DataError("There is no row to put fields beside.", "Look at the filters of the variant below.")

    def ask(self, view: View) -> Tabulated:
        """Ask for the tables, and for what the texts of each value are about."""
        counts = view.ask(tables_query(self.schema, self._sigmas[0]))
        sums = view.ask(self._means)
        return Tabulated([np.array(own) for own in counts], np.array(sums))

    def made(self, artifact: Tabulated) -> Made:
        """Return all rows, each with fields."""
        query = tables_query(self.schema, self._sigmas[0])
        joint = fit_joint(query.shape, query.tables, artifact.counts)
        vectors = self.encoders.others([row.text for row in self.rows]).astype(np.float64)
        total = max(1.0, float(np.median([own.sum() for own in artifact.counts])))
        means = fit_means(joint, total, artifact.sums, self._means.std, float(vectors.var(axis=0).mean()))
        starts = [0, *accumulate(query.shape[:-1])]
        rows = list(self.rows)
        for place, own in self._by_label():
            rng = coins(self.seed, "tabulate", place)
            part = joint if place is None else np.take(joint, [place], axis=0)
            cells = draw_cells(part, len(own), rng)
            cells[:, 0] += place or 0
            matched = match(vectors[own], cells, means, starts, rng)
            for at, cell in zip(own, matched[:, place is not None :], strict=True):
                rows[at] = replace(rows[at], fields=draw_values(self.schema.fields, cell, rng))
        return Made(rows, len(rows))

    def _by_label(self) -> list[tuple[int | None, list[int]]]:
        """Return the index of each label that any row has, and the indices of its rows; None for none."""
        labels = self.schema.label_names
        if not labels:
            return [(None, list(range(len(self.rows))))]
        found: Mapping[int, list[int]] = {place: [] for place in range(len(labels))}
        for at, row in enumerate(self.rows):
            if row.label in labels:
                found[labels.index(row.label)].append(at)
        return [(place, own) for place, own in found.items() if own]

    @property
    def _sigmas(self) -> tuple[float, float]:
        return parts_of(self.settings, float(self.plan.numbers["sigma"]))

    @property
    def _means(self) -> FieldMeans:
        schema, encoders = self.schema, self.encoders
        sizes = sizes_of(schema)
        return FieldMeans(schema.label_names, sizes, encoders.rows, encoders.dimension, self._sigmas[1])
