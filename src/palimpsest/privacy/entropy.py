"""Where private randomness comes from: the operating system, never a seed.

Noise, Poisson inclusion and every other draw that a guarantee rests on comes from a `NoiseSource`. Its keystream is
AES-256 in counter mode under a key of 32 bytes of the operating system's entropy, so a state of 32 bits can not be
brute-forced as a generator's seed can.
"""

import hashlib
import os

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from palimpsest.privacy.circle import on_circle, uniforms

_CHUNK = 1 << 16  # values drawn at once: they stay in the processor's cache


_forks = 0  # a child may get the number that its parent had


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


def _process() -> tuple[int, int]:
    return os.getpid(), _forks


class NoiseSource:
    """Uniform, Gaussian and Bernoulli draws from a keyed keystream.

    Guarantee: draws are computationally indistinguishable from independent uniform bits (AES-256-CTR as a
    pseudo-random generator). Uniforms carry 53 bits, so the Gaussian's range reaches 8.57 standard deviations; a
    float32 Box-Muller stops at 5.77 and the missing tail alone would cost delta.

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
        """`size` independent 64-bit words, to be used before the next ones are drawn."""
        if not self.fixed and _process() != self._process:
            self._start(os.urandom(32))  # a forked process must not draw its parent's noise again
        if size > _CHUNK:
            return np.frombuffer(self._stream.update(bytes(8 * size)), dtype=np.uint64)
        self._stream.update_into(memoryview(self._zeros)[: 8 * size], self._drawn)
        return np.frombuffer(self._drawn, dtype=np.uint64, count=size)

    def uniform(self, size: int) -> np.ndarray:
        """Uniforms in (0, 1), shape (size,), float64: odd multiples of 2^-53, all exact, so never 0 and never 1."""
        return uniforms(self._bits(size))

    def normal(self, size: int) -> np.ndarray:
        """Standard normals, shape (size,), float64."""
        normals = np.empty(size)
        for start in range(0, size, _CHUNK):
            part = normals[start : start + _CHUNK]
            part[:] = self._pairs((part.size + 1) // 2, 1.0)[: part.size]
        return normals

    def add_gaussian(self, tensor: torch.Tensor, std: float) -> None:
        """Add independent N(0, std^2) to every value of a contiguous `tensor`; drawn in float64, then cast.

        Raises:
            ValueError: for a dtype narrower than float32, whose grid would show through the noise.
        """
        if tensor.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"noise needs float32 or float64, got {tensor.dtype}")
        values = tensor.view(-1)
        for start in range(0, values.numel(), _CHUNK):
            part = values[start : start + _CHUNK]
            drawn = torch.from_numpy(self._pairs((part.numel() + 1) // 2, std)[: part.numel()])
            part.add_(drawn.to(part.device, part.dtype))

    def _pairs(self, pairs: int, std: float) -> np.ndarray:
        """2 * pairs independent N(0, std^2), float64 (Box and Muller 1958)."""
        words = self._bits(2 * pairs)
        return on_circle(words[pairs:], np.log(uniforms(words[:pairs])), std)

    def bernoulli(self, size: int, rate: float) -> np.ndarray:
        """Independent coins that are True with probability `rate`, shape (size,), bool."""
        return self.uniform(size) < rate

    def integers(self, size: int, high: int) -> np.ndarray:
        """Independent integers in [0, high), shape (size,), int64; exactly uniform (rejection)."""
        limit = np.uint64(2**64 // high * high - 1)
        words = self._bits(size).copy()
        while (rejected := words > limit).any():
            words[rejected] = self._bits(int(rejected.sum()))
        return (words % np.uint64(high)).astype(np.int64)
