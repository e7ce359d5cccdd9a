"""Two processes that train one model: the same sums as one process, and the noise of one."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from palimpsest.errors import LedgerError
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.training import dpsgd
from palimpsest.training.engine import EngineError
from palimpsest.training.team import Team
from palimpsest.training.views import Follower, Leader
from tests.training.team import COORDINATES, ROWS, STEPS, query

pytestmark = pytest.mark.xdist_group("processes")
PROCESSES = 2


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `torchrun`'s processes wrote."""
    folder = tmp_path_factory.mktemp("team")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={PROCESSES}"]
    subprocess.run([*launcher, "-m", "tests.training.team", str(folder)], check=True, capture_output=True)
    return folder


def moves(folder: Path, name: str) -> list[torch.Tensor]:
    return [load_file(folder / f"{name}-{rank}.safetensors")["move"] for rank in range(PROCESSES)]


def test_shares_of_a_batch_add_up_to_the_batch(ended):
    asked = query(0.0)
    alone = (asked.run(ROWS, NoiseSource(seed=3)).weight - asked.model.weight).detach()
    for move in moves(ended, "exact"):
        assert float((move - alone).norm() / alone.norm()) <= 1e-9


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
    monkeypatch.setattr(dpsgd.Team, "here", lambda: Team(rank=1, size=2))
    with pytest.raises(EngineError, match="cannot lead"):
        query(1.2).run(ROWS, NoiseSource())


def test_a_process_alone_is_a_team():
    team = Team.here()
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
