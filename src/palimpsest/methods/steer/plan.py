"""The queries of `steer` and their cost; no row and no model is read."""

import math
from dataclasses import replace

from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.means import plan_means, planned_means
from palimpsest.methods.steer.declaration import SteerSettings
from palimpsest.records.schema import PublicSchema


def plan(settings: SteerSettings, schema: PublicSchema, budget: Budget) -> Plan:
    """Plan two queries for means in place of one: Gaussians of noise s / sqrt(f) and s / sqrt(1 - f) cost as much as s.

    Raises:
        ParamsError: the settings do not fit the public schema.
    """
    one = plan_means("steer", settings, schema, budget)
    sigma = float(one.numbers["sigma"])
    first, second = sigma / math.sqrt(settings.first), sigma / math.sqrt(1.0 - settings.first)
    queries = (*one.queries[:-1], planned_means(first), planned_means(second))
    return replace(one, queries=queries, numbers={**one.numbers, "sigma": second, "first_sigma": first})
