"""A metered training of a small model that can be killed at a chosen step; run as a program it dies there."""

import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn

from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.ledger.ledger import Ledger
from palimpsest.privacy.ledger.records import Asset, Charge, Reservation, Run
from palimpsest.privacy.planned import PlannedQuery
from palimpsest.privacy.rows import PrivateRow
from palimpsest.privacy.session import metered
from palimpsest.records.schema import PublicSchema
from palimpsest.training.checkpoint import find_checkpoint
from palimpsest.training.dpsgd import TrainQuery
from palimpsest.training.optimiser import Optimiser
from palimpsest.training.plan import TrainingPlan
from tests.machines import own_ledger
from tests.reading import EVERYTHING, reading

STEPS, BETWEEN, WIDTH = 10, 3, 400
PLAN = TrainingPlan(0.5, STEPS, 0.5, 4.0, 10.0, "joint", 1)
ROWS = [PrivateRow(str(index), "a") for index in range(40)]
SCHEMA = PublicSchema("notes", "generate", "text", n_public=40, max_length=9, label=None, labels={})
RUN = Run("dp_train", "dp3", "release", "data", "plan")


class Watched(NoiseSource):
    """Notes every noise it adds, and dies before a chosen one."""

    def __init__(self, dies_before: int = -1, seed: int | None = None) -> None:
        super().__init__(seed)
        self.drawn: list[torch.Tensor] = []
        self._dies_before = dies_before

    def add_gaussian(self, tensor: torch.Tensor, std: float) -> None:
        if len(self.drawn) == self._dies_before:
            os.kill(os.getpid(), signal.SIGKILL)
        self.drawn.append(torch.zeros_like(tensor))
        super().add_gaussian(self.drawn[-1], std)
        tensor.add_(self.drawn[-1])


def losses(model: nn.Module, ids: torch.Tensor) -> tuple[torch.Tensor]:
    return (model(ids)[:, 0].square(),)


def query(folder: Path) -> TrainQuery:
    torch.manual_seed(0)
    return TrainQuery(
        plan=PLAN, optimiser=Optimiser(0.01, 0.0, (0.9, 0.98), 1e-8, 0.0), model=nn.Embedding(WIDTH, 1),
        encode=lambda rows: torch.tensor([int(row.text) for row in rows]), losses=losses, micro_batch=8,
        checkpoints=folder / "checkpoints", checkpoint_steps=BETWEEN,
    )  # fmt: skip


def books(folder: Path) -> Ledger:
    ledger = own_ledger(folder)
    ledger.register(Asset("notes", delta=1e-3, epsilon=40.0, n_public=40))
    return ledger


def train(folder: Path, noise: NoiseSource) -> tuple[nn.Module, Reservation]:
    """One attempt, through the door."""
    asked = query(folder)
    requests = [PlannedQuery(asked.name, asked.event(), steps=asked.steps)]

    def continues(charge: Charge) -> bool:
        return find_checkpoint(folder / "checkpoints", charge.id, charge.steps_begun) is not None

    ledger = books(folder)
    run = reading(RUN, ledger, SCHEMA.asset, ROWS)
    with metered(ledger, SCHEMA, run, requests, lambda: ROWS, noise, continues, again=EVERYTHING) as session:
        return session.view.ask(asked), session.reservation


if __name__ == "__main__":
    train(Path(sys.argv[1]), Watched(int(sys.argv[2])))
