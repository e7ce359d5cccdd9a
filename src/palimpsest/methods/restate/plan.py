"""The queries of `restate` and their cost; no row is read."""

import math

from dp_accounting.dp_event import DpEvent

from palimpsest.errors import ParamsError
from palimpsest.methods.restate.declaration import RestateSettings
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.shares import gaussian, noise_after
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.statements import MOST_CELLS, StatementCounts, StatementPhrases
from palimpsest.privacy.versions import versions_of
from palimpsest.records.schema import PublicSchema


def plan(settings: RestateSettings, schema: PublicSchema, budget: Budget, before: DpEvent) -> Plan:
    """Plan the queries of a fit and their cost; the budget covers it together with all charges of the variant below.

    Raises:
        ParamsError: as `noise_after`, or there are more combinations of values than are counted.
    """
    if settings.most_cells() * len(labels_of(schema)) > MOST_CELLS:
        raise ParamsError(
            f"There are more than {MOST_CELLS} combinations of the attributes' values and the labels.",
            "Name fewer values, or lower restate.most_values.",
        )
    delta = settings.delta_share * budget.delta if is_open(settings) else 0.0
    left = Budget(budget.epsilon, budget.delta - delta)
    sigma = noise_after(before, left, lambda sigma: map(gaussian, _parts(settings, sigma)))
    counts = counts_query(settings, schema, _parts(settings, sigma)[-1], ())
    asked = [PlannedQuery(counts.name, counts.event(), versions=versions_of(counts.name))]
    numbers: dict[str, float | int | str] = {"sigma": counts.sigma, "rounds": 1, "cells": settings.most_cells()}
    if is_open(settings):
        phrases = phrases_query(settings, schema, _parts(settings, sigma)[0], delta)
        asked.insert(0, _planned_phrases(phrases))
        numbers |= {"phrases_sigma": phrases.sigma, "phrases_delta": delta}
    drowned = counts.stds[0] > schema.n_units
    note = f"The noise on each count, {counts.stds[0]:.0f}, is more than there are {schema.unit}s: raise epsilon."
    return Plan("restate", budget, tuple(asked), numbers, feasible=not drowned, notes=(note,) if drowned else ())


def is_open(settings: RestateSettings) -> bool:
    """Return whether an attribute has values without a public list."""
    return any(own.pattern is not None for own in settings.attributes.values())


def labels_of(schema: PublicSchema) -> tuple[str, ...]:
    """Return the labels; the only one is "" for a task without labels."""
    return schema.label_names or ("",)


def phrases_query(settings: RestateSettings, schema: PublicSchema, sigma: float, delta: float) -> StatementPhrases:
    """The question for the values of open attributes."""
    return StatementPhrases(settings.schema_of(), labels_of(schema), settings.statements, sigma, delta)


def counts_query(
    settings: RestateSettings, schema: PublicSchema, sigma: float, values: tuple[tuple[str, ...], ...]
) -> StatementCounts:
    """The question for the counts of these values of each attribute."""
    labels = labels_of(schema)
    share = settings.label_share if len(labels) > 1 else 0.0
    return StatementCounts(settings.schema_of(), values, labels, settings.statements, sigma, share)


def _parts(settings: RestateSettings, sigma: float) -> tuple[float, ...]:
    """The noise of each question, where all of them together are one Gaussian of noise `sigma`."""
    if not is_open(settings):
        return (sigma,)
    return sigma / math.sqrt(settings.phrases_share), sigma / math.sqrt(1.0 - settings.phrases_share)


def _planned_phrases(phrases: StatementPhrases) -> PlannedQuery:
    name = phrases.name
    return PlannedQuery(name, phrases.event(), own_delta=phrases.own_delta, versions=versions_of(name))
