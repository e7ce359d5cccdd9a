"""A training that is killed goes on under its own charge: a crash costs steps, never privacy and never a second charge.

The attempts that die are processes of their own, killed by SIGKILL between the ledger's entry and the next checkpoint.
"""

import shutil
import signal
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from palimpsest.errors import LedgerError
from palimpsest.privacy.entropy import NoiseSource
from palimpsest.training import dpsgd
from palimpsest.training.checkpoint import find_checkpoint, load_checkpoint, save_checkpoint
from palimpsest.training.engine import EngineError
from palimpsest.training.optimiser import Optimiser
from palimpsest.workspace import CHECKPOINTS
from stages.dp_train import continues
from tests.training.resumed import BETWEEN, ROWS, STEPS, WIDTH, Watched, books, losses, query, train

pytestmark = pytest.mark.xdist_group("processes")
DIES_BEFORE = 7  # its noises; the checkpoint holds six steps, and nine have begun


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace in which an attempt was killed; copy it before use."""
    folder = tmp_path_factory.mktemp("killed")
    command = [sys.executable, "-m", "tests.training.resumed", str(folder), str(DIES_BEFORE)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    return folder


@pytest.fixture
def place(killed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(killed, tmp_path / "workspace"))


def checkpoints(folder: Path) -> list[Path]:
    return sorted((folder / "checkpoints").iterdir())


def test_the_killed_attempt_left_a_checkpoint_and_a_begun_charge(place):
    (charge,) = books(place).charges("notes")
    (path,) = checkpoints(place)
    assert (charge.state, charge.steps_begun, charge.steps) == ("begun", 3 * BETWEEN, STEPS)
    assert path.name == f"{charge.id}.{2 * BETWEEN}.safetensors"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def check_resumed(place: Path) -> None:
    """What is left runs, under the same charge, with new noise; the sum of all begun steps is what was reserved."""
    before, noise = books(place).balance("notes"), Watched()
    _, reservation = train(place, noise)
    (charge,) = books(place).charges("notes")
    assert (charge.state, charge.steps_begun, reservation.resumed) == ("committed", STEPS, 3 * BETWEEN)
    assert len(noise.drawn) == STEPS - 3 * BETWEEN
    assert books(place).balance("notes") == before


def test_another_attempt_runs_what_is_left_under_the_same_charge(place):
    check_resumed(place)


def test_an_attempt_that_died_in_its_first_steps_costs_no_more_than_these(tmp_path):
    class Dies(Watched):
        def add_gaussian(self, tensor: torch.Tensor, std: float) -> None:
            if self.drawn:
                raise MemoryError
            super().add_gaussian(tensor, std)

    with pytest.raises(MemoryError):
        train(tmp_path, Dies())
    (charge,) = books(tmp_path).charges("notes")
    assert [path.name for path in checkpoints(tmp_path)] == [f"{charge.id}.0.safetensors"]
    before, noise = books(tmp_path).balance("notes"), Watched()
    _, reservation = train(tmp_path, noise)
    assert (reservation.resumed, len(noise.drawn)) == (BETWEEN, STEPS - BETWEEN)
    assert books(tmp_path).balance("notes") == before


def test_a_short_training_begins_a_quarter_of_its_steps_at_once(tmp_path):
    begun = []

    class Seen(dpsgd._OneAttempt):
        def begin(self, steps: int) -> None:
            begun.append(steps)
            super().begin(steps)

    asked = replace(query(tmp_path), checkpoint_steps=50)
    asked.run_steps(ROWS, NoiseSource(), Seen(STEPS, "charge", lasting=True))
    assert begun == [3, 3, 3, 1]


def test_a_training_that_learned_nothing_and_has_no_step_left_does_not_go_on(place):
    (charge,), (path,) = books(place).charges("notes"), checkpoints(place)
    path = path.rename(path.with_name(f"{charge.id}.0.safetensors"))
    (place / CHECKPOINTS).mkdir(parents=True)
    shutil.copy(path, place / CHECKPOINTS)
    assert continues(charge, place)
    assert not continues(replace(charge, steps=charge.steps_begun), place)


def test_a_count_that_starts_at_zero_again_is_seen(place, monkeypatch):
    steps = dpsgd._Trainer._steps

    def mutant(self, meter):
        meter.begun = 0
        return steps(self, meter)

    monkeypatch.setattr(dpsgd._Trainer, "_steps", mutant)
    with pytest.raises((AssertionError, LedgerError)):
        check_resumed(place)


def check_order(folder: Path) -> None:
    """No coin and no noise is drawn before the ledger has counted the step."""
    begun = []

    class Ordered(Watched):
        def bernoulli(self, size: int, rate: float):
            begun.append(books(folder).charges("notes")[0].steps_begun)
            return super().bernoulli(size, rate)

    noise = Ordered()
    train(folder, noise)
    assert [count >= step for step, count in enumerate(begun, start=1)] == [True] * STEPS
    assert begun[0] == BETWEEN


def test_every_step_is_counted_before_it_draws(tmp_path):
    check_order(tmp_path)


def test_counting_after_the_draw_is_seen(tmp_path, monkeypatch):
    def mutant(self, meter):
        for step in range(meter.limit):
            yield step
            meter.begin(1)

    monkeypatch.setattr(dpsgd._Trainer, "_steps", mutant)
    with pytest.raises(AssertionError):
        check_order(tmp_path)


def test_it_goes_on_from_the_weights_and_moments_of_the_checkpoint(place):
    """The one step left starts from the checkpoint: its move is as Adam's seventh step, at the last step's rate."""
    asked, (path,) = query(place), checkpoints(place)
    noise = Watched()
    weights = dict(asked.model.named_parameters())
    update = asked.optimiser.start(list(weights.values()))
    load_checkpoint(path, asked.model, [update])
    model, _ = train(place, noise)
    state = update.state[weights["weight"]]
    assert float(state["step"]) == 2 * BETWEEN
    assert torch.equal(model.weight, weights["weight"])  # the rate at the last step is 0: nothing else may move it


def test_nothing_that_was_drawn_is_kept(place):
    (path,) = checkpoints(place)
    state = {f"update/0/0/{key}" for key in ("step", "exp_avg", "exp_avg_sq")}
    with safe_open(path, framework="pt") as file:
        assert set(file.keys()) == {"model/weight", *state}
        assert file.metadata() == {"update/0": "AdamW"}
    assert load_file(path)["model/weight"].shape == (WIDTH, 1)


@pytest.mark.parametrize("noise_correction", [False, True])
def test_two_attempts_end_as_one_that_was_not_stopped(tmp_path, noise_correction):
    """The noise is a test's, and no step is lost between the attempts: every bit must be the same."""
    asked = query(tmp_path)
    plan, optimiser = replace(asked.plan, clipping="separate", losses=2), asked.optimiser
    optimiser = replace(optimiser, eps=1e-3, noise_correction=noise_correction)
    asked = replace(asked, plan=plan, optimiser=optimiser, losses=lambda model, ids: losses(model, ids) * 2)
    whole = asked.run(ROWS, NoiseSource(seed=5))
    noise = NoiseSource(seed=5)
    asked.run_steps(ROWS, noise, dpsgd._OneAttempt(2 * BETWEEN, "charge", lasting=True))
    rest = dpsgd._OneAttempt(STEPS, "charge", 2 * BETWEEN, resumed=True)
    assert torch.equal(asked.run_steps(ROWS, noise, rest).weight, whole.weight)


def stepped(optimiser: Optimiser, weight: torch.Tensor) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model of this weight and its optimiser, after one step."""
    model = nn.Module()
    model.weight = nn.Parameter(weight)
    update = optimiser.start([model.weight])
    model.weight.grad = torch.ones_like(model.weight)
    update.step()
    return model, update


@pytest.mark.parametrize("noise_correction", [False, True])
def test_what_an_optimiser_knows_keeps_its_type_and_layout(tmp_path, noise_correction):
    optimiser = Optimiser(0.01, 0.0, (0.9, 0.98), 1e-8, 0.0, noise_correction=noise_correction)
    model, update = stepped(optimiser, torch.randn(3, 4).t())
    save_checkpoint(tmp_path, "charge", 1, model, [update])
    again = nn.Module()
    again.weight = nn.Parameter(torch.zeros(3, 4).t())
    restored = optimiser.start([again.weight])
    load_checkpoint(tmp_path / "charge.1.safetensors", again, [restored])
    assert torch.equal(again.weight, model.weight)
    before, after = update.state[model.weight], restored.state[again.weight]
    assert {key: type(value) for key, value in after.items()} == {key: type(value) for key, value in before.items()}
    for key, value in before.items():
        assert after[key] == value if isinstance(value, int) else torch.equal(after[key], value)
        assert getattr(after[key], "dtype", None) == getattr(value, "dtype", None)
    moments = [value for value in after.values() if torch.is_tensor(value) and value.dim()]
    assert [value.stride() for value in moments] == [model.weight.stride()] * 2


OTHERS = {
    "width": lambda: (nn.Embedding(WIDTH, 2), 1, False),
    "names": lambda: (nn.ParameterDict({"other": torch.zeros(WIDTH, 1)}), 1, False),
    "more": lambda: (nn.Linear(1, WIDTH), 1, False),
    "type": lambda: (nn.Embedding(WIDTH, 1).double(), 1, False),
    "frozen": lambda: (nn.Embedding(WIDTH, 1).requires_grad_(False), 1, False),
    "optimiser": lambda: (nn.Embedding(WIDTH, 1), 1, True),
    "fewer optimisers": lambda: (nn.Embedding(WIDTH, 1), 0, False),
    "more optimisers": lambda: (nn.Embedding(WIDTH, 1), 2, False),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_checkpoint_of_another_model_or_optimiser_is_named(place, other):
    (path,) = checkpoints(place)
    model, count, noise_correction = OTHERS[other]()
    optimiser = replace(query(place).optimiser, noise_correction=noise_correction)
    updates = [optimiser.start(list(model.parameters())) for _ in range(count)]
    with pytest.raises(EngineError, match=r"cannot be continued from.*Delete it"):
        load_checkpoint(path, model, updates)


def test_the_checkpoint_goes_with_its_charge(place):
    (path,) = checkpoints(place)
    (charge,) = books(place).charges("notes")
    folder = place / "checkpoints"
    assert find_checkpoint(folder, charge.id, charge.steps_begun) == path
    assert find_checkpoint(folder, "another", charge.steps_begun) is None


def test_a_workspace_knows_what_it_can_continue(place):
    """`palimpsest plan` reads the same, so that a training that goes on is not counted twice."""
    (charge,) = books(place).charges("notes")
    assert not continues(charge, place)
    shutil.move(place / "checkpoints", place / CHECKPOINTS)
    assert continues(charge, place)
    assert not continues(charge, place / "elsewhere")
    assert not continues(replace(charge, noise_fixed=True), place)
    assert not continues(replace(charge, steps=None), place)


def test_an_old_copy_of_the_ledger_continues_nothing(place):
    """A ledger that has counted fewer steps than the checkpoint holds would let the others run unpaid."""
    (charge,) = books(place).charges("notes")
    assert find_checkpoint(place / "checkpoints", charge.id, 2 * BETWEEN - 1) is None


def test_without_its_checkpoint_a_training_is_charged_again(place):
    (path,) = checkpoints(place)
    path.unlink()
    noise = Watched()
    train(place, noise)
    assert [charge.state for charge in books(place).charges("notes")] == ["begun", "committed"]
    assert len(noise.drawn) == STEPS


def test_a_seed_continues_nothing_and_keeps_nothing(place):
    train(place, Watched(seed=1))
    first, second = books(place).charges("notes")
    assert (first.state, second.state) == ("begun", "committed")
    assert [path.name.split(".")[0] for path in checkpoints(place)] == [first.id]


CUTS = {
    "empty": lambda whole: b"",
    "garbage": lambda whole: b"half of it",
    "header cut": lambda whole: whole[:20],
    "cut": lambda whole: whole[:-1],
    "another format": lambda whole: b"PK\x03\x04" + whole[4:],
}


@pytest.mark.parametrize("cut", CUTS)
def test_a_broken_checkpoint_is_named(place, cut):
    (path,) = checkpoints(place)
    path.write_bytes(CUTS[cut](path.read_bytes()))
    with pytest.raises(EngineError, match=r"cannot be continued from.*Delete it"):
        train(place, NoiseSource())


def test_only_the_newest_checkpoint_stays(tmp_path):
    asked = query(tmp_path)
    for begun in (3, 6):
        save_checkpoint(tmp_path / "kept", "charge", begun, asked.model, [])
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["charge.6.safetensors"]
