"""Plans what `fewshot` asks and costs; no row is read."""

import math

from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.shares import require_prior
from palimpsest.prediction.sampling import SCHEME, SENSITIVITY, UNLABELLED, Sampling
from palimpsest.privacy.accounting import calibrate_noise
from palimpsest.privacy.planned import PlannedQuery, versions_of
from palimpsest.records.schema import PublicSchema
from palimpsest_lab.methods.fewshot.declaration import FewShotSettings


def plan(settings: FewShotSettings, schema: PublicSchema, budget: Budget) -> Plan:
    """Plan what a fit asks and costs. Raises ParamsError if the prior does not name the public labels."""
    require_prior(settings.prior, schema)
    most = max(rates_of(settings, schema).values())
    if most > 1.0:
        return Plan("fewshot", budget, (), {}, False, (_prompts_note(settings, most, schema.unit),))
    if (settings.prompts - 1) * (settings.rounding or 0.0) > SENSITIVITY:
        return Plan("fewshot", budget, (), {}, False, (_rounding_note(settings),))
    planned = samplings(settings, schema, _noise(settings, budget, most))
    queries = tuple(
        PlannedQuery(
            query_name(label),
            sampling.event(),
            sampling.steps,
            (SCHEME, label) if label else None,
            versions=versions_of("shots"),
        )
        for label, sampling in planned.items()
    )
    widest = max(planned.values(), key=lambda sampling: sampling.rate)
    numbers: dict[str, float | int | str] = {
        "noise_multiplier": widest.noise_multiplier,
        "steps": widest.steps,
        "sampling_rate": widest.rate,
        "expected_batch": float(settings.prompts * settings.shots),
        "prompts": settings.prompts,
        "expected_examples": settings.rows * len(planned),
        "forward_tokens": _forward_tokens(settings, len(planned)),
    }
    numbers |= {} if settings.rounding is None else {"rounding": settings.rounding}
    return Plan("fewshot", budget, queries, numbers)


def samplings(settings: FewShotSettings, schema: PublicSchema, noise: float) -> dict[str, Sampling]:
    """Return how the tokens of each label are made; the largest rate is charged for all."""
    rates = rates_of(settings, schema)
    return {label: _sampling(settings, rate, max(rates.values()), noise) for label, rate in rates.items()}


def rates_of(settings: FewShotSettings, schema: PublicSchema) -> dict[str, float]:
    """Return the sampling rate of each label: M shots over its public number of records, or persons."""
    names = schema.label_names or (UNLABELLED,)
    prior = settings.prior or dict.fromkeys(names, 1.0)
    total, wanted = sum(prior.values()), settings.prompts * settings.shots
    return {name: wanted / (schema.n_units * prior[name] / total) for name in names}


def query_name(label: str) -> str:
    """Return the charge's name."""
    return f"fewshot {label}".strip()


def _sampling(settings: FewShotSettings, rate: float, charged: float, noise: float) -> Sampling:
    return Sampling(
        rate, charged, noise, settings.prompts, settings.top_k, settings.rows, settings.max_tokens,
        settings.rounding or 0.0,
    )  # fmt: skip


def _noise(settings: FewShotSettings, budget: Budget, rate: float) -> float:
    """Return the noise multiplier that the largest rate needs; all labels get it."""
    if math.isinf(budget.epsilon):
        return 0.0
    return calibrate_noise(lambda noise: _sampling(settings, rate, rate, noise).event(), budget.epsilon, budget.delta)


def _forward_tokens(settings: FewShotSettings, labels: int) -> int:
    """Count the forward tokens: every token reads all prompts anew."""
    prompt = settings.shots * settings.prompt.text_tokens + settings.max_tokens // 2
    return labels * settings.rows * settings.max_tokens * (settings.prompts + 1) * prompt


def _prompts_note(settings: FewShotSettings, rate: float, unit: str) -> str:
    return (
        f"infeasible: {settings.prompts} prompts of {settings.shots} records are {rate:.3g} times the {unit}s of the "
        "smallest label: lower prompts or shots"
    )


def _rounding_note(settings: FewShotSettings) -> str:
    return (
        f"infeasible: rounding of {settings.rounding:.3g} nats in the prompts beside it moves the average by more than "
        "one record does: lower prompts, or use a device that keeps a prompt's bits and set rounding to null"
    )
