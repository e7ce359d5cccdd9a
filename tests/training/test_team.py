"""Two processes that train one model: the same sums as one process, and the noise of one."""

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from palimpsest.errors import LedgerError
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.privacy.rows import PrivateRow
from palimpsest.training import dpsgd
from palimpsest.training.dpsgd import Follower, Leader, TrainQuery
from palimpsest.training.engine import EngineError
from palimpsest.training.optimiser import Optimiser
from palimpsest.training.plan import TrainingPlan
from palimpsest.training.team import Team, join_team
from tests.team import together

pytestmark = pytest.mark.xdist_group("processes")
PROCESSES, COORDINATES, STEPS = 2, 20_000, 3
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


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the processes of a team wrote: each what it ended with."""
    folder = tmp_path_factory.mktemp("team")

    def take_part(rank: int) -> None:
        with join_team() as team:
            team.meet()
            for name, multiplier, rate in (("exact", 0.0, 0.5), ("noisy", 1.2, 1e-12)):
                asked = query(multiplier, rate)
                model = asked.run(ROWS, NoiseSource(seed=3)) if team.leads else asked.follow(ROWS)
                move = model.weight.detach() - asked.model.weight.detach()
                save_file({"move": move}, folder / f"{name}-{rank}.safetensors")

    assert together(take_part, PROCESSES) == [0] * PROCESSES
    return folder


def moves(folder: Path, name: str) -> list[torch.Tensor]:
    return [load_file(folder / f"{name}-{rank}.safetensors")["move"] for rank in range(PROCESSES)]


def test_shares_of_a_batch_add_up_to_the_batch(ended):
    """To the last bit: whole numbers are added."""
    asked = query(0.0)
    alone = (asked.run(ROWS, NoiseSource(seed=3)).weight - asked.model.weight).detach()
    assert alone.any()
    assert all(torch.equal(move, alone) for move in moves(ended, "exact"))


def check_one_noise(move: torch.Tensor) -> None:
    """Empty batches: what moved the weights is the noise, once for each step and loss."""
    expected = STEPS * 2 * (1.2 * 0.5 / 10.0) ** 2
    deviation = (float(move.square().mean()) / expected - 1.0) / math.sqrt(2.0 / COORDINATES)
    assert abs(deviation) <= 5.0  # a false alarm in two million


def test_noise_is_added_once_per_logical_batch_and_not_per_process(ended):
    first, second = moves(ended, "noisy")
    check_one_noise(first)
    assert torch.equal(first, second)


@pytest.mark.parametrize("doses", [0, PROCESSES])
def test_noise_of_no_process_or_of_each_would_be_seen(monkeypatch, doses):
    add = dpsgd.privatise

    def mutant(sums, plan, noise):
        for _ in range(doses):
            add(sums, plan, noise)
            for values in sums:
                values.mul_(plan.divisor)
        for values in sums:
            values.div_(plan.divisor)

    monkeypatch.setattr(dpsgd, "privatise", mutant)
    asked = query(1.2, rate=1e-12)
    moved = asked.run(ROWS, NoiseSource()).weight - asked.model.weight
    with pytest.raises(AssertionError):
        check_one_noise(moved.detach())


def test_a_second_leader_is_refused(monkeypatch):
    monkeypatch.setattr(dpsgd.Team, "current", lambda: Team(rank=1, size=2))
    with pytest.raises(EngineError, match="cannot lead"):
        query(1.2).run(ROWS, NoiseSource())


def test_a_process_alone_is_a_team():
    team = Team.current()
    assert (team.rank, team.size, team.leads) == (0, 1, True)
    assert team.share("value") == "value"


def test_a_follower_asks_registered_queries_only():
    class Loose:
        name = "loose"

    with pytest.raises(LedgerError, match="not a registered query"):
        Follower(ROWS, Team()).ask(Loose())


def test_a_leader_alone_asks_its_view():
    class View:
        def ask(self, query):
            return f"answer to {query}"

    assert Leader(View(), Team()).ask("q") == "answer to q"
