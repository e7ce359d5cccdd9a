"""Ordinary training on public text, a step at a time. A long training continues where it was stopped."""

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from palimpsest.errors import ModelError
from palimpsest.models.settings import Precision
from palimpsest.progress import track
from palimpsest.training.checkpoint import find_checkpoint, load_checkpoint, save_checkpoint
from palimpsest.training.engine import EngineError

Batch = TypeVar("Batch")
_BUCKET = 50  # batches whose texts are sorted by length together
_WARM_UP = 0.05  # share of the steps in which the learning rate rises
_SECONDS = 600.0  # of a training, from one state that is kept to the next


class _Told(nn.Module):
    """The trained module and the loss of each step so far, which a stopped training needs to continue."""

    def __init__(self, trained: nn.Module, steps: int) -> None:
        super().__init__()
        self.trained = trained
        self.losses = nn.Parameter(torch.zeros(steps))  # no optimiser knows it


@dataclass(frozen=True)
class Kept:
    """The store where a training saves its state every ten minutes, and from which it is restored.

    Guarantee: only for public text. A state of private text would be a query on it that is in no ledger.

    Attributes:
        folder: the folder of states.
        key: key of the training, see `key_of`; a state of another training is not used.
    """

    folder: Path
    key: str

    def restore(self, told: _Told, rates: LambdaLR) -> int:
        """Restore the last state, and return the number of steps that it had done.

        Raises:
            ModelError: that state is broken.
        """
        steps = len(told.losses)
        path = find_checkpoint(self.folder, self.key, steps)
        if path is None:
            return 0
        try:
            load_checkpoint(path, told, [rates.optimizer])
        except EngineError as error:
            raise ModelError(
                "What a training on public text had kept cannot be read.",
                f"Remove the folder {str(self.folder)!r} and run again: it begins anew, and costs nothing.",
            ) from error
        done = int(path.name.split(".")[1])
        rates.last_epoch = done
        for group, peak in zip(rates.optimizer.param_groups, rates.base_lrs, strict=True):
            group["lr"] = peak * rates.lr_lambdas[0](done)
        return done

    def save(self, told: _Told, rates: LambdaLR, done: int) -> None:
        """Keep the state after `done` steps in place of the one before."""
        self.folder.mkdir(parents=True, exist_ok=True)
        save_checkpoint(self.folder, self.key, done, told, [rates.optimizer])


def key_of(model: nn.Module, about: Iterable[object]) -> str:
    """Return a key that identifies a training.

    Args:
        model: the model before its first step.
        about: everything else that determines the result, rows and settings and seed, each by its `repr`.
    """
    digest = hashlib.sha256()
    for weight in model.state_dict().values():
        digest.update(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    for part in about:
        digest.update(part if isinstance(part, bytes) else repr(part).encode())
    return digest.hexdigest()[:32]


def descend(
    trained: nn.Module,
    batches: Iterable[Batch],
    loss: Callable[[Batch], torch.Tensor],
    rates: LambdaLR,
    *,
    name: str,
    steps: int,
    private: bool,
    precision: Precision = "float32",
    kept: Kept | None = None,
) -> list[float]:
    """Take a gradient step for each batch, the gradient clipped to length 1; return the loss before each step.

    A stopped training takes the remaining steps and ends with the same result.

    Args:
        batches: `steps` batches; all randomness is drawn here, as the batches of completed steps are drawn again.
        loss: the loss of a batch.
        name: name of the progress bar.
        private: see `track`.
        precision: "bf16" for products in bfloat16; weights and steps are float32.
        kept: where the state is kept; None keeps nothing.

    Raises:
        ValueError: the state of a private training was to be kept.
        ModelError: a state that was kept is broken.
    """
    if private and kept:
        raise ValueError("a training on private rows keeps no state")
    told, half = _Told(trained, steps), precision == "bf16"
    done = kept.restore(told, rates) if kept else 0
    left, since = iter(batches), time.monotonic()
    for _ in islice(left, done):
        pass
    for step, batch in enumerate(track(left, name=name, total=steps - done, private=private, unit="step"), start=done):
        with torch.autocast(_kind(trained), torch.bfloat16, enabled=half):
            value = loss(batch)
        told.losses.data[step] = _step(value, trained, rates)
        if kept and time.monotonic() - since >= _SECONDS:
            kept.save(told, rates, step + 1)
            since = time.monotonic()
    return told.losses.tolist()


def _kind(trained: nn.Module) -> str:
    return next(trained.parameters()).device.type


def _step(loss: torch.Tensor, trained: nn.Module, rates: LambdaLR) -> float:
    loss.backward()
    nn.utils.clip_grad_norm_(trained.parameters(), 1.0)
    rates.optimizer.step()
    rates.optimizer.zero_grad(set_to_none=True)
    rates.step()
    return float(loss.detach())


def recent_mean(losses: Sequence[float]) -> float:
    """Mean of the last tenth."""
    recent = losses[-max(1, len(losses) // 10) :]
    return sum(recent) / len(recent)


def rise_and_cosine(step: int, steps: int) -> float:
    """Return the factor of the peak learning rate at `step` of `steps`: linear warm-up, then half a cosine."""
    warmup = round(_WARM_UP * steps)
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / max(1, steps - warmup)
    return 0.5 * (1.0 + math.cos(math.pi * done))


def length_batches(lengths: Sequence[int], batch: int, steps: int, coins: torch.Generator) -> Iterator[list[int]]:
    """Indices of `steps` batches of texts of similar length, in random order, epoch after epoch."""
    done = 0
    while done < steps:
        order = torch.randperm(len(lengths), generator=coins).tolist()
        for start in range(0, len(order), _BUCKET * batch):
            bucket = slice(start, start + _BUCKET * batch)
            order[bucket] = sorted(order[bucket], key=lambda index: lengths[index])
        starts = list(range(0, len(order), batch))
        for index in torch.randperm(len(starts), generator=coins).tolist()[: steps - done]:
            yield order[starts[index] : starts[index] + batch]
        done += len(starts)
