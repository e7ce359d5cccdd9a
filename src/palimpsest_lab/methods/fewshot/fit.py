"""`fewshot`: demonstrations whose every token is the argmax of a noisy average (Tang et al. 2024), a baseline."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from palimpsest.devices import exact_device
from palimpsest.errors import ModelError, ParamsError
from palimpsest.methods.shared.base import Made, Plan
from palimpsest.methods.shared.postprocess import Filter
from palimpsest.methods.shared.predicted import Predicted, allowed_tokens, ends_of
from palimpsest.models.lm import load_lm
from palimpsest.prediction.contexts import Shape, context_of, require_exact
from palimpsest.prediction.prompts import Prompter, few_shot_prompter
from palimpsest.privacy.query import View
from palimpsest.records.schema import PublicSchema
from palimpsest_lab.methods.fewshot.declaration import FewShotSettings
from palimpsest_lab.methods.fewshot.plan import query_name, samplings
from palimpsest_lab.shots import WriteShots

_LEAST = 64  # tokens that a prompt is padded to at least


@dataclass(frozen=True, eq=False)
class FewShot:
    """Few-shot generation (Tang et al. 2024, Algorithm 1), accounted as the Poisson sampling that runs.

    Guarantee: `ask` asks one query per label, each over only the records (or persons) of that label, which compose in
    parallel. Each meets the budget under privacy-loss distributions, for adding or removing one unit of privacy: a
    record, or a person with all their rows. With an infinite epsilon nothing is noised: a reference that must never be
    released.

    Raises:
        ParamsError: the plan is not feasible.
    """

    settings: FewShotSettings
    schema: PublicSchema
    plan: Plan
    folder: Path  # the public language model, a Hugging Face folder
    checkpoints: Path | None  # where a stopped run leaves what it wrote; None keeps nothing
    measure: Callable[[], Filter]  # makes the perplexity filter

    def __post_init__(self) -> None:
        if not self.plan.feasible:
            raise ParamsError("The plan of method fewshot cannot work.", " ".join(self.plan.notes))

    def ask(self, view: View) -> Predicted:
        """Ask the planned queries, label by label.

        Raises:
            ModelError: the model cannot be used with these settings.
        """
        settings = self.settings
        model, tokenizer = load_lm(self.folder)
        model.to(exact_device())  # type: ignore[arg-type]
        shape, prompts = self._prepare_model(model, tokenizer)
        ends = ends_of(model, tokenizer, settings.prompt.ends)
        noise = float(self.plan.numbers["noise_multiplier"])
        written = tuple(
            view.ask(
                WriteShots(
                    name=query_name(label),
                    model=model,
                    prompter=prompts,
                    sampling=sampling,
                    label=label,
                    allowed=allowed_tokens(model, tokenizer, ends),
                    ends=ends,
                    shape=shape,
                    stride=settings.checkpoint_tokens,
                    checkpoints=self.checkpoints,
                )
            )
            for label, sampling in samplings(settings, self.schema, noise).items()
        )
        return Predicted(written, keeps_unfinished=False)

    def made(self, artifact: Predicted) -> Made:
        """Return the demonstrations, without those that the filters remove."""
        settings = self.settings
        joint = settings.prompt.joint if self.schema.task == "span" else None
        return artifact.made(settings.filters, self.measure, joint, settings.rounding)

    def _prepare_model(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[Shape, Prompter]:
        """Return the shape of every pass and the prompts, after trying public prompts on the model."""
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
        return require_exact(model, heads, [], self._shape(model), self.settings.rounding or 0.0), prompts

    def _shape(self, model: PreTrainedModel) -> Shape:
        """Shape every forward pass: a prompt is padded to the least width of a short ladder that it fits in."""
        context = context_of(model)
        return Shape(min(self.settings.micro_batch, self.settings.prompts), min(_LEAST, context), context, 0)
