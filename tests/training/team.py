"""What each process of a team does in the tests; started by `torchrun`, every process writes what it ended with."""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.rows import PrivateRow
from palimpsest.training.dpsgd import TrainQuery
from palimpsest.training.optimiser import Optimiser
from palimpsest.training.plan import TrainingPlan
from palimpsest.training.team import joined

COORDINATES, STEPS = 20_000, 3
ROWS = [PrivateRow(str(index), "a", f"{index // 3:064x}") for index in range(30)]  # three rows a person


def losses(model: nn.Module, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of different norms, some clipped; the second loss uses the same weights."""
    return model(ids)[:, 0] * (ids + 1) / 20, 0.5 * model((ids + 7) % 40)[:, 0]


def query(noise_multiplier: float, rate: float = 0.5) -> TrainQuery:
    """The weights move by minus the privatised gradient, so that they show it."""
    torch.manual_seed(0)
    return TrainQuery(
        plan=TrainingPlan(rate, STEPS, 0.5, noise_multiplier, 10.0, "separate", 2),
        optimiser=Optimiser(1e9, 1.0, (0.0, 0.0), 1e9, 0.0),
        model=nn.Embedding(COORDINATES, 1).double(),
        encode=lambda rows: torch.tensor([int(row.text) for row in rows]),
        losses=losses,
        micro_batch=4,
    )


def main(folder: Path) -> None:
    with joined() as team:
        team.meet()
        for name, multiplier, rate in (("exact", 0.0, 0.5), ("noisy", 1.2, 1e-12)):
            asked = query(multiplier, rate)
            model = asked.run(ROWS, NoiseSource(seed=3)) if team.leads else asked.follow(ROWS)
            move = model.weight.detach() - asked.model.weight.detach()
            save_file({"move": move}, folder / f"{name}-{team.rank}.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
