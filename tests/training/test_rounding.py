"""What rounding can do to a sum of clipped gradients stays below what is charged, and no bit depends on a neighbour."""

import dataclasses
import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
)

from palimpsest.privacy.planned import BATCH_BITS
from palimpsest.privacy.rows import PrivateRow, group_by_person
from palimpsest.records.record import Record
from palimpsest.training import bookkeeping, dpsgd, ghost, integers
from palimpsest.training.batches import bucket
from palimpsest.training.bookkeeping import BookkeepingEngine
from palimpsest.training.check import has_same_bits, self_check
from palimpsest.training.dpsgd import TrainQuery
from palimpsest.training.engine import EngineError
from palimpsest.training.ghost import Ghost, KeptGradients, WeightUse
from palimpsest.training.integers import IntegerEngine
from palimpsest.training.losses import lm_head_loss
from palimpsest.training.plan import eta
from tests.training.lm_loss import per_example_lm_loss
from tests.training.test_dpsgd import PLAIN, Replay, make_plan

C, MICRO = 0.3, 4
FLOAT64 = 2.0**-32  # what sums of this size may lose in float64; in float32 they lose far more
PRECISIONS = ("float32", "bf16")


def small_lm() -> GPT2LMHeadModel:
    torch.manual_seed(5)
    sizes = {"n_layer": 2, "n_embd": 48, "n_head": 4, "vocab_size": 128, "n_positions": 64}
    off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2LMHeadModel(GPT2Config(**sizes, **off, bos_token_id=0, eos_token_id=0, use_cache=False)).eval()


def widths(rows) -> list[int]:
    return [bucket(len(row.text), 48) for row in rows]


def encode(rows) -> torch.Tensor:
    width = max(widths(rows))
    return torch.tensor(
        [[ord(letter) % 127 + 1 for letter in row.text] + [0] * (width - len(row.text)) for row in rows]
    )


def losses(model: nn.Module, ids: torch.Tensor) -> tuple[torch.Tensor]:
    targets = ids.roll(-1, 1)
    hidden = model.transformer(ids, use_cache=False).last_hidden_state
    return (lm_head_loss(model.lm_head, hidden, targets, targets != 0),)


def query(precision: str = "float32", person: str = "joint", **changes) -> TrainQuery:
    shapes = [Record("ab" * (length // 2) + "c" * (length % 2)) for length in range(1, 49)]
    fields = {"widths": widths, "person": person, "precision": precision, "shapes": shapes}
    plan = make_plan(clipping_norm=C, eta=eta(8.0))
    asked = TrainQuery(plan, PLAIN, small_lm(), encode, losses, MICRO, **fields)
    return dataclasses.replace(asked, **changes)


def person(name: str, *texts: str) -> list[PrivateRow]:
    return [PrivateRow(text, "ab"[index % 2], name) for index, text in enumerate(texts)]


OTHERS = [
    *person("ann", "hello there", "x", "a text that is a good deal longer than others"),
    *person("bob", "hello"),
    *person("eve", *["again " * (1 + index % 6) for index in range(5)]),
    *person("kim", "and one more of them, rather long as it is"),
]
PERSONS = [person("zoe", "q"), person("zoe", "zz", "some longer text", "w" * 40), person("zoe", *["alike"] * 6)]


def sums(rows, precision: str, how: str) -> torch.Tensor:
    asked = query(precision, how)
    source = Replay(asked.plan)
    asked.run(rows, source)
    assert all(total.dtype == torch.float64 for total in source.inputs)
    return torch.cat([total.flatten() for total in source.inputs])


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("how", ["joint", "rows"])
def test_a_person_moves_the_computed_sum_by_no_more_than_is_charged(how, precision):
    """In front of, between and behind the others: what is left of the others is their own, but for float64."""
    without = sums(OTHERS, precision, how)
    others = group_by_person(OTHERS)
    for added in PERSONS:
        alone = sums(added, precision, how)
        for units in ([added, *others], [*others[:2], added, *others[2:]], [*others[::-1], added]):
            together = sums([row for unit in units for row in unit], precision, how)
            assert (together - without).norm() <= C * (1 + eta(8.0))
            assert (together - without - alone).norm() <= FLOAT64 * C


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_replaced_person_leaves_the_others_alone(precision):
    with_one, with_other = (sums([*added, *OTHERS], precision, "joint") for added in PERSONS[:2])
    one, other = (sums(added, precision, "joint") for added in PERSONS[:2])
    assert (with_one - with_other - (one - other)).norm() <= FLOAT64 * C


# --- bits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("group", [1, 2])
def test_no_bit_depends_on_the_neighbours_or_the_place(precision, group):
    asked = query(precision)
    engine, per_row = BookkeepingEngine(asked.model), partial(asked.compute_losses, asked.model)
    generator = torch.Generator().manual_seed(1)
    for width in (8, 24, 48):
        for _ in range(3):
            rows = torch.randint(1, 128, (8, width), generator=generator)
            own = rows[:group].repeat(8 // group, 1)
            assert has_same_bits(engine, per_row, rows, own, 8, group)


def test_public_records_show_whether_bits_hold():
    assert query().batch_bits()
    assert query("bf16").batch_bits()


def test_bits_that_depend_on_the_neighbours_are_found():
    def beside(model, ids):
        return (losses(model, ids)[0] * (1 + 1e-6 * ids.float().mean() / 128),)

    assert not query(losses=beside).batch_bits()


def test_whole_sums_serve_where_bits_are_an_examples_own():
    def beside(model, ids):
        return (losses(model, ids)[0] * (1 + 1e-6 * ids.float().mean() / 128),)

    assert query(engine=IntegerEngine).choose_engine() is IntegerEngine
    assert query(engine=IntegerEngine, losses=beside).choose_engine() is BookkeepingEngine


@pytest.mark.parametrize(("grid", "serves"), [(2.0**-20, IntegerEngine), (0.5, BookkeepingEngine)])
def test_whole_sums_serve_where_they_are_near_the_gradients(grid, serves, monkeypatch):
    """On a coarse grid they are not."""
    monkeypatch.setattr(integers, "_FINE", grid)
    probe = [Record("short"), Record("a text, somewhat longer"), Record("a long text. " * 3)]
    asked = query(engine=IntegerEngine, probe=probe)
    assert asked.choose_engine() is serves
    assert asked.batch_bits()


def test_on_another_device_the_engine_of_float64_sums_serves_and_is_the_one_that_is_checked(monkeypatch):
    checked, elsewhere = [], query(engine=IntegerEngine, probe=[Record("one"), Record("two")])
    elsewhere.model.to("meta")
    assert elsewhere.choose_engine() is BookkeepingEngine
    monkeypatch.setattr(dpsgd, "device_noise", lambda _device: None)
    monkeypatch.setattr(dpsgd, "self_check", lambda kind, *_rest: checked.append(kind))
    elsewhere.check()
    assert checked == [BookkeepingEngine]


def test_a_width_that_follows_the_longest_neighbour_is_found():
    """Rows of one micro-batch that `encode` pads to the longest of them: a shorter one then has other shapes."""

    def padded(rows):
        width = max(len(row.text) for row in rows)
        return torch.tensor([[ord(x) % 127 + 1 for x in row.text] + [0] * (width - len(row.text)) for row in rows])

    assert not query(encode=padded).batch_bits()


def test_bits_are_tried_with_weights_that_are_not_zero():
    """Here the order of the batch shows behind a weight that is zero, as half of LoRA's are."""
    start = query()
    with torch.no_grad():
        start.model.transformer.h[0].mlp.c_proj.weight.zero_()
    before = start.model.transformer.h[0].mlp.c_proj.weight.clone()

    def beside(model, ids):
        weight = model.transformer.h[0].mlp.c_proj.weight
        return (losses(model, ids)[0] * (1 + weight.abs().sum() * 1e-6 * ids.float().mean()),)

    assert not dataclasses.replace(start, losses=beside).batch_bits()
    assert torch.equal(start.model.transformer.h[0].mlp.c_proj.weight, before)


@pytest.mark.parametrize(("person", "tried"), [("joint", {1, 2, 4}), ("rows", {1})])
def test_the_shapes_of_a_person_s_rows_are_tried_too(person, tried, monkeypatch):
    seen = set()

    def same(engine, per_row, mixed, alike, size, group, _norm):
        assert len(mixed) == len(alike) == size == MICRO // group * group
        seen.add(group)
        return group < 4

    monkeypatch.setattr(dpsgd, "has_same_bits", same)
    assert query(person=person, most_rows=3).batch_bits() == (person == "rows")
    assert seen == tried


# --- norms -----------------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    shape=st.tuples(st.integers(1, 40), st.integers(1, 300), st.integers(1, 300)),
    spread=st.floats(-7, 0).map(lambda power: 10.0**power),
    scale=st.floats(-12, 12).map(lambda power: 10.0**power),
    half=st.booleans(),
)
def test_a_norm_is_never_below_that_of_what_is_summed(seed, shape, spread, scale, half):
    """Records whose tokens cancel all but `spread` of each other."""
    tokens, rows, columns = shape
    generator = torch.Generator().manual_seed(seed)
    left = torch.randn(1, 1, rows, generator=generator) + spread * torch.randn(1, tokens, rows, generator=generator)
    pulls = torch.randn(1, tokens, 1, generator=generator)
    right = scale * (pulls - pulls.mean(1, keepdim=True)) * torch.randn(1, 1, columns, generator=generator)
    dtype = torch.bfloat16 if half else torch.float32
    use, like = WeightUse(left.to(dtype), right.to(dtype)), torch.empty(rows, columns)
    exact = use.left[0].double().mT @ use.right[0].double()
    found = Ghost((use,)).squared_norms(like).sqrt()
    assert exact.norm() <= float(found) * (1 + 1e-12)


@pytest.mark.parametrize("examples", [3, 4, 7, 13, 31])
@pytest.mark.parametrize("parameters", [2, 5, 18, 70])
def test_the_norm_of_alike_weights_has_the_same_bits_in_every_place(parameters, examples):
    """The same example everywhere: also the last ones, which a processor's vectors do not fill."""
    generator = torch.Generator().manual_seed(0)
    left, right = (
        torch.randn(parameters, 1, 8, width, generator=generator).expand(-1, examples, -1, -1).flatten(0, 1)
        for width in (16, 24)
    )
    alike = tuple(torch.empty(16, 24) for _ in range(parameters))
    for contribution in (Ghost((WeightUse(left, right),)), KeptGradients(torch.bmm(left.mT, right))):
        found = ghost.Stack(alike, contribution).squared_norms()
        assert torch.equal(found, found[:1].expand(examples))


def test_weights_of_other_precisions_are_not_worked_on_together():
    """The norms of the finer ones would be computed as coarsely as those of the first."""
    parameters = [torch.empty(3, dtype=dtype) for dtype in (torch.float32, torch.float64, torch.float32)]
    records = KeptGradients(torch.ones(2, 3, dtype=torch.float64))
    stacks = list(ghost.stack_contributions(dict.fromkeys(parameters, records)))
    assert [[one.dtype for one in stack.parameters] for stack in stacks] == [[torch.float32] * 2, [torch.float64]]


NEAR_SQUARES = ((1.0402182, 1.7733532e19), (1.040224, -1.7733435e19))  # (left, right): each is just below the largest
NEAR_ROWS = ((1.3043818e19, 1.3043818e19), (-1.3043813e19, -1.3043822e19))  # the square of each, too


@pytest.mark.parametrize("padding", [0, 1])
def test_tokens_whose_product_passes_the_largest_number_hide_no_other(padding):
    """Two tokens that nearly cancel: their own squares are finite, and in float32 their product would not be."""
    (one, pull), (other, back) = NEAR_SQUARES
    left = torch.tensor([[[one, 0.0], [other, 0.0], [0.0, 1.0], *[[0.0, 0.0]] * padding]])
    right = torch.tensor([[[pull, 0.0], [back, 0.0], [0.0, 1.2e19], *[[0.0, 0.0]] * padding]])
    exact = left[0].double().mT @ right[0].double()
    found = Ghost((WeightUse(left, right),)).squared_norms(torch.empty(2, 2)).sqrt()
    assert exact.norm() <= float(found) < math.inf


@pytest.mark.parametrize("padding", [0, 1])
def test_where_an_inner_product_overflows_the_norm_is_not_finite(padding):
    one, other = NEAR_ROWS
    right = torch.tensor([[one, other, (0.0, 0.0), *[(0.0, 0.0)] * padding]])
    gram = torch.bmm(right, right.mT)[0]
    assert gram.diagonal().isfinite().all()
    assert gram[0, 1] == -math.inf
    left = torch.ones(1, right.size(1), 2)
    assert not Ghost((WeightUse(left, right),)).squared_norms(torch.empty(2, 2)).isfinite()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), tokens=st.integers(1, 30), spread=st.floats(-6, 0).map(lambda power: 10.0**power))
def test_a_tied_weight_s_norm_is_never_below_that_of_what_is_summed(seed, tokens, spread):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(6, (1, tokens), generator=generator)
    head = WeightUse(torch.randn(1, tokens, 6, generator=generator), torch.randn(1, tokens, 140, generator=generator))
    exact = head.left[0].double().mT @ head.right[0].double()
    pull = torch.zeros(6, dtype=torch.float64).index_add_(0, ids[0], torch.ones(tokens, dtype=torch.float64))
    looked_up = -(exact / pull.clamp_min(1.0)[:, None])[ids[0]] * (1 + spread)  # takes the head's gradient back
    table = WeightUse(ids, looked_up.float()[None])
    exact = exact.index_add(0, ids[0], table.right[0].double())
    found = Ghost((head, table)).squared_norms(torch.empty(6, 140)).sqrt()
    assert exact.norm() <= float(found) * (1 + 1e-12)


def test_the_self_check_allows_no_norm_below_what_is_summed():
    """In bfloat16 neither, where the gradient itself is only known to a few digits."""

    class Short(BookkeepingEngine):
        def clipped_sums(self, *arguments):
            found = super().clipped_sums(*arguments)
            return [dataclasses.replace(each, norms=each.norms * (1 - 1e-4)) for each in found]

    asked = query("bf16")
    ids = encode([PrivateRow("abc"), PrivateRow("a longer one"), PrivateRow("b" * 30)])
    self_check(BookkeepingEngine, asked.model, lambda m, b: asked.compute_losses(m, b)[0], ids, (), torch.bfloat16)
    with pytest.raises(EngineError, match="differs from autograd"):
        self_check(Short, asked.model, lambda m, b: asked.compute_losses(m, b)[0], ids, (), torch.bfloat16)


# --- the charge ------------------------------------------------------------------------------------------------------


def test_eta_covers_the_theorem():
    """The proof's numbers, put together again: 2 e(B) / C for the largest batch that is charged for."""
    unit = 2.0**-53
    roundings = 2**17 + 2
    gamma = roundings * unit / (1 - roundings * unit)
    steepest = 1 / math.sqrt(8 * 2.0**-24)
    for batch in (1.0, 64.0, 512.0, 10_000.0):
        assert eta(batch) >= 2 * gamma * steepest * (4 * batch + 64)
        assert eta(batch) <= 0.003


def test_sums_are_float64_in_products_of_a_bounded_length(monkeypatch):
    """The same sum, whatever the parts that it is computed in."""
    rows = [*OTHERS, *PERSONS[1]]
    whole = sums(rows, "float32", "joint")
    monkeypatch.setattr(ghost, "LONGEST_PRODUCT", 3)
    monkeypatch.setattr(ghost, "_widen_limit", lambda values: 64)
    monkeypatch.setattr(ghost, "_stack_limit", lambda values: 1)
    assert (sums(rows, "float32", "joint") - whole).norm() <= eta(1.0) * C


def test_rows_of_one_place_are_added_to_each_other_first(monkeypatch):
    """So many roundings as the theorem says: those of a part, and one for each part."""
    monkeypatch.setattr(ghost, "LONGEST_PRODUCT", 3)
    places, rows = torch.tensor([4, 0, 4, 4, 2, 0, 4]), torch.arange(14, dtype=torch.float64).view(7, 2)
    asked: list[tuple[int, int]] = []
    index_add = torch.Tensor.index_add_

    def spied(total, dimension, here, values):
        asked.append((len(total), len(here)))
        return index_add(total, dimension, here, values)

    monkeypatch.setattr(torch.Tensor, "index_add_", spied)
    total = torch.ones(5, 2, dtype=torch.float64)
    ghost._add_rows(total, places, rows)  # noqa: SLF001
    assert torch.equal(total, index_add(torch.ones(5, 2, dtype=torch.float64), 0, places, rows))
    assert [count for size, count in asked if size == 5] == [2, 3, 1]


def test_an_assumption_is_named_where_bits_do_not_hold(monkeypatch):
    from palimpsest.methods.dp_lm.fit import list_assumptions

    assert list_assumptions(query()) == ()
    monkeypatch.setattr(TrainQuery, "batch_bits", lambda self: False)
    assert list_assumptions(query()) == (BATCH_BITS,)


def test_no_trial_vouches_for_the_bits_of_a_mixture_of_experts(monkeypatch):
    from palimpsest.methods.dp_lm.fit import engine_of, list_assumptions

    monkeypatch.setattr(TrainQuery, "check", lambda self: None)
    monkeypatch.setattr(TrainQuery, "batch_bits", lambda self: True)
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "vocab_size": 9,
    }
    mixed = nn.Sequential(MixtralForCausalLM(MixtralConfig(num_key_value_heads=2, num_local_experts=4, **sizes)))
    plain = nn.Sequential(LlamaForCausalLM(LlamaConfig(**sizes)))
    assert list_assumptions(dataclasses.replace(query(), model=mixed)) == (BATCH_BITS,)
    assert list_assumptions(dataclasses.replace(query(), model=plain)) == ()
    assert (engine_of(mixed), engine_of(plain)) == (BookkeepingEngine, IntegerEngine)


def test_empty_sums_are_float64_too():
    """Else the noise would be rounded on another grid where no unit is in the batch."""
    assert bookkeeping.zeros(nn.Parameter(torch.zeros(2, 3).t())).dtype == torch.float64
    found = sums([], "float32", "joint")
    assert found.eq(0).all()


def test_the_loss_of_a_language_model_is_per_row():
    """`lm_head_loss` and the plain loss agree: what the tests above train on is what dp_lm trains on."""
    ids = encode([PrivateRow("abc"), PrivateRow("defghij")])
    model, targets = small_lm(), ids.roll(-1, 1)
    expected = per_example_lm_loss(model(ids).logits, targets, targets != 0)
    torch.testing.assert_close(losses(model, ids)[0], expected)
