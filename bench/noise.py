"""What exactly rounded noise costs: time a value beside a float64 Box-Muller, and how many values need more bits.

    OMP_NUM_THREADS=1 python bench/noise.py                     # 2^22 values, 15 rounds
    OMP_NUM_THREADS=1 python bench/noise.py --out result.json   # the figures as JSON too

Both add noise to a float32 tensor, chunk by chunk, on one thread, from the same keystream; they take turns. "float64"
is what the package did before: N(0, std^2) in double precision, cast and added, whose tail ends at 8.57 standard
deviations. "exact" rounds the tensor to a grid and adds round(N(0, std^2)) in whole numbers. Time is CPU time, the
median over rounds. Where there is a CUDA device, what it draws itself is timed, too.

Feeds docs/performance.md. It needs no folder.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numba import njit

from palimpsest.privacy.circle import WIDTH, cosine, settle, sine
from palimpsest.privacy.entropy import NoiseSource

CHUNK = 1 << 16
STEPS = 2.0**25  # the most steps that a standard deviation has: most values are open there


@njit(error_model="numpy", nogil=True)
def uniforms(words: np.ndarray) -> np.ndarray:
    """Odd multiples of 2^-53 in (0, 1)."""
    values = np.empty(words.size)
    for index in range(words.size):
        values[index] = (np.float64(np.int64(words[index] >> np.uint64(12))) + 0.5) * 2.0**-52
    return values


@njit(error_model="numpy", nogil=True)
def on_circle(words: np.ndarray, logarithms: np.ndarray, std: float) -> np.ndarray:
    """Box and Muller's transform in double precision, by Taylor polynomials in the first octant."""
    size = logarithms.size
    points = np.empty(2 * size)
    for index in range(size):
        word = words[index]
        angle = (np.float64(np.int64(word >> np.uint64(12))) + 0.5) * (0.25 * math.pi * 2.0**-52)
        up, along = sine(angle), cosine(angle)
        radius = std * math.sqrt(-2.0 * logarithms[index])
        swapped = (word & np.uint64(1)) != 0
        first = radius if (word & np.uint64(2)) != 0 else -radius
        second = radius if (word & np.uint64(4)) != 0 else -radius
        points[index] = first * (up if swapped else along)
        points[size + index] = second * (along if swapped else up)
    return points


class Floating(NoiseSource):
    """A source that adds noise in floating point."""

    def add_gaussian(self, tensor: torch.Tensor, std: float) -> None:
        """Add N(0, std^2), drawn in float64 and cast."""
        for start in range(0, tensor.numel(), CHUNK):
            part = tensor[start : start + CHUNK]
            words = self._bits(part.numel())
            half = part.numel() // 2
            drawn = torch.from_numpy(on_circle(words[half:], np.log(uniforms(words[:half])), std))
            part.add_(drawn.to(part.dtype))


def seconds(act: Callable[[], None]) -> float:
    """CPU time of one call."""
    start = time.process_time()
    act()
    return time.process_time() - start


def open_share(pairs: int) -> float:
    """Share of pairs of which double precision does not settle both numbers."""
    source, found = NoiseSource(), 0
    points, open_cells = np.empty(CHUNK, dtype=np.int64), np.empty(CHUNK // 2, dtype=np.bool_)
    rounds = math.ceil(2 * pairs / CHUNK)
    for _ in range(rounds):
        words = source.integers(CHUNK, 2**63).astype(np.uint64) << np.uint64(1)
        settle(words | np.uint64(1), WIDTH, STEPS, points, open_cells)
        found += int(open_cells.sum())
    return found / (rounds * CHUNK // 2)


def on_device(values: int, rounds: int) -> dict[str, float]:
    """Milliseconds, until a CUDA device is done, of noise on a large tensor of it, and of torch's own normals."""
    large, source = torch.zeros(values, dtype=torch.float64, device="cuda"), NoiseSource()
    small = [torch.zeros(10_000, dtype=torch.float64, device="cuda") for _ in range(250)]
    ways: dict[str, Callable[[], object]] = {
        f"exact, {values:,} values": lambda: source.add_gaussian(large, 1.0),
        f"torch's, {values:,} values": lambda: large.add_(torch.randn_like(large)),
        "exact, 250 tensors of 10,000": lambda: [source.add_gaussian(tensor, 1.0) for tensor in small],
    }
    return {name: statistics.median(waited(act) for _ in range(rounds + 1)) for name, act in ways.items()}


def waited(act: Callable[[], object]) -> float:
    """Milliseconds of one call on a device."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    act()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, default=1 << 22, help="values of the tensor, rounded up to whole chunks")
    parser.add_argument("--rounds", type=int, default=15, help="calls of each, in turns")
    parser.add_argument("--std", type=float, default=0.06, help="standard deviation of the noise")
    parser.add_argument("--pairs", type=int, default=50_000_000, help="pairs of which the open ones are counted")
    parser.add_argument("--out", type=Path, help="where the figures are written as JSON")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    tensor = torch.zeros(math.ceil(asked.values / CHUNK) * CHUNK)
    sources: dict[str, NoiseSource] = {"float64": Floating(), "exact": NoiseSource()}
    times: dict[str, list[float]] = {name: [] for name in sources}
    for turn in range(asked.rounds + 1):
        for name in sorted(sources, reverse=bool(turn % 2)):
            taken = seconds(lambda source=sources[name]: source.add_gaussian(tensor, asked.std))
            if turn:  # the first one compiles
                times[name].append(taken / tensor.numel() * 1e9)
    medians = {name: statistics.median(own) for name, own in times.items()}
    ratio = statistics.median(e / f for e, f in zip(times["exact"], times["float64"], strict=True))
    for name, own in times.items():
        print(f"{name:8} {medians[name]:6.2f} ns a value ({min(own):.2f} to {max(own):.2f})")
    print(f"exact / float64: {medians['exact'] / medians['float64']:.2f}; median of the rounds' ratios {ratio:.2f}")
    share = open_share(asked.pairs)
    print(f"pairs with a number that needs interval arithmetic, at {STEPS:g} steps: {share:.2g} of {asked.pairs:,}")
    device = on_device(82_000_000, asked.rounds) if torch.cuda.is_available() else {}
    for name, taken in device.items():
        print(f"on the device: {name}: {taken:.1f} ms")
    if asked.out:
        found = {"ns": medians, "ratio": ratio, "open": share, "device ms": device}
        asked.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
