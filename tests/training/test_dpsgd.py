"""DP-SGD: what is charged, what is sampled, clipped and noised; and that each planted fault is seen.

The checks are functions that raise AssertionError; they run on the code as it is and on the code with one fault.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache

import dp_accounting as dpa
import numpy as np
import pytest
import torch
from scipy.stats import beta, norm
from torch import nn

from palimpsest.errors import PalimpsestError
from palimpsest.privacy import accounting
from palimpsest.privacy.entropy import NoiseSource, grid_of
from palimpsest.privacy.query import is_registered
from palimpsest.privacy.rows import PrivateRow
from palimpsest.records.record import Record
from palimpsest.training import bookkeeping, dpsgd, ghost
from palimpsest.training.dpsgd import TrainQuery
from palimpsest.training.engine import EngineError
from palimpsest.training.optimiser import Optimiser
from palimpsest.training.plan import TrainingPlan
from palimpsest.training.team import Team

# With these the weights move by minus the privatised gradient, so that the released model shows it.
PLAIN = Optimiser(
    learning_rate=1e9, final_learning_rate_share=1.0, betas=(0.0, 0.0), eps=1e9, weight_decay=0.0, warmup_share=0.0
)
VOCABULARY, WIDTH, TOKENS = 31, 16, 6  # small enough for Gram matrices to be the cheaper form


def make_plan(**changes) -> TrainingPlan:
    base = TrainingPlan(
        rate=1.0, steps=1, clipping_norm=0.5, noise_multiplier=1.2, divisor=7.0, clipping="joint", losses=1
    )
    return dataclasses.replace(base, **changes)


class Tied(nn.Module):
    """A table that is also the head: the smallest model with a cross term."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.table.weight
        self.double()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(ids))


def encode(rows: Sequence[PrivateRow]) -> torch.Tensor:
    """(B, TOKENS) ids from the characters; 0 pads."""
    assert rows, "the model was called without a row"
    ids = [[ord(character) % VOCABULARY for character in row.text[:TOKENS]] for row in rows]
    return torch.tensor([line + [0] * (TOKENS - len(line)) for line in ids])


def own_logit(model: Tied, ids: torch.Tensor) -> tuple[torch.Tensor]:
    """Each token's own logit, |w|^2: the table's and the head's gradients then point the same way."""
    return (model(ids).gather(2, ids[..., None]).sum((1, 2)),)


def two_losses(model: Tied, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return own_logit(model, ids)[0], 3.0 * own_logit(model, ids)[0]


def marked(model: Tied, ids: torch.Tensor) -> tuple[torch.Tensor]:
    """A tilde makes the gradient not a number, a plus a million times larger."""
    factors = torch.ones(len(ids), dtype=torch.float64)
    for mark, factor in (("~", math.nan), ("+", 1e6)):
        factors = factors.masked_fill((ids == ord(mark) % VOCABULARY).any(1), factor)
    return (factors * own_logit(model, ids)[0],)


def make_query(plan: TrainingPlan, model: nn.Module | None = None, losses: Callable = own_logit, **more) -> TrainQuery:
    fields = {"encode": encode, "micro_batch": 3, "engine": bookkeeping.BookkeepingEngine, **more}
    return TrainQuery(plan=plan, optimiser=PLAIN, model=model or Tied(), losses=losses, **fields)


def rows_of(*texts: str) -> list[PrivateRow]:
    return [PrivateRow(text, "a") for text in texts]


# --- what is charged -------------------------------------------------------------------------------------------------


def test_the_event_says_what_runs():
    step = dpa.PoissonSampledDpEvent(0.01, dpa.GaussianDpEvent(1.1))
    assert make_plan(rate=0.01, steps=9, noise_multiplier=1.1).event() == dpa.SelfComposedDpEvent(step, 9)


def test_a_reference_run_is_not_private():
    assert make_plan(noise_multiplier=0.0).event() == dpa.NonPrivateDpEvent()


def test_two_separate_losses_cost_a_factor_of_root_two():
    joint = make_plan(noise_multiplier=1.1, losses=2)
    separate = dataclasses.replace(joint, clipping="separate")
    ratio = joint.event().event.event.noise_multiplier / separate.event().event.event.noise_multiplier
    assert ratio == pytest.approx(math.sqrt(2), rel=1e-15)


@pytest.mark.parametrize(("size", "sigma", "nominal", "real"), [(9484, 0.7619, 3.0, 8.4), (96000, 0.6087, 3.0, 9.8)])
def test_two_losses_charged_once_understate_epsilon(size, sigma, nominal, real):
    """Batch 128, 4 epochs, delta 1/N, Renyi accountant: SST-2 (80 % of 11,855) and AG News (80 % of 120,000)."""
    joint = make_plan(rate=128 / size, steps=4 * size // 128, noise_multiplier=sigma, losses=2)
    separate = dataclasses.replace(joint, clipping="separate")
    assert accounting.epsilon(joint.event(), 1 / size, "rdp") == pytest.approx(nominal, abs=0.01)
    assert accounting.epsilon(separate.event(), 1 / size, "rdp") == pytest.approx(real, abs=0.05)


@pytest.mark.parametrize(
    "bad",
    [
        {"rate": 0.0},
        {"rate": 1.5},
        {"steps": 0},
        {"clipping_norm": math.inf},
        {"clipping_norm": 1e-155},
        {"noise_multiplier": -1.0},
        {"noise_multiplier": math.nan},
        {"divisor": 0.0},
        {"clipping": "both"},
        {"losses": 0},
    ],
)
def test_a_plan_out_of_range_is_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        make_plan(**bad)


def test_the_query_is_registered():
    assert is_registered(make_query(make_plan()))


# --- the optimiser ---------------------------------------------------------------------------------------------------


def test_the_learning_rate_rises_and_falls_linearly():
    optimiser = dataclasses.replace(PLAIN, learning_rate=2.0, final_learning_rate_share=0.1, warmup_share=0.2)
    rates = [optimiser.rate_at(step, 10) for step in range(10)]
    assert rates[:3] == pytest.approx([1.0, 2.0, 2.0])
    assert rates[-1] == pytest.approx(0.2)
    assert np.diff(rates[2:]) == pytest.approx(np.full(7, -1.8 / 7))


def test_one_step_of_adam():
    """Adam's first step moves every weight by the learning rate against the gradient's sign."""
    optimiser = Optimiser(0.01, 1.0, (0.9, 0.999), 1e-12, 0.0)
    query = dataclasses.replace(make_query(make_plan(noise_multiplier=0.0)), optimiser=optimiser)
    trained = query.run(rows_of("abc"), NoiseSource())
    moved = trained.table.weight - query.model.table.weight
    used = sorted({ord(c) % VOCABULARY for c in "abc"} | {0})
    assert moved[used].abs().sub(0.01).abs().max() < 1e-9
    assert torch.equal(moved[used].sign(), -query.model.table.weight[used].sign())


def test_separate_losses_keep_moments_of_their_own():
    """Algorithm 1: both gradients at the same weights, then two updates, each with its own moments."""
    optimiser = Optimiser(0.01, 1.0, (0.9, 0.999), 1e-12, 0.0)
    plan = make_plan(noise_multiplier=0.0, clipping="separate", losses=2)
    query = dataclasses.replace(make_query(plan, losses=two_losses), optimiser=optimiser)
    moved = query.run(rows_of("abc"), NoiseSource()).table.weight - query.model.table.weight
    assert moved[0].abs().sub(0.02).abs().max() < 1e-9


@pytest.mark.parametrize("noise_correction", [False, True])
def test_each_loss_may_have_a_learning_rate_of_its_own(noise_correction: bool):
    """Algorithm 1: the updates of the second loss have a rate of their own, and no other charge."""
    optimiser = Optimiser(
        0.01, 1.0, (0.9, 0.999), 1e-12, 0.0, noise_correction=noise_correction, share=lambda which, _: (1.0, 0.3)[which]
    )
    plan = make_plan(noise_multiplier=0.0, clipping="separate", losses=2)
    query = dataclasses.replace(make_query(plan, losses=two_losses), optimiser=optimiser)
    moved = query.run(rows_of("abc"), NoiseSource()).table.weight - query.model.table.weight
    assert moved[0].abs().sub(0.013).abs().max() < 1e-9
    assert query.event() == make_query(plan, losses=two_losses).event()  # charged the same


# --- running ---------------------------------------------------------------------------------------------------------


def test_training_lowers_the_loss_and_leaves_the_given_model_alone():
    query = make_query(make_plan(noise_multiplier=0.0, steps=5))
    before = query.model.table.weight.detach().clone()
    trained = query.run(rows_of("abcd", "bc"), NoiseSource())
    batch = encode(rows_of("abcd", "bc"))
    assert own_logit(trained, batch)[0].sum() < own_logit(query.model, batch)[0].sum()
    assert torch.equal(query.model.table.weight, before)
    assert trained.head.weight is trained.table.weight


@pytest.mark.parametrize("clipping", ["joint", "separate"])
def test_micro_batches_change_no_result(clipping):
    losses, count = (two_losses, 2) if clipping == "separate" else (own_logit, 1)
    plan = make_plan(steps=3, clipping=clipping, losses=count, noise_multiplier=0.0)
    rows = rows_of("abcdef", "b", "cc", "", "deadbeef", "xyz", "q")
    released = [make_query(plan, losses=losses, micro_batch=size).run(rows, NoiseSource()) for size in (1, 3, 100)]
    for other in released[1:]:
        torch.testing.assert_close(other.table.weight, released[0].table.weight, rtol=1e-12, atol=1e-12)


def test_empty_batches_are_steps():
    plan = make_plan(rate=1e-12, steps=4)
    for rows in (rows_of("abc"), []):
        source = Replay(plan)
        make_query(plan).run(rows, source)
        assert len(source.inputs) == 4
        assert all(total.eq(0).all() for total in source.inputs)


def test_only_parameters_are_released():
    class Remembering(Tied):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(TOKENS, dtype=torch.long))

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            self.seen, self.last = ids[0].clone(), ids
            return super().forward(ids)

    trained = make_query(make_plan(), Remembering()).run(rows_of("abcdef"), NoiseSource())
    assert trained.seen.eq(0).all()
    assert not hasattr(trained, "last")
    assert all(parameter.grad is None for parameter in trained.parameters())


def test_dropout_is_off():
    """A mask is drawn in the order of the batch: with it, one record would move the gradients of the others."""

    class Dropping(Tied):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return nn.functional.dropout(super().forward(ids), 0.5, self.training)

    plan = make_plan(noise_multiplier=0.0)
    weights = [make_query(plan, Dropping().train()).run(rows_of("abc"), NoiseSource()).table.weight for _ in range(2)]
    assert torch.equal(*weights)


def test_an_empty_batch_of_a_transposed_weight_is_a_step():
    model = nn.Linear(3, 2, bias=False).double()
    model.weight = nn.Parameter(model.weight.detach().t().contiguous().t())
    assert not model.weight.is_contiguous()
    trained = make_query(make_plan(rate=1e-12), model).run([], NoiseSource())
    assert not torch.equal(trained.weight, model.weight)


def test_a_transposed_weight_steps_like_any_other():
    def trained(layout: Callable) -> torch.Tensor:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(VOCABULARY, 3), nn.Linear(3, 4))
        model[1].weight = nn.Parameter(layout(model[1].weight.detach()))
        query = make_query(make_plan(noise_multiplier=0.0), model, lambda net, ids: (net(ids).square().sum((1, 2)),))
        return query.run(rows_of("abc", "bcd"), NoiseSource(3))[1].weight

    assert torch.allclose(trained(lambda weight: weight.t().contiguous().t()), trained(torch.clone))


def test_frozen_parameters_stay():
    model = Tied()
    model.table.weight.requires_grad_(False)
    model.bias = nn.Linear(1, VOCABULARY).double()
    trained = make_query(make_plan(), model).run(rows_of("abc"), NoiseSource())
    assert torch.equal(trained.table.weight, model.table.weight)
    assert not torch.equal(trained.bias.weight, model.bias.weight)


def test_the_number_of_losses_is_the_plans():
    with pytest.raises(EngineError, match="returned 2 losses where the plan accounts for 1"):
        make_query(make_plan(), losses=two_losses).run(rows_of("abc"), NoiseSource())


def test_processes_share_the_units_in_whatever_order_each_has_read_them():
    rows, query = rows_of("ab", "cde", "f", "ghij"), make_query(make_plan())

    def summed(own: Sequence[PrivateRow], rank: int, size: int) -> torch.Tensor:
        trainer = dpsgd._Trainer(query, own)
        trainer._team = Team(rank, size)
        values, sums = bookkeeping.room(trainer._parameters)
        trainer._add_clipped([sums], trainer._units[rank::size], 0)
        return values

    shared = summed(rows, 0, 2) + summed(rows[::-1], 1, 2)
    assert torch.allclose(shared, summed(rows, 0, 1), rtol=0, atol=1e-12)


class Unread(list):
    def __len__(self) -> int:
        raise AssertionError("rows were read")


def test_a_device_without_the_processors_noise_is_refused_before_a_private_row_is_read(monkeypatch):
    def refused(device: torch.device) -> None:
        raise PalimpsestError(f"{device.type} draws other noise.", "Train elsewhere.")

    monkeypatch.setattr(dpsgd, "device_noise", refused)
    with pytest.raises(PalimpsestError, match="cpu draws other noise"):
        make_query(make_plan()).run(Unread(), NoiseSource())


def test_an_unsound_loss_is_found_before_a_private_row_is_read():
    def mean(model, ids):
        return (own_logit(model, ids)[0] / len(ids),)

    probe = (Record("abc", "a"), Record("de", "a"), Record("fghij", "a"))
    with pytest.raises(EngineError, match="size of the batch"):
        make_query(make_plan(), losses=mean, probe=probe).run(Unread(), NoiseSource())
    make_query(make_plan(), probe=probe).run(rows_of("abc"), NoiseSource())


def test_progress_tells_steps_only(capsys):
    make_query(make_plan(steps=2), name="lm").run(rows_of("secret", "words"), NoiseSource())
    written = capsys.readouterr()
    assert written.out == ""
    lines = written.err.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("progress lm 2/2 ")


# --- T1: neighbouring inputs move each mechanism's input by at most its sensitivity -----------------------------------


class Replay(NoiseSource):
    """Forces the coins and every mechanism's output, and notes the mechanism's input."""

    def __init__(self, plan: TrainingPlan) -> None:
        super().__init__(seed=0)
        self.inputs: list[torch.Tensor] = []
        self.sizes: list[int] = []
        self._plan, self._outputs = plan, NoiseSource(seed=1)

    def add_gaussian(self, tensor: torch.Tensor, std: float) -> None:
        assert std == pytest.approx(self._plan.noise_multiplier * self._plan.clipping_norm, rel=1e-4)
        self.inputs.append(tensor.clone())
        self._outputs.add_gaussian(tensor.zero_(), std)

    def bernoulli(self, size: int, rate: float) -> np.ndarray:
        assert rate == self._plan.rate
        self.sizes.append(size)
        return np.ones(size, dtype=bool) if rate == 1.0 else super().bernoulli(size, rate)


BASE = ("abc", "abcd", "zz")
NEIGHBOURS = {
    "one more": "hello",
    "empty text": "",
    "very long text": "abc" * 4000,
    "not a number": "~",
    "outlier": "+",
    "duplicate": "abc",
    "duplicate character": "aaaaaa",
}


def check_sensitivity(clipping: str = "joint") -> None:
    """Each clipped sum moves by at most C; with the outputs frozen nothing else moves."""
    losses = {"joint": marked, "separate": two_losses}[clipping]
    plan = make_plan(steps=3, clipping=clipping, losses=2 if clipping == "separate" else 1)
    for text in NEIGHBOURS.values():
        sources, released = [], []
        for rows in (rows_of(*BASE), rows_of(*BASE, text)):
            sources.append(Replay(plan))
            released.append(make_query(plan, losses=losses, micro_batch=9).run(rows, sources[-1]))
        assert torch.allclose(released[0].table.weight, released[1].table.weight, rtol=0.0, atol=1e-9)
        moves = [(one - other).norm() for one, other in zip(sources[0].inputs, sources[1].inputs, strict=True)]
        assert len(moves) == 3 * plan.passes
        assert max(moves) <= plan.clipping_norm * (1 + 1e-9)


class Untied(Tied):
    """Two layers with weights of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(WIDTH, VOCABULARY).double()


class Alike(Tied):
    """Layers of one shape, whose records are worked on together."""

    def __init__(self) -> None:
        super().__init__()
        self.between = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(3)]).double()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.between(self.table(ids)))


def check_sensitivity_over_layers(model: type[Tied] = Untied) -> None:
    """The sums of all parameters together move by at most C."""
    plan, together = make_plan(), []
    for rows in (rows_of(*BASE), rows_of(*BASE, "hello")):
        source = Replay(plan)
        make_query(plan, model()).run(rows, source)
        together.append(torch.cat([total.flatten() for total in source.inputs]))
    assert (together[1] - together[0]).norm() <= plan.clipping_norm * (1 + 1e-9)


@pytest.mark.parametrize("model", [Untied, Alike])
def test_t1_all_layers_together_move_by_at_most_the_clipping_norm(model):
    check_sensitivity_over_layers(model)


@pytest.mark.parametrize("clipping", ["joint", "separate"])
def test_t1_neighbours_move_a_sum_by_at_most_the_clipping_norm(clipping):
    check_sensitivity(clipping)


def test_t1_two_separate_sums_together_move_by_root_two():
    plan = make_plan(clipping="separate", losses=2)
    inputs = []
    for rows in (rows_of(*BASE), rows_of(*BASE, "hello")):
        source = Replay(plan)
        make_query(plan, losses=two_losses).run(rows, source)
        inputs.append(torch.cat([total.flatten() for total in source.inputs]))
    assert (inputs[1] - inputs[0]).norm() == pytest.approx(math.sqrt(2) * plan.clipping_norm, rel=1e-12)


def test_t1_moments_follow_from_noisy_sums_alone():
    """With the noisy sums frozen, an optimiser that remembers moves the weights alike with and without a record."""
    plan, adam = make_plan(steps=3), Optimiser(0.01, 1.0, (0.9, 0.999), 1e-8, 0.0)
    query = dataclasses.replace(make_query(plan, losses=marked), optimiser=adam)
    alone, joined = (query.run(rows_of(*texts), Replay(plan)) for texts in (BASE, (*BASE, "+")))
    assert torch.equal(alone.table.weight, joined.table.weight)


# --- T2: the noise and the sampler have the planned distribution ------------------------------------------------------


def zero_gradient(model: nn.Module, ids: torch.Tensor) -> tuple[torch.Tensor]:
    return (0.0 * model(ids).sum((1, 2)),)


def check_noise(coordinates: int = 100_000) -> None:
    """The released weights' variance is steps * (sigma * C / divisor)^2, whatever the batch and its split."""
    for count, micro_batch in [(8, 1), (8, 8), (0, 1)]:
        plan = make_plan(steps=2)
        model = nn.Embedding(coordinates, 1).double()
        query = make_query(plan, model, zero_gradient, micro_batch=micro_batch)
        moved = query.run(rows_of(*"abcdefgh"[:count]), NoiseSource()).weight - model.weight
        expected = plan.steps * (plan.noise_multiplier * plan.clipping_norm / plan.divisor) ** 2
        deviation = (float(moved.detach().square().mean()) / expected - 1.0) / math.sqrt(2.0 / coordinates)
        assert abs(deviation) <= 5.0  # a false alarm in two million


def test_t2_noise_is_added_once_per_logical_batch():
    check_noise()


def test_t2_noise_is_new_for_every_step_pass_and_parameter():
    draws = []

    class Noting(NoiseSource):
        def add_gaussian(self, tensor: torch.Tensor, std: float) -> None:
            draws.append(torch.zeros_like(tensor))
            super().add_gaussian(draws[-1], std)
            tensor.add_(draws[-1])

    model = nn.Sequential(nn.Embedding(2000, 1), nn.Linear(2000, 1, bias=False))
    plan = make_plan(steps=3, clipping="separate", losses=2)
    make_query(plan, model, lambda m, ids: zero_gradient(m[0], ids) * 2).run(rows_of("a"), Noting())
    assert len(draws) == 6
    correlations = np.corrcoef(np.stack([half for draw in draws for half in draw.numpy().reshape(2, -1)]))
    assert np.abs(correlations - np.eye(12)).max() <= 5.5 / math.sqrt(2000)


@pytest.mark.parametrize("weights", [1, 31 * 16, 82_000_000])
@pytest.mark.parametrize("eta", [0.0, 0.003, 0.5])
@pytest.mark.parametrize("noise_multiplier", [0.4, 1.2, 30.0])
def test_t2_noise_covers_the_rounding_of_sums(weights, eta, noise_multiplier):
    """In exact arithmetic: std >= sigma (C (1 + eta) + grid sqrt(d)), so the charged multiplier is an honest one."""
    plan = make_plan(noise_multiplier=noise_multiplier, eta=eta)
    std = plan.noise_std(weights)
    room = Fraction(std) / Fraction(noise_multiplier) - Fraction(plan.clipping_norm) * (1 + Fraction(eta))
    assert room > 0
    assert room**2 >= Fraction(grid_of(std)) ** 2 * weights
    assert std <= noise_multiplier * plan.clipping_norm * (1.0 + eta) * (
        1.0 + noise_multiplier * weights**0.5 * 2.0**-23
    )
    assert plan.event() == make_plan(noise_multiplier=noise_multiplier).event()


class Asked(NoiseSource):
    """Notes the deviations that are asked of it."""

    def __init__(self) -> None:
        super().__init__(seed=0)
        self.stds: list[float] = []

    def add_gaussian(self, tensor: torch.Tensor, std: float) -> None:
        self.stds.append(std)


def test_t2_all_weights_of_a_pass_together_are_rounded_and_covered():
    source, plan = Asked(), make_plan(eta=0.25)
    make_query(plan, nn.Sequential(nn.Embedding(1000, 7), nn.Linear(7, 3))).run([], source)
    assert source.stds == [plan.noise_std(7000 + 24)] * plan.steps


def test_t2_the_optimiser_knows_the_variance_that_is_added(monkeypatch):
    variances = []

    def start(self, parameters, variance):
        variances.append(variance)
        return torch.optim.SGD(parameters, 0.1)

    monkeypatch.setattr(Optimiser, "start", start)
    source, plan = Asked(), make_plan(eta=0.25)
    make_query(plan, Untied()).run([], source)
    assert variances == [pytest.approx((source.stds[0] / plan.divisor) ** 2, rel=1e-12)]
    assert variances[0] > (1.2 * plan.noise_multiplier * plan.clipping_norm / plan.divisor) ** 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_t2_no_low_bit_of_a_sum_is_left(dtype):
    """Two sums that are alike on the grid come out alike, bit for bit, whatever they were below it."""
    plan, random = make_plan(divisor=1.0), torch.Generator().manual_seed(0)
    grid = grid_of(plan.noise_std(5000))
    whole = torch.randint(-(2**20), 2**20, (5000,), generator=random) * grid
    below = (torch.rand(5000, generator=random, dtype=torch.float64) - 0.5) * 0.9 * grid
    sums = [(whole + part).to(dtype) for part in (below, torch.zeros(5000))]
    assert not torch.equal(*sums)
    for values in sums:
        dpsgd.privatise(values, plan, NoiseSource(seed=4))
    assert torch.equal(*sums)
    if dtype == torch.float64:  # wide enough for all of a sum's steps
        steps = sums[0].numpy() / grid
        assert np.array_equal(steps, np.rint(steps))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_reference_run_divides_and_does_nothing_else(dtype):
    sums = torch.rand(1000, generator=torch.Generator().manual_seed(0), dtype=dtype)
    expected = sums / 7.0
    dpsgd.privatise(sums, make_plan(noise_multiplier=0.0, eta=0.1), NoiseSource())
    assert torch.equal(sums, expected)


def check_sampler(rate: float = 0.1, steps: int = 2000) -> None:
    """Each of fifty rows joins at the planned rate, independently of the others; batches may be empty."""
    source, joined = NoiseSource(), np.zeros((2000, 50))
    for step in range(steps):
        joined[step, dpsgd.poisson_batch(50, rate, source)] = 1
    sizes, spread = joined.sum(1), math.sqrt(rate * (1 - rate))
    assert abs(joined.mean() - rate) <= 5 * spread / math.sqrt(joined.size)
    assert np.abs(joined.mean(0) - rate).max() <= 5.5 * spread / math.sqrt(steps)
    assert abs(sizes.var() / (50 * spread**2) - 1) <= 5 * math.sqrt(2 / steps)  # fixed-size batches have none
    assert (sizes == 0).any()


def test_t2_every_row_enters_independently_at_the_planned_rate():
    check_sampler()


def test_t2_every_step_draws_a_batch_of_its_own():
    """Forty rows at a rate of a half: two batches are alike once in 2^40, and rows join as often as planned."""
    batches: list[frozenset[str]] = []

    def noting(rows: Sequence[PrivateRow]) -> torch.Tensor:
        batches.append(frozenset(row.text for row in rows))
        return torch.zeros(len(rows), dtype=torch.long)

    plan, rows = make_plan(rate=0.5, steps=50), rows_of(*map(str, range(40)))
    make_query(plan, nn.Embedding(2, 1), one_entry, encode=noting, micro_batch=40).run(rows, NoiseSource())
    assert len(batches) == len(set(batches)) == plan.steps
    assert abs(sum(map(len, batches)) - 1000) <= 6 * math.sqrt(2000 * 0.25)


def check_steps() -> None:
    """As many noisy sums as the event composes."""
    plan = make_plan(rate=0.5, steps=6)
    source = Replay(plan)
    make_query(plan).run(rows_of("abc", "de"), source)
    assert len(source.inputs) == plan.event().count


def test_t2_every_step_is_charged():
    check_steps()


def check_fresh() -> None:
    """Two runs of one plan share no noise, and the noise is not on a coarse grid."""
    model = nn.Embedding(5000, 1)
    moved = [make_query(make_plan(), model, zero_gradient).run([], NoiseSource()).weight for _ in range(2)]
    one, other = ((weight - model.weight).detach().flatten() for weight in moved)
    assert abs(np.corrcoef(one.numpy(), other.numpy())[0, 1]) <= 5.5 / math.sqrt(5000)
    noise = torch.zeros(5000)
    NoiseSource().add_gaussian(noise, 1.0)
    assert len(noise.unique()) > 4900


def test_t2_noise_is_fresh_and_fine():
    check_fresh()


# --- T3: orthogonal canaries through the whole query ------------------------------------------------------------------


def one_entry(model: nn.Embedding, ids: torch.Tensor) -> tuple[torch.Tensor]:
    return (-10.0 * model(ids)[:, 0],)


def one_entry_twice(model: nn.Embedding, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return one_entry(model, ids) * 2


def check_canaries(
    clipping: str = "joint", claim: Callable[[TrainingPlan], dpa.DpEvent] = TrainingPlan.event, count: int = 10_000
) -> None:
    """Fail where fixed-threshold attacks on independent trials refute the charged trade-off curve (1 in a thousand).

    Canary i's gradient is the i-th axis, so the released coordinates are independent trials of one Gaussian mechanism.
    """
    passes = 2 if clipping == "separate" else 1
    plan = make_plan(clipping=clipping, losses=passes)
    members = [PrivateRow(str(index)) for index in range(0, 2 * count, 2)]
    query = make_query(
        plan,
        nn.Embedding(2 * count, 1).double(),
        losses={"joint": one_entry, "separate": one_entry_twice}[clipping],
        encode=lambda rows: torch.tensor([int(row.text) for row in rows]),
        micro_batch=3000,
    )
    moved = (query.run(members, NoiseSource()).weight - query.model.weight).detach()[:, 0] * plan.divisor
    above = (moved > passes * plan.clipping_norm / 2).numpy()
    true_low = beta.ppf(0.0005, above[::2].sum(), count - above[::2].sum() + 1)
    false_high = beta.ppf(0.9995, above[1::2].sum() + 1, count - above[1::2].sum())
    mu = 1.0 / claim(plan).event.event.noise_multiplier
    assert true_low <= norm.cdf(mu + norm.ppf(false_high)), "the claim is refuted"
    assert true_low > false_high, "the attack has no power"


@pytest.mark.parametrize("clipping", ["joint", "separate"])
def test_t3_canaries_do_not_refute_the_charge(clipping):
    check_canaries(clipping)


# --- mutants: one fault each, and the check that sees it --------------------------------------------------------------


Engine = bookkeeping.BookkeepingEngine


def without_clipping(patch):
    original = Engine._clip
    patch.setattr(
        Engine, "_clip", lambda self, parts, weights, c, totals, *_: original(self, parts, weights, math.inf, totals)
    )


def clipping_the_batch_mean(patch):
    original = Engine._clip

    def mutant(self, parts, weights, clipping_norm, totals, *_):
        found = original(self, parts, weights, math.inf, {})
        total = math.sqrt(sum(float(g.square().sum()) for g in found.gradients.values()))
        scale = min(1.0, len(weights) * clipping_norm / max(total, 1e-300))
        for name, gradient in found.gradients.items():
            totals[name].add_(gradient * scale)
        return found

    patch.setattr(Engine, "_clip", mutant)


def clipping_each_layer(patch):
    original = Engine._clip

    def mutant(self, parts, weights, clipping_norm, totals, *_):
        found = [original(self, {p: part}, weights, clipping_norm, totals) for p, part in list(parts.items())]
        return found[0]

    patch.setattr(Engine, "_clip", mutant)


def norm_without_the_head(patch):
    original = ghost.Ghost.squared_norms

    def mutant(self, like):
        return original(ghost.Ghost(tuple(use for use in self.uses if use.is_lookup)), like)

    patch.setattr(ghost.Ghost, "squared_norms", mutant)


def norm_without_the_cross_term(patch):
    original = ghost.Ghost.squared_norms
    patch.setattr(
        ghost.Ghost, "squared_norms", lambda self, like: sum(original(ghost.Ghost((use,)), like) for use in self.uses)
    )


def nan_past_the_clip(patch):
    patch.setattr(torch, "isfinite", lambda values: torch.ones_like(values, dtype=torch.bool))


def rows_masked_by_factor_only(patch):
    patch.setattr(ghost.KeptGradients, "mask", lambda self, keep: self)
    patch.setattr(ghost.Ghost, "mask", lambda self, keep: self)


def no_noise(patch):
    patch.setattr(NoiseSource, "add_gaussian", lambda self, tensor, std: None)


def noise_per_micro_batch(patch):
    original, finish = Engine._clip, dpsgd.privatise

    def noisy(self, parts, weights, clipping_norm, totals, *_):
        found = original(self, parts, weights, clipping_norm, totals)
        for gradient in totals.values():
            NoiseSource().add_gaussian(gradient, 1.2 * clipping_norm)
        return found

    patch.setattr(Engine, "_clip", noisy)
    patch.setattr(dpsgd, "privatise", lambda s, plan, n: finish(s, dataclasses.replace(plan, noise_multiplier=0.0), n))


def divided_by_the_realised_batch(patch):
    draw, finish, sizes = dpsgd.poisson_batch, dpsgd.privatise, []

    def noting(size, rate, noise):
        batch = draw(size, rate, noise)
        sizes.append(max(len(batch), 1))
        return batch

    patch.setattr(dpsgd, "poisson_batch", noting)
    patch.setattr(dpsgd, "privatise", lambda s, plan, n: finish(s, dataclasses.replace(plan, divisor=sizes[-1]), n))


def noise_after_the_division(patch):
    def mutant(sums, plan, noise):
        noise.add_gaussian(sums.div_(plan.divisor), plan.noise_std(1) / plan.divisor**2)

    patch.setattr(dpsgd, "privatise", mutant)


def noise_times_the_learning_rate(patch):
    patch.setattr(TrainingPlan, "noise_std", lambda self, weights: self.noise_multiplier * self.clipping_norm * 1e-3)


def same_noise_every_step(patch):
    original = NoiseSource.add_gaussian
    patch.setattr(NoiseSource, "add_gaussian", lambda self, t, std: original(NoiseSource(seed=1), t, std))


def sigma_squared(patch):
    patch.setattr(TrainingPlan, "noise_std", lambda self, weights: self.noise_multiplier * self.clipping_norm**2)


def sigma_rounded(patch):
    patch.setattr(TrainingPlan, "noise_std", lambda self, weights: round(self.noise_multiplier) * self.clipping_norm)


def noise_from_the_parameters(patch):
    start = NoiseSource._start
    patch.setattr(NoiseSource, "_start", lambda self, key: start(self, bytes(32)))


def noise_in_half_precision(patch):
    def mutant(self, tensor, std):
        tensor.add_(torch.randn(tensor.shape, dtype=torch.bfloat16).to(tensor.dtype) * std)

    patch.setattr(NoiseSource, "add_gaussian", mutant)


def moments_from_raw_gradients(patch):
    finish, move, sizes = dpsgd.privatise, dpsgd._apply, []

    def noting(sums, plan, noise):
        sizes.append(1.0 + float(sums.norm()))
        finish(sums, plan, noise)

    def mutant(update, parameters, gradients, learning_rate):
        move(update, parameters, {name: g / sizes[-1] for name, g in gradients.items()}, learning_rate)

    patch.setattr(dpsgd, "privatise", noting)
    patch.setattr(dpsgd, "_apply", mutant)


def batches_of_fixed_size(patch):
    order = np.random.default_rng(0)
    patch.setattr(dpsgd, "poisson_batch", lambda n, rate, noise: order.permutation(n)[: round(n * rate)])


def rate_from_another_number_of_rows(patch):
    draw = dpsgd.poisson_batch
    patch.setattr(dpsgd, "poisson_batch", lambda n, rate, noise: draw(n, rate * 50 / 40, noise))


def epochs_charged_for_steps(patch):
    event = TrainingPlan.event

    def mutant(self):
        return event(dataclasses.replace(self, steps=int(self.steps * self.rate)))

    patch.setattr(TrainingPlan, "event", mutant)


MUTANTS = [
    (without_clipping, check_sensitivity),
    (clipping_the_batch_mean, check_sensitivity),
    (clipping_each_layer, check_sensitivity_over_layers),
    (norm_without_the_head, check_sensitivity),
    (norm_without_the_cross_term, check_sensitivity),
    (nan_past_the_clip, check_sensitivity),
    (rows_masked_by_factor_only, check_sensitivity),
    (moments_from_raw_gradients, check_sensitivity),
    (no_noise, check_noise),
    (noise_per_micro_batch, check_noise),
    (divided_by_the_realised_batch, check_noise),
    (noise_after_the_division, check_noise),
    (noise_times_the_learning_rate, check_noise),
    (same_noise_every_step, check_noise),
    (sigma_squared, check_noise),
    (sigma_rounded, check_noise),
    (noise_from_the_parameters, check_fresh),
    (noise_in_half_precision, check_fresh),
    (batches_of_fixed_size, check_sampler),
    (rate_from_another_number_of_rows, check_sampler),
    (epochs_charged_for_steps, check_steps),
    (sigma_squared, check_canaries),
    (sigma_rounded, check_canaries),
    (no_noise, check_canaries),
]


@cache
def passed(check):
    """Whether the correct code passes a check, asked once for all its faults."""
    check()
    return True


@pytest.mark.parametrize(("mutate", "check"), MUTANTS, ids=lambda part: part.__name__)
def test_each_planted_fault_is_seen(monkeypatch, mutate, check):
    assert passed(check)
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        check()


def test_two_losses_charged_once_are_refuted():
    def once(plan: TrainingPlan) -> dpa.DpEvent:
        return dataclasses.replace(plan, clipping="joint").event()

    with pytest.raises(AssertionError, match="refuted"):
        check_canaries("separate", once)
