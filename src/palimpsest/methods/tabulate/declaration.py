"""Declaration of method tabulate, its settings and its plan."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from pydantic import Field

from palimpsest.errors import ParamsError
from palimpsest.methods.shared.base import Budget, Fit, Plan
from palimpsest.methods.shared.method import CHOSEN, Basis, Family, Method
from palimpsest.methods.shared.settings import EncodedBatch
from palimpsest.methods.shared.shares import gaussian, noise_after
from palimpsest.methods.shared.tools import Reads, Tools
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.tables import MOST_CELLS, Axes, FieldTables, shape_of
from palimpsest.privacy.versions import versions_of
from palimpsest.records.fields import domains_of
from palimpsest.records.schema import PublicSchema
from palimpsest.settings import Settings

_SEEN = 3.0  # standard deviations above which a count is told from noise


class TabulateSettings(Settings):
    """Rows of another variant, each with a value for every field."""

    tables_share: float = Field(default=0.5, gt=0, lt=1)
    """Share of the budget for tables of the label and the fields, each alone and each two together; the rest shows what
    the texts of each value are about."""
    batch: EncodedBatch = 1


def sizes_of(schema: PublicSchema) -> tuple[int, ...]:
    """Return the number of cells of each field, with the one for values that have none."""
    return tuple(domain.size + 1 for domain in domains_of(schema.fields))


def tables_query(schema: PublicSchema, sigma: float) -> FieldTables:
    """Return the question for the tables: every axis alone, and every two together."""
    sizes = sizes_of(schema)
    axes = range(len(shape_of(schema.label_names, sizes)))
    tables: tuple[Axes, ...] = (*((axis,) for axis in axes), *combinations(axes, 2))
    return FieldTables(schema.label_names, sizes, tables, sigma)


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
    cells = math.prod(shape_of(schema.label_names, sizes_of(schema)))
    if cells > MOST_CELLS:
        raise ParamsError(
            f"The label and the fields have {cells} combinations; at most {MOST_CELLS} are fitted.",
            "Name fewer fields, or wider cells: number(0..120, 10), date(..., year).",
        )
    left = replace(budget, delta=budget.delta - basis.own_delta)
    sigma = noise_after(basis.event, left, lambda sigma: map(gaussian, parts_of(settings, sigma)))
    for_tables, for_means = parts_of(settings, sigma)
    query = tables_query(schema, for_tables)
    asked = (
        PlannedQuery(query.name, query.event(), versions=versions_of(query.name)),
        PlannedQuery("field_means", gaussian(for_means), versions=versions_of("field_means")),
    )
    numbers = {"sigma": sigma, "rounds": 1, "cells": query.cells, "tables": len(query.tables)}
    return Plan("tabulate", budget, asked, numbers, notes=tuple(_notes(query, schema)))


def _notes(query: FieldTables, schema: PublicSchema) -> Iterator[str]:
    if query.std:
        yield (
            f"{len(query.tables)} tables of the label and {len(schema.fields)} fields: the noise on a count is "
            f"{query.std:.0f} {schema.unit}s, so a cell is seen from about {math.ceil(_SEEN * query.std)}"
        )
    for (name, _), size in zip(schema.fields.items(), query.sizes, strict=True):
        if _SEEN * query.std > schema.n_units / size:
            yield f"field {name} has {size} cells, fewer {schema.unit}s each than are seen: wider cells say more"


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
