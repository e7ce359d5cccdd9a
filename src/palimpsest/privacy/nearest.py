"""Exact nearest neighbours: the answer for one row depends on that row and on the candidates, and on nothing else.

Matrix products are rounded in an order that depends on their size, on threads and on the device, so a row among others
could get another neighbour than the same row by itself. Here nothing is rounded. Unit vectors are truncated to whole
multiples of 2^-12 and stay of length at most 1, so products of coordinates are whole multiples of 2^-24, and the sum of
any of them is at most 1, that is 2^24 steps, by Cauchy and Schwarz over the coordinates it is taken of. A float32 has a
significand of 24 bits and so holds every such sum: in whatever order they are added, no bit is lost.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from palimpsest import validate
from palimpsest.errors import ModelError
from palimpsest.privacy.means import unit_rows
from palimpsest.shards import map_items

STEPS = 2**12  # per unit length: a product of two has 24 bits, as many as a float32 holds
_MOST_DIMENSIONS = 2**20  # up to here a float64 norm is exact to far less than one step of a squared length, 2^-24
_IN_CACHE = 1 << 16  # numbers that are brought to length 1 at once
_ON_CPU, _ON_DEVICE = (4096, 1024), (16384, 8192)  # rows and candidates whose products are in memory at once
_PLACES = 2**31  # a key is a product in steps of 2^-24 times this, less the candidate's place
_WORTH = 2**28  # rows times candidates, some seconds: fewer are not worth sending to workers
_NONE = -(2**62)  # a key below that of every candidate
_CPU = torch.device("cpu")


def round_to_grid(vectors: np.ndarray) -> np.ndarray:
    """Bring each vector to length 1 and round it towards zero to whole multiples of 2^-12: float32 (n, d).

    No result is longer than 1, exactly: its squared length is a whole number of 2^-24, and that of the vector it is cut
    from exceeds 1 by less than one such step. A vector that is zero or not finite becomes zero.

    Args:
        vectors: shape (n, d), of any length and memory order; a memory map is read piece by piece.

    >>> (round_to_grid(np.array([[3.0, 4.0], [0.0, 0.0], [np.nan, 1.0]])) * STEPS).tolist()
    [[2457.0, 3276.0], [0.0, 0.0], [0.0, 0.0]]
    """
    count, dimensions = vectors.shape
    validate.require_in_range(1, _MOST_DIMENSIONS, dimensions=dimensions)
    result = np.empty((count, dimensions), dtype=np.float32)
    step = max(1, _IN_CACHE // dimensions)
    for start in range(0, count, step):
        # Row after row in memory: a sum along a row then never depends on how many rows there are.
        units = unit_rows(np.ascontiguousarray(vectors[start : start + step], dtype=np.float64))
        result[start : start + step] = np.trunc(units * STEPS) / STEPS
    return result


def find_nearest(
    rows: np.ndarray,
    candidates: np.ndarray,
    k: int = 1,
    device: torch.device = _CPU,
    blocks: tuple[int, int] | None = None,
) -> np.ndarray:
    """Find the k candidates of largest inner product on the grid, best first: int64 (n, k) indices, -1 for none.

    Of equally near candidates the one with the smaller index is nearer.

    Guarantee: a row's answer is a function of its own vector and of the candidates. Other rows, their number and order,
    `blocks`, threads and the device do not show in it, not in one bit. Time and memory are not covered.

    Args:
        rows: shape (n, d), any length: the cosine counts. A row that is zero or not finite has no neighbours.
        candidates: shape (m, d), likewise; one that is zero or not finite is nobody's neighbour.
        k: neighbours wanted; where there are fewer candidates, the rest is -1.
        device: where products are computed; vectors are brought to length 1 on the CPU.
        blocks: how many rows and candidates are multiplied at once; None for what suits the device.

    Raises:
        ModelError: the device multiplies with less than the 24 bits of a float32.
    """
    rows_at_once, candidates_at_once = blocks or (_ON_CPU if device.type == "cpu" else _ON_DEVICE)
    validate.require_positive(k=k, rows_at_once=rows_at_once, candidates_at_once=candidates_at_once)
    grid = round_to_grid(candidates)
    places = np.flatnonzero(grid.any(axis=1))
    if not len(rows) or not places.size:
        return np.full((len(rows), k), -1, dtype=np.int64)
    search = _Search(torch.from_numpy(grid[places]).to(device), places, k, candidates_at_once)
    parts = (rows[start : start + rows_at_once] for start in range(0, len(rows), rows_at_once))
    return np.concatenate(list(map_items(search, parts) if len(rows) * places.size >= _WORTH else map(search, parts)))


@dataclass(frozen=True, eq=False)
class _Search:
    """A search for the nearest candidates of some rows.

    Attributes:
        usable: candidates on the grid, float32 (u, d), where products are computed.
        places: the index of each among all candidates, int64 (u,).
        k: neighbours wanted.
        at_once: candidates that are multiplied at once.
    """

    usable: torch.Tensor
    places: np.ndarray
    k: int
    at_once: int

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Return the indices of the nearest candidates: int64 (n, k), -1 for none."""
        part = round_to_grid(rows)
        own = torch.from_numpy(part).to(self.usable.device)
        with _use_full_precision():
            require_exact(own.device)
            scored = _score_blocks(own, self.usable, self.at_once)
            best = (_search_one(own, scored) if self.k == 1 else _search_few(own, scored, self.k)).cpu().numpy()
        return np.where(part.any(axis=1, keepdims=True) & (best >= 0), self.places[best], -1)


def _score_blocks(rows: torch.Tensor, candidates: torch.Tensor, at_once: int) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield the index of a block's first candidate and the block's products (n, b), to be used before the next."""
    buffer = torch.empty(len(rows) * min(at_once, len(candidates)), device=rows.device)
    for start in range(0, len(candidates), at_once):
        block = candidates[start : start + at_once]
        products = buffer[: len(rows) * len(block)].view(len(rows), len(block))
        _multiply(rows, block, products)
        yield start, products


def _search_one(rows: torch.Tensor, scored: Iterator[tuple[int, torch.Tensor]]) -> torch.Tensor:
    best = torch.full((len(rows),), -torch.inf, device=rows.device)
    places = torch.full((len(rows),), -1, dtype=torch.int64, device=rows.device)
    for start, products in scored:
        place = _first_largest(products)[:, None]
        value = products.gather(1, place)[:, 0]
        better = value > best  # strictly: of equal ones the earlier stays
        best = torch.where(better, value, best)
        places = torch.where(better, place[:, 0] + start, places)
    return places[:, None]


def _search_few(rows: torch.Tensor, scored: Iterator[tuple[int, torch.Tensor]], k: int) -> torch.Tensor:
    keys = torch.full((len(rows), k), _NONE, device=rows.device)  # int64, largest first
    for start, products in scored:
        keys = _merge_keys(keys, start, products)
    return torch.where(keys == _NONE, -1, _PLACES - 1 - (keys & (_PLACES - 1)))


def _merge_keys(keys: torch.Tensor, start: int, products: torch.Tensor) -> torch.Tensor:
    """Merge the keys so far with those of a block and keep the largest; no two keys are equal, so all sorts agree."""
    least = (keys[:, -1:] >> 31).float() / STEPS**2  # a later candidate must be nearer, not as near
    row, place = (products > least).nonzero(as_tuple=True)
    counts = row.bincount(minlength=len(keys))
    column = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    width = keys.size(1)
    wide = torch.full((len(keys), width + int(counts.max())), _NONE, device=keys.device)
    wide[:, :width] = keys
    steps = (products[row, place] * STEPS**2).long()
    wide[row, width + column] = steps * _PLACES + (_PLACES - 1 - start - place)
    return wide.topk(width, dim=1).values


def _multiply(rows: torch.Tensor, candidates: torch.Tensor, products: torch.Tensor) -> None:
    """Write rows @ candidates.T into `products`."""
    if _uses_numpy(rows):
        np.matmul(rows.numpy(), candidates.numpy().T, out=products.numpy())
    else:
        torch.mm(rows, candidates.T, out=products)


def _first_largest(products: torch.Tensor) -> torch.Tensor:
    """Return the first index of each row's largest value: int64 (n,)."""
    return torch.from_numpy(products.numpy().argmax(axis=1)) if _uses_numpy(products) else products.argmax(dim=1)


def _uses_numpy(tensor: torch.Tensor) -> bool:
    """Return whether to use NumPy: on the CPU, as measured, its products were no slower, its argmax 8 times faster."""
    return tensor.device.type == "cpu"


@contextmanager
def _use_full_precision() -> Iterator[None]:
    """Switch off TF32 on a GPU, whatever the process has set."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def require_exact(device: torch.device) -> None:
    """Multiply public numbers whose product is known: environment variables can lower the precision unseen.

    Raises:
        ModelError: the device multiplies with less than the 24 bits of a float32.
    """
    grid = round_to_grid(
        np.random.default_rng(0).normal(size=(64, 384)) ** 9
    )  # some coordinates need all their 12 bits
    steps = (grid * STEPS).astype(np.int64)
    vectors, products = torch.from_numpy(grid).to(device), torch.empty((64, 64), device=device)
    _multiply(vectors, vectors, products)
    if not np.array_equal(products.cpu().numpy(), (steps @ steps.T) / STEPS**2):
        raise ModelError(
            "Matrix products of float32 are not computed to float32's precision here.",
            "Unset NVIDIA_TF32_OVERRIDE and MKL_BLAS_COMPUTE_MODE, or use another device.",
        )
