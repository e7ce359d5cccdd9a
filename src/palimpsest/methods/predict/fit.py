"""`predict`: synthetic text from an untouched language model, which reads private records and never learns them."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from dp_accounting import DpEvent
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from palimpsest.errors import ModelError, ParamsError
from palimpsest.methods.predict.settings import PredictSettings
from palimpsest.methods.select.fit import ClassSums
from palimpsest.methods.shared.base import Budget, Plan
from palimpsest.methods.shared.shares import divided, label_shares, planned_histogram, whole_rho
from palimpsest.models.lm import load_lm
from palimpsest.models.tokens import specials
from palimpsest.prediction.cells import Cells, part
from palimpsest.prediction.contexts import Shape, context_of, require_exact
from palimpsest.prediction.decoding import Rules
from palimpsest.prediction.mechanism import (
    EXACT,
    Clipping,
    DifferenceClipping,
    FixedClipping,
    Rounding,
    SparseVector,
    token_rho,
)
from palimpsest.prediction.prompts import UNLABELLED, Prompter, parsed, prompter
from palimpsest.prediction.query import WriteWave, wave_event
from palimpsest.privacy.means import ClassMeans, Encode
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.queries import LabelHistogram
from palimpsest.privacy.query import View
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema
from palimpsest.training.team import own_device

_UNCLIPPED = 1e4  # of a reference run: no difference of logits is as large
_MOST = 10  # tokens of a batch for each private one, unless params.yaml says otherwise
_LITTLE = 0.1  # nats by which all contexts together can then move a draw at most
_MARGIN = 1.0 - 1e-9  # what the last steps in float64, from exact sums to scores, may add up to
_SPOILT = 0.5  # share of a token's rho that rounding may take

# Settings of a model's own that would give private tokens probability 0, or none that the accounting knows.
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


@dataclass(frozen=True)
class Predicted:
    """What the batches wrote.

    Attributes:
        batches: of each: its label, `examples`, the unfinished `rest`, tokens `drawn` and `private` ones among them.
        keeps_unfinished: whether the examples under way when the budget ended are rows, too.
        sums: noisy sum of each label's embeddings, where they were asked for.
    """

    batches: tuple[Mapping[str, Any], ...]
    keeps_unfinished: bool
    sums: ClassSums | None = None

    @property
    def drawn(self) -> int:
        """Tokens in all."""
        return sum(batch["drawn"] for batch in self.batches)

    @property
    def private_share(self) -> float:
        """Share of all tokens that cost budget."""
        return sum(batch["private"] for batch in self.batches) / max(1, self.drawn)

    def records(self, joint: str | None = None) -> Iterator[Record]:
        """The examples, batch by batch, without those that have no word.

        Args:
            joint: what stands between a free label and its text; examples without it are left out.
        """
        for batch in self.batches:
            texts = [*batch["examples"], *([batch["rest"]] if self.keeps_unfinished else [])]
            found = (_record(text, batch["label"], joint) for text in texts if text)
            yield from (record for record in found if record is not None)


def _record(text: str, label: str, joint: str | None) -> Record | None:
    if joint is None:
        return Record(text, label or None)
    pair = parsed(text, joint)
    return None if pair is None else Record(*pair)


@dataclass(frozen=True)
class Spending:
    """What each batch may spend: r private tokens (`tokens`, 0 where none is affordable) at the clip c or C."""

    tokens: int
    clip: float


def no_encoder(texts: Sequence[str]) -> np.ndarray:
    """Stands in where only a plan is made."""
    raise ModelError("There is no sentence encoder.", "Hand one to the generator.")


class Predict:
    """Private prediction (Amin et al. 2024, Algorithm 1), with difference clipping as its modern form.

    Guarantee: `fit` asks for a noisy label histogram, where the shares of the labels are not public, for noisy class
    means, where they are to choose, and for waves of batches that hold different units of privacy (records, or persons
    with all their rows). Their composition, sequential with the first two and parallel over the waves, is zCDP with the
    budget's rho (tight conversion; Canonne, Kamath, Steinke 2020, Corollary 13), for adding or removing one unit. With
    an infinite epsilon nothing is clipped: a reference that must never be released.

    Attributes:
        settings: how to write.
        schema: what is public about the data set.
        folder: the public language model, a Hugging Face folder.
        key: 32 secret bytes that spread records, or persons, over batches.
        checkpoints: where a stopped run leaves what it wrote; None keeps nothing.
        encoder: the public sentence encoder behind the class means, and how long its vectors are; a plan needs neither.
    """

    def __init__(
        self,
        settings: PredictSettings,
        schema: PublicSchema,
        folder: Path,
        key: bytes = b"",
        checkpoints: Path | None = None,
        encoder: tuple[Encode, int] = (no_encoder, 1),
    ) -> None:
        self.settings, self.schema, self.folder = settings, schema, folder
        self.key, self.checkpoints = key, checkpoints
        self.encode, self.dimensions = encoder

    def plan(self, schema: PublicSchema, budget: Budget) -> Plan:
        """What a fit will ask and cost, and whether that can work; no row is read.

        Raises:
            ParamsError: the settings do not fit the public schema.
        """
        require_fit(self.settings, schema)
        counts, rho, rounding = self._histogram(schema, budget), self._rho(schema, budget), self._rounding(schema)
        spending = spend(self.settings, rho, rounding)
        numbers = self._numbers(schema, spending, counts)
        if reason := refusal(self.settings, rho, rounding):
            return Plan("predict", budget, (), numbers, False, (reason,))
        event = self._event(spending, math.isinf(rho), rounding)
        waves = [
            PlannedQuery(_name(number), event, spending.tokens, part(*wave))
            for number, wave in enumerate(self._waves(schema))
        ]
        asked = [query for query in (counts, self._means(schema, budget)) if query is not None]
        before = [PlannedQuery(query.name, query.event()) for query in asked]
        return Plan("predict", budget, (*before, *waves), numbers, notes=tuple(notes(self.settings, spending)))

    def fit(self, view: View, plan: Plan) -> Predicted:
        """Ask what was planned, in order, and return what was written.

        Everything that can fail for public reasons (the model, its context, the prompts) is tried first.

        Raises:
            ParamsError: the plan is not feasible.
            ModelError: the model cannot be used with these settings.
        """
        if not plan.feasible:
            raise ParamsError("The plan of method predict cannot work.", " ".join(plan.notes))
        model, tokenizer = load_lm(self.folder)
        model.to(own_device())  # type: ignore[arg-type]
        shape, prompts = prepared(model, tokenizer, self.settings, self.schema, self._rows(self.schema))
        counts, rho = self._histogram(self.schema, plan.budget), self._rho(self.schema, plan.budget)
        cells = self._cells(label_shares(view, self.settings, self.schema, counts, UNLABELLED))
        rounding, reference = self._rounding(self.schema), math.isinf(rho)
        spending = spend(self.settings, rho, rounding)
        rules = self._rules(model, tokenizer, spending, reference)
        means = self._means(self.schema, plan.budget)
        sums = None if means is None else ClassSums(self.schema.label_names, np.array(view.ask(means)))
        batches: list[Mapping[str, Any]] = []
        for number, (first, last) in enumerate(self._waves(self.schema)):
            batches += view.ask(
                WriteWave(
                    name=_name(number),
                    model=model,
                    prompter=prompts,
                    rules=rules,
                    cells=cells,
                    first=first,
                    last=last,
                    shape=shape,
                    stride=self.settings.checkpoint_tokens,
                    reference=reference,
                    checkpoints=self.checkpoints,
                    rounding=rounding,
                )
            )
        return Predicted(tuple(batches), self.settings.keep_unfinished, sums)

    def _histogram(self, schema: PublicSchema, budget: Budget) -> LabelHistogram | None:
        return planned_histogram(self.settings, schema, whole_rho(budget))

    def _rho(self, schema: PublicSchema, budget: Budget) -> float:
        """What is left of the budget for each batch."""
        counted = self._histogram(schema, budget) is not None
        taken = self.settings.histogram_share if counted else 0.0
        taken += self.settings.means.share if self.settings.means else 0.0
        return whole_rho(budget) * (1.0 - taken)

    def _means(self, schema: PublicSchema, budget: Budget) -> ClassMeans | None:
        """The query for the class means: its share of rho buys rho_m = 1 / (2 sigma^2)."""
        wanted = self.settings.means
        if wanted is None:
            return None
        rho = whole_rho(budget)
        sigma = 0.0 if math.isinf(rho) else math.sqrt(0.5 / (wanted.share * rho * _MARGIN))
        return ClassMeans(schema.label_names, self.encode, self.dimensions, sigma)

    def _event(self, spending: Spending, reference: bool, rounding: Rounding) -> DpEvent:
        clipping, vector = mechanisms(self.settings, spending.clip)
        return wave_event(clipping, vector, spending.tokens, reference, rounding)

    def _rounding(self, schema: PublicSchema) -> Rounding:
        """What is charged for rounding: contexts of all batches of a wave are read together."""
        return Rounding(self.settings.rounding or 0.0, max(last - first for first, last in self._waves(schema)))

    def _contexts(self, schema: PublicSchema) -> int:
        """Most private contexts that a batch is expected to hold: a person may have several."""
        return self.settings.batch_size * (schema.max_rows_per_unit if schema.unit == "person" else 1)

    def _rows(self, schema: PublicSchema) -> int:
        """Contexts that one forward pass reads: no more than a wave is expected to hold."""
        return min(self.settings.micro_batch, self._rounding(schema).batches * self._contexts(schema))

    def _batches(self, schema: PublicSchema) -> tuple[int, int]:
        """Batches that records or persons are spread over, and those that are written from."""
        all_of_them = max(len(schema.label_names), 1, schema.n_units // self.settings.batch_size)
        return all_of_them, min(all_of_them, self.settings.batches or all_of_them)

    def _waves(self, schema: PublicSchema) -> list[tuple[int, int]]:
        """First batch and end of each wave."""
        _, used = self._batches(schema)
        size = max(1, self.settings.together // self._contexts(schema))
        return [(first, min(first + size, used)) for first in range(0, used, size)]

    def _cells(self, shares: Mapping[str, float]) -> Cells:
        counts, used = (at_least_one(total, shares) for total in self._batches(self.schema))
        return Cells(counts, {label: min(used[label], counts[label]) for label in counts}, self.key)

    def _rules(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, spending: Spending, reference: bool
    ) -> Rules:
        settings = self.settings
        clipping, vector = mechanisms(settings, _UNCLIPPED if reference else spending.clip)
        ends = ends_of(model, tokenizer, settings.prompt.ends)
        return Rules(
            clipping=clipping,
            vector=vector,
            public_temperature=settings.sparse_vector.temperature if settings.sparse_vector else 1.0,
            allowed=allowed_tokens(model, tokenizer, ends),
            ends=ends,
            tokens=spending.tokens,
            longest=settings.max_tokens,
            most=settings.most_tokens or _MOST * spending.tokens,
        )

    def _numbers(
        self, schema: PublicSchema, spending: Spending, counts: LabelHistogram | None
    ) -> dict[str, float | int | str]:
        settings = self.settings
        everywhere, used = self._batches(schema)
        contexts = used * (self._contexts(schema) + 1)
        numbers: dict[str, float | int | str] = {
            "clipping": settings.clipping,
            "clip": spending.clip,
            "tokens": spending.tokens,
            "batches": used,
            "batches_in_all": everywhere,
            "batch_size": settings.batch_size,
            "waves": len(self._waves(schema)),
            "expected_examples": used * spending.tokens // settings.typical_tokens,
            "forward_tokens": contexts * (settings.prompt.text_tokens + spending.tokens),
        }
        numbers |= {} if counts is None else {"histogram_sigma": counts.sigma}
        return numbers if settings.rounding is None else {**numbers, "rounding": settings.rounding}


def spend(settings: PredictSettings, rho: float, rounding: Rounding = EXACT) -> Spending:
    """The tokens that a clip leaves of a batch's rho, or the clip that a number of tokens leaves.

    rho = r [1/2 (c / (s tau))^2 + 2 / (s nu)^2], the second part with a sparse vector only; `token_rho` says what
    rounding adds.
    """
    if math.isinf(rho):
        return Spending(settings.tokens or settings.typical_tokens, _UNCLIPPED)
    clipping, vector = mechanisms(settings, settings.clip or 1.0)
    each, usable = token_rho(clipping, vector, rounding), rho * _MARGIN
    if settings.clip is not None:
        return Spending(int(usable / each), settings.clip)
    tokens = settings.tokens or 1
    left = usable / tokens - (each - clipping.rho_of(clipping.sensitivity + rounding.error))
    move = settings.temperature * math.sqrt(2.0 * max(left, 0.0)) - rounding.error
    return Spending(tokens, settings.batch_size * move) if move > 0.0 else Spending(0, 0.0)


def mechanisms(settings: PredictSettings, clip: float) -> tuple[Clipping, SparseVector | None]:
    """The token mechanism and the sparse vector of these settings, at a clip."""
    size, chosen = settings.batch_size, settings.sparse_vector
    vector = SparseVector(chosen.threshold, chosen.noise, size) if chosen else None
    if settings.clipping == "fixed":
        return FixedClipping(clip, settings.temperature, size), vector
    return DifferenceClipping(clip, settings.temperature, size, settings.top_k), vector


def break_even(settings: PredictSettings, clip: float) -> float:
    """The share of private tokens below which a sparse vector pays.

    With it r falls to rho / (rho_token + rho_round), and each private token brings 1 / share tokens along.
    """
    clipping, vector = mechanisms(settings, clip)
    return clipping.rho / (clipping.rho + vector.rho) if vector else 0.0


def notes(settings: PredictSettings, spending: Spending) -> Iterator[str]:
    """What the user should know before anything is spent."""
    if spending.tokens < settings.typical_tokens:
        yield (
            f"each batch may draw {spending.tokens} private tokens, fewer than a typical example has "
            f"({settings.typical_tokens}): raise batch_size, or lower the clip"
        )
    if settings.sparse_vector:
        share = break_even(settings, spending.clip)
        yield (
            f"the sparse vector pays only while fewer than {share:.1%} of the tokens are private; free text is far "
            "above that, structured text may be below: compare with sparse_vector null"
        )
    clip, reach = spending.clip, spending.clip / settings.temperature
    if settings.clipping == "difference" and reach < _LITTLE:
        yield (
            f"clip {clip:.3g} moves a draw by at most {reach:.2g} nats: the text is nearly what the public prompt "
            "gives; raise batch_size or epsilon, or lower tokens"
        )


def refusal(settings: PredictSettings, rho: float, rounding: Rounding) -> str | None:
    """Why the plan cannot work, and what to do instead; None where it can."""
    if not spend(settings, rho).tokens:
        return too_little(settings, rho)
    spending = spend(settings, rho, rounding)
    if math.isinf(rho) or (spending.tokens and rounding_share(settings, spending, rounding) <= _SPOILT):
        return None
    return (
        f"infeasible: rounding of {rounding.error:.3g} nats, charged for {rounding.batches} batches together, takes "
        f"more than {_SPOILT:.0%} of a batch's budget: lower together, or use a device that keeps a context's bits and "
        "set rounding to null"
    )


def rounding_share(settings: PredictSettings, spending: Spending, rounding: Rounding) -> float:
    """The share of a token's rho that rounding takes."""
    clipping, vector = mechanisms(settings, spending.clip)
    return 1.0 - token_rho(clipping, vector) / token_rho(clipping, vector, rounding)


def too_little(settings: PredictSettings, rho: float) -> str:
    """Why not one token is affordable, and which batch size would pay for a typical example."""
    clipping, vector = mechanisms(settings, settings.clip or settings.temperature)
    token = clipping.rho + (vector.rho if vector else 0.0)
    if settings.clip is None:
        token = (vector.rho if vector else 0.0) * (settings.tokens or 1)
    wanted = settings.typical_tokens if settings.clip is not None else 1
    size = math.ceil(settings.batch_size * math.sqrt(token * wanted / rho))
    return (
        f"infeasible: a batch has rho {rho:.3g}, and what it must pay first costs {token:.3g} at batch_size "
        f"{settings.batch_size}: raise batch_size above {size}, raise epsilon, or lower the clip"
    )


def prepared(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    settings: PredictSettings,
    schema: PublicSchema,
    rows: int,
) -> tuple[Shape, Prompter]:
    """The shape of forward passes of so many rows, and the prompts, after public ones were tried on the model.

    All prompts are padded to the longest that there may be.

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
    shape = Shape(rows, prompts.longest, prompts.longest, settings.max_tokens)
    require_exact(model, trial, [specials(tokenizer).sep] * 2, shape, settings.rounding or 0.0)
    for found in ignored(model):
        warnings.warn(f"the model's own generation setting {found} is ignored", stacklevel=2)
    return shape, prompts


def ignored(model: PreTrainedModel) -> Iterator[str]:
    """Settings of the model's own that would forbid tokens by their private probability; none of them is used."""
    config = model.generation_config
    for name, harmless in _IGNORED.items():
        value = getattr(config, name, None)
        if value not in harmless:
            yield f"{name}={value!r}"


def ends_of(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, ends: str) -> frozenset[int]:
    """Tokens that end an example: the model's own ends of text, and those with a new line where a line is an example.

    To end there is post-processing of a drawn token: every token keeps its probability.
    """
    own = getattr(model.generation_config, "eos_token_id", None)
    found = {specials(tokenizer).eos, *(own if isinstance(own, (list, tuple)) else [own] if own is not None else [])}
    if ends == "line":
        spelt = tokenizer.batch_decode([[token] for token in range(len(tokenizer))])
        found |= {token for token, words in enumerate(spelt) if "\n" in words}
    return frozenset(found)


def allowed_tokens(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, ends: Sequence[int] | frozenset[int]
) -> torch.Tensor:
    """Tokens that may be drawn, bool (logits,): all of the tokenizer's but control tokens that are no ends."""
    allowed = torch.zeros(model.get_output_embeddings().weight.shape[0], dtype=torch.bool)
    allowed[: len(tokenizer)] = True
    allowed[sorted(specials(tokenizer).control - frozenset(ends))] = False
    return allowed.to(model.device)


def at_least_one(total: int, shares: Mapping[str, float]) -> dict[str, int]:
    """`total` split by shares after each label got one."""
    rest = divided(max(0, total - len(shares)), shares)
    return {label: 1 + count for label, count in rest.items()}


def require_fit(settings: PredictSettings, schema: PublicSchema) -> None:
    """Raise ParamsError where settings and schema do not fit together."""
    if settings.prior is not None and set(settings.prior) != set(schema.label_names):
        raise ParamsError("The prior does not name the public labels.", "Give one share per label, or null.")
    if settings.means is not None and len(schema.label_names) < 2:
        raise ParamsError("predict.means needs two labels or more.", "Set it to null.")
    if settings.batches is not None and settings.batches < len(schema.label_names):
        raise ParamsError(
            f"predict.batches is {settings.batches}, fewer than the {len(schema.label_names)} labels.",
            "Give each label one batch or more, or null for all.",
        )


def _name(number: int) -> str:
    return f"predict wave {number}"
