"""Declaration of method tabulate, its settings and its plan."""

import math
from dataclasses import replace

from pydantic import Field

from palimpsest.errors import ParamsError
from palimpsest.methods.shared.base import Budget, Fit, Plan
from palimpsest.methods.shared.method import CHOSEN, Basis, Family, Method, Reads, Tools
from palimpsest.methods.shared.settings import EncodedBatch
from palimpsest.methods.shared.shares import gaussian, noise_after
from palimpsest.methods.shared.tables import note_cells, planned_tables, require_fitted, tables_query
from palimpsest.privacy.planned import PlannedQuery, versions_of
from palimpsest.records.schema import PublicSchema
from palimpsest.settings import Settings


class TabulateSettings(Settings):
    """Rows of another variant, each with a value for every field."""

    tables_share: float = Field(default=0.5, gt=0, lt=1)
    """Share of the budget for tables of the label and the fields, each alone and each two together; the rest shows what
    the texts of each value are about."""
    batch: EncodedBatch = 1


def parts_of(settings: TabulateSettings, sigma: float) -> tuple[float, float]:
    """Return the noise of the tables and of the means, which together are one Gaussian of noise `sigma`."""
    return sigma / math.sqrt(settings.tables_share), sigma / math.sqrt(1.0 - settings.tables_share)


def _plan(settings: TabulateSettings, schema: PublicSchema, budget: Budget, basis: Basis) -> Plan:
    """Plan both queries; the budget covers them together with all charges of the variant below.

    Raises:
        ParamsError: as `noise_after`; there are no fields, or more combinations of values than are fitted.
    """
    if not schema.fields:
        raise ParamsError("There are no fields to put beside texts.", "Name them in dataset.fields.")
    require_fitted(schema)
    left = replace(budget, delta=budget.delta - basis.own_delta)
    sigma = noise_after(basis.event, left, lambda sigma: map(gaussian, parts_of(settings, sigma)))
    for_tables, for_means = parts_of(settings, sigma)
    query = tables_query(schema, for_tables)
    asked = (
        planned_tables(query),
        PlannedQuery("field_means", gaussian(for_means), versions=versions_of("field_means")),
    )
    numbers = {"sigma": sigma, "rounds": 1, "cells": query.cells, "tables": len(query.tables)}
    return Plan("tabulate", budget, asked, numbers, notes=tuple(note_cells(query, schema)))


def _build(settings: TabulateSettings, plan: Plan, tools: Tools) -> Fit:
    from palimpsest.methods.tabulate.fit import Tabulate

    encoders = tools.encoders(settings.batch)
    return Tabulate(settings, tools.schema, plan, tools.source(), encoders, tools.seed)


TABULATE = Method(
    name="tabulate",
    stage="tabulate",
    family=Family.EDITS,
    title="One row of the results: rows of another variant with fields beside the texts; its epsilon counts both.",
    does="Put fields from noisy tables beside the texts of another variant",
    tasks=("classify", "text"),
    settings=TabulateSettings,
    plan=_plan,
    build=_build,
    reads=frozenset({Reads.SOURCE, Reads.ENCODER}),
    columns=CHOSEN,
    module=__name__,
    source="named",
    seeded=True,
)
