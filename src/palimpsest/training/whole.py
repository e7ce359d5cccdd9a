"""Whole numbers in digits: records rounded to them, their exact products, and the exact sums of these.

A record (B, T, n) of float32 is multiplied by a factor of each token and rounded to whole numbers of one digit, -127 to
127, or of two digits to base 128. Which whole numbers an example gets depends on its own bits, its factors and its
seed, and on nothing beside it. No order of addition changes an exact sum, and each is kept where it is exact:

* a product of int8 in int32, which holds `MOST_TERMS` products of any two digits. An upper digit that is 0 throughout
  is left out;
* where a processor has no fast products of int8, of the same numbers in float32, which holds whole sums up to 2^24: as
  many products at a time as stay below that. Where these are too few, in float64;
* all further sums in float64, which holds whole numbers up to 2^53.

Kernels for processors are compiled and release Python's lock, so that threads share the rows. Other devices compute the
same functions with torch.
"""

import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial, reduce

import numpy as np
import torch
from numba import njit

TOP = {1: 127, 2: 127 * 128}  # largest whole number of one digit, and of two
BASE = 128.0  # a higher digit counts this many times
MOST_TERMS = (2**31 - 1) // 128**2  # products of two digits that int32 always holds: 131,071
_SINGLE = 2.0**24  # whole numbers up to here are exact in float32
_FEWEST = 64  # terms below which a product in float32 is cut so often that float64 is sooner done
_BLOCK = 1 << 13  # rows or columns of a product at once
_COPIED = 1 << 22  # numbers that are widened at once
_TRIED = (2, 3, 17, 64, 200)  # rows, terms and columns of the products on trial
_SHARE = 1 << 16  # numbers below which another thread costs more than it saves
_PART = 1 << 12  # numbers that are added up before their sum is
_kernel = njit(cache=True, error_model="numpy", nogil=True)


@_kernel
def _peak_rows(rows: np.ndarray, out: np.ndarray) -> None:  # pragma: no cover - compiled
    """Write the largest |entry| of each row as bits, by which NaN and infinity stay above every number."""
    for i in range(rows.shape[0]):
        top = np.int32(0)
        for j in range(rows.shape[1]):
            top = max(top, rows[i, j] & np.int32(0x7FFFFFFF))
        out[i] = top


@_kernel
def _round_rows(rows: np.ndarray, factors: np.ndarray, seeds: np.ndarray, out: np.ndarray) -> None:  # pragma: no cover
    """Round rows * factors up or down by a public hash of (seed, column), without bias.

    A factor of 0 gives 0, whatever the row holds."""
    limit = np.float32(127.0)
    for i in range(rows.shape[0]):
        factor, seed = factors[i], seeds[i]
        start = np.uint32(seed * np.uint32(0xC2B2AE3D))
        start = np.uint32(np.uint32(start ^ np.uint32(start >> np.uint32(13))) * np.uint32(0x27D4EB2F))
        for j in range(rows.shape[1]):
            if factor == 0:
                out[i, j] = 0
                continue
            word = np.uint32(np.uint32(np.uint32(j) * np.uint32(0x9E3779B1)) ^ start)
            word = np.uint32(np.uint32(word ^ np.uint32(word >> np.uint32(15))) * np.uint32(0x85EBCA77))
            share = np.float32(np.int32(word >> np.uint32(9))) * np.float32(2.0**-23)
            value = np.floor(rows[i, j] * factor + share)
            out[i, j] = np.int8(np.int32(min(max(value, -limit), limit)))


@_kernel
def _split_rows(rows: np.ndarray, factors: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:  # pragma: no cover
    """Round rows * factors to the nearest 128 * high + low, with low from -64 to 63; a factor of 0 gives 0."""
    limit = np.float32(127.0 * 128.0)
    for i in range(rows.shape[0]):
        factor = factors[i]
        for j in range(rows.shape[1]):
            if factor == 0:
                high[i, j], low[i, j] = 0, 0
                continue
            value = np.int32(min(max(np.floor(rows[i, j] * factor + np.float32(0.5)), -limit), limit))
            upper = (value + np.int32(64)) >> np.int32(7)
            high[i, j], low[i, j] = np.int8(upper), np.int8(value - (upper << np.int32(7)))


@_kernel
def _dot_grams(one: np.ndarray, other: np.ndarray, weights: np.ndarray, out: np.ndarray) -> None:  # pragma: no cover
    """Write for each example the sum over t, s of w_t w_s one_ts other_ts, and the sum over t of w_t |a_t||g_t|."""
    for b in range(one.shape[0]):
        total, size = 0.0, 0.0
        for t in range(one.shape[1]):
            row = 0.0
            for s in range(one.shape[2]):
                row += weights[b, s] * (np.float64(one[b, t, s]) * np.float64(other[b, t, s]))
            total += row * weights[b, t]
            size += np.sqrt(np.float64(one[b, t, t]) * np.float64(other[b, t, t])) * weights[b, t]
        out[b, 0], out[b, 1] = total, size


@njit(cache=True, error_model="numpy", nogil=True, fastmath={"reassoc", "nsz"})
def _square_rows(rows: np.ndarray, out: np.ndarray) -> None:  # pragma: no cover - compiled
    """Write the sum of squares of each row, whose order is left to the processor: parts of `_PART`, then their sums."""
    for i in range(rows.shape[0]):
        total = 0.0
        for start in range(0, rows.shape[1], _PART):
            part = 0.0
            for number in rows[i, start : start + _PART]:
                part += np.float64(number) * np.float64(number)
            total += part
        out[i] = total


@_kernel
def _scale_rows(most: float, rows: np.ndarray, factors: np.ndarray, out: np.ndarray) -> None:  # pragma: no cover
    """Round rows * factors to the nearest whole number from -most to most; a factor of 0 gives 0."""
    for i in range(rows.shape[0]):
        factor = factors[i]
        if factor == 0:
            out[i] = np.float32(0.0)
            continue
        for j in range(rows.shape[1]):
            out[i, j] = min(max(np.rint(rows[i, j] * factor), -most), most)


@_kernel
def _add_rows(rows: np.ndarray, unit: float, total: np.ndarray, start: int, end: int) -> None:  # pragma: no cover
    """Add unit * (the sum of all rows) to `total`, in the columns from `start` to `end`."""
    part = np.empty(_PART)
    for at in range(start, end, _PART):
        width = min(_PART, end - at)
        part[:] = 0.0
        for i in range(rows.shape[0]):
            for j in range(width):
                part[j] += np.float64(rows[i, at + j])
        for j in range(width):
            total[at + j] += unit * part[j]


def _in_threads(kernel: Callable[..., None], *arrays: np.ndarray) -> None:
    """Run a kernel on shares of the first dimension, as many at once as torch has threads."""
    _share(len(arrays[0]), arrays[0].size, lambda a, b: kernel(*(array[a:b] for array in arrays)))


def _share(count: int, numbers: int, work: Callable[[int, int], None]) -> None:
    """Do `work` on shares of 0 to `count`, as many at once as torch has threads and as pay for that many numbers."""
    shares = max(1, min(torch.get_num_threads(), count, numbers // _SHARE))
    if shares == 1:
        work(0, count)
        return
    bounds = np.linspace(0, count, shares + 1).astype(int).tolist()
    list(_threads(shares, os.getpid()).map(work, bounds[:-1], bounds[1:]))


@cache
def _threads(count: int, _process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count)  # a process that was forked has none of the threads of the one before


def peaks(records: torch.Tensor) -> torch.Tensor:
    """Return the largest |entry| (B, T) of each row of `records` (B, T, n) float32; not finite where one is not."""
    if records.device.type != "cpu":
        return records.abs().amax(2)
    out = torch.empty(records.shape[:2], dtype=torch.int32)
    _in_threads(_peak_rows, records.flatten(0, 1).view(torch.int32).numpy(), out.flatten().numpy())
    return out.view(torch.float32)


@dataclass(frozen=True)
class Whole:
    """Whole numbers (B, T, n).

    Attributes:
        digits: int8, the lower one first.
        top: no number is larger.
    """

    digits: tuple[torch.Tensor, ...]
    top: float = float(TOP[1])

    @classmethod
    def round(cls, records: torch.Tensor, factors: torch.Tensor, seeds: torch.Tensor) -> "Whole":
        """Round `records` (B, T, n) float32 times `factors` (B, T) to one digit.

        Args:
            seeds: (B, T) int32, public functions of the example, the place and the step, by which rounding has no bias.
        """
        factors = factors.float().contiguous()
        if records.device.type != "cpu":
            return cls((_rounded(records, factors, seeds),))
        out = torch.empty(records.shape, dtype=torch.int8)
        parts = records.flatten(0, 1).numpy(), factors.flatten().numpy(), seeds.flatten().numpy().view(np.uint32)
        _in_threads(_round_rows, *parts, out.flatten(0, 1).numpy())
        return cls((out,))

    @classmethod
    def split(cls, records: torch.Tensor, factors: torch.Tensor, peak: torch.Tensor) -> "Whole":
        """Round `records` (B, T, n) float32 times `factors` (B, T) to the nearest number of two digits.

        Args:
            peak: (B, T), the largest entry of each row.
        """
        factors = factors.float().contiguous()
        top = min(float(TOP[2]), 1.0 + float(torch.where(factors > 0, factors * peak, 0.0).max()))
        if records.device.type != "cpu":
            return cls(_halves(records, factors), top)
        low, high = (torch.empty(records.shape, dtype=torch.int8) for _ in range(2))
        parts = (records.flatten(0, 1).numpy(), factors.flatten().numpy())
        _in_threads(_split_rows, *parts, low.flatten(0, 1).numpy(), high.flatten(0, 1).numpy())
        return cls((low, high), top)

    def gram(self) -> torch.Tensor:
        """Return the exact inner products of the tokens, (B, T, T), in int32, float32 or float64."""
        if not uses_int8(self.device):
            return _float_grams(self)
        low, *rest = self.used
        if not rest:
            return _grams(low, low)
        high = rest[0]
        mixed = _grams(high, low).double()
        return BASE**2 * _grams(high, high).double() + _grams(low, low).double() + BASE * (mixed + mixed.mT)

    @property
    def used(self) -> tuple[torch.Tensor, ...]:
        """The digits but an upper one that is 0 throughout, as it is where no number is above 63."""
        return self.digits if self.top >= BASE / 2 else self.digits[:1]

    @property
    def device(self) -> str:
        """The type of device that holds them."""
        return self.digits[0].device.type

    def to(self, kind: torch.dtype) -> torch.Tensor:
        """Return the numbers themselves, (B, T, n), in float32 or float64: both hold them exactly."""
        parts = [BASE**power * digit.to(kind) for power, digit in enumerate(self.used)]
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def examples(self, start: int, count: int) -> "Whole":
        """Return these examples."""
        return Whole(tuple(digit[start : start + count] for digit in self.digits), self.top)

    def columns(self, start: int, width: int) -> "Whole":
        """Return these columns of every token."""
        return Whole(tuple(digit.narrow(2, start, width) for digit in self.digits), self.top)

    def pick(self, columns: torch.Tensor) -> torch.Tensor:
        """Return the entries at each example's `columns` (B, S) of every token, (B, T, S) float64."""
        places = columns[:, None, :].expand(-1, self.digits[0].size(1), -1)
        return Whole(tuple(digit.gather(2, places) for digit in self.digits), self.top).to(torch.float64)


def bound_square(one: torch.Tensor, other: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return (B,) float64, at least the squared norm of sum_t w_t a_t (x) g_t, and nearly it, from Gram matrices.

    Proof that it is not below. Entries and weights are exact, each product of two entries loses one rounding and each
    sum of up to 2^16 terms at most 2^16: in all below 2^-36 of the sum of sizes, which is k^2 with
    k = sum_t w_t |a_t||g_t| (Cauchy and Schwarz). So much is added.

    Args:
        one: (B, T, T), exact inner products of the a_t.
        other: of the g_t.
        weights: (B, T) float64, w_t >= 0.
    """
    if one.device.type != "cpu":
        values = one.double() * other.double() * weights[:, :, None] * weights[:, None, :]
        sizes = (one.diagonal(dim1=1, dim2=2).double() * other.diagonal(dim1=1, dim2=2).double()).sqrt() * weights
        return values.sum(2).sum(1) + 2.0**-36 * sizes.sum(1).square()
    out = torch.empty(len(one), 2, dtype=torch.float64)
    _in_threads(_dot_grams, *(part.contiguous().numpy() for part in (one, other, weights, out)))
    return out[:, 0] + 2.0**-36 * out[:, 1].square()


def add_product(total: torch.Tensor, left: Whole, right: Whole, unit: float) -> None:
    """Add unit * left^T right to `total` (m, n) float64, exactly, in blocks of its longer side: copies stay small.

    Every number that is added is a whole multiple of `unit`, a power of two, and so is the total, below 2^53 of it.
    """
    longer = int(total.size(1) > total.size(0))
    for at in range(0, total.size(longer), _BLOCK):
        width = min(_BLOCK, total.size(longer) - at)
        one, other = (left, right.columns(at, width)) if longer else (left.columns(at, width), right)
        _add_block(total.narrow(longer, at, width), one, other, unit)


def _add_block(total: torch.Tensor, left: Whole, right: Whole, unit: float) -> None:
    if not uses_int8(left.device):
        for a, b in _exact_parts(left, right):
            total.add_(a.T @ b, alpha=unit)
        return
    for i, one in enumerate(left.used):
        for j, other in enumerate(right.used):
            parts = (digits.flatten(0, 1).split(MOST_TERMS) for digits in (one, other))
            for a, b in zip(*parts, strict=True):
                total.add_(multiply(a.T, b), alpha=unit * BASE ** (i + j))


def square_rows(rows: torch.Tensor) -> torch.Tensor:
    """Return (B,) float64, the squared length of each row of `rows` (B, n) float32.

    Each square is exact, and sums of parts lose less than 2^-36 of the whole for rows of up to 2^28 numbers."""
    if rows.device.type != "cpu":
        parts = (torch.linalg.vector_norm(part, dim=1, dtype=torch.float64).square() for part in rows.split(1 << 20, 1))
        return reduce(torch.add, parts)
    out = torch.empty(len(rows), dtype=torch.float64)
    _in_threads(_square_rows, rows.numpy(), out.numpy())
    return out


def scale_rows(rows: torch.Tensor, factors: torch.Tensor, limit: float) -> torch.Tensor:
    """Return round(rows * factors), (B, n) whole float32 from -limit to limit; 0 where the factor (B,) is 0."""
    factors = factors.float()
    if rows.device.type != "cpu":
        found = (rows * factors[:, None]).round_().clamp_(-limit, limit)
        return torch.where(factors[:, None] > 0, found, torch.zeros_like(found))
    out = torch.empty_like(rows)
    _in_threads(partial(_scale_rows, np.float32(limit)), rows.numpy(), factors.numpy(), out.numpy())
    return out


def add_rows(total: torch.Tensor, rows: torch.Tensor, unit: float) -> None:
    """Add unit * (the sum of all rows) to `total` (n,) float64, exactly, for whole `rows` (B, n) of float32."""
    if rows.device.type != "cpu":
        total.add_(rows.sum(0, dtype=torch.float64), alpha=unit)
        return
    _share(rows.size(1), rows.numel(), partial(_add_rows, rows.numpy(), unit, total.numpy()))


def _exact_parts(one: Whole, other: Whole) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Cut two matrices (k, m) and (k, n) along k into parts whose products are exact in the floats that they are in."""
    kind, most = _holding(one, other)
    parts = (side.to(kind).flatten(0, 1).split(most) for side in (one, other))
    return zip(*parts, strict=True)


def _holding(one: Whole, other: Whole) -> tuple[torch.dtype, int]:
    """Return the floats to multiply in, and how many products of two numbers they can always add up."""
    most = int(_SINGLE // (one.top * other.top))
    if one.device == "cpu" and most >= _FEWEST:
        return torch.float32, most
    return torch.float64, MOST_TERMS


def multiply(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the exact product of int8 matrices (m, k) and (k, n), k <= `MOST_TERMS`.

    In int32, or in float64 where the device's own products failed a trial or do not come in this shape.
    """
    if _fits(left, right) and _is_exact(left.device.type):
        return torch._int_mm(left, right)  # noqa: SLF001 - the only product of int8; tests hold what it does
    return left.double() @ right.double()


@cache
def uses_int8(device: str) -> bool:
    """Return whether products of int8 are exact here and fast; the sums are the same either way.

    A processor's instructions say it and no clock, so a training that goes on later goes on in the same way. Without
    these, int8 takes some 60 times as long as float32.
    """
    if device != "cpu":
        return _is_exact(device)
    has: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # where torch cannot say, float32 serves
    return any(has.get(name) for name in ("avx512_vnni", "avx_vnni", "amx_int8")) and _is_exact(device)


def _fits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether the device has int8 products of this shape; CUDA wants more than 16 rows and multiples of 8.

    On a processor torch fails in silence, and leaves what was in memory, where a dimension of 1 has another stride than
    it expects, as in a transposed row (pytorch issue 195066).
    """
    if left.device.type == "cpu":
        return 1 not in (*left.shape, *right.shape)
    return left.size(0) > 16 and not left.size(1) % 8 and not right.size(1) % 8


@cache
def _is_exact(device: str) -> bool:
    """Try products of extremes, of several shapes, laid out as `multiply` gets them.

    Some devices add pairs up in 16 bits, shifted to 0 to 255 too, and which kernel serves depends on the shape.
    """
    extremes, generator = torch.tensor([-128, -127, 127], dtype=torch.int8), torch.Generator().manual_seed(0)
    for rows, terms, columns in itertools.product(_TRIED, repeat=3):
        sides = (torch.randint(3, (terms, size), generator=generator) for size in (rows, columns))
        one, other = (extremes[side].to(device) for side in sides)
        for a, b in ((one.T, other), (one.T.contiguous(), other.T.contiguous().T)):
            if _fits(a, b) and not _is_product(a, b):
                return False
    return True


def _is_product(left: torch.Tensor, right: torch.Tensor) -> bool:
    try:
        return torch.equal(torch._int_mm(left, right).long().cpu(), left.long().cpu() @ right.long().cpu())  # noqa: SLF001
    except (RuntimeError, NotImplementedError):
        return False


def _float_grams(rows: Whole) -> torch.Tensor:
    """Return the inner products (B, T, T) of whole rows, in float32 or, where that is too short, float64.

    A few examples at a time are floats: their copies stay small."""
    kind, most = _holding(rows, rows)
    count, *size = rows.digits[0].shape
    found = torch.zeros(
        count, size[0], size[0], device=rows.digits[0].device, dtype=kind if size[1] <= most else torch.float64
    )
    few = max(1, _COPIED // math.prod(size))
    for at in range(0, count, few):
        for part in rows.examples(at, few).to(kind).split(most, 2):
            found[at : at + few] += torch.bmm(part, part.mT)
    return found


def _grams(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the inner products (B, T, T) of int8 rows, in int32 or, where the rows are longer, in float64."""
    parts = [
        torch.stack([multiply(a, b.T) for a, b in zip(left.unbind(0), right.unbind(0), strict=True)])
        for left, right in zip(one.split(MOST_TERMS, 2), other.split(MOST_TERMS, 2), strict=True)
    ]
    return parts[0] if len(parts) == 1 else _added([part.double() for part in parts])


def _added(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Add up entry by entry: the sum over a stack may add the last examples in another order."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _rounded(records: torch.Tensor, factors: torch.Tensor, seeds: torch.Tensor) -> torch.Tensor:
    """Return what `_round_rows` writes, by torch."""
    starts = (seeds.long() & 0xFFFFFFFF) * 0xC2B2AE3D & 0xFFFFFFFF
    starts = (starts ^ (starts >> 13)) * 0x27D4EB2F & 0xFFFFFFFF
    words = (torch.arange(records.size(2), device=records.device) * 0x9E3779B1 & 0xFFFFFFFF) ^ starts[..., None]
    words = ((words ^ (words >> 15)) * 0x85EBCA77) & 0xFFFFFFFF
    shares = (words >> 9).float() * 2.0**-23
    values = (records * factors[..., None] + shares).floor().clamp(-127.0, 127.0)
    return torch.where(factors[..., None] != 0, values, 0.0).to(torch.int8)


def _halves(records: torch.Tensor, factors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what `_split_rows` writes, by torch."""
    limit = float(TOP[2])
    values = (records * factors[..., None] + 0.5).floor().clamp(-limit, limit)
    values = torch.where(factors[..., None] != 0, values, 0.0).int()
    upper = (values + 64) >> 7
    return (values - (upper << 7)).to(torch.int8), upper.to(torch.int8)
