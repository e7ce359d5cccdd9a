"""The queries of `dp_lm`'s trainings and their cost; no row is read."""

import math
from collections.abc import Iterator

from dp_accounting.dp_event import ComposedDpEvent, DpEvent

from palimpsest.errors import ParamsError
from palimpsest.methods.dp_lm.settings import DiscriminatorTrain, DpLmTrain, DpSgd
from palimpsest.methods.shared.base import Budget, Foretold, Plan, foretell_judge, foretell_model
from palimpsest.methods.shared.shares import note_counts, planned_histogram, planned_query, require_prior, whole_rho
from palimpsest.methods.shared.tables import note_cells, planned_tables, require_fitted, tables_query
from palimpsest.models.settings import BARE
from palimpsest.privacy.accounting import calibrate_noise, epsilon
from palimpsest.privacy.planned import PlannedQuery, versions_of
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.privacy.tables import FieldTables
from palimpsest.records.schema import PublicSchema
from palimpsest.training.plan import MOST_PASSES, TrainingPlan, count_passes, eta

DISCRIMINATOR = "discriminator"


def plan(settings: DpLmTrain, schema: PublicSchema, budget: Budget) -> Plan:
    """Plan the queries of a language model's fit and their cost.

    Raises:
        ParamsError: the settings do not fit the public schema.
    """
    require_prior(settings.prior, schema)
    if settings.discriminator_weight and len(schema.label_names) < 2:
        raise ParamsError("A discriminator needs two labels or more.", "Set discriminator_weight to 0.")
    tables, histogram = plan_counts(settings, schema, whole_rho(budget))
    first = planned_query(histogram) if tables is None else [planned_tables(tables)]
    noise = 0.0
    if not math.isinf(budget.epsilon):
        before = [query.event for query in first]
        noise = calibrate_noise(
            lambda trial: ComposedDpEvent([*before, plan_language_model(settings, schema, trial).event()]),
            budget.epsilon,
            budget.delta,
        )
    training = plan_language_model(settings, schema, noise)
    numbers = _plan_numbers(training)
    if histogram is not None:
        numbers["histogram_sigma"] = histogram.sigma
    if tables is not None:
        numbers["tables_sigma"] = tables.sigma
    asked = (*first, _planned_training("train", training))
    counted = note_counts(histogram, schema) if tables is None else note_cells(tables, schema)
    told = (*notes(settings, schema, budget, noise), *counted)
    return Plan("dp_lm", budget, asked, numbers, notes=told, foretold=_foretell(settings, schema, training))


def _foretell(settings: DpLmTrain, schema: PublicSchema, training: TrainingPlan) -> tuple[Foretold, ...]:
    """Foretell only what was measured: a model that learns texts behind bare labels, and nothing besides."""
    more = settings.lora_rank or settings.soft_prompt or settings.discriminator_weight or settings.prompt != BARE
    return () if more or len(schema.label_names) < 2 else foretell_model(schema, _signal(training))


def _signal(plan: TrainingPlan) -> float:
    """Return the sum of all steps over its noise, where clipped gradients are all alike: it grows as the root of T."""
    return math.sqrt(plan.steps) * plan.divisor / plan.noise_multiplier if plan.noise_multiplier else math.inf


def notes(settings: DpLmTrain, schema: PublicSchema, budget: Budget, noise: float) -> Iterator[str]:
    """Yield notes for the user, before anything is spent."""
    if settings.clipping == "separate" and noise:
        once = training_plan(settings, schema, noise).event()
        yield (
            "two gradients on one batch have sensitivity sqrt(2) C together, and are charged so; counted once a step, "
            f"as published, this noise would pass for epsilon {epsilon(once, budget.delta, 'rdp'):.2f}"
        )


def plan_discriminator(settings: DiscriminatorTrain, schema: PublicSchema, budget: Budget, before: DpEvent) -> Plan:
    """Plan the query of a discriminator's fit and its cost; the budget covers it and the fitted model together.

    Raises:
        ParamsError: the settings do not fit the public schema, or the model leaves nothing of the budget.
    """
    if len(schema.label_names) < 2:
        raise ParamsError("A discriminator needs two labels or more.", "Take it out of `run`.")
    noise = 0.0 if math.isinf(budget.epsilon) else _noise(settings, schema, budget, before)
    training = training_plan(settings, schema, noise)
    query = _planned_training(DISCRIMINATOR, training)
    told = (foretell_judge(schema, _signal(training)),) if settings.reads == "encoder" else ()
    return Plan("dp_lm", budget, (query,), _plan_numbers(training), foretold=told)


def _noise(settings: DiscriminatorTrain, schema: PublicSchema, budget: Budget, before: DpEvent) -> float:
    try:
        return calibrate_noise(
            lambda trial: ComposedDpEvent([before, training_plan(settings, schema, trial).event()]),
            budget.epsilon,
            budget.delta,
        )
    except ValueError as error:
        raise ParamsError(
            f"The language model leaves nothing of epsilon {budget.epsilon:g} for a discriminator.",
            "Raise the discriminator's epsilon, which counts both, or lower the language model's.",
        ) from error


def plan_counts(
    settings: DpLmTrain, schema: PublicSchema, rho: float
) -> tuple[FieldTables | None, LabelHistogram | None]:
    """Return what a budget of `rho` zCDP asks of labels: tables where there are fields, else a histogram, or neither.

    The tables take `fields_share` of rho, which buys 1 / (2 sigma^2); an infinite rho buys no noise (a reference).

    Raises:
        ParamsError: there are more combinations of values than are fitted.
    """
    if not schema.fields:
        return None, planned_histogram(settings, schema, rho)
    require_fitted(schema)
    return tables_query(schema, 0.0 if math.isinf(rho) else math.sqrt(0.5 / (settings.fields_share * rho))), None


def _planned_training(name: str, training: TrainingPlan) -> PlannedQuery:
    return PlannedQuery(name, training.event(), training.steps, versions=versions_of(name))


def plan_language_model(settings: DpLmTrain, schema: PublicSchema, noise: float) -> TrainingPlan:
    """The plan of a language model's training, on one loss or on two."""
    separate = settings.clipping == "separate"
    return training_plan(settings, schema, noise, settings.clipping, 2 if separate else 1)


def training_plan(
    settings: DpSgd, schema: PublicSchema, noise: float, clipping: str = "joint", losses: int = 1
) -> TrainingPlan:
    """The plan of a training over `settings.epochs` expected passes.

    Raises:
        ParamsError: the expected batch is larger than the public size of the data set, or is read in more passes than
            the allowance for rounding covers.
    """
    if count_passes(settings.batch, schema.max_rows_per_unit, settings.micro_batch) > MOST_PASSES:
        raise ParamsError(
            f"A step of {settings.batch} {schema.unit}s, {settings.micro_batch} rows at a time, may take more passes "
            f"than the {MOST_PASSES} that the allowance for rounding covers.",
            "Raise `micro_batch`, or lower `batch`.",
        )
    if settings.batch > schema.n_units:
        raise ParamsError(
            f"The expected batch size {settings.batch} is larger than the {schema.n_units} {schema.unit}s declared.",
            "Lower `batch`.",
        )
    rate = settings.batch / schema.n_units
    return TrainingPlan(
        rate=rate,
        steps=max(1, round(settings.epochs / rate)),
        clipping_norm=settings.clipping_norm,
        noise_multiplier=noise,
        divisor=float(settings.batch),
        clipping=clipping,
        losses=losses,
        eta=eta(settings.batch),
    )


def _plan_numbers(plan: TrainingPlan) -> dict[str, float | int | str]:
    """The numbers of a plan that are worth printing."""
    return {
        "noise_multiplier": plan.noise_multiplier,
        "clipping": plan.clipping,
        "clipping_norm": plan.clipping_norm,
        "sampling_rate": plan.rate,
        "steps": plan.steps,
        "expected_batch": plan.divisor,
    }
