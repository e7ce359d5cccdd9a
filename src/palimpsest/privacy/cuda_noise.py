"""Exact Gaussian noise on a CUDA device: one kernel draws it where the sums are, and nothing of their size is copied.

A thread makes one block of ChaCha20's keystream (RFC 8439), which are four pairs of words, settles each pair as
`circle.settle` does, and adds the two numbers on the grid. The few pairs that double precision leaves open are finished
on the processor, by the same intervals as everywhere. So what is added is what `circle.whole_normals` makes of the same
words, to the last bit, and `compute_expected` says so without a device.
"""

from collections.abc import Callable
from functools import cache
from types import FunctionType

import numpy as np
import torch
import triton
import triton.language as tl
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from palimpsest.errors import PalimpsestError
from palimpsest.privacy import circle

Words = Callable[[int], np.ndarray]  # draws that many independent 64-bit words

_KEY_WORDS = 4  # of 64 bits: 256 bits
_PAIRS = 4  # of words in a block of the keystream
_TRIED, _TRIED_GRID = 8197, 2.0**-24
_THREADS = 128  # blocks of the keystream that one program makes
_LOG_2 = tl.constexpr(circle.LOG_2)
_ROOT_BITS = tl.constexpr(circle.ROOT_BITS)
_SHIFTER, _SHIFTER_BITS = tl.constexpr(circle.SHIFTER), tl.constexpr(circle.SHIFTER_BITS)
_LARGEST = tl.constexpr(circle.LARGEST)
_WIDTH = tl.constexpr(circle.WIDTH)
_STEP, _SHARE = (
    tl.constexpr(circle.angle_step.py_func(circle.WIDTH)),
    tl.constexpr(circle.radius_share.py_func(circle.WIDTH)),
)
_ROUNDED_BY_SHIFTER = tl.constexpr(2.0**51)
# The polynomials are those of the processor: one source, two compilers. Triton also reads a function's globals.
_twice_artanh, _sine, _cosine = (
    triton.jit(FunctionType(one.py_func.__code__, globals()))
    for one in (circle.twice_artanh, circle.sine, circle.cosine)
)


class DeviceNoiseError(PalimpsestError):
    """A device does not draw the noise that it should."""


def add_gaussian(values: torch.Tensor, std: float, grid: float, words: Words) -> None:
    """Round (n,) `values` on a CUDA device to `grid` in place and add independent N(0, std^2), also rounded to it.

    Guarantee: that of `NoiseSource.add_gaussian`, with one assumption more. The bits are ChaCha20's under a key of 256
    bits drawn from `words` for this call alone, and are taken for fair ones. The proof of `circle.settle` asks for
    errors of at most 2^-53 of each addition, multiplication, division and square root in double precision, fused or
    not, which CUDA promises. Before its first noise a device is held against the processor on known words.

    Args:
        values: float32 or float64, contiguous.
        std: a standard deviation of 2^24 to 2^25 steps of the grid.
        grid: a power of two.
        words: draws the key, and further bits for pairs that are left open.

    Raises:
        DeviceNoiseError: this device and the processor disagree.
    """
    require_agreement(values.device)
    add_keyed_noise(values, std / grid, grid, words(_KEY_WORDS).tobytes(), words)


def compute_expected(values: np.ndarray, steps: float, grid: float, key: bytes, words: Words) -> np.ndarray:
    """Compute on the CPU what a device must make of (n,) `values` with noise of `steps` grid steps under `key`."""
    drawn = _keystream(key, 0, -(-values.size // (2 * _PAIRS)))
    points = circle.whole_normals(np.concatenate([drawn[0::2], drawn[1::2]]), steps, words)
    result = values.copy()
    circle.add_on_grid(result, np.stack(np.split(points, 2), axis=1).flatten()[: values.size], grid)
    return result


@cache
def require_agreement(device: torch.device) -> None:
    """Compare `device` with the processor once: a compiler that rounds a constant would void the guarantee.

    The first noise is as fine as in training; the second leaves pairs open.
    """
    key, bits = bytes(range(32)), np.random.default_rng(0)

    def words(size: int) -> np.ndarray:
        return bits.integers(0, 2**64, size, dtype=np.uint64)

    for steps, dtype in ((1.5 * 2.0**24, np.float32), (1.7 * 2.0**38, np.float64)):
        values = bits.normal(size=_TRIED).astype(dtype)
        here, state = torch.from_numpy(values.copy()).to(device), bits.bit_generator.state
        add_keyed_noise(here, steps, _TRIED_GRID, key, words)
        bits.bit_generator.state = state
        if not np.array_equal(here.cpu().numpy(), compute_expected(values, steps, _TRIED_GRID, key, words)):
            raise DeviceNoiseError(
                f"The noise that {device} draws is not what the processor draws from the same key.",
                "Train on another device, or with other versions of torch and triton. Nothing was released.",
            )


def add_keyed_noise(values: torch.Tensor, steps: float, grid: float, key: bytes, words: Words) -> None:
    """Add noise to `values` in place on their device, with the result that `compute_expected` computes."""
    blocks = -(-values.numel() // (2 * _PAIRS))
    open_pairs = torch.empty(blocks * _PAIRS, dtype=torch.int8, device=values.device)
    numbers = key + np.array([steps, grid, 1.0 / grid]).tobytes()
    told = torch.from_numpy(np.frombuffer(numbers, dtype=np.int64).copy()).to(values.device)  # one copy: each one waits
    with torch.cuda.device_of(values):
        _noise[(-(-blocks // _THREADS),)](values, open_pairs, told, values.numel(), blocks, _THREADS)
    _finish(values, open_pairs.nonzero().flatten(), steps, grid, key, words)


def _finish(values: torch.Tensor, pairs: torch.Tensor, steps: float, grid: float, key: bytes, words: Words) -> None:
    """Add the pairs that double precision left open: one in about three million."""
    places: list[int] = []
    points: list[int] = []
    for pair in pairs.tolist():
        drawn = _keystream(key, pair // _PAIRS, 1)[2 * (pair % _PAIRS) :][:2].tolist()
        points += circle.refine(circle.cells(drawn, words, circle.WIDTH), drawn[1], steps)
        places += [2 * pair, 2 * pair + 1]
    inside = [index for index, place in enumerate(places) if place < values.numel()]
    if inside:
        where = torch.tensor([places[index] for index in inside], device=values.device)
        here = values[where].cpu()
        circle.add_on_grid(here.numpy(), np.array([points[index] for index in inside], dtype=np.int64), grid)
        values[where] = here.to(values.device)


def _keystream(key: bytes, block: int, blocks: int) -> np.ndarray:
    """Return (8 * blocks,) uint64 of ChaCha20's keystream from `block` on; the nonce is 0, for a key is used once."""
    stream = Cipher(algorithms.ChaCha20(key, block.to_bytes(4, "little") + bytes(12)), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(64 * blocks)), dtype=np.uint64)


@triton.jit(do_not_specialize=["size", "blocks"])  # what is tried is then what is run, whatever the size
def _noise(values, open_pairs, told, size, blocks, THREADS: tl.constexpr):
    """Add noise to `size` values, 8 by each block of the keystream, and mark the pairs that are left open.

    `told` holds seven words of 64 bits: the key, then the bits of std in steps, of the grid and of its inverse.
    """
    block = tl.program_id(0) * THREADS + tl.arange(0, THREADS)
    steps, grid, fineness = _number(told + 4), _number(told + 5), _number(told + 6)
    nothing = tl.full([THREADS], 0, tl.uint32)
    counter = nothing + block.to(tl.uint32)
    c0, c1, c2, c3 = nothing + 0x61707865, nothing + 0x3320646E, nothing + 0x79622D32, nothing + 0x6B206574
    k0, k1, k2, k3 = _key(told, nothing)
    k4, k5, k6, k7 = _key(told + 2, nothing)
    x0, x1, x2, x3, x4, x5, x6, x7 = c0, c1, c2, c3, k0, k1, k2, k3
    x8, x9, x10, x11, x12, x13, x14, x15 = k4, k5, k6, k7, counter, nothing, nothing, nothing
    for _ in range(10):
        x0, x4, x8, x12 = _quarter(x0, x4, x8, x12)
        x1, x5, x9, x13 = _quarter(x1, x5, x9, x13)
        x2, x6, x10, x14 = _quarter(x2, x6, x10, x14)
        x3, x7, x11, x15 = _quarter(x3, x7, x11, x15)
        x0, x5, x10, x15 = _quarter(x0, x5, x10, x15)
        x1, x6, x11, x12 = _quarter(x1, x6, x11, x12)
        x2, x7, x8, x13 = _quarter(x2, x7, x8, x13)
        x3, x4, x9, x14 = _quarter(x3, x4, x9, x14)
    pair, there = block.to(tl.int64) * 4, block < blocks
    first, second = _word(x0 + c0, x1 + c1), _word(x2 + c2, x3 + c3)
    _add_pair(values, open_pairs, pair, there, first, second, steps, grid, fineness, size)
    first, second = _word(x4 + k0, x5 + k1), _word(x6 + k2, x7 + k3)
    _add_pair(values, open_pairs, pair + 1, there, first, second, steps, grid, fineness, size)
    first, second = _word(x8 + k4, x9 + k5), _word(x10 + k6, x11 + k7)
    _add_pair(values, open_pairs, pair + 2, there, first, second, steps, grid, fineness, size)
    first, second = _word(x12 + counter, x13), _word(x14, x15)
    _add_pair(values, open_pairs, pair + 3, there, first, second, steps, grid, fineness, size)


@triton.jit
def _key(told, nothing):
    """Four words of the key of 32 bits, the same in every block."""
    first, second = tl.load(told).to(tl.uint64, bitcast=True), tl.load(told + 1).to(tl.uint64, bitcast=True)
    low, high = nothing + first.to(tl.uint32), nothing + (first >> 32).to(tl.uint32)
    return low, high, nothing + second.to(tl.uint32), nothing + (second >> 32).to(tl.uint32)


@triton.jit
def _number(told):
    return tl.load(told).to(tl.float64, bitcast=True)


@triton.jit
def _quarter(a, b, c, d):
    """ChaCha's quarter round."""
    a += b
    d ^= a
    d = (d << 16) | (d >> 16)
    c += d
    b ^= c
    b = (b << 12) | (b >> 20)
    a += b
    d ^= a
    d = (d << 8) | (d >> 24)
    c += d
    b ^= c
    b = (b << 7) | (b >> 25)
    return a, b, c, d


@triton.jit
def _word(low, high):
    return low.to(tl.uint64) | (high.to(tl.uint64) << 32)


@triton.jit
def _add_pair(values, open_pairs, pair, there, radial, angular, steps, grid, fineness, size):
    first, second, is_open = settle_words(radial, angular, steps)
    tl.store(open_pairs + pair, is_open.to(tl.int8), mask=there)
    _add_on_grid(values, 2 * pair, first, is_open, grid, fineness, size)
    _add_on_grid(values, 2 * pair + 1, second, is_open, grid, fineness, size)


@triton.jit
def settle_words(radial, angular, std):
    """`circle.settle` of words of `circle.WIDTH` bits: two numbers each, and whether they are open."""
    v = _middle(radial)
    bits = v.to(tl.int64, bitcast=True)
    k = (bits - _ROOT_BITS) >> 52
    f = (bits - (k << 52)).to(tl.float64, bitcast=True) - 1.0
    logarithm = (k - _WIDTH).to(tl.float64) * _LOG_2 + _twice_artanh(f / (2.0 + f))
    radius = std * tl.sqrt(-2.0 * logarithm)
    angle = _middle(angular) * _STEP
    sine, cosine = _sine(angle), _cosine(angle)
    swapped = (angular & 1) != 0
    first = tl.where((angular & 2) != 0, radius, -radius) * tl.where(swapped, sine, cosine)
    second = tl.where((angular & 4) != 0, radius, -radius) * tl.where(swapped, cosine, sine)
    near_first, near_second = first + _SHIFTER, second + _SHIFTER
    off = tl.maximum(tl.abs(first - (near_first - _SHIFTER)), tl.abs(second - (near_second - _SHIFTER)))
    closed = (0.5 - off - _SHARE * radius) * v * radius >= 2.0 * std * std
    first_whole = near_first.to(tl.int64, bitcast=True) - _SHIFTER_BITS
    return first_whole, near_second.to(tl.int64, bitcast=True) - _SHIFTER_BITS, (v < 1.0) | (closed == 0)


@triton.jit
def _middle(word):
    return (word >> 12).to(tl.int64).to(tl.float64) + 0.5


@triton.jit
def _add_on_grid(values, place, steps, is_open, grid, fineness, size):
    """`circle.add_on_grid` for the values at `place`, where they are inside and not open."""
    inside = place < size
    value = tl.load(values + place, mask=inside, other=0.0).to(tl.float64) * fineness
    value = tl.where(value > -_LARGEST, value, -_LARGEST)
    value = tl.where(value < _LARGEST, value, _LARGEST)
    cut = value.to(tl.int64)
    half = 2.0 * (value - cut.to(tl.float64))  # from 2^51 steps on a double has no more than halves: 0, 1 or -1
    even = cut + tl.where((cut & 1) == 0, 0.0, half).to(tl.int64)
    near = ((value + _SHIFTER) - _SHIFTER).to(tl.int64)
    whole = tl.where(tl.abs(value) < _ROUNDED_BY_SHIFTER, near, even)
    tl.store(values + place, (whole + steps).to(tl.float64) * grid, mask=inside & (is_open == 0))
