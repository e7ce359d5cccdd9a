"""`dp_lm`: a conditional language model fine-tuned with DP-SGD on two losses at once, sampled with PPLM."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from dp_accounting import ComposedDpEvent
from transformers import PreTrainedTokenizerBase

from palimpsest.errors import ParamsError
from palimpsest.generators.base import Budget, Plan, PlannedQuery
from palimpsest.generators.dp_lm import losses, pplm
from palimpsest.generators.dp_lm.artifact import DpLmArtifact
from palimpsest.generators.dp_lm.model import ConditionalLm, freeze, new_model, require_context
from palimpsest.generators.dp_lm.serialise import UNLABELLED, Batch, Serialiser, serialiser
from palimpsest.params.dp_lm import DpLmSettings
from palimpsest.privacy.accounting import calibrate_noise, zcdp_rho
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.privacy.query import View
from palimpsest.progress import track
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema
from palimpsest.training.dpsgd import TrainQuery
from palimpsest.training.optimiser import Optimiser
from palimpsest.training.plan import TrainingPlan
from palimpsest.training.team import own_device

_PROBE = ("A text.", "A public text, somewhat longer than the first one.", "A long text. ")  # the engine's self-check


class DpLm:
    """The multitask method of "Differentially Private Conditional Text Generation" (sections 5.1.3 and 5.2).

    Guarantee: `fit` asks at most two queries, a noisy label histogram and DP-SGD, whose composition meets the budget
    under privacy-loss distributions, for adding or removing one record. Sampling is post-processing. With an infinite
    epsilon nothing is noised (gradients are still clipped): a reference that must never be released.

    Attributes:
        settings: how to train and how to sample.
        schema: what is public about the data set.
        base_folder: the public language model, a Hugging Face folder.
        seed: initialises the head and numbers the sampling streams; no private randomness comes from it.
        checkpoints: the folder from which a stopped training continues; none keeps nothing.
    """

    def __init__(
        self,
        settings: DpLmSettings,
        schema: PublicSchema,
        base_folder: Path,
        seed: int,
        checkpoints: Path | None = None,
    ) -> None:
        self.settings = settings
        self.schema = schema
        self.base_folder = base_folder
        self.seed = seed
        self.checkpoints = checkpoints

    def plan(self, schema: PublicSchema, budget: Budget) -> Plan:
        """What a fit will ask and cost; no row is read.

        Raises:
            ParamsError: the settings do not fit the public schema.
        """
        _check(self.settings, schema)
        reference = math.isinf(budget.epsilon)
        sigma = 0.0 if reference else self._histogram_sigma(budget)
        noise = 0.0
        if not reference:
            noise = calibrate_noise(
                lambda trial: ComposedDpEvent([query.event for query in self._queries(schema, sigma, trial)]),
                budget.epsilon,
                budget.delta,
            )
        training = self._training(schema, noise)
        numbers: dict[str, float | int | str] = {
            "noise_multiplier": noise,
            "clipping": training.clipping,
            "clipping_norm": training.clipping_norm,
            "sampling_rate": training.rate,
            "steps": training.steps,
            "expected_batch": training.divisor,
        }
        if self._counts_labels(schema):
            numbers["histogram_sigma"] = sigma
        return Plan("dp_lm", budget, self._queries(schema, sigma, noise), numbers)

    def fit(self, view: View, plan: Plan) -> DpLmArtifact:
        """Ask what was planned, in order, and return the fitted model.

        Everything that can fail for public reasons (the base model, its context, the engine) is tried first.

        Raises:
            ModelError: the base model cannot be used with these settings.
        """
        names = self.schema.label_names
        train = self.settings.train
        model, tokenizer = new_model(self.base_folder, max(1, len(names)), train.discriminator_width, self.seed)
        freeze(model, train.freeze_first, train.freeze_last, train.freeze_embeddings)
        model.head.requires_grad_(train.discriminator_weight > 0)
        rows = self._serialiser(model, tokenizer, names)
        device = own_device()
        shares = self._shares(view, plan)
        fitted = view.ask(
            TrainQuery(
                plan=self._training(self.schema, float(plan.numbers["noise_multiplier"])),
                optimiser=self._optimiser(),
                model=model.to(device),
                encode=lambda records: rows.batch(records).to(device),
                losses=self._losses(),  # type: ignore[arg-type]
                micro_batch=train.micro_batch,
                probe=_probe(names, train.max_tokens),
                encode_probe=lambda records: replace(rows, entropy=bytes).batch(records).to(device),
                precision=train.precision,
                checkpoints=self.checkpoints,
                checkpoint_steps=train.checkpoint_steps,
            )
        )
        return DpLmArtifact(fitted.eval().requires_grad_(False).cpu(), tokenizer, shares)

    def sample(self, artifact: DpLmArtifact, counts: Mapping[str, int]) -> Iterator[Record]:
        """Draw exactly `counts[label]` records of each label, in that order. Free: it reads the artifact alone.

        The texts depend on the seed, the artifact, the settings and the counts, not on the batch size.
        """
        settings, names = self.settings.generate, list(artifact.shares)
        rows = self._serialiser(artifact.model, artifact.tokenizer, names)
        model = artifact.model.to(own_device())
        wanted = [label for label, count in counts.items() for _ in range(count)]
        starts = range(0, len(wanted), settings.batch)
        for start in track(starts, name="generate", total=len(starts), unit="batch"):
            labels = wanted[start : start + settings.batch]
            texts = pplm.write(
                model,
                [rows.prompt(label) for label in labels],
                [names.index(label) for label in labels],
                rows.ids,
                settings,
                pplm.uniforms(self.seed, start, len(labels), settings.max_tokens),
            )
            for label, text in zip(labels, artifact.tokenizer.batch_decode(texts), strict=True):
                yield Record(text.strip(), label or None)

    def _queries(self, schema: PublicSchema, sigma: float, noise: float) -> tuple[PlannedQuery, ...]:
        planned = self._training(schema, noise)
        training = PlannedQuery("train", planned.event(), planned.steps)
        if not self._counts_labels(schema):
            return (training,)
        histogram = LabelHistogram(schema.label_names, sigma)
        return PlannedQuery(histogram.name, histogram.event()), training

    def _counts_labels(self, schema: PublicSchema) -> bool:
        return self.settings.train.label_counts == "noisy" and len(schema.label_names) > 1

    def _histogram_sigma(self, budget: Budget) -> float:
        """The noise that `histogram_share` of the budget's rho buys: rho = 1 / (2 sigma^2)."""
        rho = self.settings.train.histogram_share * zcdp_rho(budget.epsilon, budget.delta)
        return math.sqrt(0.5 / rho)

    def _training(self, schema: PublicSchema, noise: float) -> TrainingPlan:
        train = self.settings.train
        rate = train.batch / schema.n_public
        return TrainingPlan(
            rate=rate,
            steps=max(1, round(train.epochs / rate)),
            clipping_norm=train.clipping_norm,
            noise_multiplier=noise,
            divisor=float(train.batch),
            clipping=train.clipping,
            losses=2 if train.clipping == "separate" else 1,
        )

    def _optimiser(self) -> Optimiser:
        train = self.settings.train
        return Optimiser(
            learning_rate=train.learning_rate,
            final_learning_rate_share=1.0 if train.schedule == "constant" else 0.0,
            betas=train.betas,
            eps=train.adam_eps,
            weight_decay=train.weight_decay,
            warmup_share=train.warmup,
            noise_correction=train.noise_correction,
        )

    def _losses(self) -> Callable[[ConditionalLm, Batch], tuple[torch.Tensor, ...]]:
        train = self.settings.train
        chosen = losses.separate_losses if train.clipping == "separate" else losses.joint_losses
        return partial(chosen, weight=train.discriminator_weight, prefix_step=train.prefix_step)

    def _shares(self, view: View, plan: Plan) -> dict[str, float]:
        """Share of each label: from the noisy counts, each taken as at least 1, or from the public prior."""
        names = self.schema.label_names or (UNLABELLED,)
        if self._counts_labels(self.schema):
            noisy = view.ask(LabelHistogram(self.schema.label_names, float(plan.numbers["histogram_sigma"])))
            weights = {name: float(max(1, noisy[name])) for name in names}
        else:
            prior = self.settings.train.prior
            weights = {name: 1.0 if prior is None else prior[name] for name in names}
        total = sum(weights.values())
        return {name: weight / total for name, weight in weights.items()}

    def _serialiser(
        self, model: ConditionalLm, tokenizer: PreTrainedTokenizerBase, names: Sequence[str]
    ) -> Serialiser:
        train, generate = self.settings.train, self.settings.generate
        longest = max(train.max_tokens + 1, generate.max_tokens + generate.horizon)  # 1: EOS
        rows = serialiser(tokenizer, names, train.max_tokens, train.loss_on)
        require_context(model, rows.longest_prompt + longest)
        return rows


def _check(settings: DpLmSettings, schema: PublicSchema) -> None:
    """Raise ParamsError where settings and schema do not fit together."""
    train = settings.train
    if train.batch > schema.n_public:
        raise ParamsError(
            f"The expected batch size {train.batch} is larger than n_public, {schema.n_public}.",
            "Lower dp_lm.train.batch.",
        )
    if train.prior is not None and set(train.prior) != set(schema.label_names):
        raise ParamsError("The prior does not name the public labels.", "Give one share per label, or null.")
    if train.discriminator_weight and len(schema.label_names) < 2:
        raise ParamsError("A discriminator needs two labels or more.", "Set discriminator_weight and iterations to 0.")
    if settings.generate.iterations and not train.discriminator_weight:
        raise ParamsError("PPLM needs a trained discriminator.", "Set iterations to 0 or discriminator_weight above 0.")


def _probe(names: Sequence[str], max_tokens: int) -> tuple[Record, ...]:
    """Three public records of different lengths, the last one as long as a row can be."""
    short, middle, repeated = _PROBE
    labels = (names[0], names[-1], names[0]) if names else (None, None, None)
    texts = (short, middle, repeated * max_tokens)
    return tuple(Record(text, label) for text, label in zip(texts, labels, strict=True))
