"""What `sentdp` asks and costs; no row is read."""

import math

from palimpsest.errors import ParamsError
from palimpsest.methods.baselines.sentdp.settings import SentDpSettings
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.shares import planned_histogram, planned_query, require_prior, whole_rho
from palimpsest.privacy.depth import DepthPicks, picks_event, scale_of
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.records.schema import PublicSchema

_MARGIN = 1.0 - 1e-9  # what rounding may add up to


def plan(settings: SentDpSettings, schema: PublicSchema, budget: Budget) -> Plan:
    """What a fit will ask and cost.

    It is infeasible where the scale of the noise exceeds the depth that a text in the middle of a class of average size
    has, in units, which is the greatest there is: the picks are then nearly uniform.

    Raises:
        ParamsError: the settings do not fit the public schema.
    """
    if not schema.label_names:
        raise ParamsError("sentdp needs public labels.", "Name them in dataset.labels, or leave sentdp out.")
    require_prior(settings.prior, schema)
    histogram, rho = costs_of(settings, schema, budget)
    each = math.ceil(settings.rows / len(schema.label_names))
    scale, deepest = scale_of(each, rho), schema.n_units / len(schema.label_names) / 2.0
    numbers: dict[str, float | int | str] = {"scale": scale, "rows": settings.rows, "directions": settings.directions}
    return Plan(
        "sentdp",
        budget,
        (*planned_query(histogram), PlannedQuery(DepthPicks.name, picks_event(rho))),
        numbers if histogram is None else {**numbers, "histogram_sigma": histogram.sigma},
        feasible=scale <= deepest,
        notes=() if scale <= deepest else (_drowned(scale, deepest),),
    )


def costs_of(settings: SentDpSettings, schema: PublicSchema, budget: Budget) -> tuple[LabelHistogram | None, float]:
    """The histogram, and the rho of the picks, which does not depend on how many there are of each label."""
    usable = whole_rho(budget) * _MARGIN
    histogram = planned_histogram(settings, schema, usable)
    return histogram, usable * (1.0 if histogram is None else 1.0 - settings.histogram_share)


def _drowned(scale: float, deepest: float) -> str:
    return (
        f"The scale of the noise, {scale:.1f}, is above {deepest:.1f}, the depth of a text in the very middle of a "
        "class of average size: the picks would be nearly uniform. Ask for fewer rows, raise epsilon, or use select."
    )
