"""A discriminator that is a whole language model: a copy of the fitted one, tuned with DP-SGD to tell labels apart."""

import copy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from palimpsest.devices import exact_device
from palimpsest.methods.dp_lm.fitting import list_assumptions, optimiser, probe, shapes
from palimpsest.methods.dp_lm.losses import WHOLE, discriminator_loss
from palimpsest.methods.dp_lm.model import (
    LAST,
    ConditionalLm,
    DpLmArtifact,
    HeadShape,
    add_adapters,
    freeze,
    merge_adapters,
    new_head,
    require_context,
    state_width,
    with_head,
)
from palimpsest.methods.dp_lm.plan import DISCRIMINATOR, training_plan
from palimpsest.methods.dp_lm.serialise import Batch
from palimpsest.methods.dp_lm.settings import DiscriminatorTrain
from palimpsest.methods.shared.base import Plan
from palimpsest.privacy.query import View
from palimpsest.records.schema import PublicSchema
from palimpsest.training.dpsgd import TrainQuery


@dataclass(frozen=True, eq=False)
class TunedDiscriminator:
    """Tunes a copy of the fitted language model, and a head on the last token's state, to the labels of private rows.

    It reads whole texts and judges them; it steers no token. Its embeddings stay as the language model has them. With
    `settings.lora_rank` adapters train in place of the other weights.

    Guarantee: `ask` asks one query, DP-SGD on the copy and its head, calibrated so that its composition with what the
    fitted model already cost meets the budget under privacy-loss distributions, for adding or removing one record, or
    one person with all their rows where the schema says so. The weights that it begins with are that model's, so the
    composition is adaptive. With an infinite epsilon nothing is noised: a reference that must never be released.

    Source: "Differentially Private Conditional Text Generation", section 5.1.1, where it begins with public weights and
    is trained without noise.

    Attributes:
        fitted: the model whose texts it judges and whose weights it begins with; it is left unchanged.
        seed: initialises head and adapters; no private randomness comes from it.
        checkpoints: the folder from which a stopped training continues; None keeps nothing.
    """

    settings: DiscriminatorTrain
    schema: PublicSchema
    plan: Plan
    fitted: DpLmArtifact
    seed: int
    checkpoints: Path | None

    def ask(self, view: View) -> DpLmArtifact:
        """Ask what was planned and return the model with the copy that judges what it writes.

        Raises:
            ModelError: before anything is spent: the model cannot read texts of this length.
        """
        judge = view.ask(self._training_query(float(self.plan.numbers["noise_multiplier"])))
        merge_adapters(judge)
        return replace(self.fitted, judge=judge.eval().requires_grad_(False).cpu())

    def assumptions(self) -> tuple[str, ...]:
        """Return the ids of `privacy.assumptions` that the training relies on; only public records decide.

        Raises:
            ModelError: the model cannot read texts of this length.
            EngineError, DeviceNoiseError: see `TrainQuery.check`.
        """
        return list_assumptions(self._training_query(0.0))

    @cached_property
    def _tried(self) -> dict[type, bool]:
        """Findings of the trials of engines: `assumptions` makes them, and `ask` need not again."""
        return {}

    def _training_query(self, noise: float) -> TrainQuery:
        names, train, here = self.schema.label_names, self.settings, exact_device()
        rows = replace(self.fitted.serialiser(), max_tokens=train.max_tokens, loss_on="text", entropy=bytes)
        model = self._new_model()
        require_context(model, rows.longest_prompt + train.max_tokens + 1)  # 1: EOS
        return TrainQuery(
            plan=training_plan(train, self.schema, noise),
            optimiser=optimiser(train),
            model=model.to(here),
            encode=lambda records: rows.batch(records).to(here),
            losses=_losses,  # type: ignore[arg-type]
            micro_batch=train.micro_batch,
            widths=rows.widths,
            person=train.person,
            most_rows=self.schema.max_rows_per_unit,
            name=DISCRIMINATOR,
            probe=probe(names, train.max_tokens),
            shapes=shapes(names, train.max_tokens),
            checkpoints=self.checkpoints,
            checkpoint_steps=train.checkpoint_steps,
            tried=self._tried,
        )

    def _new_model(self) -> ConditionalLm:
        """Return the copy. Weights that its loss does not read, like the LM head, stay: only noise would move them."""
        below, train = self.fitted.model, self.settings
        shape = HeadShape(LAST, state_width(below.lm, LAST), train.width, len(self.schema.label_names))
        model = copy.deepcopy(with_head(below, new_head(shape, self.seed))).requires_grad_(True)
        freeze(model, 0, 0, True)
        if train.lora_rank:
            add_adapters(model, train.lora_rank, self.seed)
        return model


def _losses(model: ConditionalLm, batch: Batch) -> tuple[torch.Tensor]:
    return (discriminator_loss(model, batch, WHOLE),)
