"""Where private randomness comes from: the operating system, never a seed.

Noise, Poisson inclusion and every other draw that a guarantee rests on comes from a `NoiseSource`. Its keystream is
AES-256 in counter mode under a key of 32 bytes of the operating system's entropy, so a state of 32 bits can not be
brute-forced as a generator's seed can. That this keystream passes for fair bits is the one assumption left: what is
made of the bits is exact.
"""

import hashlib
import math
import os
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from palimpsest import validate
from palimpsest.errors import PalimpsestError
from palimpsest.privacy.circle import add_on_grid, uniforms, whole_normals
from palimpsest.privacy.grid import GRID_BITS, LEAST_STD

_CHUNK = 1 << 16  # values drawn at once: they stay in the processor's cache
_MOST_STD = 2.0**50  # steps; 2^12 standard deviations fit into 64 bits, and none is that far out in 10^3,000,000 draws


_forks = 0  # a child may get the number that its parent had


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


def _process() -> tuple[int, int]:
    return os.getpid(), _forks


class NoiseSource:
    """Uniform, Gaussian and Bernoulli draws from a keyed keystream.

    Guarantee: the keystream is computationally indistinguishable from independent uniform bits (AES-256-CTR as a
    pseudo-random generator: an assumption). Given such bits, Gaussians rounded to whole numbers have exactly their
    distribution: where the 52 bits that a uniform begins with do not decide the number, more are drawn. A Gaussian made
    of 53 bits alone would end at 8.57 standard deviations, and the missing tail alone would cost delta.

    Attributes:
        fixed: True where `seed` was given. Nothing drawn from a fixed source is private.
    """

    def __init__(self, seed: int | None = None) -> None:
        """Key the source from the operating system, or, in tests only, from `seed`."""
        self.fixed = seed is not None
        self._start(os.urandom(32) if seed is None else hashlib.sha256(f"testing.noise_seed={seed}".encode()).digest())

    def _start(self, key: bytes) -> None:
        self._process = _process()
        self._stream = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
        self._zeros, self._drawn = bytes(8 * _CHUNK), bytearray(8 * _CHUNK + 15)  # 15: what the cipher asks for

    def _bits(self, size: int) -> np.ndarray:
        """Draw `size` independent 64-bit words, to be used before the next ones are drawn."""
        if not self.fixed and _process() != self._process:
            self._start(os.urandom(32))  # a forked process must not draw its parent's noise again
        if size > _CHUNK:
            return np.frombuffer(self._stream.update(bytes(8 * size)), dtype=np.uint64)
        self._stream.update_into(memoryview(self._zeros)[: 8 * size], self._drawn)
        return np.frombuffer(self._drawn, dtype=np.uint64, count=size)

    def uniform(self, size: int) -> np.ndarray:
        """Draw uniforms in (0, 1), shape (size,), float64: odd multiples of 2^-53, all exact, so never 0 or 1."""
        return uniforms(self._bits(size))

    def whole_normal(self, size: int, std: float) -> np.ndarray:
        """Draw independent round(N(0, std^2)), shape (size,), int64.

        Guarantee: given fair bits, the distribution is that of a real Gaussian rounded to the nearest whole number, to
        its last digit and over the whole of its range (`circle`). Total variation from it: 0.

        Raises:
            ValueError: for an `std` below 0 or beyond 2^50, from where on 64-bit whole numbers would not do.
        """
        validate.require_in_range(0.0, _MOST_STD, std=std)
        steps = np.empty(size, dtype=np.int64)
        for start in range(0, size, _CHUNK):
            part = steps[start : start + _CHUNK]
            part[:] = self._pairs((part.size + 1) // 2, std)[: part.size]
        return steps

    def add_gaussian(self, tensor: torch.Tensor, std: float) -> None:
        """Round a contiguous `tensor` to the grid of `std` and add independent N(0, std^2), also rounded to it.

        A standard deviation of 0 leaves the tensor as it is. Noise for a CUDA device is drawn on it where torch brings
        Triton along (`cuda_noise`), and elsewhere on the CPU, wherever the tensor lies; the sum is cast to its dtype.

        Guarantee: the result is a function of (rounded tensor + real Gaussian): for S on the grid, round(S + X) =
        S + round(X), and what is added is round(X), exactly (`whole_normal`). The noise therefore covers any two
        tensors whose *rounded* values are within the sensitivity. Rounding moves each of d values by at most half a
        step, so two tensors by at most sqrt(d) steps in L2: `covering_std` makes room for it.

        Raises:
            ValueError: for a dtype narrower than float32, whose grid would show through the noise, or an `std` that
                `grid_of` refuses.
            DeviceNoiseError: a CUDA device draws other noise than the processor does from the same bits.
        """
        if tensor.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"noise needs float32 or float64, got {tensor.dtype}")
        if std == 0:
            return
        values, grid = tensor.view(-1), grid_of(std)
        if add := device_noise(tensor.device):
            add(values, std, grid, self._bits)
            return
        for start in range(0, values.numel(), _CHUNK):
            part = values[start : start + _CHUNK]
            here = part.cpu()  # itself where it is there
            add_on_grid(here.numpy(), self._pairs((part.numel() + 1) // 2, std / grid), grid)
            part.copy_(here)

    def _pairs(self, pairs: int, std: float) -> np.ndarray:
        """Draw 2 * pairs independent round(N(0, std^2)), int64."""
        return whole_normals(self._bits(2 * pairs), std, self._bits)

    def bernoulli(self, size: int, rate: float) -> np.ndarray:
        """Flip independent coins, True with probability `rate`, rounded down to a multiple of 2^-52: (size,), bool.

        The probability is never higher than `rate`: the charge for a sampling rate covers lower ones.
        """
        return self.uniform(size) + 2.0**-53 <= rate

    def integers(self, size: int, high: int) -> np.ndarray:
        """Draw independent integers in [0, high), shape (size,), int64; exactly uniform (rejection)."""
        limit = np.uint64(2**64 // high * high - 1)
        words = self._bits(size).copy()
        while (rejected := words > limit).any():
            words[rejected] = self._bits(int(rejected.sum()))
        return (words % np.uint64(high)).astype(np.int64)


@cache
def device_noise(
    device: torch.device,
) -> Callable[[torch.Tensor, float, float, Callable[[int], np.ndarray]], None] | None:
    """Return the function that adds noise on this device; None where the processor draws: no CUDA, or Triton cannot
    compile, for want of a C compiler say.

    Raises:
        DeviceNoiseError: the device draws, but not what the processor draws.
    """
    if device.type != "cuda" or not torch.version.cuda:
        return None
    try:
        from palimpsest.privacy import cuda_noise

        cuda_noise.require_agreement(device)
    except PalimpsestError:
        raise
    except Exception:  # Triton, compilers and drivers have errors of their own
        return None
    return cuda_noise.add_gaussian


def grid_of(std: float) -> float:
    """Return the step to which noise of this standard deviation, and what it is added to, is rounded: a power of two.

    >>> grid_of(1.5) == 2.0**-24
    True

    Raises:
        ValueError: beyond 2^-900 and 2^900. Float64 holds neither the step of a far smaller one nor its inverse, and
            what is divided by the step would be cut off where the noise is not.
    """
    validate.require_in_range(LEAST_STD, 1.0 / LEAST_STD, std=std)
    return math.ldexp(1.0, math.frexp(std)[1] - 1 - GRID_BITS)
