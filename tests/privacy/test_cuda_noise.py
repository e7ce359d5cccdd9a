"""Noise that a device draws: its keystream, double precision and grid, on a device or by Triton's interpreter."""

import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from palimpsest.privacy import circle
from palimpsest.privacy.entropy import device_noise, grid_of
from tests.privacy.test_circle import near_a_boundary

HERE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
APART = Path(sys.prefix, "share", "triton")  # where torch does not bring Triton along, `make test` puts it
with pytest.MonkeyPatch.context() as patch:
    if not find_spec("triton"):
        patch.syspath_prepend(APART)
    if not find_spec("triton"):
        pytest.skip("triton, which draws noise on devices, is not installed", allow_module_level=True)
    if HERE.type == "cpu":
        patch.setenv("TRITON_INTERPRET", "1")  # kernels run as Python, one operation after the other
    import triton
    import triton.language as tl

    from palimpsest.privacy import cuda_noise
    from palimpsest.privacy.cuda_noise import DeviceNoiseError, add_gaussian, add_keyed_noise, compute_expected

    @triton.jit
    def settle_words(words, points, left_open, std, PAIRS: tl.constexpr):
        """`circle.settle` as the device computes it."""
        pair = tl.arange(0, PAIRS)
        radial = tl.load(words + pair).to(tl.uint64, bitcast=True)
        angular = tl.load(words + PAIRS + pair).to(tl.uint64, bitcast=True)
        first, second, is_open = cuda_noise.settle_words(radial, angular, tl.load(std))
        tl.store(points + pair, first)
        tl.store(points + PAIRS + pair, second)
        tl.store(left_open + pair, is_open.to(tl.int8))


STEPS = 1.5 * 2.0**24
KEY = bytes(range(7, 39))
HALVES = [half * 2.0**-24 for whole in (2.0**51 + 1, 2.0**51 + 2, 2.0**52 - 1) for half in (whole + 0.5, -whole - 0.5)]
HARD = [
    *HALVES, 0.0, -0.0, math.inf, -math.inf, math.nan, 1e300, -1e300, 3e-9, 2.0**-25, 1.5 * 2.0**-24, -2.5 * 2.0**-24,
]  # fmt: skip


@pytest.fixture(autouse=True)
def anew(monkeypatch) -> None:
    if HERE.type == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")
        monkeypatch.setattr(cuda_noise, "_TRIED", 1021)  # one program: the interpreter takes half a second for each
    cuda_noise.require_agreement.cache_clear()


def counted() -> Iterator[int]:
    yield from np.random.default_rng(3).integers(0, 2**63, 100_000).tolist()


def words_of(source: Iterator[int]) -> cuda_noise.Words:
    return lambda size: np.array([next(source) for _ in range(size)], dtype=np.uint64)


@pytest.mark.parametrize(
    ("size", "dtype"),
    [(1, np.float64), (2, np.float32), (7, np.float64), (8, np.float32), (9, np.float64), (1023, np.float32),
     (1025, np.float32), (1025, np.float64)],
)  # fmt: skip
def test_a_device_makes_of_a_key_what_the_processor_makes_of_it(size, dtype):
    """The processor's keystream is a library's ChaCha20."""
    values = np.random.default_rng(size).normal(size=size).astype(dtype)
    with np.errstate(over="ignore"):
        values[: len(HARD)] = np.array(HARD[:size], dtype=dtype)
    here = torch.from_numpy(values.copy()).to(HERE)
    add_keyed_noise(here, STEPS, 2.0**-24, KEY, words_of(counted()))
    assert np.array_equal(here.cpu().numpy(), compute_expected(values, STEPS, 2.0**-24, KEY, words_of(counted())))


def test_pairs_that_are_left_open_are_finished_with_further_words():
    values, steps = np.zeros(1501), 1.7 * 2.0**42
    here = torch.from_numpy(values.copy()).to(HERE)
    source = counted()
    add_keyed_noise(here, steps, 1.0, KEY, words_of(source))
    assert next(source) != next(counted())  # some were drawn
    assert np.array_equal(here.cpu().numpy(), compute_expected(values, steps, 1.0, KEY, words_of(counted())))


@pytest.mark.parametrize("std", [0.3, 1.0, 1000.0, 2.0**24, 2.0**25, 1.7 * 2.0**34])
def test_what_a_device_settles_intervals_decide_alike(std):
    """Cells that a half above a whole number crosses, their neighbours, and cells anywhere, in all octants."""
    random = np.random.default_rng(int(std))
    planted = np.array(list(near_a_boundary(random, std, 60)))[:400]
    cells = np.concatenate([planted, random.integers(0, 2**52, (512 - len(planted), 2))]).astype(np.uint64)
    words = cells.T.flatten() << np.uint64(12)
    words[512:] |= random.integers(0, 8, 512).astype(np.uint64)
    points, left_open = (
        torch.empty(1024, dtype=torch.int64, device=HERE),
        torch.empty(512, dtype=torch.int8, device=HERE),
    )
    settle_words[(1,)](
        torch.from_numpy(words.view(np.int64)).to(HERE),
        points,
        left_open,
        torch.tensor([std], dtype=torch.float64, device=HERE),
        512,
    )
    closed = np.flatnonzero(left_open.cpu().numpy() == 0)
    assert 100 < len(closed) < 512
    found = points.cpu().numpy()
    for index in closed:
        drawn = [int(words[index]), int(words[512 + index])]
        exact = circle.refine(circle.cells(drawn, nothing_more, circle.WIDTH), drawn[1], std)
        assert (found[index], found[512 + index]) == exact


def nothing_more(size: int) -> np.ndarray:
    raise AssertionError("A cell that the device took for settled is open.")


def test_a_key_is_drawn_for_every_tensor():
    words, std = words_of(counted()), 1.5
    first, second = (torch.zeros(64, device=HERE) for _ in range(2))
    for values in (first, second):
        add_gaussian(values, std, grid_of(std), words)
    assert not (first == second).any()
    again = torch.zeros(64, device=HERE)
    add_gaussian(again, std, grid_of(std), words_of(counted()))
    assert torch.equal(first, again)


@pytest.mark.skipif(HERE.type == "cuda", reason="what is compiled keeps its constants")
@pytest.mark.parametrize("name", ["_LOG_2", "_STEP"])
def test_a_device_that_rounds_a_constant_adds_no_noise(monkeypatch, name):
    exact = getattr(cuda_noise, name).value
    monkeypatch.setattr(cuda_noise, name, tl.constexpr(float(np.float32(exact))))
    values = torch.zeros(8, device=HERE)
    with pytest.raises(DeviceNoiseError, match="is not what the processor draws"):
        add_gaussian(values, 1.5, grid_of(1.5), words_of(counted()))
    assert not values.any()


@pytest.mark.parametrize(
    ("cuda", "there", "compiles", "drawn"),
    [(None, True, True, False), ("13.0", False, True, False), ("13.0", True, False, False), ("13.0", True, True, True)],
)
def test_a_device_draws_where_torch_is_cudas_and_triton_compiles(monkeypatch, cuda, there, compiles, drawn):
    monkeypatch.setattr(torch.version, "cuda", cuda)
    if not there:
        monkeypatch.delattr("palimpsest.privacy.cuda_noise")
        monkeypatch.setitem(sys.modules, "palimpsest.privacy.cuda_noise", None)
    if not compiles:
        monkeypatch.setattr(cuda_noise, "add_keyed_noise", no_compiler)
    agree = cuda_noise.require_agreement
    monkeypatch.setattr(cuda_noise, "require_agreement", lambda device: agree(HERE))
    assert device_noise.__wrapped__(torch.device("cuda")) is (add_gaussian if drawn else None)
    assert device_noise.__wrapped__(torch.device("cpu")) is None


def no_compiler(*arguments: object) -> None:
    raise RuntimeError("Failed to find C compiler.")


END = "// end of one kind"
COMPILE = """
import sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from palimpsest.privacy.cuda_noise import _noise
for kind in ("*fp32", "*fp64"):
    kinds = {"values": kind, "open_pairs": "*i8", "told": "*i64", "size": "i32", "blocks": "i32"}
    source = ASTSource(_noise, kinds | {"THREADS": "constexpr"}, {"THREADS": 128})
    print(triton.compile(source, target=GPUTarget("cuda", 80, 32)).asm["ptx"], end=sys.argv[1])
"""


def test_compiled_every_operation_is_rounded_to_the_nearest_in_double_precision():
    """What the proof asks of a device, in the code that the compiler makes for one; no device is needed for it."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in (os.environ.get("PYTHONPATH"), str(APART)) if path)
    command = [sys.executable, "-c", COMPILE, END]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    codes = told.split(END)[:-1]
    assert len(codes) == 2
    for code in codes:
        assert {"sqrt.rn.f64", "div.rn.f64"} <= set(re.findall(r"\b(?:sqrt|div)\.[a-z0-9.]*", code))
        assert not re.search(r"approx|\.ftz|\b(?:add|sub|mul|div|fma|sqrt|neg)\.[a-z.]*f(?:16|32)\b", code)
