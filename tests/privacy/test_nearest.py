"""Nearest neighbours: as exact integers say, ties to the smaller index, and nothing of one row in another's answer."""

import math
import os
import subprocess
import sys
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from palimpsest.errors import ModelError
from palimpsest.privacy import nearest as module
from palimpsest.privacy.nearest import STEPS, find_nearest, round_to_grid

COARSE = st.sampled_from([-2.0, -1.0, 0.0, 1.0, 3.0])  # many ties
ANY = st.one_of(COARSE, st.floats(width=32), st.floats(-1, 1), st.floats(width=64))
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
BLOCKS = st.tuples(st.integers(1, 9), st.integers(1, 9))


def vectors(dimensions: int, elements: st.SearchStrategy[float], most: int = 12) -> st.SearchStrategy[np.ndarray]:
    shape = st.tuples(st.integers(0, most), st.just(dimensions))
    return arrays(np.float64, shape, elements=elements)


PAIRS = st.tuples(st.integers(1, 5), st.sampled_from([COARSE, ANY])).flatmap(
    lambda kind: st.tuples(vectors(*kind), vectors(*kind))
)


def brute(rows: np.ndarray, candidates: np.ndarray, k: int) -> list[list[int]]:
    """The same from whole numbers, one row at a time."""
    points = (round_to_grid(candidates) * STEPS).astype(np.int64)
    usable = [index for index, point in enumerate(points) if point.any()]
    answers = []
    for row in (round_to_grid(rows) * STEPS).astype(np.int64):
        scores = {index: int(sum(int(a) * int(b) for a, b in zip(row, points[index], strict=True))) for index in usable}
        best = sorted(usable, key=lambda index: (-scores[index], index))[:k] if row.any() else []
        answers.append(best + [-1] * (k - len(best)))
    return answers


# The grid.


@settings(deadline=None)
@given(arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 9)), elements=st.floats(width=64)))
def test_no_vector_on_the_grid_is_longer_than_one(values):
    steps = round_to_grid(values).astype(np.float64) * STEPS
    assert (steps == np.rint(steps)).all()
    lengths = [sum(int(step) ** 2 for step in row) for row in steps]
    assert max(lengths) <= STEPS**2
    usable = np.isfinite(values).all(axis=1) & values.any(axis=1)
    assert [length > 0 for length in lengths] == usable.tolist()
    assert all(length >= (STEPS - 9) ** 2 for length in np.array(lengths)[usable])


@pytest.mark.parametrize("dimensions", [1, 2, 4, 16, 384, 4096])
def test_vectors_whose_length_is_rounded_up_stay_within_one(dimensions):
    rng = np.random.default_rng(dimensions)
    even = np.full((1, dimensions), 1.0)  # where the dimension is a power of 4 it lies on the grid, of length 1 exactly
    for values in (rng.normal(size=(200, dimensions)), rng.normal(size=(200, dimensions)).astype(np.float32), even):
        steps = (round_to_grid(values) * STEPS).astype(np.int64)
        assert (np.square(steps).sum(axis=1) <= STEPS**2).all()
    assert np.square(steps).sum() == STEPS**2 or dimensions in (2, 384)


@settings(deadline=None)
@given(arrays(np.float32, st.tuples(st.integers(1, 300), st.integers(1, 40)), elements=st.floats(-1, 1, width=32)))
def test_a_row_on_the_grid_does_not_depend_on_the_others_nor_on_the_order_in_memory(values):
    whole = round_to_grid(values)
    alone = np.concatenate([round_to_grid(row[None]) for row in values])
    assert whole.tobytes() == alone.tobytes() == round_to_grid(np.asfortranarray(values)).tobytes()


def test_long_rows_do_not_depend_on_the_others_nor_on_the_order_in_memory():
    values = np.random.default_rng(3).normal(size=(500, 1000))
    alone = np.concatenate([round_to_grid(row[None]) for row in values])
    assert round_to_grid(values).tobytes() == alone.tobytes() == round_to_grid(np.asfortranarray(values)).tobytes()


def whole_of_length(length: int, dimensions: int, rng: np.random.Generator) -> list[int]:
    """Whole numbers whose squares add up to length^2."""
    numbers: list[int] = []
    left = length**2
    while left:
        most = math.isqrt(left)
        numbers.append(int(rng.integers(1, min(most, 2 * length // math.isqrt(dimensions)) + 1)))
        numbers[-1] = most if len(numbers) > dimensions - 40 else numbers[-1]
        left -= numbers[-1] ** 2
    return [*numbers, *[0] * (dimensions - len(numbers))]


def test_vectors_that_lie_on_the_grid_are_cut_alike_alone_and_among_others():
    """Where the last bit of a norm decides: a sum in another order would show."""
    rng = np.random.default_rng(8)
    values = np.array([rng.permutation(whole_of_length(STEPS, 400, rng)) for _ in range(300)], dtype=np.float64)
    alone = np.concatenate([round_to_grid(row[None]) for row in values])
    assert round_to_grid(values).tobytes() == alone.tobytes() == round_to_grid(np.asfortranarray(values)).tobytes()


# Answers.


@settings(deadline=None, max_examples=300)
@given(PAIRS, st.integers(1, 6), BLOCKS)
def test_the_answer_is_that_of_whole_numbers(pair, k, blocks):
    rows, candidates = pair
    assert find_nearest(rows, candidates, k, blocks=blocks).tolist() == brute(rows, candidates, k)


@pytest.mark.parametrize("k", [1, 5])
def test_many_dimensions_with_near_ties(k):
    """Candidates one step apart in one coordinate: the 24th bit decides."""
    rng = np.random.default_rng(0)
    base = round_to_grid(rng.normal(size=(1, 384)))
    candidates = np.repeat(base, 40, axis=0) + rng.integers(-1, 2, size=(40, 384)) / STEPS * (
        rng.random((40, 384)) < 0.1
    )
    rows = np.concatenate([candidates, base + rng.normal(size=(100, 384)) * 0.01])
    steps = (round_to_grid(rows) * STEPS).astype(np.int64) @ (round_to_grid(candidates) * STEPS).astype(np.int64).T
    expected = np.argsort(-steps, axis=1, kind="stable")[:, :k]
    assert (find_nearest(rows, candidates, k) == expected).all()
    assert (find_nearest(rows, candidates, k, blocks=(7, 11)) == expected).all()


@settings(deadline=None)
@given(PAIRS, st.integers(1, 3), BLOCKS, BLOCKS, st.data())
def test_other_rows_do_not_show(pair, k, blocks, others, data):
    rows, candidates = pair
    found = find_nearest(rows, candidates, k, blocks=blocks)
    kept = data.draw(st.permutations(range(len(rows))).map(lambda order: order[: len(order) // 2 + 1]))
    assert (find_nearest(rows[kept], candidates, k, blocks=others) == found[kept]).all()


@pytest.mark.parametrize("k", [1, 10])
def test_a_row_alone_is_answered_as_among_thousands(k):
    """At the size of real encoders, where a library chooses its order of adding by the number of rows."""
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(20, 384))
    rows = (centres[rng.integers(0, 20, 5000)] + rng.normal(size=(5000, 384)) * 0.05).astype(np.float32)
    candidates = np.concatenate([rows[:1500], rows[500:2000]])  # a thousand of them twice
    found = find_nearest(rows, candidates, k)
    for index in (0, 1, 777, 4095, 4096, 4999):
        assert (find_nearest(rows[index : index + 1], candidates, k) == found[index]).all()
    assert (find_nearest(rows[1:], candidates, k, blocks=(100, 999)) == found[1:]).all()
    assert (found[500:1500, 0] == np.arange(500, 1500)).all()  # the first of two that are equal
    assert k == 1 or (found[500:1500, 1] == np.arange(1500, 2500)).all()


def test_a_product_as_libraries_round_it_does_depend_on_others():
    """What the module is for: float32 products of the same vectors, not on the grid, change with the block."""
    rng = np.random.default_rng(2)
    rows, candidates = (rng.normal(size=(300, 384)).astype(np.float32) for _ in range(2))
    whole = rows @ candidates.T
    assert any((row @ candidates.T != whole[index]).any() for index, row in enumerate(rows))


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_ties_go_to_the_smaller_index_in_every_order(order):
    candidates = np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])[list(order)]
    expected = sorted(range(3), key=lambda place: (order[place] == 2, place))
    for block in (1, 2, 3):
        assert find_nearest(np.array([[5.0, 0.0]]), candidates, 3, blocks=(1, block)).tolist() == [expected]
        assert find_nearest(np.array([[5.0, 0.0]]), candidates, 1, blocks=(1, block)).tolist() == [expected[:1]]


def test_who_has_no_direction_has_no_neighbour_and_is_none():
    nothing = np.array([[0.0, 0.0], [np.nan, 1.0], [np.inf, 0.0], [-1.0, -1.0]])
    assert find_nearest(nothing, np.array([[0.0, 0.0], [1.0, 1.0]]), 2).tolist() == [[-1, -1]] * 3 + [[1, -1]]
    assert find_nearest(np.array([[1.0, 1.0]]), nothing, 2).tolist() == [[3, -1]]  # however far it is
    assert find_nearest(np.array([[1.0, 1.0]]), nothing[:3]).tolist() == [[-1]]


@pytest.mark.parametrize("k", [1, 2])
def test_nothing_to_find(k):
    assert find_nearest(np.ones((2, 3)), np.empty((0, 3)), k).tolist() == [[-1] * k] * 2
    assert find_nearest(np.empty((0, 3)), np.ones((2, 3)), k).shape == (0, k)


def test_a_memory_map_is_read(tmp_path):
    rng = np.random.default_rng(4)
    rows, candidates = rng.normal(size=(50, 8)).astype(np.float32), rng.normal(size=(9, 8)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert (find_nearest(mapped, candidates, 3) == find_nearest(rows, candidates, 3)).all()


@pytest.mark.parametrize("wrong", [{"k": 0}, {"blocks": (0, 1)}, {"blocks": (1, 0)}])
def test_senseless_numbers_are_refused(wrong):
    with pytest.raises(ValueError, match="must be > 0"):
        find_nearest(np.ones((1, 2)), np.ones((1, 2)), **wrong)


def test_threads_do_not_show(tmp_path):
    """They are one here, as in all tests, and two in a process of its own."""
    program = """if True:
        import numpy as np, sys
        from palimpsest.privacy.nearest import find_nearest
        np.savez(sys.argv[2], *(find_nearest(*np.load(sys.argv[1]).values(), k) for k in (1, 4)))
    """
    rng = np.random.default_rng(5)
    rows, candidates = rng.normal(size=(3000, 96)), rng.normal(size=(900, 96))
    given, found = tmp_path / "given.npz", tmp_path / "found.npz"
    np.savez(given, rows, candidates)
    subprocess.run(
        [sys.executable, "-c", program, given, found], check=True,
        env={**os.environ, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"},
    )  # fmt: skip
    for k, there in zip((1, 4), np.load(found).values(), strict=True):
        assert np.array_equal(find_nearest(rows, candidates, k), there)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("k", [1, 7])
def test_every_device_says_the_same(monkeypatch, device, k):
    rng = np.random.default_rng(6)
    rows, candidates = rng.normal(size=(700, 384)), rng.normal(size=(900, 384))
    candidates[500:800] = candidates[:300]
    by_numpy = find_nearest(rows, candidates, k)
    monkeypatch.setattr(module, "_uses_numpy", lambda tensor: False)  # so that a CPU takes the way of a GPU, too
    assert (find_nearest(rows, candidates, k, torch.device(device)) == by_numpy).all()
    assert (find_nearest(rows, candidates, k, torch.device(device), (64, 100)) == by_numpy).all()


# Precision.


@pytest.mark.parametrize("lost", [12, 13, 16])
def test_a_product_of_fewer_bits_is_noticed(monkeypatch, lost):
    """TF32 keeps 11 bits of each factor, bfloat16 8: `lost` of 24 are rounded off."""

    def coarse(rows: torch.Tensor, candidates: torch.Tensor, products: torch.Tensor) -> None:
        torch.mm(rounded(rows, lost), rounded(candidates, lost).T, out=products)

    monkeypatch.setattr(module, "_multiply", coarse)
    if lost == 12:  # 12 bits hold every vector on the grid
        assert find_nearest(np.eye(3), np.eye(3)).tolist() == [[0], [1], [2]]
    else:
        with pytest.raises(ModelError, match="precision"):
            find_nearest(np.eye(3), np.eye(3))


def rounded(values: torch.Tensor, lost: int) -> torch.Tensor:
    words = values.view(torch.int32)
    return (words + (1 << (lost - 1)) >> lost << lost).view(torch.float32)


def test_tf32_is_off_within_and_as_before_after():
    setting = torch.backends.cuda.matmul
    before = setting.fp32_precision
    setting.fp32_precision = "tf32"
    try:
        with module._use_full_precision():  # noqa: SLF001
            assert setting.fp32_precision == "ieee"
        assert setting.fp32_precision == "tf32"
    finally:
        setting.fp32_precision = before
