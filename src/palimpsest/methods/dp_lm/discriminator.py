"""A separate discriminator, trained with DP-SGD after the language model is fitted: a head, or a whole model.

The head reads fixed features. Baselines 1 and 2 of "Differentially Private Conditional Text Generation" have one. As
printed, the first is trained without noise; everything it filters is then not private. Here its training is charged
like any other. The whole model is a copy of the fitted one, tuned with DP-SGD to tell labels apart.
"""

import copy
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import torch
from torch import nn
from torch.nn import functional

from palimpsest.devices import exact_device
from palimpsest.errors import ModelError
from palimpsest.methods.dp_lm.fit import engine_of, list_assumptions, optimiser, probe, shapes
from palimpsest.methods.dp_lm.likelihood import (
    WHOLE,
    Encode,
    discriminator_loss,
    encoder_features,
    prefix_weights,
    weighted_loss,
)
from palimpsest.methods.dp_lm.model import (
    ENCODER,
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
    with_reads,
)
from palimpsest.methods.dp_lm.plan import DISCRIMINATOR, training_plan
from palimpsest.methods.dp_lm.serialise import Batch, Serialisable, Serialiser
from palimpsest.methods.dp_lm.settings import DiscriminatorTrain
from palimpsest.methods.shared.base import Plan
from palimpsest.privacy.query import View
from palimpsest.progress import track
from palimpsest.records.record import Record
from palimpsest.records.schema import PublicSchema
from palimpsest.training.batches import bucket
from palimpsest.training.dpsgd import TrainQuery

_EXAMPLE = "A text."
_MEMORY = 1 << 31  # bytes of features that are kept rather than computed again


@dataclass(frozen=True, eq=False)
class Discriminator:
    """Fits a head to the labels of private rows, on the states of a fitted model or on a public encoder's embeddings.

    Guarantee: `ask` asks one query, DP-SGD on the head's weights, calibrated so that its composition with what the
    fitted model already cost meets the budget under privacy-loss distributions, for adding or removing one
    record, or one person with all their rows where the schema says so. The features are a function of one record, a
    private model and public ones, to the last bit: reading them is part of the query. With an infinite epsilon nothing
    is noised: a reference that must never be released.

    Attributes:
        fitted: the model whose texts it judges; it is left unchanged.
        seed: initialises the head; no private randomness comes from it.
        encode: the public sentence encoder, which reads each text by itself, however many it is given; needed where
            `settings.reads` is "encoder".
        checkpoints: the folder from which a stopped training continues; None keeps nothing.
        fresh: the same encoder without a memory, for the trial on public records; None: `encode`.
        tried: findings of the trials of engines: `assumptions` makes them, and `ask` need not again.

    Raises:
        ModelError: the encoder is missing.
    """

    settings: DiscriminatorTrain
    schema: PublicSchema
    plan: Plan
    fitted: DpLmArtifact
    seed: int
    encode: Encode | None
    checkpoints: Path | None
    fresh: Encode | None = None
    tried: dict[type, bool] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if (self.settings.reads == ENCODER) != (self.encode is not None):
            raise ModelError(
                "The discriminator reads a sentence encoder, or none.", "Give the public encoder, or none."
            )

    def ask(self, view: View) -> DpLmArtifact:
        """Ask what was planned and return the model with its new head.

        Raises:
            ModelError: before anything is spent: the model cannot read texts of this length.
        """
        model = self.fitted.model.to(exact_device())
        head = view.ask(self._training_query(model, float(self.plan.numbers["noise_multiplier"]), self.encode))
        return replace(self.fitted, model=with_head(model, head.eval().requires_grad_(False)).cpu())

    def assumptions(self) -> tuple[str, ...]:
        """Return the ids of `privacy.planned` that the training relies on; only public records decide.

        Raises:
            ModelError: the model cannot read texts of this length.
            EngineError, DeviceNoiseError: see `TrainQuery.check`.
        """
        return list_assumptions(self._training_query(self.fitted.model.to(exact_device()), 0.0, self._trial))

    @property
    def _trial(self) -> Encode | None:
        """Return the encoder for the trial on public records: a memory would answer in place of the machine."""
        return self.fresh or self.encode

    def _training_query(self, model: ConditionalLm, noise: float, encode: Encode | None) -> TrainQuery:
        names, train = self.schema.label_names, self.settings
        rows = replace(self.fitted.serialiser(), max_tokens=train.max_tokens, loss_on="text")
        reader, probing = (self._reader(model, rows, one) for one in (encode, self._trial))
        features = _Features(reader, names, shown=encode is None)  # an encoder shows by itself how far it is
        return TrainQuery(
            plan=training_plan(train, self.schema, noise),
            optimiser=optimiser(train),
            model=new_head(self._shape(probing), self.seed).to(exact_device()),
            encode=features.batch,
            losses=_losses,
            micro_batch=train.micro_batch,
            widths=features.widths,
            person=train.person,
            most_rows=self.schema.max_rows_per_unit,
            name=DISCRIMINATOR,
            probe=probe(names, train.max_tokens),
            shapes=shapes(names, train.max_tokens),
            encode_probe=lambda records: _Features(probing, names).batch(records),  # nothing kept between them
            checkpoints=self.checkpoints,
            checkpoint_steps=train.checkpoint_steps,
            tried=self.tried,
        )

    def _reader(self, model: ConditionalLm, rows: Serialiser, encode: Encode | None) -> "_Reader":
        if encode is None:
            require_context(model, rows.longest_prompt + self.settings.max_tokens + 1)  # 1: EOS
            return _StateReader(with_reads(model, self.settings.reads), rows, self.settings.prefix_step)
        return _EncoderReader(encode)

    def _shape(self, reader: "_Reader") -> HeadShape:
        inputs = reader.read([_EXAMPLE])[0].features.shape[1]
        return HeadShape(self.settings.reads, inputs, self.settings.width, len(self.schema.label_names))


@dataclass(frozen=True)
class _Text:
    """A head's input for one text: features (prefixes, inputs) and the prefixes' weights (prefixes,)."""

    features: torch.Tensor
    weights: torch.Tensor


class _Reader(Protocol):
    def read(self, texts: Iterable[str]) -> list[_Text]:
        """Read each text by itself: its result is the same, to the last bit, whatever else is read with it."""


@dataclass(frozen=True)
class _StateReader:
    """Reads the states of prefixes, with one fixed token in the label's place.

    A token drawn anew for every text, as in the training of both losses at once, would have to be drawn anew for every
    step too. One that is kept with the text would be another one in another process, and the processes' shares depend
    on which other records are in the batch.
    """

    model: ConditionalLm
    rows: Serialiser
    prefix_step: int

    def read(self, texts: Iterable[str]) -> list[_Text]:
        return [self._read_one(text) for text in texts]

    @torch.no_grad()
    def _read_one(self, text: str) -> _Text:
        label = next(iter(self.rows.prompts))
        blind = replace(self.rows, entropy=bytes)
        batch = blind.batch([Record(text, label)]).to(self.model.embedding.device)
        weight = prefix_weights(batch.text, self.prefix_step)[0]
        read = self.model.prefix_features(batch.blinded, batch.text)[0]
        return _Text(read[weight > 0], weight[weight > 0])


@dataclass(frozen=True)
class _EncoderReader:
    """Reads whole texts with a public encoder, which embeds each by itself."""

    encode: Encode

    def read(self, texts: Iterable[str]) -> list[_Text]:
        features = torch.from_numpy(encoder_features(self.encode, list(texts))).to(exact_device())
        return [_Text(row[None], torch.ones(1, device=row.device)) for row in features]


@dataclass(frozen=True)
class _Batch:
    """B records: features (B, prefixes, inputs), weights (B, prefixes), labels (B,)."""

    features: torch.Tensor
    weights: torch.Tensor
    labels: torch.Tensor


class _Features:
    """Turns rows into batches; each text is read once, as far as memory allows.

    Each text is read by itself. Its stored features are then a function of that text only, to the last bit: it makes no
    difference which texts found room, or in which process. With `shown` the first reading, which takes longest, shows
    its progress, whatever is being read.
    """

    def __init__(self, reader: _Reader, names: Sequence[str], shown: bool = False) -> None:
        self._reader, self._names, self._shown = reader, list(names), shown
        self._kept: dict[str, _Text] = {}
        self._room = _MEMORY

    def batch(self, rows: Sequence[Serialisable]) -> _Batch:
        """Return the features of the rows. A row whose label is not public has no weight, so its loss is 0."""
        texts = self._read(rows)
        known = torch.tensor([row.label in self._names for row in rows], device=texts[0].weights.device)
        labels = [self._names.index(row.label) if row.label in self._names else 0 for row in rows]
        return _Batch(
            _pad([text.features for text in texts]),
            _pad([text.weights for text in texts]) * known[:, None],
            torch.tensor(labels, device=known.device),
        )

    def widths(self, rows: Sequence[Serialisable]) -> list[int]:
        """Return the number of prefixes to which `batch` pads each row when no longer row is in the batch."""
        return [_prefixes(text.weights) for text in self._read(rows)]

    def _read(self, rows: Sequence[Serialisable]) -> list[_Text]:
        missing = [text for text in dict.fromkeys(row.text for row in rows) if text not in self._kept]
        told = missing or self._shown  # a first batch of nobody is told as any other
        read = dict(zip(missing, self._reader.read(self._track(missing)), strict=True)) if told else {}
        for text in missing:
            self._keep(text, read[text])
        return [read.get(row.text) or self._kept[row.text] for row in rows]

    def _track(self, texts: list[str]) -> Iterable[str]:
        shown, self._shown = self._shown, False
        return track(texts, name="read", total=len(texts), private=True) if shown else texts

    def _keep(self, text: str, read: _Text) -> None:
        size = read.features.nbytes + read.weights.nbytes
        if size <= self._room:
            self._kept[text] = read
            self._room -= size


def _prefixes(values: torch.Tensor) -> int:
    """Return the padded number of prefixes; a single prefix is not padded."""
    return len(values) if len(values) == 1 else bucket(len(values), sys.maxsize)


def _pad(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """Pad every row with zeros to the widest bucket among them; (B, prefixes, ...)."""
    width = max(map(_prefixes, rows))
    return torch.stack([functional.pad(row, (0, 0) * (row.dim() - 1) + (0, width - len(row))) for row in rows])


def _losses(head: nn.Module, batch: _Batch) -> tuple[torch.Tensor]:
    return (weighted_loss(head(batch.features), batch.labels, batch.weights),)


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
        tried: findings of the trials of engines.
    """

    settings: DiscriminatorTrain
    schema: PublicSchema
    plan: Plan
    fitted: DpLmArtifact
    seed: int
    checkpoints: Path | None
    tried: dict[type, bool] = field(default_factory=dict, init=False)

    def ask(self, view: View) -> DpLmArtifact:
        """Ask what was planned and return the model with the copy that judges what it writes.

        Raises:
            ModelError: before anything is spent: the model cannot read texts of this length.
        """
        judge = view.ask(self._training_query(float(self.plan.numbers["noise_multiplier"])))
        merge_adapters(judge)
        return replace(self.fitted, judge=judge.eval().requires_grad_(False).cpu())

    def assumptions(self) -> tuple[str, ...]:
        """Return the ids of `privacy.planned` that the training relies on; only public records decide.

        Raises:
            ModelError: the model cannot read texts of this length.
            EngineError, DeviceNoiseError: see `TrainQuery.check`.
        """
        return list_assumptions(self._training_query(0.0))

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
            losses=_model_losses,  # type: ignore[arg-type]
            micro_batch=train.micro_batch,
            widths=rows.widths,
            person=train.person,
            most_rows=self.schema.max_rows_per_unit,
            engine=engine_of(model),
            name=DISCRIMINATOR,
            probe=probe(names, train.max_tokens, rows.tried_cells[-1]),
            shapes=shapes(names, train.max_tokens, rows.tried_cells),
            checkpoints=self.checkpoints,
            checkpoint_steps=train.checkpoint_steps,
            tried=self.tried,
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


def _model_losses(model: ConditionalLm, batch: Batch) -> tuple[torch.Tensor]:
    return (discriminator_loss(model, batch, WHOLE),)
