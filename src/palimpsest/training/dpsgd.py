"""DP-SGD: Poisson batches, per-example clipping, noise once per logical batch, a public divisor, Adam.

Where several processes train, one asks the ledger's view for private rows; the others do their share and listen.
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import dp_accounting.dp_event as dpa
import numpy as np
import torch
from torch import nn

from palimpsest import validate
from palimpsest.devices import FULL, HALF, dtype_of
from palimpsest.errors import LedgerError
from palimpsest.privacy.entropy import NoiseSource, device_noise
from palimpsest.privacy.query import Meter, Query, View, bounds_persons, is_registered, register_query
from palimpsest.privacy.rows import PrivateRow, group_by_person
from palimpsest.progress import track
from palimpsest.records.record import Probe, Record
from palimpsest.training.batches import MicroBatch, Widths, groups, micro_batches, places
from palimpsest.training.bookkeeping import BookkeepingEngine, room
from palimpsest.training.check import check_sums, fill_zeros, has_same_bits, self_check
from palimpsest.training.checkpoint import find_checkpoint, load_checkpoint, save_checkpoint
from palimpsest.training.engine import EngineError, Gradients
from palimpsest.training.integers import IntegerEngine
from palimpsest.training.optimiser import Optimiser
from palimpsest.training.plan import TrainingPlan
from palimpsest.training.team import Team

_LEAST_GROUPS = 4  # of steps that begin together: a crash costs a quarter of a short training, and not all of it


def _equal_widths(rows: Sequence[PrivateRow]) -> list[int]:
    """Return equal widths, for rows that `encode` always pads alike."""
    return [0] * len(rows)


@register_query
@bounds_persons
@dataclass(frozen=True)
class TrainQuery:
    """Train a model on private rows with DP-SGD.

    Guarantee: for adding or removing one unit of privacy, which is a record, or a person with all their rows. Every
    unit joins a step's batch by one coin at the plan's rate (Poisson sampling of units), and adds at most C to a sum:
    either the gradient of the mean loss of its rows, clipped once, or the mean of its rows' clipped gradients, which
    the triangle inequality bounds by C. That is the subsampled Gaussian mechanism of sensitivity C that `plan.event()`
    composes (Abadi et al. 2016). The returned module differs from `model` in its trainable parameters alone, and these
    are post-processing of the noisy sums, provided that `losses` computes each row's loss from that row alone, which
    `probe` lets the query try first. Batch sizes, losses, norms and the number of
    clipped or dropped examples are neither returned nor logged. Running time and memory follow the batch size and are
    not covered. An attempt that continues a stopped one runs the steps that had not begun, with fresh batches and
    fresh noise, from the last checkpoint: all attempts together run at most `plan.steps` mechanisms.

    Attributes:
        plan: the public numbers.
        optimiser: how privatised gradients move the weights.
        model: where training starts; it is left unchanged. It trains in eval mode: dropout would only add noise, and
            draws its masks in the order of the batch, so that one record would move the others' gradients.
        encode: rows -> a batch, each row by itself. Rows of one width are padded alike, whatever else is in the batch.
        losses: (model, batch) -> per-row losses, each (B,): one where clipping is joint, `plan.losses` where it is
            separate.
        micro_batch: how many rows always go through the model at once; places without a row are filled up.
        widths: rows -> how wide `encode` pads each, a public function of only that row.
        person: how a person's rows are clipped: "joint" or "rows" (see `micro_batches`).
        most_rows: public; the most rows of a unit; `batch_bits` tries their shapes where they are clipped as one.
        name: the charge's name.
        probe: two or three *public* records, one of them as long as rows can be, on which engine and losses are
            checked before a private row is read; an empty one skips the check.
        shapes: *public* records, two or more of each width, on which `batch_bits` is tried.
        encode_probe: like `encode`, but without random draws, so that the check can compare; None where it has none.
        engine: builds the gradient engine on a model, if trials on public records find no fault: see `choose_engine`.
        precision: "float32", or "bf16" for forward and backward passes under autocast; norms, sums, noise and weights
            stay in float32.
        checkpoints: the folder that keeps a stopped run's state; none keeps nothing.
        checkpoint_steps: steps from one checkpoint to the next, and no more than a quarter of all. They begin in the
            ledger together, so this is also the most that a crash can cost.
        tried: what trials on public records found of an engine, kept by each for the next. Queries that differ in
            nothing but noise and memory may share it.
    """

    plan: TrainingPlan
    optimiser: Optimiser
    model: nn.Module
    encode: Callable[[Sequence[PrivateRow]], Any]
    losses: Callable[[nn.Module, Any], tuple[torch.Tensor, ...]]
    micro_batch: int
    widths: Widths = _equal_widths
    person: str = "joint"
    most_rows: int = 1
    name: str = "train"
    probe: Sequence[Record | Probe] = ()
    shapes: Sequence[Record | Probe] = ()
    encode_probe: Callable[[Sequence[PrivateRow]], Any] | None = None
    engine: type[BookkeepingEngine] = IntegerEngine
    precision: str = FULL
    checkpoints: Path | None = None
    checkpoint_steps: int = 50
    tried: dict[type, bool] = field(default_factory=dict, repr=False, compare=False)
    reads_model: ClassVar[bool] = True

    def __post_init__(self) -> None:
        validate.require_positive(micro_batch=self.micro_batch, checkpoint_steps=self.checkpoint_steps)
        validate.require_one_of((FULL, HALF), precision=self.precision)
        validate.require_one_of(("joint", "rows"), person=self.person)

    @property
    def steps(self) -> int:
        """The number of mechanisms that `event` composes."""
        return self.plan.steps

    @property
    def subject(self) -> object:
        """Empty: the answer refers to nothing but the sources of the model."""
        return ()

    def event(self) -> dpa.DpEvent:
        """Return the event that the accountant is told."""
        return self.plan.event()

    def run(self, rows: Sequence[PrivateRow], noise: NoiseSource) -> nn.Module:
        """Train on `rows` in one attempt; returns a new module."""
        return self.run_steps(rows, noise, _OneAttempt(self.plan.steps))

    def run_steps(self, rows: Sequence[PrivateRow], noise: NoiseSource, meter: Meter) -> nn.Module:
        """Train on `rows`, with the steps that `meter` has left; returns a new module.

        Raises:
            EngineError: the model or a loss cannot be clipped exactly, or a checkpoint cannot be continued from.
            DeviceNoiseError: the model's device does not draw the processor's noise.
        """
        self.check()
        return _Trainer(self, rows).lead(noise, meter)

    def follow(self, rows: Sequence[PrivateRow]) -> nn.Module:
        """Train in a process that another one leads: no ledger, no coins and no noise here."""
        self.check()
        return _Trainer(self, rows).follow()

    def batch_bits(self) -> bool:
        """Return whether the bits of an example's gradient depend only on that example, as far as public records show.

        This is tried at the shapes that training runs at: `micro_batch` rows of each width, an example having one row
        or as many as a unit is padded to, with the model's own weights where they are not all zero. The result holds
        for this machine, this number of threads and these weights' shapes.
        """
        return self._serves(self.choose_engine())

    def choose_engine(self) -> type[BookkeepingEngine]:
        """Return the engine for this machine and model: `engine` where trials find no fault of it, else float64 sums.

        Rounding to whole numbers makes a difference in a last bit a thousand times as large, so it is left to machines
        that have none. It is left to processors too: no other device has been measured. And it is left to models whose
        gradients it keeps: what it adds grows with a model's width and with the length of texts.

        Raises:
            EngineError: the sum of one example is longer than the clipping norm.
        """
        wanted = self._engine_here()
        return wanted if wanted is BookkeepingEngine or self._serves(wanted) else BookkeepingEngine

    def _engine_here(self) -> type[BookkeepingEngine]:
        """Return the engine that serves on the model's device if the trial finds nothing."""
        return self.engine if self._device.type == "cpu" else BookkeepingEngine

    def _serves(self, kind: type[BookkeepingEngine]) -> bool:
        if kind not in self.tried:
            self.tried[kind] = self._has_own_bits(kind) and self._sums_nearly(kind)
        return self.tried[kind]

    def _sums_nearly(self, kind: type[BookkeepingEngine]) -> bool:
        if kind is BookkeepingEngine or not self.probe:
            return True
        batch, _ = self._encode_probe()
        losses = [partial(self._select_loss, which) for which in range(self.plan.passes)]
        return all(check_sums(kind, self.model, loss, batch, self.plan.clipping_norm) for loss in losses)

    def _encode_probe(self) -> tuple[Any, list[Any]]:
        """Return the public records of the check, encoded together and each alone."""
        rows = _private_rows(self.probe)
        encode = self.encode_probe or self.encode
        return encode(rows), [encode([row]) for row in rows]

    def _has_own_bits(self, kind: type[BookkeepingEngine]) -> bool:
        model, encode = copy.deepcopy(self.model).eval(), self.encode_probe or self.encode
        fill_zeros(model)
        engine, losses = kind(model), partial(self.compute_losses, model)
        for group, (one, other) in product(groups(self.most_rows, self.person), self._pairs()):
            size = places(self.micro_batch, group) * group
            mixed, alike = encode([*[one] * group, *[other] * (size - group)]), encode([one] * size)
            if not has_same_bits(engine, losses, mixed, alike, size, group, self.plan.clipping_norm):
                return False
        return True

    def _pairs(self) -> list[tuple[PrivateRow, PrivateRow]]:
        """Return two public rows of each width."""
        rows = _private_rows(self.shapes)
        of_width: dict[int, list[PrivateRow]] = {}
        for row, width in zip(rows, self.widths(rows), strict=True):
            of_width.setdefault(width, []).append(row)
        return [(alike[0], alike[-1]) for alike in of_width.values()]

    def compute_losses(self, model: nn.Module, batch: Any) -> tuple[torch.Tensor, ...]:
        """Compute the losses, in the planned precision and number.

        Raises:
            EngineError: the number of losses is not the plan's.
        """
        device = next(model.parameters()).device.type
        with torch.autocast(device, dtype_of(self.precision), enabled=self.precision != FULL):
            values = self.losses(model, batch)
        if len(values) != self.plan.passes:
            raise EngineError(
                f"The loss function returned {len(values)} losses where the plan accounts for {self.plan.passes}.",
                "Add the losses up with public weights (clipping joint), or plan as many as there are (separate).",
            )
        return values

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def check(self) -> None:
        """Try engine, losses and the device's noise on public records. If this is called before anything is reserved, a
        fault costs nothing.

        Raises:
            EngineError: the model or a loss cannot be clipped exactly.
            DeviceNoiseError: the model's device does not draw the processor's noise.
        """
        device_noise(self._device)
        if self.probe:
            batch, alone = self._encode_probe()
            for which in range(self.plan.passes):
                losses = partial(self._select_loss, which)
                self_check(self._engine_here(), self.model, losses, batch, alone, dtype_of(self.precision))

    def _select_loss(self, which: int, model: nn.Module, batch: Any) -> torch.Tensor:
        return self.compute_losses(model, batch)[which]


@dataclass
class _OneAttempt:
    """A meter that records nowhere and keeps nothing."""

    limit: int
    charge: str = ""
    begun: int = 0
    resumed: bool = False
    lasting: bool = False

    def begin(self, steps: int) -> None:
        self.begun += steps


class _Trainer:
    """One attempt: a copy of the model, its engine and optimisers, and the team that shares the batches."""

    def __init__(self, query: TrainQuery, rows: Sequence[PrivateRow]) -> None:
        self._query, self._units, self._team = query, sorted(group_by_person(rows), key=_place), Team.current()
        self._model = copy.deepcopy(query.model).eval()
        self._engine = query.choose_engine()(self._model)
        self._parameters = {name: p for name, p in self._model.named_parameters() if p.requires_grad}
        weights = sum(p.numel() for p in self._parameters.values())
        variance = (query.plan.noise_std(weights) / query.plan.divisor) ** 2
        groups = [query.optimiser.groups(self._parameters, which) for which in range(query.plan.passes)]
        self._updates = [query.optimiser.start(each, variance) for each in groups]

    def lead(self, noise: NoiseSource, meter: Meter) -> nn.Module:
        """Train as the leader: draw every batch and add all noise.

        Raises:
            EngineError: this process follows another one, or its checkpoint is gone.
        """
        if not self._team.leads:
            raise EngineError("Two processes of a team cannot lead.", "Let every process but the first one follow.")
        self._restore(self._team.share(self._checkpoint(meter)))
        self._team.meet()  # once steps are counted, no process can fail to be ready
        left = meter.limit - meter.begun
        for step in track(self._steps(meter), name=self._query.name, total=left, private=False, unit="step"):
            chosen = poisson_batch(len(self._units), self._query.plan.rate, noise)
            self._team.share((step, chosen))
            self._step(step, chosen, noise)
        self._team.share(None)
        return _copy_trained(self._query.model, self._model)

    def follow(self) -> nn.Module:
        """Train as a follower: sum what the leader asks for, and step as it does."""
        self._restore(self._team.share(None))
        self._team.meet()
        while (told := self._team.share(None)) is not None:
            self._step(*told)
        return _copy_trained(self._query.model, self._model)

    def _checkpoint(self, meter: Meter) -> Path | None:
        """Return the checkpoint of a stopped attempt, where this one continues it."""
        if not meter.resumed:
            return None
        folder = self._query.checkpoints
        path = find_checkpoint(folder, meter.charge, meter.begun) if folder else None
        if path is None:
            raise EngineError(
                "A training that was to continue has no checkpoint any more.",
                "Run again: it starts anew and is charged again.",
            )
        return path

    def _restore(self, path: Path | None) -> None:
        if path is not None:
            load_checkpoint(path, self._model, self._updates)

    def _steps(self, meter: Meter) -> Iterator[int]:
        """Yield the steps left, each counted by the meter before it runs, with a checkpoint around each group."""
        size = min(self._query.checkpoint_steps, math.ceil(meter.limit / _LEAST_GROUPS))
        if meter.begun == 0:
            self._keep(meter)
        for first in range(meter.begun, meter.limit, size):
            meter.begin(min(size, meter.limit - first))
            yield from range(first, meter.begun)
            self._keep(meter)

    def _keep(self, meter: Meter) -> None:
        """Write a checkpoint, where another attempt could go on from it."""
        folder = self._query.checkpoints
        if folder is not None and meter.lasting:
            save_checkpoint(folder, meter.charge, meter.begun, self._model, self._updates)

    def _step(self, step: int, chosen: np.ndarray, noise: NoiseSource | None = None) -> None:
        """Take one logical batch: every process sums its share, the leader adds the noise, and all move alike."""
        rooms = [room(self._parameters) for _ in self._updates]
        sums = [by_name for _, by_name in rooms]
        self._add_clipped(sums, [self._units[index] for index in chosen[self._team.rank :: self._team.size]], step)
        for values, _ in rooms:
            self._team.add_up(values)
            if noise is not None:
                privatise(values, self._query.plan, noise)
            self._team.spread(values)
        optimiser, steps = self._query.optimiser, self._query.plan.steps
        for total, update in zip(sums, self._updates, strict=True):
            _apply(update, self._parameters, total, optimiser.rate_at(step, steps))

    def _add_clipped(self, sums: Sequence[Gradients], units: Sequence[Sequence[PrivateRow]], step: int) -> None:
        """Add the units' clipped gradients to the sums, one for each pass."""
        for part in micro_batches(units, self._query.micro_batch, self._query.person, self._query.widths):
            losses = partial(self._shared_losses, part, self._query.encode(part.rows))
            clipping_norm = self._query.plan.clipping_norm
            seeds = part.seeds(step)
            self._engine.clipped_sums(losses, len(part.rows), clipping_norm, sums, part.group, part.weights, seeds)

    def _shared_losses(self, part: MicroBatch, batch: Any) -> list[torch.Tensor]:
        """Multiply each row's losses by its share of the unit that is clipped as one."""
        values = self._query.compute_losses(self._model, batch)
        if part.group == 1:
            return list(values)
        return [value * part.shares.flatten().to(value) for value in values]


def poisson_batch(size: int, rate: float, noise: NoiseSource) -> np.ndarray:
    """Draw the indices of the units that join, each of `size` independently with probability `rate`; possibly none."""
    return np.flatnonzero(noise.bernoulli(size, rate))


def privatise(sums: torch.Tensor, plan: TrainingPlan, noise: NoiseSource) -> None:
    """Make the noisy mean of all coordinates (d,) in place: (clipped sum + noise) / divisor, once per logical batch.

    Guarantee: a Gaussian mechanism with the plan's noise multiplier, for a sum of sensitivity C. The sums are rounded
    to a grid, and the noise is a real Gaussian, rounded to that grid, exactly (`NoiseSource.add_gaussian`). Its
    standard deviation is `noise_multiplier` times the sensitivity of the *rounded* sums: C (1 + eta) and one step times
    the root of their number. The division is post-processing.
    """
    noise.add_gaussian(sums, plan.noise_std(sums.numel()))
    sums.div_(plan.divisor)


def _apply(
    update: torch.optim.Optimizer, parameters: dict[str, nn.Parameter], gradients: Gradients, learning_rate: float
) -> None:
    for name, parameter in parameters.items():
        # The fused AdamW steps wrongly where a gradient does not lie in memory as its parameter does.
        parameter.grad = torch.empty_like(parameter).copy_(gradients[name])
    for group in update.param_groups:
        group["lr"] = learning_rate * group["share"]
    update.step()
    update.zero_grad()


def _place(unit: Sequence[PrivateRow]) -> tuple[str, str, str]:
    """Return the sort key of a unit: each has the same place in every process, in whatever order its rows were read."""
    first = unit[0]
    return first.person or "", first.label or "", first.text


def _copy_trained(original: nn.Module, trained: nn.Module) -> nn.Module:
    """Copy `original` with the trained parameters: anything else that a forward pass wrote was never noised."""
    result = copy.deepcopy(original)
    with torch.no_grad():
        for target, source in zip(result.parameters(), trained.parameters(), strict=True):
            target.copy_(source)
    return result


def _private_rows(records: Sequence[Record | Probe]) -> list[PrivateRow]:
    """Return public records as the rows that `encode` reads."""
    return [PrivateRow(one.text, one.label, fields=one.fields if isinstance(one, Probe) else "") for one in records]


class Leader:
    """A metered view whose answers go to every process of a team."""

    def __init__(self, view: View, team: Team) -> None:
        self._view, self._team = view, team

    def ask(self, query: Query) -> Any:
        """See `PrivateView.ask`. A training's answer is not sent: every process has computed it."""
        answer = self._view.ask(query)
        return answer if isinstance(query, TrainQuery) else self._team.share(answer)


class Follower:
    """The view of a process that another one leads: it has the rows for its share of a training, and no ledger.

    Guarantee: what it returns is what the leader's metered view answered. It draws no noise and spends nothing; without
    a leader that trains, it waits.
    """

    def __init__(self, rows: Sequence[PrivateRow], team: Team) -> None:
        self.__rows, self.__team = tuple(rows), team

    def ask(self, query: Query) -> Any:
        """Return the leader's answer.

        Raises:
            LedgerError: if the query is not registered.
        """
        if not is_registered(query):
            raise LedgerError(f"{type(query).__name__} is not a registered query.", "Ask only what the leader asks.")
        return query.follow(self.__rows) if isinstance(query, TrainQuery) else self.__team.share(None)
