"""What `select` asks and costs; no row is read."""

import math

from dp_accounting import ComposedDpEvent, DpEvent, GaussianDpEvent

from palimpsest.errors import ParamsError
from palimpsest.methods.select.settings import SelectSettings
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.means import planned_means
from palimpsest.methods.shared.shares import planned_histogram, planned_query, require_prior, whole_rho
from palimpsest.privacy.accounting import calibrate_noise, gdp_sigma
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.records.schema import PublicSchema

_MARGIN = 1.0 + 1e-6  # the exact noise, and what the accountant of the statement rounds up when it recomputes epsilon


def plan(settings: SelectSettings, schema: PublicSchema, budget: Budget) -> Plan:
    """What a fit will ask and cost.

    It is infeasible where the noise on a text's score is as large as the score could be at all, were every unit of a
    class of average size the same.

    Raises:
        ParamsError: the settings do not fit the public schema.
    """
    if len(schema.label_names) < 2:
        raise ParamsError("select needs two labels or more.", "Name them in dataset.labels, or leave select out.")
    require_prior(settings.prior, schema)
    histogram = planned_histogram(settings, schema, whole_rho(budget))
    sigma, most = _sigma(budget, histogram), schema.n_units / len(schema.label_names)
    numbers: dict[str, float | int | str] = {"sigma": sigma, "rows": settings.rows}
    return Plan(
        "select",
        budget,
        (*planned_query(histogram), planned_means(sigma)),
        numbers if histogram is None else {**numbers, "histogram_sigma": histogram.sigma},
        feasible=sigma < most,
        notes=() if sigma < most else (_drowned(sigma, most, schema.unit),),
    )


def _sigma(budget: Budget, histogram: LabelHistogram | None) -> float:
    """The noise of the class means that the histogram leaves of the budget."""
    if math.isinf(budget.epsilon):
        return 0.0
    if histogram is None:
        return _MARGIN * gdp_sigma(budget.epsilon, budget.delta)

    def asked(sigma: float) -> DpEvent:
        return ComposedDpEvent([histogram.event(), GaussianDpEvent(sigma)])

    return calibrate_noise(asked, budget.epsilon, budget.delta)


def _drowned(sigma: float, most: float, unit: str) -> str:
    return (
        f"The noise on a text's score, {sigma:.1f}, is as large as a class of {most:.0f} {unit}s could make the score: "
        "raise epsilon, or use public_only."
    )
