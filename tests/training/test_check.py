"""The self-check passes on a sound model and names each way to be unsound."""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.nn import functional

from palimpsest.training.bookkeeping import BookkeepingEngine
from palimpsest.training.check import check_sums, self_check
from palimpsest.training.engine import EngineError
from tests.training.lm_loss import per_example_lm_loss


class Table(nn.Module):
    """A tied language model in three layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.table = nn.Embedding(11, 4)
        self.mix = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(4, 11, bias=False)
        self.head.weight = self.table.weight

    def states(self, ids: torch.Tensor) -> torch.Tensor:
        return self.drop(torch.tanh(self.mix(self.table(ids))))


@dataclass(frozen=True)
class Batch:
    ids: torch.Tensor
    mask: torch.Tensor
    note: str = "public"


class Pair(NamedTuple):
    ids: torch.Tensor
    mask: torch.Tensor


def sound(model: Table, batch: Batch) -> torch.Tensor:
    logits = model.head(model.states(batch.ids))
    return per_example_lm_loss(logits[:, :-1], batch.ids[:, 1:], batch.mask[:, 1:])


def random_replacement(model: Table, batch: Batch) -> torch.Tensor:
    ids = batch.ids.clone()
    ids[:, 0] = torch.randint(11, (len(ids),))
    return sound(model, Batch(ids, batch.mask))


def outside_its_layer(model: Table, batch: Batch) -> torch.Tensor:
    return functional.linear(model.states(batch.ids), model.mix.weight).square().sum((1, 2)) + sound(model, batch)


def wholly_outside(model: Table, batch: Batch) -> torch.Tensor:
    return functional.embedding(batch.ids, model.table.weight).square().sum((1, 2))


def batch_statistics(model: Table, batch: Batch) -> torch.Tensor:
    states = model.states(batch.ids)
    return (states - states.mean(0)).square().sum((1, 2))


def tokens_of_the_batch(model: Table, batch: Batch) -> torch.Tensor:
    return sound(model, batch) / batch.mask.sum()


def size_of_the_batch(model: Table, batch: Batch) -> torch.Tensor:
    return sound(model, batch) / len(batch.ids)


def of_batch(kind=Batch):
    ids = torch.tensor([[1, 2, 3, 4, 5], [6, 7, 8, 0, 0], [9, 10, 0, 0, 0]])
    mask = torch.arange(5)[None] < torch.tensor([5, 3, 2])[:, None]
    return kind(ids, mask)


@pytest.mark.parametrize("losses", [sound, random_replacement])
def test_a_sound_model_passes_and_is_unchanged(losses):
    model = Table()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    self_check(BookkeepingEngine, model, losses, of_batch())
    assert torch.equal(torch.rand(3), expected), "the check moved torch's generator"
    assert model.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_double_precision_is_checked_to_its_own_precision():
    self_check(BookkeepingEngine, Table().double(), sound, of_batch())


@pytest.mark.parametrize(
    "batch",
    [of_batch(Pair), {"ids": of_batch().ids, "mask": of_batch().mask}, [of_batch().ids, of_batch().mask]],
    ids=["named tuple", "mapping", "list"],
)
def test_batches_may_be_any_nest_of_tensors(batch):
    def losses(model, nest):
        values = nest.values() if isinstance(nest, dict) else nest
        return sound(model, Batch(*values))

    self_check(BookkeepingEngine, Table(), losses, batch)


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        (outside_its_layer, "outside its layer"),
        (wholly_outside, "outside its layer"),
        (batch_statistics, "depends on another example"),
        (tokens_of_the_batch, "when another example changes"),
        (size_of_the_batch, "with the size of the batch"),
    ],
)
def test_unsound_losses_are_named(losses, words):
    with pytest.raises(EngineError, match=words):
        self_check(BookkeepingEngine, Table(), losses, of_batch())


@pytest.mark.parametrize(("factor", "passes"), [(1.005, True), (0.999, False), (1.02, False)])
def test_a_norm_may_be_a_little_too_large_and_never_too_small(factor, passes):
    class Scaled(BookkeepingEngine):
        def clipped_sums(self, *arguments):
            found = super().clipped_sums(*arguments)
            return tuple(replace(each, norms=each.norms * factor) for each in found)

    with nullcontext() if passes else pytest.raises(EngineError, match="differs from autograd"):
        self_check(Scaled, Table(), sound, of_batch())


@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (1.0 + 2.0**-28, False)])
def test_a_sum_of_one_example_that_is_longer_than_c_is_refused(factor, passes):
    class Scaled(BookkeepingEngine):
        def clipped_sums(self, *arguments, **named):
            found = super().clipped_sums(*arguments, **named)
            return [replace(each, gradients={n: g * factor for n, g in each.gradients.items()}) for each in found]

    with nullcontext() if passes else pytest.raises(EngineError, match="longer than the clipping norm"):
        assert check_sums(Scaled, Table(), sound, of_batch(), 0.1)


def test_long_rows_of_a_wide_model_pass():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(50, 512), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 50))
    ids = torch.randint(50, (3, 128))

    def loss(model, ids):
        return per_example_lm_loss(model(ids)[:, :-1], ids[:, 1:], torch.ones_like(ids[:, 1:], dtype=torch.bool))

    self_check(BookkeepingEngine, model, loss, ids)


def test_one_example_is_too_few():
    batch = of_batch()
    with pytest.raises(EngineError, match="fewer than two"):
        self_check(BookkeepingEngine, Table(), sound, Batch(batch.ids[:1], batch.mask[:1]))


def width_of_the_batch(model: Table, batch: Batch) -> torch.Tensor:
    return sound(model, batch) / batch.ids.size(1)


def trimmed(batch: Batch, example: int) -> Batch:
    """The example as it is encoded without the others: no wider than its own text."""
    width = int(batch.mask[example].sum())
    return Batch(batch.ids[[example], :width], batch.mask[[example], :width])


def test_padding_to_the_longest_example_changes_nothing_or_is_found():
    batch = of_batch()
    alone = [trimmed(batch, example) for example in range(3)]
    self_check(BookkeepingEngine, Table(), sound, batch, alone)
    self_check(BookkeepingEngine, Table(), width_of_the_batch, batch)  # nothing shows without them
    with pytest.raises(EngineError, match="length of the others"):
        self_check(BookkeepingEngine, Table(), width_of_the_batch, batch, alone)


def test_a_model_that_keeps_something_of_a_batch_is_found():
    class Keeping(Table):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def states(self, ids: torch.Tensor) -> torch.Tensor:
            self.seen.add_(1.0)
            return super().states(ids)

    with pytest.raises(EngineError, match=r"writes into its buffer 'seen'"):
        self_check(BookkeepingEngine, Keeping(), sound, of_batch())
