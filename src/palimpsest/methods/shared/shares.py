"""The number of rows of each label: from a noisy histogram of units, charged, or from a public prior, free.

The histogram counts units of privacy: records, or persons by one label each.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from dp_accounting.dp_event import ComposedDpEvent, DpEvent, GaussianDpEvent, NonPrivateDpEvent

from palimpsest.errors import ParamsError
from palimpsest.methods.shared.base import Budget
from palimpsest.methods.shared.settings import Counted
from palimpsest.privacy.accounting import calibrate_noise, is_private, zcdp_rho
from palimpsest.privacy.planned import PlannedQuery, versions_of
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.privacy.query import View
from palimpsest.records.schema import PublicSchema

_SLIGHT = 0.1  # error of a label's count that is not worth a word


class Shares(Protocol):
    """The settings that say where shares come from."""

    @property
    def label_counts(self) -> str:
        """noisy or prior."""

    @property
    def prior(self) -> Mapping[str, float] | None:
        """Public share of each label; None for equal ones."""

    @property
    def histogram_share(self) -> float:
        """Share of rho that the histogram may take."""


def require_prior(prior: Mapping[str, float] | None, schema: PublicSchema) -> None:
    """Raise ParamsError where a prior does not name the public labels."""
    if prior is not None and set(prior) != set(schema.label_names):
        raise ParamsError("The prior does not name the public labels.", "Give one share per label, or null.")


def require_means(method: str, class_means: object, schema: PublicSchema) -> None:
    """Raise ParamsError where class means are asked for and there are no classes to tell apart."""
    if class_means is not None and len(schema.label_names) < 2:
        raise ParamsError(f"{method}.class_means needs two labels or more.", "Set it to null.")


def whole_rho(budget: Budget) -> float:
    """The budget as rho of zCDP; infinite for a reference."""
    return math.inf if math.isinf(budget.epsilon) else zcdp_rho(budget.epsilon, budget.delta)


def planned_histogram(settings: Shares, schema: PublicSchema, rho: float) -> LabelHistogram | None:
    """The histogram that a budget of `rho` zCDP plans; None where shares are public or there is one label.

    It takes `histogram_share` of rho, which buys rho_h = 1 / (2 sigma^2); an infinite rho buys no noise (a reference).
    """
    if settings.label_counts != "noisy" or len(schema.label_names) < 2:
        return None
    sigma = 0.0 if math.isinf(rho) else math.sqrt(0.5 / (settings.histogram_share * rho))
    return LabelHistogram(schema.label_names, sigma)


def note_counts(histogram: LabelHistogram | None, schema: PublicSchema) -> Iterator[str]:
    """Yield a note where noise moves the count of an average label by more than a tenth."""
    average = schema.n_units / max(1, len(schema.label_names))
    if histogram is not None and histogram.sigma > _SLIGHT * average:
        yield (
            f"noise moves the share of rows of an average label by {histogram.sigma / average:.0%}: label_counts prior "
            "takes public shares, and costs nothing"
        )


def gaussian(sigma: float) -> DpEvent:
    """Return the cost of one answer of sensitivity 1 with this noise; without noise it is not private."""
    return GaussianDpEvent(sigma) if sigma > 0 else NonPrivateDpEvent()


def noise_after(before: DpEvent, budget: Budget, asked: Callable[[float], Iterable[DpEvent]]) -> float:
    """Return the least sigma at which the budget covers the new queries together with all charges of the variant below.

    0 for an infinite budget.

    Args:
        before: the charges of the variant below.
        asked: sigma -> the cost of each query.

    Raises:
        ParamsError: the variant below is not private, or nothing is left of the budget after it.
    """
    if math.isinf(budget.epsilon):
        return 0.0
    if not is_private(before):
        raise ParamsError(
            "The variant below is not private.", "Choose another, or give this one epsilon .inf and purpose reference."
        )
    try:
        return calibrate_noise(lambda sigma: ComposedDpEvent([before, *asked(sigma)]), budget.epsilon, budget.delta)
    except ValueError:
        raise ParamsError(
            f"Nothing is left of epsilon {budget.epsilon:g} after the variant below.", "Raise it, or lower that one."
        ) from None


def planned_query(histogram: LabelHistogram | None) -> list[PlannedQuery]:
    """Return the planned query of the histogram; none where there is no histogram."""
    if histogram is None:
        return []
    return [PlannedQuery(histogram.name, histogram.event(), versions=versions_of(histogram.name))]


def label_shares(
    view: View, settings: Shares, schema: PublicSchema, histogram: LabelHistogram | None, unlabelled: str
) -> dict[str, float]:
    """Share of each label: of units, by the noisy counts, each taken as at least 1; or from the public prior.

    `histogram` is the planned query, `unlabelled` the one label of a task without labels.
    """
    names = schema.label_names or (unlabelled,)
    if histogram is not None:
        noisy = view.ask(histogram)
        weights = {name: float(max(1, noisy[name])) for name in names}
    else:
        prior = settings.prior
        weights = {name: 1.0 if prior is None else prior[name] for name in names}
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def label_rows(view: View, settings: Counted, schema: PublicSchema, histogram: LabelHistogram | None) -> dict[str, int]:
    """Return how many of the requested rows each label gets; "" is the one label of a task without labels."""
    return divide_total(settings.rows, label_shares(view, settings, schema, histogram, ""))


def divide_total(total: int, shares: Mapping[str, float]) -> dict[str, int]:
    """`total` split by shares (largest remainders; ties to the earlier label).

    >>> divide_total(10, {"a": 0.55, "b": 0.25, "c": 0.2})
    {'a': 6, 'b': 2, 'c': 2}
    """
    exact = {label: share * total for label, share in shares.items()}
    counts = {label: int(value) for label, value in exact.items()}
    by_remainder = sorted(exact, key=lambda label: counts[label] - exact[label])
    for label in by_remainder[: total - sum(counts.values())]:
        counts[label] += 1
    return counts
