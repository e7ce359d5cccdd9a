"""`restate`: rows of any other method, their statements replaced by those that many private rows make.

`plan` gives the queries and their cost; it reads no row.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Self

import numpy as np
from dp_accounting.dp_event import DpEvent

from palimpsest.errors import DataError, ParamsError
from palimpsest.methods.restate.declaration import RestateSettings
from palimpsest.methods.shared.base import Budget, Made, Plan
from palimpsest.methods.shared.shares import divide_total, gaussian, noise_after
from palimpsest.privacy.planned import PlannedQuery, versions_of
from palimpsest.privacy.query import View
from palimpsest.privacy.thresholded import MOST_CELLS, StatementCounts, StatementPhrases
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema
from palimpsest.records.statements import Statement, Values, restate_text, statements


def plan(settings: RestateSettings, schema: PublicSchema, budget: Budget, before: DpEvent) -> Plan:
    """Plan the queries of a fit and their cost; the budget covers it together with all charges of the variant below.

    Raises:
        ParamsError: as `noise_after`, or there are more combinations of values than are counted.
    """
    if settings.most_cells() * len(_labels_of(schema)) > MOST_CELLS:
        raise ParamsError(
            f"There are more than {MOST_CELLS} combinations of the attributes' values and the labels.",
            "Name fewer values, or lower restate.most_values.",
        )
    delta = settings.delta_share * budget.delta if _is_open(settings) else 0.0
    left = Budget(budget.epsilon, budget.delta - delta)
    sigma = noise_after(before, left, lambda sigma: map(gaussian, _parts(settings, sigma)))
    counts = _counts_query(settings, schema, _parts(settings, sigma)[-1], ())
    asked = [PlannedQuery(counts.name, counts.event(), versions=versions_of(counts.name))]
    numbers: dict[str, float | int | str] = {"sigma": counts.sigma, "rounds": 1, "cells": settings.most_cells()}
    if _is_open(settings):
        phrases = _phrases_query(settings, schema, _parts(settings, sigma)[0], delta)
        asked.insert(0, _planned_phrases(phrases))
        numbers |= {"phrases_sigma": phrases.sigma, "phrases_delta": delta}
    drowned = counts.stds[0] > schema.n_units
    note = f"The noise on each count, {counts.stds[0]:.0f}, is more than there are {schema.unit}s: raise epsilon."
    return Plan("restate", budget, tuple(asked), numbers, feasible=not drowned, notes=(note,) if drowned else ())


def _is_open(settings: RestateSettings) -> bool:
    """Return whether an attribute has values without a public list."""
    return any(own.pattern is not None for own in settings.attributes.values())


def _labels_of(schema: PublicSchema) -> tuple[str, ...]:
    """Return the labels; the only one is "" for a task without labels."""
    return schema.label_names or ("",)


def _phrases_query(settings: RestateSettings, schema: PublicSchema, sigma: float, delta: float) -> StatementPhrases:
    """The question for the values of open attributes."""
    return StatementPhrases(settings.schema_of(), _labels_of(schema), settings.statements, sigma, delta)


def _counts_query(
    settings: RestateSettings, schema: PublicSchema, sigma: float, values: tuple[tuple[str, ...], ...]
) -> StatementCounts:
    """The question for the counts of these values of each attribute."""
    labels = _labels_of(schema)
    share = settings.label_share if len(labels) > 1 else 0.0
    return StatementCounts(settings.schema_of(), values, labels, settings.statements, sigma, share)


def _parts(settings: RestateSettings, sigma: float) -> tuple[float, ...]:
    """The noise of each question, where all of them together are one Gaussian of noise `sigma`."""
    if not _is_open(settings):
        return (sigma,)
    return sigma / math.sqrt(settings.phrases_share), sigma / math.sqrt(1.0 - settings.phrases_share)


def _planned_phrases(phrases: StatementPhrases) -> PlannedQuery:
    name = phrases.name
    return PlannedQuery(name, phrases.event(), own_delta=phrases.own_delta, versions=versions_of(name))


@dataclass(frozen=True, eq=False)
class Counted:
    """The answers: values of each attribute, and noisy counts of their combinations.

    Attributes:
        cells: number of units that state each combination, shape (values of the first attribute, ...).
        by_label: these counts for each label, shape (labels, ...); no labels where they were not asked.
        stds: standard deviations of the noise of `cells` and of `by_label`.
    """

    values: tuple[tuple[str, ...], ...]
    cells: np.ndarray
    by_label: np.ndarray
    stds: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Quotas:
    """The combinations that enough units state, judged from noisy counts.

    Attributes:
        cells: a place among the values of each attribute, shape (kept, attributes).
        weights: how often each is stated under each label, shape (labels, kept), in units; one row is for all labels
            where they were not asked.
    """

    cells: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, cells: np.ndarray, by_label: np.ndarray, stds: tuple[float, float], false_cells: float) -> Self:
        """Keep cells with a noisy count above what noise alone reaches in `false_cells` of all cells, on average.

        A cell's count is divided among the labels by its noisy counts there. Where these drown in noise, all that is
        stated of the first attribute's value decides: it is added with the weight of one standard deviation.

        Args:
            cells: noisy counts, shape (values of the first attribute, ...).
            by_label: noisy counts for each label, shape (labels or 0, values of the first attribute, ...).
            stds: standard deviations of the noise of `cells` and of `by_label`.
        """
        kept = np.argwhere(cells > stds[0] * _quantile(false_cells, cells.size))
        counts = cells[tuple(kept.T)].astype(np.float64)  # (kept,)
        if not len(by_label) or not len(kept):
            return cls(kept, counts[None])
        own = np.maximum(by_label[(slice(None), *kept.T)], 0).astype(np.float64)  # (labels, kept)
        whole = np.maximum(by_label.reshape(*by_label.shape[:2], -1).sum(axis=2), 1)  # (labels, first values)
        backed = own + (stds[1] * whole / whole.sum(axis=0))[:, kept[:, 0]]
        return cls(kept, counts * backed / np.maximum(backed.sum(axis=0), 1e-9))

    def count_wanted(self, label: int, statements: int) -> np.ndarray:
        """Return how many of a label's statements shall state each combination, adding up to all; int64 (kept,).

        A combination is wanted at least once under its likeliest label, where that label has room: otherwise rare ones
        would be rounded away under every label.
        """
        if not len(self.cells) or not statements:
            return np.zeros(len(self.cells), dtype=np.int64)
        own = self.weights[min(label, len(self.weights) - 1)]
        at_home = self.weights.argmax(axis=0) == min(label, len(self.weights) - 1)
        least = np.where(at_home, max(own.sum(), 1e-9) / statements, 0.0)
        weights = np.maximum(own, least)
        shares = {str(cell): float(share) for cell, share in enumerate(weights / weights.sum())}
        return np.array(list(divide_total(statements, shares).values()), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Restate:
    """Changes the statements of another variant's rows according to noisy counts.

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
        """Ask for the values of attributes that have no public list, and for the units that state each combination."""
        values = self._values(view)
        query = _counts_query(self.settings, self.schema, float(self.plan.numbers["sigma"]), values)
        cells, by_label = (np.array(table, dtype=np.int64) for table in view.ask(query))
        labels, *shape = query.shape if query.label_share else (0, *query.shape[1:])
        return Counted(values, cells.reshape(shape), by_label.reshape(labels, *shape), query.stds)

    def _values(self, view: View) -> tuple[tuple[str, ...], ...]:
        found: list[tuple[int, str, int]] = []
        if _is_open(self.settings):
            sigma, delta = (float(self.plan.numbers[name]) for name in ("phrases_sigma", "phrases_delta"))
            found = view.ask(_phrases_query(self.settings, self.schema, sigma, delta))
        listed = [tuple(attribute.forms) for attribute in self.settings.schema_of()]
        told = [[value for at, value, _ in found if at == place] for place in range(len(listed))]
        return tuple(own or tuple(more[: self.settings.most_values]) for own, more in zip(listed, told, strict=True))

    def made(self, artifact: Counted) -> Made:
        """Return all rows, each statement changed to the one that its label's counts ask for."""
        attributes, labels = self.settings.schema_of(), _labels_of(self.schema)
        told = [statements(row.text, attributes) for row in self.rows]
        quotas = Quotas.of(artifact.cells, artifact.by_label, artifact.stds, self.settings.false_cells)
        changes: list[list[tuple[Statement, Values]]] = [[] for _ in self.rows]
        for place, label in enumerate(labels):
            own = [(at, one) for at, row in enumerate(self.rows) if (row.label or "") == label for one in told[at]]
            for (at, one), values in zip(own, self._targets(artifact, quotas, place, own), strict=False):
                changes[at].append((one, values))
        rows = [
            Record(restate_text(row.text, attributes, own), row.label)
            for row, own in zip(self.rows, changes, strict=True)
        ]
        return Made(rows, len(rows))

    def _targets(
        self, artifact: Counted, quotas: Quotas, label: int, own: Sequence[tuple[int, Statement]]
    ) -> list[Values]:
        """Return the new values of each of a label's statements; empty where no combination passed."""
        places = [{value: place for place, value in enumerate(values)} for values in artifact.values]
        stated = [[place.get(value, -1) for place, value in zip(places, one.values, strict=True)] for _, one in own]
        chosen = assign_cells(np.array(stated, dtype=np.int64), quotas.cells, quotas.count_wanted(label, len(own)))
        return [
            tuple(values[place] for values, place in zip(artifact.values, quotas.cells[cell], strict=True))
            for cell in chosen
        ]


def assign_cells(stated: np.ndarray, cells: np.ndarray, wanted: np.ndarray) -> list[int]:
    """Assign a cell to each statement: statements that change least go first, then in their order.

    Args:
        stated: values of each statement, shape (n, attributes), -1 for an unknown value.
        cells: shape (kept, attributes).
        wanted: number of statements for each cell, shape (kept,); n in all, or 0 where nothing is kept.

    Returns:
        n indices of `cells`; nothing where nothing is kept.
    """
    left, chosen = wanted.copy(), np.full(len(stated), -1)
    for agreeing in range(cells.shape[1], -1, -1) if wanted.any() else ():
        for place in np.flatnonzero(chosen < 0):
            fits = ((cells == stated[place]).sum(axis=1) >= agreeing) & (left > 0)
            if fits.any():
                chosen[place] = np.where(fits, left, -1).argmax()
                left[chosen[place]] -= 1
    return chosen[chosen >= 0].tolist()


def _quantile(share: float, cells: int) -> float:
    """Return the standard deviations that noise exceeds in `share` cells of so many on average; 0 if in most."""
    likely = share / max(1, cells)
    return -NormalDist().inv_cdf(likely) if likely < 0.5 else 0.0
