"""Sums in whole numbers: what one example adds is what was checked, to the last bit, and close to its gradient."""

import itertools
import math
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from palimpsest.training import whole
from palimpsest.training.ghost import WeightUse
from palimpsest.training.integers import IntegerEngine, Matrix, _pieces_of
from palimpsest.training.whole import (
    MOST_TERMS,
    TOP,
    Whole,
    add_rows,
    bound_square,
    multiply,
    peaks,
    scale_rows,
    square_rows,
)
from tests.training.test_bookkeeping import (
    ALWAYS,
    NEVER,
    both_losses,
    clipped,
    example_gradients,
    make_batch,
    make_model,
    relative_error,
)

C = 0.3
EXAMPLES, TOKENS = 4, 7
SEEDS = torch.tensor([5, -7, 11, 13], dtype=torch.int32)
KINDS = pytest.mark.parametrize("prefer_ghost", [ALWAYS, NEVER], ids=["products", "kept"])
INT8 = pytest.mark.parametrize("int8", [True, False], ids=["int8", "float32"])
TIED = pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])


def summed(model, losses, prefer_ghost=ALWAYS, weights=None, seeds=SEEDS, norm=C, group=1):
    """The sum over a batch, flat."""
    engine = IntegerEngine(model, prefer_ghost)
    size = EXAMPLES if weights is None else len(weights) * group
    (found,) = engine.clipped_sums(lambda: (losses(),), size, norm, None, group, weights, seeds[: size // group])
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    parts = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in model.named_parameters()}
    return torch.cat([(parts | found.gradients)[name].flatten() for name in names])


def only(*examples: int) -> torch.Tensor:
    return torch.tensor([float(place in examples) for place in range(EXAMPLES)], dtype=torch.float64)


@KINDS
@TIED
def test_a_sum_is_near_that_of_clipped_gradients(tied, prefer_ghost) -> None:
    model, batch = make_model(tied, torch.float32), make_batch(TOKENS)
    expected = clipped(example_gradients(model, both_losses, batch).double(), C)
    assert relative_error(summed(model, lambda: both_losses(model, batch), prefer_ghost), expected) < 0.02


@pytest.mark.parametrize("tokens", [1, 64, 512])
def test_a_sum_is_near_its_gradient_in_a_wide_model_and_a_long_text(tokens: int) -> None:
    """At the width of distilGPT2; what rounding adds grows with the square root of width and of length."""
    generator, layer = torch.Generator().manual_seed(3), nn.Linear(3072, 768, bias=False)
    inputs = torch.randn(EXAMPLES, tokens, 3072, generator=generator)
    pulls = torch.randn(EXAMPLES, tokens, 768, generator=generator)
    expected = torch.einsum("tp,td->pd", pulls[0].double(), inputs[0].double()).flatten()
    found = summed(layer, lambda: (layer(inputs) * pulls).sum((1, 2)), ALWAYS, only(0))
    assert relative_error(found, expected * C / expected.norm()) < 0.02


@KINDS
@TIED
def test_all_less_one_is_exactly_what_the_one_adds(tied, prefer_ghost) -> None:
    """No rounding is left in a sum: the difference of neighbours is a contribution whose length was checked."""
    model, batch = make_model(tied, torch.float32), make_batch(TOKENS)
    own = [summed(model, lambda: both_losses(model, batch), prefer_ghost, only(one)) for one in range(EXAMPLES)]
    every = summed(model, lambda: both_losses(model, batch), prefer_ghost)
    for one in range(EXAMPLES):
        others = only(*(set(range(EXAMPLES)) - {one}))
        fewer = summed(model, lambda: both_losses(model, batch), prefer_ghost, others)
        assert torch.equal(every - fewer, own[one])
        assert 0.99 * C < own[one].norm() <= C
    assert torch.equal(sum(reversed(own)), every)


@KINDS
@TIED
def test_no_bit_of_an_example_follows_from_those_beside_it(tied, prefer_ghost) -> None:
    """Scales, roundings and clip factors are each example's own."""
    model, batch = make_model(tied, torch.float32), make_batch(TOKENS)
    for others in (1e3, 1e-3, 0.0):
        factors = torch.tensor([1.0, others, others, others])
        found = summed(model, lambda f=factors: both_losses(model, batch) * f, prefer_ghost, only(0))
        assert torch.equal(found, summed(model, lambda: both_losses(model, batch), prefer_ghost, only(0)))


@KINDS
@TIED
@pytest.mark.parametrize("length", [0.02, 0.9])
def test_a_square_is_that_of_what_is_added(tied, prefer_ghost, length) -> None:
    """The check sees cross terms between a head and its table, and repeated rows of a table."""
    model, batch = make_model(tied, torch.float32), make_batch(TOKENS)
    engine = IntegerEngine(model, prefer_ghost)
    (booked,) = engine.book_losses(lambda: (both_losses(model, batch),), EXAMPLES, 1)
    for parameter, given_ in booked.items():
        pieces = _pieces_of(given_, SEEDS, C)
        for one in range(EXAMPLES):
            for piece in pieces:
                piece.fold(length * only(one))
            total = torch.zeros_like(parameter, dtype=torch.float64)
            for piece in pieces:
                piece.add(total)
            found = sum(float(piece.squares()[one]) for piece in pieces)
            true = float(total.square().sum())
            assert true * (1 - 2.0**-40) <= found <= true * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_last_bit_moves_its_own_number_alone(side: str) -> None:
    """Seeds are no computed numbers, which would turn one last bit into another rounding of everything."""
    generator = torch.Generator().manual_seed(3)
    parts = {"left": torch.randn(1, 2, 6, generator=generator), "right": torch.randn(1, 2, 40, generator=generator)}
    places = (parts[side].abs() < parts[side].abs().amax(2, keepdim=True)).flatten().nonzero().flatten().tolist()
    before = whole_numbers(**parts)
    for place in places:
        moved = {name: part.clone() for name, part in parts.items()}
        own = moved[side].view(-1)
        own[place] = torch.nextafter(own[place], torch.tensor(0.0))
        assert sum(int((a != b).sum()) for a, b in zip(before, whole_numbers(**moved), strict=True)) <= 1


def whole_numbers(left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, ...]:
    piece = Matrix.of([WeightUse(left, right)], SEEDS[:1], C)
    piece.fold(torch.ones(1, dtype=torch.float64))
    return piece.bits()


@KINDS
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_adds_exactly_nothing(bad, prefer_ghost) -> None:
    model, batch = make_model(True, torch.float32), make_batch(TOKENS)
    factors = torch.tensor([1.0, bad, 1.0, 1.0])
    found = summed(model, lambda: both_losses(model, batch) * factors, prefer_ghost)
    assert torch.equal(found, summed(model, lambda: both_losses(model, batch), prefer_ghost, only(0, 2, 3)))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    tokens=st.integers(1, 9),
    rows=st.integers(1, 40),
    columns=st.integers(1, 40),
    scale=st.floats(-30, 30),
    spread=st.floats(0, 12),
)
def test_no_example_adds_more_than_c(seed, tokens, rows, columns, scale, spread) -> None:
    """Whatever the sizes and the scales of its tokens: they decide how near the sum is, and not how long."""
    generator = torch.Generator().manual_seed(seed)
    layer = nn.Linear(columns, rows, bias=False)
    inputs = torch.randn(EXAMPLES, tokens, columns, generator=generator)
    pulls = torch.randn(EXAMPLES, tokens, rows, generator=generator)
    pulls = pulls * 10.0 ** (scale + spread * torch.randn(EXAMPLES, tokens, 1, generator=generator))
    for one in range(EXAMPLES):
        found = summed(layer, lambda: (layer(inputs) * pulls).sum((1, 2)), ALWAYS, only(one))
        assert found.norm() <= C


def test_cancelling_tokens_never_pass_the_clip() -> None:
    """The proposed factor is far too large where rounding hides that tokens cancel; the check finds it."""
    layer = nn.Linear(3, 2, bias=False)
    inputs = torch.tensor([[[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]]).expand(EXAMPLES, -1, -1)
    for residue in (0.0, 1e-7, 1e-5, 1e-4, 1e-3):
        pulls = 1e6 * torch.tensor([[[1.0, 1.0], [-1.0, -1.0 - residue]]])
        assert summed(layer, lambda p=pulls: (layer(inputs) * p).sum((1, 2)), ALWAYS, only(0)).norm() <= C


@INT8
def test_what_rounding_makes_longer_is_found_by_the_check(int8: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every entry lies between a half and one and is rounded up, so the proposed factor is far too large."""
    monkeypatch.setattr(whole, "uses_int8", lambda _device: int8)
    layer = nn.Linear(400, 400, bias=False)
    inputs = torch.ones(EXAMPLES, 200, 400)
    for norm in (0.3, 0.4, 0.5, 0.55):  # of one unit: somewhere between a half and one of its power of two
        found = summed(layer, lambda: layer(inputs).sum((1, 2)), ALWAYS, only(0), norm=norm).norm()
        assert found <= norm


class Tied(nn.Module):
    """A table that is its own head."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(words, width), nn.Linear(width, words, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.table(ids)))


@INT8
@pytest.mark.parametrize(("words", "width"), [(40, 8), (8, 8), (3, 8), (1, 8), (8, 1), (1, 1)])
def test_a_table_may_have_fewer_words_than_columns(words: int, width: int, int8: bool, monkeypatch) -> None:
    """The cross term with its head is of the same entries, whichever side is the wider one."""
    monkeypatch.setattr(whole, "uses_int8", lambda _device: int8)
    torch.manual_seed(2)
    model, ids = Tied(words, width), torch.randint(words, (EXAMPLES, TOKENS))
    pulls = 10 * torch.randn(EXAMPLES, TOKENS, words)
    own = [summed(model, lambda: (model(ids) * pulls).sum((1, 2)), ALWAYS, only(one)) for one in range(EXAMPLES)]
    assert all(0.0 < one.norm() <= C for one in own)
    assert torch.equal(sum(own), summed(model, lambda: (model(ids) * pulls).sum((1, 2))))


@pytest.mark.parametrize("width", [1, 48, 1 << 16])
def test_c_is_below_two_to_the_31_of_a_power_of_two(width: int) -> None:
    """So float64 holds the sum of 2^22 units exactly."""
    unit = Matrix.of([WeightUse(torch.ones(1, 1, width), torch.ones(1, 1, width))], SEEDS[:1], C).unit
    assert math.frexp(unit)[0] == 0.5
    assert 2.0**31 * unit > C


@pytest.mark.parametrize("size", [1e19, 1e25, 1e37])
def test_a_gradient_that_float32_cannot_square_leaves_the_others_alone(size: float) -> None:
    """Its Gram matrix has infinities of both signs; the bias beside it would become NaN with the factor."""
    generator, layer = torch.Generator().manual_seed(0), nn.Linear(6, 5)
    inputs, pulls = (torch.randn(EXAMPLES, TOKENS, width, generator=generator) for width in (6, 5))
    factors = torch.tensor([1.0, size, 1.0, 1.0])
    every, own, others = (
        summed(layer, lambda: (layer(inputs) * pulls).sum((1, 2)) * factors, ALWAYS, which)
        for which in (only(0, 1, 2, 3), only(1), only(0, 2, 3))
    )
    assert own.norm() <= C
    assert torch.equal(every - others, own)


def test_losses_that_no_weight_decides_add_nothing() -> None:
    assert not summed(nn.Linear(2, 2), lambda: torch.ones(EXAMPLES)).any()


def test_rows_of_one_unit_are_clipped_as_one_and_weights_bound_it() -> None:
    model, batch = make_model(True, torch.float32), make_batch(TOKENS)
    for weights in ([1.0, 0.0], [0.25, 0.0], [0.0, 1.0]):
        own = torch.tensor(weights, dtype=torch.float64)
        found = summed(model, lambda: both_losses(model, batch), ALWAYS, own, group=2)
        assert 0.99 * C * max(weights) < found.norm() <= C * max(weights)


@INT8
@pytest.mark.parametrize("norm", [C, 1e-3, 30.0])
def test_all_ways_of_a_product_give_the_same_sums(int8: bool, norm: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """In int8, in float64 where that fails the trial, in float32 where it is slow, and in float64 beyond its range."""
    model, batch = make_model(True, torch.float32), make_batch(TOKENS)
    sums = []
    for exact, fewest in ((True, 1), (False, 1), (True, 1 << 24)):
        with monkeypatch.context() as patch:
            patch.setattr(whole, "uses_int8", lambda _device: int8)
            patch.setattr(whole, "_is_exact", lambda _device, own=exact: own)
            patch.setattr(whole, "_FEWEST", fewest)
            sums.append(summed(model, lambda: both_losses(model, batch), norm=norm))
    monkeypatch.setattr(whole, "uses_int8", lambda _device: not int8)
    assert all(torch.equal(one, summed(model, lambda: both_losses(model, batch), norm=norm)) for one in sums)


def test_float32_holds_as_many_products_as_are_added_in_it() -> None:
    """Whole numbers up to 2^24; larger ones go through float64."""
    other = Whole((torch.full((1, 2000, 4), 127, dtype=torch.int8),))
    for size, peak in ((300, 127.0), (3, 16256.0)):
        rows = Whole.split(torch.full((1, 2000, size), peak), torch.ones(1, 2000), torch.full((1, 2000), peak))
        parts = list(whole._exact_parts(rows, other))  # noqa: SLF001
        assert sum(len(part) for part, _ in parts) == 2000
        for part, right in parts:
            assert part.dtype == torch.float64 or len(part) * peak * 127.0 <= 2**24
            assert (part.T @ right)[0, 0] == len(part) * peak * 127


def test_products_that_saturate_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some processors shift the left side to 0 to 255, and add pairs of products up in 16 bits."""

    def saturating(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        products = ((left.int() + 128)[:, :, None] * right.int()[None]).unflatten(1, (-1, 2))
        pairs = products.sum(2).clamp(-(2**15), 2**15 - 1)
        return (pairs.sum(1) - 128 * right.int().sum(0)).to(torch.int32)

    rows = torch.full((17, 8), 127, dtype=torch.int8)
    monkeypatch.setattr(torch, "_int_mm", saturating)
    whole._is_exact.cache_clear()  # noqa: SLF001 - a trial that is kept for the process
    try:
        assert (multiply(rows, rows.T) == 8 * 127**2).all()
    finally:
        whole._is_exact.cache_clear()  # noqa: SLF001


@pytest.mark.parametrize(
    "wrong",
    [
        lambda left, right: left.size(0) == 3,
        lambda left, right: left.size(1) > 64,
        lambda left, right: right.size(1) % 8,
        lambda left, right: not left.is_contiguous(),
        lambda left, right: not right.is_contiguous(),
    ],
)
def test_a_kernel_that_is_wrong_for_some_shapes_is_not_used(wrong, monkeypatch: pytest.MonkeyPatch) -> None:
    def product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        exact = (left.long() @ right.long()).int()
        return exact.roll(1, 1) if wrong(left, right) else exact

    monkeypatch.setattr(torch, "_int_mm", product)
    whole._is_exact.cache_clear()  # noqa: SLF001
    try:
        assert not whole._is_exact("cpu")  # noqa: SLF001
        monkeypatch.setattr(torch, "_int_mm", lambda left, right: (left.long() @ right.long()).int())
        whole._is_exact.cache_clear()  # noqa: SLF001
        assert whole._is_exact("cpu")  # noqa: SLF001
    finally:
        whole._is_exact.cache_clear()  # noqa: SLF001


@pytest.mark.parametrize("shape", list(itertools.product((1, 2, 17), repeat=3)))
def test_products_of_one_row_or_one_term_are_exact(shape: tuple[int, int, int], monkeypatch) -> None:
    """Torch may leave what was in memory in place of them."""
    product = torch._int_mm  # noqa: SLF001
    left = torch.full((1, 1), 7, dtype=torch.int32)
    monkeypatch.setattr(torch, "_int_mm", lambda a, b: left if 1 in (*a.shape, *b.shape) else product(a, b))
    rows, terms, columns = shape
    one = torch.randint(-127, 128, (terms, rows), generator=torch.Generator().manual_seed(0)).to(torch.int8)
    other = torch.randint(-127, 128, (columns, terms), generator=torch.Generator().manual_seed(1)).to(torch.int8)
    assert torch.equal(multiply(one.T, other.T).long(), one.T.long() @ other.T.long())


@pytest.mark.parametrize("entry", [-128, 127])
def test_int32_holds_as_many_products_as_are_added_in_it(entry: int) -> None:
    rows = torch.full((17, MOST_TERMS), entry, dtype=torch.int8)
    assert multiply(rows, rows.T)[0, 0] == entry**2 * MOST_TERMS < 2**31
    wide = Whole((torch.full((1, 2, MOST_TERMS + 9), entry, dtype=torch.int8),))
    assert wide.gram().tolist() == [[[float(entry**2 * (MOST_TERMS + 9))] * 2] * 2]


@INT8
def test_compiled_kernels_and_torch_give_the_same_whole_numbers(int8: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(3, 5, 300, generator=generator)
    factors = 127.0 / peaks(rows)
    assert torch.equal(peaks(rows), rows.abs().amax(2))
    monkeypatch.setattr(whole, "uses_int8", lambda _device: int8)
    seeds = torch.arange(-7, 8, dtype=torch.int32).view(3, 5) * 99_991
    assert torch.equal(Whole.round(rows, factors, seeds).digits[0], whole._rounded(rows, factors, seeds))  # noqa: SLF001
    numbers = Whole.split(rows, factors * 100, peaks(rows)).to(torch.float64)
    assert torch.equal(numbers, Whole(whole._halves(rows, factors * 100)).to(torch.float64))  # noqa: SLF001
    assert numbers.abs().max() <= TOP[2]


@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 10_001])
def test_kept_rows_are_rounded_squared_and_added_to_the_last_number(size: int) -> None:
    """Parts of 4,096 numbers, whose ends are where one would be missed or counted twice."""
    rows = torch.randn(3, size, generator=torch.Generator().manual_seed(size)) * 1e3
    rows[2] = torch.nan
    factors, limit = torch.tensor([1.0, 1e5, 0.0], dtype=torch.float64), 2.0**23
    numbers = scale_rows(rows, factors, limit)
    wanted = (rows[:2] * factors[:2, None].float()).round().clamp(-limit, limit)
    assert torch.equal(numbers, torch.cat([wanted, torch.zeros(1, size)]))
    exact = [sum(number * number for number in map(int, row.tolist())) for row in numbers]
    assert square_rows(numbers).tolist() == pytest.approx(exact, rel=2.0**-40)
    total = torch.ones(size, dtype=torch.float64)
    add_rows(total, numbers, 2.0**-7)
    assert torch.equal(total, 1 + numbers.to(torch.float64).sum(0) * 2.0**-7)


def test_threads_share_the_columns_of_a_sum_without_a_gap() -> None:
    rows = torch.arange(3.0 * 100_003).view(3, -1) % 4093
    with threads(4):
        total = torch.zeros(rows.size(1), dtype=torch.float64)
        add_rows(total, rows, 1.0)
    assert torch.equal(total, rows.double().sum(0))


FORKED = """
import os, torch
from palimpsest.training.whole import square_rows
torch.set_num_threads(2)
rows = torch.ones(4, 1 << 16)
square_rows(rows)
if (forked := os.fork()) == 0:
    os._exit(int(square_rows(rows).tolist() != [2.0**16] * 4))
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]))
"""


def test_a_process_that_was_forked_has_threads_of_its_own() -> None:
    """A fork copies no threads: with the pool from before it, the child would wait for ever."""
    assert subprocess.run([sys.executable, "-c", FORKED], timeout=120).returncode == 0


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def test_rounding_has_no_bias_over_seeds() -> None:
    rows, factors = torch.full((1, 1, 64), 0.3), torch.ones(1, 1)
    found = [Whole.round(rows, factors, torch.tensor([[2 * seed + 1]], dtype=torch.int32)) for seed in range(400)]
    mean = float(np.mean([one.digits[0].float().mean() for one in found]))
    assert abs(mean - 0.3) < 5 * math.sqrt(0.21 / (400 * 64))


@INT8
def test_grams_are_exact(int8: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "uses_int8", lambda _device: int8)
    rows = torch.randn(2, 5, 3000, generator=torch.Generator().manual_seed(4))
    for factor in (3.0, 100.0, 5000.0):
        numbers = Whole.split(rows, torch.full((2, 5), factor), peaks(rows))
        assert torch.equal(numbers.gram().double(), torch.bmm(numbers.to(torch.float64), numbers.to(torch.float64).mT))


def test_the_bound_of_a_square_is_not_below_it() -> None:
    generator = torch.Generator().manual_seed(1)
    left, right = (Whole((torch.randint(-127, 128, (2, 33, 50), generator=generator).to(torch.int8),)) for _ in "ab")
    ones = torch.ones(2, 33, dtype=torch.float64)
    exact = torch.bmm(left.to(torch.float64).mT, right.to(torch.float64)).square().sum((1, 2))
    bound = bound_square(left.gram(), right.gram(), ones)
    assert (exact <= bound).all()
    assert (bound <= exact * (1 + 1e-6) + 1).all()


def test_the_bound_covers_what_float64_loses() -> None:
    """Squares of numbers of 15 bits pass 2^53: without the allowance half of the bounds would be below."""
    generator = torch.Generator().manual_seed(2)
    ones = torch.ones(64, 9, dtype=torch.float64)
    rows = torch.randn(64, 9, 64, generator=generator) * 4000
    narrow = Whole.split(rows, torch.ones(64, 9), peaks(rows))
    wide = Whole((torch.randint(-127, 128, (64, 9, 256), generator=generator).to(torch.int8),))
    bound = bound_square(narrow.gram(), wide.gram(), ones)
    for one, (a, b) in enumerate(zip(narrow.gram().long().tolist(), wide.gram().tolist(), strict=True)):
        exact = sum(x * y for rows in zip(a, b, strict=True) for x, y in zip(*rows, strict=True))
        assert exact <= int(bound[one])


def test_a_sum_depends_on_the_seed_alone_beside_the_example() -> None:
    model, batch = make_model(True, torch.float32), make_batch(TOKENS)
    one = summed(model, lambda: both_losses(model, batch), ALWAYS, only(1))
    other = summed(model, lambda: both_losses(model, batch), ALWAYS, only(1), SEEDS + 2)
    assert not torch.equal(one, other)
    assert relative_error(one, other) < 0.05
