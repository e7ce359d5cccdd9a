"""`predict`: synthetic text from a language model that reads private records in its prompts and is not trained."""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from palimpsest.devices import dtype_of, exact_device
from palimpsest.errors import ModelError, ParamsError
from palimpsest.methods.predict.declaration import PredictSettings
from palimpsest.methods.predict.plan import (
    UNCLIPPED,
    Spending,
    batches,
    contexts_of,
    costs_of,
    divide_at_least_one,
    mechanisms,
    spend,
    wave_name,
    waves,
)
from palimpsest.methods.shared.base import Made, Plan
from palimpsest.methods.shared.means import Candidates, choose, class_sums
from palimpsest.methods.shared.method import Encoders
from palimpsest.methods.shared.postprocess import Filter
from palimpsest.methods.shared.predicted import Predicted, allowed_tokens, ends_of
from palimpsest.methods.shared.shares import divide_total, label_shares
from palimpsest.models.grammar import Grammar
from palimpsest.models.lm import load_lm
from palimpsest.prediction.cells import Cells
from palimpsest.prediction.contexts import Shape, context_of, find_agreeing_workers, require_exact
from palimpsest.prediction.decoding import Rules
from palimpsest.prediction.prompts import Prompter, prompter
from palimpsest.prediction.query import WriteWave
from palimpsest.prediction.sampling import UNLABELLED
from palimpsest.privacy.query import View
from palimpsest.records.schema import PublicSchema
from palimpsest.shards import Posts, uses_cluster

_ROWS = 32  # contexts that a pass reads on a processor, at most
_TRIED = 16  # tokens that a trial goes on with
_LEAST = 32  # tokens that a prompt is padded to there, at least; or 64, and so on
_MOST = 10  # tokens of a batch for each private one, unless params.yaml says otherwise

# A model's own settings that would give private tokens probability 0, or one that the accounting does not cover.
_IGNORED = {
    "top_p": (None, 1.0),
    "top_k": (None, 0, 50),  # 50 is what the library writes for everyone
    "min_p": (None, 0.0),
    "typical_p": (None, 1.0),
    "repetition_penalty": (None, 1.0),
    "no_repeat_ngram_size": (None, 0),
    "temperature": (None, 1.0),
    "bad_words_ids": (None,),
}


@dataclass(frozen=True, eq=False)
class Predict:
    """Private prediction (Amin et al. 2024, Algorithm 1), with difference clipping as its modern form.

    Guarantee: `ask` asks for a noisy label histogram, where the shares of the labels are not public, for noisy class
    means, where they are to choose, and for waves of batches that hold different units of privacy (records, or persons
    with all their rows). Their composition, sequential with the first two and parallel over the waves, is zCDP with the
    budget's rho (tight conversion; Canonne, Kamath, Steinke 2020, Corollary 13), for adding or removing one unit. With
    an infinite epsilon nothing is clipped: a reference that must never be released.

    Attributes:
        folder: the public language model, a Hugging Face folder.
        key: 32 secret bytes that spread records, or persons, over batches.
        checkpoints: where a stopped run leaves what it wrote; None keeps nothing.
        measure: makes the perplexity filter.
        encoders: the public sentence encoder behind the class means; None where the settings ask for none.

    Raises:
        ParamsError: the plan is not feasible.
        ValueError: there is an encoder and no class means, or the other way round.
    """

    settings: PredictSettings
    schema: PublicSchema
    plan: Plan
    folder: Path
    key: bytes
    checkpoints: Path | None
    measure: Callable[[], Filter]
    encoders: Encoders | None

    def __post_init__(self) -> None:
        if not self.plan.feasible:
            raise ParamsError("The plan of method predict cannot work.", " ".join(self.plan.notes))
        if (self.settings.class_means is None) != (self.encoders is None):
            raise ValueError("class means and an encoder go together")

    def ask(self, view: View) -> Predicted:
        """Ask what was planned, in order, and return what was written.

        Everything that can fail for public reasons (the model, its context, the prompts) is tried first.

        Raises:
            ModelError: the model cannot be used with these settings.
        """
        settings, schema = self.settings, self.schema
        model, tokenizer = load_lm(self.folder)
        model.to(exact_device())  # type: ignore[arg-type]
        costs = costs_of(settings, schema, self.plan.budget)
        rows = min(settings.micro_batch, costs.rounding.batches * contexts_of(settings, schema))
        shape, prompts, workers = _prepare(model, tokenizer, settings, schema, rows)
        cells = self._cells(label_shares(view, settings, schema, costs.histogram, UNLABELLED))
        reference = math.isinf(costs.rho)
        rules = self._rules(model, tokenizer, spend(settings, costs.rho, costs.rounding), reference)
        sums = None
        if self.encoders is not None and costs.means is not None:
            encode, dimension = self.encoders.rows, self.encoders.dimension
            named = self.encoders.others(list(schema.labels.values()))
            sums = class_sums(view, schema, encode, dimension, costs.means, named)
        written: list[Mapping[str, Any]] = []
        for number, (first, last) in enumerate(waves(settings, schema)):
            written += view.ask(
                WriteWave(
                    name=wave_name(number),
                    model=model,
                    prompter=prompts,
                    rules=rules,
                    cells=cells,
                    first=first,
                    last=last,
                    shape=shape,
                    stride=settings.checkpoint_tokens,
                    reference=reference,
                    checkpoints=self.checkpoints,
                    rounding=costs.rounding,
                    posts=workers,
                )
            )
        return Predicted(tuple(written), settings.keep_unfinished, sums)

    def made(self, artifact: Predicted) -> Made:
        """Return the written texts that the filters keep; where class means are asked for, only those that they choose.

        There are fewer rows than wanted where the texts in a label's domain run out.
        """
        settings, wanted = self.settings, self.settings.class_means
        joint = settings.prompt.joint if self.schema.task == "span" else None
        made = artifact.made(settings.filters, self.measure, joint, settings.rounding, self.schema.json_schema)
        if artifact.sums is None or wanted is None or self.encoders is None:
            return made
        rows = list(made.rows)
        texts = [row.text for row in rows]
        shares = {label: count / len(rows) for label, count in Counter(row.label or "" for row in rows).items()}
        counts = divide_total(int(wanted.keep * len(rows)), shares)
        chosen = choose(Candidates(texts, self.encoders.others(texts)), artifact.sums, counts, wanted.domain)
        return replace(made, rows=chosen)

    def _cells(self, shares: Mapping[str, float]) -> Cells:
        counts, used = (divide_at_least_one(total, shares) for total in batches(self.settings, self.schema))
        return Cells(counts, {label: min(used[label], counts[label]) for label in counts}, self.key)

    def _rules(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, spending: Spending, reference: bool
    ) -> Rules:
        settings = self.settings
        clipping, vector = mechanisms(settings, UNCLIPPED if reference else spending.clip)
        ends = ends_of(model, tokenizer, settings.prompt.ends)
        allowed, wanted = allowed_tokens(model, tokenizer, ends), self.schema.json_schema
        return Rules(
            clipping=clipping,
            vector=vector,
            public_temperature=settings.sparse_vector.temperature if settings.sparse_vector else 1.0,
            allowed=allowed,
            ends=ends,
            tokens=spending.tokens,
            longest=settings.max_tokens,
            most=settings.most_tokens or _MOST * spending.tokens,
            grammar=None if wanted is None else Grammar(tokenizer, wanted, len(allowed)),
        )


def _prepare(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    settings: PredictSettings,
    schema: PublicSchema,
    rows: int,
) -> tuple[Shape, Prompter, Posts | None]:
    """The shape of forward passes of at most so many rows, the prompts, and the workers that read private ones.

    Public prompts have been tried on the model, and it computes in `settings.precision` from then on.

    Raises:
        ModelError: the model's context is too short, it does not read contexts side by side as one by one, or they move
            each other's logits by more than the plan charges.
    """
    prompt = settings.prompt
    prompts = prompter(
        tokenizer,
        prompt.private,
        prompt.public,
        schema.labels,
        chat=prompt.chat,
        text_tokens=prompt.text_tokens,
        joint=prompt.joint if schema.task == "span" else None,
    )
    need, context = prompts.longest + settings.max_tokens, context_of(model)
    if need > context:
        raise ModelError(
            f"A prompt and an example need up to {need} positions; the model has {context}.",
            "Lower prompt.text_tokens or max_tokens, shorten the prompt, or use a model with a longer context.",
        )
    trial = [label_words for label in prompts.public for label_words in prompts.contexts(label, ["", "a b c"])]
    trial = [*trial[:6], list(next(iter(prompts.public.values())))]
    shape = shape_of(rows, prompts.longest, settings.max_tokens, model.device.type == "cpu")
    more = list(islice(cycle(trial[-1]), min(_TRIED, settings.max_tokens)))
    if uses_cluster():
        torch.set_num_threads(1)  # as workers have
    shape = require_exact(model, trial, more, shape, settings.rounding or 0.0, dtype_of(settings.precision))
    workers = find_agreeing_workers(model, trial, more, shape)
    for setting in _list_ignored(model):
        warnings.warn(f"the model's own generation setting {setting} is ignored", stacklevel=2)
    return shape, prompts, workers


def shape_of(rows: int, longest: int, room: int, processor: bool) -> Shape:
    """Return the shape of forward passes: on a CPU some rows at a time, padded little; elsewhere always the same."""
    if processor:
        return Shape(min(rows, _ROWS), min(longest, _LEAST), longest, room)
    return Shape(rows, longest, longest, room)


def _list_ignored(model: PreTrainedModel) -> Iterator[str]:
    """Yield the model's own settings that would forbid tokens by their private probability; none of them is used."""
    config = model.generation_config
    for name, harmless in _IGNORED.items():
        value = getattr(config, name, None)
        if value not in harmless:
            yield f"{name}={value!r}"
