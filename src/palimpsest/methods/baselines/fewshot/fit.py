"""`fewshot`: demonstrations whose every token is the argmax of a noisy average (Tang et al. 2024), a baseline."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from palimpsest.errors import ModelError, ParamsError
from palimpsest.methods.baselines.fewshot.settings import FewShotSettings
from palimpsest.methods.predict.fit import Predicted, allowed_tokens, ends_of
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.models.lm import load_lm
from palimpsest.prediction.contexts import Shape, context_of, require_exact
from palimpsest.prediction.fewshot import SCHEME, SENSITIVITY, Sampling, WriteShots
from palimpsest.prediction.prompts import UNLABELLED, Prompter, few_shot_prompter
from palimpsest.privacy.accounting import calibrate_noise
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.query import View
from palimpsest.records.schema import PublicSchema
from palimpsest.training.team import own_device

_LEAST = 64  # tokens that a prompt is padded to at least


class FewShot:
    """Few-shot generation (Tang et al. 2024, Algorithm 1), accounted as the Poisson sampling that runs.

    Guarantee: `fit` asks one query per label, each of the records (or persons) of that label alone, which compose in
    parallel. Each meets the budget under privacy-loss distributions, for adding or removing one unit of privacy: a
    record, or a person with all their rows. With an infinite epsilon nothing is noised: a reference that must never be
    released.

    Attributes:
        settings: how to write.
        schema: what is public about the data set.
        folder: the public language model, a Hugging Face folder.
        checkpoints: where a stopped run leaves what it wrote; None keeps nothing.
    """

    def __init__(
        self, settings: FewShotSettings, schema: PublicSchema, folder: Path, checkpoints: Path | None = None
    ) -> None:
        self.settings, self.schema, self.folder, self.checkpoints = settings, schema, folder, checkpoints

    def plan(self, schema: PublicSchema, budget: Budget) -> Plan:
        """What a fit will ask and cost; no row is read.

        Raises:
            ParamsError: the prior does not name the public labels.
        """
        if self.settings.prior is not None and set(self.settings.prior) != set(schema.label_names):
            raise ParamsError("The prior does not name the public labels.", "Give one share per label, or null.")
        rates = self._rates(schema)
        if (most := max(rates.values())) > 1.0:
            return Plan("fewshot", budget, (), {}, False, (_too_many(self.settings, most, schema.unit),))
        if (self.settings.prompts - 1) * (self.settings.rounding or 0.0) > SENSITIVITY:
            return Plan("fewshot", budget, (), {}, False, (_spoilt(self.settings),))
        noise = self._noise(budget, most)
        planned = {label: self._sampling(rate, most, noise) for label, rate in rates.items()}
        queries = tuple(
            PlannedQuery(_name(label), sampling.event(), sampling.steps, (SCHEME, label) if label else None)
            for label, sampling in planned.items()
        )
        widest = max(planned.values(), key=lambda sampling: sampling.rate)
        numbers: dict[str, float | int | str] = {
            "noise_multiplier": widest.noise_multiplier,
            "steps": widest.steps,
            "sampling_rate": widest.rate,
            "expected_batch": float(self.settings.prompts * self.settings.shots),
            "prompts": self.settings.prompts,
            "expected_examples": self.settings.rows * len(rates),
            "forward_tokens": self._forward_tokens(len(rates)),
        }
        numbers |= {} if self.settings.rounding is None else {"rounding": self.settings.rounding}
        return Plan("fewshot", budget, queries, numbers)

    def fit(self, view: View, plan: Plan) -> Predicted:
        """Ask what was planned, label by label.

        Raises:
            ParamsError: the plan is not feasible.
            ModelError: the model cannot be used with these settings.
        """
        if not plan.feasible:
            raise ParamsError("The plan of method fewshot cannot work.", " ".join(plan.notes))
        settings = self.settings
        model, tokenizer = load_lm(self.folder)
        model.to(own_device())  # type: ignore[arg-type]
        prompts = self._prompter(model, tokenizer)
        ends = ends_of(model, tokenizer, settings.prompt.ends)
        rates = self._rates(self.schema)
        noise = float(plan.numbers["noise_multiplier"])
        found: list[Mapping[str, Any]] = [
            view.ask(
                WriteShots(
                    name=_name(label),
                    model=model,
                    prompter=prompts,
                    sampling=self._sampling(rate, max(rates.values()), noise),
                    label=label,
                    allowed=allowed_tokens(model, tokenizer, ends),
                    ends=ends,
                    shape=self._shape(model),
                    stride=settings.checkpoint_tokens,
                    checkpoints=self.checkpoints,
                )
            )
            for label, rate in rates.items()
        ]
        return Predicted(tuple(found), keeps_unfinished=False)

    def _prompter(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Prompter:
        """The prompts, after public ones were tried on the model."""
        prompt = self.settings.prompt
        prompts = few_shot_prompter(
            tokenizer,
            prompt.head,
            prompt.shot,
            self.schema.labels,
            text_tokens=prompt.text_tokens,
            joint=prompt.joint if self.schema.task == "span" else None,
        )
        if (need := prompts.longest_with_head + self.settings.max_tokens) > context_of(model):
            raise ModelError(
                f"A prompt of one record and a demonstration need up to {need} positions; the model has "
                f"{context_of(model)}.",
                "Lower prompt.text_tokens or max_tokens, shorten the prompt, or use a model with a longer context.",
            )
        heads = [list(head) for head in prompts.public.values()]
        require_exact(model, heads, [], self._shape(model), self.settings.rounding or 0.0)
        return prompts

    def _shape(self, model: PreTrainedModel) -> Shape:
        """Of every forward pass: a prompt is padded to the least width of a short ladder that it fits in."""
        context = context_of(model)
        return Shape(min(self.settings.micro_batch, self.settings.prompts), min(_LEAST, context), context, 0)

    def _rates(self, schema: PublicSchema) -> dict[str, float]:
        """Sampling rate of each label: M shots over its public number of records, or persons."""
        names = schema.label_names or (UNLABELLED,)
        prior = self.settings.prior or dict.fromkeys(names, 1.0)
        total, wanted = sum(prior.values()), self.settings.prompts * self.settings.shots
        return {name: wanted / (schema.n_units * prior[name] / total) for name in names}

    def _sampling(self, rate: float, charged: float, noise: float) -> Sampling:
        settings = self.settings
        return Sampling(
            rate, charged, noise, settings.prompts, settings.top_k, settings.rows, settings.max_tokens,
            settings.rounding or 0.0,
        )  # fmt: skip

    def _noise(self, budget: Budget, rate: float) -> float:
        """The noise multiplier that the largest rate needs; all labels get it."""
        if math.isinf(budget.epsilon):
            return 0.0
        return calibrate_noise(lambda noise: self._sampling(rate, rate, noise).event(), budget.epsilon, budget.delta)

    def _forward_tokens(self, labels: int) -> int:
        """Every token reads all prompts anew."""
        settings = self.settings
        prompt = settings.shots * settings.prompt.text_tokens + settings.max_tokens // 2
        return labels * settings.rows * settings.max_tokens * (settings.prompts + 1) * prompt


def _too_many(settings: FewShotSettings, rate: float, unit: str) -> str:
    return (
        f"infeasible: {settings.prompts} prompts of {settings.shots} records are {rate:.3g} times the {unit}s of the "
        "smallest label: lower prompts or shots"
    )


def _spoilt(settings: FewShotSettings) -> str:
    return (
        f"infeasible: rounding of {settings.rounding:.3g} nats in the prompts beside it moves the average by more than "
        "one record does: lower prompts, or use a device that keeps a prompt's bits and set rounding to null"
    )


def _name(label: str) -> str:
    return f"fewshot {label}".strip()
