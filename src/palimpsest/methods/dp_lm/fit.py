"""`dp_lm`: a conditional language model fine-tuned with DP-SGD, on one loss or on two at once.

Its discriminator's fit shares the optimiser of a training and the records of its self-check.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from palimpsest.devices import exact_device
from palimpsest.methods.dp_lm import likelihood
from palimpsest.methods.dp_lm.model import (
    ConditionalLm,
    DpLmArtifact,
    add_adapters,
    add_soft_prompt,
    freeze,
    merge_adapters,
    new_model,
    require_context,
)
from palimpsest.methods.dp_lm.plan import plan_counts, plan_language_model
from palimpsest.methods.dp_lm.serialise import UNLABELLED, Batch, Serialiser, serialiser
from palimpsest.methods.dp_lm.settings import DpLmTrain, DpSgd
from palimpsest.methods.shared.base import Plan
from palimpsest.methods.shared.shares import label_shares, whole_rho
from palimpsest.methods.shared.tables import fit_joint, table_of
from palimpsest.models.attention import is_mixture
from palimpsest.privacy.planned import BATCH_BITS
from palimpsest.privacy.query import View
from palimpsest.records.record import Probe
from palimpsest.records.schema import PublicSchema
from palimpsest.training.bookkeeping import BookkeepingEngine
from palimpsest.training.dpsgd import TrainQuery
from palimpsest.training.integers import IntegerEngine
from palimpsest.training.optimiser import Optimiser

_MOST_LOGITS = 1 << 26  # of a head that trains, there at once: 256 MiB in float32
HEAD = "head."  # what the names of a discriminator's weights begin with
WEIGHT_DECAY = 0.0  # of AdamW
_PROBE = ("A text.", "A public text, somewhat longer than the first one.", "A long text. ")


@dataclass(frozen=True, eq=False)
class DpLm:
    """The language model of "Differentially Private Conditional Text Generation", alone or with its discriminator.

    With a discriminator's weight above 0 both learn at once (section 5.1.3, multitask); with 0 the model learns alone,
    as in the paper's baselines.

    Guarantee: `ask` asks at most two queries, DP-SGD behind a noisy label histogram or, where records have fields,
    behind noisy tables of labels and fields. Their composition meets the budget under privacy-loss distributions, for
    adding or removing one record, or one person with all their rows where the schema says so. A record's fields stand
    in its own prompt alone. With an infinite epsilon nothing is noised (gradients are still clipped): a reference that
    must never be released.

    Attributes:
        base_folder: the public language model, a Hugging Face folder.
        seed: initialises head, adapters and soft prompt; no private randomness comes from it.
        checkpoints: the folder from which a stopped training continues; None keeps nothing.
        tried: findings of the trials of engines: `assumptions` makes them, and `ask` need not again.
    """

    settings: DpLmTrain
    schema: PublicSchema
    plan: Plan
    base_folder: Path
    seed: int
    checkpoints: Path | None
    tried: dict[type, bool] = field(default_factory=dict, init=False)

    def ask(self, view: View) -> DpLmArtifact:
        """Ask what was planned, in order, and return the fitted model.

        Everything that can fail for public reasons is tried before a query is asked: the base model and its context
        here, the engine and the losses by `assumptions`, before anything is reserved.

        Raises:
            ModelError: the base model cannot be used with these settings.
        """
        train = self.settings
        query, tokenizer = self._training_query(float(self.plan.numbers["noise_multiplier"]))
        joint, shares = self._ask_counts(view)
        fitted = view.ask(query)
        merge_adapters(fitted)
        return DpLmArtifact(
            fitted.eval().requires_grad_(False).cpu(),
            tokenizer,
            shares,
            train.max_tokens,
            train.loss_on,
            train.prompt,
            self.schema.labels,
            fields=self.schema.fields,
            joint=joint,
        )

    def _ask_counts(self, view: View) -> tuple[np.ndarray | None, dict[str, float]]:
        """Ask for the tables of labels and fields, or for a histogram of labels; return the joint, and the shares."""
        schema = self.schema
        tables, histogram = plan_counts(self.settings, schema, whole_rho(self.plan.budget))
        if tables is None:
            return None, label_shares(view, self.settings, schema, histogram, UNLABELLED)
        joint = fit_joint(tables.shape, tables.tables, [np.array(own) for own in view.ask(tables)])
        if not schema.labels:
            return joint[None], {UNLABELLED: 1.0}
        if self.settings.label_counts == "prior":
            return joint, label_shares(view, self.settings, schema, None, UNLABELLED)
        return joint, dict(zip(schema.label_names, table_of(joint, (0,)).tolist(), strict=True))

    def assumptions(self) -> tuple[str, ...]:
        """Return the ids of `privacy.planned` that the training relies on; only public records decide.

        Raises:
            ModelError: the base model cannot be used with these settings.
            EngineError, DeviceNoiseError: see `TrainQuery.check`.
        """
        return list_assumptions(self._training_query(0.0)[0])

    def _training_query(self, noise: float) -> tuple[TrainQuery, PreTrainedTokenizerBase]:
        names, train = self.schema.label_names, self.settings
        model, tokenizer = self._new_model()
        schema = self.schema
        rows = serialiser(tokenizer, schema.labels, train.max_tokens, train.loss_on, train.prompt, schema.fields)
        cells = rows.tried_cells
        require_context(model, rows.longest_prompt + train.max_tokens + 1)  # 1: EOS
        here = exact_device()
        query = TrainQuery(
            plan=plan_language_model(train, self.schema, noise),
            optimiser=optimiser_of(train),
            model=model.to(here),
            encode=lambda records: rows.batch(records).to(here),
            losses=self._losses(_is_frozen(model.lm.get_output_embeddings())),  # type: ignore[arg-type]
            micro_batch=self._micro_batch(model, rows),
            widths=rows.widths,
            person=train.person,
            most_rows=self.schema.max_rows_per_unit,
            engine=engine_of(model),
            probe=probe(names, train.max_tokens, cells[-1]),
            shapes=shapes(names, train.max_tokens, cells),
            encode_probe=lambda records: replace(rows, entropy=bytes).batch(records).to(here),
            precision=train.precision,
            checkpoints=self.checkpoints,
            checkpoint_steps=train.checkpoint_steps,
            tried=self.tried,
        )
        return query, tokenizer

    def _new_model(self) -> tuple[ConditionalLm, PreTrainedTokenizerBase]:
        train, labels = self.settings, max(1, len(self.schema.label_names))
        half = (train.lora_rank or train.soft_prompt) and train.precision == "bf16"  # what trains is float32 always
        model, tokenizer = new_model(
            self.base_folder,
            labels,
            train.discriminator_width,
            self.seed,
            train.discriminator_reads,
            torch.bfloat16 if half else torch.float32,
        )
        freeze(model, train.freeze_first, train.freeze_last, train.freeze_embeddings)
        if train.lora_rank:
            add_adapters(model, train.lora_rank, self.seed)
        if train.soft_prompt:
            add_soft_prompt(model, train.soft_prompt, self.seed)
        model.head.requires_grad_(train.discriminator_weight > 0)
        return model, tokenizer

    def _micro_batch(self, model: ConditionalLm, rows: Serialiser) -> int:
        """Rows that go through the model at once: fewer where a head trains and its logits would fill the memory.

        A norm needs all logits of a row. So a row's are never apart, and public numbers say how many rows are together.
        """
        head = model.lm.get_output_embeddings()
        if _is_frozen(head):  # type: ignore[arg-type]
            return self.settings.micro_batch
        longest = rows.longest_prompt + self.settings.max_tokens + 1
        return max(1, min(self.settings.micro_batch, _MOST_LOGITS // (longest * len(model.embedding))))

    def _losses(self, frozen_head: bool) -> Callable[[ConditionalLm, Batch], tuple[torch.Tensor, ...]]:
        train = self.settings
        chosen = likelihood.separate_losses if train.clipping == "separate" else likelihood.joint_losses
        weight, step = train.discriminator_weight, train.prefix_step
        return partial(chosen, weight=weight, prefix_step=step, frozen_head=frozen_head)


def _is_frozen(layer: nn.Module) -> bool:
    return not any(parameter.requires_grad for parameter in layer.parameters())


def optimiser(settings: DpSgd) -> Optimiser:
    """The optimiser that the settings describe."""
    return Optimiser(
        learning_rate=settings.learning_rate,
        final_learning_rate_share=1.0 if settings.schedule == "constant" else 0.0,
        betas=settings.betas,
        eps=settings.adam_eps,
        weight_decay=WEIGHT_DECAY,
        warmup_share=settings.warmup,
        noise_correction=settings.noise_correction,
    )


def optimiser_of(settings: DpLmTrain) -> Optimiser:
    """Return a language model's optimiser; its discriminator may have its own learning rate (paper, Algorithm 1).

    Where the losses are clipped separately, that rate applies to all steps of the second loss; else to the head's
    weights.
    """
    wanted, one = settings.discriminator_learning_rate, optimiser(settings)
    if wanted is None:
        return one
    return replace(one, share=partial(_share, wanted / settings.learning_rate, settings.clipping == "separate"))


def _share(own: float, separate: bool, which: int, name: str) -> float:
    return own if (which == 1 if separate else name.startswith(HEAD)) else 1.0


def engine_of(model: nn.Module) -> type[BookkeepingEngine]:
    """Return the engine for a model: float64 sums for a mixture of experts, where an example's bits hang on others'."""
    return BookkeepingEngine if is_mixture(model) else IntegerEngine


def list_assumptions(query: TrainQuery) -> tuple[str, ...]:
    """Return the ids of `privacy.planned` that a training relies on; no private row decides.

    Raises:
        EngineError, DeviceNoiseError: see `TrainQuery.check`.
    """
    query.check()
    return (BATCH_BITS,) if is_mixture(query.model) or not query.batch_bits() else ()


def shapes(names: Sequence[str], max_tokens: int, cells: Sequence[str] = ("",)) -> tuple[Probe, ...]:
    """Return public records of every length with every label, so that there are two of every padded width.

    Two of each length have the same words in another order, so equally many tokens. The longest are cut to
    `max_tokens`. Each comes with each of some `cells`, where records have fields.
    """
    endings, labels = ("", "I a ", "a I "), names or (None,)
    lengths = [(many, own) for own in cells for many in range(max_tokens + 2)]
    return tuple(Probe("a " * many + end, label, own) for many, own in lengths for label in labels for end in endings)


def probe(names: Sequence[str], max_tokens: int, cells: str = "") -> tuple[Probe, ...]:
    """Three public records of different lengths, the last one as long as a row can be."""
    short, middle, repeated = _PROBE
    labels = (names[0], names[-1], names[0]) if names else (None, None, None)
    texts = (short, middle, repeated * max_tokens)
    return tuple(Probe(text, label, cells) for text, label in zip(texts, labels, strict=True))
